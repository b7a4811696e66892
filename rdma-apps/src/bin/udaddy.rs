//! udaddy: librdmacm's program of that name. The loop is in `rdma-apps/src/cm/udaddy.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::udaddy;

fn main() -> ExitCode {
    program::main(udaddy::run)
}
