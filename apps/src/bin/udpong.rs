//! udpong: librdmacm's program of that name. The loop is in `apps/src/cm/udpong.rs`.

use std::process::ExitCode;

use pollux_apps::cm::udpong;
use pollux_bringup::program;

fn main() -> ExitCode {
    program::main(udpong::run)
}
