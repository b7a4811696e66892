//! The device as others see it: commands, registers, interrupts, memory, and the step that does its work.
//!
//! One lock is around all of it, taken once a command, a doorbell that is handed over, or a step. Interrupt handlers are
//! called after it is let go, on the thread that made the step.

pub(crate) mod blue_flame;
pub(crate) mod bus;
pub(crate) mod core;
pub(crate) mod fast_path;
pub(crate) mod function;
pub(crate) mod joint;
pub(crate) mod late;
pub(crate) mod lent;
pub(crate) mod object;
pub(crate) mod ring;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod tap;
pub(crate) mod uar;
pub(crate) mod violation;
pub(crate) mod visibility;
#[cfg(feature = "trace")]
mod watch;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_eal::region::MemoryError;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::doorbell::uar::PAGE_BYTES;
use pollux_mlx5_abi::wqe::MkeyContext;
use pollux_mlx5_kernel::{CommandQueue, FrameListener, Gone, Identity, InterruptHandler};
use pollux_uverbs::{Page, Protection};
use zerocopy::FromBytes;

use crate::card::Traits;
use crate::event::VECTORS;
use crate::fault::{FaultPlan, Faults};
use crate::ledger::Ledger;
use crate::memory::{Bar, GuestMemory, Host, OWN, ProcessMemory};
use crate::memory_keys::{set_entries, set_memory, set_rights};
use crate::port::PortCounters;
use crate::time::Clock;
use crate::wire::Wire;
use bus::Bus;
use core::Core;
pub use core::Fence;
pub use fast_path::FastPath;
pub use joint::Joint;
use late::Late;
use lent::{BYTES as LENT_BYTES, OFFSET as LENT_OFFSET};
use uar::{FIRST_UAR, UARS};
pub use violation::{Before, Violation};
pub use visibility::Visibility;
#[cfg(feature = "trace")]
pub use watch::{Watched, watch, watch_as};

/// What a device is.
#[derive(Debug)]
pub struct DeviceConfig {
    /// Its name, for messages.
    pub name: String,
    /// What it can do.
    pub traits: Traits,
    /// Address of its port.
    pub mac: [u8; 6],
    /// MTU of its port at first.
    pub mtu: u16,
    /// Whether doorbells must keep the rules (see [`Violation`]); without, a doorbell only says that there is work.
    pub strict: bool,
    /// Most bytes that can be pinned.
    pub memlock: Option<u64>,
    /// What time it goes by.
    pub clock: Clock,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// Its end of what joins it to another function of its card, if it is one of two.
    pub joint: Option<Joint>,
}

impl Default for DeviceConfig {
    /// A ConnectX-6 Dx without faults, by the machine's clock, with strict doorbells.
    fn default() -> Self {
        Self {
            name: "mlx5_model0".into(),
            traits: Traits::default(),
            mac: [0x02, 0, 0, 0, 0, 1],
            mtu: 1500,
            strict: true,
            memlock: None,
            clock: Clock::machine(),
            faults: FaultPlan::default(),
            joint: None,
        }
    }
}

/// What the lock is around.
#[derive(Debug)]
struct Inside {
    core: Core,
    faults: Faults,
    late: Late,
    steps: u64,
    fast_path: Option<Arc<FastPath>>,
}

/// An adapter in software: one PCI function with one port. See the crate's documentation.
pub struct Device {
    inside: Mutex<Inside>,
    memory: ProcessMemory,
    /// The guest's, where the device is plugged into one: it reaches that and nothing of this process.
    guest: Option<Arc<GuestMemory>>,
    bar: Bar,
    /// Memory of the device that programs map.
    lent: Option<Bar>,
    ledger: Ledger,
    clock: Clock,
    handlers: Mutex<Vec<Option<InterruptHandler>>>,
    /// Who hears of the packets of the tap.
    listener: Mutex<Option<FrameListener>>,
    /// Set under the lock: whoever holds that and finds it unset may act.
    gone: AtomicBool,
    /// Callers that wait for the lock, so that a thread that steps all the time lets them in.
    waiting: AtomicUsize,
    name: String,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device {
    /// A device that is just powered up: commands bring it to life.
    ///
    /// # Errors
    /// When there is no memory for its registers.
    pub fn new(config: DeviceConfig, wire: Box<dyn Wire>) -> Result<Arc<Self>, MemoryError> {
        Self::over(config, wire, None)
    }

    /// The same for a guest: all that it reaches is the guest's memory.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_guest(
        config: DeviceConfig,
        wire: Box<dyn Wire>,
        memory: Arc<GuestMemory>,
    ) -> Result<Arc<Self>, MemoryError> {
        Self::over(config, wire, Some(memory))
    }

