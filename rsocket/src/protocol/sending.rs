//! What we may send: credits, the peer's memory, our requests and send buffer.

use crate::message::{ConnectData, MAP_BYTES, Message, Sge, VALUE_MAX, operation};

use super::{CONTROLS, Place, Sizes, TARGETS, Write};

/// Data are not sent in smaller parts than this because the send buffer is nearly full. Source: rdma-core `librdmacm/rsocket.c`,
/// `RS_SNDLOWAT`.
const LOW_WATER: u32 = 2048;

/// See the module. Sequence numbers wrap.
#[derive(Debug)]
pub(super) struct Sending {
    /// Messages with credits that were sent, and how many may be.
    sequence: u16,
    limit: u16,
    /// Requests that are free, of so many.
    requests: u16,
    requests_all: u16,
    controls: u16,
    /// Which control buffer is next.
    slot: usize,
    /// Bytes of the send buffer that are free, from `at` on.
    free: u32,
    ring_bytes: u32,
    at: u32,
    inline: u32,
    /// What the peer offered: of length 0 where it is used up.
    targets: [Sge; TARGETS],
    current: usize,
    awaited: usize,
}

impl Sending {
    pub(super) fn new(sizes: &Sizes, peer: &ConnectData) -> Self {
        let requests = sizes.sends.saturating_sub(CONTROLS);
        Self {
            sequence: 0,
            limit: peer.credits,
            requests,
            requests_all: requests,
            controls: CONTROLS,
            slot: 0,
            free: sizes.send_bytes,
            ring_bytes: sizes.send_bytes,
            at: 0,
            inline: sizes.inline,
            targets: [peer.buffer, Sge::default()],
            current: 0,
            awaited: 1,
        }
    }

    /// A request is free, and enough of the send buffer.
    fn has_room(&self) -> bool {
        self.requests > 0 && self.free >= LOW_WATER.min(self.ring_bytes.div_ceil(2))
    }

    fn has_credits(&self) -> bool {
        self.sequence != self.limit
    }

    pub(super) fn can_send(&self) -> bool {
        self.has_room() && self.has_credits() && self.targets[self.current].length > 0
    }

    pub(super) fn data(&mut self, bytes: usize) -> Option<Write> {
        if !self.can_send() || bytes == 0 {
            return None;
        }
        let target = &mut self.targets[self.current];
        let bytes = bytes.min(self.free.min(target.length).min(VALUE_MAX) as usize) as u32;
        let (address, rkey) = (target.address, target.key);
        target.address = address.wrapping_add(bytes.into());
        target.length -= bytes;
        if target.length == 0 {
            self.current = (self.current + 1) % TARGETS;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let message = Message::new(operation::DATA, bytes);
        Some(self.write(message, bytes, Some(message), (address, rkey)))
    }

    /// A write that tells nobody, and so needs no credits.
    pub(super) fn direct(&mut self, bytes: usize, address: u64, rkey: u32) -> Option<Write> {
        if !self.has_room() || bytes == 0 {
            return None;
        }
        let bytes = bytes.min(self.free.min(VALUE_MAX) as usize) as u32;
        Some(self.write(Message::new(operation::WRITE, bytes), bytes, None, (address, rkey)))
    }

    pub(super) fn map(&mut self, index: u16, address: u64, rkey: u32) -> Option<Write> {
        if !self.has_room() || !self.has_credits() || self.free < MAP_BYTES as u32 {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let message = Message::new(operation::MAP, index.into());
        Some(self.write(message, MAP_BYTES as u32, Some(message), (address, rkey)))
    }

    /// `bytes` are not more than is free.
    fn write(
        &mut self,
        id: Message,
        bytes: u32,
        message: Option<Message>,
        (address, rkey): (u64, u32),
    ) -> Write {
        self.requests -= 1;
        self.free -= bytes;
        let place = if bytes <= self.inline {
            Place::Inline
        } else {
            let first = bytes.min(self.ring_bytes - self.at);
            let ranges = [self.at..self.at + first, 0..bytes - first];
            self.at = (self.at + bytes) % self.ring_bytes;
            Place::Ring(ranges.map(|range| range.start as usize..range.end as usize))
        };
        Write { id: id.0.into(), bytes: bytes as usize, place, address, rkey, message }
    }

    /// A request for a control message, and the number of its buffer.
    pub(super) fn take_control(&mut self) -> Option<usize> {
        self.controls = self.controls.checked_sub(1)?;
        let slot = self.slot;
        self.slot = (slot + 1) % usize::from(CONTROLS);
        Some(slot)
    }

    pub(super) fn completed(&mut self, id: Message) {
        let bytes = match id.operation() {
            operation::CREDITS | operation::CONTROL => {
                self.controls += 1;
                return;
            }
            operation::MAP => MAP_BYTES as u32,
            _ => id.value(),
        };
        self.requests += 1;
        self.free += bytes;
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.controls == CONTROLS && self.requests == self.requests_all
    }

    pub(super) fn credits(&mut self, limit: u16) {
        self.limit = limit;
    }

    pub(super) fn awaited_target(&self) -> Option<usize> {
        (self.targets[self.awaited].length == 0).then_some(self.awaited)
    }

    pub(super) fn target(&mut self, entry: Sge) {
        if entry.length > 0 && self.targets[self.awaited].length == 0 {
            self.targets[self.awaited] = entry;
            self.awaited = (self.awaited + 1) % TARGETS;
        }
    }
}
