//! srq_pingpong: rdma-core's `ibv_srq_pingpong`. The loop is in `apps/src/pingpong/shared.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_apps::pingpong::options::{Common, Paging, Path, Volume};
use pollux_apps::pingpong::shared::{self, Plan, QPS_MAX};
use pollux_bringup::program;
use pollux_kit::number::within;

/// srq_pingpong: messages to and fro over several reliable connections that share a receive queue. One end waits, the other names
/// it; rdma-core's ibv_srq_pingpong can be either.
#[derive(Parser)]
#[command(after_help = "The loop is one page: apps/src/pingpong/shared.rs.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    path: Path,
    /// Queue pairs
    #[arg(short = 'q', long, value_name = "N", default_value = "16", value_parser = |text: &str| within(text, 1, QPS_MAX))]
    num_qp: u64,
    /// Refused: paging on demand is absent
    #[arg(short = 'o', long)]
    odp: bool,
}

fn main() -> ExitCode {
    program::main(|line, options: Options| {
        let paging = Paging { odp: options.odp, ..Paging::default() };
        let common = options.common.clone();
        common.run(line, paging, move |lcore, device, appointment| {
            let plan = Plan {
                common: options.common,
                volume: options.volume,
                mtu: options.path.mtu,
                qps: options.num_qp,
            };
            shared::run(lcore, device, &plan, appointment)
        })
    })
}
