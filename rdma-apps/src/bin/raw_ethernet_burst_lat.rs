//! raw_ethernet_burst_lat: perftest's program of that name. The steps are in `rdma-apps/src/perftest/raw/session.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::perftest::raw::options::RawOptions;
use pollux_rdma_apps::perftest::raw::session;
use pollux_rdma_apps::perftest::settings::Kind;

/// raw_ethernet_burst_lat: raw Ethernet latency under load, in bursts of --burst_size at --rate_limit. Start --server first, then
/// --client. Interoperates with perftest's raw_ethernet_burst_lat.
#[derive(Parser)]
#[command(after_help = "The loops are one page: rdma-apps/src/perftest/raw/burst.rs.")]
struct RawEthernetBurstLatency {
    #[command(flatten)]
    options: RawOptions,
}

fn main() -> ExitCode {
    program::main(|line, RawEthernetBurstLatency { options }| {
        session::run(Kind::LatencyUnderLoad, line, options)
    })
}
