//! RoCEv2: InfiniBand's transport headers behind UDP, and the invariant CRC that ends a packet.
//!
//! ```text
//!   Ethernet | IPv4 or IPv6 | UDP to 4791 | BTH | XRCETH or DETH | RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH
//!     | payload | 0 to 3 bytes of padding | ICRC
//! ```
//!
//! Which headers follow the [`Bth`] is said by its opcode: see [`operation`]. Source of layouts and opcodes: InfiniBand
//! Architecture Specification, volume 1, release 1.4, chapter 9; annex A14 (XRC), annex A17 (RoCEv2).

mod icrc;
pub mod operation;

pub use icrc::icrc;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Layer, WireError, front, put};

/// UDP's destination port.
pub const PORT: u16 = 4791;
/// Bytes of the CRC behind the payload.
pub const ICRC_BYTES: usize = 4;
/// Sequence numbers and numbers of queue pairs have 24 bits.
pub const MASK_24: u32 = 0xff_ffff;

/// Base transport header.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Bth {
    /// One of [`operation`].
    pub opcode: u8,
    /// Solicited event, migration, bytes of padding, version.
    pub flags: u8,
    /// Partition.
    pub partition: U16,
    /// Congestion bits and the destination queue pair.
    pub congestion_qp: U32,
    /// Acknowledgement wanted, and the sequence number.
    pub ack_psn: U32,
}
const _: () = assert!(size_of::<Bth>() == 12);

/// A base transport header as plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BthRepr {
    /// One of [`operation`].
    pub opcode: u8,
    /// The receiver is asked to raise an event.
    pub solicited: bool,
    /// Path migration: the state is "migrated".
    pub migrated: bool,
    /// Bytes that fill up the payload to a multiple of 4.
    pub padding: u8,
    /// Version of the transport: 0.
    pub version: u8,
    /// Partition.
    pub partition: u16,
    /// Destination queue pair.
    pub qp: u32,
    /// An acknowledgement is wanted.
    pub ack: bool,
    /// Sequence number.
    pub psn: u32,
}

impl Bth {
    /// Bytes of the header.
    pub const BYTES: usize = size_of::<Self>();

    /// Views the front of `bytes` as the header; gives what follows it too.
    ///
    /// # Errors
    /// Fewer bytes than the header has.
    pub fn new(bytes: &[u8]) -> Result<(&Self, &[u8]), WireError> {
        front(Layer::Roce, bytes)
    }

    /// As plain data.
    #[must_use]
    pub fn repr(&self) -> BthRepr {
        BthRepr {
            opcode: self.opcode,
            solicited: self.flags & 0x80 != 0,
            migrated: self.flags & 0x40 != 0,
            padding: self.flags >> 4 & 3,
            version: self.flags & 0xf,
            partition: self.partition.get(),
            qp: self.congestion_qp.get() & MASK_24,
            ack: self.ack_psn.get() >> 31 == 1,
            psn: self.ack_psn.get() & MASK_24,
        }
    }
}

impl BthRepr {
    /// Writes the header to the front of `bytes` and gives back the rest.
    ///
    /// # Errors
    /// No room.
    pub fn emit<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], WireError> {
        let flags = u8::from(self.solicited) << 7
            | u8::from(self.migrated) << 6
            | (self.padding & 3) << 4
            | self.version & 0xf;
        let header = Bth {
            opcode: self.opcode,
            flags,
            partition: self.partition.into(),
            congestion_qp: (self.qp & MASK_24).into(),
            ack_psn: (u32::from(self.ack) << 31 | self.psn & MASK_24).into(),
        };
        put(Layer::Roce, &header, bytes)
    }
}

