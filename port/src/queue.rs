//! The queue values that an lcore owns: [`RxQueue`] and [`TxQueue`].
mod callback;
mod hook;

use crate::burst::{InBurst, QueueOwner};
use crate::capture::QueueTaps;
use crate::driver::{Moved, RxBurst, RxDescriptor, TxBurst, TxDescriptor};
use crate::gate::Passage;
use crate::prepare::TxRules;
use crate::{BadPacket, Gate, PortError, PortId, QueueId, RxCounters, TxCounters};
pub use callback::{CallbackId, RxCallback, TxCallback};
use hook::Hooks;
use pollux_mempool::{Burst, Mbuf};
use std::fmt;
use std::sync::Arc;

/// What both kinds of queue carry beside the driver's half.
pub(crate) struct QueueParts<C> {
    pub(crate) gate: Gate,
    pub(crate) counters: Arc<C>,
    pub(crate) port: PortId,
    pub(crate) port_name: Arc<str>,
    pub(crate) queue: QueueId,
    /// For tx queues.
    pub(crate) rules: TxRules,
    /// At a port of a registry; they move to the queue's hooks.
    pub(crate) taps: Option<QueueTaps>,
    // Last, so that it lets go only when all else is dropped; see `Queue`.
    pub(crate) owner: QueueOwner,
}

/// What differs between the two kinds of queue. [`Rx`] and [`Tx`] are all there are.
pub trait Way: way::Sealed {}

/// From the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rx {}

/// To the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tx {}

impl Way for Rx {}
impl Way for Tx {}

mod way {
    use super::{PortError, Rx, RxBurst, RxCallback, RxCounters, RxDescriptor};
    use super::{Tx, TxBurst, TxCallback, TxCounters, TxDescriptor};

    /// Where the drivers' two traits say the same under two names.
    pub trait Sealed {
        const NAME: &'static str;
        type Driver: ?Sized;
        type Counters;
        type Callback;
        type Descriptor;
        fn resume(driver: &mut Self::Driver);
        fn mode(driver: &Self::Driver) -> &'static str;
        fn queue_count(driver: &Self::Driver) -> Result<usize, PortError>;
        fn descriptor_status(driver: &Self::Driver, offset: usize) -> Result<Self::Descriptor, PortError>;
    }

    macro_rules! way {
        ($way:ty, $name:literal, $driver:ident, $counters:ty, $callback:ty, $descriptor:ty) => {
            impl Sealed for $way {
                const NAME: &'static str = $name;
                type Driver = dyn $driver;
                type Counters = $counters;
                type Callback = $callback;
                type Descriptor = $descriptor;

                fn resume(driver: &mut Self::Driver) {
                    driver.resume();
                }

                fn mode(driver: &Self::Driver) -> &'static str {
                    driver.mode()
                }

                fn queue_count(driver: &Self::Driver) -> Result<usize, PortError> {
                    driver.queue_count()
                }

                fn descriptor_status(driver: &Self::Driver, offset: usize) -> Result<$descriptor, PortError> {
                    driver.descriptor_status(offset)
                }
            }
        };
    }
    way!(Rx, "RxQueue", RxBurst, RxCounters, RxCallback, RxDescriptor);
    way!(Tx, "TxQueue", TxBurst, TxCounters, TxCallback, TxDescriptor);
}

/// An rx queue of a port. It is moved to the lcore that polls it; `&mut` guarantees exclusive access.
///
/// It outlives stop and start of the port; while the port is stopped or gone, bursts bring nothing.
pub type RxQueue = Queue<Rx>;

/// A tx queue of a port. It is moved to the lcore that polls it; `&mut` guarantees exclusive access.
///
/// It outlives stop and start of the port; while the port is stopped or gone, bursts take nothing.
pub type TxQueue = Queue<Tx>;

/// A queue, either an [`RxQueue`] or a [`TxQueue`].
pub struct Queue<W: Way> {
    driver: Box<W::Driver>,
    known: u64,
    hooks: Hooks<W::Callback>,
    // After `driver`: fields drop in order.
    parts: QueueParts<W::Counters>,
}

impl<W: Way> Queue<W> {
    pub(crate) fn new(driver: Box<W::Driver>, mut parts: QueueParts<W::Counters>) -> Self {
        let hooks = Hooks::new(parts.taps.take());
        Self { driver, known: Gate::NEVER, hooks, parts }
    }

