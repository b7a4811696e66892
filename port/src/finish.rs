//! What a packet asks of its sender, done in software: checksums filled in, large packets cut, tags put in.
//!
//! ```text
//!   rx port --PortInfo::rx_open--> PortConfig::open --what the tx port offers--> asked of the device
//!                                                   \--what it does not offer--> done here, before the driver sees it
//! ```
//!
//! A packet from a sender on the same machine comes with an open checksum, and up to 64 KiB of it in one piece; its transmit
//! flags say so. A port that was told of such packets ([`PortConfig::open`](crate::PortConfig::open)) has the device finish
//! them as far as it can, and a step in front of the driver do the rest. A port that was told of none has no such step.
//!
//! [`Finisher`] does the same for who needs the bytes and no mbufs: a capture file.

mod queue;

pub(crate) use queue::FinishTx;

use crate::TxOffloads;
use pollux_mempool::{Mbuf, TxFlags};
use pollux_wire::checksum::{self, Sum, complete_crc32c, crc32c};
use pollux_wire::segment::{Segments, Transport};
use pollux_wire::{EtherType, IpProtocol, ipv6};

/// All that is done here.
pub const FINISHED: TxOffloads = TxOffloads::CHECKSUM
    .union(TxOffloads::SCTP_CKSUM)
    .union(TxOffloads::VLAN_INSERT)
    .union(TxOffloads::QINQ_INSERT)
    .union(TxOffloads::TCP_TSO)
    .union(TxOffloads::UDP_TSO)
    .union(TxOffloads::MULTI_SEGS)
    .union(TxOffloads::OUTER_IPV4_CKSUM)
    .union(TxOffloads::OUTER_UDP_CKSUM)
    .union(TxOffloads::TUNNEL_TSO);

/// Longest packet that is cut: the length field of IPv4 ends there (RFC 791); the Ethernet header comes before it.
pub const CUT_BYTES_MAX: u32 = 65_535 + 14;

/// The packet, or what its flags say of it, makes no sense, or asks for encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinishable;

const CUTS: TxFlags = TxFlags::TCP_SEGMENTATION.union(TxFlags::UDP_SEGMENTATION);
const BEYOND: TxFlags = TxFlags::SECURITY.union(TxFlags::MACSEC);

/// Where a packet's layers begin; of a tunnelled one, the inner layers.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The outer IP header's, and where it ends, of a tunnelled packet.
    outer: Option<(usize, usize)>,
    l3: usize,
    l4: usize,
}

impl Place {
    fn of(mbuf: &Mbuf) -> Self {
        let offload = mbuf.tx_offload();
        let tunnel = mbuf.tx_flags().intersects(TxFlags::TUNNEL_MASK);
        let outer = tunnel.then(|| {
            let l3 = usize::from(offload.outer_l2_len);
            (l3, l3 + usize::from(offload.outer_l3_len))
        });
        let l3 = outer.map_or(0, |(_, end)| end) + usize::from(offload.l2_len);
        Self { outer, l3, l4: l3 + usize::from(offload.l3_len) }
    }

    fn behind_tags(self, bytes: usize) -> Self {
        Self {
            outer: self.outer.map(|(l3, l4)| (l3 + bytes, l4 + bytes)),
            l3: self.l3 + bytes,
            l4: self.l4 + bytes,
        }
    }
}

/// How what was loaded is to be cut: into what, pieces of how many bytes, and where the transport begins.
type Cut = (Transport, u16, usize);

/// Finishes packets, copied out of their mbufs. Its buffers are kept from packet to packet.
#[derive(Debug, Default)]
pub struct Finisher {
    whole: Vec<u8>,
    cut: Vec<u8>,
}

