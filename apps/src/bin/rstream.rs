//! rstream: librdmacm's program of that name. The loop is in `apps/src/cm/rstream.rs`.

use std::process::ExitCode;

use pollux_apps::cm::rstream;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(rstream::run)
}
