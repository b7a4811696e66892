//! Striding receive queues: an entry is a buffer of many strides, a packet takes as many as it needs, one after another.
//!
//! ```text
//!   ring of entries ──► buffer: | packet | packet    | pac.. | filler |      strides of 2 KiB, say
//!                                   │         │
//!                     short: copied │         │ long: the mbuf shows the strides, and lends the buffer
//!                                   ▼         ▼
//!                                 mbuf       mbuf ──► when the last such mbuf is gone, the buffer is home
//! ```
//!
//! An entry is posted again with the same buffer when all its packets were copied, and with a spare one when some of it is
//! lent. A packet is only lent when a spare buffer has been set aside for its entry; else it is copied, whatever its length.
//! So all entries are always posted, and an application that keeps packets slows itself down and not the device.
//!
//! The strides that are lent are counted by the buffer's references: the queue holds one for good, each mbuf one. Buffers
//! live as long as the longest of them, after the queue too.
//!
//! Source: DPDK `drivers/net/mlx5/mlx5_rx.c`, `mlx5_rx_burst_mprq`, `mlx5_rx.h`, `mprq_buf_replace`; entry from rdma-core
//! `providers/mlx5/mlx5dv.h`, `struct mlx5_mprq_wqe`.
#![expect(unsafe_code, reason = "buffers that a device writes, lent to mbufs")]

use std::collections::VecDeque;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

use pollux_mempool::{External, Mbuf, MbufPool};
use pollux_mlx5_abi::wqe::{Data, StridingReceive};

use super::{Slot, UNKNOWN};
use crate::eth::parts::StridingParts;
use pollux_mlx5_common::key::{Key, Keys};
use pollux_mlx5_common::mr::Buffers;

/// Mbufs taken from the pool at once, for packets to come.
const STASH: usize = 32;
/// Of an entry: where its one piece of memory stands.
const DATA: usize = offset_of!(StridingReceive, data);
/// How many lent buffers are looked at when a spare one is wanted.
const LOOKS: usize = 8;

/// The buffers of a striding queue, and where it is in them.
pub(in crate::eth) struct Striding {
    /// The queue's own hold on each buffer.
    buffers: Box<[External]>,
    /// Which buffer each entry has.
    of_entry: Box<[u16]>,
    /// Buffers that nobody uses.
    spare: Vec<u16>,
    /// Buffers of which mbufs show some, or did.
    lent: VecDeque<u16>,
    /// The buffer set aside for the entry at hand: some of that entry's is lent.
    aside: Option<u16>,
    key: Key,
    pub(in crate::eth) strides_log2: u8,
    pub(in crate::eth) stride_log2: u8,
    pub(in crate::eth) shift: u32,
    pub(in crate::eth) copy_max: u32,
    /// Strides used up of the entry at hand.
    pub(in crate::eth) used: u32,
    stash: [Slot; STASH],
    stashed: usize,
    ring: NonNull<u8>,
}

// SAFETY: ring and buffers belong to no thread; the queue owns them.
unsafe impl Send for Striding {}

impl Striding {
    /// Bytes of a packet that a buffer has room for.
    pub(super) fn capacity(parts: &StridingParts) -> u32 {
        (1 << (parts.strides_log2 + parts.stride_bytes_log2)) - if parts.two_byte_shift { 2 } else { 0 }
    }

    /// What is wrong with the parts.
    pub(super) fn check(parts: &StridingParts, wqes_log2: u8) -> Result<(), String> {
        let bytes = 1_usize << (parts.strides_log2 + parts.stride_bytes_log2);
        let entries = 1 << wqes_log2;
        // A length has 16 bits in a striding completion, so no buffer is of use beyond that; ids are 16 bits.
        if parts.count < entries || parts.count > usize::from(u16::MAX) {
            return Err(format!("{} buffers for {entries} entries, 65535 at most", parts.count));
        }
        if parts.buffers.bytes() / bytes < parts.count {
            return Err(format!("{} buffers of {bytes} bytes are not in the zone", parts.count));
        }
        Ok(())
    }

    pub(super) fn new(parts: StridingParts, wqes_log2: u8, keys: &mut Keys) -> Self {
        let (base, all) = (parts.buffers.base(), parts.buffers.bytes());
        let key = keys.covering(base.as_ptr().addr() as u64, all as u64).unwrap_or(UNKNOWN);
        let bytes = 1_usize << (parts.strides_log2 + parts.stride_bytes_log2);
        let zone: Arc<Buffers> = Arc::new(parts.buffers);
        let buffers = (0..parts.count).map(|at| {
            let zone = Arc::clone(&zone);
            // SAFETY: `check` found the buffers in the zone, which lives until the last of them is free; no two overlap,
            // and nobody else has the zone. Zones are zeroed when they are mapped.
            unsafe { External::new(base.add(at * bytes), bytes, move |_, _| drop(zone)) }
        });
        let entries = 1_u16 << wqes_log2;
        Self {
            buffers: buffers.collect(),
            of_entry: (0..entries).collect(),
            spare: (entries..parts.count as u16).collect(),
            lent: VecDeque::with_capacity(parts.count),
            aside: None,
            key,
            strides_log2: parts.strides_log2,
            stride_log2: parts.stride_bytes_log2,
            shift: if parts.two_byte_shift { 2 } else { 0 },
            copy_max: parts.copy_bytes_max as u32,
            used: 0,
            stash: [const { Slot::uninit() }; STASH],
            stashed: 0,
            ring: NonNull::dangling(),
        }
    }

