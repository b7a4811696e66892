//! What the lanes are launched for: to send streams once, to measure a device, or to do as clients say.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, BringupError};
use pollux_kit::{Meter, Watch};

use crate::options::Options;
use crate::remote::{Remote, Served};
use crate::replay::Feeder;
use crate::report::Reported;
use crate::rfc2544::{End, Report, Search, Usual};
use crate::setup::{self, Rig, Tasks};
use crate::spec::StreamSpec;

/// Seconds for which returns are waited for.
const WAIT: f64 = 0.1;

/// What is to be done, ready to begin.
pub(crate) enum Job {
    /// Streams are sent, once.
    Streams { rig: Rig, tasks: Tasks, feeders: Vec<Feeder> },
    /// A device is measured, trial by trial.
    Search(Search),
    /// Clients say what is sent, and when.
    Remote(Remote),
}

/// What is left of a job.
pub(crate) struct Done {
    pub(crate) end: Result<(), BringupError>,
    pub(crate) streams: Vec<Reported>,
    pub(crate) feeders: Vec<Feeder>,
    pub(crate) report: Option<Report>,
}

impl From<Result<(), BringupError>> for Done {
    fn from(end: Result<(), BringupError>) -> Self {
        Self { end, streams: Vec::new(), feeders: Vec::new(), report: None }
    }
}

impl Job {
    pub(crate) fn new(
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
            _ if options.rpc => Remote::new(&bringup.eal, rig, specs.to_vec(), time).map(Self::Remote),
            _ => Ok(Self::Streams { rig, tasks, feeders }),
        }
    }

    /// Until all is sent and what returns has been waited for, or until the program is to end.
    pub(crate) fn run(
        self,
        bringup: &mut Bringup,
        watch: &mut Watch<'_>,
        meter: &Meter,
        options: &Options,
    ) -> Done {
        match self {
            Self::Streams { rig, tasks, feeders } => {
                let stop = bringup.eal.stop_flag();
                let running = rig.begin(tasks);
                let wait = Duration::from_secs_f64(options.wait.unwrap_or(WAIT));
                let mut until: Option<Instant> = None;
                let end = watch.until_end_with(bringup, meter, || {
                    if until.is_none() && running.has_ended() {
                        until = Some(Instant::now() + wait);
                    }
                    if until.is_some_and(|until| until <= Instant::now()) {
                        stop.set();
                    }
                    Vec::new()
                });
                Done { streams: running.streams, feeders, ..Done::from(end) }
            }
            Self::Search(search) => measure(search, bringup, watch, meter),
            Self::Remote(remote) => match remote.serve(&bringup.eal) {
                Ok(served) => serve(served, bringup, watch, meter),
                Err(error) => Err(error).into(),
            },
        }
    }
}

/// Trials on a thread of their own, beside the control thread.
fn measure(search: Search, bringup: &mut Bringup, watch: &mut Watch<'_>, meter: &Meter) -> Done {
    let stop = bringup.eal.stop_flag();
    let mut report = search.report();
    let (lines, told) = mpsc::channel();
    let thread = bringup.eal.control_thread("rfc2544", move |_| {
        let end = search.run(&mut report, |line| drop(lines.send(line)));
        (end, report)
    });
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => return Err(error.into()).into(),
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
    match thread.wait() {
        Ok((Err(End::Failed(error)), report)) => {
            Done { report: Some(report), ..Done::from(end.and(Err(error))) }
        }
        Ok((Ok(()) | Err(End::Stopped), report)) => Done { report: Some(report), ..Done::from(end) },
        Err(panicked) => end.and(Err(panicked.into())).into(),
    }
}

/// As clients say, until the program is to end.
fn serve(served: Served, bringup: &mut Bringup, watch: &mut Watch<'_>, meter: &Meter) -> Done {
    let end = watch.until_end(bringup, meter);
    match served.end() {
        Ok(streams) => Done { streams, ..Done::from(end) },
        Err(error) => end.and(Err(error)).into(),
    }
}
