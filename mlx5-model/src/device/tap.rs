//! What the network of a kernel over the device sees of the wire: packets of ARP and neighbour discovery, both ways. As an interface
//! on a card it gets what no rule takes, and copies of what rules take that only look on.

use std::collections::VecDeque;

use crate::port::{Origin, Port};

/// Most frames that wait, each way; what is beyond is lost, as on a wire.
const WAITING_MAX: usize = 64;

/// Types of frames and messages. Source: IEEE 802 numbers (RFC 826; RFC 8200), RFC 4861, section 4.
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ICMPV6: u8 = 58;
const DISCOVERY: std::ops::RangeInclusive<u8> = 135..=136;

/// The frames on their way.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    /// Whether anybody listens.
    pub(crate) listens: bool,
    heard: Vec<Vec<u8>>,
    to_send: VecDeque<Vec<u8>>,
}

impl Tap {
    /// A frame came to the kernel's interface. False where that has no use for it.
    #[inline]
    pub(crate) fn see(&mut self, frame: &[u8]) -> bool {
        let is_wanted = match frame.get(12..14) {
            Some(kind) if kind == ARP => true,
            Some(kind) if kind == IPV6 => {
                frame.get(20) == Some(&ICMPV6) && frame.get(54).is_some_and(|kind| DISCOVERY.contains(kind))
            }
            _ => false,
        };
        let has = is_wanted && self.listens;
        if has && self.heard.len() < WAITING_MAX {
            self.heard.push(frame.to_vec());
        }
        has
    }

    /// What was heard since last time.
    #[inline]
    pub(crate) fn take_heard(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.heard)
    }

    /// A frame to be sent with the next step.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        if self.to_send.len() < WAITING_MAX {
            self.to_send.push_back(frame.to_vec());
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Sends what waits; true when there was something.
    #[inline]
    pub(crate) fn settle(&mut self, port: &mut Port) -> bool {
        let mut some = false;
        while let Some(frame) = self.to_send.front() {
            if !port.send(frame, Origin::Other) {
                break;
            }
            self.to_send.pop_front();
            some = true;
        }
        some
    }
}
