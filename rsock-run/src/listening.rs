//! Sockets of the program that listen, and the listeners by RDMA that stand for them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pollux_cm::Manager;
use pollux_rsocket::{RsListener, RsOptions, RsStream};

use crate::kernel;

/// Connections that may wait to be taken up.
const BACKLOG: usize = 1024;

/// Where a socket of the program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    pub(crate) at: SocketAddr,
    /// Of any address of IPv6, it takes connections of IPv4 as well.
    pub(crate) takes_both: bool,
}

impl Socket {
    /// Where on this host a connection to one of our addresses reaches it: at an address of its own family, which another family's port
    /// may be somebody else's.
    fn reached_at(&self, own: IpAddr) -> Option<SocketAddr> {
        let ip: IpAddr = match (self.at.ip(), own.to_canonical()) {
            (at, _) if !at.is_unspecified() => at,
            (IpAddr::V4(_), IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V6(_), IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
            (IpAddr::V6(_), IpAddr::V4(_)) if self.takes_both => Ipv4Addr::LOCALHOST.into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, self.at.port()))
    }
}

/// See the module.
#[derive(Debug)]
struct Listening {
    /// The address that is listened at; any of the devices' if it is unspecified.
    meant: SocketAddr,
    /// Where the program's sockets stand.
    sockets: Vec<Socket>,
    listener: RsListener,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Listening>);

/// A connection by RDMA, and where the program's socket may be that it is for.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: RsStream,
    pub(crate) own: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) sockets: Vec<SocketAddr>,
}

impl Listeners {
    /// Listens at `meant` for a socket.
    pub(crate) fn listen(
        &mut self,
        manager: &Manager,
        socket: Socket,
        meant: SocketAddr,
        options: &RsOptions,
    ) -> io::Result<()> {
        // One of any address is one of both families; who is not for its sockets is closed.
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), meant.port());
        let meant = if meant.ip().is_unspecified() { any } else { meant };
        if let Some(there) = self.0.iter_mut().find(|there| there.meant == meant) {
            there.sockets.retain(|other| other.at != socket.at);
            there.sockets.push(socket);
            return Ok(());
        }
        let listener = RsListener::bind_with(manager, meant, BACKLOG, options)?;
        listener.set_nonblocking(true)?;
        self.0.push(Listening { meant, sockets: vec![socket], listener });
        Ok(())
    }

    /// The program's socket that an address of a device leads to, if it listens there.
    pub(crate) fn find(&self, to: SocketAddr) -> Option<SocketAddr> {
        let is_for = |there: &&Listening| {
            there.meant.port() == to.port()
                && (there.meant.ip() == to.ip() || there.meant.ip().is_unspecified())
        };
        let found = self.0.iter().filter(is_for).min_by_key(|there| there.meant.ip().is_unspecified());
        found.and_then(|there| there.candidates(to.ip()).first().copied())
    }

    /// A connection that came.
    pub(crate) fn accept(&mut self) -> Option<Accepted> {
        self.0.iter().find_map(|there| {
            let (stream, peer) = there.listener.accept().ok()?;
            let own = stream.local_addr().ok()?;
            let sockets = there.candidates(own.ip());
            Some(Accepted { stream, own, peer, sockets })
        })
    }

    /// Ends those that stand for no socket any more. What the sockets' addresses were.
    pub(crate) fn end_unused(&mut self) -> Vec<SocketAddr> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let listened = kernel::listened();
        let mut gone = Vec::new();
        self.0.retain(|there| {
            let is_used = listened.contains(&there.meant.port());
            if !is_used {
                gone.extend(there.sockets.iter().map(|socket| socket.at));
            }
            is_used
        });
        gone
    }

    /// Ends all.
    pub(crate) fn end(&mut self) {
        self.0.clear();
    }
}

impl Listening {
    /// Where a connection to one of our addresses goes on this host: sockets of that address before those of any.
    fn candidates(&self, own: IpAddr) -> Vec<SocketAddr> {
        let mut sockets = self.sockets.clone();
        sockets.sort_by_key(|socket| socket.at.ip().is_unspecified());
        sockets.iter().filter_map(|socket| socket.reached_at(own)).collect()
    }
}
