//! The PCIe ledger of a port in plain numbers, so that apps need not know the model.

use pollux_mlx5_model::ledger::{self, Total};

/// What one kind of transfer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Its name: `doorbell`, `completion`.
    pub name: &'static str,
    /// Transfers.
    pub transfers: u64,
    /// Bytes of theirs, without the bus's own.
    pub bytes: u64,
    /// Packets on the bus, requests to read among them.
    pub bus_packets: u64,
}

/// What a port made PCIe carry. See `pollux_mlx5_model::ledger` for what is counted and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLedger {
    /// Network packets sent.
    pub packets_sent: u64,
    /// Network packets received.
    pub packets_received: u64,
    /// Bytes on the bus towards the device, overhead included.
    pub bytes_to_device: u64,
    /// Bytes on the bus towards memory, overhead included.
    pub bytes_from_device: u64,
    /// The transfers of which there were any.
    pub crossings: Vec<Crossing>,
}

impl PortLedger {
    /// Most bytes in one packet on the bus, as the ledger counts.
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
