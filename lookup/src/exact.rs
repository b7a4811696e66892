//! Exact match: a hash table of keys of a fixed size, each with a number of the caller's.
//!
//! Keys lie in buckets of one or two cache lines, whole, so that a key of 16 bytes is found by the one line that has it. Each key has two
//! buckets where it may lie; to make room, others are moved to their second one (cuckoo hashing, as in DPDK's `rte_hash`). The bucket says
//! whether some of its keys lie elsewhere; a key that the table does not have mostly costs one line, too.
//!
//! A change costs some hundred cycles, and the first one of a page after each [`publish`](ExactMatch::publish) the copy of its 16 KiB. An
//! insertion looks at 256 buckets at most.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use zerocopy::FromBytes;

mod key;
mod view;

pub use key::Key;
pub use view::{NO_VALUE, View};

use crate::LookupError;
use crate::paged::{Paged, Pages};
use crate::reader::VersionReader;
use key::{Bucket, Hash, Words};
use view::PAGE_WORDS;

/// The largest value.
pub const VALUE_MAX: u32 = u32::MAX - 1;

/// Most keys of a table.
const KEYS_MAX: usize = 1 << 28;
/// Buckets that an insertion looks at to make room.
const LOOKED_AT_MAX: usize = 256;

/// A bucket that could give a key away, and to make room for what.
#[derive(Clone, Copy, Debug)]
struct Step {
    bucket: u32,
    /// The step from whose `slot` a key would move here; of the first steps, none.
    from: Option<(u16, u8)>,
}

/// Values by key: the writer's end. Changes are the writer's own until they are published.
#[derive(Debug)]
pub struct ExactMatch<K> {
    paged: Paged,
    hash: Hash,
    len: usize,
    capacity: usize,
    /// What an insertion looks at.
    steps: Vec<Step>,
    key: PhantomData<K>,
}

impl<K: Key> ExactMatch<K> {
    /// No keys; as many as `capacity` fit. A key takes its size and 4 bytes, and a third more that stays free: 28 MB for a million of 16 bytes,
    /// taken at once, in huge pages where the kernel gives some. While readers have an older version, pages that changed exist twice, three
    /// times at most.
    ///
    /// # Errors
    /// A capacity of 0 or above 2^28; no address space.
    #[doc(alias = "rte_hash_create")]
    pub fn new(capacity: usize) -> Result<Self, LookupError> {
        if !(1..=KEYS_MAX).contains(&capacity) {
            return Err(LookupError::Capacity { of: "keys", given: capacity, most: KEYS_MAX });
        }
        // Three quarters full: nearly all keys lie in their first bucket then, and room is found.
        let buckets = (capacity * 4).div_ceil(Bucket::<K>::SLOTS * 3).max(2) + 1;
        let pages = buckets.div_ceil(PAGE_WORDS / Bucket::<K>::WORDS);
        let mut paged = Paged::new(pages, PAGE_WORDS)?;
        for page in 0..pages {
            paged.own(page);
        }
        let steps = Vec::with_capacity(LOOKED_AT_MAX);
        Ok(Self { paged, hash: Hash::new(buckets as u32), len: 0, capacity, steps, key: PhantomData })
    }

    /// Sets the value of a key: that which it had, if the table had it.
    ///
    /// # Errors
    /// A value above [`VALUE_MAX`]; as many keys as the capacity; no room where the key may lie, which at this capacity takes keys that
    /// somebody chose who knows the table's seeds.
    #[doc(alias = "rte_hash_add_key_data")]
    pub fn insert(&mut self, key: &K, value: u32) -> Result<Option<u32>, LookupError> {
        if value > VALUE_MAX {
            return Err(LookupError::Value { given: value, most: VALUE_MAX });
        }
        let words = Bucket::<K>::words(key);
        let hash = self.hash.of::<K>(&words);
        if let Some((bucket, slot)) = self.find(&words, hash) {
            let old = Bucket::<K>::stored(self.bucket(bucket), slot) - 1;
            if old != value {
                Bucket::<K>::store(self.own(bucket), slot, value + 1);
            }
            return Ok(Some(old));
        }
        let full = LookupError::Full { of: "keys", used: self.len, most: self.capacity };
        if self.len == self.capacity {
            return Err(full);
        }
        let both = [self.hash.first(hash), self.hash.second(hash)];
        let Some(bucket) = self.make_room(both) else { return Err(full) };
        let own = self.own(bucket);
        let Some(slot) = Bucket::<K>::empty_slot(own) else { unreachable!("room was made") };
        Bucket::<K>::put(own, slot, &words, value + 1);
        if bucket != both[0] {
            self.count_elsewhere(both[0], 1);
        }
        self.len += 1;
        Ok(None)
    }

