//! The interface of a real function.

use std::io;

use pollux_frame_io::FrameError;
use pollux_frame_io::interface::Interface;
use pollux_port::{Link, MacAddr};

use super::Netdev;

/// An interface of the calling process's network namespace.
#[derive(Debug)]
pub struct KernelNetdev {
    interface: Interface,
}

impl KernelNetdev {
    /// Looks it up by name.
    ///
    /// # Errors
    /// [`FrameError::NoInterface`], [`FrameError::Interface`] when it is not Ethernet.
    pub fn find(name: &str) -> Result<Self, FrameError> {
        Ok(Self { interface: Interface::find(name)? })
    }
}

impl Netdev for KernelNetdev {
    fn name(&self) -> String {
        self.interface.state().map_or_else(|_| self.interface.found_as().to_owned(), |state| state.name)
    }

    fn index(&self) -> Option<u32> {
        Some(self.interface.index())
    }

    fn mac(&self) -> io::Result<MacAddr> {
        Ok(self.interface.state()?.mac.into())
    }

    fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        self.interface.set_mac(mac.0)
    }

    fn mtu(&self) -> io::Result<u32> {
        Ok(self.interface.state()?.mtu)
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.interface.set_mtu(mtu)
    }

    fn link(&self) -> io::Result<Link> {
        let up = self.interface.state()?.running;
        Ok(Link { up, ..Link::default() })
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        self.interface.set_up(up)
    }
}
