//! What an interface receives beside frames to its own address, for as long as somebody asks.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::interface::Interface;
use crate::{FrameError, sys};

/// Asks an interface to receive frames for everybody, or for all groups. Ends with the value, whatever way the process ends.
#[derive(Debug)]
pub struct Modes {
    /// A packet socket, on whose memberships the kernel counts.
    socket: OwnedFd,
    interface: u32,
    promiscuous: bool,
    allmulti: bool,
}

impl Modes {
    /// For an interface of the calling thread's network namespace; nothing is asked for yet.
    ///
    /// # Errors
    /// [`FrameError::Permission`] without `CAP_NET_RAW`.
    pub fn new(interface: &Interface) -> Result<Self, FrameError> {
        // Protocol 0: it receives nothing.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(|source| {
            FrameError::refused("opening a packet socket", interface.found_as(), "CAP_NET_RAW", source)
        })?;
        Ok(Self::over(socket, interface))
    }

    /// The same by a packet socket that there is.
    pub(crate) fn over(socket: OwnedFd, interface: &Interface) -> Self {
        Self { socket, interface: interface.index(), promiscuous: false, allmulti: false }
    }

    /// Receives frames for everybody, or no longer.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` when the interface is gone.
    pub fn set_promiscuous(&mut self, on: bool) -> io::Result<()> {
        if self.promiscuous != on {
            self.membership(libc::PACKET_MR_PROMISC, on)?;
            self.promiscuous = on;
        }
        Ok(())
    }

    /// Receives frames for all groups, or no longer.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` when the interface is gone.
    pub fn set_allmulti(&mut self, on: bool) -> io::Result<()> {
        if self.allmulti != on {
            self.membership(libc::PACKET_MR_ALLMULTI, on)?;
            self.allmulti = on;
        }
        Ok(())
    }

    /// Whether frames for everybody, and whether frames for all groups, were asked for.
    #[must_use]
    pub fn asked(&self) -> (bool, bool) {
        (self.promiscuous, self.allmulti)
    }

    fn membership(&self, kind: i32, on: bool) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: self.interface as i32,
            mr_type: kind as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let option = if on { libc::PACKET_ADD_MEMBERSHIP } else { libc::PACKET_DROP_MEMBERSHIP };
        sys::set_option(self.socket.as_fd(), libc::SOL_PACKET, option, &request)
    }
}
