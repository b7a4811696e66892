//! rdma_client: librdmacm's program of that name. All of it is in `rdma-apps/src/cm/rdma_client.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::rdma_client;

fn main() -> ExitCode {
    program::main(rdma_client::run)
}
