//! The other half of a port: the interface through which the kernel uses the same function, and which keeps its address,
//! its MTU and its link.
//!
//! The driver takes only the packets that its rules steer to it; everything else stays with the kernel. So address, MTU
//! and link are the interface's, read without rights and set with `CAP_NET_ADMIN`.

mod kernel;

use std::fmt;
use std::io;

use pollux_port::{Link, MacAddress};

pub use kernel::{KernelNetdev, NetdevError};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packets.
    pub packets: u64,
    /// Their bytes, without the frame check sequence.
    pub bytes: u64,
}

/// What is lost in the port itself. The queues know nothing of it: what arrives never reaches them, and what they send
/// completes without error.
///
/// A card counts such frames in its physical port and in its vport (Linux
/// `Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst`, `rx_oversize_pkts_phy`;
/// `drivers/net/ethernet/mellanox/mlx5/core/esw/legacy.c`, `transmit_discard_vport_down`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Frames that arrived and were longer than the MTU allows.
    pub rx_too_long: u64,
    /// Packets of send queues that were sent while the link was down, as far as the device tells.
    pub tx_link_down: Lost,
    /// Packets of send queues that the wire refused. No card has this.
    pub tx_refused: Lost,
}

/// What a port needs of its interface.
///
/// Errors are the system's; the port says what was being done. `Unsupported` is for what there is no way to do.
#[expect(clippy::missing_errors_doc, reason = "every method fails alike: with what the system said")]
pub trait Netdev: Send + Sync + fmt::Debug {
    /// Its name, for messages: `eth0`.
    fn name(&self) -> String;

    /// Its number; `None` when no kernel has an interface there.
    fn index(&self) -> Option<u32> {
        None
    }

    /// Its address.
    fn mac(&self) -> io::Result<MacAddress>;

    /// Changes it.
    fn set_mac(&self, mac: MacAddress) -> io::Result<()> {
        let _ = mac;
        Err(unsupported("its address is fixed"))
    }

    /// Payload bytes of its longest frame.
    fn mtu(&self) -> io::Result<u32>;

    /// Changes that, which also bounds what is received.
    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let _ = mtu;
        Err(unsupported("its MTU is fixed"))
    }

    /// Smallest and largest MTU, where it tells.
    fn mtu_limits(&self) -> Option<(u32, u32)> {
        None
    }

    /// Its link; the speed is `None` where it cannot tell it.
    fn link(&self) -> io::Result<Link>;

    /// Takes the link up or down.
    fn set_up(&self, up: bool) -> io::Result<()> {
        let _ = up;
        Err(unsupported("it has no switch"))
    }

    /// Whether the function is virtual: its addresses and modes are then also to be told to the interface, for the
    /// physical function filters before our rules are asked.
    fn is_virtual_function(&self) -> bool {
        false
    }

    /// Lets frames to every address through to this function.
    fn set_promiscuous(&self, on: bool) -> io::Result<()> {
        let _ = on;
        Ok(())
    }

    /// Lets all multicast frames through to this function.
    fn set_all_multicast(&self, on: bool) -> io::Result<()> {
        let _ = on;
        Ok(())
    }

    /// Lets frames to a further address or group through to this function, or no more. The answer is whether that changed
    /// anything: what the interface has already is not the port's to take away.
    fn set_further_mac(&self, mac: MacAddress, wanted: bool) -> io::Result<bool> {
        let _ = (mac, wanted);
        Ok(false)
    }

    /// What the function counts, by its own names.
    fn counters(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(Vec::new())
    }

    /// What the port lost between the wire and the queues, since the device was there.
    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// Packets for which the receive queues of kernel objects had no buffer, since the device was there.
    fn out_of_buffer(&self) -> Option<u64> {
        None
    }
}

fn unsupported(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}
