//! riostream: librdmacm's program of that name. The loop is in `apps/src/cm/riostream.rs`.

use std::process::ExitCode;

use pollux_apps::cm::riostream;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(riostream::run)
}
