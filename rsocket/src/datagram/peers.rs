//! What a datagram socket knows of its peers, in bounded memory.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Peers that are known at most. Anybody's UDP packet makes one known, so the least recently used has to make room.
const PEERS_MAX: usize = 4096;

/// How a peer is reached without UDP: an address handle, and the number of its queue pair.
#[derive(Debug)]
pub(crate) struct Route<A> {
    pub(crate) ah: Arc<A>,
    pub(crate) qpn: u32,
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer<A> {
    /// Which of the queue pairs sends to it.
    pub(crate) queue: usize,
    pub(crate) route: Option<Route<A>>,
    /// When it was used last, by the table's own clock.
    used: u64,
}

/// See the module. `A` is an address handle.
#[derive(Debug)]
pub(crate) struct Peers<A> {
    known: HashMap<SocketAddr, Peer<A>>,
    clock: u64,
}

impl<A> Peers<A> {
    pub(crate) fn new() -> Self {
        Self { known: HashMap::new(), clock: 0 }
    }

    /// A peer that is known; it was used now.
    pub(crate) fn get(&mut self, address: SocketAddr) -> Option<&mut Peer<A>> {
        self.clock += 1;
        let peer = self.known.get_mut(&address)?;
        peer.used = self.clock;
        Some(peer)
    }

    /// Adds a peer, in the place of the one that was used least recently where there is no room; first of those to whom no path is known, and
    /// never of `kept`.
    pub(crate) fn add(&mut self, address: SocketAddr, queue: usize, kept: Option<SocketAddr>) {
        if self.known.len() >= PEERS_MAX {
            let others = self.known.iter().filter(|(address, _)| Some(**address) != kept);
            let oldest = others.min_by_key(|(_, peer)| (peer.route.is_some(), peer.used));
            if let Some(address) = oldest.map(|(address, _)| *address) {
                self.known.remove(&address);
            }
        }
        self.clock += 1;
        self.known.insert(address, Peer { queue, route: None, used: self.clock });
    }

    /// Takes the paths of a queue pair that is of no use any more: all its peers, which may know it, and the numbers of those queue pairs
    /// to which there was a path.
    pub(crate) fn take_routes(&mut self, queue: usize) -> Vec<(SocketAddr, Option<u32>)> {
        let of_queue = self.known.iter_mut().filter(|(_, peer)| peer.queue == queue);
        of_queue.map(|(address, peer)| (*address, peer.route.take().map(|route| route.qpn))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: usize) -> SocketAddr {
        let [_, .., high, low] = number.to_be_bytes();
        SocketAddr::from(([127, 0, high, low], 1))
    }

    #[test]
    fn the_least_recently_used_makes_room_and_those_with_a_path_stay() {
        let mut peers = Peers::new();
        (0..PEERS_MAX).for_each(|number| peers.add(at(number), 0, None));
        // The first is connected, the second has a path, the third was used since.
        peers.get(at(1)).expect("known").route = Some(Route { ah: Arc::new(()), qpn: 5 });
        let third = peers.get(at(2)).expect("known").used;
        assert_eq!(third, PEERS_MAX as u64 + 2);
        let more = 2 * PEERS_MAX;
        for number in PEERS_MAX..more {
            peers.add(at(number), 0, Some(at(0)));
            assert_eq!(peers.known.len(), PEERS_MAX);
        }
        assert_eq!([0, 1, 2, 3].map(|number| peers.get(at(number)).is_some()), [true, true, false, false]);
        assert_eq!([more - 1, PEERS_MAX + 2].map(|number| peers.get(at(number)).is_some()), [true; 2]);
    }

    #[test]
    fn paths_of_one_queue_pair_are_taken() {
        let mut peers = Peers::new();
        for (number, queue) in [0, 1, 0, 1].into_iter().enumerate() {
            peers.add(at(number), queue, None);
            if number > 0 {
                peers.get(at(number)).expect("known").route =
                    Some(Route { ah: Arc::new(()), qpn: number as u32 });
            }
        }
        let mut taken = |queue| {
            let mut taken = peers.take_routes(queue);
            taken.sort();
            taken
        };
        assert_eq!(taken(0), [(at(0), None), (at(2), Some(2))]);
        assert_eq!(taken(0), [(at(0), None), (at(2), None)]);
        assert_eq!(taken(1), [(at(1), Some(1)), (at(3), Some(3))]);
    }
}
