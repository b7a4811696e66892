//! write_bw: perftest's `ib_write_bw`. The steps are in `rdma-apps/src/perftest/session.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::perftest::options::Options;
use pollux_rdma_apps::perftest::session;
use pollux_rdma_apps::perftest::settings::{Kind, Test, Verb};

/// write_bw: RDMA write bandwidth test. Start the server, then the client with the server's address. Interoperates with
/// perftest's ib_write_bw.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/perftest/bandwidth.rs.")]
struct WriteBandwidth {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    program::main(|line, WriteBandwidth { options }| {
        session::run(Test { verb: Verb::Write, kind: Kind::Bandwidth }, line, options)
    })
}