    fn over(
        config: DeviceConfig,
        wire: Box<dyn Wire>,
        guest: Option<Arc<GuestMemory>>,
    ) -> Result<Arc<Self>, MemoryError> {
        let DeviceConfig { name, traits, mac, mtu, strict, memlock, clock, faults, joint } = config;
        let faults = Faults::new(faults);
        let limit = [memlock, faults.memlock()].into_iter().flatten().min();
        let memory = ProcessMemory::new(limit);
        let bar = Bar::new(&name, UARS + 1)?;
        let pages = LENT_BYTES as usize / PAGE_BYTES;
        let lent = traits.device_memory.then(|| Bar::new(&name, pages)).transpose()?;
        let mut core = Core::new(traits, traits.blocks(joint.as_ref()), mac, mtu, strict, wire, joint);
        if guest.is_some() {
            core.violations.tell_as(&name);
        }
        core.lent.base = lent.as_ref().map(|lent| match &guest {
            None => {
                memory.add_own(lent.address(0), LENT_BYTES);
                lent.address(0)
            }
            Some(guest) => {
                guest.add_own(lent.clone());
                OWN
            }
        });
        Ok(Arc::new(Self {
            bar,
            lent,
            inside: Mutex::new(Inside { core, faults, late: Late::default(), steps: 0, fast_path: None }),
            memory,
            guest,
            ledger: Ledger::default(),
            clock,
            handlers: Mutex::new(vec![None; VECTORS as usize]),
            listener: Mutex::new(None),
            gone: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            name,
        }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The memory that it reaches: this process's, as far as it is pinned there.
    #[must_use]
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// What it made PCIe carry.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The clock it goes by.
    #[must_use]
    pub fn clock_source(&self) -> &Clock {
        &self.clock
    }

    /// Bytes of a BlueFlame buffer, of which each register has two.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.lock().core.traits.buffer_bytes()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        inside
    }

    /// The same, unless the device is gone.
    fn present(&self) -> Option<MutexGuard<'_, Inside>> {
        let inside = self.lock();
        (!self.is_gone()).then_some(inside)
    }

    fn ticks(&self) -> u64 {
        u64::try_from(self.clock.now().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Does something under the lock with a bus, then calls the handlers of the interrupts that fired and whoever listens to
    /// the wire.
    fn act<T>(
        &self,
        mut inside: MutexGuard<'_, Inside>,
        act: impl FnOnce(&mut Core, &mut Bus<'_>) -> T,
    ) -> T {
        let (mut ours, mut guests) = (None, None);
        let host: &dyn Host = match &self.guest {
            None => ours.insert(self.memory.session()),
            Some(guest) => guests.insert(guest.session()),
        };
        let Inside { core, faults, late, steps, fast_path } = &mut *inside;
        let real_time = core.traits.real_time_only;
        let broken = RefCell::new(Vec::new());
        let mut bus = Bus {
            host,
            ledger: &self.ledger,
            faults,
            late,
            broken: &broken,
            now: self.ticks(),
            step: *steps,
            real_time,
            fast_path: fast_path.as_deref(),
        };
        let answer = act(core, &mut bus);
        broken.take().into_iter().for_each(|violation| core.violations.note(violation));
        let fired = core.events.take_fired();
        let heard = core.tap.take_heard();
        drop((ours, guests));
        drop(inside);
        if fired != 0 {
            self.interrupt(fired);
        }
        if !heard.is_empty() {
            let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(listener) = listener {
                heard.iter().for_each(|frame| listener(frame));
            }
        }
        answer
    }

    /// Sends a frame with the next step.
    pub(crate) fn send_frame(&self, frame: &[u8]) {
        self.lock().core.tap.send(frame);
    }

    /// Sets who hears of ARP and neighbour discovery as they come from the wire: of those that no rule takes, and of copies of those
    /// that rules take which only look on.
    pub fn on_frame(&self, listener: FrameListener) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
        self.lock().core.tap.listens = true;
    }

    fn interrupt(&self, vectors: u64) {
        for vector in 0..VECTORS {
            if vectors >> vector & 1 == 1 {
                let handler = {
                    let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
                    handlers.get(vector as usize).cloned().flatten()
                };
                if let Some(handler) = handler {
                    handler();
                }
            }
        }
    }

    /// One turn: looks at the registers, carries out send work, takes frames from the wire, writes what completions wait.
    /// `budget` bounds the frames of each direction. True when there was anything to do.
    pub fn step(&self, budget: usize) -> bool {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_gone() {
            return false;
        }
        inside.steps += 1;
        if inside.faults.has_moments() {
            // Those that a flap drops count as well, or one on a port that only receives would never end.
            let dropped = inside.core.port.kept_out();
            let (packets, time) = (self.ledger.total().packets() + dropped, self.clock.now());
            if inside.faults.is_removed(packets, time) {
                drop(inside);
                self.remove();
                return true;
            }
            let down = inside.faults.link_is_down(packets, time);
            inside.core.flap(down);
        }
        self.bar.show_clock(self.ticks());
        self.act(inside, |core, bus| core.step(bus, &self.bar, budget))
    }

    /// A store to a UAR page that was seen as it was made: `offset` and `bytes` as they stand in memory now. The doorbell
    /// is checked on the spot; the work it announces is done by the next [`step`](Self::step).
    pub fn doorbell_store(&self, uar: u32, offset: usize, bytes: &[u8]) {
        let Some(inside) = self.present() else { return };
        self.act(inside, |core, bus| core.store(bus, &self.bar, uar, offset, bytes));
    }

    /// The addresses of all UAR pages, to have stores to them observed.
    #[must_use]
    pub fn registers(&self) -> Range<usize> {
        let Some(page) = self.bar.page(1, Protection::ReadWrite) else { return 0..0 };
        let start = page.base().as_ptr().addr();
        start..start + UARS * PAGE_BYTES
    }

    /// A store to a register, by address, of those in [`registers`](Self::registers), with the barrier that the thread passed
    /// before it. On a page that is mapped write-combining it arrives when the thread [flushes](Self::flush), which it must do
    /// before it steps the device: false while the store is on its way.
    pub fn ordered_store(&self, address: usize, bytes: &[u8], fence: Fence) -> bool {
        let registers = self.registers();
        let Some(inside) = self.present().filter(|_| registers.contains(&address)) else { return true };
        let at = address - registers.start;
        let place = (FIRST_UAR + (at / PAGE_BYTES) as u32, at % PAGE_BYTES);
        self.act(inside, |core, bus| core.ordered_store(bus, &self.bar, place, bytes, fence))
    }

    /// A store to a doorbell record, seen as it was made, with the barrier that the thread passed before it. False when it is no
    /// record of this device's.
    pub fn ordered_record(&self, address: usize, fence: Fence) -> bool {
        let Some(inside) = self.present() else { return false };
        self.act(inside, |core, bus| core.ordered_record(bus, address as u64, fence))
    }

    /// This thread flushed its stores to write-combining memory.
    pub fn flush(&self) {
        let Some(inside) = self.present() else { return };
        self.act(inside, |core, bus| core.flush(bus, &self.bar));
    }

    /// Software passed a barrier behind its look at what the device wrote. What that wrote before it went arrives too.
    pub fn sees_device(&self) {
        let inside = self.lock();
        self.act(inside, |core, bus| {
            bus.late.settle(bus.host);
            core.completions.see_all(bus);
        });
    }

    /// When what the device writes becomes visible: at the next [`sees_device`](Self::sees_device), or before, and what is given back
    /// is overwritten at [`ordered_record`](Self::ordered_record).
    pub fn set_visibility(&self, visibility: Visibility) {
        let inside = self.lock();
        self.act(inside, |core, bus| {
            bus.late.settle(bus.host);
            bus.late.set(visibility);
            core.completions.set_visibility(bus, visibility);
        });
    }

    /// The same as [`doorbell_store`](Self::doorbell_store) by address, of those in [`registers`](Self::registers).
    pub fn store(&self, address: usize, bytes: &[u8]) {
        let registers = self.registers();
        if registers.contains(&address) {
            let at = address - registers.start;
            self.doorbell_store(FIRST_UAR + (at / PAGE_BYTES) as u32, at % PAGE_BYTES, bytes);
        }
    }

    /// Copies to and from the memory that the device reaches.
    pub(crate) fn with_host<T>(&self, copy: impl FnOnce(&dyn Host) -> T) -> T {
        match &self.guest {
            None => copy(&self.memory.session()),
            Some(guest) => copy(&guest.session()),
        }
    }

    /// Reads memory of the device through the bus, by its offset in BAR 0. `false` where there is none.
    pub(crate) fn lent_read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.lent_at(offset).is_some_and(|at| self.with_host(|host| host.read(at, into)).is_ok())
    }

    /// Writes it.
    pub(crate) fn lent_write(&self, offset: u64, from: &[u8]) -> bool {
        self.lent_at(offset).is_some_and(|at| self.with_host(|host| host.write(at, from)).is_ok())
    }

    fn lent_at(&self, offset: u64) -> Option<u64> {
        let inside = offset.checked_sub(LENT_OFFSET).filter(|inside| *inside < LENT_BYTES)?;
        self.lent.as_ref().and(self.guest.as_ref()).map(|_| OWN + inside)
    }

    /// Whether an event queue asked for events of this kind.
    pub(crate) fn takes(&self, kind: u8) -> bool {
        self.lock().core.events.takes(kind)
    }

    /// Tells the event queue that asked for events of this kind. A device that is gone tells nobody.
    pub(crate) fn raise(&self, kind: u8, data: &[u8]) {
        let Some(inside) = self.present() else { return };
        self.act(inside, |core, bus| core.events.raise(bus, kind, 0, data));
    }

    /// As after a function-level reset: all that commands made is gone; the wire, its carrier and what was counted stay.
    pub fn reset(&self) {
        let mut inside = self.lock();
        inside.late.forget();
        inside.core.reset();
    }

    /// Takes the device away: no command is answered, no completion comes any more. All interrupts fire once, so that
    /// whoever waits looks and finds it gone.
    pub fn remove(&self) {
        let mut inside = self.lock();
        if !self.gone.swap(true, Ordering::Release) {
            inside.core.port.set_carrier(false);
            if let Some(joint) = &inside.core.joint {
                joint.part();
            }
            drop(inside);
            self.interrupt(u64::MAX);
        }
    }

    /// Whether it was taken away.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Has what passes without a call written down from now on, or no more.
    pub fn write_fast_path(&self, to: Option<FastPath>) {
        self.lock().fast_path = to.map(Arc::new);
    }

    /// What was done against the rules of doorbells: the first ones, and how many in all.
    #[must_use]
    pub fn violations(&self) -> (Vec<Violation>, u64) {
        let inside = self.lock();
        (inside.core.violations.first.clone(), inside.core.violations.count)
    }

    /// What the port counted.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        self.lock().core.port.counters
    }

    /// Whether the wire's other end is there, and nobody holds the link down.
    #[must_use]
    pub fn link_is_up(&self) -> bool {
        self.present().is_some_and(|inside| inside.core.port.is_up())
    }

    /// Whether frames are on their way, or work waits for the wire.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        let inside = self.lock();
        let core = &inside.core;
        core.port.is_pending()
            || core.tap.is_pending()
            || core.senders.is_active()
            || core.receivers.has_forwards()
            || core.rdma.is_pending()
            || core.joint.as_ref().is_some_and(Joint::is_pending)
    }

