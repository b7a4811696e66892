//! Which bytes of a region are taken: first the smallest hole that fits, holes joined again when bytes come back.

use std::collections::BTreeMap;

/// Zones start and end on these, so that two of them never share a cache line (a pair of lines is what the
/// adjacent-line prefetcher moves, but 64 is what coherence and devices act on).
pub(crate) const GRAIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Hole {
    bytes: usize,
    /// Some of it was in a zone before, so it need not be zero any more.
    dirty: bool,
}

/// A taken piece.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) name: String,
    /// As asked for; what is taken is this rounded up to [`GRAIN`].
    pub(crate) bytes: usize,
}

/// Where a piece was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    pub(crate) dirty: bool,
}

#[derive(Debug)]
pub(crate) struct FreeList {
    base: usize,
    holes: BTreeMap<usize, Hole>,
    taken: BTreeMap<usize, Taken>,
    free: usize,
}

impl FreeList {
    /// All of `bytes` free and zero; `base` is the address of offset 0, since alignment is asked of addresses.
    pub(crate) fn new(base: usize, bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(GRAIN), "regions are whole pages");
        Self {
            base,
            holes: BTreeMap::from([(0, Hole { bytes, dirty: false })]),
            taken: BTreeMap::new(),
            free: bytes,
        }
    }

    pub(crate) fn free_bytes(&self) -> usize {
        self.free
    }

    pub(crate) fn largest_hole(&self) -> usize {
        self.holes.values().map(|hole| hole.bytes).max().unwrap_or(0)
    }

    pub(crate) fn holes(&self) -> usize {
        self.holes.len()
    }

    pub(crate) fn taken(&self) -> &BTreeMap<usize, Taken> {
        &self.taken
    }

    /// Takes `bytes` at a multiple of `align`, not crossing a multiple of `bound` if there is one. `align` and
    /// `bound` are powers of two, `bound` at least `bytes`.
    pub(crate) fn take(
        &mut self,
        name: &str,
        bytes: usize,
        align: usize,
        bound: Option<usize>,
    ) -> Option<Place> {
        let size = bytes.checked_next_multiple_of(GRAIN)?;
        let align = align.max(GRAIN);
        let (hole_at, hole, offset) = self
            .holes
            .iter()
            .filter_map(|(&at, &hole)| Some((at, hole, self.fit(at, hole.bytes, bytes, align, bound)?)))
            .min_by_key(|&(at, hole, _)| (hole.bytes, at))?;
        self.holes.remove(&hole_at);
        let end = offset + size;
        if offset > hole_at {
            self.holes.insert(hole_at, Hole { bytes: offset - hole_at, ..hole });
        }
        if hole_at + hole.bytes > end {
            self.holes.insert(end, Hole { bytes: hole_at + hole.bytes - end, ..hole });
        }
        self.taken.insert(offset, Taken { name: name.to_owned(), bytes });
        self.free -= size;
        Some(Place { offset, dirty: hole.dirty })
    }

    fn fit(&self, at: usize, room: usize, bytes: usize, align: usize, bound: Option<usize>) -> Option<usize> {
        let size = bytes.checked_next_multiple_of(GRAIN)?;
        let first = self.base + at;
        let mut start = first.checked_next_multiple_of(align)?;
        if let Some(bound) = bound
            && start / bound != (start + bytes - 1) / bound
        {
            start = start.checked_next_multiple_of(bound.max(align))?;
        }
        let end = start.checked_add(size)?;
        (end <= first + room).then(|| start - self.base)
    }

    /// Gives back what [`take`](Self::take) took at `offset`.
    ///
    /// # Panics
    /// When nothing is taken there.
    pub(crate) fn give_back(&mut self, offset: usize) {
        let taken = self.taken.remove(&offset).expect("only a zone gives back, once, what it took");
        let mut start = offset;
        let mut size = taken.bytes.next_multiple_of(GRAIN);
        self.free += size;
        if let Some(after) = self.holes.remove(&(start + size)) {
            size += after.bytes;
        }
        if let Some((&at, &before)) = self.holes.range(..start).next_back()
            && at + before.bytes == start
        {
            self.holes.remove(&at);
            start = at;
            size += before.bytes;
        }
        self.holes.insert(start, Hole { bytes: size, dirty: true });
    }
}

#[cfg(test)]
mod tests;
