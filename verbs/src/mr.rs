//! Memory: regions that others may reach, and buffers that go along with requests.
//!
//! ```text
//!   Mr       a zone, registered with rights for peers: read and written by copies alone, at any time, by anybody
//!            who posts it keeps it: it is deregistered after the last queue that named it, and only then freed
//!   Buf      a piece of a zone registered for this side alone: owned like a Vec, moved into a request, comes back with it
//!   Mbuf     the same, of a packet pool that the domain knows
//! ```
//!
//! A region or buffer pool that the kernel refuses to deregister is never freed.
#![expect(unsafe_code, reason = "memory that a device reads and writes")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pollux_eal::region::Zone;
use pollux_mempool::Mbuf;
use pollux_pmd_mlx::key::Keys;
use pollux_pmd_mlx::rdma::post::{Lasting, Lend, Span, Use};
use pollux_uverbs::abi::flags::{Access, Advice};
use pollux_uverbs::abi::ioctl_verbs::Sge;
use pollux_uverbs::mr::{MrChange, MrRequest};
use pollux_uverbs::{Driver as Data, MrHandle};

use crate::dm::Dm;
use crate::pd::Pd;
use crate::{Context, VerbsError};

/// What a region is made of.
#[derive(Debug)]
enum Memory {
    Zone(ManuallyDrop<Zone>),
    Device(Dm),
    /// Of another device or of whoever made it.
    Foreign,
    /// Reads and writes lead nowhere.
    Null,
}

#[derive(Debug)]
struct Inner {
    pd: Pd,
    memory: Memory,
    handle: Option<MrHandle>,
    lkey: u32,
    rkey: u32,
    /// Its first byte, as the device calls it.
    address: u64,
    bytes: usize,
    access: Access,
    number: u64,
    /// It was taken apart.
    ended: AtomicBool,
}

/// A memory region: memory that peers may reach by its key. Clones are handles.
///
/// Nobody ever has a reference into it, so whatever a peer or the device does there at the same time, a copy out sees some
/// bytes and nothing worse.
#[derive(Clone, Debug)]
pub struct Mr(Arc<Inner>);

impl Mr {
    /// Registers a zone. The address that requests and peers use is that of the process.
    ///
    /// # Errors
    /// What the kernel says, with the zone.
    pub fn register(pd: &Pd, zone: Zone, access: Access) -> Result<Self, Box<(VerbsError, Zone)>> {
        let address = (zone.base().as_ptr().addr() as u64).wrapping_add(pd.delta());
        Self::register_at(pd, zone, address, access)
    }

    /// Registers a zone under an address of the caller's, at the same place in its page.
    ///
    /// # Errors
    /// What the kernel says, with the zone.
    pub fn register_at(
        pd: &Pd,
        zone: Zone,
        address: u64,
        access: Access,
    ) -> Result<Self, Box<(VerbsError, Zone)>> {
        let request = MrRequest {
            pd: pd.handle(),
            start: zone.base().as_ptr().addr() as u64,
            length: zone.bytes() as u64,
            hca_va: address,
            access,
        };
        let made = match pd.context().uverbs().reg_mr(&request, Data::none()) {
            Ok(made) => made,
            Err(error) => return Err(Box::new((VerbsError::kernel("register memory")(error), zone))),
        };
        // Peers see offsets there, and so does the device.
        let address = if access.contains(Access::ZERO_BASED) { 0 } else { address };
        let bytes = zone.bytes();
        let memory = Memory::Zone(ManuallyDrop::new(zone));
        Ok(Self::made(pd, memory, Some(made.handle), (made.lkey, made.rkey), address, bytes, access))
    }

    /// Reserves memory, zeroed, and registers it.
    ///
    /// # Errors
    /// No memory, or what the kernel says.
    pub fn allocate(pd: &Pd, bytes: usize, access: Access) -> Result<Self, VerbsError> {
        let mut zone = pd.context().reserve(bytes)?;
        zone.clear();
        Self::register(pd, zone, access).map_err(|refused| refused.0)
    }

