//! What a port is opened with.

use crate::DeviceArg;

/// One port: a device and how it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// The device.
    pub device: DeviceArg,
    /// Its queues.
    pub queues: QueueSpec,
    /// The largest frame's payload; none: as it is.
    pub mtu: Option<u32>,
    /// Receive all frames, whomever they are for; none: as it is.
    pub promiscuous: Option<bool>,
    /// Frames longer than a buffer arrive in several; none: where the port can do that.
    pub scatter: Option<bool>,
    /// The longest packet joined of several that is received, in bytes; none: as long as the port makes them.
    pub max_lro: Option<u32>,
}

impl PortSpec {
    /// `device` with one queue each way, all else left as it is.
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

/// How many queues a port has, and how deep they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors of each receive queue; 0: the driver's default.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue; 0: the driver's default.
    pub tx_descriptors: u16,
}

impl Default for QueueSpec {
    /// One queue each way, as deep as the driver likes.
    fn default() -> Self {
        Self { rx_queues: 1, tx_queues: 1, rx_descriptors: 0, tx_descriptors: 0 }
    }
}
