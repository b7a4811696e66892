//! firewall_nat: drops by 5-tuple rules, which may change while it runs, and gives inner hosts another source address.
//!
//! ```text
//!   inner hosts ── port 0 ── rules, NAT ── port 1 ── outer hosts        each lcore has a queue of both ports
//! ```
//!
//! What an inner host sends over TCP or UDP leaves with the address of `--nat`, and answers come back; ARP passes, and who asks for
//! the address of `--nat` is told. `--rules FILE` has a rule a line (`rules.rs`), and is read again when it changes.

mod nat;
mod rules;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use nat::Nat;
use pollux::kit::WatchedFile;
use pollux::prelude::*;
use rules::Rules;

/// Drops packets by rules and translates the source addresses of inner hosts.
#[derive(clap::Parser)]
struct Options {
    /// Address under which outer hosts see the inner ones
    #[arg(long, value_name = "ADDRESS")]
    nat: Ipv4Addr,
    /// Rules, one a line: drop PROTOCOL SOURCE PORT DESTINATION PORT, each of which may be *
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
}

fn main() -> ExitCode {
    program::main(run)
}

fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let mut file = WatchedFile::new(&options.rules);
    let (mut publisher, reader) = rcu::published(Rules::read(&mut file).map_err(BringupError::Usage)?);
    let mut bringup = Bringup::new(line)?;
    let ids = [PortId(0), PortId(1)];
    let lcores = bringup.eal.lcores().dataplane();
    let count = lcores.len();
    let request = PortRequest::new().lcores(count).queues(count as u16).promiscuous(true);
    let (ports, _pool) = bringup.start_ports(&ids, &request)?;
    let nat = Arc::new(Nat::new(options.nat, bringup.mac(ids[1])?.0));

    let mut ports = ports.into_iter().map(|port| port.rx.into_iter().zip(port.tx));
    let (Some(inner), Some(outer)) = (ports.next(), ports.next()) else { return Ok(()) };
    let mut running = Vec::new();
    for (&lcore, (inner, outer)) in lcores.iter().zip(inner.zip(outer)) {
        let (reader, nat) = (reader.clone(), Arc::clone(&nat));
        running.push(bringup.eal.launch(lcore, move |lcore| forward(lcore, [inner, outer], reader, &nat))?);
    }
    drop(reader);
    program::say(format_args!("firewall_nat: forwarding on {count} lcores"));

    while !bringup.eal.stop_flag().wait(Duration::from_millis(100)) {
        if file.has_changed() {
            match Rules::read(&mut file) {
                Ok(rules) => publisher.publish(rules),
                Err(why) => program::say(format_args!("firewall_nat: {why}; the rules stay as they were")),
            }
        }
    }
    for launched in running {
        let (lcore, (passed, dropped)) = (launched.lcore(), launched.wait()?);
        program::tell(format_args!("lcore {lcore}: {passed} packets passed, {dropped} dropped"));
    }
    Ok(())
}

/// An lcore's queue of a port, both ways.
type Side = (RxQueue, TxQueue);

/// An lcore's loop: how many packets passed, and how many did not.
fn forward(lcore: &LcoreContext, mut sides: [Side; 2], mut rules: Reader<Rules>, nat: &Nat) -> (u64, u64) {
    let (mut burst, mut answers) = (Burst::new(), Burst::new());
    let (mut passed, mut received) = (0, 0);
    while !lcore.stop_requested() {
        // One set of rules for the whole round.
        let rules = rules.pass();
        for from in 0..2 {
            received += sides[from].0.rx_burst(&mut burst, 32) as u64;
            if from == 1 {
                while let Some(asked) =
                    burst.iter_mut().position(|mbuf| mbuf.answer_arp(|to| to == nat.address, nat.mac))
                {
                    answers.extend(burst.remove(asked));
                }
            }
            let translate = if from == 0 { outwards } else { inwards };
            burst.retain(|mbuf| mbuf.arp_mut().is_some() || translate(mbuf, rules, nat).is_some());
            passed += sides[1 - from].1.tx_burst(&mut burst) as u64;
            // What there was no room for is dropped.
            burst.clear();
            passed += sides[from].1.tx_burst(&mut answers) as u64;
            answers.clear();
        }
    }
    (passed, received - passed)
}

/// What goes out. `None`: it is dropped.
fn outwards(mbuf: &mut Mbuf, rules: &Rules, nat: &Nat) -> Option<()> {
    let mac = mbuf.ether_mut()?.src;
    let mut ip = mbuf.ipv4_mut()?;
    let flow = rules.allow(ip.five_tuple()?)?;
    let port = nat.outer_port(&flow, mac)?;
    ip.translate_src(nat.address, port).then_some(())?;
    mbuf.ether_mut()?.set_src(nat.mac);
    Some(())
}

/// What comes in: to an inner host, by the port that it has outside.
fn inwards(mbuf: &mut Mbuf, rules: &Rules, nat: &Nat) -> Option<()> {
    let mut ip = mbuf.ipv4_mut()?;
    let (mac, address, port) = nat.inner(&ip.five_tuple()?)?;
    ip.translate_dst(address, port).then_some(())?;
    rules.allow(ip.five_tuple()?)?;
    mbuf.ether_mut()?.set_dst(mac);
    Some(())
}
