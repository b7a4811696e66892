//! The control handle of a port.
mod check;
mod count;
mod event;
mod feature;
mod flow;
mod setting;
mod split;

use crate::burst::{self, STOP_PATIENCE};
use crate::capture::Captures;
use crate::driver::{PortDriver, RxSetup, TxSetup};
use crate::event::Events;
use crate::finish::FinishTx;
use crate::prepare::TxRules;
use crate::slot::QueueSlot;
use crate::stats::Counters;
use crate::view::{PortView, Published, SharedDriver, Shown};
use crate::{
    Direction, Gate, PortConfig, PortError, PortId, PortInfo, PortState, QueueId, RxOffloads, RxQueue,
    RxQueueConfig, TxQueue, TxQueueConfig,
};
use flow::Flows;
use pollux_mempool::ExternalMemory;
use std::fmt;
use std::sync::Arc;

/// All queues of a port, returned by [`Port::bring_up`].
#[derive(Debug, Default)]
pub struct Queues {
    /// By number.
    pub rx: Vec<RxQueue>,
    /// By number.
    pub tx: Vec<TxQueue>,
}

/// The control handle of a port: state, link, addresses, statistics, settings.
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
    driver: SharedDriver,
    info: PortInfo,
    gate: Gate,
    /// Those of the registry that it is in.
    captures: Option<Captures>,
    shown: Published<Shown>,
    events: Events,
    flows: Flows,
    /// Registered memory outside of mempools.
    memory: Vec<ExternalMemory>,
}

impl Port {
    /// Creates a port outside of any [`Ports`](crate::Ports).
    #[must_use]
    pub fn new(id: PortId, name: &str, mut driver: Box<dyn PortDriver>) -> Self {
        let events = Events::default();
        driver.connect(&events.sink);
        let info = driver.info();
        Self {
            id,
            name: name.into(),
            driver: SharedDriver::new(driver),
            info,
            gate: Gate::new(),
            captures: None,
            shown: Published::new(),
            events,
            flows: Flows::default(),
            memory: Vec::new(),
        }
    }

    /// Its queues take part in the captures of a registry.
    pub(crate) fn with_captures(mut self, captures: &Captures) -> Self {
        captures.watch(self.id, &self.gate);
        self.captures = Some(captures.clone());
        self
    }

    /// It is in a registry no more: queues that it sets up are captured no more.
    pub(crate) fn without_captures(mut self) -> Self {
        self.captures = None;
        self
    }

    /// Returns the port ID.
    #[must_use]
    pub fn id(&self) -> PortId {
        self.id
    }

    /// Returns the device name: `net_null0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the port's capabilities and limits.
    #[must_use]
    #[doc(alias = "rte_eth_dev_info_get")]
    pub fn info(&self) -> PortInfo {
        self.driver.lock().info()
    }

    /// Returns the port's state.
    #[must_use]
    pub fn state(&self) -> PortState {
        self.shown.state(&self.gate)
    }

    /// Returns a view of the port for other threads. It is valid as long as the port, and keeps nothing alive.
    #[must_use]
    pub fn view(&self) -> PortView {
        PortView::new(self.id, &self.name, &self.gate, &self.driver, &self.shown)
    }

    /// Returns the current configuration.
    #[must_use]
    pub fn config(&self) -> &PortConfig {
        &self.shown.config
    }

