//! ucmatose: librdmacm's program of that name. The loop is in `apps/src/cm/ucmatose.rs`.

use std::process::ExitCode;

use pollux_apps::cm::ucmatose;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(ucmatose::run)
}
