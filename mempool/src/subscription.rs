//! Who is told of pools, from when to when.

use std::sync::Arc;

use crate::event::{Callback, PoolEvent, subscribers, tell, telling};
use crate::registry::{living, reclaim_closed};

/// Calls `callback` for each pool that lives now ([`PoolEvent::Created`]), and from then on for each that is made or
/// ends, in order, until the subscription is dropped. It runs on the thread that makes the pool, or that brings the last
/// object of a closed one home.
///
/// When a callback panics, the others are told all the same; then the panic goes on in whoever made the pool, which ends
/// with it, or brought the object home. A callback may free objects. It may not make a pool ([`PoolError::InsideEvent`](crate::PoolError::InsideEvent)).
///
/// # Panics
/// When called from within a callback.
pub fn subscribe(callback: impl Fn(&PoolEvent) + Send + Sync + 'static) -> Subscription {
    assert!(!telling(), "a pool event callback may not subscribe");
    let callback: Callback = Arc::new(callback);
    let mut subscribers = subscribers();
    for info in living() {
        tell(&callback, &PoolEvent::Created(info));
    }
    let id = subscribers.next;
    subscribers.next += 1;
    subscribers.callbacks.push((id, callback));
    drop(subscribers);
    // The callback may have freed objects of closed pools.
    reclaim_closed();
    Subscription(id)
}

/// A hold on [`subscribe`]d events; dropping it ends them. When the drop has returned, no callback runs any more.
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct Subscription(u64);

impl Drop for Subscription {
    fn drop(&mut self) {
        assert!(!telling(), "a pool event callback may not end a subscription");
        let mut subscribers = subscribers();
        let gone = subscribers.callbacks.iter().position(|(id, _)| *id == self.0);
        let gone = gone.map(|at| subscribers.callbacks.remove(at));
        drop(subscribers);
        // What the callback owns may free objects.
        drop(gone);
    }
}
