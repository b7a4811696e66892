//! Doorbell registers: pages of the device (UARs), mapped; a queue has one to itself as long as there are enough.
//!
//! ```text
//!   newer kernels   a page is allocated (UAR object), then named when the queue is made
//!   older kernels   the context has pages with two BlueFlame registers each; the kernel chooses one when a send queue is
//!                   made and tells its number; completion queues are armed at page 0
//! ```
//!
//! A page has one register at which completion queues are armed, and two at which send queues ring: each of these is two
//! BlueFlame buffers, used in turn. How long they are the kernel tells.
//!
//! Where no page is left, a queue gets a register of a page that another queue has: one that is free, but for the last, and
//! then that one, which all further queues share. Who shares a register stores to it under a lock, and flushes what is
//! combined before the lock goes. DPDK has one page a direction for all queues. Source: rdma-core
//! `providers/mlx5/verbs.c`, `mlx5_attach_dedicated_uar`, `mlx5_insert_dyn_uuars`, and `providers/mlx5/mlx5.c`,
//! `mlx5_set_context`; `providers/mlx5/qp.c`, `post_send_db`; DPDK `drivers/common/mlx5/mlx5_common.c`,
//! `mlx5_dev_uar_prepare`; Linux `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_alloc_ucontext`, `uar_mmap`.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pollux_eal::barrier;
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::kernel::{attribute, method, mmap, object, verbs};
use pollux_mlx5_abi::wqe::BLOCK_BYTES;
use pollux_uverbs::{Call, Page, Protection, Registers};

use crate::MlxError;
use crate::context::Device;
use crate::object::{Id, Object, WeakObject};

/// Bytes of a page as the kernel maps it. Source: x86-64, the processor that is claimed.
const HOST_PAGE_BYTES: u64 = 4096;

/// Bytes at the start of a page in which completion queues are armed.
const ARM_BYTES: usize = 0x40;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A register at which send queues ring.
#[derive(Debug)]
struct Register {
    registers: Registers,
    /// Where the next store goes: the start of a buffer.
    turn: usize,
    /// From one buffer to the other; 0: there is one place.
    other: usize,
    /// The page is, or may be, mapped write-combining: stores stay in the processor until they are flushed.
    combining: bool,
}

impl Register {
    /// Flushes what was stored, and goes on in the other buffer: this one may still be on its way.
    #[inline(always)]
    fn flush(&mut self) {
        barrier::wc_flush();
        self.turn ^= self.other;
    }

    #[inline(always)]
    fn ring(&mut self, head: u64) {
        self.registers.store64(self.turn, head);
        if self.combining {
            self.flush();
        }
    }

    /// Only pages that are mapped write-combining take work ([`SendDoorbell::copies`]), so there is nothing to ask.
    #[inline(always)]
    fn copy(&mut self, block: &[u8; BLOCK_BYTES]) {
        debug_assert!(self.combining, "work is copied where stores are combined");
        self.registers.copy64(self.turn, block);
        self.flush();
    }
}

#[derive(Debug)]
enum Held {
    Own(Register),
    /// Stores are made under the lock, flushed before it goes. Source: rdma-core `providers/mlx5/qp.c`, `post_send_db`,
    /// where `bf->need_lock`.
    Shared(Arc<Mutex<Register>>),
}

/// The register at which a send queue rings: its own, or one that it shares with others.
#[derive(Debug)]
pub struct SendDoorbell {
    held: Held,
    copies: bool,
    can_copy: bool,
    /// With it others can share the page.
    _page: Option<Arc<UarPage>>,
}

impl SendDoorbell {
    /// One of a queue's own, from registers that it has taken: `combining` says that the page is mapped write-combining, so that
    /// work may be copied there.
    #[must_use]
    pub fn own(registers: Registers, combining: bool) -> Self {
        let half = registers.bytes() / 2;
        let has_two = half >= BLOCK_BYTES;
        let other = if has_two { half } else { 0 };
        let copies = combining && registers.bytes() >= BLOCK_BYTES;
        let register = Register { registers, turn: 0, other, combining };
        Self { held: Held::Own(register), copies, can_copy: copies, _page: None }
    }

    /// Whether an entry of one block may be copied there, instead of its head.
    #[must_use]
    #[inline(always)]
    pub fn copies(&self) -> bool {
        self.copies
    }