    /// A region that reads and writes lead nowhere through; of this side alone.
    ///
    /// # Errors
    /// Where the device has none.
    pub fn null(pd: &Pd) -> Result<Self, VerbsError> {
        let key = pd.context().null_key().ok_or_else(|| VerbsError::Unsupported {
            what: "null memory region",
            why: "the kernel tells of no key for it".into(),
        })?;
        let bytes = 1 << 31;
        Ok(Self::made(pd, Memory::Null, None, (key, 0), 0, bytes, Access::LOCAL_WRITE))
    }

    /// Registers device memory. Its addresses begin at 0.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_device(pd: &Pd, dm: &Dm, range: Range<usize>, access: Access) -> Result<Self, VerbsError> {
        let (start, bytes) = (range.start, range.end.saturating_sub(range.start));
        let made = pd
            .context()
            .uverbs()
            .reg_dm_mr(pd.handle(), dm.handle(), start as u64, bytes as u64, access)
            .map_err(VerbsError::kernel("register device memory"))?;
        let keys = (made.lkey, made.rkey);
        Ok(Self::made(pd, Memory::Device(dm.clone()), Some(made.handle), keys, 0, bytes, access))
    }

    /// Registers memory of another device, a part of what it shares by a file. Its addresses begin at `range.start`. The kernel keeps
    /// the file's memory as long as the region.
    ///
    /// # Errors
    /// A driver that takes none, as that of rxe; or what the kernel says.
    pub fn of_dmabuf(
        pd: &Pd,
        file: BorrowedFd<'_>,
        range: Range<usize>,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let (start, bytes) = (range.start as u64, range.end.saturating_sub(range.start));
        let request = MrRequest { pd: pd.handle(), start, length: bytes as u64, hca_va: start, access };
        let made = pd.context().uverbs().reg_dmabuf_mr(&request, file, start).map_err(|error| {
            if error.says_unsupported() {
                let why = "this device's driver takes none; copy what is there to memory of the host".into();
                return VerbsError::Unsupported { what: "memory of a dma-buf", why };
            }
            VerbsError::kernel("register memory of a dma-buf")(error)
        })?;
        let keys = (made.lkey, made.rkey);
        Ok(Self::made(pd, Memory::Foreign, Some(made.handle), keys, start, bytes, access))
    }

    /// A region that was made through another handle of the same file, as in the process that handed it over. It stays the other's:
    /// its rights and its memory are not changed from here, and it is not deregistered with this handle. Its keys are of no use
    /// any more once the other deregisters it.
    ///
    /// # Errors
    /// What the kernel says: there is no such region, or it is older than 5.7 and tells of none.
    ///
    /// # Safety
    /// The region's memory is not what this process has references into: what is posted with its keys reads and writes there.
    pub unsafe fn import(pd: &Pd, handle: MrHandle, access: Access) -> Result<Self, VerbsError> {
        let known = pd
            .context()
            .uverbs()
            .query_mr(handle)
            .map_err(VerbsError::kernel("ask for a region of somebody else's"))?;
        let address = known.iova.ok_or_else(|| VerbsError::Unsupported {
            what: "region of somebody else's",
            why: "this kernel does not tell its address".into(),
        })?;
        let keys = (known.lkey, known.rkey);
        Ok(Self::made(pd, Memory::Foreign, None, keys, address, known.length as usize, access))
    }

    /// The kernel's handle, for whoever shall [import](Self::import) it; none of what was imported itself.
    #[must_use]
    pub fn handle(&self) -> Option<MrHandle> {
        self.0.handle
    }

    /// Advises the kernel what to do with the pages of a part, which were registered to come [on
    /// demand](Access::ON_DEMAND); to be there when the call returns, if `flush`.
    ///
    /// # Errors
    /// A part that is not inside it; a driver that has no paging on demand; or what the kernel says.
    pub fn advise(&self, range: Range<usize>, advice: Advice, flush: bool) -> Result<(), VerbsError> {
        let Some(Held(span)) = self.span(range.clone()) else {
            return Err(VerbsError::Range {
                what: "end of a part of a region",
                value: range.end as u64,
                allowed: format!("it has {} bytes", self.0.bytes),
            });
        };
        let piece = Sge { addr: span.address, length: span.bytes, lkey: span.lkey };
        let context = self.0.pd.context().uverbs();
        context.advise_mr(self.0.pd.handle(), advice, flush, &[piece]).map_err(|error| {
            if error.says_unsupported() {
                let why =
                    "this device's driver pages nothing in on demand; what is registered is there".into();
                return VerbsError::Unsupported { what: "advice about pages", why };
            }
            VerbsError::kernel("advise about pages")(error)
        })
    }

    fn made(
        pd: &Pd,
        memory: Memory,
        handle: Option<MrHandle>,
        (lkey, rkey): (u32, u32),
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Self {
        let number = pd.context().object_number();
        let (pd, ended) = (pd.clone(), AtomicBool::new(false));
        Self(Arc::new(Inner { pd, memory, handle, lkey, rkey, address, bytes, access, number, ended }))
    }

    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &Pd {
        &self.0.pd
    }

    /// The key for this side.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.0.lkey
    }

    /// The key for peers.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.0.rkey
    }

    /// The first byte, as requests and peers call it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Who may do what.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.access
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    fn zone(&self, at: usize, bytes: usize) -> *mut u8 {
        let Memory::Zone(zone) = &self.0.memory else {
            panic!("a region of {:?} is not read and written here", self.0.memory)
        };
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.0.bytes);
        assert!(inside, "{bytes} bytes at {at} are not inside a region of {}", self.0.bytes);
        // SAFETY: inside the zone, which is as long as the region.
        unsafe { zone.base().as_ptr().add(at) }
    }

    /// Copies out what is at `at` now. What a peer writes meanwhile may be seen in part, but 8 bytes at a multiple of 8 are
    /// seen as one.
    ///
    /// # Panics
    /// When there are fewer bytes, or it is not memory of the host.
    pub fn read(&self, at: usize, target: &mut [u8]) {
        let from = self.zone(at, target.len());
        let mut done = 0;
        while done < target.len() {
            // SAFETY: inside the zone, mapped as long as the region; nobody has a reference there, and every access of this
            // process is atomic. The 8-byte load is made only at an aligned address.
            unsafe {
                let from = from.add(done);
                if let Some(word) = target[done..].first_chunk_mut::<8>()
                    && from.cast::<u64>().is_aligned()
                {
                    *word = AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed).to_ne_bytes();
                    done += 8;
                } else {
                    target[done] = AtomicU8::from_ptr(from).load(Ordering::Relaxed);
                    done += 1;
                }
            }
        }
    }

    /// Copies in. What a peer reads meanwhile may be part of it, but 8 bytes at a multiple of 8 go in as one.
    ///
    /// # Panics
    /// When it would not fit, or it is not memory of the host.
    pub fn write(&self, at: usize, source: &[u8]) {
        let to = self.zone(at, source.len());
        let mut done = 0;
        while done < source.len() {
            // SAFETY: as in `read`.
            unsafe {
                let to = to.add(done);
                if let Some(word) = source[done..].first_chunk::<8>()
                    && to.cast::<u64>().is_aligned()
                {
                    AtomicU64::from_ptr(to.cast()).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
                    done += 8;
                } else {
                    AtomicU8::from_ptr(to).store(source[done], Ordering::Relaxed);
                    done += 1;
                }
            }
        }
    }

    /// The byte at `at`, for polling: what a peer wrote before it is seen as well.
    ///
    /// # Panics
    /// When it is outside, or it is not memory of the host.
    #[must_use]
    #[inline]
    pub fn load8(&self, at: usize) -> u8 {
        // SAFETY: as in `read`.
        unsafe { AtomicU8::from_ptr(self.zone(at, 1)).load(Ordering::Acquire) }
    }

    /// The 8 bytes at `at`, in the processor's order, for polling: what a peer wrote before them is seen as well.
    ///
    /// # Panics
    /// When they are outside or not aligned, or it is not memory of the host.
    #[must_use]
    #[inline]
    pub fn load64(&self, at: usize) -> u64 {
        // SAFETY: as in `read`; `aligned` checks.
        unsafe { AtomicU64::from_ptr(self.aligned(at)).load(Ordering::Acquire) }
    }

    /// Stores 8 bytes at `at`, in the processor's order, after all that was stored before.
    ///
    /// # Panics
    /// When they are outside or not aligned, or it is not memory of the host.
    #[inline]
    pub fn store64(&self, at: usize, value: u64) {
        // SAFETY: as in `read`; `aligned` checks.
        unsafe { AtomicU64::from_ptr(self.aligned(at)).store(value, Ordering::Release) };
    }

    #[inline]
    fn aligned(&self, at: usize) -> *mut u64 {
        let place = self.zone(at, 8).cast::<u64>();
        assert!(place.is_aligned(), "8 bytes at {at} are not aligned");
        place
    }

    /// Gives a region other rights, or another domain. The keys may change.
    ///
    /// # Errors
    /// A queue, a window or another handle has it ([`VerbsError::InUse`]), or what the kernel says.
    pub fn reregister(&mut self, access: Option<Access>, pd: Option<&Pd>) -> Result<(), VerbsError> {
        let Some(inner) = Arc::get_mut(&mut self.0) else { return Err(IN_USE) };
        let Some(handle) = inner.handle else { return Err(IN_USE) };
        let change = MrChange { translation: None, pd: pd.map(Pd::handle), access };
        let made = inner
            .pd
            .context()
            .uverbs()
            .rereg_mr(handle, &change, Data::none())
            .map_err(VerbsError::kernel("change a memory region"))?;
        (inner.lkey, inner.rkey) = (made.lkey, made.rkey);
        if let Some(access) = access {
            inner.access = access;
        }
        if let Some(pd) = pd {
            inner.pd = pd.clone();
        }
        inner.number = inner.pd.context().object_number();
        Ok(())
    }

    /// Puts another zone behind a region, under its own address, and gives back the one before. The keys may change.
    ///
    /// # Errors
    /// A queue, a window or another handle has it ([`VerbsError::InUse`], with the new zone), or what the kernel says; then
    /// which of the two the device knows is not known, and the new one stays where it is for good.
    pub fn replace(&mut self, zone: Zone) -> Result<Zone, Box<(VerbsError, Option<Zone>)>> {
        let Some(inner) = Arc::get_mut(&mut self.0) else { return Err(Box::new((IN_USE, Some(zone)))) };
        let (Some(handle), Memory::Zone(place)) = (inner.handle, &mut inner.memory) else {
            return Err(Box::new((IN_USE, Some(zone))));
        };
        let start = zone.base().as_ptr().addr() as u64;
        let address = start.wrapping_add(inner.pd.delta());
        let change =
            MrChange { translation: Some((start, zone.bytes() as u64, address)), pd: None, access: None };
        match inner.pd.context().uverbs().rereg_mr(handle, &change, Data::none()) {
            Ok(made) => {
                (inner.lkey, inner.rkey) = (made.lkey, made.rkey);
                (inner.address, inner.bytes) = (address, zone.bytes());
                inner.number = inner.pd.context().object_number();
                Ok(ManuallyDrop::into_inner(std::mem::replace(place, ManuallyDrop::new(zone))))
            }
            Err(error) => {
                std::mem::forget(zone);
                Err(Box::new((VerbsError::kernel("change a memory region")(error), None)))
            }
        }
    }

    /// Deregisters it and gives back its memory.
    ///
    /// # Errors
    /// A queue, a window or another handle has it ([`VerbsError::InUse`], with the handle), or what the kernel says; then the
    /// memory stays where it is for good.
    pub fn deregister(self) -> Result<Option<Zone>, Box<(VerbsError, Option<Self>)>> {
        let mut inner = match Arc::try_unwrap(self.0) {
            Ok(inner) => inner,
            Err(shared) => return Err(Box::new((IN_USE, Some(Self(shared))))),
        };
        inner.end().map_err(|error| Box::new((error, None)))
    }

    pub(crate) fn span(&self, range: Range<usize>) -> Option<Held> {
        let bytes = range.end.checked_sub(range.start)?;
        (range.end <= self.0.bytes).then(|| {
            Held(Span {
                address: self.0.address.wrapping_add(range.start as u64),
                lkey: self.0.lkey,
                bytes: bytes as u32,
            })
        })
    }
}

