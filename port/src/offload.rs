//! What a port does to packets so that the processor need not: offered, asked for, checked.
//!
//! ```text
//!   PortInfo::rx_offloads         what the port can do                 \
//!   PortInfo::rx_queue_offloads   of these, what each queue can differ in \   checked by Port::configure
//!   PortConfig::rx_offloads       asked for on every queue             /     and queue set-up
//!   RxQueueConfig::offloads       asked for on one queue besides      /
//!                                   -> RxSetup::offloads: the sum, for the driver
//! ```
//!
//! and the same for tx. Names, bits and meanings are DPDK's (`lib/ethdev/rte_ethdev.h`, `RTE_ETH_RX_OFFLOAD_*` and
//! `RTE_ETH_TX_OFFLOAD_*`). Asking turns an offload on; a port that was not asked may do it all the same where that costs
//! nothing, and an mbuf's flags always tell what was done to it. A packet that asks, by its
//! [`TxFlags`](pollux_mempool::TxFlags), for what its queue was not set up to do may leave unfinished.

use bitflags::{Flags, bitflags};

bitflags! {
    /// Rx offloads.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RxOffloads: u64 {
        /// Strips the VLAN tag into `vlan_tci`.
        const VLAN_STRIP = 1 << 0;
        /// Says that the IPv4 header checksum is good, or that it is bad. A port may say nothing of a bad one, or of one that
        /// it cannot judge: then it is to be checked. mlx5 never says bad, here and below. Source: DPDK
        /// `drivers/net/mlx5/mlx5_rx.c`, `rxq_cq_to_ol_flags`.
        const IPV4_CKSUM = 1 << 1;
        /// The same of the UDP checksum.
        const UDP_CKSUM = 1 << 2;
        /// The same of the TCP checksum.
        const TCP_CKSUM = 1 << 3;
        /// Joins TCP segments of one flow into one packet.
        const TCP_LRO = 1 << 4;
        /// Strips two VLAN tags.
        const QINQ_STRIP = 1 << 5;
        /// Says whether the outer IPv4 header checksum of a tunnelled packet is bad.
        const OUTER_IPV4_CKSUM = 1 << 6;
        /// Strips the MACsec header.
        const MACSEC_STRIP = 1 << 7;
        /// Receives only the VLANs in the port's list.
        const VLAN_FILTER = 1 << 9;
        /// Filters by the outer of two tags.
        const VLAN_EXTEND = 1 << 10;
        /// Scatters a packet that is longer than an mbuf over several.
        const SCATTER = 1 << 13;
        /// Writes the rx timestamp to the packet's dynamic field.
        const TIMESTAMP = 1 << 14;
        /// Decrypts.
        const SECURITY = 1 << 15;
        /// Leaves the frame check sequence at the end of the data.
        const KEEP_CRC = 1 << 16;
        /// The same of the SCTP checksum.
        const SCTP_CKSUM = 1 << 17;
        /// The same of the outer UDP checksum of a tunnelled packet.
        const OUTER_UDP_CKSUM = 1 << 18;
        /// Gives the RSS hash with the packet.
        const RSS_HASH = 1 << 19;
        /// Splits a packet over mbufs of several pools at given lengths.
        const BUFFER_SPLIT = 1 << 20;
    }
}

impl RxOffloads {
    /// The three checksums of the usual packets.
    pub const CHECKSUM: Self = Self::IPV4_CKSUM.union(Self::UDP_CKSUM).union(Self::TCP_CKSUM);
    /// All about VLAN tags.
    pub const VLAN: Self =
        Self::VLAN_STRIP.union(Self::VLAN_FILTER).union(Self::VLAN_EXTEND).union(Self::QINQ_STRIP);
}

