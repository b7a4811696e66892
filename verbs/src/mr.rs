//! Memory: regions that others may reach, and buffers that go along with requests.
//!
//! ```text
//!   Mr       a zone, registered with rights for peers: read and written by copies alone, at any time, by anybody
//!            who posts it keeps it: it is deregistered after the last queue that named it, and only then freed
//!   Buf      a piece of a zone registered for this side alone: owned like a Vec, moved into a request, comes back with it
//!   AllMemory  all of the process, whose pages come on demand: zones become regions of it without a call of the kernel
//!   Mbuf     the same, of a packet pool that the domain knows
//! ```
//!
//! A region or buffer pool that the kernel refuses to deregister is never freed.
#![expect(unsafe_code, reason = "memory that a device reads and writes")]

mod attached;
mod buf;
mod copy;
mod foreign;
mod implicit;
mod piece;

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::provider::request::Span;
use pollux_eal::region::Zone;
use pollux_uverbs::abi::flags::Access;
use pollux_uverbs::mr::{MrChange, MrRequest};
use pollux_uverbs::{Driver, MrHandle};

use crate::VerbsError;
use crate::dm::Dm;
use crate::pd::Pd;
use crate::view::{Listed, MrKind, MrRecord};
pub(crate) use attached::Attached;
pub use buf::{Buf, Buffers};
use copy::Shared;
pub use implicit::AllMemory;
pub use piece::Piece;

/// What a region is made of.
#[derive(Debug)]
enum Memory {
    Zone(ManuallyDrop<Zone>),
    /// A zone under the key of all memory, which stays registered as long.
    Part {
        zone: ManuallyDrop<Zone>,
        _all: AllMemory,
    },
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
    record: Listed<MrRecord>,
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
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(pd: &Pd, zone: Zone, access: Access) -> Result<Self, Box<(VerbsError, Zone)>> {
        let address = (zone.base().as_ptr().addr() as u64).wrapping_add(pd.delta());
        Self::register_at(pd, zone, address, access)
    }

    /// Registers a zone under an address of the caller's, at the same place in its page; under 0 with
    /// [`Access::ZERO_BASED`], for which the zone must begin on a page.
    ///
    /// # Errors
    /// What the kernel says, with the zone.
    pub fn register_at(
        pd: &Pd,
        zone: Zone,
        address: u64,
        access: Access,
    ) -> Result<Self, Box<(VerbsError, Zone)>> {
        // Drivers register under the address they are given whatever the rights say; that 0 there is what "zero-based" means is in
        // linux-rdma/rdma-core, `libibverbs/man/ibv_reg_mr.3`.
        let address = if access.contains(Access::ZERO_BASED) { 0 } else { address };
        let request = MrRequest {
            pd: pd.handle(),
            start: zone.base().as_ptr().addr() as u64,
            length: zone.bytes() as u64,
            hca_va: address,
            access,
        };
        // SAFETY: the region keeps the zone until it is deregistered, and gives nobody a reference into it.
        let made = match unsafe { pd.context().register(&request) } {
            Ok(made) => made,
            Err(error) => return Err(Box::new((VerbsError::kernel("register memory")(error), zone))),
        };
        let bytes = zone.bytes();
        let memory = Memory::Zone(ManuallyDrop::new(zone));
        Ok(Self::made(pd, memory, Some(made.handle), (made.lkey, made.rkey), address, bytes, access))
    }

    /// Allocates zeroed memory and registers it.
    ///
    /// # Errors
    /// No memory, or what the kernel says.
    pub fn allocate(pd: &Pd, bytes: usize, access: Access) -> Result<Self, VerbsError> {
        Self::cleared(pd, pd.context().reserve(bytes)?, access)
    }

    /// Allocates zeroed memory of huge pages alone, and registers it.
    ///
    /// # Errors
    /// As [`Context::reserve_huge`](crate::Context::reserve_huge), or what the kernel says.
    pub fn allocate_huge(pd: &Pd, bytes: usize, access: Access) -> Result<Self, VerbsError> {
        Self::cleared(pd, pd.context().reserve_huge(bytes)?, access)
    }

    fn cleared(pd: &Pd, mut zone: Zone, access: Access) -> Result<Self, VerbsError> {
        zone.clear();
        Self::register(pd, zone, access).map_err(|refused| refused.0)
    }

    /// The kernel's handle, for whoever shall [import](Self::import) it; none of what was imported itself, or is a part of
    /// [all memory](AllMemory).
    #[must_use]
    pub fn handle(&self) -> Option<MrHandle> {
        self.0.handle
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
        let (number, ended) = (next_number(), AtomicBool::new(false));
        let record = pd.context().registry().add_memory(MrKind::Region, bytes as u64, access);
        let pd = pd.clone();
        Self(Arc::new(Inner {
            pd,
            memory,
            handle,
            lkey,
            rkey,
            address,
            bytes,
            access,
            number,
            ended,
            record,
        }))
    }

