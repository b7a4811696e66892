//! forward_and_serve: packets and RDMA in one process, on one port.
//!
//! Ports are paired as l2fwd pairs them, and l2fwd's loop forwards on the main lcore. Another lcore waits for a client of perftest,
//! such as `read_bw`, and lends it memory of this process through the first port; what the client reads and writes there is the
//! device's work, beside the packets. Both have their memory of the same EAL, one report and one end.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use pollux_bringup::program::{self, say};
use pollux_bringup::{Bringup, BringupError, RdmaDevice};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_eal::clock::Nanos;
use pollux_kit::forward::{self, Edit, Path};
use pollux_kit::pairs::hops;
use pollux_kit::{Counted, Meter, RunOptions, Watch};
use pollux_port::PortId;
use pollux_rdma_apps::number::{size, within};
use pollux_rdma_apps::perftest::options::Options as TestOptions;
use pollux_rdma_apps::perftest::session;
use pollux_rdma_apps::perftest::settings::{Kind, Settings, Test, Verb};
use pollux_rdma_apps::rdma::{Appointment, Failure};

/// How long a burst waits for a full destination.
const PATIENCE: Nanos = Nanos(10_000_000);

/// forward_and_serve: forwards packets between ports and, on the first of the same ports, serves RDMA clients (read_bw or write_bw)
/// from memory of this process.
#[derive(Parser)]
#[command(after_help = "The loop is l2fwd's: kit/src/forward.rs. Needs two lcores: -l 0,1.")]
struct Options {
    /// RDMA operation of the clients: read or write
    #[arg(long, value_name = "WHAT", default_value = "read")]
    serve: Serve,
    /// Message size of the clients (their -s), in bytes
    #[arg(short = 's', long, value_name = "BYTES", default_value = "65536", value_parser = size)]
    size: u64,
    /// TCP port to listen on for clients
    #[arg(short = 'p', long, value_name = "PORT", default_value = "18515", value_parser = |text: &str| within(text, 1, 65535))]
    port: u64,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum Serve {
    Read,
    Write,
}

fn main() -> ExitCode {
    program::main(run)
}

fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let mut watch = Watch::new("forward_and_serve", &options.run)?.every(Some(Duration::from_secs(10)));
    let mut bringup = Bringup::new(line)?;
    let lcores = bringup.eal.lcores().dataplane();
    let [forwarder, server, ..] = lcores[..] else {
        return Err(BringupError::Usage(
            "two lcores are required, one to forward and one to serve: give -l 0,1".into(),
        ));
    };
    let names: Vec<String> = bringup.ports.iter_all().map(|port| port.name().to_owned()).collect();
    let (hops, _) = hops(&names, None, None).map_err(BringupError::Usage)?;
    let ids: Vec<PortId> = hops.iter().map(|hop| PortId(hop.from)).collect();
    let device = bringup.rdma(ids[0])?;

    // Clients of the RDMA device find it by its kernel.
    let request = options.run.port_request(1).promiscuous(true).neighbours_by_kernel(true);
    let (queues, _pool) = bringup.start_ports(&ids, &request)?;
    let paths = forward::paths(&hops, queues, PATIENCE, |_| Ok(Edit::Keep))?;
    let counted = paths.iter().map(|(path, hop)| Counted {
        from: PortId(hop.from),
        queue: path.queue(),
        to: PortId(hop.to),
        lcore: forwarder,
        counters: path.lost(),
    });
    let meter = Meter::new(counted.collect());
    let mut paths: Vec<Path> = paths.into_iter().map(|(path, _)| path).collect();
    let settings = settings(&options)?;
    let appointment = session::appointment(&settings);
    // A port that is taken is told before anything is forwarded.
    if let Err(failure) = appointment.listen() {
        return failure.end();
    }
    let forwarding = bringup.eal.launch(forwarder, move |lcore| forward::run(lcore, &mut paths))?;
    let name = device.name.clone();
    let serving = bringup.eal.launch(server, move |lcore| serve(lcore, &device, &settings, &appointment))?;
    say(format_args!(
        "forward_and_serve: forwarding on lcore {forwarder}, serving clients of {name} on TCP port {}",
        options.port
    ));

    let end = watch.until_end(&mut bringup, &meter);
    bringup.eal.stop_flag().set();
    let (forwarding, serving) = (forwarding.wait(), serving.wait());
    let end = end.and(forwarding.map_err(BringupError::from)).and(serving.map_err(BringupError::from));
    end.and(watch.report(&meter.read(&bringup.view())))
}

fn settings(options: &Options) -> Result<Settings, BringupError> {
    let verb = match options.serve {
        Serve::Read => Verb::Read,
        Serve::Write => Verb::Write,
    };
    let options = TestOptions { port: options.port, size: Some(options.size), ..TestOptions::usual() };
    Settings::new(Test { verb, kind: Kind::Bandwidth }, options).map_err(BringupError::Usage)
}

/// One client after the other, until told to stop. One that fails is told of, and the next may come.
fn serve(lcore: &LcoreContext, device: &RdmaDevice, settings: &Settings, appointment: &Appointment) {
    while !lcore.stop_requested() {
        match session::serve(lcore, device, settings.clone(), appointment) {
            Ok(results) => say(format_args!(
                "forward_and_serve: served a client: {} messages of {} bytes, {:.2} MiB/s",
                results.iterations, results.size, results.average
            )),
            Err(Failure::Stopped) => {}
            Err(Failure::Error(line) | Failure::Peer(line) | Failure::Usage(line)) => {
                say(format_args!("forward_and_serve: {line}"));
                // What the device refuses now it may refuse again.
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
}
