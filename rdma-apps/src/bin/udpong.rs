//! udpong: librdmacm's program of that name. The loop is in `rdma-apps/src/cm/udpong.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::udpong;

fn main() -> ExitCode {
    program::main(udpong::run)
}
