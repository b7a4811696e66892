//! What is still to be done to a frame: from the kernel's words to an mbuf's, back again, or done here.
//!
//! ```text
//!   kernel --VnetHeader--> describe --TxFlags, TxOffload--> mbuf --header_of--> VnetHeader --> kernel
//!                                                             \--pollux_port::finish--> frames with nothing left to do
//! ```
//!
//! A frame from a local sender comes with an open checksum, and up to 64 KiB of it in one piece. Both are noted in the
//! mbuf's *transmit* flags: it is then ready to be sent as it is by any port that can finish it, a NIC as well. The place of
//! the checksum holds the sum of the pseudo-header, length included, as the kernel and virtio have it.

use pollux_frame_io::vnet::{PartialChecksum, Segmentation, VlanTag, VnetHeader};
use pollux_mempool::{Mbuf, RxFlags, TxFlags, TxOffload};
use pollux_port::TxOffloads;
use pollux_port::finish::{Unfinishable, complete_crc, complete_sum};
use pollux_wire::{Encapsulation, EtherType, IpProtocol, Tunnel, checksum, ip, tunnel, vlan};

/// What [`header_of`] does, for the ports that use it: a packet's flags are enough, whether the queue was told to expect them or
/// not. The kernel's header has no words for large frames in tunnels.
pub(crate) const OFFERED: TxOffloads = TxOffloads::CHECKSUM
    .union(TxOffloads::VLAN_INSERT)
    .union(TxOffloads::QINQ_INSERT)
    .union(TxOffloads::TCP_TSO)
    .union(TxOffloads::UDP_TSO)
    .union(TxOffloads::MULTI_SEGS);
/// What [`describe`] notes.
pub(crate) const OPEN: TxOffloads =
    TxOffloads::CHECKSUM.union(TxOffloads::TCP_TSO).union(TxOffloads::UDP_TSO).union(TxOffloads::MULTI_SEGS);
/// The same where large frames come in tunnels, too.
pub(crate) const OPEN_IN_TUNNELS: TxOffloads =
    OPEN.union(TxOffloads::TUNNEL_TSO).union(TxOffloads::OUTER_IPV4_CKSUM).union(TxOffloads::OUTER_UDP_CKSUM);

/// Where TCP has its checksum.
const TCP_CHECKSUM_AT: u16 = 16;
/// Where UDP has its checksum.
const UDP_CHECKSUM_AT: u16 = 6;
/// The flag byte of a TCP header, and the bit in it that says "window reduced" (RFC 3168).
const TCP_FLAGS_AT: usize = 13;
const TCP_CWR: u8 = 0x80;

/// The frame or what is said about it makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<Unfinishable> for Malformed {
    fn from(_: Unfinishable) -> Self {
        Self
    }
}

/// Everything that a sender may be asked to do.
fn asked() -> TxFlags {
    TxFlags::L4_MASK
        | TxFlags::IP_CHECKSUM
        | TxFlags::TCP_SEGMENTATION
        | TxFlags::UDP_SEGMENTATION
        | TxFlags::VLAN
        | TxFlags::QINQ
        | TxFlags::OUTER_IP_CHECKSUM
        | TxFlags::OUTER_UDP_CHECKSUM
        | TxFlags::TUNNEL_MASK
        | TxFlags::SECURITY
        | TxFlags::MACSEC
}

/// What nobody here can do.
fn beyond() -> TxFlags {
    TxFlags::OUTER_IP_CHECKSUM | TxFlags::OUTER_UDP_CHECKSUM | TxFlags::SECURITY | TxFlags::MACSEC
}

/// Whether the frame can leave as it stands.
#[inline]
pub(crate) fn is_plain(mbuf: &Mbuf) -> bool {
    !mbuf.tx_flags().intersects(asked())
}

