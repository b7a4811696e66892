//! What a port tells of itself.

use super::Port;
use crate::{EventCallback, EventCallbackId, PortEvent, PortState};

impl Port {
    /// What happened to the port by itself since the last call, one thing at a time, oldest first: what the driver told, a
    /// change of link, the loss of the device. Callbacks run before it returns.
    pub fn poll_event(&mut self) -> Option<PortEvent> {
        let event = self.next_event()?;
        self.events.call(self.id, event);
        Some(event)
    }

    fn next_event(&mut self) -> Option<PortEvent> {
        if self.state() == PortState::Closed {
            return None;
        }
        if let Some(event) = self.events.take() {
            return Some(event);
        }
        if self.state() == PortState::Gone {
            return (!std::mem::replace(&mut self.events.told_gone, true)).then_some(PortEvent::Removed);
        }
        let link = self.link();
        let before = self.events.last_link.replace(link);
        before.is_some_and(|before| before != link).then_some(PortEvent::Link(link))
    }

    /// Adds a callback for the events found by [`Port::poll_event`], called after those added earlier.
    #[doc(alias = "rte_eth_dev_callback_register")]
    pub fn add_event_callback(&mut self, callback: EventCallback) -> EventCallbackId {
        self.events.add(callback)
    }

    /// Removes a callback; returns false if there is no such callback.
    pub fn remove_event_callback(&mut self, id: EventCallbackId) -> bool {
        self.events.remove(id)
    }
}
