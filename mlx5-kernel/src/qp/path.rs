//! The way to a peer, in the firmware's form and back. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `mlx5_set_path`,
//! `to_rdma_ah_attr`; `include/rdma/ib_verbs.h`, `rdma_calc_flow_label`, `rdma_flow_label_to_udp_sport`.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::qp::context::AddressPath;
use pollux_mlx5_abi::field::mac_value;
use pollux_uverbs::Errno;
use pollux_uverbs::abi::queue_pair::QpDest;

use crate::core::Core;

/// Hops that a packet to a neighbour may make: what Linux's `net.ipv4.ip_default_ttl` says where nobody changed it, which
/// replaces what the program asked for.
const HOPS: u32 = 64;

/// Bits of a flow label.
const LABEL: u32 = 0xf_ffff;

/// The lowest UDP source port of RoCE. Source: Linux `include/rdma/ib_verbs.h`, `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`.
const PORT_MIN: u32 = 0xc000;

/// Rates are counted from here. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `MLX5_STAT_RATE_OFFSET`.
const RATE_OFFSET: u32 = 5;

/// The slowest and the fastest rate that a path may ask for. Source: Linux `include/rdma/ib_verbs.h`, `IB_RATE_2_5_GBPS`,
/// `IB_RATE_800_GBPS`.
const RATES: std::ops::RangeInclusive<u32> = 2..=23;

/// The two ends of a connection, from whose numbers the source port follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) qpn: u32,
    pub(super) peer: u32,
}

/// Writes the way to `dest`; `ends` where the peer's queue pair is known.
pub(super) fn write(
    core: &Core,
    path: &mut [u8; AddressPath::BYTES],
    dest: &QpDest,
    ends: Option<Ends>,
) -> Result<(), Errno> {
    // RoCE has global addresses alone.
    if dest.is_global == 0 {
        return Err(Errno::EINVAL);
    }
    let mac = core.destination(dest.port_num, dest.sgid_index, &dest.dgid)?;
    let label = dest.flow_label & LABEL;
    AddressPath::RMAC.set(path, mac_value(mac));
    if let Some(ends) = ends {
        AddressPath::UDP_SPORT.set(path, source_port(label, ends));
    }
    AddressPath::ETH_PRIO.set(path, u32::from(dest.sl & 7));
    AddressPath::DSCP.set(path, u32::from(dest.traffic_class >> 2));
    AddressPath::SRC_ADDR_INDEX.set(path, dest.sgid_index.into());
    AddressPath::HOP_LIMIT.set(path, HOPS);
    AddressPath::TCLASS.set(path, dest.traffic_class.into());
    AddressPath::FLOW_LABEL.set(path, label);
    AddressPath::RGID_RIP.set(path, dest.dgid);
    AddressPath::STAT_RATE.set(path, rate(core, dest.static_rate)?);
    AddressPath::VHCA_PORT_NUM.set(path, dest.port_num.into());
    Ok(())
}

/// The port that one flow of packets comes from.
fn source_port(label: u32, ends: Ends) -> u32 {
    let label = if label == 0 {
        let mut mixed = u64::from(ends.qpn) * u64::from(ends.peer);
        mixed ^= mixed >> 20;
        mixed ^= mixed >> 40;
        mixed as u32 & LABEL
    } else {
        label
    };
    let low = label & 0x3fff;
    (low ^ label >> 14) | PORT_MIN
}

/// The fastest rate that the device can keep and that is not above the one asked for; 0 is the port's own.
pub(crate) fn rate(core: &Core, wanted: u8) -> Result<u32, Errno> {
    let wanted = u32::from(wanted);
    if wanted == 0 {
        return Ok(0);
    }
    if !RATES.contains(&wanted) {
        return Err(Errno::EINVAL);
    }
    let offered = core.caps.general(GeneralCaps::STAT_RATE_SUPPORT);
    let kept = (*RATES.start()..=wanted).rev().find(|rate| offered >> (rate + RATE_OFFSET) & 1 == 1);
    let rate = kept.unwrap_or(*RATES.start()) + RATE_OFFSET;
    if AddressPath::STAT_RATE.fits(rate) { Ok(rate) } else { Err(Errno::EINVAL) }
}

/// The way that a context has: nothing as long as it has no port.
pub(super) fn read(path: &[u8; AddressPath::BYTES]) -> QpDest {
    if AddressPath::VHCA_PORT_NUM.get(path) == 0 {
        return QpDest::default();
    }
    let rate = AddressPath::STAT_RATE.get(path);
    QpDest {
        dgid: AddressPath::RGID_RIP.get(path),
        flow_label: AddressPath::FLOW_LABEL.get(path),
        sgid_index: AddressPath::SRC_ADDR_INDEX.get(path) as u8,
        hop_limit: AddressPath::HOP_LIMIT.get(path) as u8,
        traffic_class: AddressPath::TCLASS.get(path) as u8,
        // Where InfiniBand has its level; of Ethernet the priority, in which the level was put, is not read back.
        sl: AddressPath::SL.get(path) as u8,
        static_rate: rate.saturating_sub(RATE_OFFSET) as u8,
        is_global: 1,
        port_num: AddressPath::VHCA_PORT_NUM.get(path) as u8,
        ..QpDest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_are_those_of_linux() {
        // By hand from the formulas: a label of one's own, and one of the two numbers.
        assert_eq!(source_port(0x12345, Ends { qpn: 1, peer: 1 }), 0xc000 | (0x2345 ^ 0x4));
        assert_eq!(source_port(0, Ends { qpn: 0x11, peer: 0x12 }), 0xc000 | 0x132);
        for label in [1, 0x3fff, 0x4000, 0xf_ffff] {
            assert!((0xc000..=0xffff).contains(&source_port(label, Ends { qpn: 7, peer: 9 })));
        }
    }
}
