//! What testpmd prints, in DPDK's layout: its users' scripts and its test suite read it
//! (`app/test-pmd/{config,testpmd}.c`, `dts/api/testpmd/types.py`).

mod forward;
mod port;
mod queue;
mod rss;
mod stats;

use pollux_port::{Port, PortId};

use crate::ports::no_port;
use crate::session::Session;

pub use forward::{csum, rxtx, streams, txpkts};
pub use port::{device_info, macs, port_info, port_summary};
pub use queue::{offload_capabilities, offload_configuration, queue_info};
pub use rss::rss_hash;
pub use stats::{forward_stats, latency, nic_stats, xstats};

const INFO: &str = "*********************";

/// The port of that number.
fn port(session: &mut Session, id: u16) -> Result<&mut Port, String> {
    session.bringup.ports.get_mut(PortId(id)).ok_or_else(|| no_port(id))
}

fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
