//! What testpmd prints, in DPDK's layout: its users' scripts and its test suite read it
//! (`app/test-pmd/{config,testpmd}.c`, `dts/api/testpmd/types.py`).

use std::fmt::Write;
use std::time::Instant;

use pollux_port::{Direction, HashFields, Link, Port, PortId, PortStats, QueueId, RxOffloads, TxOffloads};

use crate::engine::{Mode, TxSplit};
use crate::lane::{Count, LaneCounts};
use crate::ports::no_port;
use crate::session::Session;
use crate::verbose::upper;

const FORWARD: &str = "----------------------";
const ALL: &str = "+++++++++++++++";
const NIC: &str = "########################";
const INFO: &str = "*********************";

/// The port of that number.
fn port(session: &mut Session, id: u16) -> Result<&mut Port, String> {
    session.bringup.ports.get_mut(PortId(id)).ok_or_else(|| no_port(id))
}

/// `show fwd stats all`, and what `stop` ends with.
#[must_use]
pub fn forward_stats(session: &Session) -> String {
    let mut text = String::new();
    let Some(run) = &session.run else { return text };
    let counts: Vec<LaneCounts> = run.lanes.iter().map(crate::lane::LaneView::counts).collect();
    let many = run.lanes.len() > session.settings.ports.len();
    if many {
        for (lane, count) in run.lanes.iter().zip(&counts) {
            if count.of(Count::RxPackets) + count.of(Count::TxPackets) + count.of(Count::Dropped) == 0 {
                continue;
            }
            let _ = writeln!(
                text,
                "\n  ------- Forward Stats for RX Port={:2}/Queue={:2} -> TX Port={:2}/Queue={:2} -------",
                lane.from.0.0, lane.from.1.0, lane.to.0.0, lane.to.1.0
            );
            let _ = write!(
                text,
                "  RX-packets: {:<14} TX-packets: {:<14} TX-dropped: {:<14}",
                count.of(Count::RxPackets),
                count.of(Count::TxPackets),
                count.of(Count::Dropped)
            );
            if run.mode == Mode::Csum {
                let _ = writeln!(
                    text,
                    "  RX- bad IP checksum: {:<14}  Rx- bad L4 checksum: {:<14} Rx- bad outer L4 checksum: {:<14}",
                    count.of(Count::BadIp),
                    count.of(Count::BadL4),
                    count.of(Count::BadOuterL4)
                );
                let _ = writeln!(text, " RX- bad outer IP checksum: {:<14}", count.of(Count::BadOuterIp));
            } else {
                text.push('\n');
            }
            if session.settings.record_bursts {
                text += &bursts("RX", count.rx_bursts());
                text += &bursts("TX", count.tx_bursts());
            }
        }
    }
    let mut all = [0u64; 5];
    for &id in &session.settings.ports {
        let (Some(port), Ok(slot)) = (session.bringup.ports.get(PortId(id)), session.ports.get(id)) else {
            continue;
        };
        let (now, begun) = (port.stats(), &slot.begun);
        let less = |now: u64, begun: u64| now.saturating_sub(begun);
        let (received, missed) = (less(now.ipackets, begun.ipackets), less(now.imissed, begun.imissed));
        let (sent, failed) = (less(now.opackets, begun.opackets), less(now.oerrors, begun.oerrors));
        let (errors, empty) = (less(now.ierrors, begun.ierrors), less(now.rx_nombuf, begun.rx_nombuf));
        let of = |end: Direction| {
            run.lanes
                .iter()
                .zip(&counts)
                .filter(move |(lane, _)| (if end == Direction::Rx { lane.from } else { lane.to }).0.0 == id)
        };
        let dropped = failed + of(Direction::Tx).map(|(_, count)| count.of(Count::Dropped)).sum::<u64>();
        for (sum, count) in all.iter_mut().zip([received, missed, sent, dropped, empty]) {
            *sum += count;
        }
        let _ = writeln!(text, "\n  {FORWARD} Forward statistics for port {id:<2} {FORWARD}");
        let _ = writeln!(
            text,
            "  RX-packets: {received:<14} RX-dropped: {missed:<14}RX-total: {}",
            received + missed
        );
        if run.mode == Mode::Csum {
            let sum = |what: Count| of(Direction::Rx).map(|(_, count)| count.of(what)).sum::<u64>();
            let _ = writeln!(
                text,
                "  Bad-ipcsum: {:<14} Bad-l4csum: {:<14}Bad-outer-l4csum: {:<14}",
                sum(Count::BadIp),
                sum(Count::BadL4),
                sum(Count::BadOuterL4)
            );
            let _ = writeln!(text, "  Bad-outer-ipcsum: {:<14}", sum(Count::BadOuterIp));
        }
        if errors + empty > 0 {
            let _ = writeln!(text, "  RX-error: {errors}\n  RX-nombufs: {empty:<14}");
        }
        let _ =
            writeln!(text, "  TX-packets: {sent:<14} TX-dropped: {dropped:<14}TX-total: {}", sent + dropped);
        if session.settings.record_bursts && !many {
            if let Some((_, count)) = of(Direction::Rx).next() {
                text += &bursts("RX", count.rx_bursts());
            }
            if let Some((_, count)) = of(Direction::Tx).next() {
                text += &bursts("TX", count.tx_bursts());
            }
        }
        let _ = writeln!(text, "  {FORWARD}--------------------------------{FORWARD}");
    }
    let [received, missed, sent, dropped, empty] = all;
    let _ = writeln!(text, "\n  {ALL} Accumulated forward statistics for all ports{ALL}");
    let _ = writeln!(
        text,
        "  RX-packets: {received:<14} RX-dropped: {missed:<14}RX-total: {}",
        received + missed
    );
    let _ = writeln!(text, "  TX-packets: {sent:<14} TX-dropped: {dropped:<14}TX-total: {}", sent + dropped);
    if empty > 0 {
        let _ = writeln!(text, "  RX-nombufs: {empty:<14}");
    }
    let _ = writeln!(text, "  {ALL}++++++++++++++++++++++++++++++++++++++++++++++{ALL}");
    if session.settings.record_cycles && received + sent > 0 {
        let makes = matches!(run.mode, Mode::TxOnly | Mode::Flowgen);
        let packets = if makes { sent } else { received };
        let cycles: u64 = counts.iter().map(|count| count.of(Count::Cycles)).sum();
        let _ = writeln!(
            text,
            "\n  CPU cycles/packet={:.2} (busy cycles={cycles} / total {} packets={packets}) at {} MHz Clock",
            cycles as f64 / packets.max(1) as f64,
            run.mode.name(),
            session.bringup.eal.clock().hz() / 1_000_000
        );
    }
    text
}

