//! `--data_validation`: what WRITEs and READs moved is compared, byte by byte.
//!
//! In rounds of as many messages as may be under way, each with a place of its own. READs fetch what the other end filled its
//! memory with; what WRITEs left there is read back. Moving alone is timed, not filling, reading back and comparing; so the rate is that of
//! rounds, which end with an empty queue. perftest compares while it runs, on threads of its own: linux-rdma/perftest
//! `src/host_validation.c`.

use pollux_eal::clock::cycles;
use pollux_verbs::WcStatus;

use super::bandwidth::Run;
use super::end::End;
use super::pattern::Compared;
use super::settings::{Extent, Verb};
use super::statistic::Moments;
use crate::rdma::Failure;
use crate::rdma::endless::Watch;

/// Completions taken at once.
const TAKEN: usize = 32;

/// Runs the test of this end in rounds.
///
/// # Errors
/// A completion that is an error, a stop, another end that is gone.
pub fn run(end: &mut End, watch: &mut Watch<'_>) -> Result<(Run, Compared), Failure> {
    let Extent::Iterations(goal) = end.settings.extent else {
        return Err(Failure::Usage("--data_validation runs a fixed number of iterations: give -n".into()));
    };
    let (slots, qps) = (end.settings.tx_depth as u64, end.settings.qps);
    let mut compared = Compared::default();
    let mut moving = 0;
    let begin = cycles::now();
    let mut done = 0;
    let mut round = 0;
    while done < goal {
        let count = slots.min(goal - done);
        round += 1;
        for qp in 0..qps {
            end.prepare(qp, count, round);
        }
        let before = cycles::now();
        move_all(end, count, watch, false)?;
        moving += cycles::now() - before;
        if end.settings.test.verb == Verb::Write {
            move_all(end, count, watch, true)?;
        }
        for qp in 0..qps {
            let found = end.compare(qp, count, round);
            compared.bytes += found.bytes;
            compared.wrong += found.wrong;
        }
        done += count;
    }
    let moments = Moments { begin, end: begin + moving, ..Moments::default() };
    Ok((Run { moments, messages: goal * qps as u64, by_queue: Vec::new(), by_port: None }, compared))
}

/// Moves a message of each place of each queue pair, or reads it back.
fn move_all(end: &mut End, count: u64, watch: &mut Watch<'_>, back: bool) -> Result<(), Failure> {
    for qp in 0..end.settings.qps {
        end.post_round(qp, count, back)?;
    }
    let mut left = end.settings.qps;
    let mut failed = None;
    while left > 0 {
        end.sends.take(TAKEN, watch, |wc| {
            // After one that failed all that were posted complete, signalled or not: many more than are waited for.
            if wc.status() == WcStatus::SUCCESS {
                left -= 1;
            } else {
                failed.get_or_insert((wc.status(), wc.id()));
            }
        })?;
        if let Some((status, id)) = failed {
            return Err(Failure::completion(status, id));
        }
    }
    Ok(())
}