    /// Strides of a buffer.
    #[inline(always)]
    pub(in crate::eth) fn strides(&self) -> u32 {
        1 << self.strides_log2
    }

    /// Writes all entries.
    ///
    /// # Safety
    /// `ring` has `entries` entries of 32 bytes, as many as this was made for, and lives as long as this.
    pub(super) unsafe fn write_ring(&mut self, ring: NonNull<u8>, entries: usize) {
        self.ring = ring;
        let bytes = 1_u32 << (self.strides_log2 + self.stride_log2);
        for entry in 0..entries {
            // SAFETY: the caller's promise; volatile stores bear a device that reads.
            unsafe {
                let at = ring.add(entry * size_of::<StridingReceive>());
                for word in 0..DATA / 4 {
                    at.cast::<u32>().add(word).write_volatile(0);
                }
                at.add(DATA + offset_of!(Data, byte_count)).cast::<u32>().write_volatile(bytes.to_be());
                at.add(DATA + offset_of!(Data, lkey)).cast::<u32>().write_volatile(self.key.lkey_be);
            }
            self.write_entry(entry);
        }
    }

    /// Writes the address of an entry's buffer.
    #[inline(always)]
    fn write_entry(&self, entry: usize) {
        let buffer = &self.buffers[usize::from(self.of_entry[entry])];
        let address = (buffer.base().as_ptr().addr() as u64).wrapping_add(self.key.delta);
        debug_assert!(entry < self.of_entry.len());
        // SAFETY: the ring has as many entries as `of_entry` (`write_ring`).
        unsafe {
            let at = self.ring.add(entry * size_of::<StridingReceive>() + DATA + offset_of!(Data, addr));
            at.cast::<u64>().write_volatile(address.to_be());
        }
    }

    /// A buffer that nobody uses, set aside for the entry at hand so that its own may be lent. `false`: there is none.
    #[inline(always)]
    pub(in crate::eth) fn may_lend(&mut self) -> bool {
        self.aside.is_some() || self.set_aside()
    }

    #[inline(never)]
    fn set_aside(&mut self) -> bool {
        self.aside = self.spare.pop();
        for _ in 0..LOOKS.min(self.lent.len()) {
            if self.aside.is_some() {
                break;
            }
            let Some(oldest) = self.lent.pop_front() else { break };
            if self.buffers[usize::from(oldest)].is_sole() {
                self.aside = Some(oldest);
            } else {
                self.lent.push_back(oldest);
            }
        }
        self.aside.is_some()
    }

    /// An mbuf of `pool` that shows nothing yet.
    #[inline(always)]
    pub(in crate::eth) fn mbuf(&mut self, pool: &MbufPool) -> Option<NonNull<u8>> {
        if self.stashed == 0 && !self.fill_stash(pool) {
            return None;
        }
        self.stashed -= 1;
        // SAFETY: the first `stashed` are mbufs.
        Some(unsafe { self.stash[self.stashed].assume_init() })
    }

    #[inline(never)]
    fn fill_stash(&mut self, pool: &MbufPool) -> bool {
        let mut count = STASH;
        while count > 0 && !pool.alloc_raw(&mut self.stash[..count]) {
            count /= 2;
        }
        self.stashed = count;
        count > 0
    }

    /// Address of `bytes` bytes at `offset` in the buffer of an entry.
    #[inline(always)]
    pub(in crate::eth) fn data(&self, entry: usize, offset: usize) -> NonNull<u8> {
        let buffer = &self.buffers[usize::from(self.of_entry[entry])];
        debug_assert!(offset < buffer.bytes());
        // SAFETY: the caller checked the strides against the buffer.
        unsafe { buffer.base().add(offset) }
    }

    /// Has `mbuf` show `bytes` bytes at `offset` in the buffer of the entry at hand. [`may_lend`](Self::may_lend) was
    /// true.
    #[inline(always)]
    pub(in crate::eth) fn lend(&self, entry: usize, offset: usize, bytes: usize, mbuf: &mut Mbuf) -> bool {
        let buffer = &self.buffers[usize::from(self.of_entry[entry])];
        // SAFETY: these strides were completed once, so no other mbuf shows them, and the device writes them only when the
        // entry is posted again with this buffer, after `is_sole` said that no mbuf shows it.
        let part = unsafe { buffer.lend(offset, bytes) };
        part.is_some_and(|part| mbuf.attach_external(part).is_ok())
    }

    /// All strides of an entry are used up: it gets another buffer if some of its own is lent, and can be posted again.
    #[inline(always)]
    pub(in crate::eth) fn turn(&mut self, entry: usize) {
        self.used = 0;
        if let Some(fresh) = self.aside.take() {
            let old = std::mem::replace(&mut self.of_entry[entry], fresh);
            // The queue has room for all buffers since it was made.
            self.lent.push_back(old);
            self.write_entry(entry);
        }
    }

    /// Mbufs at hand go home; the entry at hand starts from its beginning with a buffer that nobody uses.
    pub(super) fn give_all(&mut self) {
        // SAFETY: the first `stashed` are mbufs, forgotten by the next line.
        unsafe { Mbuf::free_raw(std::slice::from_raw_parts(self.stash.as_ptr().cast(), self.stashed)) };
        self.stashed = 0;
    }

    /// After a reset of the device's queue: the entry at hand begins anew, and not in strides that are lent.
    pub(super) fn restart(&mut self, at_hand: usize) {
        self.give_all();
        self.turn(at_hand);
    }
}

impl std::fmt::Debug for Striding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Striding").field("used", &self.used).finish_non_exhaustive()
    }
}
