//! One send queue: its ring, its state, its doorbell, its completions.

use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::eqe::{event, queue_kind};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{self, BLOCK_BYTES, Completion, Control, SEGMENT_BYTES};
use zerocopy::{FromBytes, FromZeros};

use super::entry::{Failure, Outcome};
use super::{Around, BATCH_BLOCKS, Scratch, entry};
use crate::device::blue_flame::CameAlong;
use crate::device::ring::Ring;
use crate::device::state::State;
use crate::device::violation::Violation;
use crate::ledger::Crossing;

/// What a queue is made of.
pub(crate) struct Make {
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
    pub(crate) domain: u32,
    pub(crate) tis: u32,
    pub(crate) uar: u32,
    pub(crate) ring: Ring,
    pub(crate) log_blocks: u8,
    pub(crate) record: u64,
    /// Headers that must be inline: one of `min_inline`.
    pub(crate) min_inline: u32,
    /// Many frames in one entry are allowed.
    pub(crate) multi: bool,
    /// What is posted in the error state makes completions.
    pub(crate) flush: bool,
    pub(crate) context: [u8; 240],
}

/// A send queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) number: u32,
    pub(crate) state: State,
    pub(crate) cqn: u32,
    user_index: u32,
    pub(crate) domain: u32,
    pub(crate) tis: u32,
    pub(crate) uar: u32,
    ring: Ring,
    log_blocks: u8,
    record: u64,
    pub(crate) min_inline: u32,
    pub(crate) multi: bool,
    flush: bool,
    pub(crate) context: [u8; 240],
    /// Block of the next entry, and the one after the last posted; they run on past the ring's end.
    pub(crate) next: u16,
    pub(crate) posted: u16,
    /// The next entry was begun and waits for the wire: so many of its frames are out.
    begun: Option<usize>,
    /// An error was reported since the queue became ready.
    failed: bool,
    /// Nothing can be reported any more.
    dead: bool,
    /// An entry that came with the doorbell; its copy in memory is not looked at.
    came_along: Option<CameAlong>,
}

