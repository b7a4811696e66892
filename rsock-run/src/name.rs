//! Which addresses are meant by those that the kernel has.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// Connections that ended whose addresses are still told: a program may ask after the end.
const ENDED_MAX: usize = 4096;
/// Sockets that are bound and have no connection.
const BOUND_MAX: usize = 4096;

/// The addresses of a connection's socket: its own and its peer's.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Names {
    connections: HashMap<Ends, (Ends, u64)>,
    ended: VecDeque<(Ends, u64)>,
    /// What the own addresses of sockets that connected stand for: the kernel forgets the peer when both directions have ended.
    connected: HashMap<SocketAddr, (SocketAddr, u64)>,
    bound: HashMap<SocketAddr, SocketAddr>,
    order: VecDeque<SocketAddr>,
    next: u64,
}

impl Names {
    /// A connection of the kernel's, which the socket has accepted, stands for another.
    pub(crate) fn accept(&mut self, kernel: Ends, meant: Ends) {
        self.next += 1;
        self.connections.insert(kernel, (meant, self.next));
    }

    /// The same of one that the socket has made.
    pub(crate) fn connect(&mut self, kernel: Ends, meant: Ends) {
        self.accept(kernel, meant);
        self.connected.insert(kernel.0, (meant.0, self.next));
    }

    /// It has ended. What is meant is known a while longer, unless the kernel uses the addresses again.
    pub(crate) fn end(&mut self, kernel: Ends) {
        let Some((_, number)) = self.connections.get(&kernel) else { return };
        self.ended.push_back((kernel, *number));
        if self.ended.len() > ENDED_MAX
            && let Some((oldest, number)) = self.ended.pop_front()
        {
            if self.connections.get(&oldest).is_some_and(|(_, now)| *now == number) {
                self.connections.remove(&oldest);
            }
            if self.connected.get(&oldest.0).is_some_and(|(_, now)| *now == number) {
                self.connected.remove(&oldest.0);
            }
        }
    }

    /// What a connection stands for.
    pub(crate) fn connection(&self, kernel: Ends) -> Option<Ends> {
        self.connections.get(&kernel).map(|(meant, _)| *meant)
    }

    /// What a socket without a peer stands for: bound, or ended.
    pub(crate) fn own(&self, kernel: SocketAddr) -> Option<SocketAddr> {
        self.bound(kernel).or_else(|| self.connected.get(&kernel).map(|(meant, _)| *meant))
    }

    /// A socket is bound to one address and means another.
    pub(crate) fn bind(&mut self, kernel: SocketAddr, meant: SocketAddr) {
        if self.bound.insert(kernel, meant).is_none() {
            self.order.push_back(kernel);
        }
        if self.order.len() > BOUND_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.bound.remove(&oldest);
        }
    }

    /// Another socket may be bound to it, and mean it.
    pub(crate) fn unbind(&mut self, kernel: SocketAddr) {
        self.connected.remove(&kernel);
        if self.bound.remove(&kernel).is_some() {
            self.order.retain(|other| *other != kernel);
        }
    }

    /// What a socket that is bound there means.
    pub(crate) fn bound(&self, kernel: SocketAddr) -> Option<SocketAddr> {
        self.bound.get(&kernel).copied()
    }
}
