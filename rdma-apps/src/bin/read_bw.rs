//! read_bw: perftest's `ib_read_bw`. The steps are in `rdma-apps/src/perftest/session.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::perftest::options::Options;
use pollux_rdma_apps::perftest::session;
use pollux_rdma_apps::perftest::settings::{Kind, Test, Verb};

/// read_bw: RDMA read bandwidth test. Start the server, then the client with the server's address. Interoperates with
/// perftest's ib_read_bw.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/perftest/bandwidth.rs.")]
struct ReadBandwidth {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    program::main(|line, ReadBandwidth { options }| {
        session::run(Test { verb: Verb::Read, kind: Kind::Bandwidth }, line, options)
    })
}
