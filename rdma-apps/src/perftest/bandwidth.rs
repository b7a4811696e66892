//! The loop of the bandwidth tests: posts, takes completions, takes messages.
//!
//! Source of the course of events: linux-rdma/perftest `src/perftest_resources.c`, `run_iter_bw`, `run_iter_bw_server`, `run_iter_bi`.

use pollux_eal::clock::{Clock, cycles};
use pollux_verbs::WcStatus;

use super::end::End;
use super::pace::Pace;
use super::settings::Extent;
use super::statistic::Moments;
use crate::rdma::Failure;
use crate::rdma::endless::Watch;

/// Completions taken at once.
const TAKEN: usize = 32;

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    /// When.
    pub moments: Moments,
    /// Messages that were measured, of all queue pairs.
    pub messages: u64,
    /// Messages that came, by queue.
    pub by_queue: Vec<u64>,
    /// What each port has of the measured ones, with `--report-per-port`.
    pub by_port: Option<[u64; 2]>,
}

/// How far a test has come. A run without an end is told of period by period, and what is under way when one is over is there in the
/// next one.
#[derive(Debug, Default)]
pub struct Progress {
    flows: Vec<Flow>,
    posted: u64,
    completed: u64,
    received: u64,
}

/// What one queue pair has done.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    posted: u64,
    completed: u64,
    received: u64,
    /// Receives that are free to be posted again; those of a shared queue are all counted with the first queue pair.
    free: u64,
    /// Receives that were posted, those at the beginning among them.
    reposted: u64,
}

/// When a run over time begins to count, stops counting, and ends.
#[derive(Clone, Copy)]
struct Window {
    from: u64,
    to: u64,
    end: u64,
}

impl Window {
    fn new(clock: Clock, extent: Extent, now: u64) -> Option<Self> {
        let seconds = |seconds: u64| seconds.saturating_mul(clock.hz());
        match extent {
            Extent::Iterations(_) => None,
            Extent::Seconds { total, margin } => Some(Self {
                from: now + seconds(margin),
                to: now + seconds(total - margin),
                end: now + seconds(total),
            }),
            Extent::Forever { period } => {
                Some(Self { from: now, to: now + seconds(period), end: now + seconds(period) })
            }
        }
    }

    fn counts(&self, now: u64) -> bool {
        (self.from..self.to).contains(&now)
    }
}

/// Sends once as many messages of each queue pair as may be under way, or as one doorbell has, one queue pair after the other, and
/// waits for them: what they touch is warm when the run begins. Source: linux-rdma/perftest `src/perftest_resources.c`,
/// `perform_warm_up`.
///
/// # Errors
/// As [`run`].
pub fn warm_up(end: &mut End, watch: &mut Watch<'_>) -> Result<(), Failure> {
    let list = end.settings.post_list as u64;
    let count = if list == 1 { end.settings.tx_depth as u64 } else { list };
    for qp in 0..end.settings.qps {
        for number in (0..count).step_by(list as usize) {
            end.post_sends(qp, number, list, |number| list == 1 || number + 1 == count)?;
        }
        let mut done = 0;
        let mut failed = None;
        while done < count {
            end.sends.take(TAKEN, watch, |wc| {
                if wc.status() != WcStatus::SUCCESS {
                    failed.get_or_insert((wc.status(), wc.id() >> 48));
                }
                done = wc.id() & ((1 << 48) - 1);
            })?;
            if let Some((status, id)) = failed {
                return Err(Failure::completion(status, id));
            }
        }
    }
    Ok(())
}

