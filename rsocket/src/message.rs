//! What two ends say to each other: the private data of the connection, messages of 32 bits, entries that are written into the peer's
//! tables. Source: rdma-core `librdmacm/docs/rsocket` and `librdmacm/rsocket.c`.
//!
//! ```text
//!   immediate data   31..29 operation   28..0 its value
//!   private data     version 1 | flags 1 | credits 2 | 0 3 | maps 1 | target SGL 16 | receive buffer 16      in network byte order
//!   SGE              address 8 | key 4 | length 4          in the byte order of its reader
//!   map entry        offset 8 | SGE 16                     likewise
//! ```

/// Which is ours. Source: `librdmacm/docs/rsocket`, "Version".
const VERSION: u8 = 1;
/// The sender is a big-endian host. Source: `librdmacm/rsocket.c`, `RS_CONN_FLAG_NET`.
const FLAG_BIG_ENDIAN: u8 = 1;
/// The sender says how many maps it has room for. Source: `librdmacm/rsocket.c`, `RS_CONN_FLAG_IOMAP`.
const FLAG_MAPS: u8 = 2;

/// Bits of a message's value.
const VALUE_BITS: u32 = 29;
/// Most bytes of one data message.
pub(crate) const VALUE_MAX: u32 = (1 << VALUE_BITS) - 1;

/// Operations. Source: `librdmacm/rsocket.c`, `RS_OP_DATA` and those after it.
pub(crate) mod operation {
    /// Bytes were written into the receive buffer.
    pub(crate) const DATA: u32 = 0;
    /// Of a request that sends no message: a write into a map.
    pub(crate) const WRITE: u32 = 2;
    /// Credits, and perhaps an entry of the target SGL.
    pub(crate) const CREDITS: u32 = 4;
    /// An entry of the table of maps.
    pub(crate) const MAP: u32 = 6;
    /// See [`Control`](super::Control).
    pub(crate) const CONTROL: u32 = 7;
}

/// A message, or the number of a request: an operation and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message(pub(crate) u32);

impl Message {
    pub(crate) const fn new(operation: u32, value: u32) -> Self {
        Self(operation << VALUE_BITS | value & VALUE_MAX)
    }

    pub(crate) const fn operation(self) -> u32 {
        self.0 >> VALUE_BITS
    }

    pub(crate) const fn value(self) -> u32 {
        self.0 & VALUE_MAX
    }
}

/// Control messages. Source: `librdmacm/rsocket.c`, `RS_CTRL_DISCONNECT` and those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The sender neither sends nor receives any more.
    Disconnect,
    /// It is there. Nothing follows from it.
    Keepalive,
    /// The sender sends no more.
    Shutdown,
}

impl Control {
    pub(crate) const fn message(self) -> Message {
        Message::new(operation::CONTROL, self as u32)
    }

    pub(crate) const fn of(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::Disconnect),
            1 => Some(Self::Keepalive),
            2 => Some(Self::Shutdown),
            _ => None,
        }
    }
}

/// Memory of the peer: where, and by which key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sge {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) length: u32,
}

/// Bytes of an [`Sge`].
pub(crate) const SGE_BYTES: usize = 16;

/// The byte order of who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Big,
    Little,
}

impl Order {
    /// This host's.
    pub(crate) const HERE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    fn put(self, number: u64, bytes: &mut [u8]) {
        let big = number.to_be_bytes();
        bytes.copy_from_slice(&big[big.len() - bytes.len()..]);
        if self == Self::Little {
            bytes.reverse();
        }
    }

    fn get(self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            Self::Big => bytes.iter().fold(0, add),
            Self::Little => bytes.iter().rev().fold(0, add),
        }
    }
}

impl Sge {
    pub(crate) fn encode(self, order: Order) -> [u8; SGE_BYTES] {
        let mut bytes = [0; SGE_BYTES];
        order.put(self.address, &mut bytes[..8]);
        order.put(self.key.into(), &mut bytes[8..12]);
        order.put(self.length.into(), &mut bytes[12..]);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SGE_BYTES], order: Order) -> Self {
        Self {
            address: order.get(&bytes[..8]),
            key: order.get(&bytes[8..12]) as u32,
            length: order.get(&bytes[12..]) as u32,
        }
    }
}

