//! What a port is opened with.

use crate::DeviceArg;

/// One port: a device and how it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// The device.
    pub device: DeviceArg,
    /// Its queues.
    pub queues: QueueSpec,
    /// The largest frame's payload; none: the driver's own.
    pub mtu: Option<u16>,
    /// Receive all frames, whomever they are for.
    pub promiscuous: bool,
}

impl PortSpec {
    /// `device` with one queue each way and promiscuous, as DPDK's examples open it.
    pub fn new(device: DeviceArg) -> Self {
        Self { device, queues: QueueSpec::default(), mtu: None, promiscuous: true }
    }
}

/// How many queues a port has, and how deep they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors of each receive queue.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue.
    pub tx_descriptors: u16,
}

impl Default for QueueSpec {
    /// One queue each way, 1024 descriptors deep: the depth of DPDK's examples.
    fn default() -> Self {
        Self { rx_queues: 1, tx_queues: 1, rx_descriptors: 1024, tx_descriptors: 1024 }
    }
}
