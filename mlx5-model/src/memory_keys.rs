//! Memory keys: which memory a number stands for, and what may be done with it.
//!
//! A key is 32 bits: the index of its context and 8 bits that its maker chose. An access names a key, an address in the
//! key's own space (which begins wherever its maker said, not where the memory is) and a length; it is refused unless all of
//! it is covered, allowed, and of the queue's protection domain.

pub(crate) mod absent;
mod change;
mod copy;
mod pattern;
mod piece;
mod reach;
pub(crate) mod signature;
mod translation;

use std::cell::Cell;

use crate::device::table::Table;
use absent::{Absent, AbsentPages};
pub(crate) use change::{change, set_entries, set_memory, set_rights};
pub(crate) use piece::pieces_of;
pub(crate) use reach::{read, write};
use signature::{Signatures, Signing};
pub(crate) use translation::{Translation, entered, pages_of};

/// Why a key refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// No such key, or its variable bits differ.
    Unknown,
    /// Of another protection domain.
    Domain,
    /// Not all of it is covered.
    Bounds,
    /// Not for that.
    Right,
    /// The memory behind it is not pinned.
    Unpinned,
    /// A page of it is not there, now.
    Absent,
    /// It has signatures, and cannot be used like this, or lacks what they need.
    Signature,
}

impl KeyError {
    /// The vendor's byte of the error completion: the model's own numbers.
    pub(crate) fn vendor(self) -> u8 {
        match self {
            Self::Unknown => 0x51,
            Self::Domain => 0x52,
            Self::Bounds => 0x53,
            Self::Right => 0x54,
            Self::Unpinned => 0x55,
            Self::Absent => 0x56,
            Self::Signature => 0x57,
        }
    }
}

/// Why an entry changed no key, or set no signature variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Segments that make no sense.
    Segments,
    /// What cannot be changed as asked.
    Bind,
    /// The list of a key's translation cannot be read.
    Key(KeyError),
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

/// What is done with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read, for sending.
    Read,
    /// Written, by receiving.
    Write,
    /// Read by a peer.
    RemoteRead,
    /// Written by a peer.
    RemoteWrite,
    /// Read and written at once, by a peer.
    Atomic,
}

impl Access {
    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RemoteWrite | Self::Atomic)
    }
}

/// On whose behalf memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) domain: u32,
    /// The queue pair; `None` for other queues, which keys cannot be bound to.
    pub(crate) pair: Option<u32>,
    /// The kernel's key for any memory may be used.
    pub(crate) reserved: bool,
    /// The queue is the kernel's, not a user context's.
    pub(crate) kernel: bool,
}

/// How deep keys may stand for keys.
const DEPTH_MAX: u8 = 3;
/// Pieces of keys that one access may pass, over all depths: keys that stand for one another many times over would be walked for hours.
const STEPS_MAX: u32 = 1 << 20;

/// A key's context.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) variable: u8,
    pub(crate) domain: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) local_read: bool,
    pub(crate) local_write: bool,
    pub(crate) remote_read: bool,
    pub(crate) remote_write: bool,
    pub(crate) atomic: bool,
    /// It stands for nothing until an entry of a queue fills it in.
    pub(crate) free: bool,
    /// Entries of queues may change it.
    pub(crate) changeable: bool,
    /// A peer may make it free.
    pub(crate) remote_invalidate: bool,
    /// Bound to one queue pair, or to none.
    pub(crate) queue: Option<u32>,
    pub(crate) translation: Translation,
    /// Room for its translation, in units of 16 bytes.
    pub(crate) units: u64,
    /// Of a key that was made for signatures.
    pub(crate) signing: Option<Box<Signing>>,
    /// The context as it was made, for queries.
    pub(crate) context: [u8; 64],
}

/// The key that reads as zeros and swallows writes, for everybody's own requests; given out by QUERY_SPECIAL_CONTEXTS, not made to
/// order.
pub(crate) const NULL_KEY: u32 = 0x0000_0200;
/// The key of the kernel for any address, 0 where software has no such privilege.
pub(crate) const RESERVED_KEY: u32 = 0x0000_0300;

