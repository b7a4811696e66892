//! Reading a port from another thread than that of its control handle, as telemetry does.
//!
//! ```text
//!   Port (one owner, &mut) ──edit──► Published<Shown> ──copy──┐
//!      └──────lock──────► SharedDriver ◄──lock, or give up──── PortView (Send, Sync, Clone), any thread
//!   RxQueue, TxQueue ──plain stores──► counters ◄──loads──────┘
//! ```
//!
//! Queues know nothing of it: what they count is read as the control handle reads it. Control calls and views take turns
//! at the lock of the driver.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::config::Addresses;
use crate::driver::PortDriver;
use crate::slot::QueueSlot;
use crate::stats::{self, Baseline, Dropped, PortStats, Xstat};
use crate::{
    Direction, Fec, Gate, Link, MacAddress, PortConfig, PortId, PortInfo, PortState, QueueId, RssConfig,
    RxCounters, SpeedFec, TxCounters,
};
use std::borrow::Cow;

/// How long a view waits for a call of the control handle to end.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// What the control handle knows of its port, and shows.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) state: PortState,
    pub(crate) config: PortConfig,
    pub(crate) rx: Vec<QueueSlot<RxCounters>>,
    pub(crate) tx: Vec<QueueSlot<TxCounters>>,
    pub(crate) baseline: Baseline,
    pub(crate) promiscuous: bool,
    pub(crate) all_multicast: bool,
    pub(crate) addresses: Addresses,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            state: PortState::Unconfigured,
            config: PortConfig::default(),
            rx: Vec::new(),
            tx: Vec::new(),
            baseline: Baseline::default(),
            promiscuous: false,
            all_multicast: false,
            addresses: Addresses::default(),
        }
    }
}

impl Shown {
    /// The numbers as they are, in the order of the xstats.
    pub(crate) fn raw_stats(&self, driver: &dyn PortDriver) -> Vec<(Cow<'static, str>, u64)> {
        if self.state != PortState::Closed {
            driver.update_counters();
        }
        let (rx, tx) = (&self.rx, &self.tx);
        stats::raw(
            rx.iter().map(|slot| &*slot.counters),
            tx.iter().map(|slot| &*slot.counters),
            driver.xstats(),
        )
    }

    pub(crate) fn state(&self, gate: &Gate) -> PortState {
        if self.state != PortState::Closed && gate.is_gone() { PortState::Gone } else { self.state }
    }
}

/// A value of one owner, and a copy of it for others, which is made anew after each edit. The copy goes with the owner.
pub(crate) struct Published<T: Clone> {
    value: T,
    copy: Arc<Mutex<Option<T>>>,
}

impl<T: Clone + Default> Published<T> {
    pub(crate) fn new() -> Self {
        Self { value: T::default(), copy: Arc::new(Mutex::new(Some(T::default()))) }
    }
}

impl<T: Clone> Published<T> {
    /// The value, to be changed; published when what is returned is dropped.
    pub(crate) fn edit(&mut self) -> Edit<'_, T> {
        Edit(self)
    }

    fn copy(&self) -> MutexGuard<'_, Option<T>> {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Deref for Published<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Clone> Drop for Published<T> {
    fn drop(&mut self) {
        let gone = self.copy().take();
        // What it holds is dropped with the lock released.
        drop(gone);
    }
}

/// An edit under way.
pub(crate) struct Edit<'a, T: Clone>(&'a mut Published<T>);

impl<T: Clone> Deref for Edit<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Clone> DerefMut for Edit<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

impl<T: Clone> Drop for Edit<'_, T> {
    fn drop(&mut self) {
        let before = self.0.copy().replace(self.0.value.clone());
        drop(before);
    }
}

/// A driver's control half. It goes with the port, whatever views there are.
#[derive(Clone)]
pub(crate) struct SharedDriver(Arc<Mutex<Option<Box<dyn PortDriver>>>>);

impl SharedDriver {
    pub(crate) fn new(driver: Box<dyn PortDriver>) -> Self {
        Self(Arc::new(Mutex::new(Some(driver))))
    }

    /// For the port, which has it as long as it lives.
    pub(crate) fn lock(&self) -> DriverGuard<'_> {
        DriverGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// For views. `None`: the port is gone, or a call of its control handle does not end.
    fn lock_for_a_while(&self) -> Option<DriverGuard<'_>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let guard = match self.0.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    std::thread::sleep(LOOK);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return None,
            };
            return guard.is_some().then_some(DriverGuard(guard));
        }
    }

    /// Drops the driver; a view that reads it is waited for.
    pub(crate) fn end(&self) {
        let driver = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(driver);
    }
}

