//! What a driver gives: a control half and, per queue, a data half.
//!
//! The control handle calls [`PortDriver`] and checks states and limits before it does, so a driver sees only calls
//! that are in order. The data halves move to lcores; each burst is one dynamic call.
#[cfg(any(test, feature = "conformance"))]
mod alone;
mod feature;
mod info;

#[cfg(any(test, feature = "conformance"))]
pub use alone::Alone;
pub use feature::{ClockDriver, FlowDriver, RssDriver, VlanDriver};
pub use info::{DriverInfo, PCI_ANY};

pub use crate::burst::{BurstWatch, InBurst, QueueOwner};
use crate::config::PortConfig;
use crate::link::{Fec, FecModes, SpeedFec, SpeedLanes};
use crate::{
    BadPacket, Direction, EventSink, Gate, Link, MacAddress, PortError, PortId, PortInfo, QueueId,
    RxCounters, RxOffloads, RxSegment, TxCounters, TxOffloads,
};
use pollux_mempool::{Burst, ExternalMemory, Mbuf, MbufPool};
use std::borrow::Cow;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A word in memory that changes when a packet arrives, for `umwait` and its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerMonitor {
    /// Where it stands; valid as long as the queue value is.
    pub address: usize,
    /// Its size in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// While `value & mask == expected` nothing has arrived.
    pub mask: u64,
    /// See [`PowerMonitor::mask`]. Both in the processor's byte order.
    pub expected: u64,
}

/// What a burst moved. The queue value counts it, so a driver cannot forget to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Packets.
    pub packets: usize,
    /// Their bytes, all segments.
    pub bytes: u64,
}

impl Moved {
    /// Nothing moved.
    pub const NONE: Self = Self { packets: 0, bytes: 0 };

    /// What moves when all of these do: one look at each header.
    #[inline]
    #[must_use]
    pub fn of(mbufs: &[Mbuf]) -> Self {
        Self { packets: mbufs.len(), bytes: mbufs.iter().map(|mbuf| u64::from(mbuf.pkt_len())).sum() }
    }
}

/// State of one rx descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxDescriptor {
    /// Waits for a packet.
    Available,
    /// Holds a packet that was not yet fetched.
    Done,
    /// Used by neither side.
    Unavailable,
}

/// State of one tx descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxDescriptor {
    /// Waits to be sent.
    Full,
    /// Sent, or free.
    Done,
    /// Used by neither side.
    Unavailable,
}

/// A driver's half of an rx queue. Lives on one lcore.
///
/// A burst writes to it. Unless the type fills cache lines of its own (`#[repr(align(128))]`, which covers the line that x86
/// fetches along; or it has no bytes), the heap may put it beside a queue of another lcore, and each burst takes the line from
/// the other: two lcores were seen to move a quarter of their packets. The conformance list checks it.
///
/// `inside` says that a burst of the queue is under way, for as long as it is borrowed. [`Port::stop`](crate::Port::stop)
/// waits for it, and so does a driver that takes single queues from their lcores, by [`RxCounters::watch`]; others have no use
/// for it. A layer passes it on.
pub trait RxBurst: Send {
    /// Appends up to `max` received mbufs to `burst`. `max` never exceeds the room left in it.
    ///
    /// Hot: no lock, no allocation, no log; a system call only where packets come through the kernel.
    fn rx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved;

    /// Called before the first burst after each start of the port.
    fn resume(&mut self) {}

    /// Takes from `spare` mbufs to receive into, as far as there is room: those that are plain mbufs of its own pool
    /// ([`Mbuf::is_plain_of`]). What they hold means nothing. The rest stays in `spare`. How many were taken.
    ///
    /// Hot.
    ///
    /// # Errors
    /// [`PortError::Unsupported`], with the reason.
    fn refill(&mut self, inside: &InBurst<'_>, spare: &mut Burst) -> Result<usize, PortError> {
        let _ = (inside, spare);
        Err(PortError::unsupported("refill", "the queue keeps no mbufs to receive into"))
    }

    /// Which of its ways of receiving the driver chose.
    fn mode(&self) -> &'static str;

