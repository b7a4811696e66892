//! rping: librdmacm's program of that name. The loop is in `rdma-apps/src/cm/rping.rs`.

use std::process::ExitCode;

use pollux_bringup::program;
use pollux_rdma_apps::cm::rping;

fn main() -> ExitCode {
    program::main(rping::run)
}
