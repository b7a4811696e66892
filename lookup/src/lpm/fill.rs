//! How a change of a route becomes entries.

use std::sync::atomic::AtomicU32;

use super::Lpm;
use super::address::Address;
use super::view::{ENTRY_BITS, GROUP, GROUP_WORDS, PAGE_BITS, TOP_BITS, entry_of, group_of};
use crate::memory::Word;
use crate::paged::copy_words;

/// An entry leads to a group exactly if there is a prefix behind it that is longer than the bits which select the entry.
impl<A: Address> Lpm<A> {
    /// Writes `entry` wherever in a prefix no longer one has its own.
    pub(super) fn cover(&mut self, prefix: A, length: u8, entry: u32) {
        let last = prefix.last(length.into());
        let mut at = prefix;
        // At the first address shorter prefixes may begin too; they stand in front.
        let mut from = (prefix, length + 1);
        while let Some(((longer, its_length), _)) = self.routes.range(from..=(last, u8::MAX)).next() {
            let (longer, longer_last) = (*longer, longer.last((*its_length).into()));
            if at < longer {
                self.fill(at, longer.before(), entry);
            }
            if longer_last == last {
                return;
            }
            at = longer_last.after();
            from = (at, 0);
        }
        self.fill(at, last, entry);
    }

    /// Where the prefix, which has been removed, was the last that is longer than the bits which select an entry, makes that entry of its
    /// group again.
    pub(super) fn collapse(&mut self, prefix: A, length: u8, entry: u32) -> bool {
        let alone = |bits: u32| {
            let (first, last) = (prefix.first(bits), prefix.last(bits));
            self.routes.range((first, bits as u8 + 1)..=(last, u8::MAX)).next().is_none()
        };
        let Some(bits) = (TOP_BITS..u32::from(length)).step_by(8).find(|bits| alone(*bits)) else {
            return false;
        };
        self.give_groups(prefix, bits);
        self.fill(prefix.first(bits), prefix.last(bits), entry);
        true
    }

    /// Gives up the groups behind the entry that the first `bits` select: a chain, as one prefix alone had led to them.
    fn give_groups(&mut self, prefix: A, bits: u32) {
        let words = self.paged.words();
        let mut entry = words[self.top(prefix)].get();
        let mut skip = TOP_BITS;
        while entry & GROUP != 0 {
            let group = group_of(entry);
            entry = words[group + prefix.field(skip, 8)].get();
            skip += 8;
            if skip > bits {
                self.groups.give(group, self.paged.working());
            }
        }
    }

    /// Where the entry of the first 24 bits stands.
    fn top(&self, address: A) -> usize {
        self.paged.root()[address.field(0, PAGE_BITS)].as_place() + address.field(PAGE_BITS, ENTRY_BITS)
    }

    /// Writes `entry` for the addresses from `first` to `last`, in which there is no prefix longer than what it is for.
    fn fill(&mut self, first: A, last: A, entry: u32) {
        let [from, to] = [first, last].map(|end| end.field(0, PAGE_BITS));
        for page in from..=to {
            let first = if page == from { Some(first) } else { None };
            let last = if page == to { Some(last) } else { None };
            let whole = first.is_none_or(|first| first.first(PAGE_BITS) == first)
                && last.is_none_or(|last| last.last(PAGE_BITS) == last);
            if whole {
                self.paged.fill(page, entry);
            } else {
                let place = self.paged.own(page);
                self.fill_entries(place, PAGE_BITS, ENTRY_BITS, [first, last], entry);
            }
        }
    }

    /// The same in the entries at `place`, each of which `count` bits behind the first `skip` select. An end that is missing is the page's.
    fn fill_entries(
        &mut self,
        place: usize,
        skip: u32,
        count: u32,
        [first, last]: [Option<A>; 2],
        entry: u32,
    ) {
        let bits = skip + count;
        let (mut from, mut to) = (
            first.map_or(0, |first| first.field(skip, count)),
            last.map_or((1 << count) - 1, |last| last.field(skip, count)),
        );
        let inside = first.filter(|first| first.first(bits) != *first);
        let inside_last = last.filter(|last| last.last(bits) != *last);
        if from == to && (inside.is_some() || inside_last.is_some()) {
            return self.descend(place + from, bits, [inside, inside_last], entry);
        }
        if inside.is_some() {
            self.descend(place + from, bits, [inside, None], entry);
            from += 1;
        }
        if inside_last.is_some() {
            self.descend(place + to, bits, [None, inside_last], entry);
            to -= 1;
        }
        self.paged.words()[place..][from..=to].iter().for_each(|word| word.set(entry));
    }

    /// The same in the group behind the entry at `at`, which is made if there is none.
    fn descend(&mut self, at: usize, bits: u32, ends: [Option<A>; 2], entry: u32) {
        let group = self.own_group(at);
        self.fill_entries(group, bits, 8, ends, entry);
    }

    /// The group behind an entry, made or copied if it may not be written.
    fn own_group(&mut self, at: usize) -> usize {
        let working = self.paged.working();
        let entry = self.paged.words()[at].get();
        if entry & GROUP != 0 && self.groups.is_own(group_of(entry), working) {
            return group_of(entry);
        }
        let group = self.groups.take(working);
        let words: &[AtomicU32] = self.paged.words();
        if entry & GROUP == 0 {
            words[group..][..GROUP_WORDS].iter().for_each(|word| word.set(entry));
        } else {
            copy_words(words, group_of(entry), group, GROUP_WORDS);
            self.groups.give(group_of(entry), working);
        }
        words[at].set(entry_of(group));
        group
    }
}
