//! mckey: librdmacm's program of that name. The loop is in `rdma-apps/src/cm/mckey.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::mckey;

fn main() -> ExitCode {
    program::main(mckey::run)
}