    /// Packets that wait in the queue.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    fn queue_count(&self) -> Result<usize, PortError> {
        Err(PortError::unsupported("rx queue count", "the device does not tell"))
    }

    /// State of the descriptor `offset` places behind the next one to be fetched.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    fn descriptor_status(&self, offset: usize) -> Result<RxDescriptor, PortError> {
        let _ = offset;
        Err(PortError::unsupported("rx descriptor status", "the device does not tell"))
    }

    /// Tells of arrivals from now on, or no longer and takes what was told off the descriptor.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where arrivals are not told.
    fn set_interrupt(&mut self, on: bool) -> Result<(), PortError> {
        let _ = on;
        Err(PortError::unsupported("rx interrupt", NO_INTERRUPT))
    }

    /// What becomes readable then.
    ///
    /// # Errors
    /// As [`RxBurst::set_interrupt`].
    fn interrupt_fd(&self) -> Result<BorrowedFd<'_>, PortError> {
        Err(PortError::unsupported("rx interrupt", NO_INTERRUPT))
    }

    /// The word that the next arrival changes.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where there is none.
    fn power_monitor(&self) -> Result<PowerMonitor, PortError> {
        Err(PortError::unsupported("power monitor", "no single word in memory changes when a packet arrives"))
    }
}

/// Why most ports cannot wake anybody.
const NO_INTERRUPT: &str = "the queue is only ever polled, or was not configured for interrupts";

/// A driver's half of a tx queue. Lives on one lcore; all said of [`RxBurst`] holds for it.
pub trait TxBurst: Send {
    /// Takes as many mbufs as fit from the front of `burst`; what is left stays there.
    ///
    /// A packet that can never be sent is taken as well, counted as dropped with its reason and not in the answer.
    /// Hot, as [`RxBurst::rx_burst`].
    fn tx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst) -> Moved;

    /// Called before the first burst after each start of the port.
    fn resume(&mut self) {}

    /// Appends mbufs that are sent to `spare`, as far as there is room, instead of freeing them; how many. From the first
    /// call on some are kept for the next.
    ///
    /// Hot.
    ///
    /// # Errors
    /// [`PortError::Unsupported`], with the reason.
    fn recycle(&mut self, inside: &InBurst<'_>, spare: &mut Burst) -> Result<usize, PortError> {
        let _ = (inside, spare);
        Err(PortError::unsupported("recycle", "the queue holds no mbuf after sending"))
    }

    /// Which of its ways of sending the driver chose.
    fn mode(&self) -> &'static str;

    /// Frees up to `max` mbufs that are sent but still held (0: all). How many were freed.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where that cannot be told.
    fn done_cleanup(&mut self, max: usize) -> Result<usize, PortError> {
        let _ = max;
        Err(PortError::unsupported("tx done cleanup", "the driver holds no mbuf after sending"))
    }

    /// Packets that wait to be sent.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    fn queue_count(&self) -> Result<usize, PortError> {
        Err(PortError::unsupported("tx queue count", "the device does not tell"))
    }

    /// State of the descriptor `offset` places behind the next one to be filled.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the device does not tell.
    fn descriptor_status(&self, offset: usize) -> Result<TxDescriptor, PortError> {
        let _ = offset;
        Err(PortError::unsupported("tx descriptor status", "the device does not tell"))
    }

    /// What the device cannot do at present of what the queue was set up to do: packets that ask for it are finished in software
    /// and offered again. For drivers with [`PortInfo::tx_offloads_vary`]. Asked before and after a burst with packets that ask
    /// for something, so a driver that finds out while it sends leaves the packet in the burst and says so here.
    fn lacks(&mut self) -> TxOffloads {
        TxOffloads::empty()
    }

    /// Checks and mends what only the driver knows of; the rest of [`TxQueue::tx_prepare`](crate::TxQueue::tx_prepare) is
    /// done by then.
    ///
    /// # Errors
    /// The first packet that cannot be sent.
    fn prepare(&mut self, mbufs: &mut [Mbuf]) -> Result<(), BadPacket> {
        let _ = mbufs;
        Ok(())
    }
}

/// What a driver gets to set up an rx queue.
#[derive(Clone, Debug)]
pub struct RxSetup {
    /// The port's number, for the mbufs' port field.
    pub port: PortId,
    /// The queue's number.
    pub queue: QueueId,
    /// Ring size, inside the limits the driver stated.
    pub descriptors: u16,
    /// Where mbufs come from.
    pub pool: MbufPool,
    /// How packets are split, inside what the driver stated in [`PortInfo::split`]; at least one part has a pool. None: they
    /// are not.
    pub segments: Vec<RxSegment>,
    /// What to do to packets: what was asked of the port and of this queue, inside what the driver stated.
    pub offloads: RxOffloads,
    /// A frame longer than one buffer may arrive as a chain: it was asked for, or the driver offers it and nobody said no.
    /// Else it is dropped as [`RxDrop::TooLong`](crate::RxDrop::TooLong).
    pub scatter: bool,
    /// A packet joined of several that is longer than this is dropped, with the same reason.
    pub max_lro_bytes: u32,
    /// It stays stopped when the port starts. Never true where [`PortInfo::queue_control`] is not.
    pub deferred_start: bool,
    /// It is to tell of arrivals. Never true where [`PortInfo::rx_interrupts`] is not.
    pub interrupts: bool,
    /// Where to count drops, and what tells of bursts under way. Packets and bytes are counted by the queue value.
    pub counters: Arc<RxCounters>,
    /// To tell that the device is gone.
    pub gate: Gate,
}

