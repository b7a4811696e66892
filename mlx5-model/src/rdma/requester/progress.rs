//! What a queue pair has asked for, and how far that is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::rdma::psn::{PSN_MASK, after, distance};
use crate::rdma::request::Request;

/// What a queue pair has asked for and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// Of the next request.
    pub(super) next_psn: u32,
    /// Behind the last packet that was ever sent.
    pub(super) sent_end: u32,
    /// Begun, the oldest first.
    pub(super) requests: VecDeque<Request>,
    /// The first of them that is not sent whole.
    pub(super) cursor: usize,
    pub(super) max_retries: u8,
    pub(super) max_rnr_retries: u8,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    /// When the peer has not answered in time.
    pub(super) deadline: Option<u64>,
    /// Until when the peer asked to be left alone.
    pub(super) wait: Option<u64>,
    /// Sending went back to here, and nothing was confirmed since.
    pub(super) gone_back: Option<u32>,
    /// With selective repeat: packets behind the first unconfirmed one that the peer has, and those sent again.
    pub(super) there: BTreeSet<u32>,
    pub(super) again: BTreeSet<u32>,
    /// The entry begun last changes a memory key.
    pub(super) changed_key: bool,
    /// Only those of `again` go out until new ones are reached.
    pub(super) mending: bool,
    /// The same of answers to reads: what came early.
    pub(super) early: BTreeMap<u32, Vec<u8>>,
}

impl Requester {
    /// Sending begins.
    pub(crate) fn begin(&mut self, psn: u32, retries: u8, rnr_retries: u8) {
        *self = Self {
            next_psn: psn,
            sent_end: psn,
            max_retries: retries,
            max_rnr_retries: rnr_retries,
            retries,
            rnr_retries,
            ..Self::default()
        };
    }

    pub(crate) fn next_psn(&self) -> u32 {
        self.next_psn
    }

    pub(crate) fn last_acked(&self) -> u32 {
        after(self.unconfirmed(), PSN_MASK)
    }

    /// The first sequence number that the peer has not confirmed.
    pub(super) fn unconfirmed(&self) -> u32 {
        let open = self.requests.iter().find(|request| request.confirmed < request.packets);
        open.map_or(self.next_psn, |request| after(request.first, request.confirmed))
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// When it has to be looked at again.
    pub(crate) fn due(&self) -> Option<u64> {
        match (self.deadline, self.wait) {
            (Some(deadline), Some(wait)) => Some(deadline.min(wait)),
            (deadline, wait) => deadline.or(wait),
        }
    }

    /// All of a dynamic connection is over: the next begins with all its patience. Nothing is repeated selectively on those.
    pub(super) fn abandon(&mut self) {
        (self.retries, self.rnr_retries) = (self.max_retries, self.max_rnr_retries);
        self.gone_back = None;
    }

    /// The next request to be flushed, its opcode and index.
    pub(crate) fn take_unfinished(&mut self) -> Option<(u8, u16)> {
        (self.deadline, self.wait) = (None, None);
        self.cursor = 0;
        self.requests.pop_front().map(|request| (request.opcode, request.index))
    }

    /// Reads and atomics that the peer works on.
    pub(super) fn fetches(&self) -> usize {
        self.requests.iter().filter(|request| request.is_fetch() && request.sent > request.confirmed).count()
    }

    /// Sending begins again at `psn`.
    pub(super) fn go_back(&mut self, psn: u32) {
        self.cursor = self.requests.len();
        for (index, request) in self.requests.iter_mut().enumerate().rev() {
            let packet = distance(request.first, psn).max(0) as u32;
            if packet >= request.packets {
                if request.packets > 0 {
                    break;
                }
                continue;
            }
            request.sent = request.confirmed.max(packet);
            self.cursor = index;
        }
        self.again.clear();
        self.mending = false;
        self.skip_sent();
    }

    pub(super) fn skip_sent(&mut self) {
        while self.requests.get(self.cursor).is_some_and(|request| request.sent >= request.packets) {
            self.cursor += 1;
        }
    }

    /// Something was confirmed: patience begins anew.
    pub(super) fn progress(&mut self, now: u64, timeout: Option<u64>) {
        (self.retries, self.rnr_retries) = (self.max_retries, self.max_rnr_retries);
        self.gone_back = None;
        self.arm(now, timeout);
        let unconfirmed = self.unconfirmed();
        self.there.retain(|psn| distance(unconfirmed, *psn) >= 0);
        self.again.retain(|psn| distance(unconfirmed, *psn) >= 0);
    }

    pub(super) fn arm(&mut self, now: u64, timeout: Option<u64>) {
        let open = distance(self.unconfirmed(), self.sent_end) > 0;
        self.deadline = timeout.filter(|_| open).map(|timeout| now.saturating_add(timeout));
    }

    /// All up to and with `psn` is confirmed. `Err`: a read or atomic among it was never answered; from there on again.
    pub(super) fn confirm(&mut self, psn: u32) -> Result<bool, u32> {
        let mut some = false;
        for request in &mut self.requests {
            let covered = distance(request.first, psn) + 1;
            if covered <= 0 && request.packets > 0 {
                break;
            }
            let covered = (covered as u32).min(request.packets);
            if request.confirmed >= covered {
                continue;
            }
            if request.is_fetch() {
                return Err(after(request.first, request.confirmed));
            }
            request.confirmed = covered;
            request.sent = request.sent.max(covered);
            some = true;
        }
        self.skip_sent();
        Ok(some)
    }
}