    /// Whether a frame of a completed entry is still here because the wire, which is up, does not take it.
    pub(crate) fn has_frame_waiting(&self) -> bool {
        self.present().is_some_and(|inside| inside.core.port.is_up() && inside.core.port.has_waiting())
    }

    /// What a network interface of this function would tell the port: lets in every address, or those listed alone. Counts
    /// where the vport filters, [`Traits::filters_vport`](crate::Traits::filters_vport); elsewhere all is let in anyway.
    pub fn set_promiscuous(&self, on: bool) {
        self.lock().core.port.promiscuous = on;
    }

    /// Lets in every group, or those listed alone, where the vport filters.
    pub fn set_all_multicast(&self, on: bool) {
        self.lock().core.port.promiscuous_multicast = on;
    }

    /// The port's address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.lock().core.port.mac
    }

    /// Gives the port another address.
    pub fn set_mac(&self, mac: [u8; 6]) {
        self.lock().core.port.mac = mac;
    }

    /// Lets in this address or group too, or no more, where the vport filters; whether that is new.
    pub fn set_further_mac(&self, mac: [u8; 6], wanted: bool) -> bool {
        let port = &mut self.lock().core.port;
        let list = if mac[0] & 1 == 1 { &mut port.multicast } else { &mut port.unicast };
        let known = list.contains(&mac);
        list.retain(|other| *other != mac);
        if wanted {
            list.push(mac);
        }
        known != wanted
    }

    /// Lets in these addresses too, where the vport filters.
    pub fn set_unicast(&self, addresses: Vec<[u8; 6]>) {
        self.lock().core.port.unicast = addresses;
    }

    /// Lets in these groups, where the vport filters.
    pub fn set_multicast(&self, groups: Vec<[u8; 6]>) {
        self.lock().core.port.multicast = groups;
    }

    /// The port's MTU.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.lock().core.port.mtu
    }

    /// Changes the port's MTU, [`MTU_MAX`](crate::port::MTU_MAX) at most; false when it is out of range.
    pub fn set_mtu(&self, mtu: u16) -> bool {
        self.lock().core.port.set_mtu(mtu)
    }

    /// Takes the link down, or lets it come up again, as software does by the PAOS register.
    pub fn set_link(&self, up: bool) {
        self.lock().core.port.admin_up = up;
    }
}

