//! What an application hangs onto a queue.

use pollux_mempool::Burst;

/// Identifies a callback of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallbackId(u64);

/// Runs on an rx queue's lcore after a burst: the burst, and where in it the new mbufs begin.
pub type RxCallback = Box<dyn FnMut(&mut Burst, usize) + Send>;

/// Runs on a tx queue's lcore before a burst is sent.
pub type TxCallback = Box<dyn FnMut(&mut Burst) + Send>;

/// Callbacks in the order in which they were added.
pub(super) struct Callbacks<F> {
    next: u64,
    list: Vec<(CallbackId, F)>,
}

impl<F> Callbacks<F> {
    pub(super) fn add(slot: &mut Option<Box<Self>>, callback: F) -> CallbackId {
        let this = slot.get_or_insert_with(|| Box::new(Self { next: 0, list: Vec::new() }));
        let id = CallbackId(this.next);
        this.next += 1;
        this.list.push((id, callback));
        id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn remove(slot: &mut Option<Box<Self>>, id: CallbackId) -> bool {
        let Some(this) = slot else { return false };
        let before = this.list.len();
        this.list.retain(|(known, _)| *known != id);
        this.list.len() < before
    }
}

impl Callbacks<RxCallback> {
    /// How many mbufs are left behind place `first`.
    #[cold]
    pub(super) fn after_rx(&mut self, burst: &mut Burst, first: usize) -> usize {
        for (_, callback) in &mut self.list {
            callback(burst, first);
        }
        burst.len().saturating_sub(first)
    }
}

impl Callbacks<TxCallback> {
    #[cold]
    pub(super) fn before_tx(&mut self, burst: &mut Burst) {
        for (_, callback) in &mut self.list {
            callback(burst);
        }
    }
}
