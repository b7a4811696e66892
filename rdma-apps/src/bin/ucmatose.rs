//! ucmatose: librdmacm's program of that name. The loop is in `rdma-apps/src/cm/ucmatose.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::ucmatose;

fn main() -> ExitCode {
    program::main(ucmatose::run)
}
