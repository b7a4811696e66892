//! What is set for the session.

use pollux_eal::lcore::LcoreId;
use pollux_mempool::BURST_MAX;

use super::port_of;
use crate::engine::{Mode, TxPlan, TxSplit, room};
use crate::grammar::{Args, Command, Section, number};
use crate::options;
use crate::session::Session;

const fn command(syntax: &'static str, help: &'static str, run: crate::grammar::Handler) -> Command {
    Command { syntax, help, section: Section::Config, run, rest: None }
}

pub(super) const COMMANDS: &[Command] = &[
    command(
        "set fwd (io|mac|macswap|flowgen|rxonly|txonly|csum|icmpecho|noisy|5tswap)",
        "Set the packet forwarding mode.",
        |session, args| forward(session, args, false),
    ),
    command(
        "set fwd (io|mac|macswap|flowgen|rxonly|txonly|csum|icmpecho|noisy|5tswap) retry",
        "The same, and try full tx queues again.",
        |session, args| forward(session, args, true),
    ),
    command("set burst <packets>", "Set the number of packets per burst.", burst),
    command(
        "set burst tx delay <us> retry <tries>",
        "Set the delay and the number of tries at a full tx queue.",
        |session, args| {
            session.settings.retry_delay_us = args.number(0).min(1_000_000) as u32;
            session.settings.retry_tries = args.number(1) as u32;
            Ok(String::new())
        },
    ),
    command("set txpkts <list>", "Set the segment sizes of packets that are made: 64 or 40,60.", txpkts),
    command(
        "set txsplit (off|on|rand)",
        "Set how many segments packets that are made have: all, all, or a random number.",
        |session, args| {
            session.settings.tx.split = match args.word(0) {
                "on" => TxSplit::On,
                "rand" => TxSplit::Random,
                _ => TxSplit::Off,
            };
            Ok(String::new())
        },
    ),
    command("set verbose <level>", "Print packets: 0 none, 1 received, 2 sent, 3 both.", verbose),
    command("set nbcore <count>", "Set the number of forwarding lcores.", nbcore),
    command("set nbport <count>", "Set the number of forwarding ports.", nbport),
    command("set portlist <ports_list>", "Set the forwarding ports: 0,2-3.", |session, args| {
        portlist(session, &options::list(args.word(0)).map_err(|why| format!("'{}' {why}", args.word(0)))?.0)
    }),
    command("set portmask <mask>", "Set the forwarding ports by a mask.", portmask),
    command("set corelist <list>", "Set the forwarding lcores: 1,3.", corelist),
    command("set coremask <mask>", "Set the forwarding lcores by a mask.", coremask),
    command("set eth-peer <port> <mac>", "Set the address that a port sends to.", |session, args| {
        session.ports.get(args.port(0))?;
        session.settings.peers.insert(args.port(0), args.mac(1));
        Ok(String::new())
    }),
    command("set promisc <ports> (on|off)", "Set promiscuous mode.", promiscuous),
    command("set allmulti <ports> (on|off)", "Set all-multicast mode.", all_multicast),
    command(
        "set flush_rx (on|off)",
        "Drop packets that were received before forwarding starts.",
        |session, args| {
            session.settings.flush_rx = args.is_on(0);
            Ok(String::new())
        },
    ),
    command("set link_check (on|off)", "Wait for the links when ports start.", |session, args| {
        session.settings.link_check = args.is_on(0);
        Ok(String::new())
    }),
    command("set link-up port <port>", "Set a link up.", |session, args| link(session, args.port(0), true)),
    command("set link-down port <port>", "Set a link down.", |session, args| {
        link(session, args.port(0), false)
    }),
    command("set record-core-cycles (on|off)", "Show cycles per packet.", |session, args| {
        session.settings.record_cycles = args.is_on(0);
        Ok(String::new())
    }),
    command(
        "set record-burst-stats (on|off)",
        "Count bursts by their number of packets.",
        |session, args| {
            session.settings.record_bursts = args.is_on(0);
            session.set_switches();
            Ok(String::new())
        },
    ),
    command("set xstats-hide-zero (on|off)", "Leave zeros out of extended statistics.", |session, args| {
        session.settings.hide_zero = args.is_on(0);
        Ok(String::new())
    }),
];

/// A setting that `start` reads.
fn idle(session: &Session, what: &str) -> Result<(), String> {
    if session.is_forwarding() {
        Err(format!("{what}: packet forwarding is running: stop it first"))
    } else {
        Ok(())
    }
}

fn forward(session: &mut Session, args: &Args, retry: bool) -> Result<String, String> {
    let mode = Mode::by_name(args.word(0)).ok_or("no such mode")?;
    session.settings.mode = mode;
    session.settings.retry = retry;
    let retry = if retry { " with retry" } else { "" };
    Ok(format!("Set {} packet forwarding mode{retry}\n", mode.name()))
}

fn burst(session: &mut Session, args: &Args) -> Result<String, String> {
    match args.number(0) as usize {
        size @ 1..=BURST_MAX => {
            session.settings.burst = size;
            Ok(format!("Number of packets per burst set to {size}\n"))
        }
        size => Err(format!("burst of {size} packets: must be between 1 and {BURST_MAX}")),
    }
}

