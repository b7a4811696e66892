//! One send queue: what it is made of, its ring, its state, its doorbell.

use super::Around;
use super::pace::Pace;
use super::parse::Parsing;
use crate::device::ring::send::{Came, SendRing};
use crate::device::state::State;
use crate::device::violation::Violation;
use crate::hairpin::Egress;
use crate::memory_keys::Who;

/// What a queue is made of.
pub(crate) struct Make {
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
    pub(crate) domain: u32,
    pub(crate) tis: Option<u32>,
    /// Of its TIS.
    pub(crate) transport_domain: u32,
    pub(crate) uar: u32,
    pub(crate) ring: SendRing,
    /// Headers that must be inline: one of `min_inline`.
    pub(crate) min_inline: u32,
    /// Many frames in one entry are allowed.
    pub(crate) multi: bool,
    /// The card inserts VLAN tags.
    pub(crate) inserts_tags: bool,
    /// Whether entries may say where headers are.
    pub(crate) parsing: Parsing,
    /// Entries may change keys.
    pub(crate) changes_keys: bool,
    /// The kernel's key for any memory may be used.
    pub(crate) reserved_key: bool,
    /// It is no user context's.
    pub(crate) kernel: bool,
    /// What is posted in the error state makes completions.
    pub(crate) flush: bool,
    pub(crate) pace: Pace,
    /// It sends what a receive queue was given, and has no ring.
    pub(crate) hairpin: Option<Egress>,
    pub(crate) context: [u8; 240],
}

/// A send queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) number: u32,
    pub(crate) state: State,
    pub(crate) cqn: u32,
    pub(super) user_index: u32,
    pub(crate) domain: u32,
    /// Where its frames leave; a queue without is for control work alone.
    pub(crate) tis: Option<u32>,
    /// Receivers of the same may refuse what it sends to itself.
    pub(super) transport_domain: u32,
    pub(crate) uar: u32,
    pub(crate) ring: SendRing,
    pub(crate) min_inline: u32,
    pub(crate) multi: bool,
    /// The card inserts VLAN tags.
    pub(crate) inserts_tags: bool,
    pub(super) parsing: Parsing,
    pub(super) changes_keys: bool,
    reserved_key: bool,
    kernel: bool,
    pub(super) flush: bool,
    /// How fast it may send.
    pub(crate) pace: Pace,
    pub(crate) hairpin: Option<Egress>,
    pub(crate) context: [u8; 240],
    /// The next entry was begun and waits for the wire: so many of its frames are out.
    pub(super) begun: Option<usize>,
    /// An error was reported since the queue became ready.
    pub(super) failed: bool,
    /// Nothing can be reported any more.
    pub(super) dead: bool,
}

impl Queue {
    pub(crate) fn new(make: Make) -> Self {
        let Make {
            inserts_tags, parsing, changes_keys, reserved_key, kernel, transport_domain, hairpin, ..
        } = make;
        let Make { cqn, user_index, domain, tis, uar, ring, min_inline, multi, flush, pace, context, .. } =
            make;
        Self {
            number: 0,
            state: State::Reset,
            cqn,
            user_index,
            domain,
            tis,
            transport_domain,
            uar,
            ring,
            min_inline,
            multi,
            inserts_tags,
            parsing,
            changes_keys,
            reserved_key,
            kernel,
            flush,
            pace,
            hairpin,
            context,
            begun: None,
            failed: false,
            dead: false,
        }
    }

    /// On whose behalf it reads lists of entries.
    pub(super) fn who(&self) -> Who {
        Who { domain: self.domain, pair: None, reserved: self.reserved_key, kernel: self.kernel }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.ring.left() > 0 && self.state != State::Reset
    }

    /// To a new state; RESET forgets all that was posted.
    pub(crate) fn become_state(&mut self, state: State) {
        if state == State::Reset {
            self.ring.reset();
            self.begun = None;
            if let Some(egress) = &mut self.hairpin {
                egress.peer = None;
            }
        }
        if state == State::Ready {
            (self.failed, self.dead) = (false, false);
        }
        self.ring.forget_came_along();
        self.state = state;
    }

    /// A doorbell: as [`SendRing::rung`].
    pub(crate) fn doorbell(
        &mut self,
        around: &mut Around<'_, '_>,
        value: [u8; 8],
        came: Came,
        strict: bool,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        if self.state == State::Reset {
            return Err(Violation::NotReady { queue: self.number });
        }
        self.ring.rung(around.bus, self.number, value, came, strict, bytes)
    }
}
