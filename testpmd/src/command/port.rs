//! Ports and queues: start, stop, close, reset, and how they are configured.

use pollux_port::{PortId, PortState, QueueId, RssConfig, RxOffloads, TxOffloads};

use super::port_of;
use crate::grammar::{Args, Command, Section, number};
use crate::hash;
use crate::ports::{PortSlot, QueueWants, Wants, is_closed};
use crate::session::Session;

pub(super) const fn command(
    syntax: &'static str,
    help: &'static str,
    run: crate::grammar::Handler,
) -> Command {
    Command { syntax, help, section: Section::Ports, run, rest: None }
}

pub(super) const COMMANDS: &[Command] = &[
    command("port start <ports>", "Start ports.", start),
    command("port stop <ports>", "Stop ports.", stop),
    command("port close <ports>", "Close ports, for good.", close),
    command("port reset <ports>", "Reset ports to how their device came.", reset),
    command(
        "port config all (rxq|txq|rxd|txd) <count16>",
        "Set the number of queues or descriptors of all ports.",
        config_all,
    ),
    command("port config mtu <port> <mtu>", "Set the MTU of a port.", mtu),
    command("port config all max-pkt-len <count>", "Set the maximum frame length of all ports.", max_pkt_len),
    command(
        "port config all rss <text>",
        "Set the fields that RSS hashes, of all ports: ip, udp, ipv4-tcp, none, all.",
        rss,
    ),
    command(
        "port config <port> rss reta <list>",
        "Set entries of the RSS table: (index,queue),(index,queue).",
        reta,
    ),
    command(
        "port config <port> rss-hash-key <text> <text>",
        "Set the RSS key: fields, and the key in hexadecimal.",
        rss_key,
    ),
    command(
        "port config <port> (rxq|txq) <queue> ring_size <count16>",
        "Set the descriptors of a queue.",
        ring_size,
    ),
    command(
        "port config <port> (rx_offload|tx_offload) <text> (on|off)",
        "Enable or disable an offload of a port.",
        port_offload,
    ),
    command("port <port> (rxq|txq) <queue> (start|stop)", "Start or stop a queue.", queue),
    command(
        "port <port> (rxq|txq) <queue> deferred_start (on|off)",
        "Leave a queue stopped when its port starts.",
        deferred,
    ),
    command(
        "port <port> (rxq|txq) <queue> setup",
        "Set up a queue anew when its port starts.",
        |session, args| stale(session, args.port(0)).map(|_| String::new()),
    ),
    command(
        "port <port> (rxq|txq) <queue> (rx_offload|tx_offload) <text> (on|off)",
        "Enable or disable an offload of a queue.",
        queue_offload,
    ),
];

/// Ports that a command may touch while no packet is forwarded.
fn quiet(session: &Session, ids: &[u16]) -> Result<(), String> {
    match session.is_forwarding().then(|| ids.iter().find(|id| session.settings.ports.contains(id))).flatten()
    {
        Some(id) => Err(format!("Please remove port {id} from forwarding configuration.")),
        None => Ok(()),
    }
}

fn start(session: &mut Session, args: &Args) -> Result<String, String> {
    let ids: Vec<u16> = args.ports(0, session)?;
    let all = ids.len() > 1;
    let closed = |id: &u16| session.bringup.ports.get(PortId(*id)).is_some_and(is_closed);
    let ids: Vec<u16> = ids.into_iter().filter(|id| !(all && closed(id))).collect();
    let told = session.ports.start(&mut session.bringup, &ids)?;
    session.wait_for_links();
    Ok(format!("{told}Checking link statuses...\nDone\n"))
}

fn stop(session: &mut Session, args: &Args) -> Result<String, String> {
    let ids = args.ports(0, session)?;
    quiet(session, &ids)?;
    for id in ids {
        let port = port_of(session, id)?;
        if port.state() == PortState::Started {
            port.stop().map_err(|error| error.to_string())?;
        }
    }
    Ok("Stopping ports...\nChecking link statuses...\nDone\n".into())
}

