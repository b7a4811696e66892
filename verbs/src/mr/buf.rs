//! Buffers: pieces of one registration, owned one by one.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::provider::request::Span;
use pollux_eal::region::Zone;
use pollux_uverbs::MrHandle;
use pollux_uverbs::abi::flags::Access;
use pollux_uverbs::mr::MrRequest;

use crate::VerbsError;
use crate::pd::Pd;
use crate::view::{Listed, MrKind, MrRecord};

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
    /// The [serial](crate::Context::serial) of the context that knows it.
    context: u64,
    /// The pool, of which every buffer that is out counts as a handle.
    home: std::cell::Cell<*const Pool>,
}

struct Pool {
    heads: Box<[Head]>,
    free: Mutex<Vec<u32>>,
    pd: Pd,
    handle: MrHandle,
    zone: ManuallyDrop<Zone>,
    _record: Listed<MrRecord>,
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
            Err(error) => tracing::warn!(target: "lib.verbs", "{}: {error}", self.pd.context().name()),
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
        // SAFETY: the pool keeps the zone until it is deregistered; a buffer's bytes are looked at by whoever owns it, and posted by
        // whoever gives it away. Peers have no rights.
        let made = unsafe { pd.context().register(&request) };
        let mr = made.map_err(VerbsError::kernel("register buffers"))?;
        let heads = (0..count)
            .map(|number| Head {
                // SAFETY: `count` strides fill the zone.
                data: unsafe { zone.base().add(number * stride) },
                address: address.wrapping_add((number * stride) as u64),
                room: bytes as u32,
                number: number as u32,
                lkey: mr.lkey,
                len: std::cell::Cell::new(0),
                context: pd.context().serial(),
                home: std::cell::Cell::new(std::ptr::null()),
            })
            .collect();
        let free = Mutex::new((0..count as u32).rev().collect());
        let _record = pd.context().registry().add_memory(MrKind::Buffers, total as u64, Access::LOCAL_WRITE);
        let (handle, zone) = (mr.handle, ManuallyDrop::new(zone));
        let pool = Pool { heads, free, pd: pd.clone(), handle, zone, _record };
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

    /// Where the device finds its bytes, or `all` of its room.
    #[inline(always)]
    pub(super) fn span(&self, all: bool) -> Span {
        let head = self.head();
        let bytes = if all { head.room } else { head.len.get() };
        Span { address: head.address, lkey: head.lkey, bytes }
    }

    /// The serial of the context that knows it.
    #[inline(always)]
    pub(super) fn context(&self) -> u64 {
        self.head().context
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
