//! A Linux interface seen from a network namespace: index, address, MTU, up or down.

mod ethtool;
mod feature;
mod netlink;
mod statistics;

pub use ethtool::{FecModes, LinkSettings};
pub(crate) use feature::BLOCKS_MAX;
pub use feature::{FeaturePlaces, Segmenting};
pub(crate) use statistics::STATISTICS_MAX;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::FrameError;
use crate::sys::{self, Carried, InterfaceRequest};

/// What an interface says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// Its name now; renaming does not lose it.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// Able to carry frames: up, and the other end is there.
    pub running: bool,
    /// Payload bytes of the longest frame, without the Ethernet header.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
}

/// A handle on an interface, by index: it stays with the interface when that is renamed, and stays in the network
/// namespace where it was found.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    index: i32,
    /// The name at the time, for messages once it is gone.
    found_as: String,
}

impl Interface {
    /// Looks an Ethernet interface up in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`FrameError::NoInterface`], [`FrameError::Interface`] when it is not Ethernet.
    pub fn find(name: &str) -> Result<Self, FrameError> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
            .map_err(|source| FrameError::system("socket", name, source))?;
        let missing = || FrameError::NoInterface { name: name.into() };
        let mut request = InterfaceRequest::new(name, Carried::Nothing).ok_or_else(missing)?;
        request.call(socket.as_fd(), libc::SIOCGIFINDEX as _).map_err(|_| missing())?;
        let found = Self { socket, index: request.number(), found_as: name.into() };
        let (kind, _) =
            found.address().map_err(|source| FrameError::system("SIOCGIFHWADDR", name, source))?;
        // veth, tap and NICs are ARPHRD_ETHER; the loopback carries Ethernet headers as well.
        if kind != libc::ARPHRD_ETHER && kind != libc::ARPHRD_LOOPBACK {
            return Err(FrameError::Interface {
                name: name.into(),
                problem: format!("link type {kind} is not Ethernet (1)"),
            });
        }
        Ok(found)
    }

    /// A second handle on it.
    ///
    /// # Errors
    /// The kernel's, when the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, index: self.index, found_as: self.found_as.clone() })
    }

    /// Its number in its namespace.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index as u32
    }

    /// The name it had when it was found.
    #[must_use]
    pub fn found_as(&self) -> &str {
        &self.found_as
    }

    pub(crate) fn current_name(&self) -> io::Result<String> {
        let mut named = InterfaceRequest::unnamed(Carried::Number(self.index));
        named.call(self.socket.as_fd(), libc::SIOCGIFNAME as _)?;
        Ok(named.name())
    }

    fn request(&self, carried: Carried) -> io::Result<InterfaceRequest> {
        InterfaceRequest::new(&self.current_name()?, carried).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn get(&self, request: libc::Ioctl) -> io::Result<InterfaceRequest> {
        let mut answer = self.request(Carried::Nothing)?;
        answer.call(self.socket.as_fd(), request)?;
        Ok(answer)
    }

    fn address(&self) -> io::Result<(u16, [u8; 6])> {
        Ok(self.get(libc::SIOCGIFHWADDR as _)?.address())
    }

    /// Reads everything.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` (or `ENXIO`) means that the interface is gone from the namespace.
    pub fn state(&self) -> io::Result<InterfaceState> {
        let flags = self.get(libc::SIOCGIFFLAGS as _)?;
        let has = |flag: i32| i32::from(flags.flags()) & flag != 0;
        Ok(InterfaceState {
            name: flags.name(),
            up: has(libc::IFF_UP),
            running: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
            mtu: self.get(libc::SIOCGIFMTU as _)?.number().max(0) as u32,
            mac: self.address()?.1,
        })
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// The kernel's: outside what the interface can, or not allowed (`CAP_NET_ADMIN`).
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mtu = i32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.request(Carried::Number(mtu))?.call(self.socket.as_fd(), libc::SIOCSIFMTU as _)
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    /// The kernel's: a multicast address, or not allowed (`CAP_NET_ADMIN`).
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        self.request(Carried::Address(mac))?.call(self.socket.as_fd(), libc::SIOCSIFHWADDR as _)
    }

    /// Brings it up or takes it down.
    ///
    /// # Errors
    /// The kernel's; `EPERM` without `CAP_NET_ADMIN`, unless it is so already.
    pub fn set_up(&self, up: bool) -> io::Result<()> {
        let now = i32::from(self.get(libc::SIOCGIFFLAGS as _)?.flags());
        let wanted = if up { now | libc::IFF_UP } else { now & !libc::IFF_UP };
        if wanted == now {
            return Ok(());
        }
        self.request(Carried::Flags(wanted as i16))?.call(self.socket.as_fd(), libc::SIOCSIFFLAGS as _)
    }
}

/// Runs `work` in the network namespace behind `namespace`, on a thread of its own: the caller's does not move.
pub(crate) fn within_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("control-netns".into()).spawn_scoped(scope, move || {
                sys::enter_network_namespace(namespace)?;
                work()
            })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the helper thread panicked")))
    })
}