/// Entries of all keys at most, however they came there: some 400 MB.
const ENTRIES_OF_ALL: usize = 1 << 24;

/// All keys.
#[derive(Debug)]
pub(crate) struct Keys {
    table: Table<Key>,
    /// Entries of all translations. Looking at every key for each that grows would be a guest's way to keep the device busy.
    entries: usize,
    pub(crate) absent: AbsentPages,
    pub(crate) signatures: Signatures,
    /// Pieces that the access at work may still pass.
    steps: Cell<u32>,
}

impl Keys {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            table: Table::new(0x10, limit),
            entries: 0,
            absent: AbsentPages::default(),
            signatures: Signatures::new(),
            steps: Cell::new(STEPS_MAX),
        }
    }

    pub(crate) fn table(&self) -> &Table<Key> {
        &self.table
    }

    /// A number for a new key, or `None` when the device has none left.
    pub(crate) fn insert(&mut self, owner: u16, key: Key) -> Option<u32> {
        let entries = key.translation.count();
        if !self.has_room(entries) {
            return None;
        }
        let index = self.table.insert(owner, key)?;
        self.entries += entries;
        Some(index)
    }

    /// Whether all keys may have so many more entries.
    fn has_room(&self, more: usize) -> bool {
        self.entries + more <= ENTRIES_OF_ALL
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Key> {
        let key = self.table.remove(index)?;
        self.entries -= key.translation.count();
        Some(key)
    }

    /// Another key takes a key's place.
    fn replace(&mut self, index: u32, with: impl FnOnce(&mut Key)) {
        if let Some(key) = self.table.get_mut(index) {
            let before = key.translation.count();
            with(key);
            self.entries = self.entries - before + key.translation.count();
        }
    }

    /// Numbers of what belongs to a user context.
    pub(crate) fn owned_by(&self, owner: u16) -> Vec<u32> {
        self.table.owned_by(owner)
    }

    /// An access begins.
    fn begin_walk(&self) {
        self.steps.set(STEPS_MAX);
    }

    /// Walks the pieces of device memory behind `bytes` bytes at `at` of `key`, in order: address and length of each. The null
    /// key's are at no address: there are zeros to read, and what is written there goes nowhere. Nothing is walked unless all
    /// of it may be.
    #[inline]
    pub(crate) fn walk(
        &self,
        key: u32,
        domain: u32,
        at: u64,
        bytes: u32,
        access: Access,
        mut each: impl FnMut(Option<u64>, usize) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        if key == NULL_KEY && matches!(access, Access::Read | Access::Write) {
            return each(None, bytes as usize);
        }
        let who = Who { domain, pair: None, reserved: false, kernel: false };
        let (context, from, end) = self.covered(key, who, at, bytes.into(), access)?;
        if context.translation.is_indirect() {
            self.begin_walk();
            return self.walk_under(&context.translation, who, from, end, access, 1, &mut (0, 0), &mut each);
        }
        context.walk(from, end, access.writes(), &mut each)
    }

    /// The same for queue pairs.
    pub(crate) fn walk_for(
        &self,
        key: u32,
        who: Who,
        at: u64,
        bytes: u64,
        access: Access,
        each: &mut dyn FnMut(Option<u64>, usize) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        self.begin_walk();
        self.walk_deep(key, who, at, bytes, access, 0, each)
    }

    /// Whether all of it may be reached.
    pub(crate) fn check(
        &self,
        key: u32,
        who: Who,
        at: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), KeyError> {
        if self.has_signatures(key) {
            let context = self.allowed(key, who, access)?;
            let (from, end) = signature::span(context, at, bytes)?;
            self.begin_walk();
            return self.walk_inside(context, who, from, end, access, &mut (0, 0), &mut |_, _| Ok(()));
        }
        self.walk_for(key, who, at, bytes, access, &mut |_, _| Ok(()))
    }

    /// Whether a key's data has signatures.
    #[inline]
    fn has_signatures(&self, key: u32) -> bool {
        self.table.get(key >> 8).is_some_and(Key::has_signatures)
    }

    /// Walks bytes `from..end` of a key's memory, counted from its start, whatever it says of signatures. `hint` is the piece to look
    /// from, and how many bytes stand before it; afterwards the last one.
    #[expect(clippy::too_many_arguments, reason = "an access, and where to look")]
    fn walk_inside(
        &self,
        context: &Key,
        who: Who,
        from: u64,
        end: u64,
        access: Access,
        hint: &mut (usize, u64),
        each: &mut dyn FnMut(Option<u64>, usize) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        // Keys with signatures are made of pieces, and of nothing else.
        self.walk_under(&context.translation, who, from, end, access, 1, hint, each)
    }

    #[expect(clippy::too_many_arguments, reason = "an access, and how deep it is")]
    fn walk_deep(
        &self,
        key: u32,
        who: Who,
        at: u64,
        bytes: u64,
        access: Access,
        depth: u8,
        each: &mut dyn FnMut(Option<u64>, usize) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        if key == NULL_KEY && matches!(access, Access::Read | Access::Write) {
            return each(None, usize::try_from(bytes).map_err(|_| KeyError::Bounds)?);
        }
        if who.reserved && (key == 0 || key == RESERVED_KEY) {
            let bytes = usize::try_from(bytes).map_err(|_| KeyError::Bounds)?;
            return each(Some(at), bytes);
        }
        let (context, from, end) = self.covered(key, who, at, bytes, access)?;
        if context.translation.is_indirect() {
            return self.walk_under(
                &context.translation,
                who,
                from,
                end,
                access,
                depth + 1,
                &mut (0, 0),
                each,
            );
        }
        context.walk(from, end, access.writes(), each).inspect_err(|error| {
            if *error == KeyError::Absent {
                self.absent.find(Absent { key, at, bytes });
            }
        })
    }

    /// Bytes `from..end` of a key that stands for others. Those need the right that the access takes on this side. `hint` is the piece
    /// to look from, as for [`Translation::under`].
    #[expect(clippy::too_many_arguments, reason = "an access, and how deep it is")]
    fn walk_under(
        &self,
        translation: &Translation,
        who: Who,
        from: u64,
        end: u64,
        access: Access,
        depth: u8,
        hint: &mut (usize, u64),
        each: &mut dyn FnMut(Option<u64>, usize) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        if depth > DEPTH_MAX {
            return Err(KeyError::Bounds);
        }
        let access = match access {
            Access::Read | Access::RemoteRead => Access::Read,
            Access::Write | Access::RemoteWrite | Access::Atomic => Access::Write,
        };
        let mut at = from;
        while at < end {
            let first = hint.0;
            let piece = translation.under(at, hint).ok_or(KeyError::Bounds)?;
            // Those that were looked at on the way to it count, too.
            let passed = (hint.0.abs_diff(first) + 1) as u32;
            self.steps.set(self.steps.get().checked_sub(passed).ok_or(KeyError::Bounds)?);
            let run = piece.bytes.min(end - at);
            self.walk_deep(piece.key, who, piece.at, run, access, depth, each)?;
            at += run;
        }
        Ok(())
    }

    /// A peer asks that a key be free. Only keys of this domain that allow it are, bound to the queue pair or to none.
    pub(crate) fn invalidate(&mut self, key: u32, who: Who) -> bool {
        self.make_free(key, |context| {
            context.remote_invalidate
                && context.domain == who.domain
                && (context.queue.is_none() || context.queue == who.pair)
                && context.variable == key as u8
        })
    }

    /// A key is free from now on, if it is there, not free, and `may` says so.
    pub(crate) fn make_free(&mut self, key: u32, may: impl FnOnce(&Key) -> bool) -> bool {
        match self.table.get_mut(key >> 8) {
            Some(context) if !context.free && may(context) => {
                context.free = true;
                true
            }
            _ => false,
        }
    }

    /// The key, if it covers and allows an access; and where in it that begins and ends.
    #[inline]
    fn covered(
        &self,
        key: u32,
        who: Who,
        at: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(&Key, u64, u64), KeyError> {
        let context = self.allowed(key, who, access)?;
        if context.has_signatures() {
            return Err(KeyError::Signature);
        }
        let from = at.checked_sub(context.start).ok_or(KeyError::Bounds)?;
        let end = from.checked_add(bytes).ok_or(KeyError::Bounds)?;
        if end > context.length {
            return Err(KeyError::Bounds);
        }
        Ok((context, from, end))
    }

    /// The key, if it allows an access.
    #[inline]
    fn allowed(&self, key: u32, who: Who, access: Access) -> Result<&Key, KeyError> {
        let context = self.table.get(key >> 8).ok_or(KeyError::Unknown)?;
        if context.variable != key as u8 || context.free {
            return Err(KeyError::Unknown);
        }
        if context.queue.is_some() && context.queue != who.pair {
            return Err(KeyError::Unknown);
        }
        if context.domain != who.domain {
            return Err(KeyError::Domain);
        }
        let allowed = match access {
            Access::Read => context.local_read,
            Access::Write => context.local_write,
            Access::RemoteRead => context.remote_read,
            Access::RemoteWrite => context.remote_write,
            Access::Atomic => context.atomic,
        };
        if allowed { Ok(context) } else { Err(KeyError::Right) }
    }
}

impl Key {
    #[inline]
    fn has_signatures(&self) -> bool {
        self.signing.as_deref().is_some_and(Signing::is_on)
    }

    #[inline]
    fn walk(
        &self,
        from: u64,
        end: u64,
        writes: bool,
        each: &mut (impl FnMut(Option<u64>, usize) -> Result<(), KeyError> + ?Sized),
    ) -> Result<(), KeyError> {
        let mut from = from;
        while from < end {
            let (address, run) = self.translation.reach(self.start, from, writes)?;
            let run = run.min(end - from);
            each(Some(address), usize::try_from(run).map_err(|_| KeyError::Bounds)?)?;
            from += run;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::piece::Piece;
    use super::*;

    fn keys() -> (Keys, u32) {
        let mut keys = Keys::new(16);
        let key = Key {
            variable: 0x77,
            domain: 3,
            start: 0x10_0800,
            length: 0x2000,
            local_read: true,
            local_write: false,
            remote_read: false,
            remote_write: false,
            atomic: false,
            free: false,
            changeable: false,
            remote_invalidate: false,
            queue: None,
            translation: Translation::of_pages(12, 0x800, vec![0x7000, 0x9000, 0xa000]),
            units: 2,
            signing: None,
            context: [0; 64],
        };
        let index = keys.insert(0, key).expect("room");
        (keys, index << 8 | 0x77)
    }

    fn walk(
        keys: &Keys,
        key: u32,
        domain: u32,
        at: u64,
        bytes: u32,
        access: Access,
    ) -> Result<Vec<(u64, usize)>, KeyError> {
        let mut pieces = Vec::new();
        keys.walk(key, domain, at, bytes, access, |address, bytes| {
            pieces.push((address.expect("memory"), bytes));
            Ok(())
        })?;
        Ok(pieces)
    }

    /// A key of as many pieces as there may be, each one byte of another key.
    fn of_pieces(keys: &mut Keys, under: u32, at: u64, bytes: u64) -> u32 {
        let pieces = vec![Piece { bytes, key: under, at }; 1 << 16];
        let (_, flat) = (0, keys.table().get(0x10).expect("the first").clone());
        let translation = Translation::Pieces(pieces);
        let key = Key { start: 0, length: bytes << 16, translation, ..flat };
        keys.insert(0, key).expect("room") << 8 | 0x77
    }

    #[test]
    fn keys_that_stand_for_one_another_many_times_over_are_not_walked_for_hours() {
        let (mut keys, flat) = keys();
        let once = of_pieces(&mut keys, flat, 0x10_0800, 1);
        let twice = of_pieces(&mut keys, once, 0, 1 << 16);
        let who = Who { domain: 3, pair: None, reserved: false, kernel: false };
        assert_eq!(keys.check(once, who, 0, 1 << 16, Access::Read), Ok(()));
        // Each access has its own steps.
        assert_eq!(keys.check(once, who, 0, 1 << 16, Access::Read), Ok(()));
        let begun = std::time::Instant::now();
        assert_eq!(keys.check(twice, who, 0, 1 << 32, Access::Read), Err(KeyError::Bounds));
        assert_eq!(walk(&keys, twice, 3, 0, u32::MAX, Access::Read), Err(KeyError::Bounds));
        // 4 billion pieces take more than this on any machine.
        assert!(begun.elapsed() < std::time::Duration::from_secs(5));
        assert_eq!(keys.check(twice, who, 5, 3, Access::Read), Ok(()));
    }

    #[test]
    fn pieces_in_front_of_what_is_reached_are_passed_as_well() {
        let (mut keys, flat) = keys();
        let many = of_pieces(&mut keys, flat, 0x10_0800, 1);
        let last = of_pieces(&mut keys, many, (1 << 16) - 1, 1);
        let who = Who { domain: 3, pair: None, reserved: false, kernel: false };
        assert_eq!(keys.check(last, who, 0, 8, Access::Read), Ok(()));
        assert_eq!(keys.check(last, who, 0, 1 << 10, Access::Read), Err(KeyError::Bounds));
    }

    #[test]
    fn a_walk_goes_on_or_back_from_where_the_one_before_ended() {
        let (mut keys, flat) = keys();
        let many = of_pieces(&mut keys, flat, 0x10_0800, 1);
        let context = keys.table().get(many >> 8).expect("a key");
        let who = Who { domain: 3, pair: None, reserved: false, kernel: false };
        let mut hint = (0, 0);
        for (from, end, most) in [(60_000, 60_001, 60_001), (59_998, 60_000, 6), (60_003, 60_004, 6)] {
            keys.begin_walk();
            let walked =
                keys.walk_inside(context, who, from, end, Access::Read, &mut hint, &mut |_, _| Ok(()));
            assert_eq!((walked, hint), (Ok(()), (end as usize - 1, end - 1)));
            assert!(STEPS_MAX - keys.steps.get() <= most, "{from}");
        }
    }

    #[test]
    fn all_keys_have_so_many_entries_and_no_more() {
        let (mut keys, _) = keys();
        let flat = keys.table().get(0x10).expect("the first").clone();
        let entries = keys.entries;
        // Zeros that nobody touches take no memory.
        let with = |pages: usize| {
            let translation = Translation::Pages { log_page: 12, offset: 0, pages: vec![0; pages] };
            Key { translation, ..flat.clone() }
        };
        let large = keys.insert(0, with(ENTRIES_OF_ALL - entries)).expect("room");
        assert_eq!(keys.insert(0, with(1)), None);
        keys.remove(large).expect("it is there");
        keys.insert(0, with(1)).expect("room");
    }

    #[test]
    fn entries_are_counted_as_keys_come_change_and_go() {
        let (mut keys, flat) = keys();
        let summed = |keys: &Keys| keys.table.iter().map(|(_, key)| key.translation.count()).sum::<usize>();
        assert_eq!((keys.entries, summed(&keys)), (3, 3));
        let many = of_pieces(&mut keys, flat, 0x10_0800, 1) >> 8;
        assert_eq!((keys.entries, summed(&keys)), (3 + (1 << 16), 3 + (1 << 16)));
        // As many growing keys as a guest likes: none of them is looked at for another's sake.
        let empty = Translation::Pages { log_page: 12, offset: 0, pages: Vec::new() };
        let like =
            Key { units: 8, translation: empty, ..keys.table().get(flat >> 8).expect("a key").clone() };
        let made: Vec<u32> = (0..10).map(|_| keys.insert(7, like.clone()).expect("room")).collect();
        for begin in 0..4 {
            for index in &made {
                let old = &keys.table().get(*index).expect("a key").translation;
                let entries = old.entries(begin, &[1; 16], 8).expect("in range");
                keys.replace(*index, |key| key.translation.write(entries));
            }
        }
        assert_eq!(keys.entries, 3 + (1 << 16) + 10 * 8);
        // The same again is no more.
        let entries = like.translation.entries(0, &[2; 16], 8).expect("in range");
        keys.replace(made[0], |key| key.translation.write(entries));
        assert_eq!((keys.entries, summed(&keys)), (3 + (1 << 16) + 10 * 8, 3 + (1 << 16) + 10 * 8));
        for index in keys.owned_by(7) {
            keys.remove(index);
        }
        keys.remove(many);
        assert_eq!((keys.entries, summed(&keys)), (3, 3));
        assert!(keys.remove(many).is_none());
        assert_eq!(keys.entries, 3);
    }

    #[test]
    fn addresses_lead_to_pages() {
        let (keys, key) = keys();
        let pieces = walk(&keys, key, 3, 0x10_0800, 0x2000, Access::Read).expect("covered");
        assert_eq!(pieces, [(0x7800, 0x800), (0x9000, 0x1000), (0xa000, 0x800)]);
        assert_eq!(walk(&keys, key, 3, 0x10_0fff, 2, Access::Read), Ok(vec![(0x7fff, 1), (0x9000, 1)]));
    }

    #[test]
    fn the_null_key_leads_nowhere_and_is_of_no_use_to_peers() {
        let (keys, _) = keys();
        for access in [Access::Read, Access::Write] {
            let mut pieces = Vec::new();
            let walked = keys.walk(NULL_KEY, 9, 0x1234, 77, access, |at, bytes| {
                pieces.push((at, bytes));
                Ok(())
            });
            assert_eq!((walked, &pieces[..]), (Ok(()), &[(None, 77)][..]));
        }
        for access in [Access::RemoteRead, Access::RemoteWrite, Access::Atomic] {
            assert_eq!(walk(&keys, NULL_KEY, 9, 0, 1, access), Err(KeyError::Unknown));
        }
    }

    #[test]
    fn pages_in_a_row_are_one_piece() {
        let flat = Translation::of_pages(12, 4, vec![0x7000, 0x8000]);
        assert!(matches!(flat, Translation::Flat(0x7004)));
        assert!(matches!(Translation::of_pages(12, 0, vec![]), Translation::Pages { .. }));
        let wraps = Translation::of_pages(12, 1, vec![u64::MAX]);
        assert!(wraps.piece(0, 0).is_none());
    }

    #[test]
    fn what_is_not_covered_or_allowed_is_refused() {
        let (keys, key) = keys();
        let cases = [
            (key ^ 1, 3, 0x10_0800, 1, Access::Read, KeyError::Unknown),
            (key + 256, 3, 0x10_0800, 1, Access::Read, KeyError::Unknown),
            (0, 3, 0x10_0800, 1, Access::Read, KeyError::Unknown),
            (key, 4, 0x10_0800, 1, Access::Read, KeyError::Domain),
            (key, 3, 0x10_0800, 1, Access::Write, KeyError::Right),
            (key, 3, 0x10_07ff, 1, Access::Read, KeyError::Bounds),
            (key, 3, 0x10_2800, 1, Access::Read, KeyError::Bounds),
            (key, 3, 0x10_0800, 0x2001, Access::Read, KeyError::Bounds),
            // The memory's own address is no address of the key.
            (key, 3, 0x7800, 1, Access::Read, KeyError::Bounds),
            (key, 3, u64::MAX, 2, Access::Read, KeyError::Bounds),
        ];
        for (key, domain, at, bytes, access, expected) in cases {
            assert_eq!(walk(&keys, key, domain, at, bytes, access), Err(expected), "{at:#x}");
        }
    }
}