    /// Turns copying off, or on again where it can be done.
    pub fn set_copies(&mut self, on: bool) {
        self.copies = on && self.can_copy;
    }

    /// Rings with the first 8 bytes of the last entry, as they stand in memory. The record was stored and flushed before.
    #[inline(always)]
    pub fn ring(&mut self, head: u64) {
        match &mut self.held {
            Held::Own(register) => register.ring(head),
            Held::Shared(register) => ring_shared(register, head),
        }
    }

    /// The same with all of an entry of one block, where that [may be done](Self::copies).
    #[inline(always)]
    pub fn copy(&mut self, block: &[u8; BLOCK_BYTES]) {
        match &mut self.held {
            Held::Own(register) => register.copy(block),
            Held::Shared(register) => copy_shared(register, block),
        }
    }
}

#[inline(never)]
fn ring_shared(register: &Mutex<Register>, head: u64) {
    locked(register).ring(head);
}

#[inline(never)]
fn copy_shared(register: &Mutex<Register>, block: &[u8; BLOCK_BYTES]) {
    locked(register).copy(block);
}

/// The register at which completion queues of a page are armed; it is stored to seldom, so all of them share it.
#[derive(Clone, Debug)]
pub struct Arm {
    registers: Arc<Mutex<Registers>>,
    _page: Option<Arc<UarPage>>,
}

impl Arm {
    /// Over the first registers of a page.
    #[must_use]
    pub fn new(registers: Registers) -> Self {
        Self { registers: Arc::new(Mutex::new(registers)), _page: None }
    }

    /// Stores the 8 bytes that arm a completion queue.
    pub fn store(&self, word: u64) {
        let mut registers = locked(&self.registers);
        registers.store64(uar::CQ_ARM, word);
        barrier::wc_flush();
    }
}

/// A page that is mapped, and what queues have of it.
#[derive(Debug)]
pub(crate) struct UarPage {
    number: u32,
    /// Work may be copied there.
    blueflame: bool,
    /// Stores stay in the processor until they are flushed, or may.
    combining: bool,
    page: Arc<Page>,
    /// Where in the mapping it begins.
    start: usize,
    /// Of one register; 0: no BlueFlame.
    register_bytes: usize,
    arm: Arc<Mutex<Registers>>,
    /// Registers that several queues ring at.
    shared: Mutex<Vec<(usize, Weak<Mutex<Register>>)>>,
    /// What ends it; `None`: it is the context's.
    object: Option<WeakObject>,
}

impl UarPage {
    /// Where a register is in the mapping, and how long.
    fn place(&self, register: usize) -> std::ops::Range<usize> {
        let spacing = if self.register_bytes == 0 { uar::BLUE_FLAME_BYTES * 2 } else { self.register_bytes };
        let at = self.start + uar::BLUE_FLAME + register * spacing;
        at..at + spacing
    }

    fn take(&self, register: usize) -> Result<Register, MlxError> {
        let taken = self.page.registers(self.place(register));
        let registers = taken.map_err(MlxError::verbs("take doorbell registers"))?;
        // A doorbell alone may go to one place again and again.
        let other = if self.combining { self.register_bytes / 2 } else { 0 };
        Ok(Register { registers, turn: 0, other, combining: self.combining })
    }

    fn doorbell(self: &Arc<Self>, held: Held, copies: bool) -> SendDoorbell {
        let can_copy = copies && self.blueflame;
        SendDoorbell { held, copies: can_copy, can_copy, _page: Some(Arc::clone(self)) }
    }

    /// The register that several queues share, if it is one by now; with `begin`, which becomes one.
    fn share(
        &self,
        register: usize,
        begin: impl FnOnce() -> Result<Register, MlxError>,
    ) -> Result<Held, MlxError> {
        let mut shared = locked(&self.shared);
        shared.retain(|(_, known)| known.strong_count() > 0);
        let known = shared.iter().find(|(at, _)| *at == register).and_then(|(_, known)| known.upgrade());
        let known = match known {
            Some(known) => known,
            None => {
                let made = Arc::new(Mutex::new(begin()?));
                shared.push((register, Arc::downgrade(&made)));
                made
            }
        };
        Ok(Held::Shared(known))
    }

    /// Registers that are shared, each with how many queues have it.
    fn shared_ones(&self) -> Vec<(usize, usize)> {
        let shared = locked(&self.shared);
        shared.iter().map(|(at, known)| (*at, known.strong_count())).filter(|(_, users)| *users > 0).collect()
    }
}

