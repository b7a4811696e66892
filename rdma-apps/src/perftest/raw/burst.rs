//! The loops of latency under load: the client sends frames in bursts while earlier ones are still under way, the server answers
//! every one, or every Nth.
//!
//! Answers belong to frames in the order in which they come: nothing in a frame says which it is. A lost one is therefore missed for
//! good, and the client waits for it.
//!
//! Source of the course of events: linux-rdma/perftest `src/perftest_resources.c`, `run_iter_lat_burst`, `run_iter_lat_burst_server`.
//! The original's server drops an answer when its send queue is full; ours sends it when there is room, and ends when its last one
//! has left.

use pollux_eal::clock::{Clock, cycles};
use pollux_verbs::WcStatus;

use crate::perftest::end::End;
use crate::perftest::latency::{Run, room};
use crate::perftest::pace::Pace;
use crate::perftest::settings::{Extent, Settings};
use crate::rdma::Failure;
use crate::rdma::endless::Watch;

/// Completions taken at once.
const TAKEN: usize = 32;

/// How far an end has come.
#[derive(Default)]
struct Progress {
    sent: u64,
    /// Sends that are complete.
    done: u64,
    received: u64,
    /// Receives that are free to be posted again.
    free: u64,
}

impl Progress {
    /// Takes what came, each with a call of `each`, and what was sent. How many came.
    #[inline]
    fn take(
        &mut self,
        end: &mut End,
        watch: &mut Watch<'_>,
        mut each: impl FnMut(),
    ) -> Result<usize, Failure> {
        let mut failed = None;
        let count = end.receives.take(TAKEN, watch, |wc| match wc.status() {
            WcStatus::SUCCESS => each(),
            status => {
                failed.get_or_insert((status, wc.id()));
            }
        })?;
        end.sends.cq.poll(TAKEN, |wc| match wc.status() {
            // The word says how many sends are done.
            WcStatus::SUCCESS => self.done = wc.id(),
            status => {
                failed.get_or_insert((status, wc.id()));
            }
        });
        if let Some((status, id)) = failed {
            return Err(Failure::completion(status, id));
        }
        self.received += count as u64;
        self.free += count as u64;
        let list = end.settings.recv_post_list as u64;
        while self.free >= list {
            end.post_receives(0, list)?;
            self.free -= list;
        }
        Ok(count)
    }
}

/// Frames that the client sends in all, and the answers to them.
fn goals(settings: &Settings) -> (u64, u64) {
    let Extent::Iterations(frames) = settings.extent else { unreachable!("refused with the options") };
    (frames, frames / settings.options.reply_every)
}

/// Which of `goal` sends complete with a completion.
fn signals(settings: &Settings, goal: u64) -> impl Fn(u64) -> bool + use<> {
    let each = settings.cq_mod as u64;
    move |number| (number + 1).is_multiple_of(each) || number + 1 == goal
}

/// The client: frames in bursts, and how long the answers to them took.
///
/// # Errors
/// A completion that is an error, more answers than were asked for, a stop.
pub fn ask(end: &mut End, watch: &mut Watch<'_>) -> Result<Run, Failure> {
    let (goal, answers) = goals(&end.settings);
    let every = end.settings.options.reply_every;
    let (depth, list, burst) =
        (end.settings.tx_depth as u64, end.settings.post_list as u64, end.settings.burst());
    let mut pace = Pace::new(&end.settings, end.settings.size, Clock::get());
    let signalled = signals(&end.settings, goal);
    // Of each frame that is to be answered when it was sent, and from its answer on how long that took.
    let mut each: Vec<u64> = room(answers, goal, "a greater --reply_every")?;
    let mut answered = 0;
    let mut progress = Progress::default();
    while progress.done < goal || progress.received < answers {
        let mut left = burst;
        while left >= list
            && progress.sent < goal
            && progress.sent + list <= depth + progress.done
            && pace.as_mut().is_none_or(|pace| pace.allows(list))
        {
            end.post_sends(0, progress.sent, list, &signalled)?;
            // As the original, which looks at the clock behind the doorbell.
            let now = cycles::now();
            let asked = (progress.sent + list) / every - progress.sent / every;
            each.extend(std::iter::repeat_n(now, asked as usize));
            progress.sent += list;
            left -= list;
        }
        if progress.done == progress.sent && answered == each.len() {
            // The rate alone is waited for: the other end is not silent.
            watch.came()?;
            continue;
        }
        loop {
            let mut unasked = false;
            let count = progress.take(end, watch, || match each.get_mut(answered) {
                Some(time) => {
                    *time = cycles::now().wrapping_sub(*time);
                    answered += 1;
                }
                None => unasked = true,
            })?;
            if unasked {
                return Err(Failure::Error(format!(
                    "more answers than --reply_every {every} asks for: give both ends the same --reply_every"
                )));
            }
            if count == 0 {
                break;
            }
        }
    }
    Ok(Run { each, exchanges: goal, cycles: 0 })
}

/// The server: an answer to every Nth frame.
///
/// # Errors
/// A completion that is an error, a stop.
pub fn answer(end: &mut End, watch: &mut Watch<'_>) -> Result<(), Failure> {
    let (goal, answers) = goals(&end.settings);
    let every = end.settings.options.reply_every;
    let depth = end.settings.tx_depth as u64;
    let signalled = signals(&end.settings, answers);
    let mut progress = Progress::default();
    while progress.received < goal || progress.done < answers {
        progress.take(end, watch, || {})?;
        let owed = (progress.received / every).min(answers);
        while progress.sent < owed && progress.sent < depth + progress.done {
            end.post_sends(0, progress.sent, 1, &signalled)?;
            progress.sent += 1;
        }
    }
    Ok(())
}