/// The driver, while nobody else has it.
pub(crate) struct DriverGuard<'a>(MutexGuard<'a, Option<Box<dyn PortDriver>>>);

/// A guard is made of a driver that is there, and only the port's end takes it.
const THERE: &str = "the driver is there as long as its port";

impl<'a> Deref for DriverGuard<'a> {
    type Target = dyn PortDriver + 'a;

    fn deref(&self) -> &Self::Target {
        &**self.0.as_ref().expect(THERE)
    }
}

impl DerefMut for DriverGuard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut **self.0.as_mut().expect(THERE)
    }
}

/// A port as other threads see it: what its control handle set and what its queues count. It reads and changes nothing.
///
/// Each call answers `None` once the [`Port`](crate::Port) is dropped, and when a call of the control handle to the device lasts longer
/// than a second. Control path: each call locks and allocates.
#[derive(Clone)]
pub struct PortView {
    id: PortId,
    name: Arc<str>,
    gate: Gate,
    driver: SharedDriver,
    shown: Arc<Mutex<Option<Shown>>>,
}

/// A queue as other threads see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Rx or tx.
    pub direction: Direction,
    /// Its number.
    pub queue: QueueId,
    /// It moves packets while it is polled.
    pub running: bool,
    /// The driver's way of moving them; `None` before it was set up.
    pub mode: Option<&'static str>,
}

/// What a port counted and what its link says, read at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReading {
    /// The driver's name.
    pub driver: &'static str,
    /// The port's state.
    pub state: PortState,
    /// Its link.
    pub link: Link,
    /// The basic statistics since the last reset.
    pub stats: PortStats,
    /// Packets dropped, by reason, likewise.
    pub dropped: Vec<Dropped>,
}

impl PortView {
    pub(crate) fn new(
        id: PortId,
        name: &Arc<str>,
        gate: &Gate,
        driver: &SharedDriver,
        shown: &Published<Shown>,
    ) -> Self {
        let (name, gate, driver) = (Arc::clone(name), gate.clone(), driver.clone());
        Self { id, name, gate, driver, shown: Arc::clone(&shown.copy) }
    }

    /// Returns the port ID.
    #[must_use]
    pub fn id(&self) -> PortId {
        self.id
    }

    /// Returns the device name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the port's state.
    #[must_use]
    pub fn state(&self) -> Option<PortState> {
        self.shown().map(|shown| shown.state(&self.gate))
    }

    fn is_open(&self) -> bool {
        !matches!(self.state(), None | Some(PortState::Closed))
    }

    /// Returns the current configuration.
    #[must_use]
    pub fn config(&self) -> Option<PortConfig> {
        self.shown().map(|shown| shown.config)
    }

    /// Returns whether promiscuous mode is enabled, and whether all-multicast mode is.
    #[must_use]
    pub fn filters(&self) -> Option<(bool, bool)> {
        self.shown().map(|shown| (shown.promiscuous, shown.all_multicast))
    }

    /// Returns the VLANs of the filter, ascending.
    #[must_use]
    pub fn vlan_filters(&self) -> Option<Vec<u16>> {
        self.shown().map(|shown| shown.addresses.vlans)
    }

    /// Returns the configured queues of one direction, by number.
    #[must_use]
    pub fn queues(&self, direction: Direction) -> Option<Vec<QueueView>> {
        let shown = self.shown()?;
        let started = shown.state(&self.gate) == PortState::Started;
        let view = |number: usize, stopped: bool, mode| QueueView {
            direction,
            queue: QueueId(u16::try_from(number).unwrap_or(u16::MAX)),
            running: started && !stopped,
            mode,
        };
        Some(match direction {
            Direction::Rx => {
                let slots = shown.rx.iter().take(shown.config.rx_queues.len()).enumerate();
                slots.map(|(number, slot)| view(number, slot.stopped, slot.mode)).collect()
            }
            Direction::Tx => {
                let slots = shown.tx.iter().take(shown.config.tx_queues.len()).enumerate();
                slots.map(|(number, slot)| view(number, slot.stopped, slot.mode)).collect()
            }
        })
    }

    /// Returns the port's capabilities and limits.
    #[must_use]
    pub fn info(&self) -> Option<PortInfo> {
        self.read(|driver, _| Some(driver.info()))
    }

    /// Returns the extended statistics since the last reset.
    #[must_use]
    pub fn xstats(&self) -> Option<Vec<Xstat>> {
        self.read(|driver, shown| Some(shown.baseline.apply(shown.raw_stats(driver))))
    }

