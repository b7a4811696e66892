//! What some ports have and others lack: RSS, VLAN tags, a clock, queues that stop by themselves.

use super::Port;
use crate::vlan::VLANS;
use crate::{
    DeviceClock, Direction, PortError, PortState, QueueId, RssConfig, RssInfo, RxOffloads, VlanTagPlace,
    offload,
};
use pollux_mempool::ExternalMemory;
use std::time::Duration;

/// Whether two handles are of the same memory.
fn same(one: &ExternalMemory, other: &ExternalMemory) -> bool {
    (one.base(), one.bytes()) == (other.base(), other.bytes())
}

impl Port {
    /// A queue in words, of several lines: its number, its indices, its health, its descriptors and completions as the device sees
    /// them. For people; the form is the driver's and may change. A queue that an lcore polls tells little more than its health,
    /// one that stands still, or that failed and was not yet set to work again, tells everything. DPDK has
    /// `rte_eth_rx_descriptor_dump` and `rte_eth_tx_descriptor_dump` for this.
    ///
    /// # Errors
    /// When not configured, gone or closed; when the queue is not configured; [`PortError::Unsupported`].
    pub fn dump_queue(&mut self, direction: Direction, queue: QueueId) -> Result<String, PortError> {
        self.must_be_configured("dump a queue")?;
        let count = match direction {
            Direction::Rx => self.shown.config.rx_queues.len(),
            Direction::Tx => self.shown.config.tx_queues.len(),
        };
        if usize::from(queue.0) >= count {
            return Err(self.no_queue(direction, queue));
        }
        self.driver.lock().dump_queue(direction, queue).map_err(|error| error.named(&self.name))
    }

    /// Returns the RSS configuration, with the key in use.
    ///
    /// # Errors
    /// When not configured, gone or closed; [`PortError::Unsupported`].
    pub fn rss(&mut self) -> Result<RssConfig, PortError> {
        self.must_be_configured("read the RSS settings")?;
        self.driver.lock().rss().map(|rss| rss.rss()).map_err(|error| error.named(&self.name))
    }

    /// Changes the RSS configuration, also on a started port; each packet is distributed by the old or the new one.
    ///
    /// # Errors
    /// When not configured, gone or closed; [`PortError::Argument`] outside [`PortInfo::rss`](crate::PortInfo::rss);
    /// [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_dev_rss_hash_update")]
    pub fn set_rss(&mut self, config: &RssConfig) -> Result<(), PortError> {
        self.must_be_configured("change the RSS settings")?;
        self.check_rss(config)?;
        let done = self.driver.lock().rss().and_then(|rss| rss.set_rss(config));
        done.map_err(|error| error.named(&self.name))?;
        self.shown.edit().config.rss = Some(config.clone());
        Ok(())
    }

    /// Returns the RSS redirection table (RETA), which has [`RssInfo::table_entries`] entries.
    ///
    /// # Errors
    /// As [`Port::rss`].
    pub fn rss_table(&mut self) -> Result<Vec<QueueId>, PortError> {
        self.must_be_configured("read the redirection table")?;
        self.driver.lock().rss().map(|rss| rss.table()).map_err(|error| error.named(&self.name))
    }

    /// Replaces the RETA, also on a started port.
    ///
    /// # Errors
    /// As [`Port::set_rss`]; when the length is another; when a queue is not configured.
    #[doc(alias = "rte_eth_dev_rss_reta_update")]
    pub fn set_rss_table(&mut self, table: &[QueueId]) -> Result<(), PortError> {
        self.must_be_configured("change the redirection table")?;
        let entries = self.rss_info()?.table_entries as u64;
        self.within("length of the redirection table", table.len() as u64, entries, entries)?;
        if let Some(queue) =
            table.iter().find(|queue| usize::from(queue.0) >= self.shown.config.rx_queues.len())
        {
            return Err(self.no_queue(Direction::Rx, *queue));
        }
        let done = self.driver.lock().rss().and_then(|rss| rss.set_table(table));
        done.map_err(|error| error.named(&self.name))
    }

    /// Updates single entries of the RETA, by index.
    ///
    /// # Errors
    /// As [`Port::set_rss_table`]; when a place is past the end.
    pub fn update_rss_table(&mut self, entries: &[(usize, QueueId)]) -> Result<(), PortError> {
        let mut table = self.rss_table()?;
        for (place, queue) in entries {
            let last = table.len().saturating_sub(1) as u64;
            self.within("place in the redirection table", *place as u64, 0, last)?;
            table[*place] = *queue;
        }
        self.set_rss_table(&table)
    }