/// The shares of the commonest burst sizes.
fn bursts(way: &str, spread: &[u64]) -> String {
    let total: u64 = spread.iter().sum();
    if total == 0 {
        return String::new();
    }
    let mut sizes: Vec<usize> = (1..spread.len()).filter(|&size| spread[size] > 0).collect();
    sizes.sort_by_key(|&size| std::cmp::Reverse(spread[size]));
    let (mut text, mut seen, mut shown) = (format!("  {way}-bursts : {total} ["), 0, 0);
    for size in std::iter::once(0).chain(sizes.into_iter().take(2)) {
        seen += spread[size];
        if seen == total {
            let _ = writeln!(text, "{}% of {size} pkts]", 100 - shown);
            return text;
        }
        let share = spread[size] * 100 / total;
        let _ = write!(text, "{share}% of {size} pkts + ");
        shown += share;
    }
    let _ = writeln!(text, "{}% of other]", 100 - shown);
    text
}

/// `show port stats`.
///
/// # Errors
/// There is no such port.
pub fn nic_stats(session: &mut Session, id: u16) -> Result<String, String> {
    let stats = port(session, id)?.stats();
    let xstats = port(session, id)?.xstats();
    let now = Instant::now();
    let slot = session.ports.get_mut(id)?;
    let (seconds, before) = match slot.shown.replace((now, stats.clone())) {
        Some((then, before)) => (now.duration_since(then).as_secs_f64(), before),
        None => (0.0, PortStats::default()),
    };
    let rate = |now: u64, before: u64| {
        if seconds > 0.0 { (now.saturating_sub(before) as f64 / seconds) as u64 } else { 0 }
    };
    let mut text = String::new();
    let _ = writeln!(text, "\n  {NIC} NIC statistics for port {id:<2} {NIC}");
    let _ = writeln!(
        text,
        "  RX-packets: {:<10} RX-missed: {:<10} RX-bytes:  {}",
        stats.ipackets, stats.imissed, stats.ibytes
    );
    let _ = writeln!(text, "  RX-errors: {}\n  RX-nombuf:  {:<10}", stats.ierrors, stats.rx_nombuf);
    let _ = writeln!(
        text,
        "  TX-packets: {:<10} TX-errors: {:<10} TX-bytes:  {}",
        stats.opackets, stats.oerrors, stats.obytes
    );
    let _ = writeln!(text, "\n  Throughput (since last show)");
    let _ = writeln!(
        text,
        "  Rx-pps: {:12}          Rx-bps: {:12}\n  Tx-pps: {:12}          Tx-bps: {:12}",
        rate(stats.ipackets, before.ipackets),
        rate(stats.ibytes, before.ibytes) * 8,
        rate(stats.opackets, before.opackets),
        rate(stats.obytes, before.obytes) * 8
    );
    for name in &session.settings.xstats {
        if let Some(xstat) = xstats.iter().find(|xstat| xstat.name == *name) {
            let _ = writeln!(text, "  {name:<32} {:12}", xstat.value);
        }
    }
    let _ = writeln!(text, "  {NIC}############################{NIC}");
    Ok(text)
}

