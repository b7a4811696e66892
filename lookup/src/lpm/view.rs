//! One version of a table, as a burst reads it.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;

use super::address::Address;
use crate::memory::Word;
use crate::paged::Shared;

/// What a burst look-up answers where no route matches.
pub const NO_ROUTE: u32 = u32::MAX;

/// An entry that leads to a group, which the next 8 bits select from. Any other entry is a next hop and 1, or 0 for none.
pub(super) const GROUP: u32 = 1 << 31;
/// Entries of a group.
pub(super) const GROUP_WORDS: usize = 256;
/// Bits that select a page.
pub(super) const PAGE_BITS: u32 = 12;
/// Bits that select an entry in it.
pub(super) const ENTRY_BITS: u32 = 12;
/// Bits that pages cover.
pub(super) const TOP_BITS: u32 = PAGE_BITS + ENTRY_BITS;

/// Addresses whose look-ups overlap.
const BURST: usize = 32;

/// The routes of one version. Whatever is looked up in it is of that version.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, A> {
    words: &'a [AtomicU32],
    root: &'a [AtomicU32; 1 << PAGE_BITS],
    address: PhantomData<A>,
}

impl<'a, A: Address> View<'a, A> {
    #[inline(always)]
    pub(super) fn new(shared: &'a Shared<AtomicU32>, version: u64) -> Self {
        let Ok(root) = shared.root(version).try_into() else {
            unreachable!("a table has a place for each page")
        };
        Self { words: shared.words(), root, address: PhantomData }
    }

    /// The next hop of the longest prefix that `address` has. Hot: for IPv4 three loads, one more behind prefixes longer than 24 bits; for
    /// IPv6 two and one for each further 8 bits of the prefixes there.
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
        self.lookup_some(rest, rest_hops);
    }

    /// At most [`BURST`] of them; where it is that number, the compiler knows.
    #[inline(always)]
    fn lookup_some(&self, addresses: &[A], hops: &mut [u32]) {
        let (mut pages, mut entries) = ([0u32; BURST], [0u32; BURST]);
        for ((address, page), entry) in addresses.iter().zip(&mut pages).zip(&mut entries) {
            *page = address.field(0, PAGE_BITS) as u32;
            *entry = address.field(PAGE_BITS, ENTRY_BITS) as u32;
        }
        for ((page, entry), hop) in pages.iter().zip(&entries).zip(&mut *hops) {
            let page = self.root[*page as usize % (1 << PAGE_BITS)].get();
            *hop = self.words[page.wrapping_add(*entry) as usize].get();
        }
        // Level by level, so that the loads of one do not wait for those of another.
        let mut skip = TOP_BITS;
        while hops.iter().fold(0, |all, hop| all | hop) & GROUP != 0 {
            for (address, hop) in addresses.iter().zip(&mut *hops) {
                // All ones where there is a group; a branch would go wrong half of the time.
                let deeper = (*hop as i32 >> 31) as u32;
                let place = (group_of(*hop) + address.field(skip, 8)) & deeper as i32 as usize;
                let entry = self.words[place].get();
                *hop = (entry & deeper) | (*hop & !deeper);
            }
            skip += 8;
        }
        hops.iter_mut().for_each(|hop| *hop = hop.wrapping_sub(1));
    }

    /// The entry that the first 24 bits select.
    #[inline(always)]
    fn top(&self, address: A) -> u32 {
        let page = self.root[address.field(0, PAGE_BITS)].as_place();
        self.words[page + address.field(PAGE_BITS, ENTRY_BITS)].get()
    }

    #[inline(always)]
    fn find(&self, address: A) -> u32 {
        let (mut entry, mut skip) = (self.top(address), TOP_BITS);
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
