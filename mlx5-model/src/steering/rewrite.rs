//! What entries do to packets: change fields of their headers, take a tunnel off, put one on.
//!
//! Checksums that were right stay right, and those that were wrong stay wrong: what changed is added to them. Lengths of the headers
//! that are put on are filled in, and IPv4's checksum; a UDP checksum there stays as it was given.

use pollux_mlx5_abi::command::rewrite::{AddAction, CopyAction, SetAction, change, field};
use pollux_wire::checksum::{self, Sum};

use crate::frame::{Headers, Ip, Transport, Tunnels, be16};

/// Bits of a packet: where the first one is, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    at: usize,
    count: usize,
}

/// One change of a header. Offsets count from a field's lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set { field: u32, offset: u32, bits: u32, data: u32 },
    Add { field: u32, data: u32 },
    Copy { from: u32, from_offset: u32, bits: u32, to: u32, to_offset: u32 },
}

/// A list of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rewrite(Vec<Change>);

/// Most changes of a list: `max_modify_header_actions`.
pub(crate) const CHANGES_MAX: usize = 32;

impl Rewrite {
    /// Changes as a command lists them. `None` where one of them cannot be made.
    pub(crate) fn new(list: &[[u8; 8]]) -> Option<Self> {
        let changes = list.iter().map(|entry| {
            let data = SetAction::DATA.get(entry);
            let of = SetAction::FIELD.get(entry);
            // A length of 0 is all 32 bits.
            let bits = match SetAction::LENGTH.get(entry) {
                0 => 32,
                bits => bits,
            };
            match SetAction::ACTION_TYPE.get(entry) {
                change::SET => {
                    let offset = SetAction::OFFSET.get(entry);
                    fits(of, offset, bits).then_some(Change::Set { field: of, offset, bits, data })
                }
                change::ADD => {
                    let data = AddAction::DATA.get(entry);
                    (width(of) > 0).then_some(Change::Add { field: of, data })
                }
                change::COPY => {
                    let (to, to_offset) =
                        (CopyAction::DST_FIELD.get(entry), CopyAction::DST_OFFSET.get(entry));
                    let (from, from_offset) =
                        (CopyAction::SRC_FIELD.get(entry), CopyAction::SRC_OFFSET.get(entry));
                    (fits(from, from_offset, bits) && fits(to, to_offset, bits)).then_some(Change::Copy {
                        from,
                        from_offset,
                        bits,
                        to,
                        to_offset,
                    })
                }
                _ => None,
            }
        });
        changes.collect::<Option<Vec<_>>>().map(Self)
    }

    /// Makes the changes. Those of headers that the packet does not have are left out.
    pub(crate) fn apply(&self, frame: &mut [u8]) {
        let headers = Headers::parse(frame, 0);
        let before = Sums::of(frame, &headers);
        for change in &self.0 {
            match *change {
                Change::Set { field, offset, bits, data } => {
                    if let Some(place) = place(frame, &headers, field) {
                        put(frame, place, splice(get(frame, place), data, offset, bits));
                    }
                }
                Change::Add { field, data } => {
                    if let Some(place) = place(frame, &headers, field) {
                        put(frame, place, get(frame, place).wrapping_add(data));
                    }
                }
                Change::Copy { from, from_offset, bits, to, to_offset } => {
                    let places = place(frame, &headers, from).zip(place(frame, &headers, to));
                    if let Some((from, to)) = places {
                        let data = get(frame, from) >> from_offset;
                        put(frame, to, splice(get(frame, to), data, to_offset, bits));
                    }
                }
            }
        }
        before.mend(frame, &headers);
    }
}

/// Bits of a field; 0 of one that cannot be changed.
fn width(of: u32) -> u32 {
    match of {
        field::IP_DSCP => 6,
        field::IP_TTL | field::IPV6_HOPLIMIT => 8,
        field::TCP_FLAGS => 9,
        field::FIRST_VID => 12,
        field::SMAC_15_0
        | field::DMAC_15_0
        | field::TCP_SPORT
        | field::TCP_DPORT
        | field::UDP_SPORT
        | field::UDP_DPORT => 16,
        field::SMAC_47_16
        | field::DMAC_47_16
        | field::SIPV4
        | field::DIPV4
        | field::TCP_SEQ_NUM
        | field::TCP_ACK_NUM => 32,
        of if (field::SIPV6_127_96..field::DIPV6_127_96 + 4).contains(&of) => 32,
        _ => 0,
    }
}

fn fits(of: u32, offset: u32, bits: u32) -> bool {
    offset + bits.min(width(of)) <= width(of) && width(of) > 0
}

fn splice(old: u32, data: u32, offset: u32, bits: u32) -> u32 {
    let mask = (u32::MAX >> (32 - bits)) << offset;
    old & !mask | data << offset & mask
}