const IN_USE: VerbsError = VerbsError::InUse {
    what: "a memory region",
    by: "a queue that it was posted to, a window, or another handle",
};

impl Inner {
    /// Deregisters it; its memory is free after that, and never where that fails.
    fn end(&mut self) -> Result<Option<Zone>, VerbsError> {
        if self.ended.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        if let Some(handle) = self.handle {
            self.pd.context().uverbs().dereg_mr(handle).map_err(VerbsError::kernel("deregister memory"))?;
        }
        Ok(match &mut self.memory {
            // SAFETY: once, by `ended`.
            Memory::Zone(zone) => Some(unsafe { ManuallyDrop::take(zone) }),
            _ => None,
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("{}: {error}", self.pd.context().name());
            if let Memory::Device(dm) = &self.memory {
                std::mem::forget(dm.clone());
            }
        }
    }
}

/// A piece of a region that a queue keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held(Span);

// SAFETY: made by `Mr::span` alone, whose callers keep the region with the queue until the device's is destroyed
// (`Attached`). Nobody has references into a region.
unsafe impl Lasting for Held {
    fn span(&self) -> Span {
        self.0
    }
}

/// Regions that a queue keeps: all that were ever posted to it.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    /// Those met last.
    recent: [u64; 4],
    turn: usize,
    all: Arc<Mutex<Vec<Mr>>>,
}

