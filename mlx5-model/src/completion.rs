//! Completion queues: rings of entries that the device writes and software polls.
//!
//! An entry is written where there is room, its owner bit last. Room is what the doorbell record says was consumed, read
//! only when the device believes the ring full. A full ring is the end of the queue: an event tells, and nothing more is
//! written (unless the queue was made to ignore it).

mod arm;
mod compress;
mod unseen;

use std::collections::VecDeque;

use pollux_mlx5_abi::cqe::{Cqe64, CqeError, MiniFormat};
use pollux_mlx5_abi::doorbell::INDEX_24;
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;
use zerocopy::{FromZeros, IntoBytes};

use crate::device::bus::Bus;
use crate::device::ring::Ring;
use crate::device::table::Table;
use crate::device::visibility::Visibility;
use crate::event::Events;
use crate::fault;
use crate::ledger::Crossing;
pub(crate) use arm::Arm;
pub(crate) use compress::BLOCK_MAX;
use compress::Block;
use unseen::Unseen;

/// In the event of a failed queue: it ran over. Source: Linux `include/linux/mlx5/device.h`, `MLX5_EVENT_CQ_ERR_*` beside
/// `struct mlx5_eqe_cq_err`.
const OVERRUN: u8 = 1;
/// Its memory refused.
const ACCESS: u8 = 4;

/// The queue is dead: what reports to it fails too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dead;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) ring: Ring,
    pub(crate) log: u8,
    /// Bytes of an entry: 64 or 128.
    pub(crate) bytes: u64,
    pub(crate) record: u64,
    pub(crate) eqn: u32,
    pub(crate) uar: u32,
    pub(crate) ignore_overrun: bool,
    pub(crate) compress: Option<MiniFormat>,
    /// Entries say their pass, and arrays are entries.
    pub(crate) enhanced: bool,
    /// Event moderation: so many completions, or so many microseconds after the first.
    pub(crate) max_count: u16,
    pub(crate) period_us: u16,
    /// Each completion starts the time anew.
    pub(crate) restarts: bool,
    pub(crate) produced: u32,
    pub(crate) consumed: u32,
    pub(crate) arm: Arm,
    pub(crate) dead: bool,
    pub(crate) context: [u8; 64],
    block: Block,
    /// Consumed, as the record said when it was stored to last.
    given_back: u32,
    /// What of entries is not visible yet, where that is kept back until a barrier.
    unseen: Option<Unseen>,
    /// Held back by a fault: until which step, and what.
    held: VecDeque<(u64, Cqe64)>,
}

/// What a queue is made of.
pub(crate) struct Make {
    pub(crate) ring: Ring,
    pub(crate) log: u8,
    pub(crate) bytes: u64,
    pub(crate) record: u64,
    pub(crate) eqn: u32,
    pub(crate) uar: u32,
    pub(crate) ignore_overrun: bool,
    pub(crate) compress: Option<MiniFormat>,
    pub(crate) enhanced: bool,
    pub(crate) max_count: u16,
    pub(crate) period_us: u16,
    pub(crate) restarts: bool,
    pub(crate) context: [u8; 64],
}

impl Queue {
    pub(crate) fn new(make: Make) -> Self {
        let Make {
            ring,
            log,
            bytes,
            record,
            eqn,
            uar,
            ignore_overrun,
            compress,
            enhanced,
            max_count,
            period_us,
            restarts,
            context,
        } = make;
        Self {
            ring,
            log,
            bytes,
            record,
            eqn,
            uar,
            ignore_overrun,
            compress,
            enhanced,
            max_count,
            period_us,
            restarts,
            produced: 0,
            consumed: 0,
            arm: Arm::default(),
            dead: false,
            context,
            block: Block::default(),
            given_back: 0,
            unseen: None,
            held: VecDeque::new(),
        }
    }

    fn entries(&self) -> u32 {
        1 << self.log
    }

    /// Entries that software has not taken yet, those of the open block included. Of the index that software has consumed up to, the
    /// bits count that a full ring is told from an empty one by: some drivers keep no more than 16 of the 24. Source: DPDK
    /// `drivers/net/mlx5/mlx5_tx.h`, `cq_ci` of `struct mlx5_txq_data`, which goes into the record as it is.
    fn used(&self) -> u32 {
        self.produced.wrapping_add(self.block.count()).wrapping_sub(self.consumed) & (2 * self.entries() - 1)
    }

