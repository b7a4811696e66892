//! A stream that makes packets: whole bursts, one idea after the other for all of them.

use std::collections::BTreeMap;

use arrayvec::ArrayVec;
use pollux_mempool::{BURST_MAX, Burst, MbufPool, copy_frame};
use pollux_wire::MacAddress;

use crate::edit::{self, Checksum, Frames, Scratch, words};
use crate::frame::{Coverage, FCS};
use crate::shape::Shape;
use crate::spec::StreamSpec;
use crate::stamp::{self, Mark};

/// The most packets of a turn.
const TURN_MAX: usize = 65_536;
/// The most bytes of templates.
const TEMPLATES_MAX: usize = 64 << 20;

/// A packet of a turn: which shape, which of its templates.
#[derive(Clone, Copy, Debug)]
struct Slot {
    shape: u16,
    template: u16,
}

/// How packets are marked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marking {
    pub(crate) cookie: u32,
    /// The number of the stream among all.
    pub(crate) stream: u16,
}

impl Marking {
    /// The mark of packets that are sent at `now`, but for their numbers.
    #[inline(always)]
    fn at(self, now: u64) -> Mark {
        Mark::new(self.cookie, self.stream, now, 0)
    }
}

/// A stream on one lcore.
#[derive(Debug)]
pub(crate) struct Stream {
    shapes: Vec<Shape>,
    turn: Box<[Slot]>,
    /// Bytes of frames of a turn up to each packet, check sequences counted.
    bytes_until: Box<[u64]>,
    at: usize,
    /// All packets are of one template.
    uniform: bool,
    marking: Option<Marking>,
    /// The number of the next packet.
    number: u64,
    scratch: Scratch,
}

/// What distinguishes copies of a stream, one for each queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    pub(crate) number: u64,
    pub(crate) of: u64,
    pub(crate) seed: u64,
}

impl Stream {
    /// Compiles it for a port of that address.
    pub(crate) fn new(
        spec: &StreamSpec,
        source: MacAddress,
        copy: Replica,
        marking: Option<Marking>,
    ) -> Result<Self, String> {
        let mut sizes: Vec<u16> = spec.sizes.0.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let bytes: usize = sizes.iter().map(|size| usize::from(*size)).sum::<usize>() * spec.packets.len();
        if bytes > TEMPLATES_MAX {
            return Err(format!("has {bytes} bytes of packets in all their sizes: at most {TEMPLATES_MAX}"));
        }
        let mut shapes = Vec::new();
        for packet in &spec.packets {
            let options = (&spec.tuple[..], spec.latency);
            shapes.push(Shape::new(packet, &sizes, source, options, (copy.seed, copy.number, copy.of))?);
        }
        let places: BTreeMap<u16, u16> = sizes.iter().zip(0..).map(|(size, place)| (*size, place)).collect();
        let (packets, turn_of_sizes) = (spec.packets.len(), spec.sizes.0.len());
        let length = least_common_multiple(packets, turn_of_sizes);
        if length > TURN_MAX {
            return Err(format!("has {length} packets until a turn begins anew: at most {TURN_MAX}"));
        }
        let slot = |number: usize| {
            let size = spec.sizes.0[number % turn_of_sizes];
            Slot { shape: (number % packets) as u16, template: places.get(&size).copied().unwrap_or(0) }
        };
        let turn: Box<[Slot]> = (0..length).map(slot).collect();
        let mut until = 0;
        let bytes_until = turn.iter().map(|slot| {
            let before = until;
            until += (shapes[usize::from(slot.shape)].templates[usize::from(slot.template)].bytes.len() + FCS)
                as u64;
            before
        });
        let mut bytes_until: Vec<u64> = bytes_until.collect();
        bytes_until.push(until);
        Ok(Self {
            uniform: turn.len() == 1,
            shapes,
            turn,
            bytes_until: bytes_until.into(),
            at: 0,
            marking,
            number: 0,
            scratch: Scratch::default(),
        })
    }

    /// Bytes of frames of a turn up to each packet, for [`turn_bytes`].
    pub(crate) fn bytes_until(&self) -> Box<[u64]> {
        self.bytes_until.clone()
    }

    /// Adds up to `count` packets to an empty burst, sent at `now`; their number. Hot.
    #[inline]
    pub(crate) fn make(&mut self, pool: &MbufPool, burst: &mut Burst, count: usize, now: u64) -> usize {
        let slot = self.turn[self.at];
        let bytes = self.shapes[usize::from(slot.shape)].templates[usize::from(slot.template)].bytes.len();
        let made = pool.alloc_received(burst, count, bytes, u16::MAX);
        if self.uniform {
            self.fill(burst, now);
        } else {
            self.fill_mixed(burst, now);
        }
        self.number += made as u64;
        made
    }

    /// All packets of one template.
    #[inline]
    fn fill(&mut self, burst: &mut Burst, now: u64) {
        let (shape, scratch) = (&mut self.shapes[0], &mut self.scratch);
        let template = &mut shape.templates[0];
        if shape.edits.is_empty() && self.marking.is_none() {
            for mbuf in burst.iter_mut() {
                if let Some(data) = mbuf.data_mut() {
                    copy_frame(data, &template.bytes);
                }
            }
            return;
        }
        // All packets of a burst have the same mark but for their numbers.
        let mark = self.marking.map_or(0, |marking| marking.at(now).put(&mut template.bytes));
        let base = template.sums_with(mark, &shape.stamp_into);
        if shape.edits.is_empty() && !shape.has_odd && shape.checksums.len() <= 1 {
            return fill_numbered(
                &template.bytes,
                shape.checksums.first(),
                base[0],
                burst,
                self.number as u32,
            );
        }
        let mut frames: Frames<'_> = ArrayVec::new();
        for mbuf in burst.iter_mut() {
            let Some(data) = mbuf.data_mut() else { return };
            copy_frame(data, &template.bytes);
            frames.push(data);
        }
        for (sums, base) in scratch.sums.iter_mut().zip(base).take(shape.checksums.len()) {
            sums[..frames.len()].fill(base);
        }
        change(shape, &mut frames, self.marking.map(|_| self.number..), scratch);
    }

