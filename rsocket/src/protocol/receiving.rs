//! Our receive buffer: what of it the peer was offered, what it wrote, what was read.
//!
//! ```text
//!   offered + unread + freed = all of it        half of it is offered again when as much is freed
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use crate::message::{Message, Sge, operation};

use super::{Sizes, Violation};

/// See the module. Sequence numbers wrap.
#[derive(Debug)]
pub(super) struct Receiving {
    /// As the peer reaches it.
    ring: Sge,
    offered: u32,
    unread: u32,
    freed: u32,
    /// Where the next half to be offered begins.
    offer_at: u32,
    read_at: u32,
    /// Bytes of each message that are not read yet.
    messages: VecDeque<u32>,
    receives: u16,
    /// Messages with credits that were read, and at which number the peer has to be told of it.
    sequence: u16,
    due: u16,
    /// The peer's target SGL, and which entry of it is next.
    targets: Sge,
    target: u32,
}

impl Receiving {
    pub(super) fn new(sizes: &Sizes, ring: Sge, targets: Sge) -> Self {
        let half = ring.length / 2;
        Self {
            ring,
            offered: half,
            unread: 0,
            freed: half,
            offer_at: half,
            read_at: 0,
            messages: VecDeque::with_capacity(sizes.receives.into()),
            receives: sizes.receives,
            sequence: 0,
            due: (sizes.receives / 2).max(1),
            targets,
            // The first was the private data's.
            target: 1 % targets.length.max(1),
        }
    }

    fn half(&self) -> u32 {
        self.ring.length / 2
    }

    pub(super) fn unread(&self) -> usize {
        self.unread as usize
    }

    pub(super) fn data(&mut self, bytes: u32) -> Result<(), Violation> {
        if bytes > self.offered {
            return Err(Violation::Data { bytes, offered: self.offered });
        }
        if bytes == 0 {
            self.empty();
            return Ok(());
        }
        if self.messages.len() >= self.receives.into() {
            return Err(Violation::Credits(self.receives.into()));
        }
        self.offered -= bytes;
        self.unread += bytes;
        self.messages.push_back(bytes);
        Ok(())
    }

    /// A message that took a credit, and has no data to be read.
    pub(super) fn empty(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }

    pub(super) fn is_update_due(&self) -> bool {
        self.freed >= self.half() || self.sequence.wrapping_sub(self.due) as i16 >= 0
    }

    /// The message, and what goes into the peer's target SGL: where, by which key.
    pub(super) fn update(&mut self) -> (Message, Option<(Sge, u64, u32)>) {
        self.due = self.sequence.wrapping_add((self.receives / 2).max(1));
        let credits = self.sequence.wrapping_add(self.receives);
        let message = Message::new(operation::CREDITS, credits.into());
        let half = self.half();
        if self.freed < half {
            return (message, None);
        }
        let address = self.ring.address.wrapping_add(self.offer_at.into());
        let entry = Sge { address, key: self.ring.key, length: half };
        self.freed -= half;
        self.offered += half;
        self.offer_at = (self.offer_at + half) % self.ring.length;
        let target =
            self.targets.address.wrapping_add(u64::from(self.target) * crate::message::SGE_BYTES as u64);
        self.target = (self.target + 1) % self.targets.length;
        (message, Some((entry, target, self.targets.key)))
    }

    pub(super) fn read(&mut self, bytes: usize, peek: bool) -> [Range<usize>; 2] {
        let bytes = bytes.min(self.unread as usize) as u32;
        let first = bytes.min(self.ring.length - self.read_at);
        let ranges = [self.read_at..self.read_at + first, 0..bytes - first];
        if !peek {
            self.unread -= bytes;
            self.freed += bytes;
            self.read_at = (self.read_at + bytes) % self.ring.length;
            self.leave(bytes);
        }
        ranges.map(|range| range.start as usize..range.end as usize)
    }

    /// Takes bytes off the messages that they came by.
    fn leave(&mut self, mut bytes: u32) {
        while let Some(message) = self.messages.front_mut() {
            let part = bytes.min(*message);
            *message -= part;
            bytes -= part;
            if *message > 0 {
                return;
            }
            self.messages.pop_front();
            self.sequence = self.sequence.wrapping_add(1);
            if bytes == 0 {
                return;
            }
        }
    }
}