fn close(session: &mut Session, args: &Args) -> Result<String, String> {
    let ids = args.ports(0, session)?;
    quiet(session, &ids)?;
    let mut told = String::from("Closing ports...\n");
    for id in ids {
        let slot = session.ports.get_mut(id)?;
        if session.bringup.ports.get(slot.id).is_none_or(is_closed) {
            told += &format!("Port {id} is already closed\n");
            continue;
        }
        (slot.rx, slot.tx) = (Vec::new(), Vec::new());
        session.settings.ports.retain(|port| *port != id);
        let port = port_of(session, id)?;
        if port.state() == PortState::Started {
            port.stop().map_err(|error| error.to_string())?;
        }
        port.close().map_err(|error| error.to_string())?;
        told += &format!("Port {id} is closed\n");
    }
    Ok(told + "Done\n")
}

fn reset(session: &mut Session, args: &Args) -> Result<String, String> {
    let ids = args.ports(0, session)?;
    quiet(session, &ids)?;
    for id in ids {
        let slot = session.ports.get_mut(id)?;
        (slot.rx, slot.tx, slot.stale) = (Vec::new(), Vec::new(), true);
        port_of(session, id)?.reset().map_err(|error| error.to_string())?;
    }
    Ok("Resetting ports...\nDone\n".into())
}

/// A port that is stopped, so that it may be configured.
fn stopped(session: &mut Session, id: u16) -> Result<&mut PortSlot, String> {
    if port_of(session, id)?.state() == PortState::Started {
        return Err(format!("Please stop port {id} first"));
    }
    stale(session, id)
}

fn stale(session: &mut Session, id: u16) -> Result<&mut PortSlot, String> {
    let slot = session.ports.get_mut(id)?;
    slot.stale = true;
    Ok(slot)
}

fn all_stopped(session: &mut Session) -> Result<(), String> {
    let running = session.bringup.ports.iter_all().any(|port| port.state() == PortState::Started);
    if running { Err("Please stop all ports first".into()) } else { Ok(()) }
}

fn config_all(session: &mut Session, args: &Args) -> Result<String, String> {
    all_stopped(session)?;
    let (what, count) = (args.word(0), args.port(1));
    for id in session.ports.slots.iter().map(|slot| slot.id.0).collect::<Vec<_>>() {
        let info = port_of(session, id)?.info();
        let (least, most) = match what {
            "rxq" => (1, info.max_rx_queues),
            "txq" => (1, info.max_tx_queues),
            "rxd" => (info.rx_descriptors.min, info.rx_descriptors.max),
            _ => (info.tx_descriptors.min, info.tx_descriptors.max),
        };
        if count < least || count > most {
            return Err(format!(
                "Fail: input {what} ({count}) must be between {least} and {most}, the limits of port {id}"
            ));
        }
    }
    for slot in &mut session.ports.slots {
        slot.stale = true;
        let set = match what {
            "rxq" => &mut slot.wants.rxq,
            "txq" => &mut slot.wants.txq,
            "rxd" => &mut slot.wants.rxd,
            _ => &mut slot.wants.txd,
        };
        *set = count;
    }
    Ok(String::new())
}

fn mtu(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, mtu) = (args.port(0), args.number(1) as u32);
    session.ports.get(id)?;
    port_of(session, id)?.set_mtu(mtu).map_err(|error| format!("Set MTU failed: {error}"))?;
    // So that it stays when the port is configured anew.
    session.ports.get_mut(id)?.wants.mtu = Some(mtu);
    Ok(String::new())
}