/// The doorbell pages of a device, and which of them queues share: so a device has one of these.
#[derive(Debug)]
pub struct Uars {
    device: Arc<Device>,
    /// Those that are mapped.
    pages: Mutex<Vec<Weak<UarPage>>>,
    /// So many are allocated; then queues share. As many as there are, where nobody says.
    most: Option<NonZeroUsize>,
}

/// A doorbell page, for the queue that is to name it.
#[derive(Debug)]
pub struct Uar {
    page: Arc<UarPage>,
    object: Option<Object>,
}

impl Uars {
    /// Of a device whose queues have no pages yet.
    #[must_use]
    pub fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::clone(device), pages: Mutex::default(), most: None }
    }

    /// The same with at most so many pages, of the kind that is allocated one by one; queues that come after share those.
    #[must_use]
    pub fn limited(self, most: Option<NonZeroUsize>) -> Self {
        Self { most, ..self }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// A page to arm a completion queue at: one of its own, or another's where none is left. `None`: this kernel has the static
    /// kind.
    ///
    /// # Errors
    /// What the kernel says, where no queue has a page yet.
    pub fn for_completions(&self) -> Result<Option<Uar>, MlxError> {
        if self.device.answer.tot_bfregs != 0 {
            return Ok(None);
        }
        let mut pages = locked(&self.pages);
        if self.most.is_some() {
            // Where pages are few they are for send queues: these arm at one of theirs, or at one that theirs can be.
            if let Some(uar) = least(&mut pages) {
                return Ok(Some(uar));
            }
            if self.device.register_bytes > 0
                && let Ok(made) = self.allocate(true)
            {
                return Ok(Some(made.listed(&mut pages)));
            }
        }
        match self.one_more(&mut pages, false) {
            Ok(made) => Ok(Some(made.listed(&mut pages))),
            Err(error) => shared(&self.device, least(&mut pages), error).map(Some),
        }
    }

    /// A page to ring a send queue at, and the register, for BlueFlame if that may be had and is wanted. `None`: this kernel has the
    /// static kind.
    ///
    /// # Errors
    /// What the kernel says, where no queue has a page yet.
    pub fn for_sends(&self, blueflame: bool) -> Result<Option<(Uar, SendDoorbell)>, MlxError> {
        let device = &self.device;
        if device.answer.tot_bfregs != 0 {
            return Ok(None);
        }
        let mut pages = locked(&self.pages);
        let mut made = self.one_more(&mut pages, blueflame && device.register_bytes > 0);
        if blueflame && let Err(error) = &made {
            // No write combining on this bus, or no page left.
            tracing::debug!(target: "pmd.common.mlx5", "{}: no BlueFlame page: {error}", device.name());
            made = self.one_more(&mut pages, false);
        }
        let error = match made {
            Ok(made) => {
                let held = Held::Own(made.page.take(0)?);
                let doorbell = made.page.doorbell(held, blueflame);
                return Ok(Some((made.listed(&mut pages), doorbell)));
            }
            Err(error) => error,
        };
        let mut living = living(&mut pages);
        // Those where work can be copied first, if it shall be.
        living.sort_by_key(|uar| uar.page.blueflame != blueflame);
        let mut free = Vec::new();
        for uar in &living {
            free.extend((0..uar::REGISTERS).filter_map(|at| Some((uar, at, uar.page.take(at).ok()?))));
        }
        let shared_ones =
            || living.iter().flat_map(|uar| uar.page.shared_ones().into_iter().map(move |one| (uar, one)));
        let alone = shared_ones().next().is_some();
        let mut free = free.into_iter();
        let (uar, held) = match (free.next(), free.next().is_some() || alone) {
            // Another is left to be shared, or one is shared by now.
            (Some((uar, _, register)), true) => (uar, Held::Own(register)),
            (Some((uar, at, register)), false) => (uar, uar.page.share(at, || Ok(register))?),
            (None, _) => {
                let Some((uar, (at, _))) = shared_ones().min_by_key(|(_, (_, users))| *users) else {
                    return Err(error);
                };
                (uar, uar.page.share(at, || uar.page.take(at))?)
            }
        };
        let doorbell = uar.page.doorbell(held, blueflame);
        shared(device, Some(uar.again()), error).map(|uar| Some((uar, doorbell)))
    }

    /// Allocates a page, if there may be one more.
    fn one_more(&self, pages: &mut Vec<Weak<UarPage>>, blueflame: bool) -> Result<Uar, MlxError> {
        match self.most {
            Some(most) if living(pages).len() >= most.get() => Err(MlxError::Device {
                device: self.device.name().to_owned(),
                problem: format!("{most} doorbell pages are all that this context may have"),
            }),
            _ => self.allocate(blueflame),
        }
    }

    fn allocate(&self, blueflame: bool) -> Result<Uar, MlxError> {
        use attribute::uar_alloc as a;
        let device = &self.device;
        let mut call = Call::named(object::UAR, method::uar::ALLOC, "UAR/ALLOC");
        call.new_object(a::HANDLE)
            .u64(a::TYPE, if blueflame { verbs::uar_type::BF } else { verbs::uar_type::NC })
            .answer(a::MMAP_OFFSET, 8)
            .answer(a::MMAP_LENGTH, 4)
            .answer(a::PAGE_ID, 4);
        let what = "allocate a doorbell page";
        device.context().call(&mut call).map_err(|error| device.failed(what, error))?;
        let read = |error| device.failed(what, error);
        let object = Object::new(device, Id::Uar(call.created(a::HANDLE).map_err(read)?));
        let offset: u64 = call.get(a::MMAP_OFFSET).map_err(read)?;
        let bytes: u32 = call.get(a::MMAP_LENGTH).map_err(read)?;
        let number = device.number("a doorbell page", call.get(a::PAGE_ID).map_err(read)?)?;
        if (bytes as usize) < uar::PAGE_BYTES {
            let problem = format!("a doorbell page of {bytes} bytes, {} are needed", uar::PAGE_BYTES);
            return Err(device.answered("UAR/ALLOC", problem, "the kernel"));
        }
        let page = device
            .context()
            .map(offset, bytes as usize, Protection::Write)
            .map_err(|error| device.failed("map a doorbell page", error))?;
        Uar::over(device, (number, 0), page, (blueflame, blueflame), Some(object))
    }

    /// The page of the static kind that has BlueFlame register `register`, which the kernel gave a send queue, or with
    /// `None` the page at which completion queues are armed.
    fn of_static(&self, register: Option<u32>, blueflame: bool) -> Result<(Uar, usize), MlxError> {
        let device = &self.device;
        let register = register.unwrap_or(0);
        let answer = &device.answer;
        // Users count four registers a page, of which the kernel gives out two, and counts these alone in its total. Source:
        // Linux `drivers/infiniband/hw/mlx5/qp.c`, `adjust_bfregn`.
        let (number, within) = (register / uar::REGISTERS_ALL as u32, register as usize % uar::REGISTERS_ALL);
        if number >= answer.tot_bfregs.div_ceil(uar::REGISTERS as u32) || within >= uar::REGISTERS {
            let problem = format!(
                "BlueFlame register {register} of {} on pages of {}",
                answer.tot_bfregs,
                uar::REGISTERS_ALL
            );
            return Err(device.answered("QP/CREATE", problem, "the kernel"));
        }
        let uars = answer.num_uars_per_page.max(1);
        let index = u16::try_from(number / uars).unwrap_or(u16::MAX);
        let start = (number % uars) as usize * uar::PAGE_BYTES;
        let map = |command| {
            let offset = mmap::offset(command, index, HOST_PAGE_BYTES);
            device.context().map(offset, HOST_PAGE_BYTES as usize, Protection::Write)
        };
        // Register 0 is for doorbells alone. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`,
        // `NUM_NON_BLUE_FLAME_BFREGS`.
        let copies = blueflame && register != 0 && device.register_bytes > 0;
        let mut pages = locked(&self.pages);
        let known = |uar: &Uar| uar.page.number == number && uar.page.blueflame == copies;
        if let Some(uar) = living(&mut pages).into_iter().find(known) {
            return Ok((uar, within));
        }
        let (page, kinds) = match copies.then(|| map(mmap::WC_PAGE)) {
            Some(Ok(page)) => (page, (true, true)),
            // The kernel combines stores to a regular page where it can, and does not say whether it does. Source: Linux
            // `drivers/infiniband/hw/mlx5/main.c`, `uar_mmap`, `MLX5_IB_MMAP_REGULAR_PAGE`.
            _ if blueflame => {
                (map(mmap::REGULAR_PAGE).map_err(|error| failed(device, error))?, (false, true))
            }
            _ => (map(mmap::NC_PAGE).map_err(|error| failed(device, error))?, (false, false)),
        };
        Ok((Uar::over(device, (number, start), page, kinds, None)?.listed(&mut pages), within))
    }

    /// The arm register of a completion queue that named no page: the kernel's static kind has one for all.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn static_arm(&self) -> Result<Arm, MlxError> {
        // With the first register, as rdma-core: `providers/mlx5/mlx5.c`, `mlx5_set_context`, `cq_uar_reg`.
        Ok(self.of_static(None, true)?.0.arm())
    }

    /// The register that the kernel gave a send queue, of the static kind. The first is shared by those for which there is no
    /// other.
    ///
    /// # Errors
    /// What the kernel says; a register that it cannot have given.
    pub fn static_doorbell(&self, register: u32, blueflame: bool) -> Result<SendDoorbell, MlxError> {
        let (uar, within) = self.of_static(Some(register), blueflame)?;
        let held = if register == 0 {
            uar.page.share(within, || uar.page.take(within))?
        } else {
            Held::Own(uar.page.take(within)?)
        };
        Ok(uar.page.doorbell(held, blueflame))
    }
}

