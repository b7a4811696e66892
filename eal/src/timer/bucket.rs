//! The wheel's buckets: unordered sets of timer numbers, kept in chunks of one cache line.
//!
//! A chunk is sixteen cells of four bytes: a link to the cells before it, then up to fifteen timers. A bucket is the
//! position of its last timer, so it takes four bytes, and adding touches one cell at its end, where the last addition was.
//! Taking a timer out of the middle moves the last one into its place: two stores, neither of which anything waits for.
//! Chunks come from one array made at set-up.

/// Bits of a tick that one level looks at.
pub(super) const SLOT_BITS: u32 = 8;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = u64::BITS as usize / SLOT_BITS as usize;
/// Buckets of all levels; bucket `level * 256 + slot`.
pub(super) const BUCKETS: usize = LEVELS * SLOTS;

/// Buckets of the finest level, which come first: one tick each.
pub(super) const FINEST: usize = SLOTS;

/// A bucket that nothing is put into.
pub(super) const NOTHING: usize = BUCKETS;

const CELLS: u32 = 16;
/// Timers in a chunk.
pub(super) const CHUNK: usize = CELLS as usize - 1;
const WORDS: usize = SLOTS / 64;

#[derive(Debug)]
pub(super) struct Buckets {
    /// Chunk `c` is cells `16 c ..`; chunk 0 is never used, so that position 0 means "none".
    cells: Vec<u32>,
    /// First free chunk's link cell, chained through the link cells; 0 at the end.
    free: u32,
    /// Position of each bucket's last timer; 0 when empty.
    tops: Box<[u32; BUCKETS + 1]>,
    /// No timer of a bucket has a tick before this one's; of an empty bucket it says nothing.
    earliest: Box<[u64; BUCKETS + 1]>,
    /// Which buckets hold timers.
    filled: [[u64; WORDS]; LEVELS],
    /// Which levels do.
    levels: u32,
}

impl Buckets {
    /// Room for `timers`, however they spread.
    pub(super) fn new(timers: usize) -> Self {
        // Every bucket may hold one chunk that is not full.
        let chunks = timers.div_ceil(CHUNK) + timers.min(BUCKETS);
        let mut cells = vec![0; (chunks + 1) * CELLS as usize];
        for chunk in 1..chunks {
            cells[chunk * CELLS as usize] = (chunk as u32 + 1) * CELLS;
        }
        let free = if chunks == 0 { 0 } else { CELLS };
        Buckets {
            cells,
            free,
            tops: Box::new([0; BUCKETS + 1]),
            earliest: Box::new([0; BUCKETS + 1]),
            filled: [[0; WORDS]; LEVELS],
            levels: 0,
        }
    }

    /// Adds a timer of a tick; gives its position.
    #[inline(always)]
    pub(super) fn push(&mut self, bucket: usize, timer: u32, tick: u64) -> u32 {
        let top = self.tops[bucket];
        let earliest = &mut self.earliest[bucket];
        *earliest = if top == 0 { tick } else { tick.min(*earliest) };
        let pos = if (top + 1) % CELLS <= 1 { self.grow(bucket, top) } else { top + 1 };
        self.cells[pos as usize] = timer;
        self.tops[bucket] = pos;
        pos
    }

    #[inline]
    fn grow(&mut self, bucket: usize, top: u32) -> u32 {
        let link = self.free;
        assert!(link != 0, "timer wheel: chunks are counted for every timer at set-up");
        self.free = self.cells[link as usize];
        self.cells[link as usize] = top;
        if top == 0 {
            let (level, slot) = (bucket / SLOTS, bucket % SLOTS);
            self.filled[level][slot / 64] |= 1 << (slot % 64);
            self.levels |= 1 << level;
        }
        link + 1
    }

    /// Gives back the chunk whose link cell this is; the bucket ends with the chunk before it.
    #[inline]
    fn shrink(&mut self, bucket: usize, link: u32) {
        let below = self.cells[link as usize];
        self.cells[link as usize] = self.free;
        self.free = link;
        self.tops[bucket] = below;
        if below == 0 {
            let (level, slot) = (bucket / SLOTS, bucket % SLOTS);
            self.filled[level][slot / 64] &= !(1 << (slot % 64));
            if self.filled[level] == [0; WORDS] {
                self.levels &= !(1 << level);
            }
        }
    }

    /// Takes out the timer at `pos`. If another timer takes its place there, that one is returned.
    #[inline(always)]
    pub(super) fn remove(&mut self, bucket: usize, pos: u32) -> Option<u32> {
        let top = self.tops[bucket];
        let last = self.cells[top as usize];
        if top % CELLS == 1 {
            self.shrink(bucket, top - 1);
        } else {
            self.tops[bucket] = top - 1;
        }
        if pos == top {
            return None;
        }
        self.cells[pos as usize] = last;
        Some(last)
    }

    /// Takes out the last timer.
    #[inline(always)]
    pub(super) fn pop(&mut self, bucket: usize) -> Option<u32> {
        let top = self.tops[bucket];
        if top == 0 {
            return None;
        }
        let last = self.cells[top as usize];
        if top % CELLS == 1 {
            self.shrink(bucket, top - 1);
        } else {
            self.tops[bucket] = top - 1;
        }
        Some(last)
    }

    /// How many timers the last chunk has, and those of the chunk two before it.
    #[inline]
    pub(super) fn look_ahead(&self, bucket: usize) -> (usize, &[u32]) {
        let top = self.tops[bucket];
        let link = |pos: u32| (pos - pos % CELLS) as usize;
        // Position 0, of an empty bucket or of no chunk before, leads to chunk 0, whose link is 0.
        let second = self.cells[link(top)];
        let third = self.cells[link(second)];
        let start = link(third) + usize::from(third != 0);
        ((top % CELLS) as usize, &self.cells[start..third as usize + usize::from(third != 0)])
    }

    /// Takes out the last chunk's timers, all at once.
    #[inline]
    pub(super) fn take_chunk(&mut self, bucket: usize, timers: &mut [u32; CHUNK]) -> usize {
        let top = self.tops[bucket];
        if top == 0 {
            return 0;
        }
        let (link, count) = (top - top % CELLS, (top % CELLS) as usize);
        let first = link as usize + 1;
        timers[..count].copy_from_slice(&self.cells[first..first + count]);
        self.shrink(bucket, link);
        count
    }

    /// The lowest bucket with timers in it, which is the earliest.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let words = &self.filled[level];
        let word = words.iter().position(|&word| word != 0)?;
        Some(level * SLOTS + word * 64 + words[word].trailing_zeros() as usize)
    }

    /// A timer that stays where it is has another tick now.
    #[inline(always)]
    pub(super) fn note(&mut self, bucket: usize, tick: u64) {
        let earliest = &mut self.earliest[bucket];
        *earliest = tick.min(*earliest);
    }

    /// A tick before which no timer of the bucket comes due, which has some.
    #[inline(always)]
    pub(super) fn earliest(&self, bucket: usize) -> u64 {
        self.earliest[bucket]
    }

    /// The last timer, if there is one.
    #[inline(always)]
    pub(super) fn last(&self, bucket: usize) -> Option<u32> {
        let top = self.tops[bucket];
        (top != 0).then(|| self.cells[top as usize])
    }

    #[inline]
    pub(super) fn is_empty(&self, bucket: usize) -> bool {
        self.tops[bucket] == 0
    }

    #[cfg(test)]
    pub(super) fn free_chunks(&self) -> usize {
        let mut link = self.free;
        let mut count = 0;
        while link != 0 {
            count += 1;
            link = self.cells[link as usize];
        }
        count
    }
}