impl Queue {
    pub(crate) fn new(make: Make) -> Self {
        let Make {
            cqn,
            user_index,
            domain,
            tis,
            uar,
            ring,
            log_blocks,
            record,
            min_inline,
            multi,
            flush,
            context,
        } = make;
        Self {
            number: 0,
            state: State::Reset,
            cqn,
            user_index,
            domain,
            tis,
            uar,
            ring,
            log_blocks,
            record,
            min_inline,
            multi,
            flush,
            context,
            next: 0,
            posted: 0,
            begun: None,
            failed: false,
            dead: false,
            came_along: None,
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.next != self.posted && self.state != State::Reset
    }

    /// To a new state; RESET forgets all that was posted.
    pub(crate) fn become_state(&mut self, state: State) {
        if state == State::Reset {
            (self.next, self.posted, self.begun) = (0, 0, None);
        }
        if state == State::Ready {
            (self.failed, self.dead) = (false, false);
        }
        self.came_along = None;
        self.state = state;
    }

    fn offset(&self, block: u16) -> u64 {
        u64::from(block & ((1_u32 << self.log_blocks) - 1) as u16) * BLOCK_BYTES as u64
    }

    /// A doorbell: `value` must be the head of the last entry posted, and the record must have been written before. With
    /// `exact` it was rung just now, so the record says the very same; without, software may be further already. `bytes` is all
    /// that was stored: with BlueFlame, the entry itself.
    pub(crate) fn doorbell(
        &mut self,
        around: &mut Around<'_, '_>,
        value: [u8; 8],
        exact: bool,
        strict: bool,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        if self.state == State::Reset {
            return Err(Violation::NotReady { queue: self.number });
        }
        let record =
            around.bus.record(self.record).map_err(|_| Violation::Record { queue: self.number })? as u16;
        let mut control = Control::new_zeroed();
        control.opmod_idx_opcode =
            zerocopy::byteorder::big_endian::U32::from_bytes([value[0], value[1], value[2], value[3]]);
        control.qpn_ds =
            zerocopy::byteorder::big_endian::U32::from_bytes([value[4], value[5], value[6], value[7]]);
        if !strict {
            self.posted = self.checked_post(record)?;
            self.came_along = CameAlong::of(&control, bytes);
            return Ok(());
        }
        let end = control.index().wrapping_add(wqe::blocks(control.segments().into()) as u16);
        let all = 1_u16 << self.log_blocks;
        let room = all - self.posted.wrapping_sub(self.next).min(all);
        // An old register value, seen late: its entry was carried out with those behind it.
        if !exact && !(1..=room).contains(&end.wrapping_sub(self.posted)) {
            return Ok(());
        }
        let mut head = [0; 8];
        self.ring
            .place(self.offset(control.index()))
            .and_then(|(at, _)| around.bus.host.read(at, &mut head))
            .map_err(|_| Violation::Record { queue: self.number })?;
        if head != value {
            return Err(Violation::Head { queue: self.number, rung: value, posted: head });
        }
        let ahead = record.wrapping_sub(end);
        if ahead > all || exact && ahead != 0 {
            return Err(Violation::RecordValue { queue: self.number, record, expected: end });
        }
        self.posted = self.checked_post(end)?;
        self.came_along = CameAlong::of(&control, bytes);
        Ok(())
    }

    /// No more can be posted than the ring holds.
    fn checked_post(&self, end: u16) -> Result<u16, Violation> {
        let count = end.wrapping_sub(self.next);
        if u32::from(count) > 1 << self.log_blocks {
            return Err(Violation::TooMuch { queue: self.number, posted: count });
        }
        Ok(end)
    }

    /// Carries out what is posted, some `budget` frames of it.
    pub(super) fn run(&mut self, around: &mut Around<'_, '_>, scratch: &mut Scratch, budget: usize) -> usize {
        let mut done = 0;
        while self.has_work() && done < budget {
            if self.state == State::Error && (!self.flush || self.dead) {
                self.next = self.posted;
                break;
            }
            let blocks = usize::from(self.posted.wrapping_sub(self.next)).min(BATCH_BLOCKS);
            let mut work = std::mem::take(&mut scratch.work);
            let batch = &mut work[..blocks * BLOCK_BYTES];
            let read = self.read_blocks(around, batch);
            self.put_in(batch);
            let outcome = match read {
                Ok(()) => self.run_batch(around, scratch, batch, &mut done, budget),
                Err(()) => {
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
        let first = self.next;
        let mut fetched = 0;
        let mut goes_on = true;
        while self.has_work() && *done < budget {
            let at = usize::from(self.next.wrapping_sub(first)) * BLOCK_BYTES;
            let Some(rest) = batch.get(at..).filter(|rest| !rest.is_empty()) else { break };
            let Ok((control, _)) = Control::ref_from_prefix(rest) else { break };
            let blocks = wqe::blocks(control.segments().into()).max(1);
            let posted = usize::from(self.posted.wrapping_sub(self.next));
            if self.state == State::Error {
                if !self.flush || self.dead {
                    break;
                }
                self.flush_one(around, control, blocks.min(posted) as u16);
                *done += 1;
                continue;
            }
            if blocks > posted || control.index() != self.next || control.qpn() != self.number {
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
            if self.begun.is_none() && self.came_along.as_ref().is_none_or(|came| came.index != self.next) {
                fetched += bytes.len();
            }
            if self.begun.is_none()
                && let Some(syndrome) = around.bus.faults.send_entry()
            {
                self.fail(around, control.opcode(), Failure(syndrome));
                *done += 1;
                continue;
            }
            match entry::carry_out(self, around, scratch, control, bytes, self.begun.unwrap_or(0)) {
                Outcome::Done(frames) => {
                    *done += frames.max(1);
                    self.begun = None;
                    self.came_along.take_if(|came| came.index == self.next);
                    self.complete(around, control);
                    self.next = self.next.wrapping_add(blocks as u16);
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

    fn read_blocks(&self, around: &Around<'_, '_>, into: &mut [u8]) -> Result<(), ()> {
        let ring_bytes = (BLOCK_BYTES as u64) << self.log_blocks;
        let mut at = self.offset(self.next);
        let mut rest = into;
        while !rest.is_empty() {
            let (address, run) = self.ring.place(at).map_err(|_| ())?;
            let (piece, after) = rest.split_at_mut(run.min(rest.len() as u64) as usize);
            around.bus.host.read(address, piece).map_err(|_| ())?;
            at = (at + piece.len() as u64) % ring_bytes;
            rest = after;
        }
        Ok(())
    }

    /// Puts the entry that came with the doorbell in the place of its copy, where it is among those read.
    fn put_in(&self, batch: &mut [u8]) {
        let Some(came) = &self.came_along else { return };
        let at = usize::from(came.index.wrapping_sub(self.next)) * BLOCK_BYTES;
        if let Some(place) = batch.get_mut(at..) {
            let bytes = place.len().min(came.bytes().len());
            place[..bytes].copy_from_slice(&came.bytes()[..bytes]);
        }
    }

    fn complete(&mut self, around: &mut Around<'_, '_>, control: &Control) {
        let event = match control.completion() {
            Completion::Always => false,
            Completion::AlwaysAndEvent => true,
            Completion::OnError | Completion::OnFirstError => return,
        };
        let mut entry = Cqe64::new_zeroed();
        entry.srqn_uidx.set(self.user_index);
        entry.timestamp.set(around.bus.now);
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
        let counter = self.next;
        let Syndrome { code, vendor } = failure.0;
        tracing::info!(target: "model.send", queue = self.number, entry = counter, opcode, code, vendor, "failed");
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
        // The failed entry has its completion; only those behind it are flushed.
        let mut head = [0; 8];
        let read =
            self.ring.place(self.offset(self.next)).and_then(|(at, _)| around.bus.host.read(at, &mut head));
        let segments = if read.is_ok() { usize::from(head[7] & 0x3f) } else { 1 };
        let posted = usize::from(self.posted.wrapping_sub(self.next));
        self.next = self.next.wrapping_add(wqe::blocks(segments).max(1).min(posted) as u16);
    }

    fn flush_one(&mut self, around: &mut Around<'_, '_>, control: &Control, blocks: u16) {
        let counter = self.next;
        self.next = self.next.wrapping_add(blocks.max(1));
        if control.completion() == Completion::OnFirstError && self.failed {
            return;
        }
        self.failed = true;
        let syndrome = Syndrome { code: Syndrome::WR_FLUSH_ERR, vendor: Failure::FLUSHED };
        let pushed = around.completions.push_error(
            around.bus,
            around.events,
            self.cqn,
            completion::REQUESTER_ERROR,
            self.number,
            control.opcode(),
            self.user_index,
            counter,
            syndrome,
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
        self.next = self.posted;
    }
}