/// `show port xstats`.
///
/// # Errors
/// There is no such port.
pub fn xstats(session: &mut Session, id: u16) -> Result<String, String> {
    let hide = session.settings.hide_zero;
    let mut text = format!("###### NIC extended statistics for port {id:<2}\n");
    for xstat in port(session, id)?.xstats().iter().filter(|xstat| !hide || xstat.value != 0) {
        let _ = writeln!(text, "{}: {}", xstat.name, xstat.value);
    }
    Ok(text)
}

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

fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
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
    let _ = writeln!(text, "MAC address: {}\nDevice name: {}", upper(mac), port.name());
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
            let _ = writeln!(text, "Supported RSS offload flow types:\n{}", hash_names(rss.fields));
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
            upper(mac),
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
        let port = port(session, id)?;
        let info = port.info();
        let mac = port.mac_address().map_err(|error| error.to_string())?;
        let name = port.name();
        let bus =
            if info.driver.starts_with("mlx5") && !info.driver.contains("model") { "pci" } else { "vdev" };
        let _ = writeln!(text, "\n{INFO} Infos for device {name} {INFO}\nBus name: {bus}\nBus information: ");
        let _ = writeln!(
            text,
            "Driver name: {}\nDevargs: {}",
            info.driver,
            info.device.as_deref().unwrap_or_default()
        );
        let _ = writeln!(text, "Connect to socket: {}\n\n\tPort id: {id} ", info.socket.unwrap_or(0));
        let _ = writeln!(text, "\tMAC address: {}\n\tDevice name: {name}", upper(mac));
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
        let _ = writeln!(text, "  {}", upper(*mac));
    }
    Ok(text)
}