    /// Whether one more fits; looks at the doorbell record only when it seems not to.
    fn has_room(&mut self, bus: &Bus<'_>) -> Result<bool, Dead> {
        if self.used() < self.entries() || self.ignore_overrun {
            return Ok(true);
        }
        self.consumed = bus.record(self.record).map_err(|_| Dead)? & INDEX_24;
        Ok(self.used() < self.entries())
    }

    /// The next entry that a fault held back long enough.
    fn let_go(&mut self, step: u64) -> Option<Cqe64> {
        let (due, _) = self.held.front()?;
        if *due > step {
            return None;
        }
        self.held.pop_front().map(|(_, entry)| entry)
    }

    /// Goes on in another ring, and says so in the old one. False where what software has not taken has no room in one of them.
    pub(crate) fn resize(&mut self, bus: &Bus<'_>, ring: Ring, log: u8) -> bool {
        self.see_all(bus);
        if self.close(bus).is_err() || self.dead || self.has_room(bus) != Ok(true) {
            return false;
        }
        if self.used() + 1 > 1 << log {
            return false;
        }
        let mut entry = Cqe64::new_zeroed();
        entry.op_own = completion::RESIZE_CQ << 4;
        if self.write(bus, &mut entry).is_err() {
            return false;
        }
        self.see_all(bus);
        (self.ring, self.log) = (ring, log);
        self.block.forget_title();
        true
    }

    fn slot(&self, index: u32) -> u64 {
        u64::from(index & (self.entries() - 1)) * self.bytes + (self.bytes - 64)
    }

    fn owner(&self, index: u32) -> u8 {
        (index >> self.log & 1) as u8
    }

    /// Writes one entry at the next index.
    fn write(&mut self, bus: &Bus<'_>, entry: &mut Cqe64) -> Result<(), Dead> {
        entry.op_own = entry.op_own & !1 | self.owner(self.produced);
        if self.enhanced {
            entry.signature = (self.produced >> self.log) as u8;
        }
        let (at, _) = self.ring.place(self.slot(self.produced)).map_err(|_| Dead)?;
        match &mut self.unseen {
            None => bus.publish(Crossing::Completion, at, entry.as_bytes()),
            Some(unseen) => unseen.publish(bus, at, entry),
        }
        .map_err(|_| Dead)?;
        self.produced = self.produced.wrapping_add(1);
        Ok(())
    }
}

/// All completion queues.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) queues: Table<Queue>,
    /// Queues that ran over.
    pub(crate) overruns: u64,
    /// Queues with an open block, a held entry or a running timer, to be looked at when a step ends.
    open: Vec<u32>,
    /// When entries become visible.
    visibility: Visibility,
}

