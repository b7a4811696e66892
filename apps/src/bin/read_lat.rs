//! read_lat: perftest's `ib_read_lat`. The steps are in `apps/src/perftest/session.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_apps::perftest::options::Options;
use pollux_apps::perftest::session;
use pollux_apps::perftest::settings::{Kind, Test, Verb};
use pollux_bringup::program;

/// read_lat: how soon, of reads out of the other end's memory. One end waits, the other names it; perftest's ib_read_lat can be either.
#[derive(Parser)]
#[command(after_help = "The loop is one page: apps/src/perftest/latency.rs.")]
struct ReadLatency {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    program::main(|line, ReadLatency { options }| {
        session::run(Test { verb: Verb::Read, kind: Kind::Latency }, line, options)
    })
}