/// `show rxq info`, `show txq info`.
///
/// # Errors
/// There is no such port or queue.
pub fn queue_info(
    session: &mut Session,
    direction: Direction,
    id: u16,
    queue: u16,
) -> Result<String, String> {
    let of = |direction| if direction == Direction::Rx { "RX" } else { "TX" };
    let way = of(direction);
    let missing = || {
        format!(
            "Failed to retrieve information for port: {id}, {way} queue: {queue}\nerror desc: Invalid argument(-22)"
        )
    };
    let slot = session.ports.get(id)?;
    let mode = match direction {
        Direction::Rx => {
            slot.rx.get(usize::from(queue)).and_then(Option::as_ref).map(|queue| queue.burst_mode())
        }
        Direction::Tx => {
            slot.tx.get(usize::from(queue)).and_then(Option::as_ref).map(|queue| queue.burst_mode())
        }
    };
    let port = port(session, id)?;
    let info = port.info();
    let running = match direction {
        Direction::Rx => port.rx_queue_running(QueueId(queue)),
        Direction::Tx => port.tx_queue_running(QueueId(queue)),
    };
    let state = if running.unwrap_or(false) { "started" } else { "stopped" };
    let config = port.config();
    let mut text = format!("\n{INFO} Infos for port {id:<2}, {way} queue {queue:<2} {INFO}");
    match direction {
        Direction::Rx => {
            let own = config.rx_queues.get(usize::from(queue)).ok_or_else(missing)?;
            let chains = own.offloads.contains(RxOffloads::SCATTER)
                || config.rx_offloads.contains(RxOffloads::SCATTER)
                || !own.segments.is_empty();
            let _ = write!(text, "\nMempool: {}", own.pool.name());
            text += "\nRX prefetch threshold: 0\nRX host threshold: 0\nRX writeback threshold: 0\nRX free threshold: 0";
            let _ = write!(text, "\nRX drop packets: off\nRX deferred start: {}", on(own.deferred_start));
            let _ = write!(text, "\nRX scattered packets: {}\nRx queue state: {state}", on(chains));
            let _ = write!(
                text,
                "\nRX buffer size: {}",
                own.pool.data_room().saturating_sub(own.pool.headroom())
            );
            let _ = write!(text, "\nNumber of RXDs: {}", info.rx_descriptors.adjust(own.descriptors));
        }
        Direction::Tx => {
            let own = config.tx_queues.get(usize::from(queue)).ok_or_else(missing)?;
            text += "\nTX prefetch threshold: 0\nTX host threshold: 0\nTX writeback threshold: 0";
            let _ = write!(
                text,
                "\nTX RS threshold: 0\nTX free threshold: 0\nTX deferred start: {}",
                on(own.deferred_start)
            );
            let _ = write!(
                text,
                "\nNumber of TXDs: {}\nTx queue state: {state}",
                info.tx_descriptors.adjust(own.descriptors)
            );
        }
    }
    if let Some(mode) = mode {
        let _ = write!(text, "\nBurst mode: {mode}");
    }
    text.push('\n');
    Ok(text)
}

/// `rte_eth_dev_rx_offload_name`.
#[must_use]
pub fn rx_offload_names(offloads: RxOffloads) -> String {
    names(offloads.iter_names().map(|(name, _)| name))
}

/// `rte_eth_dev_tx_offload_name`.
#[must_use]
pub fn tx_offload_names(offloads: TxOffloads) -> String {
    names(offloads.iter_names().map(|(name, _)| name))
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!(" {name}")).collect()
}

/// `show port N rx_offload|tx_offload capabilities`.
///
/// # Errors
/// There is no such port.
pub fn offload_capabilities(session: &mut Session, id: u16, direction: Direction) -> Result<String, String> {
    let info = port(session, id)?.info();
    let (way, queue, whole) = match direction {
        Direction::Rx => (
            "Rx",
            rx_offload_names(info.rx_queue_offloads),
            rx_offload_names(info.rx_offloads - info.rx_queue_offloads),
        ),
        Direction::Tx => (
            "Tx",
            tx_offload_names(info.tx_queue_offloads),
            tx_offload_names(info.tx_offloads - info.tx_queue_offloads),
        ),
    };
    Ok(format!(
        "{way} Offloading Capabilities of port {id} :\n  Per Queue :{queue}\n  Per Port  :{whole}\n\n"
    ))
}

