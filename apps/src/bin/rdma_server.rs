//! rdma_server: librdmacm's program of that name. All of it is in `apps/src/cm/rdma_server.rs`.

use std::process::ExitCode;

use pollux_apps::cm::rdma_server;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(rdma_server::run)
}
