//! What the device does to a frame before it sends it: VLAN tag, checksums; and how much header it wants inline.

use pollux_mlx5_abi::caps::ethernet::min_inline;
use pollux_mlx5_abi::wqe::{Ethernet, INSERT_SVLAN, checksum};
use pollux_wire::checksum::Sum;

use super::parse::{self, Found, Parser};
use crate::failure::Failure;
use crate::frame::{Headers, Ip, TAG_BYTES, Transport, be16, is_tag};

/// Whether enough of the frame's headers was inline for a device that parses nothing else.
pub(super) fn check_inline(frame: &[u8], inline: usize, mode: u32) -> Result<(), Failure> {
    if mode == min_inline::NONE {
        return Ok(());
    }
    let headers = Headers::parse(frame, 0);
    let l2 = if is_tag(be16(frame, 12)) { 18 } else { 14 };
    let needed = match mode {
        min_inline::L2 => l2,
        min_inline::IP if headers.ip != Ip::None => headers.l4,
        min_inline::TCP_UDP if headers.transport != Transport::None => headers.payload,
        min_inline::TCP_UDP if headers.ip != Ip::None => headers.l4,
        _ => l2,
    };
    if inline < needed.min(frame.len()) { Err(Failure::TOO_LITTLE_INLINE) } else { Ok(()) }
}

/// Does what the Ethernet segment asks for. The frame begins [`TAG_BYTES`] into `room`; returns it as it is sent.
#[inline]
pub(super) fn finish<'r>(
    parser: &Parser<'_>,
    room: &'r mut [u8],
    ethernet: &Ethernet,
) -> Result<&'r [u8], Failure> {
    if parse::asks(ethernet) {
        let frame = &mut room[TAG_BYTES..];
        let found = parser.parse(frame, ethernet)?;
        checksums(frame, ethernet.cs_flags, &found);
    }
    let Some(tag) = ethernet.vlan() else { return Ok(&room[TAG_BYTES..]) };
    room.copy_within(TAG_BYTES..TAG_BYTES + 12, 0);
    let service = ethernet.inline_hdr_sz.get() & INSERT_SVLAN != 0;
    let kind: u16 = if service { 0x88a8 } else { 0x8100 };
    room[12..14].copy_from_slice(&kind.to_be_bytes());
    room[14..16].copy_from_slice(&tag.to_be_bytes());
    Ok(room)
}

fn checksums(frame: &mut [u8], flags: u8, found: &Found) {
    if let Some(inner) = &found.inner {
        fill(frame, inner, flags & checksum::L3_INNER != 0, flags & checksum::L4_INNER != 0);
    }
    fill(frame, &found.outer, flags & checksum::L3 != 0, flags & checksum::L4 != 0);
}

/// Fills in the checksums of one set of headers, as far as there are any.
fn fill(frame: &mut [u8], headers: &Headers, l3: bool, l4: bool) {
    let Some(end) = headers.packet_end(frame) else { return };
    if l3 && headers.ip == Ip::V4 {
        frame[headers.l3 + 10..headers.l3 + 12].fill(0);
        let sum = Sum::of(&frame[headers.l3..headers.l4]).checksum();
        frame[headers.l3 + 10..headers.l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    if !l4 || headers.fragment || end < headers.payload {
        return;
    }
    let at = headers.l4
        + match headers.transport {
            Transport::Tcp => 16,
            Transport::Udp => 6,
            Transport::None => return,
        };
    frame[at..at + 2].fill(0);
    let Some(sum) = transport_sum(frame, headers, end) else { return };
    let sum = if headers.transport == Transport::Udp { sum.checksum_udp() } else { sum.checksum() };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The sum over a transport packet and its pseudo-header; valid when it folds to all ones. Source: RFC 768, RFC 9293
/// section 3.1, RFC 8200 section 8.1.
#[inline]
pub(crate) fn transport_sum(frame: &[u8], headers: &Headers, end: usize) -> Option<Sum> {
    let packet = frame.get(headers.l4..end)?;
    let (source, destination) = headers.addresses(frame)?;
    let length = packet.len() as u32;
    let sum = Sum::of(source)
        .add_bytes(destination)
        .add_word(headers.protocol.into())
        .add_word((length >> 16) as u16)
        .add_word(length as u16);
    Some(sum.add_bytes(packet))
}
