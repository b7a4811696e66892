//! ud_pingpong: rdma-core's `ibv_ud_pingpong`. The loop is in `rdma-apps/src/pingpong/single.rs`.

use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program;
use pollux_rdma_apps::pingpong::options::{Common, Paging, Volume};
use pollux_rdma_apps::pingpong::single::{self, Plan};
use pollux_verbs::{Mtu, QpKind};

/// ud_pingpong: ping-pong test over unreliable datagrams (UD). Start the server, then the client with the server's address.
/// Interoperates with rdma-core's ibv_ud_pingpong.
#[derive(Parser)]
#[command(after_help = "The loop is one page: rdma-apps/src/pingpong/single.rs.")]
struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    volume: Volume,
}

fn main() -> ExitCode {
    program::main(|line, options: Options| {
        let common = options.common.clone();
        common.run(line, Paging::default(), move |lcore, device, appointment| {
            let plan = Plan {
                kind: QpKind::Ud,
                common: options.common,
                volume: options.volume,
                // The port's: a datagram is one packet.
                mtu: Mtu::Bytes4096,
                timestamps: false,
                device_memory: false,
                paging: Paging::default(),
            };
            single::run(lcore, device, &plan, appointment, "ud_pingpong")
        })
    })
}
