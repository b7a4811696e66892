//! What stands at a queue beside its driver: callbacks of the application, and captures.

use super::callback::{CallbackId, Callbacks, RxCallback, TxCallback};
use crate::burst::InBurst;
use crate::capture::QueueTaps;
use crate::driver::{Moved, TxBurst};
use pollux_mempool::Burst;

pub(super) struct Hooks<F> {
    /// Whether there is any. A burst looks at nothing else.
    any: bool,
    callbacks: Option<Box<Callbacks<F>>>,
    taps: Option<QueueTaps>,
}

impl<F> Hooks<F> {
    pub(super) fn new(taps: Option<QueueTaps>) -> Self {
        Self { any: false, callbacks: None, taps }
    }

    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.any
    }

    pub(super) fn add(&mut self, callback: F) -> CallbackId {
        let id = Callbacks::add(&mut self.callbacks, callback);
        self.see();
        id
    }

    pub(super) fn remove(&mut self, id: CallbackId) -> bool {
        let removed = Callbacks::remove(&mut self.callbacks, id);
        self.see();
        removed
    }

    /// Looks for a change of the captures.
    pub(super) fn look(&mut self) {
        if let Some(taps) = &mut self.taps {
            taps.look();
        }
        self.see();
    }

    fn see(&mut self) {
        self.any = self.callbacks.as_ref().is_some_and(|callbacks| !callbacks.is_empty())
            || self.taps.as_ref().is_some_and(QueueTaps::any);
    }
}

impl Hooks<RxCallback> {
    /// How many mbufs are left behind place `first`.
    #[cold]
    pub(super) fn after_rx(&mut self, burst: &mut Burst, first: usize) -> usize {
        if let Some(taps) = &self.taps {
            taps.received(&burst[first..]);
        }
        match &mut self.callbacks {
            Some(callbacks) => callbacks.after_rx(burst, first),
            None => burst.len().saturating_sub(first),
        }
    }
}

impl Hooks<TxCallback> {
    /// Sends a burst; how many mbufs it took, and what the driver says.
    #[cold]
    pub(super) fn around_tx(
        &mut self,
        inside: &InBurst<'_>,
        driver: &mut dyn TxBurst,
        burst: &mut Burst,
    ) -> (usize, Moved) {
        if let Some(callbacks) = &mut self.callbacks {
            callbacks.before_tx(burst);
        }
        let before = burst.len();
        let captured = self.taps.as_ref().map(|taps| taps.sending(burst));
        let moved = driver.tx_burst(inside, burst);
        let taken = before - burst.len();
        captured.into_iter().flatten().flatten().for_each(|reserved| reserved.commit(taken));
        (taken, moved)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_queue_whose_last_callback_was_removed_has_none() {
        let mut hooks: Hooks<TxCallback> = Hooks::new(None);
        let (first, second) = (hooks.add(Box::new(|_| {})), hooks.add(Box::new(|_| {})));
        assert!(hooks.remove(first) && !hooks.remove(first) && hooks.any());
        assert!(hooks.remove(second) && !hooks.any());
        let third = hooks.add(Box::new(|_| {}));
        assert!(hooks.any() && ![first, second].contains(&third), "numbers are not used again");
    }
}
