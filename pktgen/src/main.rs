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
//! varies), `shape`, `stream` (packets in bursts); `rate`, `schedule`, `gaps`; `stamp`, `tracker`; `replay`; `answer`; `lane`, `task`; `profile`, `options`, `setup`; `rfc2544`, `remote`; `job`.

#![forbid(unsafe_code)]

mod answer;
mod count;
mod edit;
mod frame;
mod gaps;
mod job;
mod lane;
mod layer;
mod options;
mod packet;
mod profile;
mod rate;
mod remote;
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

use pollux_bringup::program::{self, say};
use pollux_bringup::{Bringup, BringupError};
use pollux_config::CommandLine;
use pollux_kit::rounds::go_round;
use pollux_kit::{Console, IdlePolicy, Meter, RunOptions, Watch};

use crate::job::{Done, Job};
use crate::options::Options;
use crate::rfc2544::Files;
use crate::setup::{Launch, Rig};

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
