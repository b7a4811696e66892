//! A port that an lcore sends to, with a tx queue of its own.

use pollux_kit::forward::Edit;
use pollux_mempool::{Burst, Mbuf};
use pollux_port::{MacAddress, TxQueue};

/// Gathers what a round brings for a port. What the port does not take stays for the next round, up to a burst.
#[derive(Debug)]
pub(crate) struct Output {
    tx: TxQueue,
    addresses: Edit,
    burst: Burst,
    /// Packets that are sent before the round ends.
    size: usize,
}

impl Output {
    /// Packets leave from `source` to `destination`.
    pub(crate) fn new(tx: TxQueue, source: MacAddress, destination: MacAddress, size: usize) -> Self {
        let mut head = [0; 12];
        head[..6].copy_from_slice(&destination.0);
        head[6..].copy_from_slice(&source.0);
        Self { tx, addresses: Edit::Rewrite(head), burst: Burst::new(), size }
    }

    /// Takes all packets of a burst; how many found no room and were dropped.
    #[inline(always)]
    pub(crate) fn take(&mut self, burst: &mut Burst) -> usize {
        self.addresses.apply(burst);
        burst.move_front(burst.len(), &mut self.burst);
        if self.burst.len() >= self.size {
            self.flush();
        }
        if burst.is_empty() { 0 } else { self.take_rest(burst) }
    }

    /// What found no room before the burst was sent.
    #[cold]
    fn take_rest(&mut self, burst: &mut Burst) -> usize {
        burst.move_front(burst.len(), &mut self.burst);
        let dropped = burst.len();
        burst.clear();
        dropped
    }

    /// Takes a packet; whether there was room.
    #[inline(always)]
    pub(crate) fn push(&mut self, mut mbuf: Mbuf) -> bool {
        self.addresses.apply(std::slice::from_mut(&mut mbuf));
        // Full is only what the port did not take before.
        if self.burst.try_push(mbuf).is_err() {
            return false;
        }
        if self.burst.len() >= self.size {
            self.flush();
        }
        true
    }

    /// Sends what was gathered; how many packets the port took.
    #[inline(always)]
    pub(crate) fn flush(&mut self) -> usize {
        if self.burst.is_empty() { 0 } else { self.tx.tx_burst(&mut self.burst) }
    }

    /// Whether the port still has to take some.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        !self.burst.is_empty() && !self.tx.is_gone()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.tx.is_gone()
    }

    /// Drops what is left; how many packets.
    pub(crate) fn give_up(&mut self) -> usize {
        let left = self.burst.len();
        self.burst.clear();
        left
    }
}
