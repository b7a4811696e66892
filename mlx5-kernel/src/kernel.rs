//! A device and the channels to it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::eqe::event;
use pollux_uverbs::{Channel, Errno};

use crate::adapter::Adapter;
use crate::capability::{self, Caps};
use crate::clock::Clock;
use crate::core::{Core, Life};
use crate::device::{CommandQueue, DmaMemory};
use crate::dm::page::DevicePages;
use crate::error::KernelError;
use crate::event::queue::{ASYNC_EVENTS, EventQueue};
use crate::firmware::Firmware;
use crate::joined::{Joined, SECOND};
use crate::loopback::LocalLoopback;
use crate::neighbour::{Neighbours, Network};
use crate::paging::Paging;
use crate::port::Port;
use crate::profile::DoorProfile;
use crate::rate::Rates;
use crate::start::{self, LentPages};
use crate::steering::Steering;
use crate::uverbs_channel::UverbsChannel;
use crate::xrcd::domain::XrcDomains;

/// Most completion vectors that are set up.
const VECTORS_MAX: u32 = 16;

/// A device with its firmware running, and the kernel's own objects on it: event queues and their UARs.
///
/// Channels keep it alive; when the last handle and the last channel are gone the function is brought down in order.
#[derive(Debug)]
pub struct Kernel {
    life: Arc<Life>,
}

impl Kernel {
    /// Starts the device behind `queue`, which reaches memory through `memory`. `profile` says what this kernel lacks.
    ///
    /// # Errors
    /// [`KernelError`] with the command that the firmware refused, or what could not be had.
    pub fn new(
        queue: Arc<dyn CommandQueue>,
        memory: Arc<dyn DmaMemory>,
        profile: DoorProfile,
    ) -> Result<Arc<Self>, KernelError> {
        Self::begin(queue, memory, profile, None)
    }

