//! cmtime: librdmacm's program of that name. All of it is in `rdma-apps/src/cm/cmtime.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::cmtime;

fn main() -> ExitCode {
    program::main(cmtime::run)
}
