//! What the control handle checks before it asks the driver.

use super::Port;
use crate::offload::names;
use crate::stats::Counters;
use crate::{
    DescriptorLimits, Direction, MacAddress, PortConfig, PortError, PortState, QueueId, RxOffloads,
    RxQueueConfig, TxOffloads,
};

/// The shortest Ethernet frame, without its check sequence (IEEE 802.3, minFrameSize): what is joined is no shorter.
const LRO_MIN: u32 = 60;

impl Port {
    pub(super) fn must(
        &self,
        operation: &'static str,
        allowed: &'static str,
        is_allowed: impl Fn(PortState) -> bool,
    ) -> Result<(), PortError> {
        if is_allowed(self.state()) { Ok(()) } else { Err(self.wrong_state(operation, allowed)) }
    }

    pub(super) fn must_be_there(&self, operation: &'static str) -> Result<(), PortError> {
        self.must(operation, "there and not closed", |state| {
            !matches!(state, PortState::Gone | PortState::Closed)
        })
    }

    pub(super) fn must_be_configured(&self, operation: &'static str) -> Result<(), PortError> {
        self.must(operation, "configured, started or stopped", |state| {
            matches!(state, PortState::Configured | PortState::Started | PortState::Stopped)
        })
    }

    pub(super) fn must_be_set_up_able(&self, operation: &'static str) -> Result<(), PortError> {
        self.must(operation, "configured or stopped", |state| {
            matches!(state, PortState::Configured | PortState::Stopped)
        })
    }

    pub(super) fn wrong_state(&self, operation: &'static str, allowed: &'static str) -> PortError {
        PortError::State { port: self.name.to_string(), operation, state: self.state(), allowed }
    }

    pub(super) fn must_be_unicast(&self, mac: MacAddress) -> Result<(), PortError> {
        if mac.is_unicast() { Ok(()) } else { Err(self.bad_address(mac, "a unicast address")) }
    }

    pub(super) fn bad_address(&self, mac: MacAddress, expected: &'static str) -> PortError {
        PortError::Address { port: self.name.to_string(), mac, expected }
    }

    pub(super) fn within(&self, what: &'static str, value: u64, min: u64, max: u64) -> Result<(), PortError> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(PortError::Limit { port: self.name.to_string(), what, value, min, max })
    }

    /// Scatter and LRO, as far as they are asked for.
    pub(super) fn check_long_packets(&self, config: &PortConfig) -> Result<(), PortError> {
        if config.scatter == Some(false) && config.rx_offloads.contains(RxOffloads::SCATTER) {
            return Err(PortError::Argument {
                port: self.name.to_string(),
                key: "scatter".into(),
                value: "false".into(),
                expected: "the rx offload SCATTER asks for it: leave one of the two out".into(),
            });
        }
        let Some(bytes) = config.max_lro_bytes else { return Ok(()) };
        if self.info.max_lro_bytes == 0 {
            let reason = "the port joins no packets";
            return Err(PortError::unsupported("max LRO packet size", reason).named(&self.name));
        }
        self.within("max LRO packet size", bytes.into(), LRO_MIN.into(), self.info.max_lro_bytes.into())
    }

    /// Whether an rx queue that asks for `own` makes chains of long frames.
    pub(super) fn scatters(&self, own: RxOffloads) -> bool {
        let asked = (self.shown.config.rx_offloads | own).contains(RxOffloads::SCATTER);
        asked || self.shown.config.scatter.unwrap_or(self.info.rx_offloads.contains(RxOffloads::SCATTER))
    }

