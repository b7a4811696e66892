//! l2fwd, for this package's tests to capture from.

use std::process::ExitCode;

use pollux_bringup::{Drivers, program};
use pollux_kit::l2fwd;

fn main() -> ExitCode {
    program::main(|line, options| l2fwd::run(line, options, Drivers::new()))
}
