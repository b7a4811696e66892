//! l2fwd: forwards Ethernet frames between pairs of ports.

use std::process::ExitCode;

use pollux_bringup::{Drivers, program};
use pollux_kit::l2fwd;

fn main() -> ExitCode {
    program::main(|line, options| l2fwd::run(line, options, Drivers::new()))
}
