//! GSO: cutting a packet that is longer than the link allows into segments.

use pollux_mempool::{Mbuf, MbufPool, TxFlags};
use pollux_wire::ptype::{self, Parsed};
use pollux_wire::segment::{Segments, Transport};
use pollux_wire::{IpProtocol, Tunnel};

use crate::FragmentError;
use crate::cut::piece;
use crate::header::{Packet, Version, look};
use crate::tunnel;

/// How a packet is cut. TCP over IPv4 or IPv6, in a tunnel too, becomes packets of the same connection whose checksums are right, as
/// `pollux_wire::segment` says; UDP over IPv4 becomes IP fragments.
///
/// Segments are copies, each in one mbuf. Costs a copy of the packet and its checksums.
#[derive(Debug)]
pub struct Gso<'a> {
    packet: &'a Mbuf,
    pool: &'a MbufPool,
    way: Way<'a>,
}

#[derive(Debug)]
enum Way<'a> {
    Segments(Segments<'a>),
    Fragments { found: Packet, step: usize },
}

impl<'a> Gso<'a> {
    /// Plans how `packet` is cut into frames of at most `bytes`, Ethernet header included, and at most as many as an mbuf of `pool` holds; `None`
    /// where it is no longer, or a fragment, and may go as it is. With `tunnels`, what is in a tunnel is cut, unless the tunnel counts packets or
    /// their bytes itself (GTP, GRE with sequence numbers); without, and there, a tunnel over UDP is UDP. A packet
    /// whose sender left its TCP to be cut ([`TxFlags::TCP_SEGMENTATION`]) is cut into pieces no larger than that says; one that is to be
    /// cut into datagrams is left to the port.
    ///
    /// The don't-fragment bit of UDP is cleared, as Linux and DPDK do it: who asks for GSO is the sender.
    ///
    /// # Errors
    /// It is longer and cannot be cut; the checksum of UDP is open.
    #[doc(alias = "rte_gso_segment")]
    pub fn plan(
        packet: &'a Mbuf,
        bytes: usize,
        tunnels: bool,
        pool: &'a MbufPool,
    ) -> Result<Option<Self>, FragmentError> {
        let flags = packet.tx_flags();
        if flags.contains(TxFlags::UDP_SEGMENTATION) {
            return Ok(None);
        }
        let asked = flags.contains(TxFlags::TCP_SEGMENTATION);
        if packet.pkt_len() as usize <= bytes && !asked {
            return Ok(None);
        }
        let front = packet.data();
        let parsed = ptype::parse(front);
        let bytes = bytes.min(pool.data_room().saturating_sub(pool.headroom()));
        let inside = tunnels.then(|| Tunnel::inside(front, &parsed)).flatten();
        let (l4, parsed) = match inside.filter(|(tunnel, _)| tunnel::is_plain(front, tunnel)) {
            Some((tunnel, inner)) => (tunnel.inner_l4, inner),
            None => (usize::from(parsed.l2_len + parsed.l3_len), parsed),
        };
        let way = if parsed.ptype.is_tcp() {
            let Some(segments) = segments(packet, bytes, (l4, parsed))? else { return Ok(None) };
            Way::Segments(segments)
        } else {
            let Some(fragments) = fragments(packet, bytes)? else { return Ok(None) };
            fragments
        };
        Ok(Some(Self { packet, pool, way }))
    }

    /// The number of segments.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.way {
            Way::Segments(segments) => segments.count(),
            Way::Fragments { found, step } => (found.end - found.payload).div_ceil(*step),
        }
    }

    /// Makes segment `index`; `None` from [`Gso::count`] on, and when the pool is empty.
    #[must_use]
    pub fn make(&self, index: usize) -> Option<Mbuf> {
        match &self.way {
            Way::Segments(segments) => {
                if index >= segments.count() {
                    return None;
                }
                let mut made = self.pool.alloc()?;
                made.set_port(self.packet.port());
                let head = segments.header_bytes();
                let payload = segments.payload(index);
                let frame = made.append(segments.bytes(index))?;
                let count = self.packet.read(payload.start, frame.get_mut(head..)?);
                segments.mend(index, frame).ok()?;
                (count == payload.len()).then_some(made)
            }
            Way::Fragments { found, step } => {
                let (at, bytes) = (index.checked_mul(*step)?, found.end - found.payload);
                (at < bytes).then(|| piece(self.packet, found, at, (*step).min(bytes - at), 0, self.pool))?
            }
        }
    }
}

/// `None`: it is no longer than one.
fn segments<'a>(
    packet: &'a Mbuf,
    bytes: usize,
    (l4, parsed): (usize, Parsed),
) -> Result<Option<Segments<'a>>, FragmentError> {
    let headers = l4 + usize::from(parsed.l4_len);
    let room = bytes.saturating_sub(headers);
    if room == 0 {
        return Err(FragmentError::SegmentBytes { bytes, headers, least: headers + 1 });
    }
    let mut size = u16::try_from(room).unwrap_or(u16::MAX);
    let asked = packet.tx_offload().tso_segment_bytes;
    if packet.tx_flags().contains(TxFlags::TCP_SEGMENTATION) && asked != 0 {
        size = size.min(asked);
    }
    let segments = Segments::of_front(packet.data(), packet.pkt_len() as usize, Transport::Tcp, size, l4);
    let segments = segments.map_err(FragmentError::Segment)?;
    // What was too long was padding.
    let whole = segments.count() == 1 && !packet.tx_flags().contains(TxFlags::TCP_SEGMENTATION);
    Ok((!whole).then_some(segments))
}

/// `None`: it is a fragment, or what was too long was padding.
fn fragments<'a>(packet: &'a Mbuf, bytes: usize) -> Result<Option<Way<'a>>, FragmentError> {
    let found = look(packet.data(), packet.pkt_len() as usize).ok_or(FragmentError::Malformed)?;
    if found.fragment.is_some() {
        return Ok(None);
    }
    let protocol = packet.data().get(found.l3 + 9).copied();
    if found.version != Version::V4 || protocol != Some(IpProtocol::UDP.0) {
        return Err(FragmentError::Malformed);
    }
    if packet.tx_flags().intersects(TxFlags::L4_MASK) {
        return Err(FragmentError::Open);
    }
    // All but the last carry a multiple of 8 bytes.
    let step = bytes.saturating_sub(found.payload) & !7;
    if step == 0 {
        return Err(FragmentError::SegmentBytes { bytes, headers: found.payload, least: found.payload + 8 });
    }
    Ok((found.end - found.payload > step).then_some(Way::Fragments { found, step }))
}

#[cfg(test)]
mod tests;