    /// Nothing of another queue can stand in the cache lines that the driver's half writes to.
    #[cfg(feature = "conformance")]
    pub(crate) fn has_own_lines(&self) -> bool {
        let driver = &*self.driver;
        size_of_val(driver) == 0 || align_of_val(driver) >= align_of::<crossbeam_utils::CachePadded<u8>>()
    }

    /// Runs `work` if the gate is open, and lets the control handle know for how long: [`Port::stop`](crate::Port::stop)
    /// waits for it. Two plain stores, one load.
    #[inline(always)]
    fn at_work<T>(
        &mut self,
        otherwise: T,
        work: impl FnOnce(&InBurst<'_>, &mut W::Driver, &mut Hooks<W::Callback>) -> T,
    ) -> T {
        let Self { driver, known, hooks, parts } = self;
        // First the word that says "at work", then the look at the gate; `Port::stop` does the opposite.
        let inside = parts.owner.enter();
        if !parts.gate.is(*known) && !Self::wake(driver, &parts.gate, known, hooks) {
            return otherwise;
        }
        work(&inside, driver, hooks)
    }

    #[cold]
    fn wake(driver: &mut W::Driver, gate: &Gate, known: &mut u64, hooks: &mut Hooks<W::Callback>) -> bool {
        match gate.pass(|| hooks.look()) {
            Passage::Shut => false,
            Passage::Opened(word) => {
                if !Gate::same_opening(word, *known) {
                    W::resume(driver);
                }
                *known = word;
                true
            }
        }
    }

    /// Removes a callback; returns false if there is no such callback.
    pub fn remove_callback(&mut self, id: CallbackId) -> bool {
        self.hooks.remove(id)
    }

    /// Returns the port ID.
    #[must_use]
    pub fn port(&self) -> PortId {
        self.parts.port
    }

    /// Returns the port name.
    #[must_use]
    pub fn port_name(&self) -> &str {
        &self.parts.port_name
    }

    /// Returns the queue ID.
    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.parts.queue
    }

    /// Returns the queue's counters.
    #[must_use]
    pub fn counters(&self) -> &W::Counters {
        &self.parts.counters
    }

    /// Returns whether the device was removed; bursts move no packets any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.parts.gate.is_gone()
    }

    /// Returns the name of the driver's rx or tx burst function in use.
    #[must_use]
    pub fn burst_mode(&self) -> &'static str {
        W::mode(&self.driver)
    }

    /// Returns the number of used descriptors: packets that wait in the queue.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    #[doc(alias = "rte_eth_rx_queue_count")]
    pub fn queue_count(&self) -> Result<usize, PortError> {
        W::queue_count(&self.driver).map_err(|error| error.named(&self.parts.port_name))
    }

    /// Returns the state of the descriptor `offset` entries after the next one to receive or to fill.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    #[doc(alias = "rte_eth_rx_descriptor_status")]
    #[doc(alias = "rte_eth_tx_descriptor_status")]
    pub fn descriptor_status(&self, offset: usize) -> Result<W::Descriptor, PortError> {
        W::descriptor_status(&self.driver, offset).map_err(|error| error.named(&self.parts.port_name))
    }
}

impl RxQueue {
    /// Receives up to `max` mbufs, appends them to `burst` as far as there is room, and returns their number.
    ///
    /// Hot: one load, two stores, one dynamic call and the driver's work; neither allocates nor locks.
    #[inline]
    #[doc(alias = "rte_eth_rx_burst")]
    pub fn rx_burst(&mut self, burst: &mut Burst, max: usize) -> usize {
        self.at_work(0, |inside, driver, hooks| {
            let before = burst.len();
            let max = max.min(burst.remaining_capacity());
            let Moved { packets, bytes } = driver.rx_burst(inside, burst, max);
            debug_assert_eq!(burst.len(), before + packets, "the driver says what it appended");
            if packets == 0 {
                return 0;
            }
            inside.count(packets, bytes);
            if hooks.any() { hooks.after_rx(burst, before) } else { packets }
        })
    }

