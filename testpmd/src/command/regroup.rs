//! GRO and GSO of the engine csum.

use pollux_port::{PortState, TxOffloads};

use super::port_of;
use crate::engine::{GRO_FLUSH_MAX, gro_packets};
use crate::grammar::{Args, Command, Section};
use crate::session::Session;

const fn command(syntax: &'static str, help: &'static str, run: crate::grammar::Handler) -> Command {
    Command { syntax, help, section: Section::Config, run, rest: None }
}

pub(super) const COMMANDS: &[Command] = &[
    command(
        "set port <port> gro (on|off)",
        "Enable or disable Generic Receive Offload in csum forwarding engine.",
        gro,
    ),
    command("show port <port> gro", "Display GRO configuration.", show_gro),
    command(
        "set gro flush <cycles>",
        "Set the cycle to flush GROed packets from reassembly tables: 1 to 4.",
        gro_flush,
    ),
    command(
        "set port <port> gso (on|off)",
        "Enable or disable Generic Segmentation Offload in csum forwarding engine.",
        gso,
    ),
    command(
        "set gso segsz <length>",
        "Set max packet length for output GSO segments, including packet header and payload.",
        gso_bytes,
    ),
    command("show port <port> gso", "Show GSO configuration.", show_gso),
];

/// The least that GSO makes. Source: DPDK `lib/gso/rte_gso.h`, `RTE_GSO_SEG_SIZE_MIN`: headers of Ethernet, IPv4 and TCP, and a byte.
const GSO_BYTES_MIN: u16 = 55;

/// What DPDK's commands say is that of `app/test-pmd/config.c`, `setup_gro`, `setup_gro_flush_cycles` and `setup_gso`, and of `cmdline.c`.
fn gro(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, on) = (args.port(0), args.is_on(1));
    session.ports.get(id)?;
    if session.is_forwarding() {
        return Err("Before enable/disable GRO, please stop forwarding first".into());
    }
    match (session.ports.get(id)?.gro, on) {
        (true, true) => return Err(format!("Port {id} has enabled GRO. Please disable GRO first")),
        (false, false) => return Err(format!("Port {id} has disabled GRO")),
        _ => {}
    }
    let told = if on { chains(session)? } else { String::new() };
    session.ports.get_mut(id)?.gro = on;
    Ok(told)
}

/// Joined packets are chains: ports that send none as they are configured, and could, are configured anew.
fn chains(session: &mut Session) -> Result<String, String> {
    let mut running = Vec::new();
    for id in session.ports.slots.iter().map(|slot| slot.id.0).collect::<Vec<_>>() {
        let port = port_of(session, id)?;
        let (state, offers) = (port.state(), port.info().tx_offloads.contains(TxOffloads::MULTI_SEGS));
        let slot = session.ports.get(id)?;
        if (slot.wants.tx | slot.open).contains(TxOffloads::MULTI_SEGS) || !offers {
            continue;
        }
        if state == PortState::Started {
            port_of(session, id)?.stop().map_err(|error| error.to_string())?;
            running.push(id);
        }
        let slot = session.ports.get_mut(id)?;
        slot.wants.tx |= TxOffloads::MULTI_SEGS;
        slot.stale = true;
    }
    if running.is_empty() {
        return Ok(String::new());
    }
    let told = session.ports.start(&mut session.bringup, &running)?;
    session.wait_for_links();
    Ok(told)
}

fn gro_flush(session: &mut Session, args: &Args) -> Result<String, String> {
    if session.is_forwarding() {
        return Err("Before change flush interval for GRO, please stop forwarding first.".into());
    }
    let flush = u8::try_from(args.number(0)).unwrap_or(u8::MAX);
    let allowed = (1..=GRO_FLUSH_MAX).contains(&flush);
    session.settings.gro_flush = if allowed { flush } else { 1 };
    if allowed {
        return Ok(String::new());
    }
    Err(format!("The flushing cycle be in the range of 1 to {GRO_FLUSH_MAX}. Revert to the default value 1."))
}

fn show_gro(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, flush) = (args.port(0), session.settings.gro_flush);
    if !session.ports.get(id)?.gro {
        return Ok(format!("Port {id} doesn't enable GRO.\n"));
    }
    let packets = gro_packets(flush);
    Ok(format!(
        "GRO type: TCP/IPv4\nMax number of packets to perform GRO: {packets}\nFlushing cycles: {flush}\n"
    ))
}

fn gso(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, on) = (args.port(0), args.is_on(1));
    session.ports.get(id)?;
    if session.is_forwarding() {
        let verb = if on { "enabling" } else { "disabling" };
        return Err(format!("before {verb} GSO, please stop forwarding first"));
    }
    session.ports.get_mut(id)?.gso = on;
    Ok(String::new())
}

fn gso_bytes(session: &mut Session, args: &Args) -> Result<String, String> {
    if session.is_forwarding() {
        return Err("Before setting GSO segsz, please first stop forwarding".into());
    }
    match args.port(0) {
        bytes if bytes < GSO_BYTES_MIN => {
            Err(format!("gso_size should be larger than {GSO_BYTES_MIN}. Please input a legal value"))
        }
        bytes => {
            session.settings.gso_bytes = bytes;
            Ok(String::new())
        }
    }
}

fn show_gso(session: &mut Session, args: &Args) -> Result<String, String> {
    let id = args.port(0);
    if !session.ports.get(id)?.gso {
        return Ok(format!("GSO is not enabled on Port {id}\n"));
    }
    Ok(format!(
        "Max GSO'd packet size: {}B\nSupported GSO types: TCP/IPv4, UDP/IPv4, VxLAN with inner TCP/IPv4 packet, GRE with inner TCP/IPv4 packet\n",
        session.settings.gso_bytes
    ))
}
