//! What is shown, and cleared.

use std::fmt::Write;

use pollux_port::{Direction, QueueId};

use super::port_of;
use crate::grammar::{Args, Command, Section, number};
use crate::session::Session;
use crate::text;

const fn command(syntax: &'static str, help: &'static str, run: crate::grammar::Handler) -> Command {
    Command { syntax, help, section: Section::Display, run, rest: None }
}

pub(super) const COMMANDS: &[Command] = &[
    command(
        "show port (info|stats|xstats|summary) <ports>",
        "Show information or statistics of ports.",
        show_port,
    ),
    command("clear port (stats|xstats) <ports>", "Clear statistics of ports.", clear_port),
    command("show fwd stats all", "Show the statistics of forwarding.", |session, _| forwarded(session)),
    command("clear fwd stats all", "Clear the statistics of forwarding.", |session, _| {
        session.clear_forward_stats();
        Ok(String::new())
    }),
    command(
        "show fwd latency",
        "Show percentiles of the latency from rx burst to tx burst, by stream.",
        |session, _| Ok(text::latency(session)),
    ),
    command("show config (rxtx|cores|fwd|txpkts)", "Show the configuration of forwarding.", show_config),
    command("show (rxq|txq) info <port> <queue>", "Show information of a queue.", |session, args| {
        let direction = if args.word(0) == "rxq" { Direction::Rx } else { Direction::Tx };
        text::queue_info(session, direction, args.port(1), args.port(2))
    }),
    command(
        "show port <port> (rxq|txq) <queue> desc <slot> status",
        "Show the state of a descriptor.",
        descriptor,
    ),
    command("show port <port> rxq <queue> desc used count", "Show how many descriptors hold packets.", used),
    command("show port <port> rss-hash", "Show the fields that RSS hashes.", |session, args| {
        text::rss_hash(session, args.port(0), "")
    }),
    command(
        "show port <port> rss-hash (key|algorithm)",
        "Show the key or the algorithm of RSS.",
        |session, args| text::rss_hash(session, args.port(0), args.word(1)),
    ),
    command(
        "show port <port> rss reta <entries> <list>",
        "Show the RSS table: its size, and masks of 64 entries: (0xff,0).",
        reta,
    ),
    command("show port <port> macs", "Show the addresses of a port.", |session, args| {
        text::macs(session, args.port(0))
    }),
    command("show port <port> mcast_macs", "Show the multicast addresses of a port.", multicast),
    command(
        "show port <port> (rx_offload|tx_offload) (capabilities|configuration)",
        "Show what a port offers, or does.",
        offload,
    ),
    command("show device info all", "Show all devices.", |session, _| {
        let ids: Vec<u16> = session.ports.slots.iter().map(|slot| slot.id.0).collect();
        text::device_info(session, &ids)
    }),
    command("show device info <name>", "Show a device.", |session, args| {
        let id =
            session.bringup.ports.iter_all().find(|port| port.name() == args.word(0)).map(|port| port.id().0);
        let id = id.ok_or_else(|| format!("Invalid device identifier {}", args.word(0)))?;
        text::device_info(session, &[id])
    }),
    command(
        "read (rxd|txd) <port> <queue> <slot>",
        "Show a queue as its driver sees it, beside the state of a descriptor.",
        read,
    ),
    command("dump_mempool", "Show the mbuf pools.", |session, _| Ok(dump_mempool(session))),
    command("dump_memzone", "Show the memory zones.", |session, _| {
        Ok(format!("{}\n", session.bringup.eal.memory().stats()))
    }),
    command("dump_physmem", "Show the memory.", |session, _| {
        Ok(format!("{}\n", session.bringup.eal.memory().stats()))
    }),
    command("dump_lcores", "Show the lcores.", |session, _| Ok(dump_lcores(session))),
    command("dump_struct_sizes", "Show the sizes of structures.", |_, _| {
        let size = size_of::<pollux_mempool::Mbuf>();
        Ok(format!("sizeof(Mbuf) = {size}\nsizeof(Burst) = {}\n", size_of::<pollux_mempool::Burst>()))
    }),
    command("show port <port> ledger", "Show the PCIe transfers of a port of the device model.", ledger),
];

