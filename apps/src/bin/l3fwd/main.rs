//! l3fwd: forwards IPv4 and IPv6 packets between ports by routes, flows or rules, which change while it runs.
//!
//! ```text
//!   options ─► assignment: which lcore polls which queue          rule files ─► rule: lines ─► table: lpm, exact, acl
//!                   │                                                  ▲                          │
//!                   ▼                                                  │ reload, as they change   ▼ a version for each burst
//!             forward: an lcore's loop ─► packet: checks, a hop less ──┴──────────────────► output: a tx queue of each port
//! ```

mod absent;
mod assignment;
mod count;
mod forward;
mod options;
mod output;
mod packet;
mod reload;
mod rule;
mod table;

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;

use pollux_bringup::program::{self, say};
use pollux_bringup::{Bringup, BringupError};
use pollux_config::CommandLine;
use pollux_eal::rcu::{self, Reader};
use pollux_kit::rounds::go_round;
use pollux_kit::{Counted, IdlePolicy, Meter, Watch};
use pollux_mempool::{Burst, MbufPool};
use pollux_port::{MacAddress, PortId, QueueId, Queues, RxQueue, TxQueue};

use assignment::{Ports, Share};
use count::{QueueCounts, Stream};
use forward::{Input, Lane, Scratch};
use options::{Method, Options};
use output::Output;
use reload::RuleFiles;
use table::Table;
use table::acl::Classes;
use table::exact::Flows;
use table::lpm::Routes;

fn main() -> ExitCode {
    program::main(|line, options: Options| {
        if let Some(why) = options.absent.line() {
            return Err(BringupError::Usage(why));
        }
        match options.method() {
            Method::Lpm => run::<Routes>(line, &options),
            Method::Em => run::<Flows>(line, &options),
            Method::Acl => run::<Classes>(line, &options),
        }
    })
}

fn run<T: Table>(line: &CommandLine, options: &Options) -> Result<(), BringupError> {
    let mut watch = Watch::new("l3fwd", &options.run)?.every(options.period());
    let mut bringup = Bringup::new(line)?;
    let names = bringup.ports.iter_all().map(|port| port.name().to_owned()).collect();
    let ports = Ports::new(names, options.portmask).map_err(BringupError::Usage)?;
    let ids = ports.ids();
    let lcores = bringup.eal.lcores().dataplane();
    let shares = assignment::shares(options.config.as_ref(), &ports, &lcores).map_err(BringupError::Usage)?;
    let destinations = destinations(options, &ports).map_err(BringupError::Usage)?;
    let (v4, v6) = (options.rule_ipv4.as_deref(), options.rule_ipv6.as_deref());
    let mut files = RuleFiles::new(v4, v6, ports.clone());
    let (table, told) = files.load::<T>().map_err(BringupError::Usage)?;
    let (mut tables, reader) = rcu::published(table);

    // Each lcore has a tx queue of every port.
    let mut request = options.request(shares.len()).tx_queues(shares.len() as u16);
    for (place, id) in ids.iter().enumerate() {
        let polled = shares.iter().flat_map(|share| &share.queues).filter(|(port, _)| *port == place);
        request = request.rx_queues_of_port(*id, polled.count() as u16);
    }
    let (queues, pool) = bringup.start_ports(&ids, &request)?;
    say(format_args!("l3fwd: {told}"));
    for port in bringup.ports.iter().filter(|port| ids.contains(&port.id())) {
        if let Some(notice) = options.idle.notice(port) {
            say(format_args!("l3fwd: {notice}"));
        }
    }
    let sources = ids.iter().map(|id| bringup.mac(*id)).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<_> = sources.into_iter().zip(destinations).collect();

    let stop = bringup.eal.stop_flag();
    let (mut counted, mut launched) = (Vec::new(), Vec::new());
    for (share, mut lane) in lanes(&shares, queues, &addresses, &reader, &pool, options) {
        for input in &lane.inputs {
            let (from, queue) = (input.rx.port(), input.rx.queue());
            say(format_args!("l3fwd: lcore {}: port {from} {} queue {queue}", share.lcore, ports.name(from)));
            counted.extend(streams(&ids, share, (from, queue), &input.counts));
        }
        let polled = lane.inputs.iter().map(|input| &input.rx);
        let idle = options.idle.policy(bringup.eal.clock(), &[stop.as_fd()], polled)?;
        launched.push(bringup.eal.launch(share.lcore, move |lcore| match idle {
            IdlePolicy::Poll => go_round(lcore, &mut lane, &mut ()),
            mut idle => go_round(lcore, &mut lane, &mut idle),
        })?);
    }
    // Readers that pass no more would keep what was replaced.
    drop(reader);
    say(format_args!(
        "l3fwd: forwarding on {} of {} lcores; press Ctrl-C to stop",
        launched.len(),
        lcores.len()
    ));

    let meter = Meter::new(counted);
    let end = watch.until_end_with(&mut bringup, &meter, || files.look(&mut tables));
    stop.set();
    let end =
        launched.into_iter().fold(end, |end, launched| end.and(launched.wait().map_err(BringupError::from)));
    end.and(watch.report(&meter.read(&bringup.view())))
}