/// `show port N rx_offload|tx_offload configuration`.
///
/// # Errors
/// There is no such port.
pub fn offload_configuration(session: &mut Session, id: u16, direction: Direction) -> Result<String, String> {
    let config = port(session, id)?.config();
    let (way, whole, queues): (_, _, Vec<String>) = match direction {
        Direction::Rx => (
            "Rx",
            rx_offload_names(config.rx_offloads),
            config
                .rx_queues
                .iter()
                .map(|queue| rx_offload_names(queue.offloads | config.rx_offloads))
                .collect(),
        ),
        Direction::Tx => (
            "Tx",
            tx_offload_names(config.tx_offloads),
            config
                .tx_queues
                .iter()
                .map(|queue| tx_offload_names(queue.offloads | config.tx_offloads))
                .collect(),
        ),
    };
    let mut text = format!("{way} Offloading Configuration of port {id} :\n  Port :{whole}\n");
    for (number, names) in queues.iter().enumerate() {
        let _ = writeln!(text, "  Queue[{number:2}] :{names}");
    }
    text.push('\n');
    Ok(text)
}

/// testpmd's names of hash fields (`app/test-pmd/config.c`, `rss_type_table`).
pub const HASH_NAMES: [(&str, HashFields); 29] = [
    ("ipv4", HashFields::IPV4),
    ("ipv4-frag", HashFields::FRAG_IPV4),
    ("ipv4-tcp", HashFields::NONFRAG_IPV4_TCP),
    ("ipv4-udp", HashFields::NONFRAG_IPV4_UDP),
    ("ipv4-sctp", HashFields::NONFRAG_IPV4_SCTP),
    ("ipv4-other", HashFields::NONFRAG_IPV4_OTHER),
    ("ipv6", HashFields::IPV6),
    ("ipv6-frag", HashFields::FRAG_IPV6),
    ("ipv6-tcp", HashFields::NONFRAG_IPV6_TCP),
    ("ipv6-udp", HashFields::NONFRAG_IPV6_UDP),
    ("ipv6-sctp", HashFields::NONFRAG_IPV6_SCTP),
    ("ipv6-other", HashFields::NONFRAG_IPV6_OTHER),
    ("l2-payload", HashFields::L2_PAYLOAD),
    ("ipv6-ex", HashFields::IPV6_EX),
    ("ipv6-tcp-ex", HashFields::IPV6_TCP_EX),
    ("ipv6-udp-ex", HashFields::IPV6_UDP_EX),
    ("port", HashFields::PORT),
    ("vxlan", HashFields::VXLAN),
    ("geneve", HashFields::GENEVE),
    ("nvgre", HashFields::NVGRE),
    ("gtpu", HashFields::GTPU),
    ("eth", HashFields::ETH),
    ("s-vlan", HashFields::S_VLAN),
    ("c-vlan", HashFields::C_VLAN),
    ("esp", HashFields::ESP),
    ("l4-dst-only", HashFields::L4_DST_ONLY),
    ("l4-src-only", HashFields::L4_SRC_ONLY),
    ("l3-dst-only", HashFields::L3_DST_ONLY),
    ("l3-src-only", HashFields::L3_SRC_ONLY),
];

/// Names of groups of them.
pub const HASH_GROUPS: [(&str, HashFields); 6] = [
    (
        "all",
        HashFields::IP
            .union(HashFields::TCP)
            .union(HashFields::UDP)
            .union(HashFields::NONFRAG_IPV4_SCTP)
            .union(HashFields::NONFRAG_IPV6_SCTP)
            .union(HashFields::L2_PAYLOAD)
            .union(HashFields::ETH)
            .union(HashFields::ESP)
            .union(HashFields::GTPU)
            .union(HashFields::S_VLAN)
            .union(HashFields::C_VLAN),
    ),
    ("none", HashFields::empty()),
    ("ip", HashFields::IP),
    ("udp", HashFields::UDP),
    ("tcp", HashFields::TCP),
    ("sctp", HashFields::NONFRAG_IPV4_SCTP.union(HashFields::NONFRAG_IPV6_SCTP)),
];

/// The fields of that name.
#[must_use]
pub fn hash_by_name(name: &str) -> Option<HashFields> {
    HASH_GROUPS.iter().chain(&HASH_NAMES).find(|(known, _)| *known == name).map(|(_, fields)| *fields)
}

/// Names of hash fields, a few a line, two spaces before each.
fn hash_names(fields: HashFields) -> String {
    const WIDTH: usize = 60;
    let (mut text, mut line) = (String::new(), String::new());
    for (name, _) in HASH_NAMES.iter().filter(|(_, bits)| fields.contains(*bits)) {
        if line.len() + name.len() + 2 > WIDTH {
            text += &line;
            text.push('\n');
            line.clear();
        }
        line += "  ";
        line += name;
    }
    text + &line
}

