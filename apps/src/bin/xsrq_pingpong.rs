//! xsrq_pingpong: rdma-core's `ibv_xsrq_pingpong`. The loop is in `apps/src/pingpong/xrc.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_apps::pingpong::options::{Common, Paging, Path};
use pollux_apps::pingpong::xrc::{self, Plan};
use pollux_bringup::program;
use pollux_kit::number::within;

/// xsrq_pingpong: messages to and fro over extended reliable connections (XRC), into a receive queue that the sender names. One end
/// waits, the others name it; rdma-core's ibv_xsrq_pingpong can be any of them.
#[derive(Parser)]
#[command(after_help = "The loop is one page: apps/src/pingpong/xrc.rs.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    path: Path,
    /// Clients to wait for, at the server
    #[arg(short = 'c', long, value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 1024))]
    clients: u64,
    /// Messages to each client
    #[arg(short = 'n', long = "num_tests", value_name = "N", default_value = "5", value_parser = |text: &str| within(text, 1, 1 << 20))]
    tests: u64,
    /// Refused: paging on demand is absent
    #[arg(short = 'o', long)]
    odp: bool,
}

fn main() -> ExitCode {
    program::main(|line, options: Options| {
        let paging = Paging { odp: options.odp, ..Paging::default() };
        let common = options.common.clone();
        common.run(line, paging, move |lcore, device, appointment| {
            let clients = if options.common.host.is_some() { 1 } else { options.clients };
            let plan = Plan { common: options.common, mtu: options.path.mtu, clients, tests: options.tests };
            xrc::run(lcore, device, &plan, appointment)
        })
    })
}
