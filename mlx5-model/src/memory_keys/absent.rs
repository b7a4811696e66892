//! Pages that are not there: which one an access came upon, and what the host was asked for.

use std::cell::Cell;

use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::paging::{Fault, LAST, LOG_PAGE, SUB_TYPE};
use zerocopy::IntoBytes;

use crate::device::bus::Bus;
use crate::event::Events;

/// Most questions without an answer.
const OPEN_MAX: usize = 1024;
/// Bits of a token.
const TOKENS: u64 = (1 << 48) - 1;

/// Memory behind a key of which some is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) key: u32,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

/// What the host was asked for, and who waits for it.
#[derive(Debug)]
struct Question {
    token: u64,
    absent: Absent,
    pairs: Vec<u32>,
}

/// What accesses came upon.
#[derive(Debug, Default)]
pub(crate) struct AbsentPages {
    /// By the access that failed last.
    found: Cell<Option<Absent>>,
    next: u64,
    open: Vec<Question>,
}

impl AbsentPages {
    pub(super) fn find(&self, absent: Absent) {
        self.found.set(Some(absent));
    }

    /// What the access that just failed came upon.
    pub(crate) fn take_found(&self) -> Option<Absent> {
        self.found.take()
    }

    /// Asks the host for pages on behalf of a queue pair; false when nobody listens.
    pub(crate) fn ask(&mut self, bus: &Bus<'_>, events: &mut Events, absent: Absent, pair: u32) -> bool {
        if let Some(question) = self.open.iter_mut().find(|question| question.absent == absent) {
            if !question.pairs.contains(&pair) {
                question.pairs.push(pair);
            }
            return true;
        }
        if !events.takes(event::PAGE_FAULT) || self.open.len() >= OPEN_MAX {
            return false;
        }
        let token = self.next & TOKENS;
        self.next += 1;
        let first = absent.at >> LOG_PAGE;
        let last = absent.at.saturating_add(absent.bytes.saturating_sub(1)) >> LOG_PAGE;
        let pages = (last - first + 1).min(0xf_ffff) as u32;
        let fault = Fault {
            flags: LAST,
            token47_32: ((token >> 32) as u16).into(),
            token31_0: (token as u32).into(),
            demand_fault_pages: (pages << LOG_PAGE).into(),
            mkey: absent.key.into(),
            va: (first << LOG_PAGE).into(),
            ..Fault::default()
        };
        events.raise(bus, event::PAGE_FAULT, SUB_TYPE, fault.as_bytes());
        self.open.push(Question { token, absent, pairs: vec![pair] });
        true
    }

    /// The host answered: for what, and the queue pairs that wait for it. `None`: it was not asked that.
    pub(crate) fn answered(&mut self, token: u64) -> Option<(Absent, Vec<u32>)> {
        let at = self.open.iter().position(|question| question.token == token)?;
        let Question { absent, pairs, .. } = self.open.swap_remove(at);
        Some((absent, pairs))
    }

    /// A queue pair waits for nothing any more: whoever has its number next did not ask. The host still answers.
    pub(crate) fn forget(&mut self, pair: u32) {
        for question in &mut self.open {
            question.pairs.retain(|waits| *waits != pair);
        }
    }
}
