//! testpmd: DPDK's packet forwarding test application.

use std::process::ExitCode;

use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(pollux_testpmd::run)
}
