//! One version of a table, as a burst reads it.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;

use super::address::Address;
use super::tables::{ENTRIES, SharedTables, TOP_BITS};
use crate::memory::Word;

/// What a burst look-up answers where no route matches.
pub const NO_ROUTE: u32 = u32::MAX;

/// An entry that leads to a group, which the next 8 bits select from. Any other entry is a next hop and 1, or 0 for none.
pub(super) const GROUP: u32 = 1 << 31;
/// Entries of a group.
pub(super) const GROUP_WORDS: usize = 256;

/// Addresses whose look-ups overlap.
const BURST: usize = 32;

/// The routes of one version. Whatever is looked up in it is of that version.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, A> {
    table: &'a [AtomicU32; ENTRIES],
    /// With groups among them.
    words: &'a [AtomicU32],
    address: PhantomData<A>,
}

impl<'a, A: Address> View<'a, A> {
    #[inline(always)]
    pub(super) fn new(shared: &'a SharedTables, version: u64) -> Self {
        Self { table: shared.table(version), words: shared.words(), address: PhantomData }
    }

    /// The next hop of the longest prefix that `address` has. Hot: a load, and one for each further 8 bits of prefixes longer than 24 bits
    /// there.
    #[inline]
    #[must_use]
    #[doc(alias = "rte_lpm_lookup")]
    #[doc(alias = "rte_lpm6_lookup")]
    pub fn lookup(&self, address: impl Into<A>) -> Option<u32> {
        let hop = self.find(address.into());
        (hop != NO_ROUTE).then_some(hop)
    }

    /// Looks up each of `addresses`, in host order: next hops, or [`NO_ROUTE`], into `hops`. Hot: no branch for addresses behind which no
    /// prefix is longer than 24 bits; look-ups of a burst overlap.
    ///
    /// # Panics
    /// If `hops` is shorter than `addresses`.
    #[inline]
    #[doc(alias = "rte_lpm_lookup_bulk")]
    #[doc(alias = "rte_lpm_lookupx4")]
    #[doc(alias = "rte_lpm6_lookup_bulk_func")]
    #[doc(alias = "rte_fib_lookup_bulk")]
    pub fn lookup_burst(&self, addresses: &[A], hops: &mut [u32]) {
        let hops = &mut hops[..addresses.len()];
        let (whole, rest) = addresses.as_chunks::<BURST>();
        let (whole_hops, rest_hops) = hops.as_chunks_mut::<BURST>();
        for (addresses, hops) in whole.iter().zip(whole_hops) {
            self.lookup_some(addresses, hops);
        }
        if !rest.is_empty() {
            self.lookup_rest(rest, rest_hops);
        }
    }

    /// Fewer than [`BURST`]. By itself, so that whole bursts have the caller's registers and cache lines.
    #[inline(never)]
    fn lookup_rest(self, addresses: &[A], hops: &mut [u32]) {
        self.lookup_some(addresses, hops);
    }

    /// At most [`BURST`] of them; where it is that number, the compiler knows.
    #[inline(always)]
    fn lookup_some(&self, addresses: &[A], hops: &mut [u32]) {
        let mut all = 0;
        for (address, hop) in addresses.iter().zip(&mut *hops) {
            let entry = self.table[address.field(0, TOP_BITS)].get();
            all |= entry;
            *hop = entry.wrapping_sub(1);
        }
        // Level by level, so that the loads of one do not wait for those of another.
        let mut skip = TOP_BITS;
        while all & GROUP != 0 {
            all = 0;
            for (address, hop) in addresses.iter().zip(&mut *hops) {
                let above = hop.wrapping_add(1);
                // All ones where there is a group; a branch would go wrong half of the time.
                let deeper = (above as i32 >> 31) as u32;
                let place = (group_of(above) + address.field(skip, 8)) & deeper as i32 as usize;
                let entry = (self.words[place].get() & deeper) | (above & !deeper);
                all |= entry;
                *hop = entry.wrapping_sub(1);
            }
            skip += 8;
        }
    }

    #[inline(always)]
    fn find(&self, address: A) -> u32 {
        let (mut entry, mut skip) = (self.table[address.field(0, TOP_BITS)].get(), TOP_BITS);
        while entry & GROUP != 0 {
            entry = self.words[group_of(entry) + address.field(skip, 8)].get();
            skip += 8;
        }
        entry.wrapping_sub(1)
    }
}

/// The first word of the group that an entry leads to.
#[inline(always)]
pub(super) fn group_of(entry: u32) -> usize {
    (entry & !GROUP) as usize * GROUP_WORDS
}

/// The entry that leads to a group.
pub(super) fn entry_of(group: usize) -> u32 {
    (group / GROUP_WORDS) as u32 | GROUP
}
