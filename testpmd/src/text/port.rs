//! What a port is.

use std::fmt::Write;

use pollux_port::{Link, PortId, RxOffloads};

use super::{INFO, on, port};
use crate::hash;
use crate::session::Session;

/// Speed as DPDK says it (`rte_eth_link_speed_to_str`).
fn speed(link: &Link) -> String {
    match link.speed_mbps {
        None => "Unknown".into(),
        Some(0) => "None".into(),
        Some(speed) if speed % 1000 == 0 => format!("{} Gbps", speed / 1000),
        Some(2500) => "2.5 Gbps".into(),
        Some(speed) => format!("{speed} Mbps"),
    }
}

/// `show port info`.
///
/// # Errors
/// There is no such port, or it does not tell.
pub fn port_info(session: &mut Session, id: u16) -> Result<String, String> {
    let promiscuous = port(session, id)?.promiscuous();
    let port = port(session, id)?;
    let info = port.info();
    let mac = port.mac_address().map_err(|error| error.to_string())?;
    let (link, mtu) = (port.link(), port.mtu().map_err(|error| error.to_string())?);
    let (vlan, config) = (port.vlan_offloads(), port.config());
    let mut text = String::new();
    let _ = writeln!(text, "\n{INFO} Infos for port {id:<2} {INFO}");
    let _ = writeln!(text, "MAC address: {}\nDevice name: {}", mac.to_uppercase(), port.name());
    let _ = writeln!(text, "Driver name: {}\nFirmware-version: not available", info.driver);
    let _ = writeln!(text, "Devargs: {}", info.device.as_deref().unwrap_or_default());
    let socket = info.socket.unwrap_or(0);
    let _ = writeln!(text, "Connect to socket: {socket}\nmemory allocation on the socket: {socket}");
    let _ =
        writeln!(text, "Link status: {}\nLink speed: {}", if link.up { "up" } else { "down" }, speed(&link));
    if let Some(lanes) = link.lanes {
        let _ = writeln!(text, "Active Lanes: {lanes}");
    }
    let duplex = if link.duplex == pollux_port::Duplex::Full { "full-duplex" } else { "half-duplex" };
    let _ =
        writeln!(text, "Link duplex: {duplex}\nAutoneg status: {}", if link.autoneg { "On" } else { "Off" });
    let _ = writeln!(text, "MTU: {mtu}\nMinimum MTU: {}\nMaximum MTU: {}", info.min_mtu, info.max_mtu);
    let able = |on: bool| if on { "enabled" } else { "disabled" };
    let _ = writeln!(
        text,
        "Promiscuous mode: {}\nAllmulticast mode: {}",
        able(promiscuous),
        able(port.all_multicast())
    );
    let _ = writeln!(text, "Maximum number of MAC addresses: {}", info.max_mac_addresses);
    let _ = writeln!(text, "Maximum number of MAC addresses of hash filtering: 0");
    let _ = writeln!(
        text,
        "VLAN offload: \n  strip {}, filter {}, extend {}, qinq strip {}",
        on(vlan.contains(RxOffloads::VLAN_STRIP)),
        on(vlan.contains(RxOffloads::VLAN_FILTER)),
        on(vlan.contains(RxOffloads::VLAN_EXTEND)),
        on(vlan.contains(RxOffloads::QINQ_STRIP))
    );
    match info.rss {
        Some(rss) => {
            let _ = writeln!(
                text,
                "Hash key size in bytes: {}\nRedirection table size: {}",
                rss.key_bytes, rss.table_entries
            );
            let _ = writeln!(text, "Supported RSS offload flow types:\n{}", hash::names(rss.fields));
        }
        None => text += "No RSS offload flow type is supported.\n",
    }
    let _ = writeln!(text, "Minimum size of RX buffer: {}", info.min_rx_room);
    let longest = info.rx_frame_overhead.map_or(u32::MAX, |overhead| info.max_mtu + u32::from(overhead));
    let _ = writeln!(text, "Maximum configurable length of RX packet: {longest}");
    let _ = writeln!(text, "Maximum configurable size of LRO aggregated packet: {}", info.max_lro_bytes);
    if let Some(split) = info.split {
        let has = |on: bool| if on { "supported" } else { "not supported" };
        let _ = writeln!(
            text,
            "Rx split:\n\tMax segments: {}\n\tMulti-pool: {}",
            split.max_segments,
            has(split.multi_pools)
        );
        let _ = writeln!(
            text,
            "\tBuffer offset: {}\n\tOffset alignment: {}",
            has(split.offsets),
            split.offset_align
        );
        let _ = writeln!(text, "\tSelective Rx: {}", has(split.selective));
    }
    for (name, way, count, most, limits) in [
        ("RX", "RXD", config.rx_queues.len(), info.max_rx_queues, info.rx_descriptors),
        ("TX", "TXD", config.tx_queues.len(), info.max_tx_queues, info.tx_descriptors),
    ] {
        let _ =
            writeln!(text, "Current number of {name} queues: {count}\nMax possible {name} queues: {most}");
        let _ = writeln!(text, "Max possible number of {way}s per queue: {}", limits.max);
        let _ = writeln!(text, "Min possible number of {way}s per queue: {}", limits.min);
        let _ = writeln!(text, "{way}s number alignment: {}", limits.align);
    }
    let _ = writeln!(
        text,
        "Max segment number per packet: {0}\nMax segment number per MTU/TSO: {0}",
        info.max_tx_segments
    );
    let _ = writeln!(
        text,
        "Device capabilities: 0x0( )\nDevice error handling mode: none\nDevice private info:\n  none"
    );
    Ok(text)
}