/// Notes in the mbuf what the kernel said of the frame in it. `shift` bytes were put in before layer 3 since.
#[inline]
pub(crate) fn describe(mbuf: &mut Mbuf, header: &VnetHeader, shift: u16) -> Result<(), Malformed> {
    if header.checksum_good {
        mbuf.set_rx_flags(mbuf.rx_flags() | RxFlags::L4_CHECKSUM_GOOD);
    }
    if header.is_plain() { Ok(()) } else { describe_rest(mbuf, header, shift) }
}

#[cold]
fn describe_rest(mbuf: &mut Mbuf, header: &VnetHeader, shift: u16) -> Result<(), Malformed> {
    // A large frame has an open checksum always: its segments need new ones.
    let PartialChecksum { start, offset } = header.checksum.ok_or(Malformed)?;
    let l4 = usize::from(start) + usize::from(shift);
    let Some((network, l2_len, l4_bytes)) = transport(mbuf.data(), l4, offset) else {
        // Something else inside something else: the sum alone can be completed without knowing what it is.
        if header.segmentation != Segmentation::None {
            return describe_tunnelled(mbuf, header, l4, offset);
        }
        match checksum::is_sctp(mbuf.data(), l4, offset.into()) {
            true => complete_crc(mbuf, l4)?,
            false => complete_sum(mbuf, l4, offset.into())?,
        }
        return Ok(());
    };
    let tcp = offset == TCP_CHECKSUM_AT;
    let mut flags = network | if tcp { TxFlags::TCP_CHECKSUM } else { TxFlags::UDP_CHECKSUM };
    let mut found = mbuf.rx_flags() | RxFlags::L4_CHECKSUM_NONE;
    match header.segmentation {
        Segmentation::None => {}
        Segmentation::Tcp4 | Segmentation::Tcp6 if tcp => flags |= TxFlags::TCP_SEGMENTATION,
        Segmentation::Udp if !tcp => flags |= TxFlags::UDP_SEGMENTATION,
        _ => return Err(Malformed),
    }
    let mut offload = TxOffload {
        l2_len: u8::try_from(l2_len).map_err(|_| Malformed)?,
        l3_len: (l4 - l2_len) as u16,
        l4_len: u8::try_from(l4_bytes).map_err(|_| Malformed)?,
        ..TxOffload::default()
    };
    if header.segmentation != Segmentation::None {
        if header.segment_bytes == 0 {
            return Err(Malformed);
        }
        offload.tso_segment_bytes = header.segment_bytes;
        found |= RxFlags::LRO;
        if network == TxFlags::IPV4 {
            // Each segment has a header, and a header checksum, of its own.
            flags |= TxFlags::IP_CHECKSUM;
        }
    }
    mbuf.set_tx_flags(mbuf.tx_flags() | flags);
    mbuf.set_tx_offload(offload);
    mbuf.set_rx_flags(found);
    Ok(())
}

/// What stands at `l4`, if that is TCP or UDP right behind IP and its extension headers, as the place of its checksum says: which
/// IP, where it begins, bytes of the transport's header. Not that of a tunnel, whose headers stand between.
fn transport(frame: &[u8], l4: usize, checksum_at: u16) -> Option<(TxFlags, usize, usize)> {
    let behind = vlan::skip_tags(frame).ok()?;
    let l2 = behind.offset;
    let head = frame.get(l4..)?;
    let (_, protocol) = ip::behind(frame, l2, behind.ether_type).filter(|(end, _)| *end == l4)?;
    let network = if behind.ether_type == EtherType::IPV4 { TxFlags::IPV4 } else { TxFlags::IPV6 };
    match (protocol, checksum_at) {
        (IpProtocol::TCP, TCP_CHECKSUM_AT) => Some((network, l2, usize::from(head.get(12)? >> 4) * 4)),
        (IpProtocol::UDP, UDP_CHECKSUM_AT) => Some((network, l2, 8)),
        _ => None,
    }
}