bitflags! {
    /// Tx offloads, applied to packets whose flags request them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TxOffloads: u64 {
        /// Inserts a VLAN tag.
        const VLAN_INSERT = 1 << 0;
        /// Fills in the IPv4 header checksum.
        const IPV4_CKSUM = 1 << 1;
        /// Fills in the UDP checksum.
        const UDP_CKSUM = 1 << 2;
        /// Fills in the TCP checksum.
        const TCP_CKSUM = 1 << 3;
        /// Fills in the SCTP checksum.
        const SCTP_CKSUM = 1 << 4;
        /// TCP segmentation offload (TSO).
        const TCP_TSO = 1 << 5;
        /// UDP segmentation offload.
        const UDP_TSO = 1 << 6;
        /// Fills in the outer IPv4 header checksum of a tunnelled packet.
        const OUTER_IPV4_CKSUM = 1 << 7;
        /// Inserts two VLAN tags.
        const QINQ_INSERT = 1 << 8;
        /// TSO inside VXLAN.
        const VXLAN_TNL_TSO = 1 << 9;
        /// TSO inside GRE.
        const GRE_TNL_TSO = 1 << 10;
        /// TSO inside IP in IP.
        const IPIP_TNL_TSO = 1 << 11;
        /// TSO inside GENEVE.
        const GENEVE_TNL_TSO = 1 << 12;
        /// Inserts a MACsec header.
        const MACSEC_INSERT = 1 << 13;
        /// Lets several lcores send on one queue. No port here: a queue is a value with one owner.
        const MT_LOCKFREE = 1 << 14;
        /// Sends packets of several mbufs.
        const MULTI_SEGS = 1 << 15;
        /// Is told that all mbufs of the queue come of one pool, have one owner and one segment, and frees them the faster for
        /// it. A queue that sees another kind frees as if this were off from then on.
        const MBUF_FAST_FREE = 1 << 16;
        /// Encrypts.
        const SECURITY = 1 << 17;
        /// TSO inside any UDP tunnel.
        const UDP_TNL_TSO = 1 << 18;
        /// TSO inside any IP tunnel.
        const IP_TNL_TSO = 1 << 19;
        /// Fills in the outer UDP checksum of a tunnelled packet.
        const OUTER_UDP_CKSUM = 1 << 20;
        /// Sends at the timestamp in the packet's dynamic field.
        const SEND_ON_TIMESTAMP = 1 << 21;
    }
}

impl TxOffloads {
    /// The three checksums of the usual packets.
    pub const CHECKSUM: Self = Self::IPV4_CKSUM.union(Self::UDP_CKSUM).union(Self::TCP_CKSUM);
    /// Cutting inside tunnels of all kinds.
    pub const TUNNEL_TSO: Self = Self::VXLAN_TNL_TSO
        .union(Self::GRE_TNL_TSO)
        .union(Self::IPIP_TNL_TSO)
        .union(Self::GENEVE_TNL_TSO)
        .union(Self::UDP_TNL_TSO)
        .union(Self::IP_TNL_TSO);
}

/// `VLAN_STRIP, SCATTER`; `none`; bits without a name as a number.
pub(crate) fn names<F: Flags>(flags: &F) -> String
where
    F::Bits: std::fmt::LowerHex,
{
    let mut rest = flags.iter_names();
    let mut names: Vec<String> = rest.by_ref().map(|(name, _)| name.to_owned()).collect();
    if !rest.remaining().is_empty() {
        names.push(format!("{:#x}", rest.remaining().bits()));
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_dpdk() {
        // lib/ethdev/rte_ethdev.h of DPDK 24.11: the values that an application built there would pass.
        for (flag, bit) in [
            (RxOffloads::VLAN_STRIP, 0),
            (RxOffloads::VLAN_FILTER, 9),
            (RxOffloads::SCATTER, 13),
            (RxOffloads::KEEP_CRC, 16),
            (RxOffloads::RSS_HASH, 19),
        ] {
            assert_eq!(flag.bits(), 1 << bit, "{flag:?}");
        }
        for (flag, bit) in [
            (TxOffloads::TCP_TSO, 5),
            (TxOffloads::QINQ_INSERT, 8),
            (TxOffloads::MULTI_SEGS, 15),
            (TxOffloads::OUTER_UDP_CKSUM, 20),
        ] {
            assert_eq!(flag.bits(), 1 << bit, "{flag:?}");
        }
        assert_eq!((RxOffloads::CHECKSUM.bits(), TxOffloads::CHECKSUM.bits()), (0xe, 0xe));
    }

    #[test]
    fn offloads_are_listed_one_by_one() {
        assert_eq!(names(&RxOffloads::CHECKSUM), "IPV4_CKSUM, UDP_CKSUM, TCP_CKSUM");
        assert_eq!(names(&TxOffloads::empty()), "none");
        assert_eq!(names(&RxOffloads::from_bits_retain(1 << 13 | 1 << 40)), "SCATTER, 0x10000000000");
    }
}