macro_rules! headers {
    ($($(#[$about:meta])* $name:ident [$bytes:literal] { $($(#[$what:meta])* $field:ident: $kind:ty,)+ })+) => { $(
        $(#[$about])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
        )]
        pub struct $name {
            $($(#[$what])* pub $field: $kind,)+
        }
        const _: () = assert!(size_of::<$name>() == $bytes);

        impl $name {
            /// Bytes of the header.
            pub const BYTES: usize = size_of::<Self>();

            /// Views the front of `bytes` as the header; gives what follows it too.
            ///
            /// # Errors
            /// Fewer bytes than the header has.
            pub fn new(bytes: &[u8]) -> Result<(&Self, &[u8]), WireError> {
                front(Layer::Roce, bytes)
            }
        }
    )+ };
}

headers! {
    /// Memory of the receiver that a write or read is about.
    Reth [16] {
        /// Its address as the key knows it.
        address: U64,
        /// Its key.
        key: U32,
        /// Bytes of the whole message.
        bytes: U32,
    }

    /// Syndrome of an acknowledgement, and how many messages were taken.
    Aeth [4] {
        /// Syndrome (bits 31 to 24, see [`Syndrome`]) and number of messages.
        word: U32,
    }

    /// Operands of an atomic.
    AtomicEth [28] {
        /// The address as the key knows it.
        address: U64,
        /// The key.
        key: U32,
        /// The value to store, or to add.
        swap_add: U64,
        /// The value that must be there.
        compare: U64,
    }

    /// What was there before an atomic.
    AtomicAckEth [8] {
        /// The value.
        original: U64,
    }

    /// Immediate data.
    ImmDt [4] {
        /// As the sender wrote it.
        data: U32,
    }

    /// A key that the receiver is asked to invalidate.
    Ieth [4] {
        /// The key.
        key: U32,
    }

    /// Where a datagram comes from.
    Deth [8] {
        /// Key of the receiving queue pair.
        qkey: U32,
        /// The sender.
        source: U32,
    }

    /// The shared receive queue that an XRC request is for.
    XrcEth [4] {
        /// Its number.
        queue: U32,
    }
}

/// What an acknowledgement says; the upper byte of an [`Aeth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All is well; credits, 31 stands for "not counted".
    Ack(u8),
    /// No receive is posted: wait so long, a code.
    NotReady(u8),
    /// Refused.
    Nak(Nak),
    /// Reserved.
    Unknown(u8),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Nak {
    /// A packet is missing.
    Sequence = 0,
    /// The request makes no sense.
    InvalidRequest = 1,
    /// Memory does not allow it.
    Access = 2,
    /// The receiver could not finish.
    Operation = 3,
    /// The same of reliable datagrams.
    InvalidDatagram = 4,
}

impl Syndrome {
    /// Credits are not counted.
    pub const ACK: Self = Self::Ack(31);

    /// As on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 0x1f,
            Self::NotReady(timer) => 0x20 | timer & 0x1f,
            Self::Nak(nak) => 0x60 | nak as u8,
            Self::Unknown(code) => code,
        }
    }

    /// From the wire.
    #[must_use]
    pub const fn of(code: u8) -> Self {
        match (code >> 5, code & 0x1f) {
            (0, credits) => Self::Ack(credits),
            (1, timer) => Self::NotReady(timer),
            (3, 0) => Self::Nak(Nak::Sequence),
            (3, 1) => Self::Nak(Nak::InvalidRequest),
            (3, 2) => Self::Nak(Nak::Access),
            (3, 3) => Self::Nak(Nak::Operation),
            (3, 4) => Self::Nak(Nak::InvalidDatagram),
            _ => Self::Unknown(code),
        }
    }
}

impl Aeth {
    /// A syndrome and a count of messages.
    #[must_use]
    pub const fn make(syndrome: Syndrome, messages: u32) -> Self {
        Self { word: U32::new((syndrome.code() as u32) << 24 | messages & MASK_24) }
    }

    /// What it says.
    #[must_use]
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome::of((self.word.get() >> 24) as u8)
    }

    /// Messages taken so far.
    #[must_use]
    pub const fn messages(&self) -> u32 {
        self.word.get() & MASK_24
    }
}

/// How long a sender waits that found no receive posted, in units of 10 us, by code. Source: InfiniBand Architecture
/// Specification, volume 1, table 45.
pub const NOT_READY_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

#[cfg(test)]
mod tests;
