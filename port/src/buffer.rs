//! Gathers mbufs until a burst is worth sending.

use crate::TxQueue;
use pollux_mempool::{BURST_MAX, Burst, Mbuf};
use std::fmt;

/// Gets what a flush could not send; what it leaves in the burst is dropped.
pub type TxErrorCallback = Box<dyn FnMut(&mut Burst) + Send>;

/// A buffer in front of a tx queue: mbufs go in one by one and leave as bursts.
///
/// What a full queue does not take is handed to the error callback and then dropped and counted; so nothing stays behind
/// a flush.
pub struct TxBuffer {
    burst: Burst,
    size: usize,
    dropped: u64,
    on_error: Option<TxErrorCallback>,
}

impl TxBuffer {
    /// Sends whenever `size` mbufs are gathered (1 to [`BURST_MAX`]; moved inside that range).
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { burst: Burst::new(), size: size.clamp(1, BURST_MAX), dropped: 0, on_error: None }
    }

    /// Hands what cannot be sent to `callback` first. It may take mbufs out; those are not counted as dropped.
    #[must_use]
    pub fn on_error(mut self, callback: TxErrorCallback) -> Self {
        self.on_error = Some(callback);
        self
    }

    /// Adds one; sends when that makes a full burst. How many were sent.
    #[inline]
    #[doc(alias = "rte_eth_tx_buffer")]
    pub fn buffer(&mut self, queue: &mut TxQueue, mbuf: Mbuf) -> usize {
        self.burst.push(mbuf);
        if self.burst.len() < self.size { 0 } else { self.flush(queue) }
    }

    /// Sends what was gathered; how many. Empty afterwards.
    #[inline]
    #[doc(alias = "rte_eth_tx_buffer_flush")]
    pub fn flush(&mut self, queue: &mut TxQueue) -> usize {
        if self.burst.is_empty() {
            return 0;
        }
        let sent = queue.tx_burst(&mut self.burst);
        if !self.burst.is_empty() {
            self.give_up();
        }
        sent
    }

    #[cold]
    fn give_up(&mut self) {
        if let Some(callback) = &mut self.on_error {
            callback(&mut self.burst);
        }
        self.dropped += self.burst.len() as u64;
        self.burst.clear();
    }

    /// Mbufs that were not sent and dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Mbufs that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.burst.len()
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.burst.is_empty()
    }
}

impl fmt::Debug for TxBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxBuffer({}/{}, {} dropped)", self.burst.len(), self.size, self.dropped)
    }
}
