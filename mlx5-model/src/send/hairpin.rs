//! Send queues that send what a receive queue was given.

use super::{Around, Queue};
use crate::device::state::State;
use crate::port::Origin;

impl Queue {
    /// Whether it sends what receive queue `number` was given.
    pub(crate) fn sends_for(&self, number: u32) -> bool {
        self.state == State::Ready && self.hairpin.is_some_and(|egress| egress.peer == Some(number))
    }

    /// Sends a packet. False when the wire takes no more, or the queue's rate lets none out now.
    pub(crate) fn forward(&self, around: &mut Around<'_, '_>, packet: &[u8]) -> bool {
        if !around.port.is_ready() {
            return false;
        }
        // What came in may be longer than what goes out: steering changed it, or software the MTU.
        if packet.len() > around.port.frame_bytes_max() {
            around.port.lose_too_long(packet.len());
            return true;
        }
        around.transmit(self, packet, Origin::Packet(packet.len()))
    }
}