impl Uar {
    fn over(
        device: &Arc<Device>,
        (number, start): (u32, usize),
        page: Page,
        (blueflame, combining): (bool, bool),
        object: Option<Object>,
    ) -> Result<Self, MlxError> {
        let page = Arc::new(page);
        let arm =
            page.registers(start..start + ARM_BYTES).map_err(MlxError::verbs("take doorbell registers"))?;
        let page = UarPage {
            number,
            blueflame,
            combining,
            page,
            start,
            register_bytes: device.register_bytes,
            arm: Arc::new(Mutex::new(arm)),
            shared: Mutex::default(),
            object: object.as_ref().map(Object::downgrade),
        };
        let page = Arc::new(page);
        // Queues without a data half have nothing else of the page.
        let object = object.map(|object| object.keeping(Arc::clone(&page)));
        Ok(Self { page, object })
    }

    /// Its number, by which queues name it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.page.number
    }

    /// The register at which completion queues that name it are armed.
    #[must_use]
    pub fn arm(&self) -> Arm {
        Arm { registers: Arc::clone(&self.page.arm), _page: Some(Arc::clone(&self.page)) }
    }

    /// What ends it: a queue that names it keeps a handle, for the firmware does not let go of a page that is in use.
    #[must_use]
    pub fn object(&self) -> Option<Object> {
        self.object.clone()
    }

    /// Lets others find it.
    fn listed(self, pages: &mut Vec<Weak<UarPage>>) -> Self {
        pages.push(Arc::downgrade(&self.page));
        self
    }

    fn again(&self) -> Self {
        Self { page: Arc::clone(&self.page), object: self.object.clone() }
    }
}

