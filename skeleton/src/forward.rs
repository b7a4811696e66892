//! skeleton's loop.

use pollux::prelude::*;

/// Forwards between the ports of each pair until asked to stop.
pub(crate) fn run(lcore: &LcoreContext, mut ports: Vec<Queues>) {
    let mut burst = Burst::new();
    while !lcore.stop_requested() {
        for port in 0..ports.len() {
            let peer = port ^ 1;
            ports[port].rx[0].rx_burst(&mut burst, 32);
            ports[peer].tx[0].tx_burst(&mut burst);
            // What the peer had no room for goes back to its pool.
            burst.clear();
        }
    }
}