fn forwarded(session: &Session) -> Result<String, String> {
    if session.run.is_none() {
        return Err("No packets were forwarded".into());
    }
    Ok(text::forward_stats(session))
}

fn show_port(session: &mut Session, args: &Args) -> Result<String, String> {
    let ids = args.ports(1, session)?;
    let each: fn(&mut Session, u16) -> Result<String, String> = match args.word(0) {
        "info" => text::port_info,
        "stats" => text::nic_stats,
        "xstats" => text::xstats,
        _ => return text::port_summary(session, &ids),
    };
    ids.into_iter().map(|id| each(session, id)).collect()
}

fn clear_port(session: &mut Session, args: &Args) -> Result<String, String> {
    let mut told = String::new();
    for id in args.ports(1, session)? {
        port_of(session, id)?.reset_stats();
        let slot = session.ports.get_mut(id)?;
        slot.shown = None;
        // What forwarding began with is gone as well.
        slot.begun = pollux_port::PortStats::default();
        let _ = writeln!(told, "\n  NIC statistics for port {id} cleared");
    }
    Ok(told)
}

fn show_config(session: &mut Session, args: &Args) -> Result<String, String> {
    let mode = session.settings.mode;
    Ok(match args.word(0) {
        "rxtx" => text::rxtx(session, mode),
        "txpkts" => text::txpkts(session),
        "cores" => {
            let count = session.settings.nb_cores.min(session.settings.lcores.len());
            let cores: Vec<String> =
                session.settings.lcores[..count].iter().map(ToString::to_string).collect();
            format!("List of forwarding lcores:  {}\n", cores.join(" "))
        }
        _ => text::streams(session, mode),
    })
}

/// A queue that no stream has under way.
const BUSY: &str = "the queue is forwarding: stop first";

fn descriptor(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, queue, slot) = (args.port(0), usize::from(args.port(2)), args.number(3) as usize);
    let ports = session.ports.get(id)?;
    let missing = || format!("port {id}: no queue {queue}, or {BUSY}");
    let status = if args.word(1) == "rxq" {
        let queue = ports.rx.get(queue).and_then(Option::as_ref).ok_or_else(missing)?;
        queue.descriptor_status(slot).map(|status| format!("{status:?}"))
    } else {
        let queue = ports.tx.get(queue).and_then(Option::as_ref).ok_or_else(missing)?;
        queue.descriptor_status(slot).map(|status| format!("{status:?}"))
    };
    Ok(format!("Desc status = {}\n", status.map_err(|error| error.to_string())?.to_uppercase()))
}

fn used(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, queue) = (args.port(0), usize::from(args.port(1)));
    let ports = session.ports.get(id)?;
    let missing = || format!("port {id}: no queue {queue}, or {BUSY}");
    let count = ports.rx.get(queue).and_then(Option::as_ref).ok_or_else(missing)?.queue_count();
    Ok(format!("RXQ Desc used count = {}\n", count.map_err(|error| error.to_string())?))
}

fn read(session: &mut Session, args: &Args) -> Result<String, String> {
    let direction = if args.word(0) == "rxd" { Direction::Rx } else { Direction::Tx };
    let dump = port_of(session, args.port(1))?.dump_queue(direction, QueueId(args.port(2)));
    let way = if direction == Direction::Rx { "rxq" } else { "txq" };
    let further = Args(
        [args.0[1].clone(), crate::grammar::Arg::Word(way.into()), args.0[2].clone(), args.0[3].clone()]
            .into(),
    );
    let status = descriptor(session, &further).unwrap_or_else(|why| format!("{why}\n"));
    Ok(format!("{}\n{status}", dump.map_err(|error| error.to_string())?.trim_end()))
}

