//! rping: librdmacm's program of that name. The loop is in `apps/src/cm/rping.rs`.

use std::process::ExitCode;

use pollux_apps::cm::rping;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(rping::run)
}
