//! rdma_client: librdmacm's program of that name. All of it is in `apps/src/cm/rdma_client.rs`.

use std::process::ExitCode;

use pollux_apps::cm::rdma_client;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(rdma_client::run)
}
