//! Addresses, VLANs, checksums and segmentation.

use pollux_mempool::TxFlags;
use pollux_port::{MacAddress, PortState, QueueId, RxOffloads, TxOffloads, VlanTagPlace};

use super::port_of;
use crate::engine::Marks;
use crate::grammar::{Args, Command, Section};
use crate::session::Session;
use crate::text;

const fn command(syntax: &'static str, help: &'static str, run: crate::grammar::Handler) -> Command {
    Command { syntax, help, section: Section::Filters, run, rest: None }
}

pub(super) const COMMANDS: &[Command] = &[
    command(
        "mac_addr (add|remove|set) <port> <mac>",
        "Add or remove an address of a port, or set its own.",
        mac,
    ),
    command(
        "mcast_addr (add|remove) <port> <mac>",
        "Add or remove a multicast address of a port.",
        multicast,
    ),
    command(
        "vlan set (strip|filter|extend|qinq_strip) (on|off) <port>",
        "Enable or disable a VLAN offload of a port.",
        vlan_set,
    ),
    command(
        "vlan set stripq (on|off) <list>",
        "Enable or disable VLAN strip of a queue: port,queue.",
        strip_queue,
    ),
    command("vlan set (inner|outer) tpid <tpid> <port>", "Set the EtherType of VLAN tags.", tpid),
    command(
        "rx_vlan (add|rm) <vlan> <port>",
        "Add a VLAN to the filter of a port, or remove it.",
        |session, args| vlan_filter(session, args.word(0) == "add", args.port(1), args.port(2)),
    ),
    command(
        "rx_vlan (add|rm) all <port>",
        "Add all VLANs to the filter of a port, or remove them.",
        all_vlans,
    ),
    command(
        "tx_vlan set <port> <vlan>",
        "Insert a VLAN tag into packets that a port sends.",
        |session, args| tag(session, args.port(0), args.port(1), None),
    ),
    command("tx_vlan set <port> <vlan> <outer>", "Insert two VLAN tags.", |session, args| {
        tag(session, args.port(0), args.port(1), Some(args.port(2)))
    }),
    command("tx_vlan reset <port>", "Insert no VLAN tag.", untag),
    command(
        "tx_vlan set pvid <port> <vlan> (on|off)",
        "Set the VLAN of packets that a port sends without a tag.",
        pvid,
    ),
    command(
        "csum set (ip|udp|tcp|sctp|outer-ip|outer-udp) (hw|sw) <port>",
        "Have a checksum filled in by the port, or in software.",
        csum,
    ),
    command(
        "csum parse-tunnel (on|off) <port>",
        "Look into tunnels: checksums of the inner layers, and of the outer ones.",
        parse_tunnel,
    ),
    command("csum show <port>", "Show who fills in checksums.", |session, args| {
        text::csum(session, args.port(0))
    }),
    command(
        "tso set <bytes> <port>",
        "Have the port cut TCP packets into segments of so many bytes; 0: never.",
        tso,
    ),
    command("tso show <port>", "Show the segment size.", |session, args| tso_show(session, args.port(0))),
    command(
        "tunnel_tso set <bytes> <port>",
        "Have the port cut TCP packets in tunnels into segments of so many bytes; 0: never.",
        tunnel_tso,
    ),
    command("tunnel_tso show <port>", "Show the segment size in tunnels.", |session, args| {
        tunnel_tso_show(session, args.port(0))
    }),
];

fn mac(session: &mut Session, args: &Args) -> Result<String, String> {
    let (what, address) = (args.word(0), args.mac(2));
    session.ports.get(args.port(1))?;
    let port = port_of(session, args.port(1))?;
    let done = match what {
        "add" => port.add_mac_address(address),
        "remove" => port.remove_mac_address(address),
        _ => port.set_mac_address(address),
    };
    done.map(|()| String::new()).map_err(|error| format!("mac_addr_cmd error: ({error})"))
}

fn multicast(session: &mut Session, args: &Args) -> Result<String, String> {
    let (add, id, group) = (args.word(0) == "add", args.port(1), args.mac(2));
    if !MacAddress::is_multicast(group) {
        return Err(format!("Invalid multicast_addr {}", group.to_uppercase()));
    }
    let port = port_of(session, id)?;
    let mut groups = port.multicast_list().to_vec();
    match (groups.iter().position(|known| *known == group), add) {
        (Some(_), true) => return Err(format!("multicast address already filtered by port {id}")),
        (None, false) => return Err(format!("multicast address not filtered by port {id}")),
        (None, true) => groups.push(group),
        (Some(place), false) => drop(groups.remove(place)),
    }
    port.set_multicast_list(&groups).map(|()| String::new()).map_err(|error| {
        let diag = if error.is_unsupported() { -95 } else { -22 };
        format!("rte_eth_dev_set_mc_addr_list(port={id}, nb={}) failed. diag={diag}: {error}", groups.len())
    })
}