/// Where a field is in a packet, if it is there.
fn place(frame: &[u8], headers: &Headers, of: u32) -> Option<Bits> {
    let (v4, v6) = (headers.ip == Ip::V4, headers.ip == Ip::V6);
    let (tcp, udp) = (headers.transport == Transport::Tcp, headers.transport == Transport::Udp);
    let (l3, l4) = (headers.l3, headers.l4);
    let (there, byte, bit) = match of {
        field::DMAC_47_16 => (true, 0, 0),
        field::DMAC_15_0 => (true, 4, 0),
        field::SMAC_47_16 => (true, 6, 0),
        field::SMAC_15_0 => (true, 10, 0),
        field::FIRST_VID => (headers.tags > 0, 14, 4),
        field::IP_DSCP if v6 => (true, l3, 4),
        field::IP_DSCP => (v4, l3 + 1, 0),
        field::IP_TTL => (v4, l3 + 8, 0),
        field::IPV6_HOPLIMIT => (v6, l3 + 7, 0),
        field::SIPV4 => (v4, l3 + 12, 0),
        field::DIPV4 => (v4, l3 + 16, 0),
        field::TCP_SPORT => (tcp, l4, 0),
        field::TCP_DPORT => (tcp, l4 + 2, 0),
        field::TCP_SEQ_NUM => (tcp, l4 + 4, 0),
        field::TCP_ACK_NUM => (tcp, l4 + 8, 0),
        field::TCP_FLAGS => (tcp, l4 + 12, 7),
        field::UDP_SPORT => (udp, l4, 0),
        field::UDP_DPORT => (udp, l4 + 2, 0),
        of => (v6, l3 + 8 + 4 * of.checked_sub(field::SIPV6_127_96)? as usize, 0),
    };
    let bits = Bits { at: byte * 8 + bit, count: width(of) as usize };
    (there && (bits.at + bits.count).div_ceil(8) <= frame.len()).then_some(bits)
}

fn get(frame: &[u8], Bits { at, count }: Bits) -> u32 {
    (at..at + count).fold(0, |value, bit| value << 1 | u32::from(frame[bit / 8] >> (7 - bit % 8) & 1))
}

fn put(frame: &mut [u8], Bits { at, count }: Bits, value: u32) {
    for (index, bit) in (at..at + count).enumerate() {
        let (byte, mask) = (&mut frame[bit / 8], 0x80 >> (bit % 8));
        *byte = if value >> (count - 1 - index) & 1 == 1 { *byte | mask } else { *byte & !mask };
    }
}

/// What checksums are over, as far as it can change.
struct Sums {
    network: u16,
    transport: u16,
}

impl Sums {
    fn of(frame: &[u8], headers: &Headers) -> Self {
        let part = |from: usize, to: usize| frame.get(from..to.max(from)).unwrap_or_default();
        let network = if headers.ip == Ip::V4 { Sum::of(part(headers.l3, headers.l4)).fold() } else { 0 };
        let transport = match headers.addresses(frame) {
            Some((source, destination)) if headers.transport != Transport::None => {
                let header = part(headers.l4, headers.payload);
                Sum::of(source).add_bytes(destination).add_bytes(header).fold()
            }
            _ => 0,
        };
        Self { network, transport }
    }

    /// Adds what changed to the checksums.
    fn mend(&self, frame: &mut [u8], headers: &Headers) {
        let now = Self::of(frame, headers);
        let mut add = |at: usize, old: u16, new: u16, none: u16| {
            let sum = be16(frame, at);
            if old == new || at + 2 > frame.len() || sum == 0 && none != 0 {
                return;
            }
            let sum = match checksum::update(sum, old, new) {
                0 => none,
                sum => sum,
            };
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        };
        if headers.ip == Ip::V4 {
            add(headers.l3 + 10, self.network, now.network, 0);
        }
        match headers.transport {
            Transport::Tcp => add(headers.l4 + 16, self.transport, now.transport, 0),
            // 0 is no checksum at all. Source: RFC 768.
            Transport::Udp => add(headers.l4 + 6, self.transport, now.transport, 0xffff),
            Transport::None => {}
        }
    }
}

/// What becomes of a packet's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reformat {
    /// This stands in front of the frame.
    Around(Vec<u8>),
    /// This stands in front of the packet, whose own Ethernet header goes.
    Instead(Vec<u8>),
    /// The packet in the tunnel gets this Ethernet header.
    Bare(Vec<u8>),
}

/// Most bytes of such a header: `max_encap_header_size`.
pub(crate) const HEADER_MAX: usize = 128;

