//! l2fwd with a driver of its own: frames travel in UDP datagrams.
//!
//! Two of them are a cable between two shells, each with a null port behind it:
//!
//! ```text
//!   net_udp -l 0 --vdev net_udp0,local=127.0.0.1:4000,peer=127.0.0.1:4001 --vdev net_null0
//!   net_udp -l 1 --vdev net_udp0,local=127.0.0.1:4001,peer=127.0.0.1:4000 --vdev net_null0,no-rx=1
//! ```

use std::process::ExitCode;

use pollux::kit::l2fwd;
use pollux::prelude::*;

fn main() -> ExitCode {
    program::main(|line, options| l2fwd::run(line, options, net_udp::drivers()?))
}
