//! atomic_lat: perftest's `ib_atomic_lat`. The steps are in `rdma-apps/src/perftest/session.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::perftest::options::Options;
use pollux_rdma_apps::perftest::session;
use pollux_rdma_apps::perftest::settings::{Kind, Test, Verb};

/// atomic_lat: RDMA atomic latency test. Start the server, then the client with the server's address. Interoperates with
/// perftest's ib_atomic_lat.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/perftest/latency.rs.")]
struct AtomicLatency {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    program::main(|line, AtomicLatency { options }| {
        session::run(Test { verb: Verb::Atomic, kind: Kind::Latency }, line, options)
    })
}
