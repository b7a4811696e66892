//! rc_pingpong: rdma-core's `ibv_rc_pingpong`. The loop is in `rdma-apps/src/pingpong/single.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::pingpong::options::{Common, Paging, Path, Volume};
use pollux_rdma_apps::pingpong::single::{self, Plan};
use pollux_verbs::QpKind;

/// rc_pingpong: ping-pong test over a reliable connection (RC). Start the server, then the client with the server's address.
/// Interoperates with rdma-core's ibv_rc_pingpong.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/pingpong/single.rs.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    path: Path,
    /// Read completion timestamps of the device
    #[arg(short = 't', long)]
    ts: bool,
    /// Use device memory for the message buffer
    #[arg(short = 'j', long)]
    dm: bool,
    /// No effect: WQEs are always posted in batches
    #[arg(short = 'N', long = "new_send")]
    new_send: bool,
    #[command(flatten)]
    paging: Paging,
}

fn main() -> ExitCode {
    program::main(|line, options: Options| {
        let common = options.common.clone();
        common.run(line, options.paging, move |lcore, device, appointment| {
            let plan = Plan {
                kind: QpKind::Rc,
                common: options.common,
                volume: options.volume,
                mtu: options.path.mtu,
                timestamps: options.ts,
                device_memory: options.dm,
                paging: options.paging,
            };
            single::run(lcore, device, &plan, appointment, "rc_pingpong")
        })
    })
}
