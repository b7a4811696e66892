//! riostream: librdmacm's program of that name. The loop is in `rdma-apps/src/cm/riostream.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::riostream;

fn main() -> ExitCode {
    program::main(riostream::run)
}
