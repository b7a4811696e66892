//! pktgen: a traffic generator. Streams of any header stack at a rate; loss, order and latency of what returns.
//!
//! ```text
//!   options, TOML ─► spec ─► stream: templates, edits ──┐
//!                             schedule: when it is due ─┴─► lane: the loop of an lcore ─► tx queue
//!                                                            trackers ◄── marks ◄──────── rx queue
//!                                                               └─► report: lines, JSON
//! ```
//!
//! From the bottom: `layer`, `value`, `packet` (what can be typed), `frame` (one packet laid out), `window`, `source`, `edit` (a field that
//! varies), `shape`, `stream` (packets in bursts); `rate`, `schedule`; `stamp`, `tracker`; `replay`; `answer`; `lane`, `task`; `profile`, `options`, `setup`; `rfc2544`.

#![forbid(unsafe_code)]

mod answer;
mod count;
mod edit;
mod frame;
mod lane;
mod layer;
mod options;
mod packet;
mod profile;
mod rate;
mod replay;
mod report;
mod rfc2544;
mod schedule;
mod setup;
mod shape;
mod size;
mod source;
mod spec;
mod stamp;
mod stream;
mod task;
mod tracker;
mod value;
mod window;

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pollux_bringup::program::{self, say};
use pollux_bringup::{Bringup, BringupError};
use pollux_config::CommandLine;
use pollux_kit::rounds::go_round;
use pollux_kit::{Console, IdlePolicy, Meter, RunOptions, Watch};

use crate::options::Options;
use crate::replay::Feeder;
use crate::report::Reported;
use crate::rfc2544::{End, Files, Report, Search, Usual};
use crate::setup::{Launch, Rig};
use crate::spec::StreamSpec;

fn main() -> ExitCode {
    program::main(run)
}

/// Until the end.
fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let specs = setup::specs(&options)?;
    let files = options.search.report.as_deref().map(Files::at).transpose()?;
    // The lcores keep the time: what is under way at the end is still waited for.
    let watched = RunOptions { duration: None, ..options.run.clone() };
    let mut watch = Watch::new("pktgen", &watched)?;
    let mut bringup = Bringup::new(line)?;
    let (rig, Launch { lanes, counted, answers }) = Rig::start(&mut bringup, &options, &specs)?;
    let job = Job::new(&bringup, rig, &options, &specs)?;
    let stop = bringup.eal.stop_flag();
    let mut launched = Vec::new();
    for (lcore, mut lanes) in lanes {
        let polled = lanes.0.iter().map(|lane| &lane.rx);
        let idle = options.idle.policy(bringup.eal.clock(), &[stop.as_fd()], polled)?;
        launched.push(bringup.eal.launch(lcore, move |lcore| match idle {
            IdlePolicy::Poll => go_round(lcore, &mut lanes, &mut ()),
            mut idle => go_round(lcore, &mut lanes, &mut idle),
        })?);
    }
    say(format_args!("pktgen: sending on {} lcores; press Ctrl-C to stop", launched.len()));

    let meter = Meter::new(counted);
    let Done { end, streams, feeders, report } = job.run(&mut bringup, &mut watch, &meter, &options);
    stop.set();
    let end =
        launched.into_iter().fold(end, |end, launched| end.and(launched.wait().map_err(BringupError::from)));

    let (counts, clock) = (meter.read(&bringup.view()), bringup.eal.clock());
    let streams: Vec<_> = streams.iter().map(|stream| stream.read(clock)).collect();
    let console = Console { json: options.run.json };
    console.print(&pollux_kit::table::table("pktgen", &counts, &counts));
    let answers = report::answers(&answers);
    console.print(&report::table(&streams, &answers));
    let end = feeders.iter().fold(end, |end, feeder| {
        let (lines, problem) = feeder.notices();
        lines.iter().for_each(|line| say(format_args!("pktgen: {line}")));
        end.and(problem.map_or(Ok(()), |why| Err(BringupError::Runtime(why))))
    });
    let json = || report::json(&counts, &streams, &answers, report.as_ref());
    let written = match (&report, files) {
        (Some(report), Some(files)) => files.write(report, &json()),
        _ => Ok(()),
    };
    if let Some(report) = &report {
        console.print(&report.markdown());
    }
    end.and(written).and(console.json(json))
}

