//! l2fwd: forwards Ethernet frames between pairs of ports. The program `l2fwd` is [`run`] with the drivers that there are; a program with
//! drivers of its own is `run` with those.

use std::os::fd::AsFd;
use std::time::Duration;

use clap::Parser;
use pollux_bringup::program::say;
use pollux_bringup::{Bringup, BringupError, Drivers, PortRequest};
use pollux_config::CommandLine;
use pollux_eal::clock::Nanos;
use pollux_eal::lcore::LcoreId;
use pollux_mempool::{Burst, MbufPool};
use pollux_port::PortId;

use crate::forward::{self, BURST, Edit, Path, paths};
use crate::number::at_least_one;
use crate::pairs::{Hop, PortMap, PortMask, deal, hops};
use crate::{Counted, IdleOptions, IdlePolicy, Meter, RunOptions, Watch};

/// How long a burst waits for a full destination before it is let go. Meanwhile the source's own queue fills. Longer than the
/// thread of a device model waits for a core that it shares with an lcore: some milliseconds on an idle machine, above 10 at
/// the start, when that thread has had the core to itself and others come first, or beside other programs.
const PATIENCE: Nanos = Nanos(100_000_000);

/// l2fwd: forwards Ethernet frames in bursts between pairs of ports.
#[derive(Parser, Debug)]
#[command(after_help = "The loop is one page: kit/src/forward.rs.")]
pub struct Options {
    /// Hexadecimal bitmask of the ports to use: 3 is ports 0 and 1 [default: all]
    #[arg(short = 'p', long, value_name = "PORTMASK")]
    portmask: Option<PortMask>,
    /// Enable promiscuous mode
    #[arg(short = 'P', long)]
    promiscuous: bool,
    /// Maximum number of rx queues per lcore [default: spread over all lcores]
    #[arg(short = 'q', long, value_name = "NQ", value_parser = at_least_one)]
    queues_per_lcore: Option<usize>,
    /// Statistics period in seconds, 0 to 86400; 0 prints only the final table
    #[arg(short = 'T', long, value_name = "PERIOD", default_value = "10", value_parser = period)]
    period: u32,
    /// Port pairs to forward between: (0,1),(2,3) [default: adjacent ports]
    #[arg(long, value_name = "PAIRS")]
    portmap: Option<PortMap>,
    /// Disable MAC address updating
    #[arg(long)]
    no_mac_updating: bool,
    /// Enable MAC address updating (the default)
    #[arg(long, conflicts_with = "no_mac_updating", hide = true)]
    mac_updating: bool,
    /// Send N bursts of 64-byte frames from each port at start, to fill ports that are looped back
    #[arg(long, value_name = "N", value_parser = bursts)]
    prime: Option<usize>,
    /// Rx queues per port, filled by RSS [default: from the profile, else 1]
    #[arg(long, value_name = "N", value_parser = queues)]
    rxq: Option<u16>,
    /// Tx queues per port [default: same as --rxq, else from the profile, else 1]
    #[arg(long, value_name = "N", value_parser = queues)]
    txq: Option<u16>,
    #[command(flatten)]
    idle: IdleOptions,
    #[command(flatten)]
    run: RunOptions,
}

impl Options {
    /// What they ask of the ports.
    fn request(&self) -> PortRequest {
        let mut request = self.run.port_request(1).rx_interrupts_where_supported(self.idle.sleeps());
        if self.promiscuous {
            request = request.promiscuous(true);
        }
        if let Some(count) = self.rxq {
            request = request.queues(count);
        }
        match self.txq {
            Some(count) => request.tx_queues(count),
            None => request,
        }
    }
}

fn queues(text: &str) -> Result<u16, String> {
    let count = text.parse().ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| "is not a whole number from 1 to 1024".into())
}

fn period(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= 86_400);
    seconds.ok_or_else(|| "is not a whole number of seconds from 0 to 86400".into())
}

/// More than the longest ring holds would count as sent before the clock starts.
fn bursts(text: &str) -> Result<usize, String> {
    let bursts = text.parse().ok().filter(|bursts| (1..=1024).contains(bursts));
    bursts.ok_or_else(|| "is not a whole number from 1 to 1024".into())
}