impl Attached {
    /// What keeps them, for whoever destroys the queue.
    pub(crate) fn keeper(&self) -> Box<dyn Send> {
        Box::new(Arc::clone(&self.all))
    }

    /// Keeps a region. Hot: four comparisons for one that was met lately; a lock, and room for it, the first time.
    #[inline]
    pub(crate) fn keep(&mut self, mr: &Mr) {
        if !self.recent.contains(&mr.number()) {
            self.keep_new(mr);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_new(&mut self, mr: &Mr) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| Arc::ptr_eq(&known.0, &mr.0)) {
            all.push(mr.clone());
        }
        self.recent[self.turn % 4] = mr.number();
        self.turn += 1;
    }
}

/// A buffer's place in its pool.
struct Head {
    data: NonNull<u8>,
    /// As the device calls it.
    address: u64,
    room: u32,
    number: u32,
    lkey: u32,
    /// Bytes of data. Only whoever owns the buffer looks here.
    len: std::cell::Cell<u32>,
    /// The pool, of which every buffer that is out counts as a handle.
    home: std::cell::Cell<*const Pool>,
}

struct Pool {
    heads: Box<[Head]>,
    free: Mutex<Vec<u32>>,
    pd: Pd,
    handle: MrHandle,
    zone: ManuallyDrop<Zone>,
}