    /// Removes a key: the value that it had.
    #[doc(alias = "rte_hash_del_key")]
    pub fn remove(&mut self, key: &K) -> Option<u32> {
        let words = Bucket::<K>::words(key);
        let hash = self.hash.of::<K>(&words);
        let (bucket, slot) = self.find(&words, hash)?;
        let own = self.own(bucket);
        let old = Bucket::<K>::stored(own, slot) - 1;
        Bucket::<K>::put(own, slot, &[0; _], 0);
        let first = self.hash.first(hash);
        if bucket != first {
            self.count_elsewhere(first, -1);
        }
        self.len -= 1;
        Some(old)
    }

    /// Number of keys.
    #[must_use]
    #[doc(alias = "rte_hash_count")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most keys.
    #[must_use]
    #[doc(alias = "rte_hash_max_key_id")]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// All keys with their values, in no order.
    #[doc(alias = "rte_hash_iterate")]
    pub fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_
    where
        K: FromBytes,
    {
        let slots = move |bucket| (0..Bucket::<K>::SLOTS).map(move |slot| (bucket, slot));
        (0..self.hash.buckets).flat_map(slots).filter_map(|(bucket, slot)| {
            let bucket = self.bucket(bucket);
            let value = Bucket::<K>::stored(bucket, slot).checked_sub(1)?;
            let words = Bucket::<K>::key_at(bucket, slot).map(u64::to_le_bytes);
            let (key, _) = K::read_from_prefix(words.as_flattened()).ok()?;
            Some((key, value))
        })
    }

    /// Has readers read what was changed, from their next [`pass`](Reader::pass) on. They are not waited for.
    ///
    /// # Errors
    /// A reader is so far behind that there is no memory for another version; what was changed is published by a later call.
    pub fn publish(&mut self) -> Result<(), LookupError> {
        self.paged.publish()
    }

