//! raw_ethernet_lat: perftest's program of that name. The steps are in `rdma-apps/src/perftest/raw/session.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::perftest::raw::options::RawOptions;
use pollux_rdma_apps::perftest::raw::session;
use pollux_rdma_apps::perftest::settings::Kind;

/// raw_ethernet_lat: raw Ethernet latency test. Start --server first, then --client. Interoperates with perftest's
/// raw_ethernet_lat.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/perftest/latency.rs.")]
struct RawEthernetLatency {
    #[command(flatten)]
    options: RawOptions,
}

fn main() -> ExitCode {
    program::main(|line, RawEthernetLatency { options }| session::run(Kind::Latency, line, options))
}
