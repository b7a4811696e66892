//! Who waits for an event of a completion queue, and when it comes.

use pollux_mlx5_abi::doorbell::{ArmWord, INDEX_24};
use pollux_mlx5_abi::eqe;
use pollux_mlx5_abi::eqe::event;
use zerocopy::IntoBytes;

use super::Queue;
use crate::device::bus::Bus;
use crate::event::Events;

/// What software waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wants {
    /// Nothing: never armed, or the event was sent.
    #[default]
    Nothing,
    /// A solicited completion, or an error.
    Solicited,
    /// Any completion.
    Next,
}

/// The state of arming and moderation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arm {
    wants: Wants,
    sequence: u8,
    /// The word by which it was armed last.
    word: u32,
    /// The sequence number of the arm that the last event answered.
    answered: Option<u8>,
    /// Completions that an event would be for.
    pending: u16,
    /// When the event goes out however few they are.
    deadline: Option<u64>,
}

impl Arm {
    /// The state in a context: one of `cq::state`, or 0.
    pub(crate) fn state(&self) -> u32 {
        use pollux_mlx5_abi::command::cq::state;
        match self.wants {
            Wants::Solicited => state::SOLICITED_NOTIFICATION_REQUEST_ARMED,
            Wants::Next => state::NOTIFICATION_REQUEST_ARMED,
            Wants::Nothing if self.answered.is_some() => state::FIRED,
            Wants::Nothing => 0,
        }
    }
}

impl Queue {
    /// What its record says now arms nothing: nobody has rung for it.
    pub(crate) fn begin_unarmed(&mut self, bus: &Bus<'_>) {
        self.arm.word = bus.host.load32(self.record + 4).unwrap_or_default();
    }

    /// Software rang the arm register with `word`, which its record must repeat.
    pub(crate) fn arm(&mut self, bus: &Bus<'_>, events: &mut Events, cqn: u32, word: u32) -> bool {
        let Ok(record) = bus.record(self.record + 4) else { return false };
        if record != word {
            return false;
        }
        self.arm.word = word;
        let word = ArmWord::of(word);
        if self.arm.answered == Some(word.sequence) {
            // A repetition: the event for it was sent already.
            return true;
        }
        let missed = self.produced & INDEX_24 != word.consumer;
        self.arm.wants = if word.solicited_only { Wants::Solicited } else { Wants::Next };
        self.arm.sequence = word.sequence;
        self.arm.pending = 0;
        self.arm.deadline = None;
        // What came since software looked makes the event at once; a solicited one may have been among it.
        if missed {
            self.fire(bus, events, cqn);
        }
        true
    }

    /// Its store to the arm register may have been missed: its record tells the same.
    pub(crate) fn catch_up_arm(&mut self, bus: &Bus<'_>, events: &mut Events, cqn: u32) {
        if let Ok(word) = bus.host.load32(self.record + 4)
            && word != self.arm.word
        {
            self.arm(bus, events, cqn, word);
        }
    }

    /// A completion was written: sends the event if it is due. True while a timer runs.
    pub(super) fn note_completion(
        &mut self,
        bus: &Bus<'_>,
        events: &mut Events,
        cqn: u32,
        solicited: bool,
    ) -> bool {
        match self.arm.wants {
            Wants::Nothing => return false,
            Wants::Solicited if !solicited => return false,
            Wants::Solicited | Wants::Next => {}
        }
        self.arm.pending = self.arm.pending.saturating_add(1);
        let enough = self.max_count.max(1);
        if self.arm.pending >= enough && (self.max_count > 0 || self.period_us == 0) {
            self.fire(bus, events, cqn);
            return false;
        }
        if (self.arm.deadline.is_none() || self.restarts) && self.period_us > 0 {
            self.arm.deadline = Some(bus.now + u64::from(self.period_us) * crate::time::TICKS_PER_US);
        }
        self.arm.deadline.is_some()
    }

    /// Sends the event whose time has come. True while a timer still runs.
    pub(super) fn time_is_up(&mut self, bus: &Bus<'_>, events: &mut Events, cqn: u32) -> bool {
        match self.arm.deadline {
            None => false,
            Some(deadline) if bus.now < deadline => true,
            Some(_) => {
                self.fire(bus, events, cqn);
                false
            }
        }
    }

    fn fire(&mut self, bus: &Bus<'_>, events: &mut Events, cqn: u32) {
        let Arm { sequence, word, .. } = self.arm;
        self.arm = Arm { answered: Some(sequence), sequence, word, ..Arm::default() };
        let mut data = eqe::Completion::default();
        data.cqn.set(cqn);
        events.post(bus, self.eqn, event::COMP, 0, data.as_bytes());
    }
}