    /// Configures the port. All queue values must have been dropped; every queue must be set up again.
    ///
    /// # Errors
    /// When started, gone or closed; when a queue's value is alive; when a count is outside the port's limits;
    /// [`PortError::Offload`]; when the driver refuses.
    #[doc(alias = "rte_eth_dev_configure")]
    pub fn configure(&mut self, mut config: PortConfig) -> Result<(), PortError> {
        self.must("configure", "stopped", |state| {
            matches!(state, PortState::Unconfigured | PortState::Configured | PortState::Stopped)
        })?;
        self.no_queue_held()?;
        let info = self.info.clone();
        self.within("rx queues", config.rx_queues.len() as u64, 0, info.max_rx_queues.into())?;
        self.within("tx queues", config.tx_queues.len() as u64, 0, info.max_tx_queues.into())?;
        if config.scatter == Some(true) {
            config.rx_offloads |= RxOffloads::SCATTER;
        }
        config.tx_offloads |= config.open & info.tx_offloads;
        self.check_offloads(config.rx_offloads, config.tx_offloads)?;
        for (number, queue) in config.rx_queues.iter_mut().enumerate() {
            queue.descriptors = self.rx_descriptors(queue.descriptors)?;
            self.check_rx_queue_offloads(number, queue.offloads, config.rx_offloads)?;
            self.check_segments(queue, config.rx_offloads | queue.offloads, config.scatter)?;
        }
        for (number, queue) in config.tx_queues.iter_mut().enumerate() {
            queue.descriptors = self.tx_descriptors(queue.descriptors)?;
            self.check_tx_queue_offloads(number, queue.offloads, config.tx_offloads)?;
        }
        if let Some(mtu) = config.mtu {
            self.within("MTU", mtu.into(), info.min_mtu.into(), info.max_mtu.into())?;
        }
        self.check_long_packets(&config)?;
        self.check_features(&config)?;
        self.flows_end()?;
        self.driver.lock().configure(&config).map_err(|error| error.named(&self.name))?;
        let mut shown = self.shown.edit();
        shown.state = PortState::Configured;
        shown.rx.iter_mut().for_each(|slot| slot.set_up = false);
        shown.tx.iter_mut().for_each(|slot| slot.set_up = false);
        // Slots never go away: their counts are part of the port's totals.
        let (rx, tx) = (config.rx_queues.len(), config.tx_queues.len());
        let (all_rx, all_tx) = (shown.rx.len().max(rx), shown.tx.len().max(tx));
        shown.rx.resize_with(all_rx, QueueSlot::default);
        shown.tx.resize_with(all_tx, QueueSlot::default);
        shown.config = config;
        shown.addresses.vlans.clear();
        drop(shown);
        if let Some(mtu) = self.shown.config.mtu
            && self.mtu()? != mtu
        {
            self.set_mtu(mtu)?;
        }
        // Without an address filter every frame comes in anyway.
        let lenient = |result: Result<(), PortError>| match result {
            Err(error) if error.is_unsupported() => Ok(()),
            other => other,
        };
        if let Some(on) = self.shown.config.promiscuous {
            lenient(self.set_promiscuous(on))?;
        }
        if let Some(on) = self.shown.config.all_multicast {
            lenient(self.set_all_multicast(on))?;
        }
        if let Some(on) = self.shown.config.neighbours_by_kernel {
            let set = self.driver.lock().set_neighbours_by_kernel(on);
            lenient(set.map_err(|error| error.named(&self.name)))?;
        }
        Ok(())
    }

    /// Sets up an rx queue as configured and returns it.
    ///
    /// # Errors
    /// When not configured or started; when the number is not configured; when the queue's value is alive; when the pool
    /// does not fit; [`PortError::Offload`]; when the driver refuses.
    #[doc(alias = "rte_eth_rx_queue_setup")]
    pub fn rx_queue_setup(&mut self, queue: QueueId) -> Result<RxQueue, PortError> {
        let configured = self.shown.config.rx_queues.get(usize::from(queue.0)).cloned();
        let config = configured.ok_or_else(|| self.no_queue(Direction::Rx, queue))?;
        self.rx_queue_setup_with(queue, config)
    }

    /// Sets up an rx queue with a configuration of its own and returns it.
    ///
    /// # Errors
    /// As [`Port::rx_queue_setup`].
    pub fn rx_queue_setup_with(
        &mut self,
        queue: QueueId,
        mut config: RxQueueConfig,
    ) -> Result<RxQueue, PortError> {
        self.must_be_set_up_able("set up an rx queue")?;
        if usize::from(queue.0) >= self.shown.config.rx_queues.len() {
            return Err(self.no_queue(Direction::Rx, queue));
        }
        config.descriptors = self.rx_descriptors(config.descriptors)?;
        self.check_rx_queue_offloads(queue.0.into(), config.offloads, self.shown.config.rx_offloads)?;
        self.check_deferred(config.deferred_start)?;
        let offloads = self.shown.config.rx_offloads | config.offloads;
        self.check_segments(&config, offloads, self.shown.config.scatter)?;
        self.check_pool(queue, &config)?;
        // Parts of a packet are a chain.
        let scatter = self.scatters(config.offloads) || !config.segments.is_empty();
        let mut shown = self.shown.edit();
        let Shown { rx, config: of_port, .. } = &mut *shown;
        let slot = &mut rx[usize::from(queue.0)];
        let parts =
            slot.take((self.id, &self.name, &self.gate), self.captures.as_ref(), Direction::Rx, queue)?;
        let setup = RxSetup {
            port: self.id,
            queue,
            descriptors: config.descriptors,
            pool: config.pool.clone(),
            segments: config.segments.clone(),
            offloads,
            scatter,
            max_lro_bytes: of_port.max_lro_bytes.unwrap_or(self.info.max_lro_bytes),
            deferred_start: config.deferred_start,
            interrupts: of_port.rx_interrupts,
            counters: Arc::clone(&parts.counters),
            gate: self.gate.clone(),
        };
        let driver = self.driver.lock().rx_queue_setup(setup).map_err(|error| error.named(&self.name))?;
        (slot.set_up, slot.mode) = (true, Some(driver.mode()));
        of_port.rx_queues[usize::from(queue.0)] = config;
        Ok(RxQueue::new(driver, parts))
    }

