//! Queues of events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::CmError;
use crate::event::Event;
use crate::id::Id;
use crate::manager::{Manager, Side, either};
use crate::service::PortSpace;

/// How long the manager of this process sleeps at most while it waits for datagrams, which raise no event.
const NAP: Duration = Duration::from_micros(200);

/// A queue of events of the IDs that were made by it. Dropped, it takes what nobody heard of along; IDs outlive it, without events.
#[derive(Debug)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    manager: Manager,
    number: u64,
}

impl EventChannel {
    /// An ID whose events come here.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&self, space: PortSpace) -> Result<Id, CmError> {
        let number = either!(
            self.manager,
            software => Ok(software.create(self.number, space)),
            kernel => kernel.create(self.number, space)
        )?;
        Ok(Id { manager: self.manager.clone(), number })
    }

    /// The next event, if there is one. Nothing waits here. The manager of this process does its work in this call.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next(&self) -> Result<Option<Event>, CmError> {
        let next = either!(
            self.manager,
            software => software.next(self.number),
            kernel => kernel.next(self.number)?
        );
        let hand_out = |number| Id { manager: self.manager.clone(), number };
        Ok(next.map(|occurrence| Event::of(occurrence, hand_out)))
    }

    /// The next event, which is waited for. `None` after so long without one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Event>, CmError> {
        let begin = Instant::now();
        loop {
            if let Some(event) = self.next()? {
                return Ok(Some(event));
            }
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            match &*self.manager.0 {
                Side::Software(software) => {
                    let idle = Side::locked(software).idle();
                    std::thread::sleep(left.min(idle).min(NAP));
                }
                Side::Kernel(kernel) => kernel.wait(self.number, left)?,
            }
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        either!(self.manager, software => software.end_channel(self.number), kernel => kernel.end_channel(self.number));
    }
}

impl Manager {
    /// A queue of events.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn channel(&self) -> Result<EventChannel, CmError> {
        let number = either!(self, software => Ok(software.channel()), kernel => kernel.channel())?;
        Ok(EventChannel { manager: self.clone(), number })
    }
}

impl Id {
    /// Its events go to another channel of the same manager, those that wait as well.
    ///
    /// # Errors
    /// A channel of another manager, or what the kernel says.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, to: &EventChannel) -> Result<(), CmError> {
        if !Arc::ptr_eq(&self.manager.0, &to.manager.0) {
            let why = "the channel is of another manager";
            return Err(CmError::State { what: "move the ID", why });
        }
        either!(
            self.manager,
            software => software.migrate(self.number, to.number),
            kernel => kernel.migrate(self.number, to.number)
        )
    }
}
