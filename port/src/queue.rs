//! The queue values that an lcore owns: [`RxQueue`] and [`TxQueue`].
use crate::driver::{Moved, RxBurst, RxDescriptor, TxBurst, TxDescriptor};
use crate::gate::Passage;
use crate::{Gate, PortError, PortId, QueueId, RxCounters, TxCounters};
use pollux_mempool::Burst;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Names one callback on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallbackId(u64);

/// Runs on an rx queue's lcore after a burst: the burst, and where in it the new mbufs begin.
pub type RxCallback = Box<dyn FnMut(&mut Burst, usize) + Send>;

/// Runs on a tx queue's lcore before a burst is sent.
pub type TxCallback = Box<dyn FnMut(&mut Burst) + Send>;

/// Callbacks in the order in which they were added.
struct Callbacks<F> {
    next: u64,
    list: Vec<(CallbackId, F)>,
}

impl<F> Callbacks<F> {
    fn add(slot: &mut Option<Box<Self>>, callback: F) -> CallbackId {
        let this = slot.get_or_insert_with(|| Box::new(Self { next: 0, list: Vec::new() }));
        let id = CallbackId(this.next);
        this.next += 1;
        this.list.push((id, callback));
        id
    }

    fn remove(slot: &mut Option<Box<Self>>, id: CallbackId) -> bool {
        let Some(this) = slot else { return false };
        let before = this.list.len();
        this.list.retain(|(known, _)| *known != id);
        this.list.len() < before
    }
}

/// Says "in use" to the control handle for as long as it lives.
pub(crate) struct Held(Arc<AtomicBool>);

impl Held {
    /// `None` when another is alive.
    pub(crate) fn take(flag: &Arc<AtomicBool>) -> Option<Self> {
        // Acquire pairs with the Release in `drop`: the next owner sees what the last one counted.
        let free = flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        free.then(|| Self(Arc::clone(flag)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What both kinds of queue carry beside the driver's half.
pub(crate) struct QueueParts<C> {
    pub(crate) gate: Gate,
    pub(crate) counters: Arc<C>,
    pub(crate) port: PortId,
    pub(crate) port_name: Arc<str>,
    pub(crate) queue: QueueId,
    // Last, so that it says "free" only when all else is dropped; see `RxQueue`.
    #[expect(dead_code, reason = "its drop is what it is for")]
    pub(crate) held: Held,
}

/// A port's rx queue: a value that moves to one lcore, where `&mut` is its lock.
///
/// It outlives stop and start of the port; while the port is stopped or gone, bursts bring nothing.
pub struct RxQueue {
    driver: Box<dyn RxBurst>,
    known: u32,
    callbacks: Option<Box<Callbacks<RxCallback>>>,
    // After `driver`: fields drop in order.
    parts: QueueParts<RxCounters>,
}

impl RxQueue {
    pub(crate) fn new(driver: Box<dyn RxBurst>, parts: QueueParts<RxCounters>) -> Self {
        Self { driver, known: Gate::NEVER, callbacks: None, parts }
    }

    /// Appends up to `max` received mbufs to `burst`, as far as there is room; how many.
    ///
    /// Hot: one load, one dynamic call and the driver's work; neither allocates nor locks.
    #[inline]
    pub fn rx_burst(&mut self, burst: &mut Burst, max: usize) -> usize {
        if !self.parts.gate.is(self.known) && !self.wake() {
            return 0;
        }
        let before = burst.len();
        let Moved { packets, bytes } = self.driver.rx_burst(burst, max.min(burst.remaining_capacity()));
        debug_assert_eq!(burst.len(), before + packets, "the driver says what it appended");
        if packets == 0 {
            return 0;
        }
        self.parts.counters.count(packets, bytes);
        match &mut self.callbacks {
            None => packets,
            Some(callbacks) => Self::call(callbacks, burst, before),
        }
    }

    #[cold]
    fn wake(&mut self) -> bool {
        match self.parts.gate.passage() {
            Passage::Shut => false,
            Passage::Opened(word) => {
                self.driver.resume();
                self.known = word;
                true
            }
        }
    }

    #[cold]
    fn call(callbacks: &mut Callbacks<RxCallback>, burst: &mut Burst, before: usize) -> usize {
        for (_, callback) in &mut callbacks.list {
            callback(burst, before);
        }
        burst.len().saturating_sub(before)
    }

    /// Runs `callback` after each burst that brought something, behind those already there.
    ///
    /// Packets are counted before the callbacks run, so one that drops some does not change the port's statistics.
    pub fn add_callback(&mut self, callback: RxCallback) -> CallbackId {
        Callbacks::add(&mut self.callbacks, callback)
    }

    /// Takes a callback off; false when it is not there.
    pub fn remove_callback(&mut self, id: CallbackId) -> bool {
        Callbacks::remove(&mut self.callbacks, id)
    }

    /// The port's number.
    #[must_use]
    pub fn port(&self) -> PortId {
        self.parts.port
    }

    /// The port's name.
    #[must_use]
    pub fn port_name(&self) -> &str {
        &self.parts.port_name
    }

    /// The queue's number.
    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.parts.queue
    }

    /// What the queue counts.
    #[must_use]
    pub fn counters(&self) -> &RxCounters {
        &self.parts.counters
    }

    /// The device has disappeared; no burst will ever bring anything.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.parts.gate.is_gone()
    }

    /// Which of its ways of receiving the driver chose.
    #[must_use]
    pub fn burst_mode(&self) -> &'static str {
        self.driver.mode()
    }

    /// Packets that wait in the queue.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    pub fn queue_count(&self) -> Result<usize, PortError> {
        self.driver.queue_count().map_err(|error| error.named(&self.parts.port_name))
    }

