//! The loop of a forwarding lcore: rounds until it is asked to stop, and what became of its time.

use pollux_eal::LcoreContext;
use pollux_eal::clock::cycles;

use crate::idle::{Idle, Polled};

/// While busy, the TSC is read and timers are looked for once in this many rounds.
pub const ROUNDS_PER_LOOK: u32 = 64;

/// What an lcore does in each round. A forwarder with a loop of its own is one, and gets the count of busy and idle cycles and `--idle`
/// with it.
pub trait Rounds {
    /// What it polls.
    type Polled: Polled;

    /// Polls everything once; whether packets moved.
    fn round(&mut self, lcore: &LcoreContext) -> bool;

    /// What it polls, in the order in which [`IdleOptions::policy`](crate::IdleOptions::policy) was told of the queues.
    fn polled(&mut self) -> &mut [Self::Polled];

    /// Whether it holds packets back that belong to none of these queues: its lcore does not sleep then.
    fn holds(&self) -> bool {
        false
    }

    /// Empties its hands when the loop ends.
    fn finish(&mut self, lcore: &LcoreContext);
}

/// Goes round until asked to stop, and calls the lcore's timers. The TSC is read at most once a round, and where it is, timers are looked
/// for: after each empty round, and each [`ROUNDS_PER_LOOK`] busy ones.
#[inline]
pub fn go_round(lcore: &LcoreContext, work: &mut impl Rounds, idle: &mut impl Idle) {
    let mut mark = cycles::now();
    let mut was_busy = false;
    let mut rounds: u32 = 0;
    while !lcore.stop_requested() {
        let busy = work.round(lcore);
        if busy {
            idle.busy();
        }
        rounds = rounds.wrapping_add(1);
        // A stretch of busy rounds is counted as a whole; an empty round ends it.
        if busy && was_busy && !rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            continue;
        }
        let now = cycles::now();
        let spent = now.wrapping_sub(mark);
        if busy || was_busy {
            lcore.busy(spent);
        } else {
            lcore.idle(spent);
        }
        let now = run_timers(lcore, now);
        (mark, was_busy) = (now, busy);
        if !busy && !work.holds() && idle.empty(lcore, now, work.polled()) {
            mark = cycles::now();
            lcore.idle(mark.wrapping_sub(now));
        }
    }
    work.finish(lcore);
}

/// Calls the lcore's timers that are due, in a loop that read the TSC at `now`, and counts their time as busy; the reading after them.
/// Where none is armed that is two loads. Not inlined: a loop keeps its registers.
#[inline(never)]
#[must_use]
pub fn run_timers(lcore: &LcoreContext, now: u64) -> u64 {
    if lcore.run_timers() == 0 {
        return now;
    }
    let end = cycles::now();
    lcore.busy(end.wrapping_sub(now));
    end
}
