//! Entries whose parts have their own pools, lengths and places, or are dropped.
//!
//! ```text
//!   entry: | part 0   | part 1     | part 2   | end |       as many data segments as a power of two
//!            │ pool A   │ null key   │ pool B   └ no bytes, invalid key
//!            ▼          ▼            ▼
//!          mbuf      nothing        mbuf       of a packet: a chain of those that it reaches
//! ```
//!
//! What is written with the null key is gone, and never crosses PCIe. Source: DPDK `drivers/net/mlx5/mlx5_rxq.c`,
//! `mlx5_rxq_new`, `mlx5_rx.c`, `mlx5_rxq_initialize`, `mlx5_rx_burst`; the end of a list from rdma-core
//! `providers/mlx5/qp.c`, `mlx5_post_wq_recv`.
#![expect(unsafe_code, reason = "writes entries that a device reads, and owns mbufs by their addresses")]

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use pollux_mempool::{Mbuf, MbufPool};
use pollux_mlx5_abi::wqe::INVALID_LKEY;

use super::{Place, Rq, Slot};
use crate::eth::parts::SplitParts;
use pollux_mlx5_common::key::Keys;

/// What an entry is made of.
pub(in crate::eth) struct Split {
    pub(in crate::eth) parts: Box<[Part]>,
    /// The key of no memory, as it stands in a segment.
    null_key_be: u32,
}

/// One part of an entry.
pub(in crate::eth) struct Part {
    /// `None`: it is dropped.
    pub(in crate::eth) home: Option<(MbufPool, Place)>,
    /// Where in an mbuf's room it begins.
    pub(in crate::eth) offset: u32,
    pub(in crate::eth) bytes: u32,
}

impl Split {
    /// Bytes that an entry has room for, the dropped ones among them.
    pub(super) fn capacity(parts: &SplitParts) -> u32 {
        parts.parts.iter().map(|part| part.bytes).sum()
    }

    /// Takes charge of the parts.
    ///
    /// # Errors
    /// The device does not know a pool's memory.
    pub(super) fn new(parts: SplitParts, keys: &mut Keys) -> Result<Self, String> {
        let mut made = Vec::new();
        for part in parts.parts {
            let home = match part.pool {
                None => None,
                Some(pool) => {
                    let place = Place::of(&pool, keys)?;
                    Some((pool, place))
                }
            };
            made.push(Part { home, offset: part.offset, bytes: part.bytes });
        }
        Ok(Self { parts: made.into(), null_key_be: parts.null_key.to_be() })
    }

    /// Mbufs for the first `count` parts, into `to`. `false`, and none at all, when a pool has not as many.
    pub(in crate::eth) fn take(&self, count: usize, to: &mut [Slot]) -> bool {
        for (at, part) in self.parts[..count].iter().enumerate() {
            let Some((pool, _)) = &part.home else { continue };
            if !pool.alloc_raw(&mut to[at..=at]) {
                // SAFETY: those before this one were just taken, and are forgotten by the caller.
                unsafe { self.give(at, to) };
                return false;
            }
        }
        true
    }

    /// The mbufs of the first `count` parts go home.
    ///
    /// # Safety
    /// They are in `slots`, the caller's, and the caller forgets them.
    unsafe fn give(&self, count: usize, slots: &[Slot]) {
        for (part, slot) in self.parts[..count].iter().zip(slots) {
            if part.home.is_some() {
                // SAFETY: by the caller.
                unsafe { Mbuf::free_raw(&[slot.assume_init()]) };
            }
        }
    }
}

impl Rq {
    /// Writes what stays the same in all entries that are split.
    pub(super) fn write_split(&mut self, split: &Split) {
        let segments = 1 << self.segments_log2;
        for slot in 0..self.slots.len() {
            let (bytes, key_be) = match split.parts.get(slot & (segments - 1)) {
                None => (0, INVALID_LKEY.to_be()),
                Some(Part { home: None, bytes, .. }) => (*bytes, split.null_key_be),
                Some(Part { home: Some((_, place)), bytes, .. }) => (*bytes, place.usual().lkey_be),
            };
            let at = self.segment(slot);
            // SAFETY: the segment is in the ring; volatile stores bear a device that reads.
            unsafe {
                at.cast::<u32>().write_volatile(bytes.to_be());
                at.cast::<u32>().add(1).write_volatile(key_be);
                at.cast::<u64>().add(1).write_volatile(0);
            }
        }
    }

    /// Puts a fresh mbuf into the segment of a part; the one that was there.
    #[inline(always)]
    pub(in crate::eth) fn exchange(&mut self, slot: usize, part: &Part, fresh: Slot) -> Slot {
        if let Some((_, place)) = &part.home {
            // SAFETY: `Split::take` filled it.
            let raw: NonNull<u8> = unsafe { fresh.assume_init() };
            let (address, key) = place.target(&mut self.keys, raw, part.offset);
            self.point(slot, address, (!place.is_whole()).then_some(key));
        }
        std::mem::replace(&mut self.slots[slot], fresh)
    }

    /// Fills `run` entries from place `at`, one at a time, as far as the pools go. How many were filled.
    pub(super) fn refill_split(&mut self, split: &Split, at: u32, run: u32) -> u32 {
        let mut fresh = [const { Slot::uninit() }; 1 << super::SEGMENTS_LOG2_MAX];
        for done in 0..run {
            if !split.take(split.parts.len(), &mut fresh) {
                self.starve();
                return done;
            }
            let first = ((at + done) as usize) << self.segments_log2;
            for (place, part) in split.parts.iter().enumerate() {
                if part.home.is_some() {
                    let _: MaybeUninit<_> = self.exchange(first + place, part, fresh[place]);
                }
            }
        }
        run
    }

    /// The mbufs of a posted entry go home.
    ///
    /// # Safety
    /// It is posted, and the caller leaves it behind.
    pub(super) unsafe fn give_split(&self, split: &Split, entry: u32) {
        let first = (entry as usize) << self.segments_log2;
        // SAFETY: the slots of parts with a pool hold mbufs while an entry is posted.
        unsafe { split.give(split.parts.len(), &self.slots[first..]) };
    }
}
