//! The work of a send queue: what is posted, entry by entry, its completions and its errors.

use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::eqe::{event, queue_kind};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{self, BLOCK_BYTES, Completion, Control, SEGMENT_BYTES};
use zerocopy::{FromBytes, FromZeros};

use super::entry::Outcome;
use super::queue::Queue;
use super::{Around, BATCH_BLOCKS, Scratch, entry, reserved};
use crate::device::state::State;
use crate::device::violation::Violation;
use crate::failure::Failure;
use crate::ledger::Crossing;
use crate::memory::Unreachable;

impl Queue {
    /// Carries out what is posted, some `budget` frames of it.
    pub(super) fn run(&mut self, around: &mut Around<'_, '_>, scratch: &mut Scratch, budget: usize) -> usize {
        let mut done = 0;
        while self.has_work() && done < budget {
            if self.state == State::Error && (!self.flush || self.dead) {
                self.ring.skip();
                break;
            }
            if self.state == State::Ready && !self.pace.lets_out(around.bus.now) {
                break;
            }
            let blocks = usize::from(self.ring.left()).min(BATCH_BLOCKS);
            let mut work = std::mem::take(&mut scratch.work);
            let batch = &mut work[..blocks * BLOCK_BYTES];
            let read = self.ring.read(around.bus, batch);
            let outcome = match read {
                Ok(()) => self.run_batch(around, scratch, batch, &mut done, budget),
                Err(Unreachable) => {
                    self.fail(around, send::NOP, Failure::ACCESS);
                    false
                }
            };
            scratch.work = work;
            if !outcome {
                break;
            }
        }
        done
    }

    /// Entries of a batch, as many as are whole in it. False when the wire takes no more.
    fn run_batch(
        &mut self,
        around: &mut Around<'_, '_>,
        scratch: &mut Scratch,
        batch: &[u8],
        done: &mut usize,
        budget: usize,
    ) -> bool {
        let first = self.ring.next();
        let mut fetched = 0;
        let mut goes_on = true;
        while self.has_work() && *done < budget {
            let at = usize::from(self.ring.next().wrapping_sub(first)) * BLOCK_BYTES;
            let Some(rest) = batch.get(at..).filter(|rest| !rest.is_empty()) else { break };
            let Ok((control, _)) = Control::ref_from_prefix(rest) else { break };
            let blocks = wqe::blocks(control.segments().into()).max(1);
            let posted = usize::from(self.ring.left());
            if self.state == State::Error {
                if !self.flush || self.dead {
                    break;
                }
                self.flush_one(around, control, blocks.min(posted) as u16);
                *done += 1;
                continue;
            }
            if blocks > posted || control.index() != self.ring.next() || control.qpn() != self.number {
                self.fail(around, control.opcode(), Failure::ENTRY);
                *done += 1;
                continue;
            }
            let Some(bytes) = rest.get(..usize::from(control.segments()) * SEGMENT_BYTES) else {
                // Cut off by the end of the batch: it begins the next one.
                if at == 0 {
                    self.fail(around, control.opcode(), Failure::ENTRY);
                }
                break;
            };
            if self.begun.is_none() && self.ring.next_came_along().is_none() {
                fetched += blocks * BLOCK_BYTES;
            }
            if self.begun.is_none()
                && let Some(syndrome) = around.bus.faults.send_entry()
            {
                self.fail(around, control.opcode(), Failure(syndrome));
                *done += 1;
                continue;
            }
            if self.begun.is_none()
                && let Some(byte) = reserved::in_entry(control, bytes)
            {
                around.bus.note(Violation::Reserved { queue: self.number, byte });
            }
            match entry::carry_out(self, around, scratch, control, bytes, self.begun.unwrap_or(0)) {
                Outcome::Done(frames) => {
                    *done += frames.max(1);
                    self.begun = None;
                    if let Some(seen) = around.bus.fast_path {
                        seen.entry(self.number, control.index(), bytes);
                    }
                    self.ring.advance(blocks as u16);
                    self.complete(around, control);
                }
                Outcome::Busy(sent) => {
                    self.begun = Some(sent);
                    goes_on = false;
                    break;
                }
                Outcome::Failed(failure) => {
                    *done += 1;
                    self.fail(around, control.opcode(), failure);
                }
            }
        }
        around.bus.ledger.add(Crossing::SendEntry, fetched);
        goes_on
    }

    fn complete(&mut self, around: &mut Around<'_, '_>, control: &Control) {
        let event = match control.completion() {
            Completion::Always => false,
            Completion::AlwaysAndEvent => true,
            Completion::OnError | Completion::OnFirstError => return,
        };
        let mut entry = Cqe64::new_zeroed();
        entry.srqn_uidx.set(self.user_index);
        entry.timestamp.set(around.bus.stamp());
        entry.sop_drop_qpn.set(u32::from(control.opcode()) << 24 | self.number);
        entry.wqe_counter.set(control.index());
        entry.op_own = completion::REQUESTER << 4 | u8::from(event) << 1;
        if around.completions.push(around.bus, around.events, self.cqn, &entry, event).is_err() {
            self.die(around);
        }
    }

    /// The next entry fails: its error is reported and the queue is in error.
    fn fail(&mut self, around: &mut Around<'_, '_>, opcode: u8, failure: Failure) {
        self.state = State::Error;
        self.failed = true;
        self.begun = None;
        let counter = self.ring.next();
        let Syndrome { code, vendor } = failure.0;
        tracing::info!(target: "model.send", queue = self.number, entry = counter, opcode, code, vendor, "failed");
        self.report(around, opcode, counter, failure);
        // The failed entry has its completion; only those behind it are flushed.
        let head = self.ring.head(around.bus, counter);
        let segments = head.map_or(1, |head| usize::from(head[7] & 0x3f));
        let posted = usize::from(self.ring.left());
        self.ring.advance(wqe::blocks(segments).max(1).min(posted) as u16);
    }

    fn flush_one(&mut self, around: &mut Around<'_, '_>, control: &Control, blocks: u16) {
        let counter = self.ring.next();
        self.ring.advance(blocks.max(1));
        if control.completion() == Completion::OnFirstError && self.failed {
            return;
        }
        self.failed = true;
        self.report(around, control.opcode(), counter, Failure::FLUSHED);
    }

    /// Completes an entry in error.
    fn report(&mut self, around: &mut Around<'_, '_>, opcode: u8, counter: u16, failure: Failure) {
        let pushed = around.completions.push_error(
            around.bus,
            around.events,
            self.cqn,
            completion::REQUESTER_ERROR,
            self.number,
            opcode,
            self.user_index,
            counter,
            failure.0,
        );
        if pushed.is_err() {
            self.die(around);
        }
    }

    /// A doorbell broke the rules: the entry in turn fails.
    pub(crate) fn break_down(&mut self, around: &mut Around<'_, '_>) {
        if self.state == State::Ready {
            self.fail(around, send::NOP, Failure::DOORBELL);
            around.events.queue_error(around.bus, event::WQ_INVAL_REQ_ERROR, queue_kind::SQ, self.number);
        }
    }

    /// Nothing can be reported any more.
    fn die(&mut self, around: &mut Around<'_, '_>) {
        if !self.dead {
            around.events.queue_error(around.bus, event::WQ_CATAS_ERROR, queue_kind::SQ, self.number);
        }
        self.dead = true;
        self.state = State::Error;
        self.ring.skip();
    }
}
