//! What the bytes of a completion mean for its packet.
//!
//! Packet type and flags come out of one table, so that features that are off cost nothing and those that are on cost one
//! load. The index is made of three bytes of the completion:
//!
//! ```text
//!   11 10     9                    2     1 0
//!  | tunnel | layer 4, 3, VLAN stripped | checksums of layers 4 and 3 are right |
//!   pkt_info        l4_l3_hdr_type            hds_ip_ext >> 1
//! ```
//!
//! A checksum is said to be good or nothing is said: the device has one bit, "right", which is clear also where it did not
//! look. Source: DPDK `drivers/net/mlx5/mlx5_rxtx.c`, `mlx5_set_ptype_table`; `mlx5_rx.c`, `rxq_cq_to_ol_flags`,
//! `rxq_cq_to_mbuf`; values of packet types from DPDK `lib/mbuf/rte_mbuf_ptype.h`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use pollux_mempool::dynamic::{Field, Flag};
use pollux_mempool::{PacketType, RxFlags};
use pollux_mlx5_abi::cqe::{packet, status};

use crate::eth::parts::RxFeatures;

const INDICES: usize = 1 << 12;

/// Flags in the low half, packet type in the high one, by index.
pub(in crate::eth) struct Descriptions([u64; INDICES]);

impl Descriptions {
    /// The table for these features; all queues with the same ones share it.
    pub(in crate::eth) fn of(features: RxFeatures) -> Arc<Self> {
        static KNOWN: LazyLock<Mutex<HashMap<u32, Arc<Descriptions>>>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = features & (RxFeatures::PACKET_TYPE | RxFeatures::CHECKSUM | RxFeatures::VLAN_STRIP);
        let make = || Arc::new(Self(std::array::from_fn(|index| entry(kept, index))));
        Arc::clone(known.entry(kept.bits()).or_insert_with(make))
    }

    #[inline(always)]
    pub(in crate::eth) fn get(&self, pkt_info: u8, l4_l3: u8, hds: u8) -> (RxFlags, PacketType) {
        let index = usize::from(pkt_info & 3) << 10 | usize::from(l4_l3) << 2 | usize::from(hds >> 1 & 3);
        let word = self.0[index];
        (RxFlags::from_bits_retain(word as u32), PacketType((word >> 32) as u32))
    }
}

impl std::fmt::Debug for Descriptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Descriptions").finish_non_exhaustive()
    }
}

fn entry(features: RxFeatures, index: usize) -> u64 {
    let (hds, l4_l3, info) = ((index << 1 & 6) as u8, (index >> 2) as u8, (index >> 10) as u8);
    let mut flags = RxFlags::empty();
    if features.contains(RxFeatures::CHECKSUM) {
        flags.set(RxFlags::IP_CHECKSUM_GOOD, hds & status::L3_OK != 0);
        flags.set(RxFlags::L4_CHECKSUM_GOOD, hds & status::L4_OK != 0);
    }
    if features.contains(RxFeatures::VLAN_STRIP) && l4_l3 & packet::VLAN_STRIPPED != 0 {
        flags |= RxFlags::VLAN | RxFlags::VLAN_STRIPPED;
    }
    let kind = if features.contains(RxFeatures::PACKET_TYPE) { packet_type(info, l4_l3) } else { 0 };
    u64::from(kind) << 32 | u64::from(flags.bits())
}

const L2_ETHER: u32 = 0x1;
const L3_IPV4_EXT_UNKNOWN: u32 = 0x90;
const L3_IPV6_EXT_UNKNOWN: u32 = 0xe0;
const INNER_L3_IPV4_EXT_UNKNOWN: u32 = 0x0040_0000;
const INNER_L3_IPV6_EXT_UNKNOWN: u32 = 0x0060_0000;
/// The inner layer 4 has the numbers of the outer one, so far up.
const INNER_L4_SHIFT: u32 = 16;

