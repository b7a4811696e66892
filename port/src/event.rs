//! What happens to a port by itself.
//!
//! ```text
//!   driver, control half --EventSink::post--> queue --Port::poll_event--> callbacks, then the caller
//!                                  link, loss of the device: seen by poll_event itself
//! ```

use crate::{Direction, Link, PortId, QueueId};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// An event of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortEvent {
    /// The link status changed.
    Link(Link),
    /// The device was removed.
    Removed,
    /// The device requires [`Port::reset`](crate::Port::reset); until then no packets move.
    ResetWanted,
    /// The driver found the device in error and is at work on it. Bursts move nothing meanwhile; the application may go on
    /// calling them, but not change the port's configuration.
    Recovering,
    /// Recovery succeeded; the port works as before [`PortEvent::Recovering`].
    Recovered,
    /// Recovery failed; only stop and close are possible.
    RecoveryFailed,
    /// The device started or stopped a queue on its own.
    QueueState {
        /// Rx or tx.
        direction: Direction,
        /// The queue.
        queue: QueueId,
        /// The queue is running.
        running: bool,
    },
    /// This many events were lost, because they were not polled in time.
    Lost(u64),
}

/// Runs on the thread that calls [`Port::poll_event`](crate::Port::poll_event).
pub type EventCallback = Box<dyn FnMut(PortId, PortEvent) + Send>;

/// Identifies an event callback of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventCallbackId(u64);

/// Maximum number of pending events; beyond it the oldest are lost.
const WAITING_MAX: usize = 256;

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<PortEvent>,
    lost: u64,
}

/// Where a driver tells what happened. Cheap to clone; for its control half or a thread of its own, never for bursts: it
/// locks.
#[derive(Clone, Debug, Default)]
pub struct EventSink(Arc<Mutex<Waiting>>);

impl EventSink {
    /// Tells. Link changes and removal need not be told: [`Port::poll_event`](crate::Port::poll_event) sees
    /// them in [`PortDriver::link`](crate::driver::PortDriver::link) and the gate.
    pub fn post(&self, event: PortEvent) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.events.len() == WAITING_MAX {
            waiting.events.pop_front();
            waiting.lost += 1;
        }
        waiting.events.push_back(event);
    }

    fn take(&self) -> Option<PortEvent> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut waiting.lost) {
            0 => waiting.events.pop_front(),
            lost => Some(PortEvent::Lost(lost)),
        }
    }
}

/// What the control handle keeps.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) sink: EventSink,
    pub(crate) last_link: Option<Link>,
    pub(crate) told_gone: bool,
    next: u64,
    callbacks: Vec<(EventCallbackId, EventCallback)>,
}

impl Events {
    pub(crate) fn take(&self) -> Option<PortEvent> {
        self.sink.take()
    }

    pub(crate) fn add(&mut self, callback: EventCallback) -> EventCallbackId {
        let id = EventCallbackId(self.next);
        self.next += 1;
        self.callbacks.push((id, callback));
        id
    }

    pub(crate) fn remove(&mut self, id: EventCallbackId) -> bool {
        let before = self.callbacks.len();
        self.callbacks.retain(|(known, _)| *known != id);
        self.callbacks.len() < before
    }

    pub(crate) fn call(&mut self, port: PortId, event: PortEvent) {
        for (_, callback) in &mut self.callbacks {
            callback(port, event);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({} callbacks)", self.callbacks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_the_oldest_are_lost() {
        let events = Events::default();
        assert_eq!(events.take(), None);
        events.sink.post(PortEvent::Recovering);
        events.sink.clone().post(PortEvent::Recovered);
        assert_eq!(events.take(), Some(PortEvent::Recovering));
        assert_eq!(events.take(), Some(PortEvent::Recovered));
        for _ in 0..WAITING_MAX + 2 {
            events.sink.post(PortEvent::ResetWanted);
        }
        assert_eq!(events.take(), Some(PortEvent::Lost(2)));
        assert_eq!(std::iter::from_fn(|| events.take()).count(), WAITING_MAX);
    }
}