/// Forwards between the ports of the command line until the end, and prints the table or the report.
///
/// # Errors
/// What was typed wrongly, and what went wrong while running: [`program::main`](pollux_bringup::program::main) turns it into one line and an
/// exit code.
pub fn run(line: &CommandLine, options: Options, drivers: Drivers) -> Result<(), BringupError> {
    let period = (options.period > 0).then(|| Duration::from_secs(options.period.into()));
    let mut watch = Watch::new("l2fwd", &options.run)?.every(period);
    let mut bringup = Bringup::with_drivers(line, drivers)?;
    // By number, whoever owns them.
    let names: Vec<String> = bringup.ports.iter_all().map(|port| port.name().to_owned()).collect();
    let devices: Vec<Option<String>> = bringup.ports.iter_all().map(|port| port.info().device).collect();
    let (hops, notice) =
        hops(&names, options.portmask, options.portmap.as_ref()).map_err(BringupError::Usage)?;
    let ids: Vec<PortId> = hops.iter().map(|hop| PortId(hop.from)).collect();
    let request = options.request();
    let queues =
        ids.iter().map(|&id| Ok(usize::from(request.queues_of(&bringup.spec(id)?.queues).rx_queues)));
    let queues = queues.sum::<Result<usize, BringupError>>()?;
    let lcores = bringup.eal.lcores().dataplane();
    let shares = deal(queues, lcores.len(), options.queues_per_lcore).map_err(BringupError::Usage)?;

    let request = options.request().lcores(shares.len());
    let (queues, pool) = bringup.start_ports(&ids, &request)?;
    if let Some(notice) = notice {
        say(format_args!("l2fwd: {notice}"));
    }
    let mut paths = paths(&hops, queues, PATIENCE, |hop| match options.no_mac_updating {
        true => Ok(Edit::Keep),
        false => Ok(Edit::l2fwd(hop.to, bringup.mac(PortId(hop.to))?)),
    })?;
    for port in bringup.ports.iter().filter(|port| ids.contains(&port.id())) {
        if let Some(notice) = options.idle.notice(port) {
            say(format_args!("l2fwd: {notice}"));
        }
    }
    for (path, _) in &mut paths {
        prime(path, &pool, options.prime.unwrap_or(0));
    }

    // Each lcore takes its share of the paths.
    let stop = bringup.eal.stop_flag();
    let mut counted = Vec::new();
    let mut launched = Vec::new();
    let mut rest = paths.into_iter();
    for (&lcore, share) in lcores.iter().zip(shares) {
        let mut own = Vec::new();
        for (path, hop) in rest.by_ref().take(share) {
            say_path(&names, &devices, hop, lcore);
            counted.push(Counted {
                from: PortId(hop.from),
                queue: path.queue(),
                to: PortId(hop.to),
                lcore,
                counters: path.lost(),
            });
            own.push(path);
        }
        let idle = options.idle.policy(bringup.eal.clock(), &[stop.as_fd()], own.iter().map(Path::rx))?;
        launched.push(bringup.eal.launch(lcore, move |lcore| match idle {
            IdlePolicy::Poll => forward::run(lcore, &mut own),
            mut idle => forward::run_with(lcore, &mut own, &mut (), &mut idle),
        })?);
    }
    say(format_args!(
        "l2fwd: forwarding on {} of {} lcores; press Ctrl-C to stop",
        launched.len(),
        lcores.len()
    ));

    let meter = Meter::new(counted);
    let end = watch.until_end(&mut bringup, &meter);
    stop.set();
    let end =
        launched.into_iter().fold(end, |end, launched| end.and(launched.wait().map_err(BringupError::from)));
    end.and(watch.report(&meter.read(&bringup.view())))
}

/// Sends frames of the local experimental EtherType (IEEE 802: 0x88b5) to nobody in particular.
fn prime(path: &mut Path, pool: &MbufPool, bursts: usize) {
    for _ in 0..bursts {
        let mut burst = Burst::new();
        pool.alloc_up_to(&mut burst, BURST);
        for mbuf in &mut burst {
            if let Some(frame) = mbuf.append(64) {
                frame.fill(0);
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            }
        }
        path.send(&mut burst);
    }
}

fn say_path(names: &[String], devices: &[Option<String>], hop: Hop, lcore: LcoreId) {
    let name = |port: u16| {
        let device = devices[usize::from(port)].as_ref().map(|device| format!(" ({device})"));
        format!("port {port} {}{}", names[usize::from(port)], device.unwrap_or_default())
    };
    say(format_args!("l2fwd: lcore {lcore}: {} to {}", name(hop.from), name(hop.to)));
}