fn packet_type(info: u8, l4_l3: u8) -> u32 {
    const TCP: u32 = 0x100;
    const UDP: u32 = 0x200;
    const FRAGMENT: u32 = 0x300;
    const NO_FRAGMENT: u32 = 0x600;
    let l3 = l4_l3 >> packet::L3_SHIFT & 3;
    let l4 = if l3 == 0 || l3 == 3 {
        0
    } else if l4_l3 & packet::IP_FRAGMENT != 0 {
        FRAGMENT
    } else {
        match l4_l3 >> packet::L4_SHIFT & 7 {
            1 | 3 | 4 => TCP,
            2 => UDP,
            _ => NO_FRAGMENT,
        }
    };
    if info & packet::TUNNELED == 0 {
        let l3 = match l3 {
            1 => L3_IPV6_EXT_UNKNOWN,
            2 => L3_IPV4_EXT_UNKNOWN,
            _ => 0,
        };
        return L2_ETHER | l3 | l4;
    }
    let outer = if info & packet::OUTER_IPV6 != 0 { L3_IPV6_EXT_UNKNOWN } else { L3_IPV4_EXT_UNKNOWN };
    let inner = match l3 {
        1 => INNER_L3_IPV6_EXT_UNKNOWN,
        2 => INNER_L3_IPV4_EXT_UNKNOWN,
        _ => 0,
    };
    L2_ETHER | outer | inner | l4 << INNER_L4_SHIFT
}

/// Flags that are told beside those of the table.
pub(in crate::eth) fn wanted(features: RxFeatures) -> RxFlags {
    let mut flags = RxFlags::empty();
    flags.set(RxFlags::RSS_HASH, features.contains(RxFeatures::RSS_HASH));
    flags.set(RxFlags::FLOW | RxFlags::MARK, features.contains(RxFeatures::MARK));
    flags
}

/// Where a packet's time of arrival stands, and the flag that says so: DPDK's names for them, so that applications find
/// them. Source: DPDK `lib/mbuf/rte_mbuf_dyn.h`.
pub(in crate::eth) fn time_field() -> Option<(Field<u64>, Flag)> {
    let field = Field::register("rte_dynfield_timestamp").ok()?;
    let flag = Flag::register("rte_dynflag_rx_timestamp").ok()?;
    Some((field, flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_flags_as_the_completion_says() {
        let all = RxFeatures::all();
        let table = Descriptions::of(all);
        // A TCP segment with data over IPv4, all right, tag taken off.
        let (flags, kind) = table.get(0, 4 << 4 | 2 << 2 | 1, 7);
        assert_eq!(kind, PacketType(L2_ETHER | 0x90 | 0x100));
        let good = RxFlags::IP_CHECKSUM_GOOD | RxFlags::L4_CHECKSUM_GOOD;
        assert_eq!(flags, good | RxFlags::VLAN | RxFlags::VLAN_STRIPPED);
        // A fragment over IPv6; nothing is right.
        let (flags, kind) = table.get(0, 0x80 | 1 << 2, 1);
        assert_eq!((flags, kind), (RxFlags::empty(), PacketType(L2_ETHER | 0xe0 | 0x300)));
        // UDP over IPv4 in a tunnel over IPv6.
        let (_, kind) = table.get(3, 2 << 4 | 2 << 2, 7);
        assert_eq!(kind, PacketType(L2_ETHER | 0xe0 | 0x0040_0000 | 0x0200_0000));
        // Neither.
        assert_eq!(table.get(0, 0, 1), (RxFlags::empty(), PacketType(L2_ETHER)));
        // Codes that do not exist.
        assert_eq!(table.get(0, 3 << 2 | 7 << 4, 0).1, PacketType(L2_ETHER));
        // What is off is not said.
        let none = Descriptions::of(RxFeatures::empty());
        assert_eq!(none.get(0, 0xff, 7), (RxFlags::empty(), PacketType::UNKNOWN));
    }
}