    /// The same with a network of the kernel's own at the port: its addresses become GIDs, are answered for on the wire, and
    /// others are asked for there.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_network(
        queue: Arc<dyn CommandQueue>,
        memory: Arc<dyn DmaMemory>,
        profile: DoorProfile,
        network: Network,
    ) -> Result<Arc<Self>, KernelError> {
        Self::begin(queue, memory, profile, Some(network))
    }

    fn begin(
        queue: Arc<dyn CommandQueue>,
        memory: Arc<dyn DmaMemory>,
        profile: DoorProfile,
        network: Option<Network>,
    ) -> Result<Arc<Self>, KernelError> {
        let firmware = Firmware::new(queue);
        let mut pages = start::enable(&firmware, memory.as_ref())?;
        match Self::load(&firmware, memory.as_ref(), profile, network) {
            Ok(loaded) => Ok(Self::assemble(firmware, memory, profile, pages, loaded)),
            Err(error) => {
                start::shut_down(&firmware, &mut pages);
                Err(error)
            }
        }
    }

    /// What is done between the firmware's start and the first channel.
    fn load(
        firmware: &Firmware,
        memory: &dyn DmaMemory,
        profile: DoorProfile,
        network: Option<Network>,
    ) -> Result<Loaded, KernelError> {
        let caps = Caps::read(firmware)?;
        check(&caps)?;
        let clock = firmware.queue.clock();
        let clock = clock.map(|page| Clock::new(page, caps.general(GeneralCaps::DEVICE_FREQUENCY_KHZ)));
        let clock = clock.transpose()?;
        let dump_fill_mkey =
            if caps.has(GeneralCaps::DUMP_FILL_MKEY) { Some(start::dump_fill_mkey(firmware)?) } else { None };
        let mut queues = Vec::new();
        let port = make_queues(firmware, memory, &caps, &mut queues).and_then(|()| {
            let addresses = network.as_ref().map_or(&[][..], |network| &network.addresses);
            Port::start(firmware, &caps, addresses)
        });
        let port = port.inspect_err(|_| queues.iter().rev().for_each(|queue| queue.destroy(firmware)))?;
        let general_uid = if !profile.no_devx && caps.general(GeneralCaps::LOG_MAX_UCTX) > 0 {
            start::create_user_context(firmware, 0).unwrap_or(0)
        } else {
            0
        };
        let write_combining = !profile.no_blue_flame && caps.has(GeneralCaps::BF) && {
            let uar = queues[0].uar();
            firmware.queue.uar(uar, true).is_some()
        };
        let neighbours = network.map(|network| Neighbours::start(network, port.mac));
        Ok(Loaded { caps, port, neighbours, clock, queues, write_combining, general_uid, dump_fill_mkey })
    }

    fn assemble(
        firmware: Firmware,
        memory: Arc<dyn DmaMemory>,
        profile: DoorProfile,
        pages: LentPages,
        loaded: Loaded,
    ) -> Arc<Self> {
        let steering = Mutex::new(Steering::new(&loaded.caps));
        let adapter = Arc::new(Adapter {
            firmware,
            memory,
            caps: loaded.caps,
            events: Arc::default(),
            management: AtomicBool::new(false),
            key_variant: AtomicU8::new(1),
        });
        let core = Arc::new(Core {
            paging: Arc::new(Paging::new(Arc::clone(&adapter))),
            adapter,
            profile,
            port: Arc::new(loaded.port),
            joined: OnceLock::new(),
            neighbours: loaded.neighbours,
            xrc: XrcDomains::default(),
            device_pages: DevicePages::default(),
            own: Mutex::default(),
            loopback: LocalLoopback::default(),
            steering,
            clock: loaded.clock,
            queues: loaded.queues,
            write_combining: loaded.write_combining,
            general_uid: loaded.general_uid,
            dump_fill_mkey: loaded.dump_fill_mkey,
            pages_wanted: AtomicU32::new(0),
            pages: Mutex::new(pages),
            rates: Rates::default(),
            abandoned: AtomicUsize::new(0),
            objects: Arc::default(),
        });
        if core.pages_on_demand() {
            core.paging.start();
        }
        for vector in 0..core.firmware.queue.vectors() {
            let weak: Weak<Core> = Arc::downgrade(&core);
            let handler = move || {
                if let Some(core) = weak.upgrade() {
                    core.interrupt(vector);
                }
            };
            core.firmware.queue.on_interrupt(vector, Arc::new(handler));
        }
        Arc::new(Self { life: Arc::new(Life { core, second: OnceLock::new() }) })
    }

    /// Makes the port of another function of the card, `second`, the second port of this one's RDMA device, as Linux does in its multiport
    /// mode: its link and its addresses become those of port 2, its events are told as those of port 2. The other function keeps its
    /// Ethernet; it lives as long as this one.
    ///
    /// Contexts that are open already may not notice.
    ///
    /// # Errors
    /// [`KernelError::Unfit`] when the capabilities or GUIDs of the two say that they do not belong together, or when there is a second
    /// port already; what the firmware refused.
    pub fn join(&self, second: &Self) -> Result<(), KernelError> {
        let (first, other) = (&self.life.core, &second.life.core);
        let (adapter, port) = (Arc::clone(&other.adapter), Arc::clone(&other.port));
        if first.joined.get().is_some() {
            return Err(KernelError::Unfit {
                what: "ports",
                value: 2,
                wanted: "one before a second is joined",
            });
        }
        let joined =
            Joined::join(&first.adapter, first.port.system_guid, adapter, port, other.neighbours.clone())?;
        other.events.join(&first.events, SECOND);
        // Nobody else sets them: whoever makes both functions joins them, once.
        let _ = first.joined.set(joined);
        let _ = self.life.second.set(Arc::clone(&second.life));
        Ok(())
    }

    /// Opens a channel: what opening the device's file is. Dropping its last handle destroys what was made through it.
    #[must_use]
    pub fn open(&self) -> Arc<dyn Channel> {
        self.channel(self.life.core.profile.management)
    }

    /// A channel of the kernel's own, which has queue pair 1 also where programs are refused it: whoever stands for the kernel's connection
    /// manager opens it.
    #[must_use]
    pub fn open_for_management(&self) -> Arc<dyn Channel> {
        self.channel(true)
    }

    fn channel(&self, has_management: bool) -> Arc<dyn Channel> {
        Arc::new(UverbsChannel::new(Arc::clone(&self.life), has_management))
    }

    /// The device was taken away: contexts are told `DEVICE_FATAL`, and every call from here on is `EIO`.
    pub fn remove(&self) {
        self.life.core.fail();
        if let Some(second) = self.life.second.get() {
            second.core.fail();
        }
    }

    /// Whether the device is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.life.core.firmware.is_gone()
    }

    /// How many ports the RDMA device has: 1, or 2 after [`join`](Self::join).
    #[must_use]
    pub fn ports(&self) -> u8 {
        self.life.core.ports()
    }

    /// Packets that found no receive buffer, of all receive queues of verbs: what sysfs tells as `out_of_buffer` of port 1.
    ///
    /// # Errors
    /// `EIO` when the device is gone, `EOPNOTSUPP` when it has no such counter.
    pub fn out_of_buffer(&self) -> Result<u32, Errno> {
        self.life.core.port.counters.out_of_buffer(&self.life.core)
    }

    /// Counters of all queues of verbs at a port, under the names of sysfs' `hw_counters`, each of 32 bits, which run over.
    ///
    /// # Errors
    /// As [`out_of_buffer`](Self::out_of_buffer); `EINVAL` when there is no such port.
    pub fn hw_counters(&self, port: u8) -> Result<Vec<(&'static str, u32)>, Errno> {
        self.life.core.outlet(port.into())?.counters.named(&self.life.core)
    }

    /// Another process, whose calls were carried out here, has ended or runs another program: what it registered on demand is no memory
    /// any more.
    pub fn forget_process(&self, process: u32) {
        self.life.core.paging.forget_process(process);
    }

    /// Questions for pages of memory registered on demand that were answered with pages, of all regions. Linux tells of each region how many
    /// pages it brought (`page_faults`).
    #[must_use]
    pub fn page_faults(&self) -> u64 {
        self.life.core.paging.faults()
    }

    /// Objects that nobody destroyed before their channel was closed, which left it to the kernel; of a device that is gone none
    /// are counted.
    #[must_use]
    pub fn abandoned(&self) -> usize {
        self.life.core.abandoned.load(Ordering::Relaxed)
    }

    /// Objects that programs made so far, and how many of those are there.
    #[must_use]
    pub fn objects(&self) -> (u64, u64) {
        let objects = &self.life.core.objects;
        (objects.made.load(Ordering::Relaxed), objects.living.load(Ordering::Relaxed))
    }

    /// The port's own MAC address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.life.core.port.mac
    }
}

