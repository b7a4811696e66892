//! What an entry says of a packet in a tunnel that the device does not know: where its headers begin (software parsing, SWP).
//!
//! Of VXLAN and GRE the device is told nothing, it knows them. Of Geneve it is told where it can be: Linux's driver relies on that
//! alone, DPDK's on the device's own parser, and since ConnectX-5 one goes with the other. IP in IP and what is over other UDP ports it
//! must be told of. Sources: DPDK `drivers/net/mlx5/mlx5_tx.h`, `txq_mbuf_to_swp`; Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/en_accel/en_accel.h`, `mlx5e_tx_tunnel_accel`.

use pollux_mempool::{Mbuf, TxFlags};
use pollux_mlx5_abi::wqe::parse;

use crate::eth::parts::TxTunnels;

/// What concerns headers inside a tunnel.
const INSIDE: TxFlags = TxFlags::IP_CHECKSUM.union(TxFlags::L4_MASK).union(TxFlags::TCP_SEGMENTATION);

/// The first 4 bytes of the Ethernet segment, as they stand in memory, and its flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) offsets: u32,
    pub(super) kinds: u8,
}

/// Why a packet cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Nobody finds the way into its tunnel.
    Kind,
    /// Its headers cannot be where it says, or cannot be told.
    Lengths,
}

impl Refused {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Kind => "it asks for something inside a tunnel of a kind that the device cannot do that in",
            Self::Lengths => {
                "inside its tunnel it is marked as neither IPv4 nor IPv6, or its headers do not begin at even places up to 510 bytes on"
            }
        }
    }
}

impl TxTunnels {
    /// Whether a packet with such flags asks for nothing that the device would have to be told.
    #[inline(always)]
    pub(super) fn finds(self, flags: TxFlags) -> bool {
        let kind = (flags & TxFlags::TUNNEL_MASK).bits() >> TxFlags::TUNNEL_MASK.bits().trailing_zeros();
        kind == 0 || self.known.bits() >> kind & 1 != 0 || !flags.intersects(INSIDE)
    }

    /// What to say of a packet that it does not find, behind a tag of `tag` bytes that is still to be put in.
    #[cold]
    pub(super) fn tell(self, mbuf: &Mbuf, tag: u32) -> Result<Places, Refused> {
        let flags = mbuf.tx_flags();
        let cut = flags.contains(TxFlags::TCP_SEGMENTATION);
        if !(if cut { self.told_cuts } else { self.told_sums }) {
            return Err(Refused::Kind);
        }
        let v6 = flags.contains(TxFlags::IPV6);
        if !v6 && !flags.contains(TxFlags::IPV4) {
            return Err(Refused::Lengths);
        }
        let over_ip = [TxFlags::TUNNEL_GRE, TxFlags::TUNNEL_IPIP, TxFlags::TUNNEL_IP];
        let over_udp = !over_ip.contains(&(flags & TxFlags::TUNNEL_MASK));
        let l4 = if cut { TxFlags::TCP_CHECKSUM } else { flags & TxFlags::L4_MASK };
        let sums_l4 = l4 == TxFlags::TCP_CHECKSUM || l4 == TxFlags::UDP_CHECKSUM;
        let offload = mbuf.tx_offload();
        let outer_l3 = u32::from(offload.outer_l2_len) + tag;
        let outer_l4 = outer_l3 + u32::from(offload.outer_l3_len);
        let inner_l3 = outer_l4 + u32::from(offload.l2_len);
        let inner_l4 = inner_l3 + u32::from(offload.l3_len);
        // In units of two bytes; 0 is nothing.
        let place = |at: u32| if at.is_multiple_of(2) { u8::try_from(at / 2).ok() } else { None };
        let told = |is: bool, at: u32| if is { place(at) } else { Some(0) };
        let places = [told(over_udp, outer_l4), place(outer_l3), told(sums_l4, inner_l4), place(inner_l3)];
        let [Some(outer_l4), Some(outer_l3), Some(inner_l4), Some(inner_l3)] = places else {
            return Err(Refused::Lengths);
        };
        let kinds = [
            (flags.contains(TxFlags::OUTER_IPV6), parse::OUTER_L3_IPV6),
            (over_udp, parse::OUTER_L4_UDP),
            (v6, parse::INNER_L3_IPV6),
            (l4 == TxFlags::UDP_CHECKSUM, parse::INNER_L4_UDP),
        ];
        Ok(Places {
            offsets: u32::from_le_bytes([outer_l4, outer_l3, inner_l4, inner_l3]),
            kinds: kinds.iter().filter(|(is, _)| *is).map(|(_, kind)| kind).sum(),
        })
    }
}
