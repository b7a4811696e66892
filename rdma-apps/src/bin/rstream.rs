//! rstream: librdmacm's program of that name. The loop is in `rdma-apps/src/cm/rstream.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::rstream;

fn main() -> ExitCode {
    program::main(rstream::run)
}
