//! The loop of a forwarding lcore: rounds until it is asked to stop, and what became of its time.

use pollux_eal::LcoreContext;
use pollux_eal::clock::cycles;

use crate::idle::{Idle, Polled};

/// While busy, the TSC is read once in this many rounds.
const ROUNDS_PER_READING: u32 = 64;

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
/// for: after each empty round, and each 64 busy ones. That costs two loads and two comparisons; where one is armed, a reading of the
/// clock as well, which need not be the TSC.
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
        if busy && was_busy && !rounds.is_multiple_of(ROUNDS_PER_READING) {
            continue;
        }
        let mut now = cycles::now();
        let spent = now.wrapping_sub(mark);
        if busy || was_busy {
            lcore.busy(spent);
        } else {
            lcore.idle(spent);
        }
        if lcore.run_timers() != 0 {
            now = called(lcore, now);
        }
        (mark, was_busy) = (now, busy);
        if !busy && !work.holds() && idle.empty(lcore, now, work.polled()) {
            mark = cycles::now();
            lcore.idle(mark.wrapping_sub(now));
        }
    }
    work.finish(lcore);
}

/// Counts the time that timers took which were called at `begun`; when they ended.
#[cold]
#[must_use]
pub fn called(lcore: &LcoreContext, begun: u64) -> u64 {
    let now = cycles::now();
    lcore.busy(now.wrapping_sub(begun));
    now
}