    /// Whether packets may come in as chains of mbufs under this configuration. Whoever sends them on needs
    /// [`TxOffloads::MULTI_SEGS`].
    ///
    /// # Errors
    /// When gone or closed; when the device does not tell its MTU.
    pub fn may_receive_chains(&mut self, config: &PortConfig) -> Result<bool, PortError> {
        if config.rx_queues.iter().any(|queue| !queue.segments.is_empty()) {
            return Ok(true);
        }
        let asked = |queue: &RxQueueConfig| {
            let asked = (config.rx_offloads | queue.offloads).contains(RxOffloads::SCATTER);
            asked || config.scatter.unwrap_or(self.info.rx_offloads.contains(RxOffloads::SCATTER))
        };
        let rooms = config.rx_queues.iter().filter(|queue| asked(queue));
        let room = rooms.map(|queue| queue.pool.data_room().saturating_sub(queue.pool.headroom())).min();
        let Some(room) = room else { return Ok(false) };
        let Some(overhead) = self.info.rx_frame_overhead else { return Ok(true) };
        if config.rx_offloads.contains(RxOffloads::TCP_LRO) {
            return Ok(true);
        }
        let mtu = config.mtu.map_or_else(|| self.mtu(), Ok)?;
        Ok(mtu as usize + usize::from(overhead) > room)
    }

    pub(super) fn rx_descriptors(&self, wanted: u16) -> Result<u16, PortError> {
        self.descriptors("rx descriptor count", wanted, self.info.rx_descriptors)
    }

    pub(super) fn tx_descriptors(&self, wanted: u16) -> Result<u16, PortError> {
        self.descriptors("tx descriptor count", wanted, self.info.tx_descriptors)
    }

    pub(super) fn descriptors(
        &self,
        what: &'static str,
        wanted: u16,
        limits: DescriptorLimits,
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

    /// Asked of all queues: anything that the port offers.
    pub(super) fn check_offloads(&self, rx: RxOffloads, tx: TxOffloads) -> Result<(), PortError> {
        self.offered(Direction::Rx, None, rx, self.info.rx_offloads)?;
        self.offered(Direction::Tx, None, tx, self.info.tx_offloads)
    }

    /// Asked of one rx queue: what all do anyway, or what the port offers queue by queue.
    pub(super) fn check_rx_queue_offloads(
        &self,
        queue: usize,
        wanted: RxOffloads,
        all: RxOffloads,
    ) -> Result<(), PortError> {
        self.offered(Direction::Rx, Some(queue), wanted - all, self.info.rx_queue_offloads)
    }

    /// The same of one tx queue.
    pub(super) fn check_tx_queue_offloads(
        &self,
        queue: usize,
        wanted: TxOffloads,
        all: TxOffloads,
    ) -> Result<(), PortError> {
        self.offered(Direction::Tx, Some(queue), wanted - all, self.info.tx_queue_offloads)
    }

    fn offered<F>(
        &self,
        direction: Direction,
        queue: Option<usize>,
        wanted: F,
        offered: F,
    ) -> Result<(), PortError>
    where
        F: bitflags::Flags<Bits = u64> + Copy,
    {
        let refused = wanted.difference(offered);
        if refused.is_empty() {
            return Ok(());
        }
        Err(PortError::Offload {
            port: self.name.to_string(),
            direction,
            queue: queue.map(|number| QueueId(u16::try_from(number).unwrap_or(u16::MAX))),
            refused: names(&refused),
            offered: names(&offered),
        })
    }

    pub(super) fn no_queue(&self, direction: Direction, queue: QueueId) -> PortError {
        let configured = match direction {
            Direction::Rx => self.shown.config.rx_queues.len(),
            Direction::Tx => self.shown.config.tx_queues.len(),
        };
        PortError::NoQueue { port: self.name.to_string(), direction, queue, configured }
    }

    pub(super) fn no_queue_held(&self) -> Result<(), PortError> {
        let held = |direction, number: usize| PortError::QueueHeld {
            port: self.name.to_string(),
            direction,
            queue: QueueId(u16::try_from(number).unwrap_or(u16::MAX)),
        };
        if let Some(number) = self.shown.rx.iter().position(|slot| slot.counters.line().is_owned()) {
            return Err(held(Direction::Rx, number));
        }
        if let Some(number) = self.shown.tx.iter().position(|slot| slot.counters.line().is_owned()) {
            return Err(held(Direction::Tx, number));
        }
        Ok(())
    }

    pub(super) fn check_pool(&self, queue: QueueId, config: &RxQueueConfig) -> Result<(), PortError> {
        if !config.segments.is_empty() {
            // How many mbufs an entry has is the driver's to know.
            return Ok(());
        }
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
