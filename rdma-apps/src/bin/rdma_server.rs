//! rdma_server: librdmacm's program of that name. All of it is in `rdma-apps/src/cm/rdma_server.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::rdma_server;

fn main() -> ExitCode {
    program::main(rdma_server::run)
}