/// What a driver gets to set up a tx queue.
#[derive(Clone, Debug)]
pub struct TxSetup {
    /// The port's number.
    pub port: PortId,
    /// The queue's number.
    pub queue: QueueId,
    /// Ring size, inside the limits the driver stated.
    pub descriptors: u16,
    /// What packets may ask for: what was asked of the port and of this queue, inside what the driver stated.
    pub offloads: TxOffloads,
    /// What [`TxBurst::lacks`] names is finished in software in front of the driver.
    pub finishing: bool,
    /// It stays stopped when the port starts. Never true where [`PortInfo::queue_control`] is not.
    pub deferred_start: bool,
    /// Where to count drops, and what tells of bursts under way.
    pub counters: Arc<TxCounters>,
    /// To tell that the device is gone.
    pub gate: Gate,
}

/// The control half of a driver.
///
/// Methods without a body must be there; the rest answer [`PortError::Unsupported`] or do nothing. Errors may leave the
/// port's name empty, the control handle puts it in.
#[expect(
    clippy::missing_errors_doc,
    reason = "every method fails alike: unsupported, or what the device said"
)]
pub trait PortDriver: Send {
    /// What the port is and what it can do. May change after `configure` (speed, say), limits may not.
    fn info(&self) -> PortInfo;

    /// Takes queue counts and options, checked against [`PortDriver::info`]. Queues of an earlier configuration are
    /// dropped by now.
    fn configure(&mut self, config: &PortConfig) -> Result<(), PortError> {
        let _ = config;
        Ok(())
    }

    /// Makes the data half of an rx queue. An earlier one of this number is dropped by now.
    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError>;

    /// Makes the data half of a tx queue. An earlier one of this number is dropped by now.
    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError>;

    /// Lets packets flow. The gate opens after this returns.
    fn start(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Ends the flow. The gate is shut by now and no burst is under way, but for one that has outlasted
    /// [`STOP_PATIENCE`](crate::STOP_PATIENCE).
    fn stop(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Gives back what the port holds. Data halves may outlive it and own what they need.
    fn close(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Sets the device back to how it was when it was opened. The port is stopped by now.
    fn reset(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Brings counters that the device or kernel keeps up to date, before they are read.
    fn update_counters(&self) {}

    /// The driver's own statistics: name and value since the device was opened. Names never clash with those that every
    /// port has and stay the same until the port is configured anew.
    fn xstats(&self) -> Vec<(Cow<'static, str>, u64)> {
        Vec::new()
    }

    /// One of [`PortDriver::xstats`], or a reason for drops, need not be counted any more, or is wanted again. Only a device
    /// that gains from it does anything: the control handle lets the number stand still anyway.
    fn set_xstat_enabled(&mut self, name: &str, on: bool) -> Result<(), PortError> {
        let _ = (name, on);
        Ok(())
    }

    /// The link now, of a port that is `started` or not: one without a wire is up while it is.
    fn link(&mut self, started: bool) -> Link;

    /// Over how many lanes the link can run, by speed.
    fn lane_capabilities(&mut self) -> Result<Vec<SpeedLanes>, PortError> {
        Err(PortError::unsupported("lane capabilities", "the device does not tell its lanes"))
    }

    /// Changes the number of lanes; at least 1.
    fn set_lanes(&mut self, lanes: u16) -> Result<(), PortError> {
        let _ = lanes;
        Err(PortError::unsupported("lane change", "the device has no lanes to choose"))
    }

    /// Which error corrections the link can use, by speed.
    fn fec_capabilities(&mut self) -> Result<Vec<SpeedFec>, PortError> {
        Err(PortError::unsupported("FEC capabilities", "there is no wire to correct errors of"))
    }

    /// The error correction asked for and that in use.
    fn fec(&mut self) -> Result<Fec, PortError> {
        Err(PortError::unsupported("FEC", "there is no wire to correct errors of"))
    }

    /// Asks for one of these error corrections; never empty, and [`FecModes::OFF`] stands alone.
    fn set_fec(&mut self, modes: FecModes) -> Result<(), PortError> {
        let _ = modes;
        Err(PortError::unsupported("FEC change", "there is no wire to correct errors of"))
    }

    /// Takes the link up or down.
    fn set_link_up(&mut self, up: bool) -> Result<(), PortError> {
        let _ = up;
        Err(PortError::unsupported("link up/down", "the device has no switch for it"))
    }

    /// The largest payload of an Ethernet frame, in bytes.
    fn mtu(&mut self) -> Result<u32, PortError>;

    /// Changes it; inside the limits of [`PortDriver::info`].
    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        let _ = mtu;
        Err(PortError::unsupported("MTU change", "the device's MTU is fixed"))
    }

    /// Receives frames whatever their destination, or not.
    fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        let _ = on;
        Err(PortError::unsupported("promiscuous mode", "the device has no address filter"))
    }

    /// Receives all multicast frames, or not.
    fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        let _ = on;
        Err(PortError::unsupported("all-multicast mode", "the device has no address filter"))
    }

    /// Leaves packets that find the addresses of neighbours to the kernel, or not.
    fn set_neighbours_by_kernel(&mut self, on: bool) -> Result<(), PortError> {
        let _ = on;
        Err(PortError::unsupported(
            "leaving neighbours to the kernel",
            "no rules of the device stand before it",
        ))
    }

    /// The port's own address.
    fn mac_address(&mut self) -> Result<MacAddress, PortError>;

    /// Changes it; always a unicast address.
    fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        let _ = mac;
        Err(PortError::unsupported("address change", "the device's address is fixed"))
    }

