//! mckey: librdmacm's program of that name. The loop is in `apps/src/cm/mckey.rs`.

use std::process::ExitCode;

use pollux_apps::cm::mckey;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(mckey::run)
}
