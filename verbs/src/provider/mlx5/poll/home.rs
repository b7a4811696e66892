//! What both halves of a completion queue hold until its last queue pair is gone: its object, and messages to the half that polls.
#![expect(unsafe_code, reason = "looks at the ring from outside of the half that polls")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pollux_mlx5_common::cq::{Cq, View};
use pollux_mlx5_common::object::{Id, Object};
use pollux_uverbs::CqHandle;

use super::target::Target;
use crate::view::{Fill, Gauge};

/// What came and went, for the half that polls.
#[derive(Debug)]
pub(crate) enum Message {
    Came(Target),
    /// Its serial number, and the index in 24 bits before which its completions stand.
    Went(u64, u32),
}

/// What of a completion queue stays until its last queue pair is gone.
#[derive(Debug)]
pub(crate) struct Home {
    object: Object,
    pub(crate) version: AtomicU32,
    messages: Mutex<Vec<Message>>,
    view: Mutex<View>,
    /// What the half that polls left behind.
    left: Mutex<Option<Cq>>,
}

impl Home {
    /// Of a queue that was just made, over the ring that the device writes.
    pub(crate) fn new(object: Object, view: View) -> Self {
        Self {
            object,
            version: AtomicU32::new(0),
            messages: Mutex::default(),
            view: Mutex::new(view),
            left: Mutex::default(),
        }
    }

    pub(crate) fn handle(&self) -> CqHandle {
        match self.object.id() {
            Id::Cq(handle) => handle,
            other => unreachable!("{other:?} is no completion queue"),
        }
    }

    /// Tells the half that polls.
    pub(crate) fn tell(&self, message: Message) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push(message);
        // Release pairs with the Acquire of whoever polls.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Tells the half that polls that one is gone: the device has made its last completion.
    pub(crate) fn tell_gone(&self, serial: u64) {
        // SAFETY: the view is that of the ring which the queue has now, under the lock under which it changes; ring and record
        // are the poller's or were left here, and neither frees them before the home goes.
        let end = unsafe { self.view().end() };
        self.tell(Message::Went(serial, end));
    }

    /// The ring that the device writes, to be changed.
    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_messages(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn leave(&self, cq: Cq) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(cq);
    }
}

impl Gauge for Home {
    fn fill(&self) -> Fill {
        let view = self.view();
        // SAFETY: as in `tell_gone`.
        let used = unsafe { view.waiting() };
        Fill { places: view.entries() - 1, used, posted: 0 }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let destroyed = self.object.destroy_now();
        let left = self.left.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !destroyed {
            // The device may still write to the ring.
            std::mem::forget(left);
        }
    }
}
