//! What becomes of entries that are posted to a queue pair in error.

use pollux_mlx5_abi::eqe::{event, queue_kind};

use super::qp::{Qp, Source};
use super::state::{Service, State};
use super::{Around, work};
use crate::failure::Failure;
use crate::receive::Entry;

impl Qp {
    /// Flushes what is posted: the sending side, and in the error state the receiving side too. Returns how many entries.
    pub(crate) fn flush(&mut self, around: &mut Around<'_, '_>, budget: usize) -> usize {
        let mut count = 0;
        while count < budget && !self.dead {
            if let Some((opcode, index)) = self.requester.take_unfinished() {
                self.report_send(around, opcode, index, Failure::FLUSHED);
            } else if self.has_posted() {
                let Some(ring) = &self.send else { break };
                let (request, blocks) = work::next(self, ring, around.bus);
                if let Some(ring) = &mut self.send {
                    ring.advance(blocks);
                }
                self.report_send(around, request.opcode, request.index, Failure::FLUSHED);
            } else {
                break;
            }
            count += 1;
        }
        if self.state != State::Error {
            return count;
        }
        let name = self.user_index.or(self.pool()).unwrap_or(0);
        if let Some(entry) = self.responder.take_held()
            && !self.dead
        {
            self.report_receive(around, self.cqn_receive, name, entry.index, Failure::FLUSHED.0);
            count += 1;
        }
        if !self.told_last && self.pool().is_some() && self.service != Service::Xrc {
            around.events.queue_error(around.bus, event::SRQ_LAST_WQE, queue_kind::QP, self.number);
        }
        self.told_last = true;
        let Source::Own(ring) = &mut self.source else { return count };
        if !matches!(ring.left(around.bus), Ok(1..)) {
            return count;
        }
        let mut entry = Box::<Entry>::default();
        while count < budget && !self.dead {
            let Source::Own(ring) = &mut self.source else { break };
            if ring.take(around.bus, &mut entry) != Ok(true) {
                break;
            }
            self.report_receive(around, self.cqn_receive, name, entry.index, Failure::FLUSHED.0);
            count += 1;
        }
        count
    }
}
