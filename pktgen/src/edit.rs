//! Changes of a burst's packets: each field of all packets in one run, and what that does to their checksums.
//!
//! ```text
//!   template ─ copied ─► packet ─ edits ─► fields that vary ─┬─► packet
//!      └─ sums of what does not vary ─────────► sums ◄───────┘     ▲
//!                                                └─ checksums ─────┘
//! ```
//!
//! A checksum is the sum of what no packet changes, which is counted once, and of the fields that vary: nothing is read from the packet. A
//! field of two, four or eight bytes adds itself, since 2^16 is 1 in sums of 16-bit words (RFC 1071).

use arrayvec::ArrayVec;
use pollux_mempool::BURST_MAX;

use crate::frame::Coverage;
use crate::source::{Source, draw};
use crate::window::Window;

/// The most checksums of a packet that change.
pub(crate) const SUMS_MAX: usize = 8;

/// The frames of a burst.
pub(crate) type Frames<'a> = ArrayVec<&'a mut [u8], BURST_MAX>;

/// For each packet of a burst.
pub(crate) type Each<T> = [T; BURST_MAX];

/// Sums that are under way.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    pub(crate) sums: [Each<u64>; SUMS_MAX],
    /// What an edit adds to sums.
    adds: Each<u64>,
    /// Whether the edit before began from its first value again.
    wrapped: Each<bool>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { sums: [[0; BURST_MAX]; SUMS_MAX], adds: [0; BURST_MAX], wrapped: [false; BURST_MAX] }
    }
}

/// A checksum that changes.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    pub(crate) at: usize,
    pub(crate) zero_is_none: bool,
    /// The sums that it is a part of itself.
    pub(crate) into: ArrayVec<u8, SUMS_MAX>,
}

/// A field that varies.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) window: Window,
    pub(crate) source: Source,
    /// It takes its next value when the edit before has taken its last one.
    pub(crate) chained: bool,
    /// The sums that it is a part of.
    pub(crate) into: ArrayVec<u8, SUMS_MAX>,
}

impl Edit {
    /// Changes the frames that `members` lists.
    pub(crate) fn apply(&mut self, frames: &mut Frames<'_>, members: &[u8], scratch: &mut Scratch) {
        match self.window.width {
            1 => self.apply_wide::<1>(frames, members, scratch),
            2 => self.apply_wide::<2>(frames, members, scratch),
            4 => self.apply_wide::<4>(frames, members, scratch),
            _ => self.apply_wide::<8>(frames, members, scratch),
        }
    }

    #[inline(always)]
    fn apply_wide<const WIDTH: usize>(
        &mut self,
        frames: &mut Frames<'_>,
        members: &[u8],
        scratch: &mut Scratch,
    ) {
        let window = self.window;
        let Scratch { sums, adds, wrapped } = scratch;
        match &mut self.source {
            Source::Range { value, first, step, left, count } => {
                let [mut now, mut rest] = [*value, *left];
                let step = *step;
                write::<WIDTH>(window, frames, members, adds, |place| {
                    if self.chained && !wrapped[place] {
                        return now;
                    }
                    let this = now;
                    let last = rest == 0;
                    now = if last { *first } else { now.wrapping_add(step) };
                    rest = if last { *count } else { rest - 1 };
                    wrapped[place] = last;
                    this
                });
                (*value, *left) = (now, rest);
            }
            Source::List { values, at } => {
                let mut now = *at;
                write::<WIDTH>(window, frames, members, adds, |place| {
                    let this = values.get(now).copied().unwrap_or(0);
                    if self.chained && !wrapped[place] {
                        return this;
                    }
                    now += 1;
                    let last = now >= values.len();
                    if last {
                        now = 0;
                    }
                    wrapped[place] = last;
                    this
                });
                *at = now;
            }
            Source::Random { base, mask, state } => {
                let mut now = *state;
                write::<WIDTH>(window, frames, members, adds, |_| {
                    *base | draw(&mut now).rotate_left(23) & *mask
                });
                *state = now;
            }
        }
        add_to(sums, &self.into, adds, members);
    }
}

/// Writes a value into each frame's window, and what it adds to sums into `adds`.
#[inline(always)]
fn write<const WIDTH: usize>(
    window: Window,
    frames: &mut Frames<'_>,
    members: &[u8],
    adds: &mut Each<u64>,
    mut next: impl FnMut(usize) -> u64,
) {
    let (whole, odd) = (window.is_whole(), window.at % 2 == 1);
    for &place in members {
        let place = usize::from(place) % BURST_MAX;
        let value = next(place) << window.shift;
        let Some(frame) = frames.get_mut(place) else { return };
        let Some(bytes) = frame.get_mut(window.at..).and_then(|rest| rest.first_chunk_mut::<WIDTH>()) else {
            return;
        };
        let mut wide = value;
        if !whole {
            let mut there = [0; 8];
            there[8 - WIDTH..].copy_from_slice(bytes);
            wide |= u64::from_be_bytes(there) & !window.mask;
        }
        bytes.copy_from_slice(&wide.to_be_bytes()[8 - WIDTH..]);
        adds[place] = match WIDTH {
            // The upper half of its word.
            1 if !odd => value << 8,
            1 | 2 => value,
            _ => (value & 0xffff_ffff) + (value >> 32),
        };
    }
}

/// Adds to sums what each packet adds.
#[inline(always)]
pub(crate) fn add_to(sums: &mut [Each<u64>; SUMS_MAX], into: &[u8], adds: &Each<u64>, members: &[u8]) {
    for &sum in into {
        let sum = &mut sums[usize::from(sum) % SUMS_MAX];
        for &place in members {
            let place = usize::from(place) % BURST_MAX;
            sum[place] += adds[place];
        }
    }
}

/// Writes the checksums of the frames that `members` lists: inner ones first.
pub(crate) fn finish(checksums: &[Checksum], frames: &mut Frames<'_>, members: &[u8], scratch: &mut Scratch) {
    let Scratch { sums, adds, .. } = scratch;
    for (number, checksum) in checksums.iter().enumerate().take(SUMS_MAX) {
        for &place in members {
            let place = usize::from(place) % BURST_MAX;
            let sum = Coverage::finish(sums[number][place], checksum.zero_is_none);
            let Some(frame) = frames.get_mut(place) else { return };
            let Some(bytes) = frame.get_mut(checksum.at..).and_then(|rest| rest.first_chunk_mut::<2>())
            else {
                return;
            };
            *bytes = sum.to_be_bytes();
            adds[place] = sum.into();
        }
        if !checksum.into.is_empty() {
            add_to(sums, &checksum.into, adds, members);
        }
    }
}
