//! Receive queues whose packets a send queue sends.

use super::{Receivers, Taken};
use crate::device::state::State;
use crate::send::{self, Senders};

impl Receivers {
    /// Whether packets of a queue go to a send queue.
    pub(crate) fn is_hairpin(&self, number: u32) -> bool {
        self.queues.get(number).is_some_and(|queue| queue.hairpin.is_some())
    }

    /// Whether packets wait to be sent.
    pub(crate) fn has_forwards(&self) -> bool {
        !self.forwarding.is_empty()
    }

    /// Hands a packet to a hairpin queue.
    pub(super) fn hold(&mut self, number: u32, packet: &[u8]) -> Taken {
        let queue = self.queues.get_mut(number).filter(|queue| queue.state == State::Ready);
        let Some(buffer) = queue.and_then(|queue| queue.hairpin.as_deref_mut()) else { return Taken::No };
        if !buffer.take(packet) {
            self.hairpin_drops += 1;
            self.out_of_buffer(number);
        } else if !self.forwarding.contains(&number) {
            self.forwarding.push_back(number);
        }
        Taken::Yes
    }

    /// Sends what waits, some `budget` packets of it; returns how many were sent.
    pub(crate) fn forward(
        &mut self,
        senders: &Senders,
        around: &mut send::Around<'_, '_>,
        budget: usize,
    ) -> usize {
        let mut done = 0;
        for _ in 0..self.forwarding.len() {
            let Some(number) = self.forwarding.pop_front() else { break };
            if done >= budget {
                self.forwarding.push_front(number);
                break;
            }
            let queue = self.queues.get_mut(number);
            let Some(buffer) = queue.and_then(|queue| queue.hairpin.as_deref_mut()) else { continue };
            let sender = buffer.peer.and_then(|peer| senders.queues.get(peer));
            if let Some(sender) = sender.filter(|sender| sender.sends_for(number)) {
                while done < budget && buffer.first(&mut self.packet) && sender.forward(around, &self.packet)
                {
                    buffer.sent();
                    done += 1;
                }
            }
            if !buffer.is_empty() {
                self.forwarding.push_back(number);
            }
        }
        done
    }
}