impl Finisher {
    /// Does all that a packet asks for and gives the frames that come of it, nothing left to do, to `take`, one by one.
    ///
    /// # Errors
    /// [`Unfinishable`]; `take` has seen nothing then.
    pub fn plain(&mut self, mbuf: &Mbuf, mut take: impl FnMut(&[u8])) -> Result<(), Unfinishable> {
        let Some((transport, size, l4)) = self.load(mbuf)? else {
            take(&self.whole);
            return Ok(());
        };
        let segments = Segments::at(&self.whole, transport, size, l4).map_err(|_| Unfinishable)?;
        self.cut.resize(segments.bytes_max(), 0);
        for index in 0..segments.count() {
            let bytes = segments.write(index, &mut self.cut).map_err(|_| Unfinishable)?;
            take(&self.cut[..bytes]);
        }
        Ok(())
    }

    /// Copies a packet and finishes it but for the cutting, of which it says how.
    fn load(&mut self, mbuf: &Mbuf) -> Result<Option<Cut>, Unfinishable> {
        let flags = mbuf.tx_flags();
        if flags.intersects(BEYOND) {
            return Err(Unfinishable);
        }
        self.whole.clear();
        for segment in mbuf.segments() {
            self.whole.extend_from_slice(segment);
        }
        let (tags, count) = tags_of(mbuf);
        let tags = &tags[..count];
        if !tags.is_empty() {
            if self.whole.len() < 12 {
                return Err(Unfinishable);
            }
            self.whole.splice(12..12, tags.iter().copied());
        }
        let place = Place::of(mbuf).behind_tags(tags.len());
        let whole = &mut self.whole[..];
        if flags.intersects(CUTS) {
            let offload = mbuf.tx_offload();
            if let Some((_, l4)) = place.outer
                && flags.contains(TxFlags::OUTER_UDP_CHECKSUM)
                && is_over_udp(flags)
            {
                // Whatever it holds, each frame gets one.
                whole.get_mut(l4 + 6..l4 + 8).ok_or(Unfinishable)?.fill(0xff);
            }
            let tcp = flags.contains(TxFlags::TCP_SEGMENTATION);
            let transport = if tcp { Transport::Tcp } else { Transport::Udp };
            let (size, l4) = (offload.tso_segment_bytes, place.l4);
            Segments::at(whole, transport, size, l4).map_err(|_| Unfinishable)?;
            return Ok(Some((transport, size, l4)));
        }
        fill_sums(whole, flags, place)?;
        Ok(None)
    }
}

/// The bytes of the tags that a packet is to get, and how many they are.
fn tags_of(mbuf: &Mbuf) -> ([u8; 8], usize) {
    let flags = mbuf.tx_flags();
    let (mut bytes, mut count) = ([0; 8], 0);
    let mut put = |kind: EtherType, tci: u16| {
        bytes[count..count + 2].copy_from_slice(&kind.0.to_be_bytes());
        bytes[count + 2..count + 4].copy_from_slice(&tci.to_be_bytes());
        count += 4;
    };
    if flags.contains(TxFlags::QINQ) {
        put(EtherType::QINQ, mbuf.vlan_tci_outer());
    }
    if flags.intersects(TxFlags::QINQ | TxFlags::VLAN) {
        put(EtherType::VLAN, mbuf.vlan_tci());
    }
    (bytes, count)
}

/// Whether a packet's tunnel is over UDP.
fn is_over_udp(flags: TxFlags) -> bool {
    !matches!(flags & TxFlags::TUNNEL_MASK, TxFlags::TUNNEL_GRE | TxFlags::TUNNEL_IPIP | TxFlags::TUNNEL_IP)
}

/// Where the checksum of a transport stands in its header.
fn checksum_at(l4: TxFlags) -> usize {
    if l4 == TxFlags::TCP_CHECKSUM { 16 } else { 6 }
}