    /// Receives frames to a further address, not yet known.
    fn add_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        let _ = mac;
        Err(PortError::unsupported("further addresses", "the device has no address filter"))
    }

    /// Takes an added address back.
    fn remove_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        let _ = mac;
        Err(PortError::unsupported("further addresses", "the device has no address filter"))
    }

    /// Receives frames to exactly these groups.
    fn set_multicast_list(&mut self, groups: &[MacAddress]) -> Result<(), PortError> {
        let _ = groups;
        Err(PortError::unsupported("multicast list", "the device has no address filter"))
    }

    /// Lets the device reach memory that is no pool's, and keeps it until it is unregistered or the driver is dropped. A driver
    /// whose packets are read by the processor needs to know of none.
    fn register_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        let _ = memory;
        Ok(())
    }

    /// The device reaches it no more, and it may be freed. It was registered.
    fn unregister_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        let _ = memory;
        Ok(())
    }

    /// Where to tell what happens by itself; called once, before anything else. A driver to which nothing ever happens
    /// but a change of link or the loss of its device needs none.
    fn connect(&mut self, events: &EventSink) {
        let _ = events;
    }

    /// Lets one rx queue move packets, which is set up and stands still. The port is started.
    fn rx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        let _ = queue;
        Err(PortError::unsupported("rx queue start", QUEUES_GO_TOGETHER))
    }

    /// Ends that, once the burst under way has ended ([`BurstWatch`]); packets that wait in the queue may be lost.
    fn rx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        let _ = queue;
        Err(PortError::unsupported("rx queue stop", QUEUES_GO_TOGETHER))
    }

    /// Lets one tx queue move packets, which is set up and stands still. The port is started.
    fn tx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        let _ = queue;
        Err(PortError::unsupported("tx queue start", QUEUES_GO_TOGETHER))
    }

    /// Ends that, once the burst under way has ended; mbufs given to the device come home.
    fn tx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        let _ = queue;
        Err(PortError::unsupported("tx queue stop", QUEUES_GO_TOGETHER))
    }

    /// A queue in words, for whoever looks for a fault: numbers, indices, health, descriptors. It was set up. At any time: what
    /// the lcore that polls the queue has to itself is left out while it does.
    fn dump_queue(&mut self, direction: Direction, queue: QueueId) -> Result<String, PortError> {
        let _ = (direction, queue);
        Err(PortError::unsupported("queue dump", "its queues have no descriptors that could be shown"))
    }

    /// The hash; must be there when [`PortInfo::rss`] says so.
    fn rss(&mut self) -> Result<&mut dyn RssDriver, PortError> {
        Err(PortError::unsupported("RSS", "the device does not spread packets by a hash"))
    }

    /// Flow rules.
    fn flow(&mut self) -> Result<&mut dyn FlowDriver, PortError> {
        Err(PortError::unsupported("flow rules", "the device does not match packets"))
    }

    /// VLAN tags.
    fn vlan(&mut self) -> Result<&mut dyn VlanDriver, PortError> {
        Err(PortError::unsupported("VLAN control", "the device leaves tags in received frames as they are"))
    }

    /// The clock.
    fn clock(&mut self) -> Result<&mut dyn ClockDriver, PortError> {
        Err(PortError::unsupported("device clock", "the device has no clock"))
    }
}

/// Why queues of most ports cannot be stopped.
const QUEUES_GO_TOGETHER: &str = "its queues stop and start with the port";