// SAFETY: a head belongs to the pool while its number is in `free`, behind a lock, and to the one buffer otherwise.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        match self.pd.context().uverbs().dereg_mr(self.handle) {
            // SAFETY: once, and no buffer is out.
            Ok(()) => drop(unsafe { ManuallyDrop::take(&mut self.zone) }),
            Err(error) => tracing::warn!("{}: {error}", self.pd.context().name()),
        }
    }
}

/// A pool of buffers of one size, registered for this side alone. Clones are handles; buffers that are out keep its memory.
#[derive(Clone)]
pub struct Buffers(Arc<Pool>);

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers")
            .field("count", &self.0.heads.len())
            .field("available", &self.available())
            .finish()
    }
}

/// Buffers begin at multiples of this: a cache line.
const ALIGN: usize = 64;

impl Buffers {
    /// `count` buffers with room for `bytes` each.
    ///
    /// # Errors
    /// No memory, or what the kernel says.
    pub fn new(pd: &Pd, count: usize, bytes: usize) -> Result<Self, VerbsError> {
        let range = |what, value: usize, allowed: &str| VerbsError::Range {
            what,
            value: value as u64,
            allowed: allowed.to_owned(),
        };
        if bytes > 1 << 30 {
            return Err(range("room of a buffer", bytes, "1 GiB at most"));
        }
        let stride = bytes.max(1).next_multiple_of(ALIGN);
        let total = stride.checked_mul(count.max(1)).filter(|_| u32::try_from(count).is_ok());
        let total = total.ok_or_else(|| range("buffers", count, "fewer"))?;
        let mut zone = pd.context().reserve(total)?;
        zone.clear();
        let start = zone.base().as_ptr().addr() as u64;
        let address = start.wrapping_add(pd.delta());
        let request = MrRequest {
            pd: pd.handle(),
            start,
            length: total as u64,
            hca_va: address,
            access: Access::LOCAL_WRITE,
        };
        let mr = pd
            .context()
            .uverbs()
            .reg_mr(&request, Data::none())
            .map_err(VerbsError::kernel("register buffers"))?;
        let heads = (0..count)
            .map(|number| Head {
                // SAFETY: `count` strides fill the zone.
                data: unsafe { zone.base().add(number * stride) },
                address: address.wrapping_add((number * stride) as u64),
                room: bytes as u32,
                number: number as u32,
                lkey: mr.lkey,
                len: std::cell::Cell::new(0),
                home: std::cell::Cell::new(std::ptr::null()),
            })
            .collect();
        let free = Mutex::new((0..count as u32).rev().collect());
        let pool = Pool { heads, free, pd: pd.clone(), handle: mr.handle, zone: ManuallyDrop::new(zone) };
        Ok(Self(Arc::new(pool)))
    }