/// Memory of the peer that is written by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapEntry {
    /// The offset of its first byte.
    pub(crate) offset: u64,
    pub(crate) memory: Sge,
}

/// Bytes of a [`MapEntry`].
pub(crate) const MAP_BYTES: usize = 24;

impl MapEntry {
    pub(crate) fn encode(self, order: Order) -> [u8; MAP_BYTES] {
        let mut bytes = [0; MAP_BYTES];
        order.put(self.offset, &mut bytes[..8]);
        bytes[8..].copy_from_slice(&self.memory.encode(order));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; MAP_BYTES], order: Order) -> Self {
        let mut memory = [0; SGE_BYTES];
        memory.copy_from_slice(&bytes[8..]);
        Self { offset: order.get(&bytes[..8]), memory: Sge::decode(&memory, order) }
    }

    /// Where `offset` is in the peer's memory, and how many bytes there are from it on.
    pub(crate) fn place(&self, offset: u64) -> Option<(u64, u32)> {
        let into = offset.checked_sub(self.offset)?;
        let left = u64::from(self.memory.length).checked_sub(into).filter(|left| *left > 0)?;
        Some((self.memory.address.wrapping_add(into), left as u32))
    }
}

/// How many maps there is room for, as the one byte that the peer is told. Source: `librdmacm/rsocket.c`, `rs_value_to_scale`: up to 128
/// as it is, above in units of 256.
fn maps_to_scale(maps: u16) -> u8 {
    if maps <= 128 { maps as u8 } else { 128 | (maps >> 8).min(127) as u8 }
}

/// Source: `librdmacm/rsocket.c`, `rs_scale_to_value`.
fn maps_of_scale(scale: u8) -> u16 {
    if scale <= 128 { scale.into() } else { u16::from(scale & 127) << 8 }
}

/// The number of maps that the peer understands when it is told about so many: those above 128 go in units of 256.
pub(crate) fn maps_told(maps: u16) -> u16 {
    maps_of_scale(maps_to_scale(maps))
}

/// What is not the private data of such a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRsocket {
    /// Too few bytes.
    #[error("{0} bytes of private data; a stream socket sends {bytes}", bytes = ConnectData::BYTES)]
    Short(usize),
    /// Another version, or something else.
    #[error("version {0} of the protocol; only version 1 is known")]
    Version(u8),
    /// A target SGL without entries.
    #[error("no entry in the target SGL; at least one is needed")]
    NoTargets,
}

/// The private data of a request for a connection, and of its acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectData {
    /// How its sender reads entries.
    pub(crate) order: Order,
    /// Receives that are posted.
    pub(crate) credits: u16,
    /// Maps that there is room for behind the target SGL.
    pub(crate) maps: u16,
    /// The target SGL; its length is a number of entries.
    pub(crate) targets: Sge,
    /// The first part of the receive buffer.
    pub(crate) buffer: Sge,
}