/// Whether a command changes nothing, as those by which a program reads counters again and again.
fn only_asks(input: &[u8]) -> bool {
    /// Of ACCESS_REG: to read. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_ACCESS_REGISTER_IN_OP_MOD_READ`.
    const READ: u16 = 1;
    let word = |at: usize| input.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let (opcode, modifier) = (word(0), word(6));
    opcode == opcode::ACCESS_REG && modifier == READ
        || opcode::name(opcode).is_some_and(|name| name.starts_with("QUERY_"))
}

impl CommandQueue for Device {
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Gone> {
        let inside = self.present().ok_or(Gone)?;
        self.act(inside, |core, bus| {
            if !only_asks(input) {
                core.last_command = bus.now;
                // Stores that were made before the command come before it.
                core.scan(bus, &self.bar);
            }
            // Before it ends a queue, whose memory is somebody else's then.
            core.check_fresh(bus);
            bus.late.settle(bus.host);
            core.execute(bus, input, output);
        });
        Ok(())
    }

    fn set_key_rights(&self, index: u32, context: &[u8; 64]) -> bool {
        let Some(inside) = self.present() else { return false };
        let Ok(context) = MkeyContext::ref_from_bytes(context) else { return false };
        self.act(inside, |core, bus| {
            // What was asked for before goes by the rights of before.
            core.scan(bus, &self.bar);
            bus.late.settle(bus.host);
            set_rights(&mut core.keys, index, context)
        })
    }