    /// State of the descriptor `offset` places behind the next one to be fetched.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    pub fn descriptor_status(&self, offset: usize) -> Result<RxDescriptor, PortError> {
        self.driver.descriptor_status(offset).map_err(|error| error.named(&self.parts.port_name))
    }
}

impl fmt::Debug for RxQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RxQueue({}/{} {})", self.parts.port_name, self.parts.queue, self.driver.mode())
    }
}

/// A port's tx queue: a value that moves to one lcore, where `&mut` is its lock.
///
/// It outlives stop and start of the port; while the port is stopped or gone, bursts take nothing.
pub struct TxQueue {
    driver: Box<dyn TxBurst>,
    known: u32,
    callbacks: Option<Box<Callbacks<TxCallback>>>,
    parts: QueueParts<TxCounters>,
}

impl TxQueue {
    pub(crate) fn new(driver: Box<dyn TxBurst>, parts: QueueParts<TxCounters>) -> Self {
        Self { driver, known: Gate::NEVER, callbacks: None, parts }
    }

    /// Sends mbufs from the front of `burst`; how many left it. What does not fit stays with the caller, in order.
    ///
    /// Hot: one load, one dynamic call and the driver's work; neither allocates nor locks.
    #[inline]
    pub fn tx_burst(&mut self, burst: &mut Burst) -> usize {
        if !self.parts.gate.is(self.known) && !self.wake() {
            return 0;
        }
        if let Some(callbacks) = &mut self.callbacks {
            Self::call(callbacks, burst);
        }
        let before = burst.len();
        let Moved { packets, bytes } = self.driver.tx_burst(burst);
        self.parts.counters.count(packets, bytes);
        before - burst.len()
    }

    #[cold]
    fn wake(&mut self) -> bool {
        match self.parts.gate.passage() {
            Passage::Shut => false,
            Passage::Opened(word) => {
                self.driver.resume();
                self.known = word;
                true
            }
        }
    }

    #[cold]
    fn call(callbacks: &mut Callbacks<TxCallback>, burst: &mut Burst) {
        for (_, callback) in &mut callbacks.list {
            callback(burst);
        }
    }

    /// Runs `callback` before each burst is sent, behind those already there. What was left of an earlier burst is seen
    /// again with the next.
    pub fn add_callback(&mut self, callback: TxCallback) -> CallbackId {
        Callbacks::add(&mut self.callbacks, callback)
    }

    /// Takes a callback off; false when it is not there.
    pub fn remove_callback(&mut self, id: CallbackId) -> bool {
        Callbacks::remove(&mut self.callbacks, id)
    }

    /// The port's number.
    #[must_use]
    pub fn port(&self) -> PortId {
        self.parts.port
    }

    /// The port's name.
    #[must_use]
    pub fn port_name(&self) -> &str {
        &self.parts.port_name
    }

    /// The queue's number.
    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.parts.queue
    }

    /// What the queue counts.
    #[must_use]
    pub fn counters(&self) -> &TxCounters {
        &self.parts.counters
    }

    /// The device has disappeared; no burst will ever take anything.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.parts.gate.is_gone()
    }

    /// Which of its ways of sending the driver chose.
    #[must_use]
    pub fn burst_mode(&self) -> &'static str {
        self.driver.mode()
    }

    /// Frees up to `max` mbufs that are sent but still held (0: all); how many were freed.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the driver holds none.
    pub fn done_cleanup(&mut self, max: usize) -> Result<usize, PortError> {
        self.driver.done_cleanup(max).map_err(|error| error.named(&self.parts.port_name))
    }

    /// Packets that wait to be sent.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    pub fn queue_count(&self) -> Result<usize, PortError> {
        self.driver.queue_count().map_err(|error| error.named(&self.parts.port_name))
    }

    /// State of the descriptor `offset` places behind the next one to be filled.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    pub fn descriptor_status(&self, offset: usize) -> Result<TxDescriptor, PortError> {
        self.driver.descriptor_status(offset).map_err(|error| error.named(&self.parts.port_name))
    }
}

impl fmt::Debug for TxQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxQueue({}/{} {})", self.parts.port_name, self.parts.queue, self.driver.mode())
    }
}
