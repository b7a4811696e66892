//! What packets ask of a sender, checked and made ready before they are sent.

use crate::finish::{CUT_BYTES_MAX, FINISHED};
use crate::offload;
use crate::{PortInfo, TxOffloads};
use pollux_mempool::{Mbuf, TxFlags, TxOffload};
use pollux_wire::{IpProtocol, checksum};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Why a packet cannot be sent with the offloads it requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxProblem {
    /// It requests an offload that is not enabled on its queue.
    Offload(TxOffloads),
    /// Its flags ask for things that do not go together, or leave out what is needed.
    Flags(&'static str),
    /// Its header lengths are inconsistent.
    Lengths(TxOffload),
    /// It is too long for TSO.
    TooLong {
        /// Its bytes.
        bytes: u32,
        /// The most.
        max: u32,
    },
    /// It has too many segments (mbufs).
    TooManySegments {
        /// Its mbufs.
        segments: usize,
        /// The most.
        max: u16,
    },
    /// Its headers must be written and are shared with another mbuf.
    Shared,
    /// What only the driver knows.
    Driver(&'static str),
}

impl fmt::Display for TxProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offload(missing) => {
                write!(f, "it requests {}, which is not enabled on its queue", offload::names(missing))
            }
            Self::Flags(what) | Self::Driver(what) => f.write_str(what),
            Self::Lengths(TxOffload { l2_len, l3_len, l4_len, .. }) => {
                write!(f, "headers of {l2_len}, {l3_len} and {l4_len} bytes do not fit it")
            }
            Self::TooLong { bytes, max } => write!(f, "{bytes} bytes to segment (TSO), at most {max}"),
            Self::TooManySegments { segments, max } => write!(f, "{segments} mbufs, {max} at most"),
            Self::Shared => f.write_str("its headers are shared with another mbuf; copy them first"),
        }
    }
}

/// The first packet of a burst that cannot be sent as it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet {index}: {problem}")]
pub struct BadPacket {
    /// Its place, from 0; those before it are ready.
    pub index: usize,
    /// What is wrong with it.
    pub problem: TxProblem,
}

/// What the packets of a queue are checked against.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TxRules {
    offloads: TxOffloads,
    max_tso_bytes: u32,
    max_tso_header_bytes: u16,
    max_segments: u16,
    pseudo_sums: bool,
}

impl TxRules {
    pub(crate) fn new(info: &PortInfo, offloads: TxOffloads) -> Self {
        Self {
            offloads,
            max_tso_bytes: info.max_tso_bytes,
            max_tso_header_bytes: info.max_tso_header_bytes,
            max_segments: info.max_tx_segments,
            pseudo_sums: info.tx_pseudo_sums,
        }
    }

    /// The same where software finishes what the device cannot.
    pub(crate) fn finishing(info: &PortInfo, offloads: TxOffloads) -> Self {
        Self {
            offloads: offloads | FINISHED,
            max_tso_bytes: info.max_tso_bytes.max(CUT_BYTES_MAX),
            max_tso_header_bytes: u16::MAX,
            max_segments: u16::MAX,
            pseudo_sums: info.tx_pseudo_sums,
        }
    }

    /// Makes packets ready as far as they are sound.
    pub(crate) fn prepare(&self, mbufs: &mut [Mbuf]) -> Result<(), BadPacket> {
        for (index, mbuf) in mbufs.iter_mut().enumerate() {
            // The usual packet: one mbuf that asks for nothing.
            if mbuf.tx_flags().is_empty() && mbuf.is_contiguous() {
                continue;
            }
            self.one(mbuf).map_err(|problem| BadPacket { index, problem })?;
        }
        Ok(())
    }