    /// What the port states, or its own words for having no hash.
    fn rss_info(&mut self) -> Result<RssInfo, PortError> {
        match self.info.rss {
            Some(info) => Ok(info),
            None => {
                let reason = self.driver.lock().rss().err();
                let silent = || PortError::unsupported("RSS", "the port does not say what it hashes");
                Err(reason.unwrap_or_else(silent).named(&self.name))
            }
        }
    }

    pub(super) fn check_rss(&mut self, config: &RssConfig) -> Result<(), PortError> {
        self.rss_info()?.check(config).map_err(|error| error.named(&self.name))
    }

    /// Returns the VLAN offloads ([`RxOffloads::VLAN`]) that are enabled on all rx queues.
    #[must_use]
    pub fn vlan_offloads(&self) -> RxOffloads {
        self.shown.config.rx_offloads & RxOffloads::VLAN
    }

    /// Sets the VLAN offloads: strip, filter, extend, QinQ strip.
    ///
    /// # Errors
    /// When not configured, gone or closed; [`PortError::Offload`]; [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_dev_set_vlan_offload")]
    pub fn set_vlan_offloads(&mut self, on: RxOffloads) -> Result<(), PortError> {
        self.must_be_configured("change the VLAN offloads")?;
        let outside = on - RxOffloads::VLAN;
        if !outside.is_empty() {
            return Err(PortError::Argument {
                port: self.name.to_string(),
                key: "VLAN offloads".into(),
                value: offload::names(&outside),
                expected: format!("one of {}", offload::names(&RxOffloads::VLAN)),
            });
        }
        self.check_offloads(on, self.shown.config.tx_offloads)?;
        let done = self.driver.lock().vlan().and_then(|vlan| vlan.set_offloads(on));
        done.map_err(|error| error.named(&self.name))?;
        let mut shown = self.shown.edit();
        shown.config.rx_offloads = (shown.config.rx_offloads - RxOffloads::VLAN) | on;
        Ok(())
    }

    /// Enables or disables VLAN strip on one rx queue.
    ///
    /// # Errors
    /// When not configured, gone or closed; when there is no such queue; [`PortError::Unsupported`]; when the device refuses.
    pub fn set_vlan_strip_on_queue(&mut self, queue: QueueId, on: bool) -> Result<(), PortError> {
        self.must_be_configured("change VLAN strip")?;
        if usize::from(queue.0) >= self.shown.config.rx_queues.len() {
            return Err(self.no_queue(Direction::Rx, queue));
        }
        let done = self.driver.lock().vlan().and_then(|vlan| vlan.set_strip_on_queue(queue, on));
        done.map_err(|error| error.named(&self.name))
    }

    /// The VLANs whose frames are received while [`RxOffloads::VLAN_FILTER`] is on, ascending. What becomes of frames
    /// without a tag, and of all while the list is empty, is the device's way.
    #[must_use]
    pub fn vlan_filters(&self) -> &[u16] {
        &self.shown.addresses.vlans
    }

    /// Adds a VLAN to the filter or removes it. Repeating either has no effect.
    ///
    /// # Errors
    /// When not configured, gone or closed; when the number is 4096 or more; [`PortError::Unsupported`], also while
    /// [`RxOffloads::VLAN_FILTER`] is off; when the device refuses.
    #[doc(alias = "rte_eth_dev_vlan_filter")]
    pub fn set_vlan_filter(&mut self, vlan: u16, on: bool) -> Result<(), PortError> {
        self.must_be_configured("change the list of VLANs")?;
        self.within("VLAN", vlan.into(), 0, u64::from(VLANS) - 1)?;
        let mut driver = self.driver.lock();
        let vlan_driver = driver.vlan().map_err(|error| error.named(&self.name))?;
        if !self.shown.config.rx_offloads.contains(RxOffloads::VLAN_FILTER) {
            let reason = "VLAN_FILTER is off; ask for it in the port's rx_offloads";
            return Err(PortError::unsupported("VLAN filter", reason).named(&self.name));
        }
        let place = match (self.shown.addresses.vlans.binary_search(&vlan), on) {
            (Ok(place), false) | (Err(place), true) => place,
            _ => return Ok(()),
        };
        vlan_driver.set_filter(vlan, on).map_err(|error| error.named(&self.name))?;
        if on {
            self.shown.edit().addresses.vlans.insert(place, vlan);
        } else {
            self.shown.edit().addresses.vlans.remove(place);
        }
        Ok(())
    }

    /// Sets the EtherType (TPID) of a VLAN tag.
    ///
    /// # Errors
    /// When not configured, gone or closed; [`PortError::Unsupported`]; when the device refuses.
    pub fn set_vlan_ether_type(&mut self, place: VlanTagPlace, ether_type: u16) -> Result<(), PortError> {
        self.must_be_configured("change the VLAN ether type")?;
        let done = self.driver.lock().vlan().and_then(|vlan| vlan.set_ether_type(place, ether_type));
        done.map_err(|error| error.named(&self.name))
    }