    /// Returns its protection domain.
    #[must_use]
    pub fn pd(&self) -> &Pd {
        &self.0.pd
    }

    /// Returns the local key.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.0.lkey
    }

    /// Returns the remote key.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.0.rkey
    }

    /// Returns the address of the first byte, as used by work requests and peers.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns its access rights.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.access
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    #[inline(always)]
    fn memory(&self) -> Shared {
        let (Memory::Zone(zone) | Memory::Part { zone, .. }) = &self.0.memory else {
            panic!("a region of {:?} is not read and written here", self.0.memory)
        };
        // SAFETY: the zone is mapped as long as the region; it is reached by this alone, and nobody has a reference there.
        unsafe { Shared::new(zone.base().as_ptr(), self.0.bytes) }
    }

    /// Copies out what is at `at` now. What a peer writes meanwhile may be seen in part, but 8 bytes at a multiple of 8 are
    /// seen as one.
    ///
    /// # Panics
    /// When there are fewer bytes, or it is not memory of the host.
    pub fn read(&self, at: usize, target: &mut [u8]) {
        self.memory().read(at, target);
    }

    /// Copies in. What a peer reads meanwhile may be part of it, but 8 bytes at a multiple of 8 go in as one. Parts of such words, at
    /// the ends, cost an atomic exchange each: what others write to the rest of the word stays.
    ///
    /// # Panics
    /// When it would not fit, or it is not memory of the host.
    pub fn write(&self, at: usize, source: &[u8]) {
        self.memory().write(at, source);
    }

    /// The byte at `at`, for polling: what a peer wrote before it is seen as well.
    ///
    /// # Panics
    /// When it is outside, or it is not memory of the host.
    #[must_use]
    #[inline]
    pub fn load8(&self, at: usize) -> u8 {
        self.memory().load8(at)
    }

    /// The 8 bytes at `at`, in the processor's order, for polling: what a peer wrote before them is seen as well.
    ///
    /// # Panics
    /// When they are outside or not aligned, or it is not memory of the host.
    #[must_use]
    #[inline]
    pub fn load64(&self, at: usize) -> u64 {
        self.memory().aligned(at).load(Ordering::Acquire)
    }

    /// Stores 8 bytes at `at`, in the processor's order, after all that was stored before.
    ///
    /// # Panics
    /// When they are outside or not aligned, or it is not memory of the host.
    #[inline]
    pub fn store64(&self, at: usize, value: u64) {
        self.memory().aligned(at).store(value, Ordering::Release);
    }

    /// Reregisters the region with other access rights or another protection domain. The keys may change.
    ///
    /// # Errors
    /// A queue, a window or another handle has it ([`VerbsError::InUse`]), a domain of another context ([`VerbsError::Foreign`]), a part of
    /// [all memory](AllMemory) ([`VerbsError::Unsupported`]), or what the kernel says.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn reregister(&mut self, access: Option<Access>, pd: Option<&Pd>) -> Result<(), VerbsError> {
        let Some(inner) = Arc::get_mut(&mut self.0) else { return Err(IN_USE) };
        if matches!(inner.memory, Memory::Part { .. }) {
            return Err(part());
        }
        let Some(handle) = inner.handle else { return Err(IN_USE) };
        if let Some(pd) = pd {
            inner.pd.context().admit("a protection domain", pd.context())?;
        }
        let change = MrChange { translation: None, pd: pd.map(Pd::handle), access };
        // SAFETY: its memory stays what it is, and no queue has the region.
        let made = unsafe { inner.pd.context().uverbs().rereg_mr(handle, &change, Driver::none()) }
            .map_err(VerbsError::kernel("reregister a memory region"))?;
        (inner.lkey, inner.rkey) = (made.lkey, made.rkey);
        if let Some(access) = access {
            inner.access = access;
        }
        if let Some(pd) = pd {
            inner.pd = pd.clone();
        }
        inner.number = next_number();
        inner.record.set(inner.bytes as u64, inner.access);
        Ok(())
    }

    /// Reregisters the region with another zone at its own address, and returns the previous zone. The keys may change.
    ///
    /// # Errors
    /// A queue, a window or another handle has it ([`VerbsError::InUse`]) or it is zero-based or a part of [all memory](AllMemory)
    /// ([`VerbsError::Unsupported`]), all with the new zone; or what the kernel says; then which of the two the device knows is not known, and the new one
    /// stays where it is for good.
    pub fn replace(&mut self, zone: Zone) -> Result<Zone, Box<(VerbsError, Option<Zone>)>> {
        let Some(inner) = Arc::get_mut(&mut self.0) else { return Err(Box::new((IN_USE, Some(zone)))) };
        if matches!(inner.memory, Memory::Part { .. }) {
            return Err(Box::new((part(), Some(zone))));
        }
        let (Some(handle), Memory::Zone(place)) = (inner.handle, &mut inner.memory) else {
            return Err(Box::new((IN_USE, Some(zone))));
        };
        if inner.access.contains(Access::ZERO_BASED) {
            let why = String::from(
                "the kernel takes no address 0 for it; register the new memory as a region of its own",
            );
            let what = "other memory behind a zero-based region";
            return Err(Box::new((VerbsError::Unsupported { what, why }, Some(zone))));
        }
        let start = zone.base().as_ptr().addr() as u64;
        let address = start.wrapping_add(inner.pd.delta());
        let change =
            MrChange { translation: Some((start, zone.bytes() as u64, address)), pd: None, access: None };
        // SAFETY: as in `register_at`; both zones stay where they are until it is known which one the device has.
        match unsafe { inner.pd.context().uverbs().rereg_mr(handle, &change, Driver::none()) } {
            Ok(made) => {
                (inner.lkey, inner.rkey) = (made.lkey, made.rkey);
                (inner.address, inner.bytes) = (address, zone.bytes());
                inner.number = next_number();
                inner.record.set(inner.bytes as u64, inner.access);
                Ok(ManuallyDrop::into_inner(std::mem::replace(place, ManuallyDrop::new(zone))))
            }
            Err(error) => {
                std::mem::forget(zone);
                Err(Box::new((VerbsError::kernel("reregister a memory region")(error), None)))
            }
        }
    }

    /// Deregisters the region and returns its memory.
    ///
    /// # Errors
    /// A queue, a window or another handle has it ([`VerbsError::InUse`], with the handle), or what the kernel says; then the
    /// memory stays where it is for good.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(self) -> Result<Option<Zone>, Box<(VerbsError, Option<Self>)>> {
        let mut inner = match Arc::try_unwrap(self.0) {
            Ok(inner) => inner,
            Err(shared) => return Err(Box::new((IN_USE, Some(Self(shared))))),
        };
        inner.end().map_err(|error| Box::new((error, None)))
    }

    /// A part as one piece of a request. `None`: it is not inside, or longer than [`PIECE_BYTES`].
    #[inline]
    pub(crate) fn span(&self, range: Range<usize>) -> Option<Held<'_>> {
        let bytes = self.length_of(&range).filter(|bytes| *bytes <= PIECE_BYTES)? as u32;
        let address = self.0.address.wrapping_add(range.start as u64);
        Some(Held { mr: self, at: range.start, span: Span { address, lkey: self.0.lkey, bytes } })
    }

    /// The length of a part that is inside.
    #[inline]
    fn length_of(&self, range: &Range<usize>) -> Option<usize> {
        range.end.checked_sub(range.start).filter(|_| range.end <= self.0.bytes)
    }
}

