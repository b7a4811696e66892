//! The PCIe ledger of a port in plain numbers, so that apps need not know the model.

use pollux_mlx5_model::ledger::{self, Total};

/// PCIe transfers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Name: `doorbell`, `completion`.
    pub name: &'static str,
    /// Number of transfers.
    pub transfers: u64,
    /// Payload bytes, without PCIe overhead.
    pub bytes: u64,
    /// PCIe packets (TLPs), read requests included.
    pub bus_packets: u64,
}

/// PCIe traffic of a port. See `pollux_mlx5_model::ledger` for what is counted and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLedger {
    /// Network packets sent.
    pub packets_sent: u64,
    /// Network packets received.
    pub packets_received: u64,
    /// Bytes on PCIe to the device, overhead included.
    pub bytes_to_device: u64,
    /// Bytes on PCIe from the device, overhead included.
    pub bytes_from_device: u64,
    /// Transfers by kind, without kinds that did not occur.
    pub crossings: Vec<Crossing>,
}

impl PortLedger {
    /// PCIe maximum payload size assumed by the ledger, in bytes.
    pub const MAX_PAYLOAD: u64 = ledger::MAX_PAYLOAD;

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
