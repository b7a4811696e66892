//! xsrq_pingpong: rdma-core's `ibv_xsrq_pingpong`. The loop is in `rdma-apps/src/pingpong/xrc.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::number::within;
use pollux_rdma_apps::pingpong::options::{Common, Paging, Path};
use pollux_rdma_apps::pingpong::xrc::{self, Plan};

/// xsrq_pingpong: ping-pong test over extended reliable connections (XRC). Start the server, then each client with the server's
/// address. Interoperates with rdma-core's ibv_xsrq_pingpong.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/pingpong/xrc.rs.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    path: Path,
    /// Number of clients the server waits for
    #[arg(short = 'c', long, value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 1024))]
    clients: u64,
    /// Number of messages to each client
    #[arg(short = 'n', long = "num_tests", value_name = "N", default_value = "5", value_parser = |text: &str| within(text, 1, 1 << 20))]
    tests: u64,
    /// Register the message buffers on demand: their pages are not pinned (on-demand paging, ODP)
    #[arg(short = 'o', long)]
    odp: bool,
}

fn main() -> ExitCode {
    program::main(|line, options: Options| {
        let paging = Paging { odp: options.odp, ..Paging::default() };
        let common = options.common.clone();
        common.run(line, paging, move |lcore, device, appointment| {
            let clients = if options.common.host.is_some() { 1 } else { options.clients };
            let plan =
                Plan { common: options.common, mtu: options.path.mtu, clients, tests: options.tests, paging };
            xrc::run(lcore, device, &plan, appointment)
        })
    })
}