/// What the lanes are launched for.
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Job {
    /// Streams are sent, once.
    Streams { rig: Rig, tasks: setup::Tasks, feeders: Vec<Feeder> },
    /// A device is measured, trial by trial.
    Search(Search),
}

/// What is left of a job.
struct Done {
    end: Result<(), BringupError>,
    streams: Vec<Reported>,
    feeders: Vec<Feeder>,
    report: Option<Report>,
}

impl Job {
    fn new(
        bringup: &Bringup,
        rig: Rig,
        options: &Options,
        specs: &[StreamSpec],
    ) -> Result<Self, BringupError> {
        let mut feeders = Vec::new();
        let time = options.run.duration.map(Duration::from_secs_f64);
        let tasks = rig.tasks(specs, time, |wanted, name| {
            let (replay, feeder) = setup::open_replay(bringup, wanted, name)?;
            feeders.push(feeder);
            Ok(replay)
        })?;
        match (options.search.rfc2544, specs) {
            // The tasks of all sizes were made to see that each can be.
            (Some(tests), [spec]) => {
                let eal = (bringup.eal.clock(), bringup.eal.stop_flag());
                let usual = Usual { rate: options.rate, duration: options.run.duration, wait: options.wait };
                Search::new(tests, &options.search, usual, (rig, spec.clone()), eal).map(Self::Search)
            }
            _ => Ok(Self::Streams { rig, tasks, feeders }),
        }
    }

    /// Until all is sent and what returns has been waited for, or until the program is to end.
    fn run(self, bringup: &mut Bringup, watch: &mut Watch<'_>, meter: &Meter, options: &Options) -> Done {
        let stop = bringup.eal.stop_flag();
        match self {
            Self::Streams { rig, tasks, feeders } => {
                let (streams, counters) = rig.begin(tasks);
                let wait = Duration::from_secs_f64(options.wait.unwrap_or(WAIT));
                let mut until: Option<Instant> = None;
                let end = watch.until_end_with(bringup, meter, || {
                    if until.is_none() && counters.iter().all(|task| task.ended.get() > 0) {
                        until = Some(Instant::now() + wait);
                    }
                    if until.is_some_and(|until| until <= Instant::now()) {
                        stop.set();
                    }
                    Vec::new()
                });
                Done { end, streams, feeders, report: None }
            }
            Self::Search(search) => {
                let mut report = search.report();
                let (lines, told) = mpsc::channel();
                let work = move |_: &_| {
                    let end = search.run(&mut report, |line| drop(lines.send(line)));
                    (end, report)
                };
                let thread = match bringup.eal.control_thread("rfc2544", work) {
                    Ok(thread) => thread,
                    Err(error) => {
                        return Done {
                            end: Err(error.into()),
                            streams: vec![],
                            feeders: vec![],
                            report: None,
                        };
                    }
                };
                let end = watch.until_end_with(bringup, meter, || {
                    // First: what it says last is not missed then.
                    let ended = thread.is_finished();
                    let lines = told.try_iter().collect();
                    if ended {
                        stop.set();
                    }
                    lines
                });
                stop.set();
                let (end, report) = match thread.wait() {
                    Ok((Err(End::Failed(error)), report)) => (end.and(Err(error)), Some(report)),
                    Ok((Ok(()) | Err(End::Stopped), report)) => (end, Some(report)),
                    Err(panicked) => (end.and(Err(panicked.into())), None),
                };
                Done { end, streams: Vec::new(), feeders: Vec::new(), report }
            }
        }
    }
}

/// Seconds for which returns are waited for.
const WAIT: f64 = 0.1;