fn max_pkt_len(session: &mut Session, args: &Args) -> Result<String, String> {
    // Ethernet header and check sequence.
    const AROUND: u64 = 18;
    all_stopped(session)?;
    let bytes = args.number(0);
    let mtu = bytes.checked_sub(AROUND).filter(|mtu| (68..=65_535).contains(mtu));
    let mtu =
        mtu.ok_or_else(|| format!("max-pkt-len can not be less than 86 or above 65553, not {bytes}"))? as u32;
    for slot in &mut session.ports.slots {
        (slot.wants.mtu, slot.stale) = (Some(mtu), true);
    }
    Ok(String::new())
}

fn rss(session: &mut Session, args: &Args) -> Result<String, String> {
    let fields = hash::by_name(args.word(0)).ok_or_else(|| format!("Unknown parameter {}", args.word(0)))?;
    let mut told = String::new();
    for id in session.ports.slots.iter().map(|slot| slot.id.0).collect::<Vec<_>>() {
        let Some(info) = port_of(session, id)?.info().rss else {
            told += &format!("Configuration of RSS hash at ethernet port {id} failed: the port has no RSS\n");
            continue;
        };
        let fitting = fields & info.fields;
        if fitting != fields {
            let (wanted, is) = (fields.bits(), fitting.bits());
            told += &format!(
                "Port {id} modified RSS hash function based on hardware support,requested:{wanted:#x} configured:{is:#x}\n"
            );
        }
        let rss = RssConfig::new(fitting);
        session.ports.get_mut(id)?.wants.rss = Some(rss.clone());
        let port = port_of(session, id)?;
        if port.state() != PortState::Unconfigured
            && port.config().rx_queues.len() > 1
            && let Err(error) = port.set_rss(&rss)
        {
            told += &format!("Configuration of RSS hash at ethernet port {id} failed with error: {error}\n");
        }
    }
    Ok(told)
}

/// `(0,1),(1,0)` as pairs.
fn pairs(text: &str) -> Option<Vec<(usize, u16)>> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    inner
        .split("),(")
        .map(|pair| {
            let (index, queue) = pair.split_once(',')?;
            Some((usize::try_from(number(index.trim())?).ok()?, u16::try_from(number(queue.trim())?).ok()?))
        })
        .collect()
}

fn reta(session: &mut Session, args: &Args) -> Result<String, String> {
    let id = args.port(0);
    let entries = pairs(args.word(1))
        .ok_or_else(|| format!("'{}' is not a list of entries such as (0,1),(1,0)", args.word(1)))?;
    let port = port_of(session, id)?;
    let size = port.info().rss.map_or(0, |rss| rss.table_entries);
    let entries: Vec<(usize, QueueId)> =
        entries.into_iter().map(|(index, queue)| (index, QueueId(queue))).collect();
    port.update_rss_table(&entries).map_err(|error| format!("Reta configuration failed: {error}"))?;
    Ok(format!("The reta size of port {id} is {size}\n"))
}

fn rss_key(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, digits) = (args.port(0), args.word(2));
    let fields = hash::by_name(args.word(1)).ok_or_else(|| format!("Unknown parameter {}", args.word(1)))?;
    let plain = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !plain {
        return Err(format!("key '{digits}': must be an even number of hexadecimal digits"));
    }
    let key = (0..digits.len())
        .step_by(2)
        .filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
        .collect();
    let port = port_of(session, id)?;
    let fields = port.info().rss.map_or(fields, |info| fields & info.fields);
    let rss = RssConfig { key: Some(key), ..RssConfig::new(fields) };
    port.set_rss(&rss).map_err(|error| error.to_string())?;
    session.ports.get_mut(id)?.wants.rss = Some(rss);
    Ok(String::new())
}

/// What is wanted of one queue.
fn wants<'a>(slot: &'a mut PortSlot, way: &str, queue: u16) -> Result<&'a mut QueueWants, String> {
    let Wants { rxq, txq, rx_queues, tx_queues, .. } = &mut slot.wants;
    let (count, own) = if way == "rxq" { (*rxq, rx_queues) } else { (*txq, tx_queues) };
    if queue >= count {
        return Err(format!("Invalid {way} {queue}: port {} has {count}", slot.id.0));
    }
    Ok(own.entry(queue).or_default())
}

