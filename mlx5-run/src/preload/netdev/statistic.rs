//! What the port counts, by the names that Linux's driver gives it.
//!
//! Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_stats.c`, `vport_stats_desc`, `pport_802_3_stats_desc`,
//! `pport_2863_stats_desc`, `vnic_env_stats_dev_oob_desc`; `Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst`.
//! What the model does not count has no name here.

use pollux_mlx5_model::PortCounters;

/// Bytes of a name's place. Source: Linux `include/uapi/linux/ethtool.h`, `ETH_GSTRING_LEN`.
pub(super) const NAME_BYTES: usize = 32;

type Statistic = (&'static str, fn(&PortCounters) -> u64);

/// All of them, in the order in which they are told.
pub(super) const ALL: &[Statistic] = &[
    ("rx_vport_unicast_packets", |port| port.received.unicast.packets),
    ("rx_vport_unicast_bytes", |port| port.received.unicast.bytes),
    ("tx_vport_unicast_packets", |port| port.sent.unicast.packets),
    ("tx_vport_unicast_bytes", |port| port.sent.unicast.bytes),
    ("rx_vport_multicast_packets", |port| port.received.multicast.packets),
    ("rx_vport_multicast_bytes", |port| port.received.multicast.bytes),
    ("tx_vport_multicast_packets", |port| port.sent.multicast.packets),
    ("tx_vport_multicast_bytes", |port| port.sent.multicast.bytes),
    ("rx_vport_broadcast_packets", |port| port.received.broadcast.packets),
    ("rx_vport_broadcast_bytes", |port| port.received.broadcast.bytes),
    ("tx_vport_broadcast_packets", |port| port.sent.broadcast.packets),
    ("tx_vport_broadcast_bytes", |port| port.sent.broadcast.bytes),
    ("tx_packets_phy", |port| port.sent.all().packets),
    ("rx_packets_phy", |port| port.received.all().packets),
    ("tx_bytes_phy", |port| port.sent.all().bytes),
    ("rx_bytes_phy", |port| port.received.all().bytes),
    ("tx_multicast_phy", |port| port.sent.multicast.packets),
    ("tx_broadcast_phy", |port| port.sent.broadcast.packets),
    ("rx_multicast_phy", |port| port.received.multicast.packets),
    ("rx_broadcast_phy", |port| port.received.broadcast.packets),
    ("rx_oversize_pkts_phy", |port| port.too_long),
    ("tx_errors_phy", |port| port.sent_too_long),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_one_counter_each_and_end_with_a_zero() {
        for (at, (name, _)) in ALL.iter().enumerate() {
            assert!(name.len() < NAME_BYTES, "{name}");
            assert!(ALL[..at].iter().all(|(other, _)| other != name), "{name} twice");
        }
    }
}