    /// Sets up a tx queue as configured and returns it.
    ///
    /// # Errors
    /// As [`Port::rx_queue_setup`].
    #[doc(alias = "rte_eth_tx_queue_setup")]
    pub fn tx_queue_setup(&mut self, queue: QueueId) -> Result<TxQueue, PortError> {
        let configured = self.shown.config.tx_queues.get(usize::from(queue.0)).cloned();
        let config = configured.ok_or_else(|| self.no_queue(Direction::Tx, queue))?;
        self.tx_queue_setup_with(queue, config)
    }

    /// Sets up a tx queue with a configuration of its own and returns it.
    ///
    /// # Errors
    /// As [`Port::rx_queue_setup`].
    pub fn tx_queue_setup_with(
        &mut self,
        queue: QueueId,
        mut config: TxQueueConfig,
    ) -> Result<TxQueue, PortError> {
        self.must_be_set_up_able("set up a tx queue")?;
        if usize::from(queue.0) >= self.shown.config.tx_queues.len() {
            return Err(self.no_queue(Direction::Tx, queue));
        }
        config.descriptors = self.tx_descriptors(config.descriptors)?;
        self.check_tx_queue_offloads(queue.0.into(), config.offloads, self.shown.config.tx_offloads)?;
        self.check_deferred(config.deferred_start)?;
        let mut shown = self.shown.edit();
        let Shown { tx, config: of_port, .. } = &mut *shown;
        let slot = &mut tx[usize::from(queue.0)];
        let mut parts =
            slot.take((self.id, &self.name, &self.gate), self.captures.as_ref(), Direction::Tx, queue)?;
        let offloads = of_port.tx_offloads | config.offloads;
        let finishing = self.info.leaves_open(of_port.open, offloads);
        let setup = TxSetup {
            port: self.id,
            queue,
            descriptors: config.descriptors,
            offloads,
            finishing,
            deferred_start: config.deferred_start,
            counters: Arc::clone(&parts.counters),
            gate: self.gate.clone(),
        };
        let mut driver = self.driver.lock().tx_queue_setup(setup).map_err(|error| error.named(&self.name))?;
        (slot.set_up, slot.mode) = (true, Some(driver.mode()));
        parts.rules = TxRules::new(&self.info, offloads);
        if finishing {
            parts.rules = TxRules::finishing(&self.info, offloads);
            driver = Box::new(FinishTx::new(driver, &self.info, offloads, Arc::clone(&parts.counters)));
        }
        of_port.tx_queues[usize::from(queue.0)] = config;
        Ok(TxQueue::new(driver, parts))
    }

    /// Starts the port: all queues, on any lcore, move packets from their next burst on.
    ///
    /// # Errors
    /// When not configured, started already, gone or closed; when a queue is not set up; when the driver refuses.
    #[doc(alias = "rte_eth_dev_start")]
    pub fn start(&mut self) -> Result<(), PortError> {
        self.must("start", "configured or stopped", |state| {
            matches!(state, PortState::Configured | PortState::Stopped)
        })?;
        let missing = |direction, number: usize| PortError::QueueNotSetUp {
            port: self.name.to_string(),
            direction,
            queue: QueueId(u16::try_from(number).unwrap_or(u16::MAX)),
        };
        if let Some(number) =
            self.shown.rx[..self.shown.config.rx_queues.len()].iter().position(|slot| !slot.set_up)
        {
            return Err(missing(Direction::Rx, number));
        }
        if let Some(number) =
            self.shown.tx[..self.shown.config.tx_queues.len()].iter().position(|slot| !slot.set_up)
        {
            return Err(missing(Direction::Tx, number));
        }
        self.driver.lock().start().map_err(|error| error.named(&self.name))?;
        let mut shown = self.shown.edit();
        shown.state = PortState::Started;
        self.gate.open();
        let Shown { rx, tx, config, .. } = &mut *shown;
        for (slot, config) in rx.iter_mut().zip(&config.rx_queues) {
            slot.stopped = config.deferred_start;
        }
        for (slot, config) in tx.iter_mut().zip(&config.tx_queues) {
            slot.stopped = config.deferred_start;
        }
        drop(shown);
        self.events.last_link = Some(self.driver.lock().link(true));
        Ok(())
    }