/// Runs messages of `size` bytes: this end sends, receives, or both. It begins where `progress` is, and leaves it where it ends.
///
/// # Errors
/// A completion that is an error, a stop, another end that is gone.
pub fn run(
    end: &mut End,
    size: u64,
    sends: bool,
    progress: &mut Progress,
    watch: &mut Watch<'_>,
) -> Result<Run, Failure> {
    let receives = end.settings.takes_receives() && (!sends || end.settings.bidirectional);
    let clock = Clock::get();
    let extent = end.settings.extent;
    let goal = match extent {
        Extent::Iterations(iterations) => iterations,
        _ => u64::MAX,
    };
    let all = goal.saturating_mul(end.settings.qps as u64);
    let shared = end.settings.options.use_srq;
    // Where a hash chooses the queue, all may come to one; where there is one queue, all do.
    let most = if shared || end.spreads() { all } else { goal };
    let (tx_depth, cq_mod) = (end.settings.tx_depth as u64, end.settings.cq_mod as u64);
    let (list, recv_list, qps) =
        (end.settings.post_list as u64, end.settings.recv_post_list as u64, end.settings.qps);
    let prefilled = end.settings.rx_depth as u64;
    let peak = end.settings.peak && sends;
    let mut pace = if sends { Pace::new(&end.settings, size, clock) } else { None };

    if progress.flows.is_empty() {
        progress.flows = vec![Flow { reposted: prefilled, ..Flow::default() }; qps];
    }
    let Progress { mut flows, mut posted, mut completed, mut received } = std::mem::take(progress);
    let before: Vec<u64> = flows.iter().map(|flow| flow.received).collect();
    let mut moments = Moments::default();
    let mut counted = 0;
    let mut by_port = end.settings.options.report_per_port.then_some([0; 2]);
    // What is counted of each port: sends that completed, or messages that came.
    let at_ports = |flows: &[Flow]| {
        let (first, second) = flows.split_at(flows.len() / 2);
        [first, second].map(|flows| {
            flows.iter().map(|flow| if sends { flow.completed } else { flow.received }).sum::<u64>()
        })
    };
    // A receiver's clock starts with the first message of all.
    let mut window = if sends || received > 0 { Window::new(clock, extent, cycles::now()) } else { None };
    if sends {
        moments.begin = cycles::now();
    }
    let signalled = |number: u64| (number + 1).is_multiple_of(cq_mod) || number + 1 == goal;
    loop {
        let now = cycles::now();
        if window.is_some_and(|window| now >= window.end)
            || (!sends || completed >= all) && (!receives || received >= all)
        {
            break;
        }
        if sends && (received > 0 || !end.answers) {
            for (number, flow) in flows.iter_mut().enumerate() {
                while flow.posted < goal
                    && flow.posted + list <= tx_depth + flow.completed
                    && pace.as_mut().is_none_or(|pace| pace.allows(list))
                {
                    if peak {
                        let at = cycles::now();
                        moments.posted.extend(std::iter::repeat_n(at, list as usize));
                    }
                    end.post_sends(number, flow.posted, list, signalled)?;
                    flow.posted += list;
                    posted += list;
                }
            }
        }
        let ports_before = by_port.map(|_| at_ports(&flows));
        let mut failed = None;
        if sends && completed < posted {
            let before = completed;
            let mut done = |wc: &mut pollux_verbs::Wc<'_, '_>| {
                if wc.status() != WcStatus::SUCCESS {
                    failed.get_or_insert((wc.status(), wc.id() >> 48));
                    return;
                }
                // The word says how many of the queue pair's sends are done.
                let flow = &mut flows[(wc.id() >> 48) as usize];
                let count = wc.id() & ((1 << 48) - 1);
                completed += count - flow.completed;
                flow.completed = count;
                if peak {
                    moments.completed.push((completed, cycles::now()));
                }
            };
            if receives && received < all {
                // The other direction is waited for as well.
                if end.sends.cq.poll(TAKEN, &mut done) > 0 {
                    watch.came()?;
                }
            } else {
                end.sends.take(TAKEN, watch, &mut done)?;
            }
            if window.is_some_and(|window| window.counts(now)) {
                counted += completed - before;
            }
        }
        let (mut got, mut bare) = (0, false);
        if receives && received < all {
            let (list, own, imm) = (&mut flows, &end.own, end.settings.imm);
            end.receives.take(TAKEN, watch, |wc| {
                if wc.status() != WcStatus::SUCCESS {
                    failed.get_or_insert((wc.status(), wc.id()));
                    return;
                }
                bare |= imm && wc.imm().is_none();
                // On a shared queue the receive's word says who posted it, not who got it. On one of those that frames are spread over
                // it says all: they belong to no queue pair.
                let which = own.iter().position(|keys| keys.qpn == wc.qpn()).unwrap_or(wc.id() as usize);
                // Of XRC those that receive are numbered behind those that send.
                let which = if which < qps { which } else { which - qps };
                list[which].received += 1;
                list[if shared { 0 } else { which }].free += 1;
                got += 1;
            })?;
        }
        if let Some((status, id)) = failed {
            return Err(Failure::completion(status, id));
        }
        if bare {
            return Err(without_immediate());
        }
        if got > 0 {
            if received == 0 && !sends {
                moments.begin = now;
                window = Window::new(clock, extent, now);
            }
            received += got;
            if window.is_some_and(|window| window.counts(now)) && !sends {
                counted += got;
            }
            for (number, flow) in flows.iter_mut().enumerate() {
                // Beyond the goal nothing will come: the receives would be left for the next size.
                loop {
                    let count = recv_list.min(most.saturating_sub(flow.reposted));
                    if count == 0 || flow.free < count {
                        break;
                    }
                    end.post_receives(number, count)?;
                    flow.free -= count;
                    flow.reposted += count;
                }
            }
        }
        if let (Some(by_port), Some(before)) = (&mut by_port, ports_before)
            && window.is_some_and(|window| window.counts(now))
        {
            for ((counted, before), after) in by_port.iter_mut().zip(before).zip(at_ports(&flows)) {
                *counted += after - before;
            }
        }
        // A run over time looks at the flag itself: it is never idle.
        if window.is_some() {
            watch.round()?;
        }
    }
    moments.end = cycles::now();
    let by_queue = flows.iter().zip(before).map(|(flow, before)| flow.received - before).collect();
    *progress = Progress { flows, posted, completed, received };
    let messages = match (extent, window) {
        (Extent::Iterations(_), _) => all,
        (_, Some(window)) => {
            (moments.begin, moments.end) = (window.from, window.to.min(moments.end));
            counted
        }
        (_, None) => 0,
    };
    Ok(Run { moments, messages, by_queue, by_port })
}

/// A message came that is not what `--send_with_imm` sends.
#[cold]
pub(super) fn without_immediate() -> Failure {
    Failure::Peer(
        "a message came without immediate data: give --send_with_imm at both ends, or at neither".into(),
    )
}