fn vlan_set(session: &mut Session, args: &Args) -> Result<String, String> {
    let (what, on, id) = (args.word(0), args.is_on(1), args.port(2));
    let bit = match what {
        "strip" => RxOffloads::VLAN_STRIP,
        "filter" => RxOffloads::VLAN_FILTER,
        "extend" => RxOffloads::VLAN_EXTEND,
        _ => RxOffloads::QINQ_STRIP,
    };
    let port = port_of(session, id)?;
    let mut offloads = port.vlan_offloads();
    offloads.set(bit, on);
    port.set_vlan_offloads(offloads)
        .map_err(|error| format!("rx_vlan_{what}_set(port_pi={id}, on={}) failed: {error}", u8::from(on)))?;
    session.ports.get_mut(id)?.wants.rx.set(bit, on);
    Ok(String::new())
}

fn strip_queue(session: &mut Session, args: &Args) -> Result<String, String> {
    let text = args.word(1);
    let pair = text.split_once(',').and_then(|(port, queue)| Some((port.parse().ok()?, queue.parse().ok()?)));
    let (port, queue): (u16, u16) =
        pair.ok_or_else(|| format!("'{text}' is not a port and a queue such as 0,1"))?;
    let done = port_of(session, port)?.set_vlan_strip_on_queue(QueueId(queue), args.is_on(0));
    done.map(|()| String::new()).map_err(|error| error.to_string())
}

fn tpid(session: &mut Session, args: &Args) -> Result<String, String> {
    let place = if args.word(0) == "inner" { VlanTagPlace::Inner } else { VlanTagPlace::Outer };
    let kind =
        u16::try_from(args.number(1)).map_err(|_| format!("TPID {:#x}: must fit 16 bits", args.number(1)))?;
    let done = port_of(session, args.port(2))?.set_vlan_ether_type(place, kind);
    done.map(|()| String::new()).map_err(|error| error.to_string())
}

fn vlan_filter(session: &mut Session, on: bool, vlan: u16, id: u16) -> Result<String, String> {
    let done = port_of(session, id)?.set_vlan_filter(vlan, on);
    done.map(|()| String::new()).map_err(|error| {
        format!("rte_eth_dev_vlan_filter(port_pi={id}, vlan_id={vlan}, on={}) failed: {error}", u8::from(on))
    })
}

fn all_vlans(session: &mut Session, args: &Args) -> Result<String, String> {
    let (on, id) = (args.word(0) == "add", args.port(1));
    for vlan in 0..4096 {
        vlan_filter(session, on, vlan, id)?;
    }
    Ok(String::new())
}

/// A port that is stopped: what it offers is turned on when it is configured.
fn stopped(session: &mut Session, id: u16) -> Result<(), String> {
    session.ports.get(id)?;
    if port_of(session, id)?.state() == PortState::Started {
        return Err(format!("Please stop port {id} first"));
    }
    Ok(())
}

fn tag(session: &mut Session, id: u16, inner: u16, outer: Option<u16>) -> Result<String, String> {
    stopped(session, id)?;
    if inner > 4095 || outer.is_some_and(|outer| outer > 4095) {
        return Err(format!("Invalid vlan_id {}: must be below 4096", inner.max(outer.unwrap_or(0))));
    }
    let offers = port_of(session, id)?.info().tx_offloads;
    let (bit, flags) = match outer {
        None => (TxOffloads::VLAN_INSERT, TxFlags::VLAN),
        Some(_) => (TxOffloads::QINQ_INSERT, TxFlags::VLAN | TxFlags::QINQ),
    };
    if !offers.contains(bit) {
        let what = if outer.is_some() { "qinq" } else { "vlan" };
        return Err(format!("Error: {what} insert is not supported by port {id}"));
    }
    let slot = session.ports.get_mut(id)?;
    slot.wants.tx = (slot.wants.tx - TxOffloads::VLAN_INSERT - TxOffloads::QINQ_INSERT) | bit;
    slot.marks = Marks { flags, tci: inner, tci_outer: outer.unwrap_or(0) };
    slot.stale = true;
    Ok(String::new())
}

fn untag(session: &mut Session, args: &Args) -> Result<String, String> {
    let id = args.port(0);
    stopped(session, id)?;
    let slot = session.ports.get_mut(id)?;
    slot.wants.tx -= TxOffloads::VLAN_INSERT | TxOffloads::QINQ_INSERT;
    (slot.marks, slot.stale) = (Marks::default(), true);
    Ok(String::new())
}

fn pvid(session: &mut Session, args: &Args) -> Result<String, String> {
    let tci = args.is_on(2).then_some(args.port(1));
    let done = port_of(session, args.port(0))?.set_port_vlan(tci);
    done.map(|()| String::new()).map_err(|error| error.to_string())
}

