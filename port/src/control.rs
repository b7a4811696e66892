//! The control handle of a port.
use crate::config::Addresses;
use crate::driver::{PortDriver, RxSetup, TxSetup};
use crate::queue::{Held, QueueParts};
use crate::stats::{self, Baseline, Dropped, PortStats, Xstat};
use crate::{
    Direction, Gate, Link, MacAddr, PortConfig, PortError, PortEvent, PortId, PortInfo, PortState, QueueId,
    RxCounters, RxQueue, RxQueueConfig, TxCounters, TxQueue, TxQueueConfig,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the control handle keeps of a queue.
struct QueueSlot<C> {
    counters: Arc<C>,
    held: Arc<AtomicBool>,
    set_up: bool,
}

impl<C: Default> Default for QueueSlot<C> {
    fn default() -> Self {
        Self { counters: Arc::default(), held: Arc::default(), set_up: false }
    }
}

/// All queues of a port, as [`Port::bring_up`] gives them.
#[derive(Debug, Default)]
pub struct Queues {
    /// By number.
    pub rx: Vec<RxQueue>,
    /// By number.
    pub tx: Vec<TxQueue>,
}

/// The control handle of a port: its life, its link, its addresses, its statistics.
///
/// ```text
/// Unconfigured --configure--> Configured --start--> Started <--stop/start--> Stopped --close--> Closed
///                             rx/tx queue set-up            rx/tx queue set-up, configure
/// ```
///
/// A call that its state does not allow is refused and changes nothing. Dropping the handle stops and closes the port.
pub struct Port {
    id: PortId,
    name: Arc<str>,
    driver: Box<dyn PortDriver>,
    info: PortInfo,
    state: PortState,
    config: PortConfig,
    gate: Gate,
    rx: Vec<QueueSlot<RxCounters>>,
    tx: Vec<QueueSlot<TxCounters>>,
    baseline: Baseline,
    promiscuous: bool,
    all_multicast: bool,
    addresses: Addresses,
    last_link: Option<Link>,
    told_gone: bool,
}

impl Port {
    /// A port that belongs to no [`Ports`](crate::Ports).
    #[must_use]
    pub fn new(id: PortId, name: &str, driver: Box<dyn PortDriver>) -> Self {
        let info = driver.info();
        Self {
            id,
            name: name.into(),
            driver,
            info,
            state: PortState::Unconfigured,
            config: PortConfig::default(),
            gate: Gate::new(),
            rx: Vec::new(),
            tx: Vec::new(),
            baseline: Baseline::default(),
            promiscuous: false,
            all_multicast: false,
            addresses: Addresses::default(),
            last_link: None,
            told_gone: false,
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> PortId {
        self.id
    }

    /// Its name, as in the device argument: `net_null0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is and what it can do.
    #[must_use]
    pub fn info(&self) -> PortInfo {
        self.driver.info()
    }

    /// Where it stands in its life.
    #[must_use]
    pub fn state(&self) -> PortState {
        if self.state != PortState::Closed && self.gate.is_gone() { PortState::Gone } else { self.state }
    }

    /// What it was configured with.
    #[must_use]
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// What happened to the port by itself since the last call: the link changed, the device disappeared.
    pub fn poll_event(&mut self) -> Option<PortEvent> {
        match self.state() {
            PortState::Closed => None,
            PortState::Gone => (!std::mem::replace(&mut self.told_gone, true)).then_some(PortEvent::Removed),
            _ => {
                let link = self.driver.link();
                let before = self.last_link.replace(link);
                before.is_some_and(|before| before != link).then_some(PortEvent::Link(link))
            }
        }
    }

    // ---- life ----

    /// Takes queue counts and options. Queues set up before must have been dropped; all are to be set up anew.
    ///
    /// # Errors
    /// When started, gone or closed; when a queue's value is alive; when a count is outside the port's limits; when the
    /// driver refuses.
    pub fn configure(&mut self, mut config: PortConfig) -> Result<(), PortError> {
        self.must("configure", "stopped", |state| {
            matches!(state, PortState::Unconfigured | PortState::Configured | PortState::Stopped)
        })?;
        self.no_queue_held()?;
        let info = self.info.clone();
        self.within("rx queues", config.rx_queues.len() as u64, 0, info.max_rx_queues.into())?;
        self.within("tx queues", config.tx_queues.len() as u64, 0, info.max_tx_queues.into())?;
        for queue in &mut config.rx_queues {
            queue.descriptors = self.rx_descriptors(queue.descriptors)?;
        }
        for queue in &mut config.tx_queues {
            queue.descriptors = self.tx_descriptors(queue.descriptors)?;
        }
        if let Some(mtu) = config.mtu {
            self.within("MTU", mtu.into(), info.min_mtu.into(), info.max_mtu.into())?;
        }
        self.driver.configure(&config).map_err(|error| error.named(&self.name))?;
        self.state = PortState::Configured;
        self.rx.iter_mut().for_each(|slot| slot.set_up = false);
        self.tx.iter_mut().for_each(|slot| slot.set_up = false);
        // Slots never go away: their counts are part of the port's totals.
        self.rx.resize_with(self.rx.len().max(config.rx_queues.len()), QueueSlot::default);
        self.tx.resize_with(self.tx.len().max(config.tx_queues.len()), QueueSlot::default);
        self.config = config;
        if let Some(mtu) = self.config.mtu
            && self.mtu()? != mtu
        {
            self.set_mtu(mtu)?;
        }
        // Without an address filter every frame comes in anyway.
        let lenient = |result: Result<(), PortError>| match result {
            Err(error) if error.is_unsupported() => Ok(()),
            other => other,
        };
        if let Some(on) = self.config.promiscuous {
            lenient(self.set_promiscuous(on))?;
        }
        if let Some(on) = self.config.all_multicast {
            lenient(self.set_all_multicast(on))?;
        }
        Ok(())
    }

    /// Sets up an rx queue as configured and gives its value.
    ///
    /// # Errors
    /// When not configured or started; when the number is not configured; when the queue's value is alive; when the pool
    /// does not fit; when the driver refuses.
    pub fn rx_queue_setup(&mut self, queue: QueueId) -> Result<RxQueue, PortError> {
        let configured = self.config.rx_queues.get(usize::from(queue.0)).cloned();
        let config = configured.ok_or_else(|| self.no_queue(Direction::Rx, queue))?;
        self.rx_queue_setup_with(queue, config)
    }

    /// Sets up an rx queue otherwise than configured and gives its value.
    ///
    /// # Errors
    /// As [`Port::rx_queue_setup`].
    pub fn rx_queue_setup_with(
        &mut self,
        queue: QueueId,
        mut config: RxQueueConfig,
    ) -> Result<RxQueue, PortError> {
        self.must_be_set_up_able("set up an rx queue")?;
        if usize::from(queue.0) >= self.config.rx_queues.len() {
            return Err(self.no_queue(Direction::Rx, queue));
        }
        config.descriptors = self.rx_descriptors(config.descriptors)?;
        self.check_pool(queue, &config)?;
        let slot = &mut self.rx[usize::from(queue.0)];
        let held = Held::take(&slot.held).ok_or_else(|| PortError::QueueHeld {
            port: self.name.to_string(),
            direction: Direction::Rx,
            queue,
        })?;
        slot.set_up = false;
        let setup = RxSetup {
            port: self.id,
            queue,
            descriptors: config.descriptors,
            pool: config.pool.clone(),
            counters: Arc::clone(&slot.counters),
            gate: self.gate.clone(),
        };
        let driver = self.driver.rx_queue_setup(setup).map_err(|error| error.named(&self.name))?;
        slot.set_up = true;
        let parts = QueueParts {
            gate: self.gate.clone(),
            counters: Arc::clone(&slot.counters),
            port: self.id,
            port_name: Arc::clone(&self.name),
            queue,
            held,
        };
        self.config.rx_queues[usize::from(queue.0)] = config;
        Ok(RxQueue::new(driver, parts))
    }

    /// Sets up a tx queue as configured and gives its value.
    ///
    /// # Errors
    /// As [`Port::rx_queue_setup`].
    pub fn tx_queue_setup(&mut self, queue: QueueId) -> Result<TxQueue, PortError> {
        let configured = self.config.tx_queues.get(usize::from(queue.0)).cloned();
        let config = configured.ok_or_else(|| self.no_queue(Direction::Tx, queue))?;
        self.tx_queue_setup_with(queue, config)
    }

    /// Sets up a tx queue otherwise than configured and gives its value.
    ///
    /// # Errors
    /// As [`Port::rx_queue_setup`].
    pub fn tx_queue_setup_with(
        &mut self,
        queue: QueueId,
        mut config: TxQueueConfig,
    ) -> Result<TxQueue, PortError> {
        self.must_be_set_up_able("set up a tx queue")?;
        if usize::from(queue.0) >= self.config.tx_queues.len() {
            return Err(self.no_queue(Direction::Tx, queue));
        }
        config.descriptors = self.tx_descriptors(config.descriptors)?;
        let slot = &mut self.tx[usize::from(queue.0)];
        let held = Held::take(&slot.held).ok_or_else(|| PortError::QueueHeld {
            port: self.name.to_string(),
            direction: Direction::Tx,
            queue,
        })?;
        slot.set_up = false;
        let setup = TxSetup {
            port: self.id,
            queue,
            descriptors: config.descriptors,
            counters: Arc::clone(&slot.counters),
            gate: self.gate.clone(),
        };
        let driver = self.driver.tx_queue_setup(setup).map_err(|error| error.named(&self.name))?;
        slot.set_up = true;
        let parts = QueueParts {
            gate: self.gate.clone(),
            counters: Arc::clone(&slot.counters),
            port: self.id,
            port_name: Arc::clone(&self.name),
            queue,
            held,
        };
        self.config.tx_queues[usize::from(queue.0)] = config;
        Ok(TxQueue::new(driver, parts))
    }

    /// Lets packets flow: queue values, wherever they are, work from their next burst on.
    ///
    /// # Errors
    /// When not configured, started already, gone or closed; when a queue is not set up; when the driver refuses.
    pub fn start(&mut self) -> Result<(), PortError> {
        self.must("start", "configured or stopped", |state| {
            matches!(state, PortState::Configured | PortState::Stopped)
        })?;
        let missing = |direction, number: usize| PortError::QueueNotSetUp {
            port: self.name.to_string(),
            direction,
            queue: QueueId(u16::try_from(number).unwrap_or(u16::MAX)),
        };
        if let Some(number) = self.rx[..self.config.rx_queues.len()].iter().position(|slot| !slot.set_up) {
            return Err(missing(Direction::Rx, number));
        }
        if let Some(number) = self.tx[..self.config.tx_queues.len()].iter().position(|slot| !slot.set_up) {
            return Err(missing(Direction::Tx, number));
        }
        self.driver.start().map_err(|error| error.named(&self.name))?;
        self.state = PortState::Started;
        self.gate.open();
        self.last_link = Some(self.driver.link());
        Ok(())
    }

    /// Ends the flow: a burst that begins after this returns moves nothing. One under way on another lcore ends by itself.
    ///
    /// # Errors
    /// When not started; when the driver refuses, in which case the port counts as stopped nevertheless.
    pub fn stop(&mut self) -> Result<(), PortError> {
        if self.state != PortState::Started {
            return Err(self.wrong_state("stop", "started"));
        }
        self.gate.shut();
        self.state = PortState::Stopped;
        self.driver.stop().map_err(|error| error.named(&self.name))
    }

    /// Ends the port. Queue values that are alive stay valid and move nothing.
    ///
    /// # Errors
    /// When started or closed already; when the driver refuses, in which case the port counts as closed nevertheless.
    pub fn close(&mut self) -> Result<(), PortError> {
        self.must("close", "stopped", |state| state != PortState::Closed)?;
        if self.state == PortState::Started {
            return Err(self.wrong_state("close", "stopped"));
        }
        self.state = PortState::Closed;
        self.driver.close().map_err(|error| error.named(&self.name))
    }

    /// Sets the device back to how it was when it was opened, stopping it where needed. It is to be configured anew.
    ///
    /// # Errors
    /// When gone or closed; when the driver refuses.
    pub fn reset(&mut self) -> Result<(), PortError> {
        self.must("reset", "there and not closed", |state| {
            !matches!(state, PortState::Gone | PortState::Closed)
        })?;
        if self.state == PortState::Started {
            self.stop()?;
        }
        self.driver.reset().map_err(|error| error.named(&self.name))?;
        self.state = PortState::Unconfigured;
        self.config = PortConfig::default();
        self.rx.iter_mut().for_each(|slot| slot.set_up = false);
        self.tx.iter_mut().for_each(|slot| slot.set_up = false);
        self.promiscuous = false;
        self.all_multicast = false;
        self.addresses = Addresses::default();
        Ok(())
    }

    /// Configures, sets up every queue and starts: what an application does when it has nothing special in mind.
    ///
    /// # Errors
    /// As [`Port::configure`], [`Port::rx_queue_setup`] and [`Port::start`].
    pub fn bring_up(&mut self, config: PortConfig) -> Result<Queues, PortError> {
        let (rx_queues, tx_queues) = (config.rx_queues.len(), config.tx_queues.len());
        self.configure(config)?;
        let number = |index: usize| QueueId(u16::try_from(index).unwrap_or(u16::MAX));
        let queues = Queues {
            rx: (0..rx_queues).map(|index| self.rx_queue_setup(number(index))).collect::<Result<_, _>>()?,
            tx: (0..tx_queues).map(|index| self.tx_queue_setup(number(index))).collect::<Result<_, _>>()?,
        };
        self.start()?;
        Ok(queues)
    }

    /// The rx and tx descriptor counts nearest to those wanted that the port takes; 0 gives its default.
    #[must_use]
    pub fn adjust_descriptors(&self, rx: u16, tx: u16) -> (u16, u16) {
        (self.info.rx_descriptors.adjust(rx), self.info.tx_descriptors.adjust(tx))
    }

    // ---- statistics ----

    /// The basic numbers since the last reset.
    pub fn stats(&mut self) -> PortStats {
        let (rx, tx) = (self.rx.len(), self.tx.len());
        stats::basic(&self.xstats(), rx, tx)
    }

    /// All numbers since the last reset. A number's id is its place in this list.
    pub fn xstats(&mut self) -> Vec<Xstat> {
        let raw = self.raw_stats();
        self.baseline.apply(raw)
    }

    /// The names of the xstats, by id.
    pub fn xstat_names(&mut self) -> Vec<String> {
        self.raw_stats().into_iter().map(|(name, _)| name.into_owned()).collect()
    }

    /// The number of that name.
    pub fn xstat(&mut self, name: &str) -> Option<Xstat> {
        self.xstats().into_iter().find(|xstat| xstat.name == name)
    }

    /// The numbers of those ids, in that order; `None` for one that is not there.
    pub fn xstats_by_id(&mut self, ids: &[usize]) -> Vec<Option<Xstat>> {
        let all = self.xstats();
        ids.iter().map(|id| all.get(*id).cloned()).collect()
    }

    /// What the port dropped since the last reset, by reason; reasons that never occurred are left out.
    pub fn dropped(&mut self) -> Vec<Dropped> {
        stats::dropped(&self.xstats())
    }

    /// Numbers count from here.
    pub fn reset_stats(&mut self) {
        let raw = self.raw_stats();
        self.baseline.set(raw);
    }

    fn raw_stats(&mut self) -> Vec<(std::borrow::Cow<'static, str>, u64)> {
        if self.state != PortState::Closed {
            self.driver.update_counters();
        }
        let own = self.driver.xstats();
        stats::raw(
            self.rx.iter().map(|slot| &*slot.counters),
            self.tx.iter().map(|slot| &*slot.counters),
            own,
        )
    }

    // ---- link, MTU, filters, addresses ----

    /// The link now.
    pub fn link(&mut self) -> Link {
        if matches!(self.state(), PortState::Gone | PortState::Closed) {
            return Link::default();
        }
        self.driver.link()
    }

    /// Takes the link up or down.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    pub fn set_link_up(&mut self, up: bool) -> Result<(), PortError> {
        self.must_be_there("set the link")?;
        self.driver.set_link_up(up).map_err(|error| error.named(&self.name))
    }

    /// The largest payload of a frame, in bytes.
    ///
    /// # Errors
    /// When gone or closed; when the device does not tell.
    pub fn mtu(&mut self) -> Result<u32, PortError> {
        self.must_be_there("read the MTU")?;
        self.driver.mtu().map_err(|error| error.named(&self.name))
    }

    /// Changes it.
    ///
    /// # Errors
    /// When gone or closed; outside the limits of [`Port::info`]; [`PortError::Unsupported`]; when the device refuses.
    pub fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.must_be_there("set the MTU")?;
        self.within("MTU", mtu.into(), self.info.min_mtu.into(), self.info.max_mtu.into())?;
        self.driver.set_mtu(mtu).map_err(|error| error.named(&self.name))
    }

    /// Promiscuous mode was switched on.
    #[must_use]
    pub fn promiscuous(&self) -> bool {
        self.promiscuous
    }

    /// Receives frames whatever their destination, or not.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    pub fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        self.must_be_there("set promiscuous mode")?;
        self.driver.set_promiscuous(on).map_err(|error| error.named(&self.name))?;
        self.promiscuous = on;
        Ok(())
    }

    /// All-multicast mode was switched on.
    #[must_use]
    pub fn all_multicast(&self) -> bool {
        self.all_multicast
    }

    /// Receives all multicast frames, or not.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    pub fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        self.must_be_there("set all-multicast mode")?;
        self.driver.set_all_multicast(on).map_err(|error| error.named(&self.name))?;
        self.all_multicast = on;
        Ok(())
    }

    /// The port's own address.
    ///
    /// # Errors
    /// When gone or closed; when the device does not tell.
    pub fn mac_address(&mut self) -> Result<MacAddr, PortError> {
        self.must_be_there("read the address")?;
        self.driver.mac_address().map_err(|error| error.named(&self.name))
    }

    /// Changes it.
    ///
    /// # Errors
    /// When gone or closed; when it is no unicast address; [`PortError::Unsupported`]; when the device refuses.
    pub fn set_mac_address(&mut self, mac: MacAddr) -> Result<(), PortError> {
        self.must_be_there("set the address")?;
        self.must_be_unicast(mac)?;
        self.driver.set_mac_address(mac).map_err(|error| error.named(&self.name))
    }

    /// The addresses added to the port's own.
    #[must_use]
    pub fn further_mac_addresses(&self) -> &[MacAddr] {
        &self.addresses.further
    }

    /// Receives frames to a further address. Adding one twice is adding it once.
    ///
    /// # Errors
    /// When gone or closed; when it is no unicast address; past the limit; [`PortError::Unsupported`].
    pub fn add_mac_address(&mut self, mac: MacAddr) -> Result<(), PortError> {
        self.must_be_there("add an address")?;
        self.must_be_unicast(mac)?;
        if self.addresses.further.contains(&mac) {
            return Ok(());
        }
        // A port that has no filter at all says so itself, with its reason.
        if self.info.max_mac_addresses > 1 {
            let count = self.addresses.further.len() as u64 + 2;
            self.within("number of addresses", count, 1, self.info.max_mac_addresses as u64)?;
        }
        self.driver.add_mac_address(mac).map_err(|error| error.named(&self.name))?;
        self.addresses.further.push(mac);
        Ok(())
    }

    /// Takes an added address back.
    ///
    /// # Errors
    /// When gone or closed; when it was not added; when the device refuses.
    pub fn remove_mac_address(&mut self, mac: MacAddr) -> Result<(), PortError> {
        self.must_be_there("remove an address")?;
        let Some(place) = self.addresses.further.iter().position(|known| *known == mac) else {
            return Err(self.bad_address(mac, "one of the added addresses"));
        };
        self.driver.remove_mac_address(mac).map_err(|error| error.named(&self.name))?;
        self.addresses.further.remove(place);
        Ok(())
    }

    /// The multicast groups that were asked for.
    #[must_use]
    pub fn multicast_list(&self) -> &[MacAddr] {
        &self.addresses.multicast
    }

    /// Receives frames to exactly these groups.
    ///
    /// # Errors
    /// When gone or closed; when one is no group address; past the limit; [`PortError::Unsupported`].
    pub fn set_multicast_list(&mut self, groups: &[MacAddr]) -> Result<(), PortError> {
        self.must_be_there("set the multicast list")?;
        if let Some(mac) = groups.iter().find(|mac| !mac.is_multicast()) {
            return Err(self.bad_address(*mac, "a multicast address"));
        }
        if self.info.max_multicast_addresses > 0 {
            self.within(
                "length of the multicast list",
                groups.len() as u64,
                0,
                self.info.max_multicast_addresses as u64,
            )?;
        }
        self.driver.set_multicast_list(groups).map_err(|error| error.named(&self.name))?;
        self.addresses.multicast = groups.to_vec();
        Ok(())
    }

    // ---- checks ----

    fn must(
        &self,
        operation: &'static str,
        allowed: &'static str,
        is_allowed: impl Fn(PortState) -> bool,
    ) -> Result<(), PortError> {
        if is_allowed(self.state()) { Ok(()) } else { Err(self.wrong_state(operation, allowed)) }
    }

    fn must_be_there(&self, operation: &'static str) -> Result<(), PortError> {
        self.must(operation, "there and not closed", |state| {
            !matches!(state, PortState::Gone | PortState::Closed)
        })
    }

    fn must_be_set_up_able(&self, operation: &'static str) -> Result<(), PortError> {
        self.must(operation, "configured or stopped", |state| {
            matches!(state, PortState::Configured | PortState::Stopped)
        })
    }

    fn wrong_state(&self, operation: &'static str, allowed: &'static str) -> PortError {
        PortError::State { port: self.name.to_string(), operation, state: self.state(), allowed }
    }

    fn must_be_unicast(&self, mac: MacAddr) -> Result<(), PortError> {
        if mac.is_unicast() { Ok(()) } else { Err(self.bad_address(mac, "a unicast address")) }
    }

    fn bad_address(&self, mac: MacAddr, expected: &'static str) -> PortError {
        PortError::Address { port: self.name.to_string(), mac, expected }
    }

    fn within(&self, what: &'static str, value: u64, min: u64, max: u64) -> Result<(), PortError> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(PortError::Limit { port: self.name.to_string(), what, value, min, max })
    }

    fn rx_descriptors(&self, wanted: u16) -> Result<u16, PortError> {
        self.descriptors("rx descriptor count", wanted, self.info.rx_descriptors)
    }

    fn tx_descriptors(&self, wanted: u16) -> Result<u16, PortError> {
        self.descriptors("tx descriptor count", wanted, self.info.tx_descriptors)
    }

    fn descriptors(
        &self,
        what: &'static str,
        wanted: u16,
        limits: crate::DescriptorLimits,
    ) -> Result<u16, PortError> {
        if wanted == 0 || limits.allow(wanted) {
            return Ok(limits.adjust(wanted));
        }
        self.within(what, wanted.into(), limits.min.into(), limits.max.into())?;
        Err(PortError::Argument {
            port: self.name.to_string(),
            key: what.into(),
            value: wanted.to_string(),
            expected: format!(
                "it must be a multiple of {}; {} is the nearest",
                limits.align,
                limits.adjust(wanted)
            ),
        })
    }

    fn no_queue(&self, direction: Direction, queue: QueueId) -> PortError {
        let configured = match direction {
            Direction::Rx => self.config.rx_queues.len(),
            Direction::Tx => self.config.tx_queues.len(),
        };
        PortError::NoQueue { port: self.name.to_string(), direction, queue, configured }
    }

    fn no_queue_held(&self) -> Result<(), PortError> {
        let held = |direction, number: usize| PortError::QueueHeld {
            port: self.name.to_string(),
            direction,
            queue: QueueId(u16::try_from(number).unwrap_or(u16::MAX)),
        };
        if let Some(number) = self.rx.iter().position(|slot| slot.held.load(Ordering::Acquire)) {
            return Err(held(Direction::Rx, number));
        }
        if let Some(number) = self.tx.iter().position(|slot| slot.held.load(Ordering::Acquire)) {
            return Err(held(Direction::Tx, number));
        }
        Ok(())
    }

    fn check_pool(&self, queue: QueueId, config: &RxQueueConfig) -> Result<(), PortError> {
        let pool = &config.pool;
        let needs = if self.info.rx_holds_mbufs { usize::from(config.descriptors) } else { 1 };
        if pool.capacity() < needs {
            return Err(PortError::PoolTooSmall {
                port: self.name.to_string(),
                queue,
                pool: pool.name().to_string(),
                has: pool.capacity(),
                needs,
            });
        }
        let room = pool.data_room().saturating_sub(pool.headroom());
        if room < self.info.min_rx_room {
            return Err(PortError::RoomTooSmall {
                port: self.name.to_string(),
                queue,
                pool: pool.name().to_string(),
                has: room,
                needs: self.info.min_rx_room,
            });
        }
        Ok(())
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Errors have nowhere to go here, and both calls end the port whatever the driver answers.
        if self.state == PortState::Started {
            let _ = self.stop();
        }
        if self.state != PortState::Closed {
            let _ = self.close();
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("state", &self.state())
            .finish()
    }
}