fn ring_size(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, way, queue, size) = (args.port(0), args.word(1), args.port(2), args.port(3));
    let info = port_of(session, id)?.info();
    let limits = if way == "rxq" { info.rx_descriptors } else { info.tx_descriptors };
    if !limits.allow(size) {
        let (least, most, align) = (limits.min, limits.max, limits.align);
        return Err(format!(
            "Invalid ring size {size}: must be between {least} and {most}, a multiple of {align}"
        ));
    }
    wants(stopped(session, id)?, way, queue)?.descriptors = size;
    Ok(String::new())
}

fn deferred(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, on) = (args.port(0), args.is_on(3));
    if on && !port_of(session, id)?.info().queue_control {
        return Err(format!("port {id} cannot start queues one by one"));
    }
    wants(stopped(session, id)?, args.word(1), args.port(2))?.deferred = on;
    Ok(String::new())
}

fn queue(session: &mut Session, args: &Args) -> Result<String, String> {
    let (queue, start) = (QueueId(args.port(2)), args.word(3) == "start");
    let port = port_of(session, args.port(0))?;
    let done = match (args.word(1), start) {
        ("rxq", true) => port.rx_queue_start(queue),
        ("rxq", false) => port.rx_queue_stop(queue),
        (_, true) => port.tx_queue_start(queue),
        (_, false) => port.tx_queue_stop(queue),
    };
    done.map(|()| String::new()).map_err(|error| error.to_string())
}

/// Bits of offloads by their names, as testpmd takes them: in small letters.
fn rx_by_name(name: &str) -> Result<RxOffloads, String> {
    RxOffloads::from_name(&name.to_uppercase()).ok_or_else(|| format!("Unknown offload name: {name}"))
}

fn tx_by_name(name: &str) -> Result<TxOffloads, String> {
    TxOffloads::from_name(&name.to_uppercase()).ok_or_else(|| format!("Unknown offload name: {name}"))
}

fn port_offload(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, name, on) = (args.port(0), args.word(2), args.is_on(3));
    let info = port_of(session, id)?.info();
    let unfit = || format!("Error: port {id} does not support {name}");
    if args.word(1) == "rx_offload" {
        let bit = rx_by_name(name)?;
        if on && !info.rx_offloads.contains(bit) {
            return Err(unfit());
        }
        stopped(session, id)?.wants.rx.set(bit, on);
    } else {
        let bit = tx_by_name(name)?;
        if on && !info.tx_offloads.contains(bit) {
            return Err(unfit());
        }
        stopped(session, id)?.wants.tx.set(bit, on);
    }
    Ok(String::new())
}

fn queue_offload(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, way, queue, kind, name, on) =
        (args.port(0), args.word(1), args.port(2), args.word(3), args.word(4), args.is_on(5));
    if (way == "rxq") != (kind == "rx_offload") {
        return Err(format!(
            "Bad arguments\n'{kind}' after '{way} {queue}': expected {}",
            if way == "rxq" { "rx_offload" } else { "tx_offload" }
        ));
    }
    let info = port_of(session, id)?.info();
    let unfit = || format!("Error: {name} is no offload that queues of port {id} have on their own");
    if way == "rxq" {
        let bit = rx_by_name(name)?;
        if on && !info.rx_queue_offloads.contains(bit) {
            return Err(unfit());
        }
        wants(stopped(session, id)?, way, queue)?.rx.set(bit, on);
    } else {
        let bit = tx_by_name(name)?;
        if on && !info.tx_queue_offloads.contains(bit) {
            return Err(unfit());
        }
        wants(stopped(session, id)?, way, queue)?.tx.set(bit, on);
    }
    Ok(String::new())
}
