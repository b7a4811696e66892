//! Which memory is pinned: a list of pins, and the pieces that they cover together.

use pollux_uverbs::Errno;

use super::limit::Charge;
use super::process::Others;

/// A piece of memory with the same right everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cover {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) write: bool,
}

#[derive(Debug)]
struct Pin {
    id: u64,
    range: Cover,
    /// Whether it counts as locked.
    counts: bool,
    /// What it counts for in the process.
    _charge: Option<Charge>,
}

/// All pins, and what they cover, sorted and disjoint. A pin costs a pass over all of them; a look-up a binary search.
#[derive(Debug, Default)]
pub(super) struct Pins {
    pins: Vec<Pin>,
    /// Memory of the device itself, which is not accounted and stays.
    own: Option<Cover>,
    covers: Vec<Cover>,
    /// Other processes that have pinned memory of theirs.
    pub(super) others: Others,
    next: u64,
    /// Most bytes that may be pinned.
    limit: Option<u64>,
    /// The process's limit holds as well.
    of_process: bool,
}

/// What is accounted: whole pages of 4 KiB, as a kernel pins.
fn pages(range: &Cover) -> u64 {
    (range.end.div_ceil(4096)).saturating_sub(range.start / 4096) * 4096
}

impl Pins {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.limit = Some(bytes);
    }

    pub(super) fn count_in_process(&mut self) {
        self.of_process = true;
    }

    /// Adds a pin, unless more than a limit would be pinned then.
    pub(super) fn add(&mut self, start: u64, end: u64, write: bool) -> Result<u64, Errno> {
        let range = Cover { start, end, write };
        let bytes = self.bytes().checked_add(pages(&range)).ok_or(Errno::ENOMEM)?;
        if self.limit.is_some_and(|limit| bytes > limit) {
            return Err(Errno::ENOMEM);
        }
        let charge = if self.of_process { Some(Charge::take(pages(&range))?) } else { None };
        Ok(self.push(range, true, charge))
    }

    /// The same for memory that is not kept there for the device, and locked for nobody.
    pub(super) fn add_uncounted(&mut self, start: u64, end: u64, write: bool) -> u64 {
        self.push(Cover { start, end, write }, false, None)
    }

    fn push(&mut self, range: Cover, counts: bool, charge: Option<Charge>) -> u64 {
        self.next += 1;
        self.pins.push(Pin { id: self.next, range, counts, _charge: charge });
        self.cover_again();
        self.next
    }

    /// Where the device finds the memory of another process: that behind its first address.
    pub(super) fn place_of(&mut self, process: i32) -> Result<u64, Errno> {
        let pins = &self.pins;
        self.others
            .place(process, |from, to| pins.iter().any(|pin| from <= pin.range.start && pin.range.start < to))
    }

    /// Memory of the device itself.
    pub(super) fn set_own(&mut self, start: u64, end: u64) {
        self.own = Some(Cover { start, end, write: true });
        self.cover_again();
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.pins.retain(|pin| pin.id != id);
        self.cover_again();
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pins.iter().filter(|pin| pin.counts).map(|pin| pages(&pin.range)).sum()
    }

    /// The piece that has the byte at `at`.
    pub(super) fn cover(&self, at: u64) -> Option<Cover> {
        let after = self.covers.partition_point(|cover| cover.start <= at);
        let cover = *self.covers.get(after.checked_sub(1)?)?;
        (at < cover.end).then_some(cover)
    }

    fn cover_again(&mut self) {
        // At each border, how many pins begin or end there: all of them, and those for writing.
        let mut borders = Vec::with_capacity(self.pins.len() * 2);
        for range in self.pins.iter().map(|pin| &pin.range).chain(&self.own) {
            borders.push((range.start, 1_i64, i64::from(range.write)));
            borders.push((range.end, -1, -i64::from(range.write)));
        }
        borders.sort_unstable();
        self.covers.clear();
        let (mut any, mut writable, mut from) = (0, 0, 0);
        for (at, change, change_writable) in borders {
            if any > 0 && at > from {
                let write = writable > 0;
                match self.covers.last_mut() {
                    Some(last) if last.end == from && last.write == write => last.end = at,
                    _ => self.covers.push(Cover { start: from, end: at, write }),
                }
            }
            any += change;
            writable += change_writable;
            from = at;
        }
    }
}