/// `show port summary`.
///
/// # Errors
/// There is no such port, or it does not tell.
pub fn port_summary(session: &mut Session, ids: &[u16]) -> Result<String, String> {
    let mut text = format!("Number of available ports: {}\n", session.bringup.ports.len());
    text += "Port MAC Address       Name         Driver         Status   Link\n";
    for &id in ids {
        let port = port(session, id)?;
        let (link, info) = (port.link(), port.info());
        let mac = port.mac_address().map_err(|error| error.to_string())?;
        let status = if link.up { "up" } else { "down" };
        let _ = writeln!(
            text,
            "{id:<4} {} {:<12} {:<14} {status:<8} {}",
            mac.to_uppercase(),
            port.name(),
            info.driver,
            speed(&link)
        );
    }
    Ok(text)
}

/// `show device info`.
///
/// # Errors
/// There is no such port, or it does not tell.
pub fn device_info(session: &mut Session, ids: &[u16]) -> Result<String, String> {
    let mut text = String::new();
    for &id in ids {
        // The device model has a driver of PCI devices and no bus.
        let model = session.bringup.ledger(PortId(id)).is_some();
        let port = port(session, id)?;
        let info = port.info();
        let mac = port.mac_address().map_err(|error| error.to_string())?;
        let name = port.name();
        let bus = if info.driver.starts_with("mlx5") && !model { "pci" } else { "vdev" };
        let _ = writeln!(text, "\n{INFO} Infos for device {name} {INFO}\nBus name: {bus}\nBus information: ");
        let _ = writeln!(
            text,
            "Driver name: {}\nDevargs: {}",
            info.driver,
            info.device.as_deref().unwrap_or_default()
        );
        let _ = writeln!(text, "Connect to socket: {}\n\n\tPort id: {id} ", info.socket.unwrap_or(0));
        let _ = writeln!(text, "\tMAC address: {}\n\tDevice name: {name}", mac.to_uppercase());
        let _ = writeln!(text, "\tDevice speed capability: Autonegotiate (all speeds)");
    }
    Ok(text)
}

/// `show port N macs`.
///
/// # Errors
/// There is no such port, or it does not tell.
pub fn macs(session: &mut Session, id: u16) -> Result<String, String> {
    let port = port(session, id)?;
    let own = port.mac_address().map_err(|error| error.to_string())?;
    let further = port.further_mac_addresses();
    let mut text = format!("Number of MAC address added: {}\n", further.len() + 1);
    for mac in std::iter::once(&own).chain(further) {
        let _ = writeln!(text, "  {}", mac.to_uppercase());
    }
    Ok(text)
}