/// Describes a large frame inside a tunnel. The kernel says no more than of one outside, but for the place of the checksum.
fn describe_tunnelled(mbuf: &mut Mbuf, header: &VnetHeader, l4: usize, offset: u16) -> Result<(), Malformed> {
    let (protocol, cut) = match (header.segmentation, offset) {
        (Segmentation::Tcp4 | Segmentation::Tcp6, TCP_CHECKSUM_AT) => {
            (IpProtocol::TCP, TxFlags::TCP_SEGMENTATION | TxFlags::TCP_CHECKSUM)
        }
        (Segmentation::Udp, UDP_CHECKSUM_AT) => {
            (IpProtocol::UDP, TxFlags::UDP_SEGMENTATION | TxFlags::UDP_CHECKSUM)
        }
        _ => return Err(Malformed),
    };
    let head = mbuf.data();
    let tunnel = Tunnel::around(head, mbuf.pkt_len() as usize, l4, protocol).ok_or(Malformed)?;
    let l4_bytes = match protocol {
        IpProtocol::TCP => usize::from(head.get(l4 + 12).ok_or(Malformed)? >> 4) * 4,
        _ => 8,
    };
    let mut flags = cut;
    flags |= match tunnel.encapsulation {
        Encapsulation::Ip => TxFlags::TUNNEL_IPIP,
        Encapsulation::Gre { checksum: false } => TxFlags::TUNNEL_GRE,
        Encapsulation::Gre { checksum: true } => TxFlags::TUNNEL_IP,
        // By the ports that IANA gave them; on others devices do not know them.
        Encapsulation::Udp { port: tunnel::VXLAN_PORT, .. } => TxFlags::TUNNEL_VXLAN,
        Encapsulation::Udp { port: tunnel::VXLAN_GPE_PORT, .. } => TxFlags::TUNNEL_VXLAN_GPE,
        Encapsulation::Udp { port: tunnel::GENEVE_PORT, .. } => TxFlags::TUNNEL_GENEVE,
        Encapsulation::Udp { .. } => TxFlags::TUNNEL_UDP,
    };
    flags |= match tunnel.outer_v4 {
        true => TxFlags::OUTER_IPV4 | TxFlags::OUTER_IP_CHECKSUM,
        false => TxFlags::OUTER_IPV6,
    };
    // No device that cuts fills in that of GRE either.
    let sum = matches!(
        tunnel.encapsulation,
        Encapsulation::Udp { checksum: true, .. } | Encapsulation::Gre { checksum: true }
    );
    flags.set(TxFlags::OUTER_UDP_CHECKSUM, sum);
    flags |= if tunnel.inner_v4 { TxFlags::IPV4 | TxFlags::IP_CHECKSUM } else { TxFlags::IPV6 };
    let between = tunnel.inner_l3 - tunnel.l4;
    if header.segment_bytes == 0 || between > L2_LEN_MAX {
        return Err(Malformed);
    }
    let short = |bytes: usize| u8::try_from(bytes).map_err(|_| Malformed);
    let offload = TxOffload {
        outer_l2_len: short(tunnel.l3)?,
        outer_l3_len: (tunnel.l4 - tunnel.l3) as u16,
        l2_len: short(between)?,
        l3_len: (tunnel.inner_l4 - tunnel.inner_l3) as u16,
        l4_len: short(l4_bytes)?,
        tso_segment_bytes: header.segment_bytes,
    };
    mbuf.set_tx_flags(mbuf.tx_flags() | flags);
    mbuf.set_tx_offload(offload);
    mbuf.set_rx_flags(mbuf.rx_flags() | RxFlags::L4_CHECKSUM_NONE | RxFlags::LRO);
    Ok(())
}

/// What `TxOffload` has room for between two IP headers: 7 bits, as in DPDK (`RTE_MBUF_L2_LEN_BITS`).
const L2_LEN_MAX: usize = 127;

/// What the kernel is to be told when it sends this frame.
pub(crate) struct Asked {
    pub(crate) header: VnetHeader,
    /// Tags to put in, outer first.
    pub(crate) tags: [Option<VlanTag>; 2],
}

