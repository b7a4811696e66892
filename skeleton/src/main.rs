//! skeleton: the smallest forwarder; read this first.
//!
//! Ports 0 and 1 are a pair, 2 and 3 the next one: what one port of a pair receives, the other one sends. One lcore does
//! it all, until Ctrl-C or `--duration`. The loop is in `forward.rs`.

mod forward;

use std::process::ExitCode;

use pollux::kit::{Meter, RunOptions, Watch};
use pollux::prelude::*;

/// skeleton: the minimal forwarder. Sends what one port of a pair receives out of the other one.
#[derive(clap::Parser)]
#[command(after_help = "The loop is a screen long: skeleton/src/forward.rs.")]
struct Options {
    #[command(flatten)]
    run: RunOptions,
}

fn main() -> ExitCode {
    program::main(run)
}

fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let mut watch = Watch::new("skeleton", &options.run)?;
    // Threads, memory and ports; then one rx and one tx queue of each port, filled from one pool.
    let mut bringup = Bringup::new(line)?;
    let ids: Vec<PortId> = bringup.ports.iter().map(|port| port.id()).collect();
    if !ids.len().is_multiple_of(2) {
        return Err(BringupError::Usage(format!(
            "odd number of ports ({}), but ports are forwarded in pairs: add or remove one",
            ids.len()
        )));
    }
    let (queues, _pool) = bringup.start_ports(&ids, &options.run.port_request(1))?;

    // The queues are values: they move to the lcore that polls them, and nobody else can.
    let main = bringup.eal.lcores().main();
    let forwarding = bringup.eal.launch(main, move |lcore| forward::run(lcore, queues))?;

    // This thread only waits, for the duration or a signal, and reports.
    let meter = Meter::of_ports(&ids);
    let end = watch.until_end(&mut bringup, &meter);
    bringup.eal.stop_flag().set();
    let end = end.and(forwarding.wait().map_err(BringupError::from));
    end.and(watch.report(&meter.read(&bringup.view())))
}
