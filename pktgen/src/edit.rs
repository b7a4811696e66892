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
use crate::window::Window;

/// The most checksums of a packet that change.
pub(crate) const SUMS_MAX: usize = 8;

/// Frames of a burst that are of one kind.
pub(crate) type Frames<'a> = ArrayVec<&'a mut [u8], BURST_MAX>;

/// For each of these frames.
pub(crate) type Each<T> = [T; BURST_MAX];

/// Sums that are under way.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    pub(crate) sums: [Each<u64>; SUMS_MAX],
    /// What is written, then what that adds to sums.
    pub(crate) values: Each<u64>,
    /// Whether the edit before begins with its first value again.
    again: Each<bool>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { sums: [[0; BURST_MAX]; SUMS_MAX], values: [0; BURST_MAX], again: [false; BURST_MAX] }
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
        let Scratch { sums, values, again } = scratch;
        let values = &mut values[..frames.len()];
        self.source.draw(values, self.chained, &mut again[..frames.len()]);
        match self.window.width {
            1 => edit::<1>(self.window, frames, values),
            2 => edit::<2>(self.window, frames, values),
            4 => edit::<4>(self.window, frames, values),
            _ => edit::<8>(self.window, frames, values),
        }
        add_to(sums, &self.into, values);
    }
}

/// Writes a value into each frame's window; what it adds to sums takes its place.
#[inline(always)]
fn edit<const WIDTH: usize>(window: Window, frames: &mut Frames<'_>, values: &mut [u64]) {
    values.iter_mut().for_each(|value| *value <<= window.shift);
    if window.is_whole() {
        write::<WIDTH>(window.at, frames, values);
    } else {
        for (frame, value) in frames.iter_mut().zip(&*values) {
            let Some(bytes) = window_of::<WIDTH>(frame, window.at) else { return };
            let mut there = [0; 8];
            there[8 - WIDTH..].copy_from_slice(bytes);
            let wide = value | u64::from_be_bytes(there) & !window.mask;
            bytes.copy_from_slice(&wide.to_be_bytes()[8 - WIDTH..]);
        }
    }
    match WIDTH {
        // The upper half of its word.
        1 if window.at.is_multiple_of(2) => values.iter_mut().for_each(|value| *value <<= 8),
        1 | 2 => {}
        _ => values.iter_mut().for_each(|value| *value = (*value & 0xffff_ffff) + (*value >> 32)),
    }
}

/// Writes a value into each frame.
#[inline(always)]
fn write<const WIDTH: usize>(at: usize, frames: &mut Frames<'_>, values: &[u64]) {
    for (frame, value) in frames.iter_mut().zip(values) {
        let Some(bytes) = window_of::<WIDTH>(frame, at) else { return };
        bytes.copy_from_slice(&value.to_be_bytes()[8 - WIDTH..]);
    }
}

#[inline(always)]
fn window_of<const WIDTH: usize>(frame: &mut [u8], at: usize) -> Option<&mut [u8; WIDTH]> {
    frame.get_mut(at..at.wrapping_add(WIDTH)).and_then(|bytes| bytes.first_chunk_mut())
}

/// Adds to sums what each packet adds.
#[inline(always)]
pub(crate) fn add_to(sums: &mut [Each<u64>; SUMS_MAX], into: &[u8], values: &[u64]) {
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
        write::<2>(checksum.at, frames, values);
        add_to(sums, &checksum.into, values);
    }
}
