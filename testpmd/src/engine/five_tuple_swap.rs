//! 5tswap: packets go back to the flow that they came from: addresses of Ethernet and IP, and ports of TCP and UDP, change places.
//!
//! Sums over both ends of a flow do not depend on their order, so no checksum changes.

use pollux_kit::forward::swapped;
use pollux_mempool::Mbuf;
use pollux_wire::{EtherType, IpProtocol};

use super::{Engine, Marks};
use crate::lane::Lane;

/// Bytes of an Ethernet header; a tag makes it longer.
const ETHER: usize = 14;
const TAG: usize = 4;
/// As DPDK (`app/test-pmd/5tswap.c`), not more than two tags.
const TAGS_MAX: usize = 2;

/// The engine `5tswap`.
#[derive(Debug)]
pub struct FiveTupleSwap {
    marks: Marks,
}

impl FiveTupleSwap {
    /// For a stream.
    #[must_use]
    pub fn new(marks: Marks) -> Self {
        Self { marks }
    }

    /// Exchanges both ends of each packet's flow.
    #[inline(always)]
    pub(super) fn edit(packets: &mut [Mbuf]) {
        for mbuf in packets {
            if let Some(data) = mbuf.data_mut() {
                swap(data);
            }
        }
    }
}

impl Engine for FiveTupleSwap {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        lane.forward(|packets| {
            Self::edit(packets);
            self.marks.put(packets);
        })
    }
}

/// As far as the frame is what it seems; what is cut off or unknown stays.
#[inline(always)]
fn swap(data: &mut [u8]) {
    if let Some(addresses) = data.first_chunk_mut::<12>() {
        *addresses = swapped(*addresses);
    }
    let mut at = ETHER;
    for _ in 0..=TAGS_MAX {
        let Some(&[high, low]) = data.get(at - 2..at) else { return };
        match EtherType(u16::from_be_bytes([high, low])) {
            EtherType::IPV4 => return swap_v4(&mut data[at..]),
            EtherType::IPV6 => return swap_v6(&mut data[at..]),
            EtherType::VLAN | EtherType::QINQ => at += TAG,
            _ => return,
        }
    }
}

#[inline(always)]
fn swap_v4(data: &mut [u8]) {
    let Some(header) = data.first_chunk_mut::<20>() else { return };
    let [.., a, b, c, d, e, f, g, h] = *header;
    header[12..].copy_from_slice(&u64::from_ne_bytes([a, b, c, d, e, f, g, h]).rotate_left(32).to_ne_bytes());
    let later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let (protocol, bytes) = (IpProtocol(header[9]), usize::from(header[0] & 0xf) * 4);
    if !later && bytes >= 20 {
        swap_ports(data, protocol, bytes);
    }
}

#[inline(always)]
fn swap_v6(data: &mut [u8]) {
    const BYTES: usize = 40;
    let Some(header) = data.first_chunk_mut::<BYTES>() else { return };
    let (front, back) = header[8..].split_at_mut(16);
    front.swap_with_slice(back);
    let protocol = IpProtocol(header[6]);
    swap_ports(data, protocol, BYTES);
}

#[inline(always)]
fn swap_ports(data: &mut [u8], protocol: IpProtocol, at: usize) {
    if !matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) {
        return;
    }
    if let Some(ports) = data.get_mut(at..).and_then(|data| data.first_chunk_mut::<4>()) {
        *ports = u32::from_ne_bytes(*ports).rotate_left(16).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use pollux_wire::build::Frame;
    use pollux_wire::{Tci, TcpFlags};

    use super::*;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

    #[test]
    fn both_ends_change_places_and_sums_stay_right() {
        let (one, other) = ([10, 0, 0, 1], [10, 9, 8, 7]);
        let there = [
            Frame::ether(A, B).ipv4(one, other).udp(1, 0x2345).payload(b"data"),
            Frame::ether(A, B).vlan(Tci(5)).ipv4(one, other).tcp(7, 80).flags(TcpFlags::SYN).payload(b""),
            Frame::ether(A, B).tag(EtherType::QINQ, Tci(5)).vlan(Tci(6)).ipv6(1, 2).udp(3, 4).payload(b"xyz"),
            Frame::ether(A, B).ipv6(1, 2).payload(IpProtocol(58), b"neither"),
        ];
        let back = [
            Frame::ether(B, A).ipv4(other, one).udp(0x2345, 1).payload(b"data"),
            Frame::ether(B, A).vlan(Tci(5)).ipv4(other, one).tcp(80, 7).flags(TcpFlags::SYN).payload(b""),
            Frame::ether(B, A).tag(EtherType::QINQ, Tci(5)).vlan(Tci(6)).ipv6(2, 1).udp(4, 3).payload(b"xyz"),
            Frame::ether(B, A).ipv6(2, 1).payload(IpProtocol(58), b"neither"),
        ];
        for (frame, wanted) in there.into_iter().zip(back) {
            let mut frame = frame;
            swap(&mut frame);
            assert_eq!(frame[..], wanted[..]);
        }
    }

    #[test]
    fn cut_frames_and_fragments_are_not_read_beyond_their_end() {
        let whole = Frame::ether(A, B).vlan(Tci(5)).ipv4([1; 4], [2; 4]).udp(1, 2).payload(b"data");
        for bytes in 0..whole.len() {
            swap(&mut whole.to_vec()[..bytes]);
        }
        let mut later = Frame::ether(A, B).ipv4([1; 4], [2; 4]).udp(1, 2).payload(b"");
        later[20..22].copy_from_slice(&[0, 1]);
        swap(&mut later);
        assert_eq!(later[34..38], [0, 1, 0, 2], "a later fragment has no ports");
    }
}
