//! skeleton with a driver of its own: frames travel in UDP datagrams.
//!
//! Two of them are a cable between two shells, each with a null port behind it:
//!
//! ```text
//!   udp -l 0 --vdev net_udp0,local=127.0.0.1:4000,peer=127.0.0.1:4001 --vdev net_null0
//!   udp -l 1 --vdev net_udp0,local=127.0.0.1:4001,peer=127.0.0.1:4000 --vdev net_null0,no-rx=1
//! ```

#[path = "../../src/bin/skeleton/forward.rs"]
mod forward;
mod port;

use std::process::ExitCode;

use pollux::kit::{Meter, RunOptions, Watch, joined};
use pollux::prelude::*;
use port::{UdpOptions, UdpPort};

/// udp: a forwarder between the ports of each pair, with the driver net_udp.
#[derive(clap::Parser)]
struct Options {
    #[command(flatten)]
    run: RunOptions,
}

fn main() -> ExitCode {
    program::main(run)
}

fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let mut drivers = Drivers::new();
    drivers.add("net_udp", UdpOptions::read, UdpPort::open)?;
    let mut bringup = Bringup::with_drivers(line, drivers)?;

    let ids: Vec<PortId> = bringup.ports.iter().map(|port| port.id()).collect();
    if !ids.len().is_multiple_of(2) {
        return Err(BringupError::Usage(format!(
            "{} ports make no pairs: name one more or one less",
            ids.len()
        )));
    }
    let (queues, _pool) = bringup.start_ports(&ids, &options.run.port_request(1))?;
    let main = bringup.eal.lcores().main();
    let forwarding = bringup.eal.launch(main, move |lcore| forward::run(lcore, queues))?;

    let meter = Meter::of_ports(&ids);
    let watch = Watch { app: "udp", options: &options.run, period: None };
    let end = watch.until_end(&mut bringup, &meter);
    bringup.eal.stop_flag().set();
    let end = end.and(joined(forwarding));
    end.and(watch.report(&meter.read(&mut bringup)))
}
