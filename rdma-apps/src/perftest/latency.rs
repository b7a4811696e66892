//! The loops of the latency tests: one message under way.
//!
//! Source of the course of events: linux-rdma/perftest `src/perftest_resources.c`, `run_iter_lat_send`, `run_iter_lat_write`,
//! `run_iter_lat_write_imm`, `run_iter_lat`.

use pollux_eal::clock::{Clock, cycles};
use pollux_verbs::WcStatus;

use super::bandwidth::without_immediate;
use super::end::End;
use super::settings::{Extent, Verb};
use super::statistic;
use crate::rdma::Failure;
use crate::rdma::endless::Watch;
use crate::rdma::queue::Queue;

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    /// Cycles of each exchange that was looked at; of a run over time nothing.
    pub each: Vec<u64>,
    /// Exchanges that were measured.
    pub exchanges: u64,
    /// Cycles that they took; of a run over time.
    pub cycles: u64,
}

/// Whether a run goes on, and what of it counts.
struct Course {
    goal: u64,
    window: Option<(u64, u64, u64)>,
    gap: u64,
    posted: Vec<u64>,
    counted: u64,
}

impl Course {
    fn new(end: &End) -> Result<Self, Failure> {
        let clock = Clock::get();
        let now = cycles::now();
        let hz = clock.hz();
        let (goal, window) = match end.settings.extent {
            Extent::Iterations(iterations) => (iterations, None),
            Extent::Seconds { total, margin } => {
                (u64::MAX, Some((now + margin * hz, now + (total - margin) * hz, now + total * hz)))
            }
            Extent::Forever { period } => (u64::MAX, Some((now, now + period * hz, now + period * hz))),
        };
        let gap = end.settings.options.latency_gap.unwrap_or(0).saturating_mul(hz / 1_000_000);
        let posted = if window.is_none() { room(goal, goal, "-D")? } else { Vec::new() };
        Ok(Self { goal, window, gap, posted, counted: 0 })
    }

    /// Whether the time is up.
    #[inline]
    fn is_over(&self) -> bool {
        self.window.is_some_and(|(.., end)| cycles::now() >= end)
    }

    /// Waits for the gap, and notes when a message goes.
    #[inline]
    fn goes(&mut self) {
        if self.gap > 0 {
            let until = cycles::now() + self.gap;
            while cycles::now() < until {
                std::hint::spin_loop();
            }
        }
        if self.window.is_none() {
            self.posted.push(cycles::now());
        }
    }

    /// Counts an exchange.
    #[inline]
    fn done(&mut self) {
        if let Some((from, to, _)) = self.window {
            let now = cycles::now();
            self.counted += u64::from(from <= now && now < to);
        }
    }

    fn finish(self) -> Run {
        let cycles = self.window.map_or(0, |(from, to, _)| to - from);
        let exchanges = if self.window.is_some() { self.counted } else { self.goal };
        Run { each: statistic::durations(&self.posted), exchanges, cycles }
    }
}

/// Room for the samples of that many iterations; `instead` is what takes less.
///
/// # Errors
/// There is not as much memory.
pub fn room(samples: u64, iterations: u64, instead: &str) -> Result<Vec<u64>, Failure> {
    let mut room = Vec::new();
    match room.try_reserve_exact(samples as usize) {
        Ok(()) => Ok(room),
        Err(_) => Err(Failure::Usage(format!(
            "-n {iterations}: not enough memory to record every sample: give fewer iterations, or {instead}"
        ))),
    }
}

/// Runs the loop of this end's test. The client begins a send test, the server a write test.
///
/// # Errors
/// A completion that is an error, a stop, another end that is gone.
pub fn run(end: &mut End, client: bool, watch: &mut Watch<'_>) -> Result<Run, Failure> {
    match end.settings.test.verb {
        Verb::Send => send(end, client, watch),
        Verb::Write if end.settings.imm => send(end, !client, watch),
        Verb::Write => write(end, client, watch),
        Verb::Read | Verb::Atomic => one_sided(end, watch),
    }
}

/// Waits for a completion, with immediate data where that is due; `false` when the time is up before.
#[inline]
fn completion(
    queue: &mut Queue,
    watch: &mut Watch<'_>,
    is_over: impl Fn() -> bool,
    imm: bool,
) -> Result<bool, Failure> {
    let (mut failed, mut bare) = (None, false);
    loop {
        let count = queue.take(1, watch, |wc| {
            if wc.status() != WcStatus::SUCCESS {
                failed = Some((wc.status(), wc.id()));
            }
            bare = imm && wc.imm().is_none();
        })?;
        if let Some((status, id)) = failed {
            return Err(Failure::completion(status, id & 0xffff_ffff));
        }
        if bare {
            return Err(without_immediate());
        }
        if count > 0 {
            return Ok(true);
        }
        if is_over() {
            return Ok(false);
        }
    }
}

/// Of messages that complete where they come; `begins`: this end sends before it has received.
fn send(end: &mut End, begins: bool, watch: &mut Watch<'_>) -> Result<Run, Failure> {
    let mut course = Course::new(end)?;
    let moderation = end.settings.cq_mod as u64;
    let depth = end.settings.rx_depth as u64;
    let (mut sent, mut received) = (0, 0);
    while sent < course.goal || received < course.goal {
        if received < course.goal && !(begins && sent == 0) {
            if !completion(&mut end.receives, watch, || course.is_over(), end.settings.imm)? {
                break;
            }
            received += 1;
            course.done();
            if course.window.is_some() || received + depth <= course.goal {
                end.post_receives(0, 1)?;
            }
        }
        if course.is_over() {
            break;
        }
        if sent < course.goal {
            course.goes();
            let signalled = (sent + 1).is_multiple_of(moderation) || sent + 1 == course.goal;
            end.post_sends(0, sent, 1, |_| signalled)?;
            sent += 1;
            if signalled {
                completion(&mut end.sends, watch, || false, false)?;
            }
        }
    }
    Ok(course.finish())
}

fn write(end: &mut End, client: bool, watch: &mut Watch<'_>) -> Result<Run, Failure> {
    let mut course = Course::new(end)?;
    let (mut sent, mut received) = (0_u64, 0_u64);
    while sent < course.goal || received < course.goal {
        // The server writes first; each write's last byte counts.
        if received < course.goal && (client || sent > 0) {
            received += 1;
            while end.last_byte() != received as u8 {
                if course.is_over() {
                    return Ok(course.finish());
                }
                watch.empty()?;
            }
            watch.came()?;
            course.done();
        }
        if sent < course.goal {
            course.goes();
            sent += 1;
            end.set_last_byte(sent as u8);
            end.post_sends(0, 0, 1, |_| true)?;
            completion(&mut end.sends, watch, || false, false)?;
        }
    }
    Ok(course.finish())
}

fn one_sided(end: &mut End, watch: &mut Watch<'_>) -> Result<Run, Failure> {
    let mut course = Course::new(end)?;
    let mut sent = 0;
    while sent < course.goal && !course.is_over() {
        course.goes();
        end.post_sends(0, 0, 1, |_| true)?;
        sent += 1;
        completion(&mut end.sends, watch, || false, false)?;
        course.done();
        if course.window.is_some() {
            watch.round()?;
        }
    }
    Ok(course.finish())
}