/// Fills in the sums of a whole frame, the inner ones first.
fn fill_sums(frame: &mut [u8], flags: TxFlags, place: Place) -> Result<(), Unfinishable> {
    let Place { outer, l3, l4 } = place;
    if flags.contains(TxFlags::IP_CHECKSUM) {
        fill_ip(frame.get_mut(l3..l4))?;
    }
    match flags & TxFlags::L4_MASK {
        none if none.is_empty() => {}
        _ if l3 < 14 || l4 < l3 + 20 => return Err(Unfinishable),
        TxFlags::SCTP_CHECKSUM if !complete_crc32c(frame, l4) => return Err(Unfinishable),
        TxFlags::SCTP_CHECKSUM => {}
        kind => fill_transport(frame, flags.contains(TxFlags::IPV6), kind, l3, l4)?,
    }
    if let Some((outer_l3, outer_l4)) = outer {
        if flags.contains(TxFlags::OUTER_UDP_CHECKSUM) {
            if !is_over_udp(flags) {
                return Err(Unfinishable);
            }
            let v6 = flags.contains(TxFlags::OUTER_IPV6);
            fill_transport(frame, v6, TxFlags::UDP_CHECKSUM, outer_l3, outer_l4)?;
        }
        if flags.contains(TxFlags::OUTER_IP_CHECKSUM) {
            fill_ip(frame.get_mut(outer_l3..outer_l4))?;
        }
    }
    Ok(())
}

fn fill_transport(
    frame: &mut [u8],
    v6: bool,
    kind: TxFlags,
    l3: usize,
    l4: usize,
) -> Result<(), Unfinishable> {
    let at = l4 + checksum_at(kind);
    let field = frame.get(at..at + 2).ok_or(Unfinishable)?;
    let open = Sum::ZERO.add_word(u16::from_be_bytes([field[0], field[1]]));
    let header = frame.get(l3..l4).ok_or(Unfinishable)?;
    let (pseudo, end) = pseudo(header, v6, kind, frame.len() - l3, open).ok_or(Unfinishable)?;
    let end = l3 + end;
    frame[at..at + 2].fill(0);
    let sum = pseudo + Sum::of(frame.get(l4..end).ok_or(Unfinishable)?);
    frame[at..at + 2].copy_from_slice(&sum.checksum_udp().to_be_bytes());
    Ok(())
}

/// The sum of the pseudo-header of a packet whose IP header is given and has `packet` bytes up to the end of the frame; and where the
/// IP packet ends. `open` is what the checksum's field holds: right where the packet came so, and taken where the header alone
/// does not tell (a routing header: the last destination is in it).
fn pseudo(header: &[u8], v6: bool, kind: TxFlags, packet: usize, open: Sum) -> Option<(Sum, usize)> {
    let protocol = if kind == TxFlags::TCP_CHECKSUM { IpProtocol::TCP } else { IpProtocol::UDP };
    // The lengths that the packet came with must be those of its headers.
    let version = *header.first()?;
    if version >> 4 != if v6 { 6 } else { 4 } || !v6 && usize::from(version & 15) * 4 != header.len() {
        return None;
    }
    let length = |at: usize, more: usize| {
        let stated = usize::from(u16::from_be_bytes([*header.get(at)?, *header.get(at + 1)?])) + more;
        // Zero stands for more than the field can say.
        Some(if stated <= header.len() || stated > packet { packet } else { stated })
    };
    let (addresses, end) = match v6 {
        true => (8..40, length(4, 40)?),
        false => (12..20, length(2, 0)?),
    };
    if v6 {
        let walked = ipv6::walk(IpProtocol(*header.get(6)?), header.get(40..)?);
        // The walk ends with the header; only what it passed matters.
        if walked.is_ok_and(|upper| upper.routing) {
            return Some((open, end));
        }
    }
    let upper = end.checked_sub(header.len())? as u32;
    let sum = Sum::of(header.get(addresses)?).add_word(protocol.0.into()).add_bytes(&upper.to_be_bytes());
    Some((sum, end))
}