    fn set_key_memory(&self, index: u32, context: &[u8; 64], entries: &[u8]) -> bool {
        let Some(inside) = self.present() else { return false };
        let Ok(context) = MkeyContext::ref_from_bytes(context) else { return false };
        self.act(inside, |core, bus| {
            // What was asked for before goes to the memory of before.
            core.scan(bus, &self.bar);
            bus.late.settle(bus.host);
            set_memory(&mut core.keys, index, context, entries)
        })
    }

    fn set_key_entries(&self, index: u32, unit: u64, entries: &[u8]) -> bool {
        let Some(inside) = self.present() else { return false };
        self.act(inside, |core, bus| {
            // What was asked for before goes by the entries of before.
            core.scan(bus, &self.bar);
            bus.late.settle(bus.host);
            set_entries(&mut core.keys, index, unit, entries)
        })
    }

    fn sets_key_entries(&self) -> bool {
        true
    }

    fn uar(&self, number: u32, write_combining: bool) -> Option<Page> {
        let mut inside = self.lock();
        inside.core.uars.get(number)?;
        if write_combining && !inside.core.traits.blue_flame {
            return None;
        }
        inside.core.order.map(number, write_combining);
        self.bar.page((number - FIRST_UAR) as usize + 1, Protection::ReadWrite)
    }

    fn device_memory(&self, address: u64, bytes: usize) -> Option<Page> {
        let offset = usize::try_from(address.checked_sub(LENT_OFFSET)?).ok()?;
        self.lent.as_ref()?.stretch(offset, bytes)
    }

    fn clock(&self) -> Option<Page> {
        self.bar.show_clock(self.ticks());
        self.bar.page(0, Protection::Read)
    }

    fn on_interrupt(&self, vector: u32, handler: InterruptHandler) {
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = handlers.get_mut(vector as usize) {
            *place = Some(handler);
        }
    }

    fn vectors(&self) -> u32 {
        VECTORS
    }

    fn identity(&self) -> Identity {
        let traits = self.lock().core.traits;
        Identity { device: traits.pci_device, revision: 0, firmware: traits.firmware() }
    }

    fn is_gone(&self) -> bool {
        Self::is_gone(self)
    }
}
