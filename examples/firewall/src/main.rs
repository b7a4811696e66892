//! firewall: lets inner hosts open connections where rules allow it, and gives them another source address.
//!
//! ```text
//!   inner hosts ── port 0 ─► flow known? ── no ─► rules ─► new flow ─► source NAT ─► port 1 ── outer hosts
//!               ◄── port 0 ── known by the outer port it comes to, else dropped ◄── port 1 ──
//! ```
//!
//! Each lcore has a queue of both ports, the flows whose first packet RSS brought to it, and a share of the outer ports, so that
//! flows are nobody else's; what comes back to another lcore's queue goes over to the owner by a ring. TCP and UDP pass, and ARP,
//! in which the address of the NAT is answered; all else is dropped and counted, as later fragments and ICMP are.
//!
//! `--rules FILE` (`rules.rs` has its form) is read again when it changes, and what is under way is held against the new rules.
//! `/firewall/rules` of telemetry has packets and bytes by rule, `/firewall/lcores` flows and drops by lcore.

mod counts;
mod flows;
mod lane;
mod rules;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use counts::Counts;
use flows::Flows;
use lane::Lane;
use pollux::kit::{Meter, RunOptions, Watch, WatchedFile};
use pollux::prelude::*;
use pollux::ring::mpmc;
use rules::{LCORES, Rules};

/// Room in the ring of an lcore, in packets.
const HANDED: usize = 1024;

/// A stateful firewall with source NAT between two ports.
#[derive(clap::Parser)]
struct Options {
    /// Rules and the address of the NAT, in TOML; read again when it changes
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    #[command(flatten)]
    run: RunOptions,
}

fn main() -> ExitCode {
    program::main(run)
}

fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let mut watch = Watch::new("firewall", &options.run)?;
    let mut file = WatchedFile::new(&options.rules);
    let first = Rules::read(&mut file, None).map_err(BringupError::Usage)?;
    let (mut publisher, reader) = rcu::published(first);
    let mut bringup = Bringup::new(line)?;
    let ids = [PortId(0), PortId(1)];
    let lcores: Vec<_> = bringup.eal.lcores().dataplane().into_iter().take(LCORES).collect();
    let request = options.run.port_request(lcores.len()).queues(lcores.len() as u16).promiscuous(true);
    let (ports, _pool) = bringup.start_ports(&ids, &request)?;
    let mac = bringup.mac(ids[1])?;

    let rings = lcores.iter().map(|_| mpmc::ring(HANDED)).collect::<Result<Vec<_>, _>>();
    let rings = rings.map_err(|why| BringupError::Runtime(why.to_string()))?;
    let owners: Vec<_> = rings.iter().map(|(producer, _)| producer.clone()).collect();
    let mut ports = ports.into_iter().map(|port| port.rx.into_iter().zip(port.tx));
    let (Some(inner), Some(outer)) = (ports.next(), ports.next()) else { return Ok(()) };
    let (mut running, mut counts) = (Vec::new(), Vec::new());
    for ((place, (_, handed)), sides) in rings.into_iter().enumerate().zip(inner.zip(outer)) {
        let flows = Flows::new(place, lcores.len()).map_err(|why| BringupError::Runtime(why.to_string()))?;
        let (counted, clock) = (Arc::<Counts>::default(), bringup.eal.clock());
        counts.push(Arc::clone(&counted));
        let lane = Lane { place, mac, flows, counts: counted, clock, now: clock.now() };
        let (rings, rules) = ((owners.clone(), handed), reader.clone());
        running.push(bringup.eal.launch(lcores[place], |lcore| lane.run(lcore, sides.into(), rings, rules))?);
    }
    counts::serve(&bringup.eal, counts, reader)?;
    program::say(format_args!("firewall: forwarding on {} lcores", running.len()));

    let meter = Meter::of_ports(&ids);
    let end = watch.until_end_with(&mut bringup, &meter, || {
        if !file.has_changed() {
            return Vec::new();
        }
        match Rules::read(&mut file, Some(&publisher.newest())) {
            Ok(rules) => publisher.publish(rules),
            Err(why) => return vec![format!("firewall: {why}; the rules in force stay")],
        }
        vec!["firewall: rules taken over".into()]
    });
    bringup.eal.stop_flag().set();
    let end = running.into_iter().fold(end, |end, lane| end.and(lane.wait().map_err(BringupError::from)));
    end.and(watch.report(&meter.read(&bringup.view())))
}