impl ConnectData {
    pub(crate) const BYTES: usize = 40;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1] = FLAG_MAPS | if self.order == Order::Big { FLAG_BIG_ENDIAN } else { 0 };
        Order::Big.put(self.credits.into(), &mut bytes[2..4]);
        bytes[7] = maps_to_scale(self.maps);
        bytes[8..24].copy_from_slice(&self.targets.encode(Order::Big));
        bytes[24..].copy_from_slice(&self.buffer.encode(Order::Big));
        bytes
    }

    /// Reads what the connection manager passed on, which may be longer.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, NotRsocket> {
        let Some(bytes) = bytes.first_chunk::<{ Self::BYTES }>() else {
            return Err(NotRsocket::Short(bytes.len()));
        };
        if bytes[0] != VERSION {
            return Err(NotRsocket::Version(bytes[0]));
        }
        let sge = |at: usize| {
            let mut part = [0; SGE_BYTES];
            part.copy_from_slice(&bytes[at..at + SGE_BYTES]);
            Sge::decode(&part, Order::Big)
        };
        let targets = sge(8);
        if targets.length == 0 {
            return Err(NotRsocket::NoTargets);
        }
        Ok(Self {
            order: if bytes[1] & FLAG_BIG_ENDIAN == 0 { Order::Little } else { Order::Big },
            credits: Order::Big.get(&bytes[2..4]) as u16,
            maps: if bytes[1] & FLAG_MAPS == 0 { 0 } else { maps_of_scale(bytes[7]) },
            targets,
            buffer: sge(24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the layout in `librdmacm/docs/rsocket`.
    #[test]
    fn private_data_are_those_of_the_specification() {
        let data = ConnectData {
            order: Order::Little,
            credits: 384,
            maps: 5,
            targets: Sge { address: 0x0102_0304_0506_0708, key: 0x0a0b_0c0d, length: 2 },
            buffer: Sge { address: 0x1112_1314_1516_1718, key: 0x1a1b_1c1d, length: 0x10000 },
        };
        let expected = [
            1, 2, 0x01, 0x80, 0, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 2, 0x11,
            0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x1a, 0x1b, 0x1c, 0x1d, 0, 1, 0, 0,
        ];
        assert_eq!(data.encode(), expected);
        // As it is heard: zeros behind it.
        let mut heard = expected.to_vec();
        heard.resize(196, 0);
        assert_eq!(ConnectData::decode(&heard), Ok(data));
        assert_eq!(ConnectData::decode(&heard[..39]), Err(NotRsocket::Short(39)));
        heard[0] = 2;
        assert_eq!(ConnectData::decode(&heard), Err(NotRsocket::Version(2)));
        (heard[0], heard[1], heard[23]) = (1, 1, 0);
        assert_eq!(ConnectData::decode(&heard), Err(NotRsocket::NoTargets));
        heard[23] = 1;
        let big = ConnectData::decode(&heard).expect("of a big-endian host without maps");
        assert_eq!((big.order, big.maps), (Order::Big, 0));
    }

    #[test]
    fn entries_are_in_their_readers_order() {
        let entry = MapEntry { offset: 0x0102, memory: Sge { address: 0x0304, key: 0x0506, length: 0x0708 } };
        let little = [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 8, 7, 0, 0];
        let big = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 5, 6, 0, 0, 7, 8];
        for (order, bytes) in [(Order::Little, little), (Order::Big, big)] {
            assert_eq!(entry.encode(order), bytes);
            assert_eq!(MapEntry::decode(&bytes, order), entry);
        }
    }

    #[test]
    fn messages_are_an_operation_and_a_value() {
        let message = Message::new(operation::CREDITS, 0x1_2345);
        assert_eq!((message.0, message.operation(), message.value()), (0x8001_2345, 4, 0x1_2345));
        let controls =
            [Control::Disconnect, Control::Keepalive, Control::Shutdown].map(|control| control.message().0);
        assert_eq!(controls, [0xe000_0000, 0xe000_0001, 0xe000_0002]);
        assert!((0..3).all(|value| Control::of(value).is_some_and(|control| control as u32 == value)));
        assert_eq!(Control::of(3), None);
    }

    #[test]
    fn maps_are_told_by_one_byte() {
        for (maps, told) in [(0, 0), (128, 128), (129, 128), (256, 256), (700, 512), (u16::MAX, 32_512)] {
            assert_eq!(maps_told(maps), told, "{maps}");
        }
    }

    #[test]
    fn places_in_a_map_are_inside() {
        let map = MapEntry { offset: 100, memory: Sge { address: 5000, key: 1, length: 10 } };
        assert_eq!(
            [99, 100, 109, 110].map(|at| map.place(at)),
            [None, Some((5000, 10)), Some((5009, 1)), None]
        );
        let high =
            MapEntry { offset: u64::MAX - 1, memory: Sge { address: u64::MAX, key: 1, length: u32::MAX } };
        assert_eq!(high.place(u64::MAX), Some((0, u32::MAX - 1)));
    }
}
