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
        let link = self.driver.link();
        let before = self.events.last_link.replace(link);
        before.is_some_and(|before| before != link).then_some(PortEvent::Link(link))
    }

    /// Runs `callback` for each event that [`Port::poll_event`] finds, behind those already there.
    #[doc(alias = "rte_eth_dev_callback_register")]
    pub fn add_event_callback(&mut self, callback: EventCallback) -> EventCallbackId {
        self.events.add(callback)
    }

    /// Takes a callback off; false when it is not there.
    pub fn remove_event_callback(&mut self, id: EventCallbackId) -> bool {
        self.events.remove(id)
    }
}