    /// A buffer, empty; `None` when all are out.
    #[must_use]
    pub fn take(&self) -> Option<Buf> {
        let number = self.0.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let head = &self.0.heads[number as usize];
        head.len.set(0);
        // The buffer counts as a handle.
        head.home.set(Arc::into_raw(Arc::clone(&self.0)));
        Some(Buf(NonNull::from(head)))
    }

    /// A buffer with a copy of `bytes`; `None` when all are out or none has room for it.
    #[must_use]
    pub fn filled(&self, bytes: &[u8]) -> Option<Buf> {
        let mut buf = self.take()?;
        buf.fill(bytes).then_some(buf)
    }

    /// How many are there to be taken.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many there are in all.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.heads.len()
    }
}

/// A buffer of a pool: its bytes, to be read and written like a slice, as long as it is owned. Posting moves it into the queue
/// and a completion gives it back; dropped, it goes home to its pool.
pub struct Buf(NonNull<Head>);

// SAFETY: a buffer is the one owner of its head and its bytes.
unsafe impl Send for Buf {}
// SAFETY: a shared one is only read.
unsafe impl Sync for Buf {}

impl Buf {
    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: the pool lives, for this buffer counts as a handle of it.
        unsafe { self.0.as_ref() }
    }

    /// Bytes that it has room for.
    #[must_use]
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.head().room as usize
    }

    /// Says how many bytes it has; those that are new are what was there before. `false`, and nothing changes, for more than it
    /// has [room](Self::room) for.
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.room();
        if fits {
            self.head().len.set(len as u32);
        }
        fits
    }

    /// Makes it a copy of `bytes`. `false`, and nothing changes, for more than it has room for.
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        let fits = self.set_len(bytes.len());
        if fits {
            self.copy_from_slice(bytes);
        }
        fits
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        let head = self.head();
        // SAFETY: `len <= room` always; the zone was cleared when it was made, and this is the one owner of these bytes:
        // neither device nor peer writes there while it is owned.
        unsafe { std::slice::from_raw_parts(head.data.as_ptr(), head.len.get() as usize) }
    }
}