/// What [`Kernel::load`] found and made.
struct Loaded {
    caps: Caps,
    port: Port,
    neighbours: Option<Arc<Neighbours>>,
    clock: Option<Clock>,
    queues: Vec<EventQueue>,
    write_combining: bool,
    general_uid: u16,
    dump_fill_mkey: Option<u32>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("port", &self.port).finish_non_exhaustive()
    }
}

/// The kernel's own event queues: one for asynchronous events, and one for each completion vector.
fn make_queues(
    firmware: &Firmware,
    memory: &dyn DmaMemory,
    caps: &Caps,
    queues: &mut Vec<EventQueue>,
) -> Result<(), KernelError> {
    let vectors = firmware.queue.vectors();
    // The first vector is for asynchronous events; a device with one alone shares it.
    let completion = vectors.saturating_sub(1).clamp(1, VECTORS_MAX);
    let mut events = ASYNC_EVENTS.to_vec();
    if caps.pages_on_demand() {
        events.push(event::PAGE_FAULT);
    }
    queues.push(EventQueue::create(firmware, memory, 0, &events)?);
    for index in 0..completion {
        let vector = (index + 1).min(vectors.saturating_sub(1));
        queues.push(EventQueue::create(firmware, memory, vector, &[])?);
    }
    Ok(())
}

/// What nothing works without. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/uar.c`, which divides by the number of
/// UARs, and `drivers/infiniband/hw/mlx5/main.c`.
fn check(caps: &Caps) -> Result<(), KernelError> {
    let unfit = |what, field, wanted| {
        let value = u64::from(caps.general(field));
        Err(KernelError::Unfit { what, value, wanted })
    };
    if caps.general(GeneralCaps::PORT_TYPE) != pollux_mlx5_abi::caps::general::port_type::ETH {
        return unfit("port_type", GeneralCaps::PORT_TYPE, "Ethernet (1)");
    }
    if caps.general(GeneralCaps::NUM_PORTS) != 1 {
        return unfit("num_ports", GeneralCaps::NUM_PORTS, "1");
    }
    if caps.general(GeneralCaps::LOG_MAX_CQ) == 0 {
        return unfit("log_max_cq", GeneralCaps::LOG_MAX_CQ, "at least 1");
    }
    capability::sane(caps)
}
