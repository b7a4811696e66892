//! Offload flags: what the receiver found out, and what the sender is asked to do.

use bitflags::bitflags;

bitflags! {
    /// What the receiving port found out about a packet.
    ///
    /// Each checksum has four answers in two bits: neither (unknown), good, bad, and both (`*_NONE`: no checksum in
    /// the packet, but the data was checked and is right; a packet from a local sender, say).
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RxFlags: u32 {
        /// `vlan_tci` holds the tag.
        const VLAN = 1 << 0;
        /// The tag was taken out of the data.
        const VLAN_STRIPPED = 1 << 1;
        /// `vlan_tci_outer` holds the outer tag of two.
        const QINQ = 1 << 2;
        /// Both tags were taken out of the data.
        const QINQ_STRIPPED = 1 << 3;
        /// `rss_hash` holds the hash.
        const RSS_HASH = 1 << 4;
        /// A flow rule matched.
        const FLOW = 1 << 5;
        /// A flow rule matched and `mark` holds its number.
        const MARK = 1 << 6;
        /// The IPv4 header checksum is wrong.
        const IP_CHECKSUM_BAD = 1 << 7;
        /// The IPv4 header checksum is right.
        const IP_CHECKSUM_GOOD = 1 << 8;
        /// The header checksum is not there, but the header is right.
        const IP_CHECKSUM_NONE = Self::IP_CHECKSUM_BAD.bits() | Self::IP_CHECKSUM_GOOD.bits();
        /// The TCP, UDP or SCTP checksum is wrong.
        const L4_CHECKSUM_BAD = 1 << 9;
        /// The TCP, UDP or SCTP checksum is right.
        const L4_CHECKSUM_GOOD = 1 << 10;
        /// The checksum is not there (or only of the pseudo header), but the data is right.
        const L4_CHECKSUM_NONE = Self::L4_CHECKSUM_BAD.bits() | Self::L4_CHECKSUM_GOOD.bits();
        /// The outer IPv4 header checksum is wrong.
        const OUTER_IP_CHECKSUM_BAD = 1 << 11;
        /// The outer UDP checksum is wrong.
        const OUTER_L4_CHECKSUM_BAD = 1 << 12;
        /// The outer UDP checksum is right.
        const OUTER_L4_CHECKSUM_GOOD = 1 << 13;
        /// The outer UDP checksum is not there, but the data is right.
        const OUTER_L4_CHECKSUM_NONE =
            Self::OUTER_L4_CHECKSUM_BAD.bits() | Self::OUTER_L4_CHECKSUM_GOOD.bits();
        /// Several packets were joined into this one; `TxOffload::tso_segment_bytes` holds their size.
        const LRO = 1 << 14;
        /// A PTP packet.
        const PTP = 1 << 15;
        /// A PTP packet whose arrival the port took the time of.
        const PTP_TIMESTAMP = 1 << 16;
        /// Decryption by the port was done.
        const SECURITY = 1 << 17;
        /// Decryption by the port failed.
        const SECURITY_FAILED = 1 << 18;
    }
}