    /// The keys as they are now, with what is not published: for the writer itself.
    #[inline]
    #[must_use]
    pub fn view(&self) -> View<'_, K> {
        View::new(self.paged.shared(), self.paged.working(), self.hash)
    }

    /// A reader of what was published last.
    #[must_use]
    pub fn reader(&self) -> Reader<K> {
        Reader { pages: VersionReader::new(self.paged.shared()), hash: self.hash, key: PhantomData }
    }

    /// Bytes of memory that the table has written to, its copies among them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.paged.touched_bytes()
    }

    fn bucket(&self, bucket: u32) -> &[AtomicU64] {
        self.view().bucket(bucket)
    }

    /// A bucket that may be written.
    fn own(&mut self, bucket: u32) -> &[AtomicU64] {
        let (bucket, in_page) = (bucket as usize, PAGE_WORDS / Bucket::<K>::WORDS);
        let place = self.paged.own(bucket / in_page) + bucket % in_page * Bucket::<K>::WORDS;
        &self.paged.words()[place..][..Bucket::<K>::WORDS]
    }

    fn find(&self, words: &Words, hash: u64) -> Option<(u32, usize)> {
        let in_bucket = |bucket: u32| Some((bucket, Bucket::<K>::slot_of(self.bucket(bucket), words)?));
        in_bucket(self.hash.first(hash)).or_else(|| in_bucket(self.hash.second(hash)))
    }

    /// Counts keys whose first bucket it is and that lie elsewhere.
    fn count_elsewhere(&mut self, bucket: u32, more: i32) {
        let own = self.own(bucket);
        let count = Bucket::<K>::stored(own, Bucket::<K>::SLOTS);
        Bucket::<K>::store(own, Bucket::<K>::SLOTS, count.wrapping_add_signed(more));
    }

    /// Which of two buckets has room, if need be since keys moved on: the fewest, of what is looked at.
    fn make_room(&mut self, both: [u32; 2]) -> Option<u32> {
        let has_room = |table: &Self, bucket| Bucket::<K>::empty_slot(table.bucket(bucket)).is_some();
        if let Some(bucket) = both.into_iter().find(|bucket| has_room(self, *bucket)) {
            return Some(bucket);
        }
        self.steps.clear();
        self.steps.extend(both.map(|bucket| Step { bucket, from: None }));
        let mut at = 0;
        while at < self.steps.len() {
            let bucket = self.steps[at].bucket;
            for slot in 0..Bucket::<K>::SLOTS {
                let next = self.other_bucket(bucket, slot);
                if has_room(self, next) {
                    self.shift(bucket, slot, next);
                    return Some(self.move_up(at));
                }
                if self.steps.len() < LOOKED_AT_MAX && self.way_to(at).all(|step| step.bucket != next) {
                    self.steps.push(Step { bucket: next, from: Some((at as u16, slot as u8)) });
                }
            }
            at += 1;
        }
        None
    }

    /// A step and those before it.
    fn way_to(&self, step: usize) -> impl Iterator<Item = Step> + '_ {
        let of = |at: usize| self.steps[at];
        std::iter::successors(Some(of(step)), move |step| step.from.map(|(at, _)| of(at.into())))
    }

    /// Moves keys along the steps, from where room has been made to the first, whose bucket is returned.
    fn move_up(&mut self, step: usize) -> u32 {
        let mut to = self.steps[step];
        while let Some((at, slot)) = to.from {
            let from = self.steps[usize::from(at)];
            self.shift(from.bucket, slot.into(), to.bucket);
            to = from;
        }
        to.bucket
    }

    /// The other bucket of the key in a slot.
    fn other_bucket(&self, bucket: u32, slot: usize) -> u32 {
        let hash = self.hash.of::<K>(&Bucket::<K>::key_at(self.bucket(bucket), slot));
        let first = self.hash.first(hash);
        if first == bucket { self.hash.second(hash) } else { first }
    }

    /// Moves a key to its other bucket, which has room.
    fn shift(&mut self, from: u32, slot: usize, to: u32) {
        let own = self.own(from);
        let (key, stored) = (Bucket::<K>::key_at(own, slot), Bucket::<K>::stored(own, slot));
        Bucket::<K>::put(own, slot, &[0; _], 0);
        let own = self.own(to);
        let Some(slot) = Bucket::<K>::empty_slot(own) else { unreachable!("there is room") };
        Bucket::<K>::put(own, slot, &key, stored);
        let first = self.hash.first(self.hash.of::<K>(&key));
        self.count_elsewhere(first, if first == from { 1 } else { -1 });
    }
}

/// A thread's end: it reads one version until it passes. A thread that sleeps drops its reader, lest the writer wait for it; a thread that has
/// none takes one by [`Clone`] of another's, or from [`ExactMatch::reader`].
#[derive(Debug)]
pub struct Reader<K> {
    pages: VersionReader<Pages>,
    hash: Hash,
    key: PhantomData<K>,
}

impl<K: Key> Reader<K> {
    /// The newest version, for a burst. Hot: a load and a branch; after a change a store.
    #[inline]
    pub fn pass(&mut self) -> View<'_, K> {
        let (shared, version) = self.pages.pass();
        View::new(shared, version, self.hash)
    }
}

impl<K: Key> Clone for Reader<K> {
    /// A reader that begins with the newest version.
    fn clone(&self) -> Self {
        Self { pages: self.pages.clone(), hash: self.hash, key: PhantomData }
    }
}
