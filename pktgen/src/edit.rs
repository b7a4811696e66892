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
use crate::source::Source;
use crate::window::{Value, Window};

/// The most checksums of a packet that change.
pub(crate) const SUMS_MAX: usize = 8;

/// Frames of a burst that are of one kind.
pub(crate) type Frames<'a> = ArrayVec<&'a mut [u8], BURST_MAX>;

/// For each of these frames.
pub(crate) type Each<T> = [T; BURST_MAX];

/// Sums that are under way: 32 bits hold those of more words than a packet has fields.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    pub(crate) sums: [Each<u32>; SUMS_MAX],
    /// What is written, then what that adds to sums.
    pub(crate) values: Each<u32>,
    /// What is written in eight bytes.
    wide: Each<u64>,
    /// Whether the edit before begins with its first value again.
    again: Each<bool>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            sums: [[0; BURST_MAX]; SUMS_MAX],
            values: [0; BURST_MAX],
            wide: [0; BURST_MAX],
            again: [false; BURST_MAX],
        }
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
    /// Changes the frames.
    #[inline]
    pub(crate) fn apply(&mut self, frames: &mut Frames<'_>, scratch: &mut Scratch) {
        let Scratch { sums, values, wide, again } = scratch;
        let (count, window) = (frames.len(), self.window);
        let values = &mut values[..count];
        let again = &mut again[..count];
        if window.width > 4 {
            let wide = &mut wide[..count];
            self.source.draw(wide, self.chained, again);
            place::<_, 8>(window, frames, wide);
            for (value, wide) in values.iter_mut().zip(&*wide) {
                *value = words(*wide as u32) + words((*wide >> 32) as u32);
            }
        } else {
            self.source.draw(values, self.chained, again);
            match window.width {
                1 => {
                    place::<_, 1>(window, frames, values);
                    if window.at.is_multiple_of(2) {
                        // The upper half of its word.
                        values.iter_mut().for_each(|value| *value <<= 8);
                    }
                }
                2 => place::<_, 2>(window, frames, values),
                _ => {
                    place::<_, 4>(window, frames, values);
                    values.iter_mut().for_each(|value| *value = words(*value));
                }
            }
        }
        add_to(sums, &self.into, values);
    }
}

/// The sum of its words.
#[inline(always)]
pub(crate) fn words(value: u32) -> u32 {
    (value & 0xffff) + (value >> 16)
}

/// Writes a value into each frame's window, and leaves it as it stands there.
#[inline(always)]
fn place<V: Value, const WIDTH: usize>(window: Window, frames: &mut Frames<'_>, values: &mut [V]) {
    if window.shift != 0 {
        values.iter_mut().for_each(|value| *value = V::of(value.wide() << window.shift));
    }
    if window.is_whole() {
        write::<V, WIDTH>(window.at, frames, values);
        return;
    }
    for (frame, value) in frames.iter_mut().zip(&*values) {
        let Some(bytes) = window_of::<WIDTH>(frame, window.at) else { return };
        let mut there = [0; 8];
        there[8 - WIDTH..].copy_from_slice(bytes);
        let whole = value.wide() | u64::from_be_bytes(there) & !window.mask;
        bytes.copy_from_slice(&whole.to_be_bytes()[8 - WIDTH..]);
    }
}

/// Writes a value into each frame.
#[inline(always)]
fn write<V: Value, const WIDTH: usize>(at: usize, frames: &mut Frames<'_>, values: &[V]) {
    for (frame, value) in frames.iter_mut().zip(values) {
        let Some(bytes) = window_of::<WIDTH>(frame, at) else { return };
        bytes.copy_from_slice(&value.wide().to_be_bytes()[8 - WIDTH..]);
    }
}

#[inline(always)]
pub(crate) fn window_of<const WIDTH: usize>(frame: &mut [u8], at: usize) -> Option<&mut [u8; WIDTH]> {
    frame.get_mut(at..at.wrapping_add(WIDTH)).and_then(|bytes| bytes.first_chunk_mut())
}

/// Adds to sums what each packet adds.
#[inline(always)]
pub(crate) fn add_to(sums: &mut [Each<u32>; SUMS_MAX], into: &[u8], values: &[u32]) {
    for &sum in into {
        for (sum, value) in sums[usize::from(sum) % SUMS_MAX].iter_mut().zip(values) {
            *sum += value;
        }
    }
}

/// Writes the checksums of the frames: inner ones first.
pub(crate) fn finish(checksums: &[Checksum], frames: &mut Frames<'_>, scratch: &mut Scratch) {
    let Scratch { sums, values, .. } = scratch;
    let values = &mut values[..frames.len()];
    for (number, checksum) in checksums.iter().enumerate().take(SUMS_MAX) {
        for (sum, value) in sums[number].iter().zip(&mut *values) {
            *value = Coverage::finish(*sum, checksum.zero_is_none).into();
        }
        write::<_, 2>(checksum.at, frames, values);
        add_to(sums, &checksum.into, values);
    }
}
