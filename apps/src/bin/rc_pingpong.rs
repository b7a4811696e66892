//! rc_pingpong: rdma-core's `ibv_rc_pingpong`. The loop is in `apps/src/pingpong/single.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_apps::pingpong::options::{Common, Paging, Path, Volume};
use pollux_apps::pingpong::single::{self, Plan};
use pollux_bringup::program;
use pollux_verbs::QpKind;

/// rc_pingpong: messages to and fro over a reliable connection. One end waits, the other names it; rdma-core's
/// ibv_rc_pingpong can be either.
#[derive(Parser)]
#[command(after_help = "The loop is one page: apps/src/pingpong/single.rs.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    path: Path,
    /// Read the device's time of each receive
    #[arg(short = 't', long)]
    ts: bool,
    /// Send from and receive into memory on the device
    #[arg(short = 'j', long)]
    dm: bool,
    /// Accepted: requests are always posted in batches
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
            };
            single::run(lcore, device, &plan, appointment, "rc_pingpong")
        })
    })
}
