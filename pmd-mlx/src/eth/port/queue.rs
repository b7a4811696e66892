//! A queue's objects on the device, shared by the port and by the queue's data half: whichever lets go first, the device
//! stops before memory does.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::MlxError;
use crate::context::Device;
use crate::eth::parts::Hold;
use crate::object::{Backend, NumberedObject, Object, QueueState, SendQueue};

/// What a queue is made of, receive or send.
pub(crate) trait Queue: Clone + Send + fmt::Debug + 'static {
    /// Takes it from a state to another.
    fn modify(&self, backend: &dyn Backend, from: QueueState, to: QueueState) -> Result<(), MlxError>;
}

impl Queue for NumberedObject {
    fn modify(&self, backend: &dyn Backend, from: QueueState, to: QueueState) -> Result<(), MlxError> {
        backend.modify_rq(self, from, to)
    }
}

impl Queue for SendQueue {
    fn modify(&self, backend: &dyn Backend, from: QueueState, to: QueueState) -> Result<(), MlxError> {
        backend.modify_sq(self, from, to)
    }
}

#[derive(Debug)]
struct Inside<Q> {
    queue: Option<Q>,
    state: QueueState,
}

/// A queue of the device.
#[derive(Debug)]
pub(crate) struct DeviceQueue<Q> {
    device: Arc<Device>,
    backend: Arc<dyn Backend>,
    inside: Mutex<Inside<Q>>,
    /// Its doorbell pages, dropped after it.
    _pages: Vec<Object>,
}

impl<Q: Queue> DeviceQueue<Q> {
    /// Takes charge of a queue in state [`QueueState::Reset`].
    pub(crate) fn new(
        device: &Arc<Device>,
        backend: &Arc<dyn Backend>,
        queue: Q,
        pages: Vec<Object>,
    ) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            backend: Arc::clone(backend),
            inside: Mutex::new(Inside { queue: Some(queue), state: QueueState::Reset }),
            _pages: pages,
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside<Q>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, unless it was destroyed.
    pub(crate) fn get(&self) -> Option<Q> {
        self.inside().queue.clone()
    }

    /// Takes it to a state; nothing happens when it is there, or was destroyed.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn go(&self, to: QueueState) -> Result<(), MlxError> {
        let mut inside = self.inside();
        let from = inside.state;
        let Some(queue) = inside.queue.as_ref().filter(|_| from != to) else { return Ok(()) };
        queue.modify(&*self.backend, from, to)?;
        inside.state = to;
        Ok(())
    }

    /// Destroys it, when the last rule and table over it are gone.
    pub(crate) fn destroy(&self) {
        drop(self.inside().queue.take());
    }

    /// The data half's hold on it.
    pub(crate) fn hold(self: &Arc<Self>) -> Box<dyn Hold> {
        Box::new(Held(Arc::clone(self)))
    }
}

#[derive(Debug)]
struct Held<Q>(Arc<DeviceQueue<Q>>);

impl<Q: Queue> Hold for Held<Q> {
    /// In state RESET the device reaches neither ring nor buffers; the object itself stays with the port, for tables and
    /// rules stand on it.
    fn end(self: Box<Self>, remains: Box<dyn Send>) {
        let queue = &self.0;
        let ended =
            if queue.device.is_gone() { Err(None) } else { queue.go(QueueState::Reset).map_err(Some) };
        match ended {
            Ok(()) => drop(remains),
            Err(error) => {
                if let Some(error) = error.filter(|error| !error.says_gone()) {
                    tracing::error!(target: "pmd.net.mlx5", "{}: its buffers stay with the device: {error}", queue.device.name());
                }
                queue.device.keep(remains);
            }
        }
    }
}
