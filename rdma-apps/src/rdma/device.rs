//! A device's port and GID: found, or what is wrong said in one line.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use pollux_bringup::{BringupError, RdmaDevice};
use pollux_verbs::{Gid, Mtu, PortAttributes, PortState, QpOptions, VerbsError};

use super::Failure;
use crate::exchange::line::Stop;

/// How long a port may take to come up once the other end is there.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A port of a device, from 1.
///
/// # Errors
/// There is no such port.
pub fn port(device: &RdmaDevice, number: u64) -> Result<(u8, PortAttributes), Failure> {
    let ports = device.context.device()?.base.phys_port_cnt;
    match u8::try_from(number).ok().filter(|number| (1..=ports).contains(number)) {
        Some(number) => Ok((number, device.context.port(number)?)),
        None => {
            let name = &device.name;
            let has = if ports == 1 { "one port, -i 1".to_owned() } else { format!("ports 1 to {ports}") };
            Err(Failure::Usage(format!("-i {number}: {name} has {has}")))
        }
    }
}

/// Waits until the port carries data: with a model, until the other end's device is on its wire. Without `patience` it waits
/// for whoever comes.
///
/// # Errors
/// It does not come up in that time, or a stop.
pub fn wait_active(
    device: &RdmaDevice,
    port: u8,
    patience: Option<Duration>,
    stop: Stop<'_>,
) -> Result<PortAttributes, Failure> {
    let begin = Instant::now();
    loop {
        let attributes = device.context.port(port)?;
        if PortState::from_code(attributes.legacy_resp.state) == PortState::Active {
            return Ok(attributes);
        }
        if stop() {
            return Err(Failure::Stopped);
        }
        if patience.is_some_and(|patience| begin.elapsed() > patience) {
            let why = match if port == 1 { device.wire() } else { device.second_wire() } {
                Some(wire) => {
                    format!(
                        "no peer on its wire, {wire}; the two ends must name the same sockets in opposite order"
                    )
                }
                None => "check `ip link`, the cable and the switch".into(),
            };
            return Err(Failure::Error(format!("port {port} of {} is down: {why}", device.name)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether another end can be on the wire of a device: those of models lead to another process, or nowhere.
///
/// # Errors
/// Nobody can reach it.
pub fn check_wire(device: &RdmaDevice) -> Result<(), Failure> {
    let leads = |wire: &String| ["unix:", "iface:"].iter().any(|kind| wire.starts_with(kind));
    for (key, wire) in [("wire", device.wire()), ("wire2", device.second_wire())] {
        if let Some(wire) = wire.filter(|wire| !leads(wire)) {
            let name = &device.name;
            return Err(Failure::Usage(format!(
                "{name}: its {key} ({wire}) does not connect to another process; use --vdev {name},{key}=unix:/tmp/a:/tmp/b, and {key}=unix:/tmp/b:/tmp/a at the other end"
            )));
        }
    }
    Ok(())
}

/// A GID of a port by its index, `option` being how it was typed; `None` when none was.
///
/// # Errors
/// There is none, with those that are there.
pub fn gid(
    device: &RdmaDevice,
    port: u8,
    index: Option<u64>,
    option: &str,
) -> Result<(u8, [u8; 16]), Failure> {
    let all: Vec<Gid> =
        device.context.gids()?.into_iter().filter(|gid| gid.port == u32::from(port)).collect();
    let found = index.and_then(|index| all.iter().find(|gid| u64::from(gid.index) == index));
    if let Some(gid) = found
        && let Ok(index) = u8::try_from(gid.index)
    {
        return Ok((index, gid.gid));
    }
    let list: Vec<String> =
        all.iter().map(|gid| format!("{option} {} ({})", gid.index, Ipv6Addr::from(gid.gid))).collect();
    let name = &device.name;
    let list = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    Err(Failure::Usage(match index {
        Some(index) => format!("{option} {index}: port {port} of {name} has no such GID; available: {list}"),
        None => format!("RoCE requires a GID index; available on port {port} of {name}: {list}"),
    }))
}

/// The GID that perftest takes when none is chosen: of an IPv4 address if there is one (of an IPv6 one if `ipv6`), not of this
/// link alone if possible, RoCE v2 before v1. Source: linux-rdma/perftest `src/perftest_communication.c`, `compute_gid_score`.
///
/// # Errors
/// The port has none.
pub fn best_gid(device: &RdmaDevice, port: u8, ipv6: bool) -> Result<(u8, [u8; 16]), Failure> {
    let best = device.context.best_gid(port, ipv6)?;
    match best.and_then(|gid| Some((u8::try_from(gid.index).ok()?, gid.gid))) {
        Some(best) => Ok(best),
        None => gid(device, port, None, "-x"),
    }
}

/// Whether a queue pair and its completion queue fit the device, before the kernel says so in fewer words.
///
/// # Errors
/// They do not, with the limits.
pub fn check_depth(
    device: &RdmaDevice,
    qp: &QpOptions,
    completions: u64,
    options: (&str, &str),
) -> Result<(), Failure> {
    let limits = device.context.device()?.base;
    let name = &device.name;
    let (sends, receives) = options;
    for (option, depth, most) in [
        (sends, u64::from(qp.room.sends), limits.max_qp_wr),
        (receives, u64::from(qp.room.receives), limits.max_qp_wr),
        ("completions", completions, limits.max_cqe),
    ] {
        if depth > u64::from(most) {
            return Err(Failure::Usage(format!("{option} {depth} exceeds the limit of {name} ({most})")));
        }
    }
    Ok(())
}

/// Whether a path may have this MTU: no larger one than its port's.
///
/// # Errors
/// It may not.
pub fn check_mtu(
    device: &RdmaDevice,
    port: u8,
    attributes: &PortAttributes,
    mtu: Mtu,
) -> Result<(), Failure> {
    let most = Mtu::active(attributes);
    if mtu > most {
        return Err(Failure::Usage(format!(
            "-m {mtu} exceeds the MTU of port {port} of {} ({most}): give at most {most}",
            device.name
        )));
    }
    Ok(())
}

/// Whether the GIDs of both ends are of addresses of one kind: between two kinds no packet goes.
///
/// # Errors
/// They are not. `option` is how they are chosen.
pub fn check_kinds(own: [u8; 16], other: [u8; 16], peer: &str, option: &str) -> Result<(), Failure> {
    let kind = |gid: [u8; 16]| match Ipv6Addr::from(gid).to_ipv4_mapped() {
        Some(_) => "IPv4",
        None => "IPv6",
    };
    let (own, other) = (kind(own), kind(other));
    if own == other {
        return Ok(());
    }
    Err(Failure::Peer(format!(
        "GID types differ: {own} here, {other} at {peer}; choose GIDs of one type with {option} at both ends"
    )))
}

/// Whether a message is not longer than the port's longest.
///
/// # Errors
/// It is.
pub fn check_size(device: &RdmaDevice, port: &PortAttributes, size: u64) -> Result<(), Failure> {
    let most = port.legacy_resp.max_msg_sz;
    if size > u64::from(most) {
        return Err(Failure::Usage(format!(
            "-s {size} exceeds the maximum message size of {} ({most})",
            device.name
        )));
    }
    Ok(())
}

/// What the device says to one queue pair more, which may be one too many.
#[must_use]
pub fn too_many(error: VerbsError, wanted: usize, made: usize) -> Failure {
    if made == 0 {
        return error.into();
    }
    Failure::Error(format!(
        "-q {wanted}: only {made} QPs could be created: {}; give fewer",
        BringupError::from(error).line()
    ))
}