impl DerefMut for Buf {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        let head = self.head();
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(head.data.as_ptr(), head.len.get() as usize) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let (number, home) = (self.head().number, self.head().home.get());
        // SAFETY: `take` made it of a handle, which ends here, after the number is free again.
        let pool = unsafe { Arc::from_raw(home) };
        pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head();
        f.debug_struct("Buf")
            .field("number", &head.number)
            .field("len", &head.len.get())
            .field("room", &head.room)
            .finish()
    }
}

/// What goes along with a request: a buffer or a packet's memory.
#[derive(Debug)]
pub enum Piece {
    /// A buffer.
    Buf(Buf),
    /// An mbuf of one segment, of a pool that the domain [knows](Pd::add_pool); of a longer one each is a [piece](Piece::segments).
    Mbuf(Mbuf),
}

impl Piece {
    /// The buffer, if it is one.
    #[must_use]
    pub fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Buf(buf) => Some(buf),
            Self::Mbuf(_) => None,
        }
    }

    /// The mbuf, if it is one.
    #[must_use]
    pub fn into_mbuf(self) -> Option<Mbuf> {
        match self {
            Self::Buf(_) => None,
            Self::Mbuf(mbuf) => Some(mbuf),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Buf(buf) => buf,
            Self::Mbuf(mbuf) => mbuf.data(),
        }
    }
}

impl From<Buf> for Piece {
    fn from(buf: Buf) -> Self {
        Self::Buf(buf)
    }
}

impl From<Mbuf> for Piece {
    fn from(mbuf: Mbuf) -> Self {
        Self::Mbuf(mbuf)
    }
}

// SAFETY: a buffer is the one owner of its bytes, registered as long as it exists, and without rights for peers. An mbuf owns
// its data room, which its pool's registration covers as long as the domain's key table says so, and the domain outlives the
// queue; where others share the data they may only read it, so it is only read by the device as well (`is_sole`).
unsafe impl Lend for Piece {
    #[inline(always)]
    fn span(&mut self, keys: &mut Keys, what_for: Use) -> Option<Span> {
        match self {
            Self::Buf(buf) => {
                let head = buf.head();
                let bytes = if what_for == Use::Fill { head.room } else { head.len.get() };
                Some(Span { address: head.address, lkey: head.lkey, bytes })
            }
            Self::Mbuf(mbuf) => packet_span(mbuf, keys, what_for),
        }
    }

    #[inline(always)]
    fn filled(&mut self, bytes: u32) {
        match self {
            Self::Buf(buf) => {
                buf.set_len(bytes as usize);
            }
            Self::Mbuf(mbuf) => {
                mbuf.set_len(bytes as usize);
            }
        }
    }

    #[inline(always)]
    fn room(&self) -> u32 {
        match self {
            Self::Buf(buf) => buf.head().room,
            Self::Mbuf(mbuf) => (mbuf.room_bytes() - mbuf.headroom()) as u32,
        }
    }
}

fn packet_span(mbuf: &mut Mbuf, keys: &mut Keys, what_for: Use) -> Option<Span> {
    if !mbuf.is_contiguous() || what_for != Use::Read && !mbuf.is_sole() {
        return None;
    }
    let bytes = match what_for {
        Use::Fill => mbuf.room_bytes() - mbuf.headroom(),
        _ => mbuf.data_len(),
    };
    let address = mbuf.data_ptr().addr() as u64;
    let key = keys.find(address, bytes as u64)?;
    Some(Span {
        address: address.wrapping_add(key.delta),
        lkey: u32::from_be(key.lkey_be),
        bytes: u32::try_from(bytes).ok()?,
    })
}

impl Context {
    fn null_key(&self) -> Option<u32> {
        match self.driver() {
            crate::context::Driver::Mlx5(hca) => hca.null_key(),
            crate::context::Driver::Rxe(_) => None,
        }
    }
}