    fn one(&self, mbuf: &mut Mbuf) -> Result<(), TxProblem> {
        let flags = mbuf.tx_flags();
        let segments = mbuf.segment_count();
        let missing = needed(flags, segments) - self.offloads;
        if !missing.is_empty() {
            return Err(TxProblem::Offload(missing));
        }
        if segments > usize::from(self.max_segments) {
            return Err(TxProblem::TooManySegments { segments, max: self.max_segments });
        }
        agree(flags)?;
        let cut = flags.intersects(CUTS);
        if cut && mbuf.pkt_len() > self.max_tso_bytes {
            return Err(TxProblem::TooLong { bytes: mbuf.pkt_len(), max: self.max_tso_bytes });
        }
        let l4 = flags & TxFlags::L4_MASK;
        if !flags.contains(TxFlags::IP_CHECKSUM) && l4.is_empty() && !cut {
            return Ok(());
        }
        let place = lengths(mbuf, flags)?;
        let offload = mbuf.tx_offload();
        if cut && place.l4 + usize::from(offload.l4_len) > usize::from(self.max_tso_header_bytes) {
            return Err(TxProblem::Lengths(offload));
        }
        let sums = self.pseudo_sums && (cut || matches!(l4, TxFlags::TCP_CHECKSUM | TxFlags::UDP_CHECKSUM));
        if sums { pseudo_sum(mbuf, flags, place) } else { Ok(()) }
    }
}

const CUTS: TxFlags = TxFlags::TCP_SEGMENTATION.union(TxFlags::UDP_SEGMENTATION);

/// The offloads that a packet needs.
pub(crate) fn needed(flags: TxFlags, segments: usize) -> TxOffloads {
    let mut needed = TxOffloads::empty();
    needed.set(TxOffloads::MULTI_SEGS, segments > 1);
    for (flag, offload) in [
        (TxFlags::IP_CHECKSUM, TxOffloads::IPV4_CKSUM),
        (TxFlags::UDP_SEGMENTATION, TxOffloads::UDP_TSO),
        (TxFlags::VLAN, TxOffloads::VLAN_INSERT),
        (TxFlags::QINQ, TxOffloads::QINQ_INSERT),
        (TxFlags::OUTER_IP_CHECKSUM, TxOffloads::OUTER_IPV4_CKSUM),
        (TxFlags::OUTER_UDP_CHECKSUM, TxOffloads::OUTER_UDP_CKSUM),
        (TxFlags::SECURITY, TxOffloads::SECURITY),
        (TxFlags::MACSEC, TxOffloads::MACSEC_INSERT),
    ] {
        needed.set(offload, flags.contains(flag));
    }
    // Of a packet to be cut, the checksum is part of the cutting.
    let l4 = if flags.intersects(CUTS) { TxFlags::empty() } else { flags & TxFlags::L4_MASK };
    needed |= match l4 {
        TxFlags::TCP_CHECKSUM => TxOffloads::TCP_CKSUM,
        TxFlags::UDP_CHECKSUM => TxOffloads::UDP_CKSUM,
        TxFlags::SCTP_CHECKSUM => TxOffloads::SCTP_CKSUM,
        _ => TxOffloads::empty(),
    };
    if flags.contains(TxFlags::TCP_SEGMENTATION) {
        needed |= match flags & TxFlags::TUNNEL_MASK {
            tunnel if tunnel.is_empty() => TxOffloads::TCP_TSO,
            TxFlags::TUNNEL_VXLAN => TxOffloads::VXLAN_TNL_TSO,
            TxFlags::TUNNEL_GRE => TxOffloads::GRE_TNL_TSO,
            TxFlags::TUNNEL_IPIP => TxOffloads::IPIP_TNL_TSO,
            TxFlags::TUNNEL_GENEVE => TxOffloads::GENEVE_TNL_TSO,
            TxFlags::TUNNEL_IP => TxOffloads::IP_TNL_TSO,
            _ => TxOffloads::UDP_TNL_TSO,
        };
    }
    if flags.contains(TxFlags::UDP_SEGMENTATION) {
        needed |= match flags & TxFlags::TUNNEL_MASK {
            tunnel if tunnel.is_empty() => TxOffloads::empty(),
            TxFlags::TUNNEL_GRE | TxFlags::TUNNEL_IPIP | TxFlags::TUNNEL_IP => TxOffloads::IP_TNL_TSO,
            _ => TxOffloads::UDP_TNL_TSO,
        };
    }
    needed
}

