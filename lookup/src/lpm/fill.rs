//! How a change of a route becomes entries.
//!
//! Beside each entry the writer has a byte, the entry's depth: the length of the prefix whose next hop it is, and 1; 0 for none. So a route
//! is written over entries of shorter prefixes, and those of longer ones stay, without a look at the other routes.

use super::Lpm;
use super::address::Address;
use super::tables::{ENTRIES, GROUPS_AT, TOP_BITS};
use super::view::{GROUP, GROUP_WORDS, entry_of, group_of};
use crate::memory::{Word, copy_words};
use crate::simd::prefetch;

/// The depth of an entry that leads to a group.
const LEADS: u8 = u8::MAX;

/// Entries that are written at once if none of them is a longer prefix's.
const RUN: usize = 64;

/// Most groups that stand behind each other.
const LEVELS_MAX: usize = (u128::BITS - TOP_BITS) as usize / 8;

/// Whose an entry is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    entry: u32,
    depth: u8,
}

impl Owner {
    pub(super) const NOBODY: Self = Self { entry: 0, depth: 0 };

    /// A prefix of so many bits, with its next hop.
    pub(super) fn prefix(length: u8, next_hop: u32) -> Self {
        Self { entry: next_hop + 1, depth: length + 1 }
    }
}

/// Where the depth of an entry, or of a group's first, stands: there are depths of one table, as only the writer has them.
#[inline(always)]
fn depth_at(place: usize) -> usize {
    if place < GROUPS_AT { place % ENTRIES } else { place - (GROUPS_AT - ENTRIES) }
}

/// Groups on the way to the entries that a prefix selects.
#[inline(always)]
fn levels(length: u32) -> u32 {
    length.saturating_sub(TOP_BITS).div_ceil(8)
}

/// An entry leads to a group exactly if there is a prefix behind it that is longer than the bits which select the entry.
impl<A: Address> Lpm<A> {
    /// Has the processor fetch what the change of a prefix reads first.
    #[inline(always)]
    pub(super) fn fetch(&self, prefix: A) {
        let entry = prefix.field(0, TOP_BITS);
        prefetch(&self.depths[entry]);
        prefetch(&self.tables.words()[self.tables.place(entry)]);
    }

    /// Groups that a prefix needs and that are not there.
    #[inline]
    pub(super) fn missing_groups(&self, prefix: A, length: u8) -> usize {
        let levels = levels(length.into()) as usize;
        levels - self.groups_on_way(prefix, length).1
    }

    /// The groups that there are on the way to a prefix's entries, and how many.
    #[inline]
    fn groups_on_way(&self, prefix: A, length: u8) -> ([usize; LEVELS_MAX], usize) {
        let (mut groups, mut count) = ([0; LEVELS_MAX], 0);
        let mut place = self.tables.place(prefix.field(0, TOP_BITS));
        for level in 0..levels(length.into()) {
            let entry = self.tables.words()[place].get();
            if entry & GROUP == 0 {
                break;
            }
            groups[count] = group_of(entry);
            place = groups[count] + prefix.field(TOP_BITS + 8 * level, 8);
            count += 1;
        }
        (groups, count)
    }

    /// Gives `owner` those entries of a prefix that no longer one has.
    pub(super) fn cover(&mut self, prefix: A, length: u8, owner: Owner) {
        let levels = levels(length.into());
        let place = self.descend(prefix, levels);
        let bits = TOP_BITS + 8 * levels;
        self.fill(place, 1 << (bits - u32::from(length)), length + 1, owner);
    }