impl Reformat {
    /// The frame as it goes on. `None` where it is no tunnel that could be taken off.
    pub(crate) fn apply(&self, frame: &[u8], tunnels: &Tunnels) -> Option<Vec<u8>> {
        let headers = Headers::parse(frame, 0);
        match self {
            Self::Around(header) => Some(encapsulate(header, frame)),
            Self::Instead(header) => Some(encapsulate(header, frame.get(headers.l3..)?)),
            Self::Bare(header) => {
                let inner = tunnels.inside(frame, &headers).filter(|inner| inner.l2 == inner.l3)?;
                let mut new = [header, frame.get(inner.l3..)?].concat();
                // The type says what stands behind it.
                let kind: u16 = if inner.ip == Ip::V6 { 0x86dd } else { 0x0800 };
                let at = header.len().checked_sub(2)?;
                new[at..at + 2].copy_from_slice(&kind.to_be_bytes());
                Some(new)
            }
        }
    }
}

/// The frame in a tunnel, out of it. `None` where there is no tunnel with a whole frame inside.
pub(crate) fn decapsulate(frame: &[u8], tunnels: &Tunnels) -> Option<Vec<u8>> {
    // A packet without an Ethernet header begins where that would.
    let inner = tunnels.inside(frame, &Headers::parse(frame, 0)).filter(|inner| inner.l2 != inner.l3)?;
    frame.get(inner.l2..).map(<[u8]>::to_vec)
}

fn encapsulate(header: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut frame = [header, rest].concat();
    let headers = Headers::parse(&frame, 0);
    let behind = |from: usize| (frame.len() - from.min(frame.len())) as u16;
    let (whole, network, transport) = (behind(headers.l3), behind(headers.l3 + 40), behind(headers.l4));
    match headers.ip {
        Ip::V4 => {
            frame[headers.l3 + 2..headers.l3 + 4].copy_from_slice(&whole.to_be_bytes());
            frame[headers.l3 + 10..headers.l3 + 12].fill(0);
            let sum = Sum::of(&frame[headers.l3..headers.l4]).checksum();
            frame[headers.l3 + 10..headers.l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        Ip::V6 => frame[headers.l3 + 4..headers.l3 + 6].copy_from_slice(&network.to_be_bytes()),
        Ip::None => return frame,
    }
    if headers.transport == Transport::Udp && headers.l4 + 6 <= frame.len() {
        frame[headers.l4 + 4..headers.l4 + 6].copy_from_slice(&transport.to_be_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::Traits;
    use crate::random::Random;

    /// Ethernet, IPv4 and UDP to the port of VXLAN, the tunnel's header, and the same again.
    fn nested() -> Vec<u8> {
        let mut one = vec![2; 12];
        one.extend([8, 0, 0x45, 0, 0, 200, 0, 0, 0, 0, 9, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        one.extend([0x12, 0x34, 0x12, 0xb5, 0, 180, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0]);
        [one.clone(), one.clone(), one].concat()
    }

    #[test]
    fn no_frame_and_no_header_is_too_odd() {
        const FIELDS: u64 = 0x60;
        let seed = 11;
        let mut random = Random::new(seed);
        let tunnels = Tunnels::new(&Traits::default());
        let base = nested();
        for round in 0..200_000 {
            let odd = |random: &mut Random, bytes: usize| {
                let mut bytes = base[..bytes.min(base.len())].to_vec();
                for _ in 0..random.below(4) {
                    if let Some(most) = bytes.len().checked_sub(1) {
                        let at = random.below(most as u64 + 1) as usize;
                        // Types, lengths and protocols that lead elsewhere.
                        let odd = [0, 0x86, 0xdd, 0x81, 4, 6, 41, 44, 47, 0x4f, 0x60, 0x65, 0xff];
                        bytes[at] = odd[random.below(odd.len() as u64) as usize];
                    }
                }
                bytes
            };
            let frame_bytes = random.below(base.len() as u64 + 1) as usize;
            let mut frame = odd(&mut random, frame_bytes);
            let header_bytes = 14 + random.below((HEADER_MAX - 13) as u64) as usize;
            let header = odd(&mut random, header_bytes);
            let action: [u8; 8] = std::array::from_fn(|_| random.below(256) as u8);
            let mut action = action;
            SetAction::ACTION_TYPE.set(&mut action, 1 + random.below(3) as u32);
            SetAction::FIELD.set(&mut action, random.below(FIELDS) as u32);
            if let Some(rewrite) = Rewrite::new(&[action]) {
                rewrite.apply(&mut frame);
            }
            let grown = |new: Option<Vec<u8>>| {
                assert!(
                    new.is_none_or(|new| new.len() <= frame.len() + HEADER_MAX),
                    "seed {seed}, round {round}"
                );
            };
            grown(decapsulate(&frame, &tunnels));
            for reformat in [Reformat::Around, Reformat::Instead, Reformat::Bare] {
                grown(reformat(header.clone()).apply(&frame, &tunnels));
            }
        }
    }
}
