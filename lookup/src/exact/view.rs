//! One version of a table, as a burst reads it.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use super::key::{Bucket, Hash, Key};
use crate::bits::ones;
use crate::memory::Word;
use crate::paged::Pages;
use crate::simd::prefetch;

/// What a burst look-up answers for a key that the table does not have.
pub const NO_VALUE: u32 = u32::MAX;

/// Words of a page.
pub(super) const PAGE_WORDS: usize = 2048;

/// Keys whose look-ups overlap.
const BURST: usize = 32;

/// The keys of one version. Whatever is looked up in it is of that version.
#[derive(Debug)]
pub struct View<'a, K> {
    words: &'a [AtomicU64],
    root: &'a [AtomicU64],
    hash: Hash,
    key: PhantomData<K>,
}

impl<'a, K: Key> View<'a, K> {
    #[inline(always)]
    pub(super) fn new(shared: &'a Pages, version: u64, hash: Hash) -> Self {
        Self { words: shared.words(), root: shared.root(version), hash, key: PhantomData }
    }

    /// The value of a key. Hot: one cache line of 16-byte keys, a second one for the few that lie in their second bucket.
    #[inline]
    #[must_use]
    #[doc(alias = "rte_hash_lookup")]
    pub fn lookup(&self, key: &K) -> Option<u32> {
        let words = Bucket::<K>::words(key);
        let hash = self.hash.of::<K>(&words);
        let first = self.bucket(self.hash.first(hash));
        let mut stored = Bucket::<K>::find(first, &words);
        if stored == 0 && Bucket::<K>::stored(first, Bucket::<K>::SLOTS) != 0 {
            stored = Bucket::<K>::find(self.bucket(self.hash.second(hash)), &words);
        }
        stored.checked_sub(1)
    }

    /// Looks up each of `keys`: values, or [`NO_VALUE`], into `values`. Hot: 32 at a time, whose cache lines are fetched at once.
    ///
    /// # Panics
    /// If `values` is shorter than `keys`.
    #[inline]
    #[doc(alias = "rte_hash_lookup_bulk")]
    #[doc(alias = "rte_hash_lookup_bulk_data")]
    pub fn lookup_burst(&self, keys: &[K], values: &mut [u32]) {
        let values = &mut values[..keys.len()];
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.lookup_some(keys, values);
        }
    }

    /// At most 32 of them.
    #[inline(always)]
    fn lookup_some(&self, keys: &[K], values: &mut [u32]) {
        let (mut hashes, mut places) = ([0; BURST], [0; BURST]);
        for ((key, hash), place) in keys.iter().zip(&mut hashes).zip(&mut places) {
            *hash = self.hash.of::<K>(&Bucket::<K>::words(key));
            *place = self.place(self.hash.first(*hash));
            self.fetch(*place);
        }
        let mut elsewhere = 0u32;
        for (at, ((key, value), place)) in keys.iter().zip(&mut *values).zip(&places).enumerate() {
            let bucket = &self.words[*place..][..Bucket::<K>::WORDS];
            let stored = Bucket::<K>::find(bucket, &Bucket::<K>::words(key));
            *value = stored.wrapping_sub(1);
            let displaced = stored == 0 && Bucket::<K>::stored(bucket, Bucket::<K>::SLOTS) != 0;
            elsewhere |= u32::from(displaced) << at;
        }
        for at in ones(elsewhere.into()) {
            places[at] = self.place(self.hash.second(hashes[at]));
            self.fetch(places[at]);
        }
        for at in ones(elsewhere.into()) {
            let bucket = &self.words[places[at]..][..Bucket::<K>::WORDS];
            values[at] = Bucket::<K>::find(bucket, &Bucket::<K>::words(&keys[at])).wrapping_sub(1);
        }
    }

    /// The first word of a bucket.
    #[inline(always)]
    pub(super) fn place(&self, bucket: u32) -> usize {
        let (bucket, in_page) = (bucket as usize, PAGE_WORDS / Bucket::<K>::WORDS);
        self.root[bucket / in_page].get() as usize + bucket % in_page * Bucket::<K>::WORDS
    }

    #[inline(always)]
    pub(super) fn bucket(&self, bucket: u32) -> &'a [AtomicU64] {
        &self.words[self.place(bucket)..][..Bucket::<K>::WORDS]
    }

    #[inline(always)]
    fn fetch(&self, place: usize) {
        for line in self.words[place..][..Bucket::<K>::WORDS].iter().step_by(8) {
            prefetch(line);
        }
    }
}

impl<K> Clone for View<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for View<'_, K> {}