fn fill_ip(header: Option<&mut [u8]>) -> Result<(), Unfinishable> {
    let header = header.filter(|header| header.len() >= 20).ok_or(Unfinishable)?;
    header[10..12].fill(0);
    let sum = checksum::of(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Finishes a packet in its mbufs, its flags too, if sums of an untunnelled TCP or UDP packet are all that it asks for and nobody
/// else has its data. `false`: nothing was done.
fn fill_in_place(mbuf: &mut Mbuf) -> bool {
    let flags = mbuf.tx_flags();
    let simple = TxFlags::IPV4 | TxFlags::IPV6 | TxFlags::IP_CHECKSUM | TxFlags::L4_MASK;
    let kind = flags & TxFlags::L4_MASK;
    if !(flags - simple).is_empty() || kind == TxFlags::SCTP_CHECKSUM || !mbuf.is_sole() {
        return false;
    }
    let Place { l3, l4, .. } = Place::of(mbuf);
    let packet = (mbuf.pkt_len() as usize).saturating_sub(l3);
    let Some(first) = mbuf.data_mut() else { return false };
    if flags.contains(TxFlags::IP_CHECKSUM) && fill_ip(first.get_mut(l3..l4)).is_err() {
        return false;
    }
    if !kind.is_empty() {
        let at = l4 + checksum_at(kind);
        let Some(&[high, low]) = first.get(at..at + 2) else { return false };
        let open = Sum::ZERO.add_word(u16::from_be_bytes([high, low]));
        let header = first.get(l3..l4).unwrap_or_default();
        let Some((pseudo, end)) = pseudo(header, flags.contains(TxFlags::IPV6), kind, packet, open) else {
            return false;
        };
        first[at..at + 2].fill(0);
        let sum = pseudo + sum_of(mbuf, l4, l3 + end);
        let Some(field) = mbuf.data_mut().and_then(|data| data.get_mut(at..at + 2)) else { return false };
        field.copy_from_slice(&sum.checksum_udp().to_be_bytes());
    }
    mbuf.set_tx_flags(TxFlags::empty());
    true
}

/// The sum of a packet's bytes from `start` to `end`.
fn sum_of(mbuf: &Mbuf, start: usize, end: usize) -> Sum {
    let (mut at, mut sum) = (0, Sum::ZERO);
    for segment in mbuf.segments() {
        let (from, to) = (start.clamp(at, at + segment.len()), end.clamp(at, at + segment.len()));
        if from < to {
            sum = sum.add_bytes_at(from - start, &segment[from - at..to - at]);
        }
        at += segment.len();
    }
    sum
}

/// Completes a checksum in the mbuf itself: the field at `start + offset`, in the first segment, holds the sum of a pseudo-header and
/// gets the checksum of all from `start` on.
///
/// # Errors
/// The field is not there, or somebody else has the data too.
pub fn complete_sum(mbuf: &mut Mbuf, start: usize, offset: usize) -> Result<(), Unfinishable> {
    let sum = sum_of(mbuf, start, mbuf.pkt_len() as usize);
    let at = start + offset;
    let field = mbuf.data_mut().and_then(|data| data.get_mut(at..at + 2)).ok_or(Unfinishable)?;
    field.copy_from_slice(&sum.checksum_udp().to_be_bytes());
    Ok(())
}

/// Fills in the checksum of SCTP, whose header begins at `start`.
///
/// # Errors
/// As [`complete_sum`].
pub fn complete_crc(mbuf: &mut Mbuf, start: usize) -> Result<(), Unfinishable> {
    let place = start + 8..start + 12;
    mbuf.data_mut().and_then(|data| data.get_mut(place.clone())).ok_or(Unfinishable)?.fill(0);
    let mut segments = mbuf.segments();
    let first = segments.next().and_then(|first| first.get(start..)).ok_or(Unfinishable)?;
    let crc = crc32c(std::iter::once(first).chain(segments));
    let field = mbuf.data_mut().and_then(|data| data.get_mut(place)).ok_or(Unfinishable)?;
    field.copy_from_slice(&crc);
    Ok(())
}

#[cfg(test)]
mod tests;
