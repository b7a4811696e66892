//! A queue's objects on the device, shared by the port and by the queue's data half: whichever lets go first, the device
//! stops before memory does.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::eth::backend::{Backend, QueueState, SendQueue};
use crate::eth::parts::Hold;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Device;
use pollux_mlx5_common::object::NumberedObject;

/// What a queue is made of, receive or send.
pub(crate) trait Queue: Clone + Send + fmt::Debug + 'static {
    /// Takes it from a state to another.
    fn modify(&self, backend: &dyn Backend, from: QueueState, to: QueueState) -> Result<(), MlxError>;

    /// Asks in which state it is; `None`: nobody tells this driver.
    fn state(&self, backend: &dyn Backend) -> Result<Option<QueueState>, MlxError>;
}

impl Queue for NumberedObject {
    fn modify(&self, backend: &dyn Backend, from: QueueState, to: QueueState) -> Result<(), MlxError> {
        backend.modify_rq(self, from, to)
    }

    fn state(&self, backend: &dyn Backend) -> Result<Option<QueueState>, MlxError> {
        backend.rq_state(self)
    }
}

impl Queue for SendQueue {
    fn modify(&self, backend: &dyn Backend, from: QueueState, to: QueueState) -> Result<(), MlxError> {
        backend.modify_sq(self, from, to)
    }

    fn state(&self, backend: &dyn Backend) -> Result<Option<QueueState>, MlxError> {
        backend.sq_state(self)
    }
}

#[derive(Debug)]
struct Inside<Q> {
    queue: Option<Q>,
    /// What commands name as its state: what it was taken to last, or what the device said since.
    state: QueueState,
}

impl<Q: Queue> Inside<Q> {
    fn observe(&mut self, backend: &dyn Backend) -> Result<(), MlxError> {
        let Some(queue) = &self.queue else { return Ok(()) };
        self.state = queue.state(backend)?.unwrap_or(self.state);
        Ok(())
    }
}

/// A queue of the device.
#[derive(Debug)]
pub(crate) struct DeviceQueue<Q> {
    device: Arc<Device>,
    backend: Arc<dyn Backend>,
    inside: Mutex<Inside<Q>>,
}

impl<Q: Queue> DeviceQueue<Q> {
    /// Takes charge of a queue in state [`QueueState::Reset`].
    pub(crate) fn new(device: &Arc<Device>, backend: &Arc<dyn Backend>, queue: Q) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            backend: Arc::clone(backend),
            inside: Mutex::new(Inside { queue: Some(queue), state: QueueState::Reset }),
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside<Q>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, unless it was destroyed.
    pub(crate) fn get(&self) -> Option<Q> {
        self.inside().queue.clone()
    }

    /// Asks the device in which state it is, for one that failed did so by itself. Source: Linux
    /// `drivers/net/ethernet/mellanox/mlx5/core/en/reporter_tx.c`, `mlx5e_tx_reporter_err_cqe_recover`.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn observe(&self) -> Result<(), MlxError> {
        self.inside().observe(&*self.backend)
    }

    /// Takes it to a state; nothing happens when it is there, or was destroyed. A queue that was ready and is in another state
    /// by itself goes on from there.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn go(&self, to: QueueState) -> Result<(), MlxError> {
        let mut inside = self.inside();
        let from = inside.state;
        let Some(queue) = inside.queue.clone().filter(|_| from != to) else { return Ok(()) };
        if let Err(refused) = queue.modify(&*self.backend, from, to) {
            // By itself a queue leaves READY alone.
            let asked = if from == QueueState::Ready { queue.state(&*self.backend) } else { Ok(Some(from)) };
            let Ok(told) = asked else { return Err(refused) };
            if told == Some(from) {
                return Err(refused);
            }
            inside.state = told.unwrap_or(from);
            if inside.state != to {
                queue.modify(&*self.backend, inside.state, to)?;
            }
        }
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

impl DeviceQueue<NumberedObject> {
    /// Turns taking VLAN tags out on or off, whatever state the queue is in; nothing happens when it was destroyed.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn set_vlan_strip(&self, on: bool) -> Result<(), MlxError> {
        let mut inside = self.inside();
        inside.observe(&*self.backend)?;
        let Some(rq) = &inside.queue else { return Ok(()) };
        self.backend.set_vlan_strip(rq, inside.state, on)
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