bitflags! {
    /// What the sending port is asked to do. Lengths it needs are in [`TxOffload`].
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TxFlags: u32 {
        /// Fill in the IPv4 header checksum.
        const IP_CHECKSUM = 1 << 0;
        /// The packet is IPv4.
        const IPV4 = 1 << 1;
        /// The packet is IPv6.
        const IPV6 = 1 << 2;
        /// Fill in the TCP checksum.
        const TCP_CHECKSUM = 1 << 3;
        /// Fill in the SCTP checksum.
        const SCTP_CHECKSUM = 1 << 4;
        /// Fill in the UDP checksum.
        const UDP_CHECKSUM = Self::TCP_CHECKSUM.bits() | Self::SCTP_CHECKSUM.bits();
        /// Cut the TCP payload into segments.
        const TCP_SEGMENTATION = 1 << 5;
        /// Cut the UDP payload into datagrams.
        const UDP_SEGMENTATION = 1 << 6;
        /// Put in the tag `vlan_tci`.
        const VLAN = 1 << 7;
        /// Put in the tags `vlan_tci_outer` and `vlan_tci`.
        const QINQ = 1 << 8;
        /// Fill in the outer IPv4 header checksum.
        const OUTER_IP_CHECKSUM = 1 << 9;
        /// The outer packet is IPv4.
        const OUTER_IPV4 = 1 << 10;
        /// The outer packet is IPv6.
        const OUTER_IPV6 = 1 << 11;
        /// Fill in the outer UDP checksum; of a tunnel over IP, the tunnel's own, which ports take for the same that they cannot do.
        const OUTER_UDP_CHECKSUM = 1 << 12;
        /// The tunnel is VXLAN.
        const TUNNEL_VXLAN = 1 << 13;
        /// The tunnel is GRE.
        const TUNNEL_GRE = 2 << 13;
        /// The tunnel is IP in IP.
        const TUNNEL_IPIP = 3 << 13;
        /// The tunnel is GENEVE.
        const TUNNEL_GENEVE = 4 << 13;
        /// The tunnel is MPLS in UDP.
        const TUNNEL_MPLS_IN_UDP = 5 << 13;
        /// The tunnel is VXLAN-GPE.
        const TUNNEL_VXLAN_GPE = 6 << 13;
        /// The tunnel is GTP.
        const TUNNEL_GTP = 7 << 13;
        /// The tunnel is of another kind, over IP.
        const TUNNEL_IP = 8 << 13;
        /// The tunnel is of another kind, over UDP.
        const TUNNEL_UDP = 9 << 13;
        /// The bits of the tunnel's kind.
        const TUNNEL_MASK = 15 << 13;
        /// Take the time of departure of a PTP packet.
        const PTP_TIMESTAMP = 1 << 17;
        /// Encrypt.
        const SECURITY = 1 << 18;
        /// MACsec.
        const MACSEC = 1 << 19;
    }
}

impl TxFlags {
    /// The bits that say which checksum of layer 4 to fill in.
    pub const L4_MASK: Self = Self::UDP_CHECKSUM;
}

/// Lengths of headers, for [`TxFlags`] that need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffload {
    /// Bytes of the layer 2 header; of a tunnelled packet, all between the outer layer 3 header and the inner one.
    pub l2_len: u8,
    /// Bytes of the layer 3 header.
    pub l3_len: u16,
    /// Bytes of the layer 4 header.
    pub l4_len: u8,
    /// Bytes of payload in each segment that is cut.
    pub tso_segment_bytes: u16,
    /// Bytes of the outer layer 2 header.
    pub outer_l2_len: u8,
    /// Bytes of the outer layer 3 header.
    pub outer_l3_len: u16,
}

impl TxOffload {
    /// Packs to 64 bits: 7 for layer 2, 9 for layer 3, 8 for layer 4, 16 for the segment, 9 and 7 for the outer ones.
    /// Longer lengths than these bits can say are cut off; no header is as long.
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.l2_len & 0x7f)
            | u64::from(self.l3_len & 0x1ff) << 7
            | u64::from(self.l4_len) << 16
            | u64::from(self.tso_segment_bytes) << 24
            | u64::from(self.outer_l3_len & 0x1ff) << 40
            | u64::from(self.outer_l2_len & 0x7f) << 49
    }

    #[inline]
    pub(crate) fn unpack(bits: u64) -> Self {
        Self {
            l2_len: (bits & 0x7f) as u8,
            l3_len: (bits >> 7 & 0x1ff) as u16,
            l4_len: (bits >> 16) as u8,
            tso_segment_bytes: (bits >> 24) as u16,
            outer_l3_len: (bits >> 40 & 0x1ff) as u16,
            outer_l2_len: (bits >> 49 & 0x7f) as u8,
        }
    }
}