fn txpkts(session: &mut Session, args: &Args) -> Result<String, String> {
    let sizes: Option<Vec<u16>> = args
        .word(0)
        .split(',')
        .map(|size| number(size.trim()).and_then(|size| u16::try_from(size).ok()))
        .collect();
    let sizes = sizes
        .ok_or_else(|| format!("'{}' is not a list of segment sizes such as 64 or 40,60", args.word(0)))?;
    TxPlan::check(&sizes, session.ports.pool.as_ref().map_or(usize::from(u16::MAX), room))?;
    session.settings.tx.segments = sizes;
    Ok(String::new())
}

fn verbose(session: &mut Session, args: &Args) -> Result<String, String> {
    let level = match args.number(0) {
        level @ 0..=3 => level as u32,
        level => return Err(format!("verbose level {level}: must be between 0 and 3")),
    };
    let told = format!("Change verbose level from {} to {level}\n", session.settings.verbose);
    session.settings.verbose = level;
    session.set_switches();
    Ok(told)
}

fn nbcore(session: &mut Session, args: &Args) -> Result<String, String> {
    idle(session, "set nbcore")?;
    let most = session.settings.lcores.len();
    match args.number(0) as usize {
        count if (1..=most).contains(&count) => {
            session.settings.nb_cores = count;
            Ok(format!("Number of forwarding cores set to {count}\n"))
        }
        count => Err(format!(
            "{count} forwarding lcores: there are {most}, named by -l (the main lcore is kept for the prompt)"
        )),
    }
}

fn nbport(session: &mut Session, args: &Args) -> Result<String, String> {
    idle(session, "set nbport")?;
    let all: Vec<u16> = session.ports.slots.iter().map(|slot| slot.id.0).collect();
    match args.number(0) as usize {
        count if (1..=all.len()).contains(&count) => {
            session.settings.ports = all[..count].to_vec();
            Ok(format!("Number of forwarding ports set to {count}\n"))
        }
        count => Err(format!("{count} forwarding ports: there are {}", all.len())),
    }
}

fn portlist(session: &mut Session, ports: &[u16]) -> Result<String, String> {
    idle(session, "set portlist")?;
    for &id in ports {
        session.ports.get(id)?;
    }
    let before = session.settings.ports.len();
    session.settings.ports = ports.to_vec();
    if before == ports.len() {
        return Ok(String::new());
    }
    let now = ports.len();
    Ok(format!(
        "previous number of forwarding ports {before} - changed to number of configured ports {now}\n"
    ))
}

/// The places of a mask's ones.
fn ones(text: &str) -> Result<Vec<u16>, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let mask = u64::from_str_radix(digits, 16).ok().filter(|mask| *mask != 0);
    let mask = mask.ok_or_else(|| format!("'{text}' is not a hexadecimal mask such as 0x3"))?;
    Ok((0..64).filter(|bit| mask >> bit & 1 == 1).collect())
}

fn portmask(session: &mut Session, args: &Args) -> Result<String, String> {
    portlist(session, &ones(args.word(0))?)
}

fn cores(session: &mut Session, cores: &[u16]) -> Result<String, String> {
    idle(session, "set corelist")?;
    let there = session.bringup.eal.lcores().dataplane();
    if let Some(core) = cores.iter().find(|core| !there.contains(&LcoreId(**core))) {
        return Err(format!("lcore {core} is not enabled: name it with -l"));
    }
    session.settings.lcores = cores.iter().map(|core| LcoreId(*core)).collect();
    session.settings.nb_cores = cores.len();
    Ok(String::new())
}

fn corelist(session: &mut Session, args: &Args) -> Result<String, String> {
    let list = options::list(args.word(0))
        .map_err(|_| format!("'{}' is not a list of lcores such as 1,3", args.word(0)))?;
    cores(session, &list.0)
}

fn coremask(session: &mut Session, args: &Args) -> Result<String, String> {
    cores(session, &ones(args.word(0))?)
}

/// One setting of one or all ports; the ports that refuse are told, the others are set.
fn each(
    session: &mut Session,
    args: &Args,
    set: impl Fn(&mut pollux_port::Port, bool) -> Result<(), pollux_port::PortError>,
    what: &str,
) -> Result<String, String> {
    let on = args.is_on(1);
    let verb = if on { "enabling" } else { "disabling" };
    let mut told = String::new();
    for id in args.ports(0, session)? {
        if let Err(error) = set(port_of(session, id)?, on) {
            told += &format!("Error during {verb} {what} mode for port {id}: {error}\n");
        }
    }
    if told.is_empty() { Ok(told) } else { Err(told.trim_end().to_owned()) }
}

fn promiscuous(session: &mut Session, args: &Args) -> Result<String, String> {
    let done = each(session, args, |port, on| port.set_promiscuous(on), "promiscuous");
    for id in args.ports(0, session)? {
        let on = port_of(session, id)?.promiscuous();
        session.ports.get_mut(id)?.wants.promiscuous = on;
    }
    done
}

fn all_multicast(session: &mut Session, args: &Args) -> Result<String, String> {
    each(session, args, |port, on| port.set_all_multicast(on), "all-multicast")
}

fn link(session: &mut Session, id: u16, up: bool) -> Result<String, String> {
    let done = port_of(session, id)?.set_link_up(up);
    done.map(|()| String::new())
        .map_err(|error| format!("Set link {} fail: {error}", if up { "up" } else { "down" }))
}