fn failed(device: &Device, error: pollux_uverbs::UverbsError) -> MlxError {
    device.failed("map a doorbell page", error)
}

/// Pages that queues have.
fn living(pages: &mut Vec<Weak<UarPage>>) -> Vec<Uar> {
    pages.retain(|page| page.strong_count() > 0);
    let living = pages.iter().filter_map(|page| {
        let page = page.upgrade()?;
        let object = match &page.object {
            None => None,
            // Its queues are gone, but for somebody who could still ring there.
            Some(object) => Some(object.upgrade()?),
        };
        Some(Uar { page, object })
    });
    living.collect()
}

/// The page that the fewest queues have: each keeps a handle.
fn least(pages: &mut Vec<Weak<UarPage>>) -> Option<Uar> {
    living(pages).into_iter().min_by_key(|uar| Arc::strong_count(&uar.page))
}

/// A page of another's, where none is to be had.
fn shared(device: &Device, found: Option<Uar>, error: MlxError) -> Result<Uar, MlxError> {
    let uar = found.ok_or(error)?;
    tracing::debug!(
        target: "pmd.common.mlx5", "{}: no doorbell page is left: a queue shares page {}", device.name(), uar.number()
    );
    Ok(uar)
}

/// The handle that a queue keeps of the page that it names.
pub fn page(uar: Option<&Uar>) -> impl Iterator<Item = Object> {
    uar.and_then(Uar::object).into_iter()
}
