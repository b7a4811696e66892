//! What the device finds out about a received frame: are its checksums right, what are its layers.

use pollux_mlx5_abi::cqe::{Layer3, Layer4, packet, status};
use pollux_wire::checksum::Sum;

use crate::frame::{Headers, Ip, Transport, be16};

/// The findings, as a completion has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Sum over everything behind the Ethernet header and its tags.
    pub(crate) sum: u16,
    /// A mask of `status`.
    pub(crate) status: u8,
    /// Layers, fragment, options; without the bit of a stripped tag.
    pub(crate) types: u8,
    /// Tunnel.
    pub(crate) info: u8,
}

impl Checked {
    /// Looks at a frame; `inner` are the headers inside its tunnel, if those are to be reported.
    #[inline]
    pub(crate) fn of(frame: &[u8], outer: &Headers, inner: Option<&Headers>) -> Self {
        let (outer_status, sum) = verify(frame, outer);
        let mut checked = Self { sum, status: outer_status | status::L2_OK, ..Self::default() };
        let mut headers = outer;
        if let Some(inner) = inner {
            let (inner_status, _) = verify(frame, inner);
            // Both layers 3 must be right; layer 4 is the inner one's.
            checked.status =
                status::L2_OK | outer_status & inner_status & status::L3_OK | inner_status & status::L4_OK;
            checked.info = packet::TUNNELED | if outer.ip == Ip::V6 { packet::OUTER_IPV6 } else { 0 };
            headers = inner;
        }
        checked.types = types(frame, headers);
        checked
    }
}

#[inline]
fn types(frame: &[u8], headers: &Headers) -> u8 {
    let layer3 = match headers.ip {
        Ip::None => Layer3::None,
        Ip::V4 => Layer3::Ipv4,
        Ip::V6 => Layer3::Ipv6,
    };
    let layer4 = match headers.transport {
        Transport::None => Layer4::None,
        Transport::Udp => Layer4::Udp,
        Transport::Tcp => {
            let acknowledges = frame.get(headers.l4 + 13).is_some_and(|flags| flags & 0x10 != 0);
            let data = headers.packet_end(frame).is_some_and(|end| end > headers.payload);
            match (acknowledges, data) {
                (false, _) => Layer4::Tcp,
                (true, false) => Layer4::TcpAckNoData,
                (true, true) => Layer4::TcpAckAndData,
            }
        }
    };
    (layer3 as u8) << packet::L3_SHIFT
        | (layer4 as u8) << packet::L4_SHIFT
        | if headers.fragment { packet::IP_FRAGMENT } else { 0 }
        | if headers.options { packet::IP_EXTENSIONS } else { 0 }
}

/// Verifies the checksums of one set of headers; also sums up all behind layer 2.
#[inline]
fn verify(frame: &[u8], headers: &Headers) -> (u8, u16) {
    let behind = || Sum::of(frame.get(headers.l3..).unwrap_or_default()).fold();
    let (Some(end), Some((source, destination))) = (headers.packet_end(frame), headers.addresses(frame))
    else {
        return (0, behind());
    };
    let Some(header) = frame.get(headers.l3..headers.l4) else { return (0, behind()) };
    let header_sum = Sum::of(header);
    let mut found = 0;
    if headers.ip == Ip::V6 || header_sum.is_valid() {
        found |= status::L3_OK;
    }
    let Some(packet) = frame.get(headers.l4..end) else { return (found, behind()) };
    let packet_sum = Sum::of(packet);
    let length = packet.len() as u32;
    let none =
        headers.transport == Transport::Udp && headers.ip == Ip::V4 && be16(frame, headers.l4 + 6) == 0;
    if headers.transport != Transport::None && end >= headers.payload {
        let pseudo = Sum::of(source)
            .add_bytes(destination)
            .add_word(headers.protocol.into())
            .add_word((length >> 16) as u16)
            .add_word(length as u16);
        if none || (pseudo + packet_sum).is_valid() {
            found |= status::L4_OK;
        }
    }
    let padding = &frame[end..];
    let all = header_sum + packet_sum;
    let all = if padding.is_empty() { all } else { all.add_bytes_at(packet.len(), padding) };
    (found, all.fold())
}