fn csum(session: &mut Session, args: &Args) -> Result<String, String> {
    let (what, hw, id) = (args.word(0), args.word(1) == "hw", args.port(2));
    stopped(session, id)?;
    let offers = port_of(session, id)?.info().tx_offloads;
    let (bit, name) = match what {
        "ip" => (TxOffloads::IPV4_CKSUM, "IP"),
        "udp" => (TxOffloads::UDP_CKSUM, "UDP"),
        "tcp" => (TxOffloads::TCP_CKSUM, "TCP"),
        "sctp" => (TxOffloads::SCTP_CKSUM, "SCTP"),
        "outer-ip" => (TxOffloads::OUTER_IPV4_CKSUM, "Outer IP"),
        _ => (TxOffloads::OUTER_UDP_CKSUM, "Outer UDP"),
    };
    let mut told = String::new();
    if hw && !offers.contains(bit) {
        told = format!("{name} checksum offload is not supported by port {id}\n");
    } else {
        let slot = session.ports.get_mut(id)?;
        slot.wants.tx.set(bit, hw);
        slot.stale = true;
        let set = match what {
            "ip" => &mut slot.csum.ip,
            "udp" => &mut slot.csum.udp,
            "tcp" => &mut slot.csum.tcp,
            "sctp" => &mut slot.csum.sctp,
            "outer-ip" => &mut slot.csum.outer_ip,
            _ => &mut slot.csum.outer_udp,
        };
        *set = hw;
    }
    Ok(told + &text::csum(session, id)?)
}

fn parse_tunnel(session: &mut Session, args: &Args) -> Result<String, String> {
    let id = args.port(1);
    session.ports.get_mut(id)?.csum.tunnels = args.is_on(0);
    text::csum(session, id)
}

fn tso(session: &mut Session, args: &Args) -> Result<String, String> {
    let id = args.port(1);
    stopped(session, id)?;
    let bytes = segment_bytes(args)?;
    let offers = port_of(session, id)?.info().tx_offloads;
    if bytes != 0 && !offers.contains(TxOffloads::TCP_TSO) {
        return Err(format!("Error: TSO is not supported by port {id}"));
    }
    // A segment is several mbufs' worth: chains go with it.
    let bits = TxOffloads::TCP_TSO | (TxOffloads::CHECKSUM | TxOffloads::MULTI_SEGS) & offers;
    let slot = session.ports.get_mut(id)?;
    slot.csum.tso_bytes = bytes;
    if bytes == 0 {
        slot.wants.tx -= TxOffloads::TCP_TSO;
    } else {
        slot.wants.tx |= bits;
    }
    slot.stale = true;
    tso_show(session, id)
}

fn tso_show(session: &Session, id: u16) -> Result<String, String> {
    Ok(match session.ports.get(id)?.csum.tso_bytes {
        0 => "TSO for non-tunneled packets is disabled\n".into(),
        bytes => format!("TSO segment size for non-tunneled packets is {bytes}\n"),
    })
}

fn segment_bytes(args: &Args) -> Result<u16, String> {
    let bytes = args.number(0);
    u16::try_from(bytes).map_err(|_| format!("segment size {bytes}: must be below 65536"))
}

/// What DPDK warns of stands before what is set. Source: DPDK `app/test-pmd/cmdline.c`, `cmd_tunnel_tso_set_parsed`,
/// `check_tunnel_tso_nic_support`.
fn tunnel_tso(session: &mut Session, args: &Args) -> Result<String, String> {
    let (id, bytes) = (args.port(1), segment_bytes(args)?);
    stopped(session, id)?;
    let offers = port_of(session, id)?.info().tx_offloads;
    if bytes != 0 && !offers.intersects(TxOffloads::TUNNEL_TSO) {
        return Err(format!("Error: TSO in tunnels is not supported by port {id}"));
    }
    let slot = session.ports.get_mut(id)?;
    let mut told = String::new();
    slot.csum.tunnel_tso = TxOffloads::TUNNEL_TSO & offers;
    if bytes == 0 {
        slot.wants.tx -= TxOffloads::TUNNEL_TSO;
    } else {
        for (kind, name) in [
            (TxOffloads::VXLAN_TNL_TSO, "VXLAN"),
            (TxOffloads::GRE_TNL_TSO, "GRE"),
            (TxOffloads::IPIP_TNL_TSO, "IPIP"),
            (TxOffloads::GENEVE_TNL_TSO, "GENEVE"),
            (TxOffloads::IP_TNL_TSO, "IP"),
            (TxOffloads::UDP_TNL_TSO, "UDP"),
        ] {
            if !offers.contains(kind) {
                told += &format!(
                    "Warning: {name} TUNNEL TSO not supported therefore not enabled for port {id}\n"
                );
            }
        }
        slot.wants.tx |= slot.csum.tunnel_tso | (TxOffloads::CHECKSUM | TxOffloads::MULTI_SEGS) & offers;
        if !slot.csum.tunnels {
            told += "Warning: csum parse_tunnel must be set so that tunneled packets are recognized\n";
        }
        if !slot.csum.outer_ip {
            told +=
                "Warning: csum set outer-ip must be set to hw if outer L3 is IPv4; not necessary for IPv6\n";
        }
    }
    (slot.csum.tunnel_tso_bytes, slot.stale) = (bytes, true);
    Ok(told + &tunnel_tso_show(session, id)?)
}

fn tunnel_tso_show(session: &Session, id: u16) -> Result<String, String> {
    Ok(match session.ports.get(id)?.csum.tunnel_tso_bytes {
        0 => "TSO for tunneled packets is disabled\n".into(),
        bytes => format!("TSO segment size for tunneled packets is {bytes}\n"),
    })
}
