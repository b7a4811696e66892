//! Devices that come and go at the prompt, with DPDK's lines.

use pollux_port::{PortId, PortState};

use super::port::command;
use super::port_of;
use crate::grammar::{Args, Command};
use crate::ports::PortSlot;
use crate::session::Session;
use crate::setup::wants_of;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "port attach <text>",
        "Open a device, with its arguments; its port is to be started: net_pcap1,rx_pcap=a.pcap.",
        attach,
    ),
    command(
        "port detach <port>",
        "Let go of the device of a port, which is stopped or closed.",
        |session, args| {
            let id = args.port(0);
            detach(session, id).map(|ports| format!("Removing a device...\nDevice is detached\n{ports}"))
        },
    ),
    command(
        "device detach <text>",
        "Let go of a device, whose port is stopped or closed.",
        |session, args| {
            let name = args.word(0);
            let port =
                session.bringup.ports.iter_all().find(|port| port.name() == name).map(|port| port.id().0);
            let id = port.ok_or_else(|| format!("Failed to detach device {name}: no port has it"))?;
            detach(session, id)
                .map(|ports| format!("Removing a device...\nDevice {name} is detached\n{ports}"))
        },
    ),
];

fn attach(session: &mut Session, args: &Args) -> Result<String, String> {
    let device = args.word(0);
    let failed = |why: String| format!("Failed to attach port {device}: {why}");
    let id = session.bringup.attach(device).map_err(|error| failed(error.line()))?;
    let wants = wants_of(&session.bringup, id, &session.options).map_err(|error| failed(error.line()))?;
    let slots = &mut session.ports.slots;
    let place = slots.partition_point(|slot| slot.id < id);
    slots.insert(place, PortSlot::new(id, wants));
    session.settings.ports.push(id.0);
    let total = renumber(session);
    let notice = session.bringup.ports.get(id).and_then(|port| session.options.idle.notice(port));
    let notice = notice.map(|notice| notice + "\n").unwrap_or_default();
    Ok(format!("Attaching a new port...\nPort {id} is attached. Now total ports is {total}\nDone\n{notice}"))
}

/// Lets go of the device of a port: what DPDK says of the ports that are left.
fn detach(session: &mut Session, id: u16) -> Result<String, String> {
    let state = port_of(session, id)?.state();
    if state == PortState::Started {
        return Err("Port not stopped".into());
    }
    if session.is_forwarding() && session.settings.ports.contains(&id) {
        return Err(format!("Please remove port {id} from forwarding configuration."));
    }
    // Its queues first: the device may reach their buffers until they are gone.
    session.ports.slots.retain(|slot| slot.id.0 != id);
    session.settings.ports.retain(|port| *port != id);
    session.forget(PortId(id));
    session.bringup.detach(PortId(id)).map_err(|error| error.line())?;
    let closed = if state == PortState::Closed { "" } else { "Port was not closed\n" };
    Ok(format!("{closed}Now total ports is {}\nDone\n", renumber(session)))
}

/// Counts the ports that there are, for whoever watches too.
fn renumber(session: &Session) -> usize {
    let ids: Vec<PortId> = session.ports.slots.iter().map(|slot| slot.id).collect();
    session.meter.replace_ports(&ids);
    ids.len()
}