    /// Packets of different templates.
    fn fill_mixed(&mut self, burst: &mut Burst, now: u64) {
        let mut slots: ArrayVec<Slot, BURST_MAX> = ArrayVec::new();
        for mbuf in burst.iter_mut() {
            let slot = self.turn[self.at];
            self.at = if self.at + 1 == self.turn.len() { 0 } else { self.at + 1 };
            slots.push(slot);
            let template = &self.shapes[usize::from(slot.shape)].templates[usize::from(slot.template)];
            mbuf.set_len(template.bytes.len());
        }
        let (scratch, mut done) = (&mut self.scratch, 0_u64);
        let mark = self.marking.map(|marking| marking.at(now));
        for first in 0..slots.len() {
            if done >> first & 1 == 1 {
                continue;
            }
            let kind = slots[first].shape;
            let shape = &mut self.shapes[usize::from(kind)];
            let (mut frames, mut numbers): (Frames<'_>, ArrayVec<u64, BURST_MAX>) = Default::default();
            for (place, (mbuf, slot)) in burst.iter_mut().zip(&slots).enumerate().skip(first) {
                if slot.shape != kind {
                    continue;
                }
                done |= 1 << place;
                let template = &shape.templates[usize::from(slot.template)];
                let Some(data) = mbuf.data_mut() else { return };
                copy_frame(data, &template.bytes);
                let mark = mark.map_or(0, |mark| mark.put(data));
                let base = template.sums_with(mark, &shape.stamp_into);
                for (sums, base) in scratch.sums.iter_mut().zip(base).take(shape.checksums.len()) {
                    sums[frames.len()] = base;
                }
                frames.push(data);
                numbers.push(self.number + place as u64);
            }
            change(shape, &mut frames, self.marking.map(|_| numbers.into_iter()), scratch);
        }
    }
}

/// Packets that differ by the numbers of their marks alone, and so in one checksum at most.
#[inline]
fn fill_numbered(template: &[u8], checksum: Option<&Checksum>, base: u32, burst: &mut Burst, first: u32) {
    // Their own: what is written through a frame might be a checksum's place.
    let (at, zero_is_none) =
        checksum.map_or((usize::MAX, false), |checksum| (checksum.at, checksum.zero_is_none));
    let mut number = first;
    for mbuf in burst.iter_mut() {
        let Some(data) = mbuf.data_mut() else { return };
        copy_frame(data, template);
        if let Some(bytes) = data.last_chunk_mut() {
            *bytes = number.to_be_bytes();
        }
        if let Some(bytes) = edit::window_of(data, at) {
            *bytes = Coverage::finish(base + words(number), zero_is_none).to_be_bytes();
        }
        number = number.wrapping_add(1);
    }
}

/// Bytes of that many packets from the first on, by the bytes of a turn up to each packet.
pub(crate) fn turn_bytes(bytes_until: &[u64], packets: u64) -> u64 {
    let turn = bytes_until.len().saturating_sub(1).max(1) as u64;
    let whole = bytes_until.last().copied().unwrap_or(0);
    packets / turn * whole + bytes_until.get((packets % turn) as usize).copied().unwrap_or(0)
}

/// Edits and checksums of frames of one shape, and the numbers of those that are marked.
#[inline(always)]
fn change(
    shape: &mut Shape,
    frames: &mut Frames<'_>,
    numbers: Option<impl Iterator<Item = u64>>,
    scratch: &mut Scratch,
) {
    for edit in &mut shape.edits {
        edit.apply(frames, scratch);
    }
    if let Some(numbers) = numbers {
        number(frames, numbers, scratch, &shape.stamp_into, shape.has_odd);
    }
    edit::finish(&shape.checksums, frames, scratch);
}

/// Completes marks by the packets' numbers.
#[inline]
fn number(
    frames: &mut Frames<'_>,
    numbers: impl Iterator<Item = u64>,
    scratch: &mut Scratch,
    into: &[u8],
    has_odd: bool,
) {
    let values = &mut scratch.values[..frames.len()];
    values.iter_mut().zip(numbers).for_each(|(value, number)| *value = number as u32);
    for (frame, value) in frames.iter_mut().zip(&*values) {
        let Some(bytes) = frame.last_chunk_mut() else { return };
        *bytes = value.to_be_bytes();
    }
    values.iter_mut().for_each(|value| *value = words(*value));
    if has_odd {
        let each = values.iter_mut().zip(&*frames);
        each.for_each(|(value, frame)| *value = stamp::sum_at_end(*value, frame.len()));
    }
    edit::add_to(&mut scratch.sums, into, values);
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut high, mut low) = (a.max(1), b.max(1));
    while low != 0 {
        (high, low) = (low, high % low);
    }
    (a.max(1) / high).saturating_mul(b.max(1))
}

#[cfg(test)]
mod tests;
