//! udaddy: librdmacm's program of that name. The loop is in `apps/src/cm/udaddy.rs`.

use std::process::ExitCode;

use pollux_apps::cm::udaddy;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(udaddy::run)
}