/// Flags that do not go together.
fn agree(flags: TxFlags) -> Result<(), TxProblem> {
    let (v4, v6) = (flags.contains(TxFlags::IPV4), flags.contains(TxFlags::IPV6));
    let l4 = flags & TxFlags::L4_MASK;
    let problem = if v4 && v6 {
        "it is marked as both IPv4 and IPv6"
    } else if flags.contains(TxFlags::IP_CHECKSUM) && !v4 {
        "it requests an IPv4 header checksum but is not marked as IPv4"
    } else if flags.contains(CUTS) {
        "it requests both TCP and UDP segmentation"
    } else if (flags.intersects(CUTS) || !l4.is_empty()) && !v4 && !v6 {
        "it requests an L4 checksum but is marked as neither IPv4 nor IPv6"
    } else if v4 && flags.intersects(CUTS) && !flags.contains(TxFlags::IP_CHECKSUM) {
        "it requests segmentation over IPv4 without the IPv4 header checksum"
    } else {
        return Ok(());
    };
    Err(TxProblem::Flags(problem))
}

/// Where layers 3 and 4 begin.
#[derive(Clone, Copy)]
struct Place {
    l3: usize,
    l4: usize,
}

/// The lengths of headers against the packet.
fn lengths(mbuf: &Mbuf, flags: TxFlags) -> Result<Place, TxProblem> {
    let offload = mbuf.tx_offload();
    let bad = Err(TxProblem::Lengths(offload));
    let outer = match (flags & TxFlags::TUNNEL_MASK).is_empty() {
        true => 0,
        false => usize::from(offload.outer_l2_len) + usize::from(offload.outer_l3_len),
    };
    let l3 = outer + usize::from(offload.l2_len);
    let l4 = l3 + usize::from(offload.l3_len);
    let l3_min = if flags.contains(TxFlags::IPV6) { 40 } else { 20 };
    // Shortest header and place of the checksum's end: RFC 9293, RFC 768, RFC 9260.
    let l4_min = match flags & TxFlags::L4_MASK {
        _ if flags.contains(TxFlags::TCP_SEGMENTATION) => 20,
        _ if flags.contains(TxFlags::UDP_SEGMENTATION) => 8,
        TxFlags::TCP_CHECKSUM => 20,
        TxFlags::UDP_CHECKSUM => 8,
        TxFlags::SCTP_CHECKSUM => 12,
        _ => 0,
    };
    if usize::from(offload.l2_len) < 14 && outer == 0 || usize::from(offload.l3_len) < l3_min {
        return bad;
    }
    // The headers must stand in the first mbuf, where devices look for them.
    if mbuf.data_len() < l4 + l4_min {
        return bad;
    }
    if flags.intersects(CUTS) {
        if usize::from(offload.l4_len) < l4_min || mbuf.data_len() < l4 + usize::from(offload.l4_len) {
            return bad;
        }
        if offload.tso_segment_bytes == 0 {
            return Err(TxProblem::Flags("it requests segmentation with a segment size of 0 bytes"));
        }
    }
    Ok(Place { l3, l4 })
}

/// Writes the sum of the pseudo-header, length included, to where the checksum belongs.
fn pseudo_sum(mbuf: &mut Mbuf, flags: TxFlags, place: Place) -> Result<(), TxProblem> {
    let Place { l3, l4 } = place;
    let bytes = mbuf.pkt_len() - l4 as u32;
    let tcp = match flags & TxFlags::L4_MASK {
        _ if flags.intersects(CUTS) => flags.contains(TxFlags::TCP_SEGMENTATION),
        l4 => l4 == TxFlags::TCP_CHECKSUM,
    };
    let (protocol, at) = if tcp { (IpProtocol::TCP, l4 + 16) } else { (IpProtocol::UDP, l4 + 6) };
    let data = mbuf.data_mut().ok_or(TxProblem::Shared)?;
    let sum = if flags.contains(TxFlags::IPV6) {
        let address =
            |from: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&data[from..from + 16]).unwrap_or_default());
        checksum::pseudo_v6(address(l3 + 8), address(l3 + 24), protocol, bytes)
    } else {
        let address =
            |from: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&data[from..from + 4]).unwrap_or_default());
        // Of a packet to be cut the length may be more than 16 bits can say; then it is as good as the device makes it.
        checksum::pseudo_v4(address(l3 + 12), address(l3 + 16), protocol, bytes as u16)
    };
    // The field holds the sum itself; `checksum` gives its complement.
    data[at..at + 2].copy_from_slice(&(!sum.checksum()).to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;