    /// Returns the basic statistics since the last reset.
    #[must_use]
    pub fn stats(&self) -> Option<PortStats> {
        let xstats = self.xstats()?;
        let shown = self.shown()?;
        Some(stats::basic(&xstats, shown.rx.len(), shown.tx.len()))
    }

    /// Returns statistics, drops by reason and the link, all of one moment.
    #[must_use]
    pub fn reading(&self) -> Option<PortReading> {
        self.read(|driver, shown| {
            let xstats = shown.baseline.apply(shown.raw_stats(driver));
            let state = shown.state(&self.gate);
            Some(PortReading {
                driver: driver.info().driver,
                state,
                link: link_in(state, driver),
                stats: stats::basic(&xstats, shown.rx.len(), shown.tx.len()),
                dropped: stats::dropped(&xstats),
            })
        })
    }

    /// Returns the link status.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        self.read(|driver, shown| Some(link_in(shown.state(&self.gate), driver)))
    }

    /// Returns the MTU in bytes; `None` also where the device does not tell.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        self.of_device(|driver| driver.mtu().ok())
    }

    /// Returns the MAC address of the port and those that were added; `None` also where the device does not tell.
    #[must_use]
    pub fn mac_addresses(&self) -> Option<Vec<MacAddress>> {
        let own = self.of_device(|driver| driver.mac_address().ok())?;
        let further = self.shown()?.addresses.further;
        Some(std::iter::once(own).chain(further).collect())
    }

    /// Returns the RSS hash; `None` also where the device has none.
    #[must_use]
    pub fn rss(&self) -> Option<RssConfig> {
        self.of_device(|driver| driver.rss().ok().map(|rss| rss.rss()))
    }

    /// Returns the forward error correction and what the link can use of it, by speed; `None` also where the device does not tell.
    #[must_use]
    pub fn fec(&self) -> Option<(Fec, Vec<SpeedFec>)> {
        self.of_device(|driver| Some((driver.fec().ok()?, driver.fec_capabilities().ok()?)))
    }

    /// Returns a dump of a queue; `None` also where the driver has none, or the queue is not set up.
    #[must_use]
    pub fn dump_queue(&self, direction: Direction, queue: QueueId) -> Option<String> {
        let shown = self.shown()?;
        let number = usize::from(queue.0);
        let set_up = match direction {
            Direction::Rx => shown.rx.get(number).is_some_and(|slot| slot.set_up),
            Direction::Tx => shown.tx.get(number).is_some_and(|slot| slot.set_up),
        };
        if !set_up {
            return None;
        }
        self.of_device(|driver| driver.dump_queue(direction, queue).ok())
    }

    /// Asks a device that is there.
    fn of_device<R>(&self, ask: impl FnOnce(&mut dyn PortDriver) -> Option<R>) -> Option<R> {
        self.read(|driver, shown| {
            let there = !matches!(shown.state(&self.gate), PortState::Gone | PortState::Closed);
            there.then(|| ask(driver)).flatten()
        })
    }

    fn read<R>(&self, read: impl FnOnce(&mut dyn PortDriver, &Shown) -> Option<R>) -> Option<R> {
        let mut driver = self.driver.lock_for_a_while()?;
        // What is shown is read under the driver's lock: a port that is closing has said so by then.
        let shown = self.shown()?;
        read(&mut *driver, &shown)
    }

    fn shown(&self) -> Option<Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A port that is gone or closed has no link; its device is not asked.
fn link_in(state: PortState, driver: &mut dyn PortDriver) -> Link {
    match state {
        PortState::Gone | PortState::Closed => Link::default(),
        state => driver.link(state == PortState::Started),
    }
}

impl fmt::Debug for PortView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortView").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Views of the ports of one [`Ports`](crate::Ports), which follow as ports come and go. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct PortViews(Arc<Mutex<Vec<PortView>>>);

impl PortViews {
    /// Returns the ports that are there, by number. Closed ones are not.
    #[must_use]
    pub fn list(&self) -> Vec<PortView> {
        let all = self.locked().clone();
        all.into_iter().filter(PortView::is_open).collect()
    }

    /// Returns the port with this ID, unless it is closed.
    #[must_use]
    pub fn get(&self, id: PortId) -> Option<PortView> {
        let view = self.locked().iter().find(|view| view.id == id).cloned();
        view.filter(PortView::is_open)
    }

    pub(crate) fn add(&self, view: PortView) {
        let mut views = self.locked();
        let place = views.partition_point(|known| known.id < view.id);
        views.insert(place, view);
    }

    pub(crate) fn remove(&self, id: PortId) {
        self.locked().retain(|view| view.id != id);
    }

    fn locked(&self) -> MutexGuard<'_, Vec<PortView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
