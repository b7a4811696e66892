//! What a port is opened with.

use crate::DeviceArg;

/// Configuration of one port: its device and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// The device.
    pub device: DeviceArg,
    /// Its queues.
    pub queues: QueueSpec,
    /// MTU in bytes; `None` leaves it unchanged.
    pub mtu: Option<u32>,
    /// Promiscuous mode; `None` leaves it unchanged.
    pub promiscuous: Option<bool>,
    /// Scattered rx: frames longer than one mbuf arrive as a chain; `None`: where the port supports it.
    pub scatter: Option<bool>,
    /// Maximum size of an LRO packet in bytes; `None`: the port's maximum.
    pub max_lro: Option<u32>,
}

impl PortSpec {
    /// Creates a configuration of `device` with one rx and one tx queue, everything else unchanged.
    pub fn new(device: DeviceArg) -> Self {
        Self {
            device,
            queues: QueueSpec::default(),
            mtu: None,
            promiscuous: None,
            scatter: None,
            max_lro: None,
        }
    }
}

/// Numbers of queues and descriptors of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Number of rx queues.
    pub rx_queues: u16,
    /// Number of tx queues.
    pub tx_queues: u16,
    /// Descriptors per rx queue; 0 selects the driver's default.
    pub rx_descriptors: u16,
    /// Descriptors per tx queue; 0 selects the driver's default.
    pub tx_descriptors: u16,
}

impl Default for QueueSpec {
    /// One rx and one tx queue with the driver's default number of descriptors.
    fn default() -> Self {
        Self { rx_queues: 1, tx_queues: 1, rx_descriptors: 0, tx_descriptors: 0 }
    }
}