impl Completions {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            queues: Table::new(0x400, limit),
            overruns: 0,
            open: Vec::new(),
            visibility: Visibility::AtOnce,
        }
    }

    /// Writes a completion to queue `cqn`. `solicited` asks for an event even of those who wait for solicited ones only.
    pub(crate) fn push(
        &mut self,
        bus: &mut Bus<'_>,
        events: &mut Events,
        cqn: u32,
        entry: &Cqe64,
        solicited: bool,
    ) -> Result<(), Dead> {
        let queue = self.queues.get_mut(cqn).ok_or(Dead)?;
        if queue.dead {
            return Err(Dead);
        }
        let mut odd;
        let entry = match bus.faults.odd_completion() {
            None => entry,
            Some(opcode) => {
                odd = *entry;
                odd.op_own = opcode << 4 | entry.op_own & 0xf;
                &odd
            }
        };
        match bus.faults.completion() {
            fault::Completion::Lost => return Ok(()),
            fault::Completion::Late(steps) => {
                queue.held.push_back((bus.step + u64::from(steps), *entry));
                note(&mut self.open, cqn);
                return Ok(());
            }
            fault::Completion::Written if !queue.held.is_empty() => {
                queue.held.push_back((bus.step, *entry));
                return Ok(());
            }
            fault::Completion::Written => {}
        }
        self.place(bus, events, cqn, entry, solicited)
    }

    fn place(
        &mut self,
        bus: &Bus<'_>,
        events: &mut Events,
        cqn: u32,
        entry: &Cqe64,
        solicited: bool,
    ) -> Result<(), Dead> {
        let queue = self.queues.get_mut(cqn).ok_or(Dead)?;
        let solicited =
            solicited || matches!(entry.opcode(), completion::REQUESTER_ERROR | completion::RESPONDER_ERROR);
        let outcome = match queue.has_room(bus) {
            Ok(true) => {
                if let Some(seen) = bus.fast_path {
                    seen.completion(cqn, entry.as_bytes());
                }
                queue.append(bus, entry)
            }
            Ok(false) => {
                // What is in the open block had room and is written all the same.
                let _ = queue.close(bus);
                queue.dead = true;
                self.overruns += 1;
                events.completion_error(bus, cqn, OVERRUN);
                return Err(Dead);
            }
            Err(Dead) => Err(Dead),
        };
        if outcome.is_err() {
            queue.dead = true;
            events.completion_error(bus, cqn, ACCESS);
            return Err(Dead);
        }
        let waits = queue.block.count() > 0 || queue.note_completion(bus, events, cqn, solicited);
        if waits {
            note(&mut self.open, cqn);
        }
        Ok(())
    }

    /// Writes an error completion: of a sender with the opcode of the work, of a receiver with none.
    #[expect(clippy::too_many_arguments, reason = "what an error completion says")]
    pub(crate) fn push_error(
        &mut self,
        bus: &mut Bus<'_>,
        events: &mut Events,
        cqn: u32,
        opcode: u8,
        number: u32,
        work: u8,
        user_index: u32,
        counter: u16,
        syndrome: Syndrome,
    ) -> Result<(), Dead> {
        let mut error = CqeError {
            reserved0: [0; 32],
            srqn: user_index.into(),
            reserved1: [0; 16],
            hw_err_synd: 0,
            hw_synd_type: 0,
            vendor_err_synd: syndrome.vendor,
            syndrome: syndrome.code,
            s_wqe_opcode_qpn: (u32::from(work) << 24 | number & 0xff_ffff).into(),
            wqe_counter: counter.into(),
            signature: 0,
            op_own: opcode << 4,
        };
        let entry: Cqe64 =
            zerocopy::transmute!(std::mem::replace(&mut error, zerocopy::FromZeros::new_zeroed()));
        self.push(bus, events, cqn, &entry, true)
    }

    /// A work queue is reset: what a fault holds back of it never comes, as silicon completes nothing of a queue past that.
    pub(crate) fn forget_held(&mut self, cqn: u32, is_its: impl Fn(&Cqe64) -> bool) {
        if let Some(queue) = self.queues.get_mut(cqn) {
            queue.held.retain(|(_, entry)| !is_its(entry));
            queue.block.forget_title();
        }
    }

    /// A step ends: open blocks are written, timers looked at, held entries let go.
    pub(crate) fn settle(&mut self, bus: &mut Bus<'_>, events: &mut Events) {
        if self.open.is_empty() {
            return;
        }
        for cqn in std::mem::take(&mut self.open) {
            while let Some(entry) = self.queues.get_mut(cqn).and_then(|queue| queue.let_go(bus.step)) {
                let _ = self.place(bus, events, cqn, &entry, false);
            }
            let Some(queue) = self.queues.get_mut(cqn) else { continue };
            if queue.block.count() > 0 {
                let written = queue.close(bus);
                if written.is_err() {
                    queue.dead = true;
                    events.completion_error(bus, cqn, ACCESS);
                    continue;
                }
                queue.note_completion(bus, events, cqn, false);
            }
            if queue.time_is_up(bus, events, cqn) || !queue.held.is_empty() {
                note(&mut self.open, cqn);
            }
        }
    }
}

fn note(open: &mut Vec<u32>, cqn: u32) {
    if !open.contains(&cqn) {
        open.push(cqn);
    }
}
