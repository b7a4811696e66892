//! Keys as words, and the buckets that they lie in.
//!
//! ```text
//!   a bucket of 16-byte keys, one cache line: | key 0 | key 1 | key 2 | value 0, 1 | value 2, how many are elsewhere |
//! ```
//!
//! A value is stored with 1 added, so that 0 marks an empty slot. The last count is of keys whose first bucket this is and that lie in their
//! second: where it is 0, nobody looks there.

use std::marker::PhantomData;

use zerocopy::{Immutable, IntoBytes};

use crate::memory::Word;

/// What can be a key: any value without padding and without references, of 1 to 64 bytes. Keys are equal whose bytes are.
pub trait Key: Copy + IntoBytes + Immutable + Send + Sync + 'static {}

impl<K: Copy + IntoBytes + Immutable + Send + Sync + 'static> Key for K {}

/// Most words of a key.
pub(super) const WORDS_MAX: usize = 8;

/// A key's words, zeros behind them.
pub(super) type Words = [u64; WORDS_MAX];

/// The layout of buckets of `K`.
#[derive(Debug)]
pub(super) struct Bucket<K>(PhantomData<K>);

impl<K: Key> Bucket<K> {
    /// Words of a key.
    pub(super) const KEY: usize = {
        assert!(size_of::<K>() >= 1 && size_of::<K>() <= 8 * WORDS_MAX, "keys have from 1 to 64 bytes");
        size_of::<K>().div_ceil(8)
    };
    const SHAPE: (usize, usize) = {
        let mut words = 8;
        while Self::slots(words) < 2 {
            words *= 2;
        }
        (words, Self::slots(words))
    };
    /// Words of a bucket.
    pub(super) const WORDS: usize = Self::SHAPE.0;
    /// Keys of a bucket.
    pub(super) const SLOTS: usize = Self::SHAPE.1;

    /// Keys that fit so many words, with their values and the count.
    const fn slots(words: usize) -> usize {
        let mut slots = 0;
        while (slots + 1) * Self::KEY + (slots + 2).div_ceil(2) <= words {
            slots += 1;
        }
        slots
    }

    /// The words of a key.
    #[inline(always)]
    pub(super) fn words(key: &K) -> Words {
        let (bytes, mut words) = (key.as_bytes(), [0; WORDS_MAX]);
        for (at, word) in words.iter_mut().enumerate().take(Self::KEY) {
            let rest = &bytes[at * 8..];
            *word = match rest.first_chunk() {
                Some(whole) => u64::from_le_bytes(*whole),
                None => {
                    let mut last = [0; 8];
                    last[..rest.len()].copy_from_slice(rest);
                    u64::from_le_bytes(last)
                }
            };
        }
        words
    }

    /// The words of the key in a slot.
    pub(super) fn key_at<W: Word<Value = u64>>(bucket: &[W], slot: usize) -> Words {
        let mut words = [0; WORDS_MAX];
        for (word, stored) in words.iter_mut().zip(&bucket[slot * Self::KEY..][..Self::KEY]) {
            *word = stored.get();
        }
        words
    }

    /// What is stored for the value of a slot: 0 where it is empty. That of slot `SLOTS` is the count of keys that lie elsewhere.
    #[inline(always)]
    pub(super) fn stored<W: Word<Value = u64>>(bucket: &[W], slot: usize) -> u32 {
        (bucket[Self::SLOTS * Self::KEY + slot / 2].get() >> (slot % 2 * 32)) as u32
    }

    pub(super) fn store<W: Word<Value = u64>>(bucket: &[W], slot: usize, value: u32) {
        let (word, shift) = (&bucket[Self::SLOTS * Self::KEY + slot / 2], slot % 2 * 32);
        word.set(word.get() & !(0xffff_ffff << shift) | u64::from(value) << shift);
    }

    pub(super) fn put<W: Word<Value = u64>>(bucket: &[W], slot: usize, key: &Words, stored: u32) {
        for (word, new) in bucket[slot * Self::KEY..][..Self::KEY].iter().zip(key) {
            word.set(*new);
        }
        Self::store(bucket, slot, stored);
    }

    /// What is stored for the value of a key: 0 where the bucket does not have it. Hot: no branch.
    #[inline(always)]
    pub(super) fn find<W: Word<Value = u64>>(bucket: &[W], key: &Words) -> u32 {
        let mut found = 0;
        for slot in 0..Self::SLOTS {
            let mut differs = 0;
            for at in 0..Self::KEY {
                differs |= bucket[slot * Self::KEY + at].get() ^ key[at];
            }
            // An empty slot has a key of zeros, and 0 for its value.
            found |= if differs == 0 { Self::stored(bucket, slot) } else { 0 };
        }
        found
    }

    pub(super) fn slot_of<W: Word<Value = u64>>(bucket: &[W], key: &Words) -> Option<usize> {
        (0..Self::SLOTS).find(|slot| Self::stored(bucket, *slot) != 0 && Self::key_at(bucket, *slot) == *key)
    }

    pub(super) fn empty_slot<W: Word<Value = u64>>(bucket: &[W]) -> Option<usize> {
        (0..Self::SLOTS).find(|slot| Self::stored(bucket, *slot) == 0)
    }
}

/// How keys are spread, by numbers that nobody outside knows: who sends packets cannot choose keys that fall together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash {
    seeds: [u64; 3],
    /// Number of buckets, at least 2.
    pub(super) buckets: u32,
}

impl Hash {
    pub(super) fn new(buckets: u32) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let random = || RandomState::new().hash_one(buckets);
        Self { seeds: [random(), random(), random()], buckets }
    }

    /// 64 bits of a key.
    #[inline(always)]
    pub(super) fn of<K: Key>(&self, key: &Words) -> u64 {
        let [first, second, last] = self.seeds;
        let mut hash = first;
        for at in (0..Bucket::<K>::KEY).step_by(2) {
            let next = if at + 1 < Bucket::<K>::KEY { key[at + 1] } else { 0 };
            hash = fold(hash ^ key[at], second ^ next);
        }
        // The golden ratio: an odd number with its bits spread.
        fold(hash ^ last, 0x9e37_79b9_7f4a_7c15)
    }

    /// The bucket where a key is looked for first.
    #[inline(always)]
    pub(super) fn first(&self, hash: u64) -> u32 {
        self.scaled(hash as u32)
    }

    /// The bucket where it is otherwise.
    #[inline(always)]
    pub(super) fn second(&self, hash: u64) -> u32 {
        let (first, second) = (self.first(hash), self.scaled((hash >> 32) as u32));
        if first != second {
            second
        } else if first + 1 == self.buckets {
            0
        } else {
            first + 1
        }
    }

    #[inline(always)]
    fn scaled(&self, part: u32) -> u32 {
        ((u64::from(part) * u64::from(self.buckets)) >> 32) as u32
    }
}

/// Both halves of a product.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}