    /// Stops the port: when this returns, no burst is running on any lcore, and later bursts move no packets.
    ///
    /// It waits for bursts under way, [`STOP_PATIENCE`] at most. A callback on a queue must not stop the queue's port: it
    /// would wait for itself.
    ///
    /// # Errors
    /// When not started; when the driver refuses; [`PortError::BurstUnderWay`] when a burst does not end. In the last two
    /// cases the port counts as stopped nevertheless.
    #[doc(alias = "rte_eth_dev_stop")]
    pub fn stop(&mut self) -> Result<(), PortError> {
        if self.shown.state != PortState::Started {
            return Err(self.wrong_state("stop", "started"));
        }
        self.gate.shut();
        self.shown.edit().state = PortState::Stopped;
        let waited = self.wait_for_bursts();
        let stopped = self.driver.lock().stop().map_err(|error| error.named(&self.name));
        waited.and(stopped)
    }

    /// The gate is shut by now: bursts that found it open are those waited for.
    fn wait_for_bursts(&self) -> Result<(), PortError> {
        let rx = self.shown.rx.iter().map(|slot| slot.counters.line());
        let all = rx.chain(self.shown.tx.iter().map(|slot| slot.counters.line()));
        burst::wait_for_all(all.map(|line| &***line), STOP_PATIENCE).map_err(|place| {
            let (direction, number) = match place.checked_sub(self.shown.rx.len()) {
                None => (Direction::Rx, place),
                Some(number) => (Direction::Tx, number),
            };
            PortError::BurstUnderWay {
                port: self.name.to_string(),
                direction,
                queue: QueueId(u16::try_from(number).unwrap_or(u16::MAX)),
                waited: STOP_PATIENCE,
            }
        })
    }

    /// Closes the port. Existing queue values stay valid and move no packets.
    ///
    /// # Errors
    /// When started or closed already; when the driver refuses, in which case the port counts as closed nevertheless.
    #[doc(alias = "rte_eth_dev_close")]
    pub fn close(&mut self) -> Result<(), PortError> {
        self.must("close", "stopped", |state| state != PortState::Closed)?;
        if self.shown.state == PortState::Started {
            return Err(self.wrong_state("close", "stopped"));
        }
        self.shown.edit().state = PortState::Closed;
        self.flows_forget();
        let closed = self.driver.lock().close().map_err(|error| error.named(&self.name));
        self.memory.clear();
        closed
    }

    /// Resets the device to its initial state, stopping the port if necessary. The port must be configured again.
    ///
    /// # Errors
    /// When gone or closed; when the driver refuses.
    #[doc(alias = "rte_eth_dev_reset")]
    pub fn reset(&mut self) -> Result<(), PortError> {
        self.must("reset", "there and not closed", |state| {
            !matches!(state, PortState::Gone | PortState::Closed)
        })?;
        if self.shown.state == PortState::Started {
            self.stop()?;
        }
        self.driver.lock().reset().map_err(|error| error.named(&self.name))?;
        let mut shown = self.shown.edit();
        let (rx, tx) = (std::mem::take(&mut shown.rx), std::mem::take(&mut shown.tx));
        // What was counted stays.
        *shown = Shown { rx, tx, baseline: shown.baseline.clone(), ..Shown::default() };
        shown.rx.iter_mut().for_each(|slot| slot.set_up = false);
        shown.tx.iter_mut().for_each(|slot| slot.set_up = false);
        drop(shown);
        self.flows_forget();
        Ok(())
    }

    /// Configures the port, sets up all queues and starts it.
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

    /// Returns the nearest rx and tx descriptor counts that the port supports; 0 selects its defaults.
    #[must_use]
    #[doc(alias = "rte_eth_dev_adjust_nb_rx_tx_desc")]
    pub fn adjust_descriptors(&self, rx: u16, tx: u16) -> (u16, u16) {
        (self.info.rx_descriptors.adjust(rx), self.info.tx_descriptors.adjust(tx))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Errors have nowhere to go here, and both calls end the port whatever the driver answers.
        if self.shown.state == PortState::Started {
            let _ = self.stop();
        }
        if self.shown.state != PortState::Closed {
            let _ = self.close();
        }
        self.driver.end();
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