/// `show port N rss-hash [key|algorithm]`.
///
/// # Errors
/// There is no such port, or it has no RSS.
pub fn rss_hash(session: &mut Session, id: u16, what: &str) -> Result<String, String> {
    let port = port(session, id)?;
    if port.info().rss.is_none() {
        return Err("dev_info did not provide a valid hash key size".into());
    }
    let rss = port.rss().map_err(|error| error.to_string())?;
    if rss.fields.is_empty() {
        return Ok("RSS disabled\n".into());
    }
    if what == "algorithm" {
        return Ok(format!("RSS algorithm:\n  {}\n", rss.algorithm));
    }
    let mut text = format!("RSS functions:\n{}\n", hash_names(rss.fields));
    if what == "key" {
        let key: String = rss.key.iter().flatten().map(|byte| format!("{byte:02X}")).collect();
        let _ = writeln!(text, "RSS key:\n{key}");
    }
    Ok(text)
}

/// `show config fwd`, and what `start` says: the streams, and who forwards them.
#[must_use]
pub fn streams(session: &mut Session, mode: Mode) -> String {
    let plans = session.plan(mode);
    let cores = plans.iter().map(|plan| plan.lcore + 1).max().unwrap_or(0);
    let retry = if session.settings.retry { " with retry" } else { "" };
    let mut text = format!(
        "{} packet forwarding{retry} - ports={} - cores={cores} - streams={} - NUMA support enabled, MP allocation mode: native\n",
        mode.name(),
        session.settings.ports.len(),
        plans.len()
    );
    if session.settings.retry {
        let _ = writeln!(
            text,
            "TX retry num: {}, delay between TX retries: {}us",
            session.settings.retry_tries, session.settings.retry_delay_us
        );
    }
    for lcore in 0..cores {
        let own: Vec<_> = plans.iter().filter(|plan| plan.lcore == lcore).collect();
        let _ = writeln!(
            text,
            "Logical Core {} (socket 0) forwards packets on {} streams:",
            session.settings.lcores[lcore],
            own.len()
        );
        for plan in own {
            let (from, to) = plan.ports;
            let _ = writeln!(
                text,
                "  RX P={from}/Q={0} (socket 0) -> TX P={to}/Q={0} (socket 0) peer={1}",
                plan.queue,
                upper(session.peer(to))
            );
        }
    }
    text.push('\n');
    if session.is_forwarding() {
        return text;
    }
    text + &rxtx(session, mode)
}

/// `show config rxtx`.
#[must_use]
pub fn rxtx(session: &mut Session, mode: Mode) -> String {
    let settings = &session.settings;
    let mut text = format!("  {} packet forwarding packets/burst={}\n", mode.name(), settings.burst);
    if matches!(mode, Mode::TxOnly | Mode::Flowgen) {
        let bytes: u32 = settings.tx.segments.iter().map(|&bytes| u32::from(bytes)).sum();
        let _ = writeln!(text, "  packet len={bytes} - nb packet segments={}", settings.tx.segments.len());
    }
    let cores = session.forwarding_lcores();
    let _ = writeln!(
        text,
        "  nb forwarding cores={cores} - nb forwarding ports={}",
        session.settings.ports.len()
    );
    for id in session.settings.ports.clone() {
        let Ok(port) = port(session, id) else { continue };
        let (info, config) = (port.info(), port.config());
        let _ = writeln!(
            text,
            "  port {id}: RX queue number: {} Tx queue number: {}",
            config.rx_queues.len(),
            config.tx_queues.len()
        );
        let _ = writeln!(
            text,
            "    Rx offloads=0x{:x} Tx offloads=0x{:x}",
            config.rx_offloads.bits(),
            config.tx_offloads.bits()
        );
        for (at, queue) in config.rx_queues.iter().enumerate() {
            let _ = writeln!(
                text,
                "    RX queue: {at}\n      RX desc={} - RX free threshold=0",
                info.rx_descriptors.adjust(queue.descriptors)
            );
            text += "      RX threshold registers: pthresh=0 hthresh=0  wthresh=0\n";
            let _ = writeln!(text, "      RX Offloads=0x{:x}", (queue.offloads | config.rx_offloads).bits());
        }
        for (at, queue) in config.tx_queues.iter().enumerate() {
            let _ = writeln!(
                text,
                "    TX queue: {at}\n      TX desc={} - TX free threshold=0",
                info.tx_descriptors.adjust(queue.descriptors)
            );
            text += "      TX threshold registers: pthresh=0 hthresh=0  wthresh=0\n";
            let _ = writeln!(
                text,
                "      TX offloads=0x{:x} - TX RS bit threshold=0",
                (queue.offloads | config.tx_offloads).bits()
            );
        }
    }
    text
}