    /// Where the prefix, which has been removed, was the last that is longer than the bits which select an entry, makes that entry of its
    /// group again.
    pub(super) fn collapse(&mut self, prefix: A, length: u8, owner: Owner) -> bool {
        let (groups, count) = self.groups_on_way(prefix, length);
        let mut level = count;
        // Its own entries in the last group, then the one that led there.
        let mut own = 1 << (levels(length.into()) * 8 + TOP_BITS - u32::from(length));
        let mut own_depth = length + 1;
        while level > 0 {
            let bits = TOP_BITS + 8 * (level as u32 - 1);
            let first = prefix.field(bits, 8);
            let depths = &self.depths[depth_at(groups[level - 1])..][..GROUP_WORDS];
            let (before, own_and_after) = depths.split_at(first);
            let (of_prefix, after) = own_and_after.split_at(own);
            let most = bits as u8 + 1;
            let others = deepest(before).max(deepest(after)).max(owner.depth);
            if others > most || deepest(of_prefix) > own_depth {
                break;
            }
            level -= 1;
            (own, own_depth) = (1, LEADS);
        }
        if level == count {
            return false;
        }
        for group in &groups[level..count] {
            self.groups.give(*group, self.tables.newest());
        }
        let place = self.descend(prefix, level as u32);
        self.depths[depth_at(place)] = owner.depth;
        self.tables.words()[place].set(owner.entry);
        self.mark(place, 1);
        true
    }

    /// The first entry of a prefix behind so many groups, all of which may be written then, and are made where there are none.
    fn descend(&mut self, prefix: A, levels: u32) -> usize {
        let mut place = self.tables.place(prefix.field(0, TOP_BITS));
        for level in 0..levels {
            place = self.own_group(place) + prefix.field(TOP_BITS + 8 * level, 8);
        }
        place
    }

    /// Gives `owner` those of `count` entries that are no deeper than `most`, and those in the groups behind them.
    fn fill(&mut self, place: usize, count: usize, most: u8, owner: Owner) {
        self.mark(place, count);
        for at in (0..count).step_by(RUN) {
            self.fill_run(place + at, RUN.min(count - at), most, owner);
        }
    }

    #[inline]
    fn fill_run(&mut self, place: usize, count: usize, most: u8, owner: Owner) {
        let depths = &mut self.depths[depth_at(place)..][..count];
        let words = &self.tables.words()[place..][..count];
        let deepest = deepest(depths);
        if deepest <= most {
            depths.fill(owner.depth);
            words.iter().for_each(|word| word.set(owner.entry));
            return;
        }
        for (depth, word) in depths.iter_mut().zip(words).filter(|(depth, _)| **depth <= most) {
            *depth = owner.depth;
            word.set(owner.entry);
        }
        if deepest == LEADS {
            for at in place..place + count {
                if self.depths[depth_at(at)] == LEADS && self.has_up_to(at, most) {
                    let group = self.own_group(at);
                    self.fill(group, GROUP_WORDS, most, owner);
                }
            }
        }
    }

    /// Whether an entry no deeper than `most` stands behind one that leads to a group.
    fn has_up_to(&self, at: usize, most: u8) -> bool {
        let group = group_of(self.tables.words()[at].get());
        let depths = &self.depths[depth_at(group)..][..GROUP_WORDS];
        let mut entries = depths.iter().enumerate();
        entries.any(|(at, depth)| *depth <= most || *depth == LEADS && self.has_up_to(group + at, most))
    }

    /// The group behind an entry, made or copied if it may not be written.
    fn own_group(&mut self, at: usize) -> usize {
        let working = self.tables.newest();
        let words = self.tables.words();
        let entry = words[at].get();
        if entry & GROUP != 0 && self.groups.is_own(group_of(entry), working) {
            return group_of(entry);
        }
        let group = self.groups.take(working);
        if entry & GROUP == 0 {
            let depth = std::mem::replace(&mut self.depths[depth_at(at)], LEADS);
            self.depths[depth_at(group)..][..GROUP_WORDS].fill(depth);
            words[group..][..GROUP_WORDS].iter().for_each(|word| word.set(entry));
        } else {
            let (old, depth) = (group_of(entry), depth_at(group_of(entry)));
            self.depths.copy_within(depth..depth + GROUP_WORDS, depth_at(group));
            copy_words(&words[old..][..GROUP_WORDS], &words[group..]);
            self.groups.give(old, working);
        }
        words[at].set(entry_of(group));
        self.mark(at, 1);
        group
    }

    /// Notes that entries are changed, if they are a table's.
    #[inline]
    fn mark(&mut self, place: usize, count: usize) {
        if place < GROUPS_AT {
            let first = place % ENTRIES;
            self.tables.mark(first, first + count - 1);
        }
    }
}

#[inline(always)]
fn deepest(depths: &[u8]) -> u8 {
    depths.iter().fold(0, |deepest, depth| deepest.max(*depth))
}