    /// Sets the port VLAN (PVID), inserted into every frame sent without a tag; `None` disables it.
    ///
    /// # Errors
    /// As [`Port::set_vlan_ether_type`].
    pub fn set_port_vlan(&mut self, tci: Option<u16>) -> Result<(), PortError> {
        self.must_be_configured("change the port VLAN")?;
        let done = self.driver.lock().vlan().and_then(|vlan| vlan.set_port_vlan(tci));
        done.map_err(|error| error.named(&self.name))
    }

    /// Lets the device send from memory that is no pool's: of the buffers that
    /// [`Mbuf::attach_external`](pollux_mempool::Mbuf::attach_external) shows, by
    /// [`External::memory`](pollux_mempool::External::memory). The port keeps the memory from being freed until it is
    /// unregistered or the port closed. A packet from memory that nobody registered is dropped and counted in `oerrors`, by the
    /// devices that need to be told; others take it. DPDK's `rte_extmem_register` and `rte_dev_dma_map` in one.
    ///
    /// # Errors
    /// When gone or closed; when it is registered already ([`PortError::Argument`]); when the device refuses, as by the limit on
    /// locked memory.
    pub fn register_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        self.must_be_there("register memory")?;
        if self.memory.iter().any(|known| same(known, memory)) {
            return Err(self.wrong_memory(memory, "memory that is not registered yet"));
        }
        self.driver.lock().register_memory(memory).map_err(|error| error.named(&self.name))?;
        self.memory.push(memory.clone());
        Ok(())
    }

    /// Takes that back. What was sent from there should have left: a device that finds the memory gone in the middle of a packet
    /// drops it, and its queue has to recover. Memory that a device does not give back is kept from being freed until its file is
    /// closed, and the log says so.
    ///
    /// # Errors
    /// When gone or closed; when it is not registered ([`PortError::Argument`]).
    pub fn unregister_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        self.must_be_there("unregister memory")?;
        let Some(at) = self.memory.iter().position(|known| same(known, memory)) else {
            return Err(self.wrong_memory(memory, "memory that is registered"));
        };
        self.driver.lock().unregister_memory(memory).map_err(|error| error.named(&self.name))?;
        self.memory.swap_remove(at);
        Ok(())
    }

    fn wrong_memory(&self, memory: &ExternalMemory, expected: &str) -> PortError {
        PortError::Argument {
            port: self.name.to_string(),
            key: "memory".into(),
            value: format!("{} bytes at {:p}", memory.bytes(), memory.base()),
            expected: expected.into(),
        }
    }

    /// Reads the device clock, the source of [`RxOffloads::TIMESTAMP`].
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_read_clock")]
    pub fn read_clock(&mut self) -> Result<DeviceClock, PortError> {
        self.must_be_there("read the clock")?;
        let read = self.driver.lock().clock().and_then(|clock| clock.read_clock());
        read.map_err(|error| error.named(&self.name))
    }

    /// Enables or disables timestamping of PTP packets.
    ///
    /// # Errors
    /// As [`Port::read_clock`].
    pub fn set_time_sync(&mut self, on: bool) -> Result<(), PortError> {
        self.must_be_there("change time synchronisation")?;
        let done = self.driver.lock().clock().and_then(|clock| clock.set_time_sync(on));
        done.map_err(|error| error.named(&self.name))
    }

    /// Returns the time of the device clock, relative to its own epoch.
    ///
    /// # Errors
    /// As [`Port::read_clock`].
    pub fn time(&mut self) -> Result<Duration, PortError> {
        self.must_be_there("read the time")?;
        let read = self.driver.lock().clock().and_then(|clock| clock.time());
        read.map_err(|error| error.named(&self.name))
    }

    /// Adjusts the device clock by `nanos` nanoseconds.
    ///
    /// # Errors
    /// As [`Port::read_clock`].
    pub fn adjust_time(&mut self, nanos: i64) -> Result<(), PortError> {
        self.must_be_there("adjust the time")?;
        let done = self.driver.lock().clock().and_then(|clock| clock.adjust_time(nanos));
        done.map_err(|error| error.named(&self.name))
    }

    /// Returns whether an rx queue is running: the port is started, and the queue is neither deferred nor stopped.
    ///
    /// # Errors
    /// When there is no such queue.
    pub fn rx_queue_running(&self, queue: QueueId) -> Result<bool, PortError> {
        self.running(Direction::Rx, queue)
    }

    /// As [`Port::rx_queue_running`].
    ///
    /// # Errors
    /// When there is no such queue.
    pub fn tx_queue_running(&self, queue: QueueId) -> Result<bool, PortError> {
        self.running(Direction::Tx, queue)
    }

    /// Starts an rx queue that is deferred or stopped. Starting a running queue has no effect.
    ///
    /// # Errors
    /// When not started, gone or closed; when there is no such queue; [`PortError::Unsupported`]; when the device refuses.
    #[doc(alias = "rte_eth_dev_rx_queue_start")]
    pub fn rx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.run_queue(Direction::Rx, queue, true)
    }

    /// Stops one rx queue. Packets waiting in it may be lost; its bursts return nothing. Waits for the burst under way, as
    /// [`Port::stop`] does: a callback on the queue must not stop it, for it would wait for itself.
    ///
    /// # Errors
    /// As [`Port::rx_queue_start`]; [`PortError::BurstUnderWay`] when the burst does not end.
    pub fn rx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.run_queue(Direction::Rx, queue, false)
    }

    /// As [`Port::rx_queue_start`].
    ///
    /// # Errors
    /// As [`Port::rx_queue_start`].
    pub fn tx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.run_queue(Direction::Tx, queue, true)
    }

    /// Stops one tx queue. Its bursts send nothing. Waits as [`Port::rx_queue_stop`] does.
    ///
    /// # Errors
    /// As [`Port::rx_queue_stop`].
    pub fn tx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.run_queue(Direction::Tx, queue, false)
    }

    fn running(&self, direction: Direction, queue: QueueId) -> Result<bool, PortError> {
        let number = usize::from(queue.0);
        let (configured, stopped) = match direction {
            Direction::Rx => {
                (self.shown.config.rx_queues.len(), self.shown.rx.get(number).map(|slot| slot.stopped))
            }
            Direction::Tx => {
                (self.shown.config.tx_queues.len(), self.shown.tx.get(number).map(|slot| slot.stopped))
            }
        };
        match stopped {
            Some(stopped) if number < configured => Ok(self.state() == PortState::Started && !stopped),
            _ => Err(self.no_queue(direction, queue)),
        }
    }

    fn run_queue(&mut self, direction: Direction, queue: QueueId, run: bool) -> Result<(), PortError> {
        let operation = if run { "start a queue" } else { "stop a queue" };
        self.must(operation, "started", |state| state == PortState::Started)?;
        if self.running(direction, queue)? == run {
            return self.queue_control(direction, run);
        }
        let done = match (direction, run) {
            (Direction::Rx, true) => self.driver.lock().rx_queue_start(queue),
            (Direction::Rx, false) => self.driver.lock().rx_queue_stop(queue),
            (Direction::Tx, true) => self.driver.lock().tx_queue_start(queue),
            (Direction::Tx, false) => self.driver.lock().tx_queue_stop(queue),
        };
        done.map_err(|error| error.named(&self.name))?;
        match direction {
            Direction::Rx => self.shown.edit().rx[usize::from(queue.0)].stopped = !run,
            Direction::Tx => self.shown.edit().tx[usize::from(queue.0)].stopped = !run,
        }
        Ok(())
    }

    /// Says that queues are not controlled one by one even where there is nothing to change.
    fn queue_control(&self, direction: Direction, run: bool) -> Result<(), PortError> {
        if self.info.queue_control {
            return Ok(());
        }
        let operation = match (direction, run) {
            (Direction::Rx, true) => "rx queue start",
            (Direction::Rx, false) => "rx queue stop",
            (Direction::Tx, true) => "tx queue start",
            (Direction::Tx, false) => "tx queue stop",
        };
        let reason = "its queues stop and start with the port";
        Err(PortError::unsupported(operation, reason).named(&self.name))
    }

    /// What a configuration asks for beyond the usual must be there.
    pub(super) fn check_features(&mut self, config: &crate::PortConfig) -> Result<(), PortError> {
        let deferred = config.rx_queues.iter().any(|queue| queue.deferred_start)
            || config.tx_queues.iter().any(|queue| queue.deferred_start);
        self.check_deferred(deferred)?;
        if config.rx_interrupts && !self.info.rx_interrupts {
            let reason = "the port's queues are only ever polled";
            return Err(PortError::unsupported("rx interrupts", reason).named(&self.name));
        }
        match &config.rss {
            // No spreading is what a port without a hash does.
            Some(rss) if self.info.rss.is_some() || !rss.fields.is_empty() => self.check_rss(rss),
            _ => Ok(()),
        }
    }

    pub(super) fn check_deferred(&self, deferred: bool) -> Result<(), PortError> {
        if !deferred || self.info.queue_control {
            return Ok(());
        }
        let reason = "its queues stop and start with the port";
        Err(PortError::unsupported("deferred start", reason).named(&self.name))
    }
}
