//! cmtime: librdmacm's program of that name. All of it is in `apps/src/cm/cmtime.rs`.

use std::process::ExitCode;

use pollux_apps::cm::cmtime;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(cmtime::run)
}