/// The longest piece of a request. Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_data_seg`, of whose
/// `byte_count` bit 31 is `MLX5_INLINE_SEG`.
const PIECE_BYTES: usize = 1 << 31;

/// A number for a region, of which requests are told apart: another one when its keys change.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

const IN_USE: VerbsError = VerbsError::InUse {
    what: "a memory region",
    by: "a queue that it was posted to, a window, or another handle",
};

fn part() -> VerbsError {
    let why = "its rights are those of all memory; make another region".into();
    VerbsError::Unsupported { what: "a change of a part of all memory", why }
}

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
            Memory::Zone(zone) | Memory::Part { zone, .. } => Some(unsafe { ManuallyDrop::take(zone) }),
            _ => None,
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(target: "lib.verbs", "{}: {error}", self.pd.context().name());
            if let Memory::Device(dm) = &self.memory {
                std::mem::forget(dm.clone());
            }
        }
    }
}

/// A piece of a region that a queue keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    mr: &'a Mr,
    at: usize,
    span: Span,
}

/// Memory that outlives every queue which it is posted to, for which unsafe code of the rings relies on this: it is made by `Mr::span`
/// alone, whose callers keep the region with the queue until the device's is destroyed (`Attached`). Nobody has references into a
/// region.
impl Held<'_> {
    /// Where the device finds it.
    #[inline(always)]
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Copies its first bytes, of which it has so many; `false` where the process cannot read them.
    pub(crate) fn copy_first(&self, into: &mut [u8]) -> bool {
        let is_host = matches!(self.mr.0.memory, Memory::Zone(_) | Memory::Part { .. });
        if is_host {
            self.mr.read(self.at, into);
        }
        is_host
    }
}
