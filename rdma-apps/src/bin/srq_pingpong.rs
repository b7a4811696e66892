//! srq_pingpong: rdma-core's `ibv_srq_pingpong`. The loop is in `rdma-apps/src/pingpong/shared.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::number::within;
use pollux_rdma_apps::pingpong::options::{Common, Paging, Path, Volume};
use pollux_rdma_apps::pingpong::shared::{self, Plan, QPS_MAX};

/// srq_pingpong: ping-pong test over several RC QPs with one shared receive queue. Start the server, then the client with the
/// server's address. Interoperates with rdma-core's ibv_srq_pingpong.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/pingpong/shared.rs.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    path: Path,
    /// Number of QPs
    #[arg(short = 'q', long, value_name = "N", default_value = "16", value_parser = |text: &str| within(text, 1, QPS_MAX))]
    num_qp: u64,
    /// Register the message buffers on demand: their pages are not pinned (on-demand paging, ODP)
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
                paging,
            };
            shared::run(lcore, device, &plan, appointment)
        })
    })
}