/// `(0xff,0x1)` as masks of 64 entries each.
fn masks(text: &str) -> Option<Vec<u64>> {
    text.strip_prefix('(')?.strip_suffix(')')?.split(',').map(|mask| number(mask.trim())).collect()
}

fn reta(session: &mut Session, args: &Args) -> Result<String, String> {
    let masks = masks(args.word(2))
        .ok_or("The mask of RETA entries is not a list such as (0xffffffffffffffff,0x1)")?;
    let port = port_of(session, args.port(0))?;
    let size = port.info().rss.map_or(0, |rss| rss.table_entries);
    if size as u64 != args.number(1) {
        return Err(format!("The reta size of port {} is {size}", args.port(0)));
    }
    let table = port.rss_table().map_err(|error| format!("Failed to get RSS RETA info: {error}"))?;
    let mut told = String::new();
    for (at, queue) in table.iter().enumerate() {
        if masks.get(at / 64).is_some_and(|mask| mask >> (at % 64) & 1 == 1) {
            let _ = writeln!(told, "RSS RETA configuration: hash index={at}, queue={queue}");
        }
    }
    Ok(told)
}

fn multicast(session: &mut Session, args: &Args) -> Result<String, String> {
    let groups = port_of(session, args.port(0))?.multicast_list().to_vec();
    let mut told = format!("Number of Multicast MAC address added: {}\n", groups.len());
    for group in groups {
        let _ = writeln!(told, "  {}", group.to_uppercase());
    }
    Ok(told)
}

fn offload(session: &mut Session, args: &Args) -> Result<String, String> {
    let direction = if args.word(1) == "rx_offload" { Direction::Rx } else { Direction::Tx };
    match args.word(2) {
        "capabilities" => text::offload_capabilities(session, args.port(0), direction),
        _ => text::offload_configuration(session, args.port(0), direction),
    }
}

fn dump_mempool(session: &Session) -> String {
    let Some(pool) = &session.ports.pool else { return "no mempool\n".into() };
    format!(
        "mempool <{}>\n  size={}\n  cache_size={}\n  ops_name: <{}>\n  data_room={}\n  headroom={}\n  available={}\n  in_use={}\n",
        pool.name(),
        pool.capacity(),
        pool.cache_size(),
        pool.backend().name(),
        pool.data_room(),
        pool.headroom(),
        pool.available(),
        pool.in_use()
    )
}

fn dump_lcores(session: &Session) -> String {
    let mut told = String::new();
    for lcore in session.bringup.eal.lcores().all() {
        let share =
            if lcore.usage.total == 0 { 0.0 } else { lcore.usage.busy as f64 / lcore.usage.total as f64 };
        let _ = writeln!(
            told,
            "lcore {}, socket {:?}, role {:?}, cpuset {:?}, {:?}, busy {:.1}%",
            lcore.id,
            lcore.socket,
            lcore.role,
            lcore.cpus.as_slice(),
            lcore.state,
            share * 100.0
        );
    }
    told
}

fn ledger(session: &mut Session, args: &Args) -> Result<String, String> {
    let id = pollux_port::PortId(session.ports.get(args.port(0))?.id.0);
    let ledger = session.bringup.ledger(id).ok_or("PCIe transfers are counted by the device model alone")?;
    let mut told = format!(
        "PCIe transfers of port {}, {} packets sent, {} received\n",
        id.0, ledger.packets_sent, ledger.packets_received
    );
    let _ = writeln!(told, "{:<24} {:>14} {:>16} {:>14}", "kind", "transfers", "bytes", "TLPs");
    for crossing in &ledger.crossings {
        let _ = writeln!(
            told,
            "{:<24} {:>14} {:>16} {:>14}",
            crossing.name, crossing.transfers, crossing.bytes, crossing.bus_packets
        );
    }
    let _ = writeln!(
        told,
        "bytes to the device {}, from the device {}",
        ledger.bytes_to_device, ledger.bytes_from_device
    );
    Ok(told)
}
