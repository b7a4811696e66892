//! The PCIe ledger of a port in plain numbers, so that apps need not know the model.

use pollux_mlx5_model::ledger::{self, Total};
use serde::{Serialize, Serializer};

/// PCIe transfers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Crossing {
    /// Name: `doorbell`, `completion`.
    #[serde(skip)]
    pub name: &'static str,
    /// Number of transfers.
    pub transfers: u64,
    /// Payload bytes, without PCIe overhead.
    pub bytes: u64,
    /// PCIe packets (TLPs), read requests included.
    #[serde(rename = "tlps")]
    pub bus_packets: u64,
}

/// PCIe traffic of a port. See `pollux_mlx5_model::ledger` for what is counted and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortLedger {
    /// Network packets sent.
    #[serde(rename = "tx_packets")]
    pub packets_sent: u64,
    /// Network packets received.
    #[serde(rename = "rx_packets")]
    pub packets_received: u64,
    /// Bytes on PCIe to the device, overhead included.
    pub bytes_to_device: u64,
    /// Bytes on PCIe from the device, overhead included.
    pub bytes_from_device: u64,
    /// Transfers by kind, without kinds that did not occur.
    #[serde(serialize_with = "by_kind")]
    pub crossings: Vec<Crossing>,
}

fn by_kind<S: Serializer>(crossings: &[Crossing], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(crossings.iter().map(|crossing| (crossing.name, crossing)))
}

impl PortLedger {
    /// PCIe maximum payload size assumed by the ledger, in bytes.
    pub const MAX_PAYLOAD: u64 = ledger::MAX_PAYLOAD;

    /// What crossed since `earlier`, an earlier reading of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let crossings = self.crossings.iter().map(|now| {
            let before = earlier.crossings.iter().find(|before| before.name == now.name);
            let less = |of: fn(&Crossing) -> u64| of(now).saturating_sub(before.map_or(0, of));
            Crossing {
                name: now.name,
                transfers: less(|one| one.transfers),
                bytes: less(|one| one.bytes),
                bus_packets: less(|one| one.bus_packets),
            }
        });
        Self {
            packets_sent: self.packets_sent.saturating_sub(earlier.packets_sent),
            packets_received: self.packets_received.saturating_sub(earlier.packets_received),
            bytes_to_device: self.bytes_to_device.saturating_sub(earlier.bytes_to_device),
            bytes_from_device: self.bytes_from_device.saturating_sub(earlier.bytes_from_device),
            crossings: crossings.collect(),
        }
    }

    pub(crate) fn new(total: &Total) -> Self {
        let crossings = ledger::Crossing::ALL.iter().map(|&crossing| {
            let tally = total.of(crossing);
            Crossing {
                name: crossing.name(),
                transfers: tally.transfers,
                bytes: tally.bytes,
                bus_packets: tally.packets(),
            }
        });
        Self {
            packets_sent: total.packets_sent,
            packets_received: total.packets_received,
            bytes_to_device: total.bytes_to_device(),
            bytes_from_device: total.bytes_from_device(),
            crossings: crossings.filter(|crossing| crossing.transfers > 0).collect(),
        }
    }
}
