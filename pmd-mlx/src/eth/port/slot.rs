//! The queues of a port, as its control half keeps them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::queue::DeviceQueue;
use crate::eth::backend::SendQueue;
use crate::eth::parking::Control;
use crate::eth::rq::Rq;
use crate::eth::sq::Sq;
use pollux_mlx5_common::object::NumberedObject;

/// A queue as the port keeps it: its objects, and the way to its data half.
#[derive(Debug)]
pub(crate) struct Slot<Q, I> {
    pub(crate) number: u16,
    pub(crate) queue: Arc<DeviceQueue<Q>>,
    pub(crate) control: Control<I>,
    /// It stays stopped when the port starts.
    pub(crate) deferred: bool,
    /// It could not be set to work again after an error.
    pub(crate) failed: AtomicBool,
    /// Since when nothing has come back of a send queue, and how much had by then.
    pub(crate) silence: Option<(u32, Duration)>,
}

/// The queues that are set up.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) rx: Vec<Option<Slot<NumberedObject, Rq>>>,
    pub(crate) tx: Vec<Option<Slot<SendQueue, Sq>>>,
}