/// The destination of what each port sends: DPDK's, or that of `--eth-dest`.
fn destinations(options: &Options, ports: &Ports) -> Result<Vec<MacAddress>, String> {
    let usual = |id: &PortId| MacAddress([2, 0, 0, 0, 0, id.0.to_le_bytes()[0]]);
    let mut all: Vec<MacAddress> = ports.ids().iter().map(usual).collect();
    for dest in &options.eth_dest {
        let place = ports.place(dest.port).map_err(|why| format!("--eth-dest names {why}"))?;
        all[place] = dest.address;
    }
    Ok(all)
}

/// Gives each lcore the rx queues of its share and a tx queue of every port; `addresses` are each port's own and its destination.
fn lanes<'a, T: Table>(
    shares: &'a [Share],
    queues: Vec<Queues>,
    addresses: &[(MacAddress, MacAddress)],
    reader: &Reader<T>,
    pool: &MbufPool,
    options: &Options,
) -> Vec<(&'a Share, Lane<T>)> {
    let mut rx: Vec<Vec<Option<RxQueue>>> = Vec::new();
    let mut tx: Vec<std::vec::IntoIter<TxQueue>> = Vec::new();
    for queues in queues {
        rx.push(queues.rx.into_iter().map(Some).collect());
        tx.push(queues.tx.into_iter());
    }
    let mut lane = |share: &Share| {
        let taken = share.queues.iter().filter_map(|(place, queue)| rx[*place][usize::from(*queue)].take());
        let input = |rx| Input { rx, counts: QueueCounts::new(addresses.len()) };
        let inputs = taken.map(input).collect();
        let output = |(tx, (source, destination)): (&mut std::vec::IntoIter<TxQueue>, &(_, _))| {
            Some(Output::new(tx.next()?, *source, *destination, options.tx_burst))
        };
        let outputs = tx.iter_mut().zip(addresses).filter_map(output).collect();
        let (table, pool) = (reader.clone(), pool.clone());
        Lane {
            inputs,
            outputs,
            table,
            pool,
            burst: Burst::new(),
            size: options.rx_burst,
            scratch: Scratch::default(),
        }
    };
    shares.iter().map(|share| (share, lane(share))).collect()
}

/// The streams of a queue, one to each port.
fn streams(
    ids: &[PortId],
    share: &Share,
    (from, queue): (PortId, QueueId),
    counts: &Arc<QueueCounts>,
) -> Vec<Counted> {
    let stream = |(place, to): (usize, &PortId)| Counted {
        from,
        queue,
        to: *to,
        lcore: share.lcore,
        counters: Arc::new(Stream { counts: Arc::clone(counts), place, is_own: *to == from }),
    };
    ids.iter().enumerate().map(stream).collect()
}