impl Asked {
    /// Bytes of the tags.
    pub(crate) fn tag_bytes(&self) -> usize {
        4 * self.tags.iter().flatten().count()
    }
}

/// Tags that the sender is asked to put in, outer first.
fn tags_of(mbuf: &Mbuf) -> [Option<VlanTag>; 2] {
    let flags = mbuf.tx_flags();
    let inner = VlanTag { tpid: EtherType::VLAN.0, tci: mbuf.vlan_tci() };
    if flags.contains(TxFlags::QINQ) {
        [Some(VlanTag { tpid: EtherType::QINQ.0, tci: mbuf.vlan_tci_outer() }), Some(inner)]
    } else {
        [flags.contains(TxFlags::VLAN).then_some(inner), None]
    }
}

/// From an mbuf's words to the kernel's. The IPv4 header checksum, which the kernel does not do, is filled in here.
#[cold]
pub(crate) fn header_of(mbuf: &mut Mbuf) -> Result<Asked, Malformed> {
    let flags = mbuf.tx_flags();
    let offload = mbuf.tx_offload();
    if flags.intersects(beyond()) {
        return Err(Malformed);
    }
    let l4_flags = flags & TxFlags::L4_MASK;
    if l4_flags == TxFlags::SCTP_CHECKSUM {
        // A CRC, not a sum; the kernel's header has no word for it.
        return Err(Malformed);
    }
    let tags = tags_of(mbuf);
    let mut asked = Asked { header: VnetHeader::default(), tags };
    let shift = asked.tag_bytes();
    let tunnelled = flags.intersects(TxFlags::TUNNEL_MASK);
    let outer =
        if tunnelled { usize::from(offload.outer_l2_len) + usize::from(offload.outer_l3_len) } else { 0 };
    let l3 = outer + usize::from(offload.l2_len);
    let l4 = l3 + usize::from(offload.l3_len);
    let cut_tcp = flags.contains(TxFlags::TCP_SEGMENTATION);
    let cut_udp = flags.contains(TxFlags::UDP_SEGMENTATION);
    if tunnelled && (cut_tcp || cut_udp) {
        // The kernel's header has no words for it.
        return Err(Malformed);
    }
    if flags.contains(TxFlags::IP_CHECKSUM) && !cut_tcp && !cut_udp {
        fill_ip_checksum(mbuf, l3, l4)?;
    }
    if l4_flags.is_empty() && !cut_tcp && !cut_udp {
        return Ok(asked);
    }
    let tcp = cut_tcp || (!cut_udp && l4_flags == TxFlags::TCP_CHECKSUM);
    let offset = if tcp { TCP_CHECKSUM_AT } else { UDP_CHECKSUM_AT };
    let data = mbuf.data();
    if l3 < 14 || l4 <= l3 || data.len() < l4 + usize::from(offset) + 2 {
        return Err(Malformed);
    }
    asked.header.checksum = Some(PartialChecksum { start: (l4 + shift) as u16, offset });
    asked.header.header_bytes = (l4 + shift + usize::from(offload.l4_len)) as u16;
    if cut_tcp || cut_udp {
        if offload.tso_segment_bytes == 0 {
            return Err(Malformed);
        }
        asked.header.segment_bytes = offload.tso_segment_bytes;
        asked.header.segmentation = match (cut_tcp, flags.contains(TxFlags::IPV6)) {
            (false, _) => Segmentation::Udp,
            (true, false) => Segmentation::Tcp4,
            (true, true) => Segmentation::Tcp6,
        };
        asked.header.ecn = cut_tcp && data[l4 + TCP_FLAGS_AT] & TCP_CWR != 0;
    }
    Ok(asked)
}

fn fill_ip_checksum(mbuf: &mut Mbuf, l3: usize, l4: usize) -> Result<(), Malformed> {
    let header = mbuf.data_mut().and_then(|data| data.get_mut(l3..l4)).ok_or(Malformed)?;
    if header.len() < 20 {
        return Err(Malformed);
    }
    header[10..12].fill(0);
    let sum = checksum::of(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;
