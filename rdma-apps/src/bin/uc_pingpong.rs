//! uc_pingpong: rdma-core's `ibv_uc_pingpong`. The loop is in `rdma-apps/src/pingpong/single.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::pingpong::options::{Common, Paging, Path, Volume};
use pollux_rdma_apps::pingpong::single::{self, Plan};
use pollux_verbs::QpKind;

/// uc_pingpong: ping-pong test over an unreliable connection (UC). Start the server, then the client with the server's address.
/// Interoperates with rdma-core's ibv_uc_pingpong.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/pingpong/single.rs.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    path: Path,
}

fn main() -> ExitCode {
    program::main(|line, options: Options| {
        let common = options.common.clone();
        common.run(line, Paging::default(), move |lcore, device, appointment| {
            let plan = Plan {
                kind: QpKind::Uc,
                common: options.common,
                volume: options.volume,
                mtu: options.path.mtu,
                timestamps: false,
                device_memory: false,
                paging: Paging::default(),
            };
            single::run(lcore, device, &plan, appointment, "uc_pingpong")
        })
    })
}