/// `show config txpkts`.
#[must_use]
pub fn txpkts(session: &Session) -> String {
    let tx = &session.settings.tx;
    let sizes: Vec<String> = tx.segments.iter().map(u16::to_string).collect();
    let split = match tx.split {
        TxSplit::Off => "off",
        TxSplit::On => "on",
        TxSplit::Random => "rand",
    };
    format!(
        "Number of segments: {}\nSegment sizes: {}\nSplit packet: {split}\n",
        sizes.len(),
        sizes.join(",")
    )
}

/// `show csum`, and what `csum set` ends with.
///
/// # Errors
/// There is no such port.
pub fn csum(session: &Session, id: u16) -> Result<String, String> {
    let csum = session.ports.get(id)?.csum;
    let by = |hw: bool| if hw { "hw" } else { "sw" };
    Ok(format!(
        "Parse tunnel is off\nIP checksum offload is {}\nUDP checksum offload is {}\nTCP checksum offload is {}\n\
         SCTP checksum offload is {}\nOuter-Ip checksum offload is sw\nOuter-Udp checksum offload is sw\n",
        by(csum.ip),
        by(csum.udp),
        by(csum.tcp),
        by(csum.sctp)
    ))
}

/// The latency of a run's packets, from the end of the rx burst to the end of the tx burst.
#[must_use]
pub fn latency(session: &Session) -> String {
    let Some(run) = &session.run else { return "No packets were forwarded\n".into() };
    let clock = session.bringup.eal.clock();
    let mut text = String::from("Latency from rx burst to tx burst, nanoseconds\n");
    let _ = writeln!(
        text,
        "{:<24} {:>12} {:>8} {:>8} {:>8} {:>10}",
        "stream", "packets", "p50", "p99", "p99.9", "max"
    );
    for lane in &run.lanes {
        let counts = lane.residence();
        let at = |of: f64| {
            counts.quantile(of).map_or_else(|| "-".into(), |cycles| clock.nanos(cycles).0.to_string())
        };
        let name = format!("{}/{} -> {}/{}", lane.from.0, lane.from.1, lane.to.0, lane.to.1);
        let _ = writeln!(
            text,
            "{name:<24} {:>12} {:>8} {:>8} {:>8} {:>10}",
            counts.total(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_shares_are_dpdks() {
        let mut spread = vec![0; 65];
        assert_eq!(bursts("RX", &spread), "");
        spread[32] = 469;
        assert_eq!(bursts("RX", &spread), "  RX-bursts : 469 [0% of 0 pkts + 100% of 32 pkts]\n");
        (spread[0], spread[1], spread[7]) = (100, 300, 131);
        let wanted = "  TX-bursts : 1000 [10% of 0 pkts + 46% of 32 pkts + 30% of 1 pkts + 14% of other]\n";
        assert_eq!(bursts("TX", &spread), wanted);
    }

    #[test]
    fn names_of_hash_fields_fit_their_lines() {
        let names = hash_names(hash_by_name("all").expect("a group"));
        assert!(names.lines().all(|line| line.starts_with("  ") && line.len() <= 62), "{names}");
        assert_eq!(hash_by_name("ipv4-udp"), Some(HashFields::NONFRAG_IPV4_UDP));
    }
}