    /// Takes buffers out of `spare` to receive into, before it asks its pool: those that [`TxQueue::recycle`] put there,
    /// on the same lcore. How many were taken; the rest (another pool's, shared ones, more than there is room for) stays.
    ///
    /// While the port is stopped none is taken.
    ///
    /// # Errors
    /// [`PortError::Unsupported`], with the reason.
    ///
    /// ```
    /// use pollux_mempool::Burst;
    /// use pollux_port::{PortError, RxQueue, TxQueue};
    ///
    /// /// Sends on what was received; what was sent is received into again, past the pool.
    /// fn round(rx: &mut RxQueue, tx: &mut TxQueue, burst: &mut Burst) -> Result<usize, PortError> {
    ///     let mut spare = Burst::new();
    ///     tx.recycle(&mut spare)?;
    ///     rx.refill(&mut spare)?;
    ///     // What `rx` did not take goes home here.
    ///     drop(spare);
    ///     rx.rx_burst(burst, 32);
    ///     Ok(tx.tx_burst(burst))
    /// }
    /// ```
    #[inline]
    pub fn refill(&mut self, spare: &mut Burst) -> Result<usize, PortError> {
        let taken = self.at_work(Ok(0), |inside, driver, _| driver.refill(inside, spare));
        taken.map_err(|error| error.named(&self.parts.port_name))
    }

    /// Adds a callback that runs after each non-empty burst, after those added earlier.
    ///
    /// Packets are counted before the callbacks run, so one that drops some does not change the port's statistics.
    pub fn add_callback(&mut self, callback: RxCallback) -> CallbackId {
        self.hooks.add(callback)
    }

    pub(crate) fn driver(&self) -> &dyn RxBurst {
        &*self.driver
    }

    pub(crate) fn driver_mut(&mut self) -> &mut dyn RxBurst {
        &mut *self.driver
    }
}

impl TxQueue {
    /// Sends mbufs from the front of `burst` and returns how many were taken. The rest stays in `burst`, in order.
    ///
    /// Hot: one load, two stores, one dynamic call and the driver's work; neither allocates nor locks.
    #[inline]
    #[doc(alias = "rte_eth_tx_burst")]
    pub fn tx_burst(&mut self, burst: &mut Burst) -> usize {
        self.at_work(0, |inside, driver, hooks| {
            if hooks.any() {
                let (taken, Moved { packets, bytes }) = hooks.around_tx(inside, driver, burst);
                inside.count(packets, bytes);
                return taken;
            }
            let before = burst.len();
            let Moved { packets, bytes } = driver.tx_burst(inside, burst);
            inside.count(packets, bytes);
            before - burst.len()
        })
    }

    /// Appends to `spare`, as far as there is room, buffers of packets that are sent, which would have gone home to their
    /// pools: for [`RxQueue::refill`]. What is in them means nothing. How many.
    ///
    /// From the first call on the queue keeps what it has sent until it is fetched; what it has no room to keep goes home,
    /// and [`TxQueue::done_cleanup`] sends home the rest.
    ///
    /// # Errors
    /// [`PortError::Unsupported`], with the reason.
    #[inline]
    pub fn recycle(&mut self, spare: &mut Burst) -> Result<usize, PortError> {
        let given = self.at_work(Ok(0), |inside, driver, _| driver.recycle(inside, spare));
        given.map_err(|error| error.named(&self.parts.port_name))
    }

    /// Checks packets before they are sent and makes them ready: what they ask for is set up and goes together, lengths of
    /// headers make sense, the sums of pseudo-headers are written where the port counts on them. Neither sends nor drops.
    ///
    /// Hot: a look at the flags of a packet that asks for nothing, some tens of cycles for one that does, and one dynamic
    /// call.
    ///
    /// # Errors
    /// The first packet that cannot be sent as it asks; those before it are ready.
    #[doc(alias = "rte_eth_tx_prepare")]
    pub fn tx_prepare(&mut self, mbufs: &mut [Mbuf]) -> Result<(), BadPacket> {
        self.parts.rules.prepare(mbufs)?;
        self.driver.prepare(mbufs)
    }

    /// Adds a callback that runs before each burst is sent, after those added earlier. Unsent packets are seen
    /// again with the next.
    pub fn add_callback(&mut self, callback: TxCallback) -> CallbackId {
        self.hooks.add(callback)
    }

    /// Frees up to `max` sent mbufs (0: all) that the driver still holds, and returns their number.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the driver holds none.
    #[doc(alias = "rte_eth_tx_done_cleanup")]
    pub fn done_cleanup(&mut self, max: usize) -> Result<usize, PortError> {
        self.driver.done_cleanup(max).map_err(|error| error.named(&self.parts.port_name))
    }
}

impl<W: Way> fmt::Debug for Queue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &self.parts;
        write!(f, "{}({}/{} {})", W::NAME, parts.port_name, parts.queue, W::mode(&self.driver))
    }
}
