//! `/ethdev/*`. Source of names, keys and types: DPDK `lib/ethdev/rte_ethdev_telemetry.c`. What DPDK refuses (a port that is not there, a
//! device that has no such thing) is answered by null.

use pollux_eal::EalError;
use pollux_eal::telemetry::{Telemetry, Value, json};
use pollux_port::{
    Direction, Duplex, Fec, FecModes, MacAddress, PortConfig, PortId, PortState, PortView, PortViews,
    QueueId, QueueView, RxOffloads, TxOffloads,
};

/// Type of a view: of what is behind the port's number it is given the rest of the parameters.
type View = fn(&PortView, &str) -> Option<Value>;

/// One port's commands and what their help says of them.
const OF_A_PORT: [(&str, &str, View); 12] = [
    ("info", "Returns the device information of a port. Parameters: int port_id", info),
    ("stats", "Returns the basic statistics of a port. Parameters: int port_id", stats),
    (
        "xstats",
        "Returns the extended statistics of a port. Parameters: int port_id, hide_zero=true|false (optional)",
        xstats,
    ),
    ("link_status", "Returns the link status of a port. Parameters: int port_id", link_status),
    ("macs", "Returns the MAC addresses of a port. Parameters: int port_id", macs),
    (
        "rx_queue",
        "Returns information about an rx queue. Parameters: int port_id, int queue_id (optional if there is one)",
        rx_queue,
    ),
    (
        "tx_queue",
        "Returns information about a tx queue. Parameters: int port_id, int queue_id (optional if there is one)",
        tx_queue,
    ),
    ("rss_info", "Returns the RSS configuration of a port. Parameters: int port_id", rss_info),
    ("vlan", "Returns the VLAN configuration of a port. Parameters: int port_id", vlan),
    ("fec", "Returns the forward error correction of a port. Parameters: int port_id", fec),
    ("dump_priv", "Returns the driver's dump of the queues of a port. Parameters: int port_id", dump_priv),
    ("dropped", "Returns the packets dropped by a port, by reason. Parameters: int port_id", dropped),
];

pub(super) fn register(telemetry: &Telemetry, ports: &PortViews) -> Result<(), EalError> {
    let all = ports.clone();
    telemetry.register("/ethdev/list", "Returns the port IDs. Takes no parameters", move |_| {
        all.list().iter().map(|port| port.id().0).collect()
    })?;
    for (name, help, view) in OF_A_PORT {
        let ports = ports.clone();
        telemetry.register(&format!("/ethdev/{name}"), help, move |parameters| {
            let (port, rest) = split(parameters);
            let port = number(port).and_then(|number| ports.get(PortId(number)));
            port.and_then(|port| view(&port, rest)).unwrap_or_default()
        })?;
    }
    Ok(())
}

fn split(parameters: &str) -> (&str, &str) {
    parameters.split_once(',').unwrap_or((parameters, ""))
}

/// A number as DPDK reads it: decimal, hexadecimal behind 0x, octal behind 0, what follows it ignored.
fn number(text: &str) -> Option<u16> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let end = digits.find(|digit: char| !digit.is_digit(radix)).unwrap_or(digits.len());
    u16::from_str_radix(&digits[..end], radix).ok()
}

fn hex(value: u64) -> Value {
    format!("{value:#x}").into()
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn rx_names(offloads: RxOffloads) -> Value {
    offloads.iter_names().map(|(name, _)| name).collect()
}

fn tx_names(offloads: TxOffloads) -> Value {
    offloads.iter_names().map(|(name, _)| name).collect()
}

/// `RTE_ETH_QUEUE_STATE_STARTED` and `_STOPPED`.
fn states(queues: &[QueueView]) -> Value {
    queues.iter().map(|queue| u8::from(queue.running)).collect()
}

fn scatters(config: &PortConfig, offered: RxOffloads) -> bool {
    let asked = config.rx_offloads.contains(RxOffloads::SCATTER);
    asked || config.scatter.unwrap_or(offered.contains(RxOffloads::SCATTER))
}

fn info(port: &PortView, _: &str) -> Option<Value> {
    let (state, config, info) = (port.state()?, port.config()?, port.info()?);
    let (rx, tx) = (port.queues(Direction::Rx)?, port.queues(Direction::Tx)?);
    let (promiscuous, all_multicast) = port.filters()?;
    let own = port.mac_addresses().unwrap_or_default().first().copied().unwrap_or(MacAddress([0; 6]));
    let flag = u8::from;
    Some(json!({
        "name": port.name(),
        // RTE_ETH_DEV_ATTACHED, or _REMOVED.
        "state": if state == PortState::Gone { 2 } else { 1 },
        "nb_rx_queues": rx.len(),
        "nb_tx_queues": tx.len(),
        "port_id": port.id().0,
        "mtu": port.mtu().unwrap_or(0),
        "rx_mbuf_size_min": config.rx_queues.iter().map(room).min().unwrap_or(0),
        "mac_addr": own.to_uppercase(),
        "promiscuous": flag(promiscuous),
        "scattered_rx": flag(scatters(&config, info.rx_offloads)),
        "all_multicast": flag(all_multicast),
        "dev_started": flag(state == PortState::Started),
        "lro": flag(config.rx_offloads.contains(RxOffloads::TCP_LRO)),
        "dev_configured": flag(matches!(state, PortState::Configured | PortState::Started | PortState::Stopped)),
        "rxq_state": states(&rx),
        "txq_state": states(&tx),
        "numa_node": info.socket.map_or(-1, i64::from),
        "dev_flags": hex(0),
        "rx_offloads": rx_names(config.rx_offloads),
        "tx_offloads": tx_names(config.tx_offloads),
        "ethdev_rss_hf": hex(config.rss.map_or(0, |rss| rss.fields.bits())),
        // Ours: what the port is.
        "driver": info.driver,
    }))
}

/// Room for packet data in an mbuf of a queue.
fn room(queue: &pollux_port::RxQueueConfig) -> usize {
    queue.pool.data_room().saturating_sub(queue.pool.headroom())
}

fn stats(port: &PortView, _: &str) -> Option<Value> {
    let stats = port.stats()?;
    Some(json!({
        "ipackets": stats.ipackets,
        "opackets": stats.opackets,
        "ibytes": stats.ibytes,
        "obytes": stats.obytes,
        "imissed": stats.imissed,
        "ierrors": stats.ierrors,
        "oerrors": stats.oerrors,
        "rx_nombuf": stats.rx_nombuf,
    }))
}

fn xstats(port: &PortView, parameters: &str) -> Option<Value> {
    let hide_zero = parameters.split(',').any(|parameter| parameter.trim() == "hide_zero=true");
    let shown = port.xstats()?.into_iter().filter(|xstat| !hide_zero || xstat.value > 0);
    Some(shown.map(|xstat| (xstat.name.into_owned(), Value::from(xstat.value))).collect())
}

fn dropped(port: &PortView, _: &str) -> Option<Value> {
    let dropped = port.reading()?.dropped;
    let named = |drop: &pollux_port::Dropped| format!("{} {}", drop.direction, drop.reason).replace(' ', "_");
    Some(dropped.iter().map(|drop| (named(drop), Value::from(drop.packets))).collect())
}

fn link_status(port: &PortView, _: &str) -> Option<Value> {
    let link = port.link()?;
    if !link.up {
        return Some(json!({ "status": "DOWN" }));
    }
    // RTE_ETH_SPEED_NUM_UNKNOWN.
    let speed = link.speed_mbps.unwrap_or(u32::MAX);
    let duplex = if link.duplex == Duplex::Full { "full-duplex" } else { "half-duplex" };
    Some(json!({ "status": "UP", "speed": speed, "duplex": duplex }))
}

fn macs(port: &PortView, _: &str) -> Option<Value> {
    Some(port.mac_addresses()?.iter().map(|mac| mac.to_uppercase()).collect())
}

/// The queue that the parameters name; with a single queue they need not.
fn queue(port: &PortView, direction: Direction, parameters: &str) -> Option<QueueView> {
    let queues = port.queues(direction)?;
    let wanted = match (parameters, queues.len()) {
        ("", 1) => 0,
        _ => number(split(parameters).0)?,
    };
    queues.get(usize::from(wanted)).copied()
}

fn rx_queue(port: &PortView, parameters: &str) -> Option<Value> {
    let queue = queue(port, Direction::Rx, parameters)?;
    let (config, info) = (port.config()?, port.info()?);
    let own = config.rx_queues.get(usize::from(queue.queue.0))?;
    let pools = own.segments.iter().filter(|segment| segment.pool.is_some()).count();
    let mut view = json!({
        "mempool_name": own.pool.name(),
        "socket_id": super::pool::socket(&own.pool),
        "host_threshold": 0,
        "prefetch_threshold": 0,
        "writeback_threshold": 0,
        "free_threshold": 0,
        "rx_drop_en": "on",
        "deferred_start": on_off(own.deferred_start),
        "rx_nseg": own.segments.len(),
        "share_group": 0,
        "share_qid": 0,
        "offloads": rx_names(config.rx_offloads | own.offloads),
        "rx_nmempool": pools,
        "scattered_rx": on_off(scatters(&config, info.rx_offloads)),
        "queue_state": u8::from(queue.running),
        "nb_desc": own.descriptors,
        "rx_buf_size": room(own),
        "avail_thresh": 0,
    });
    add_mode(&mut view, queue);
    Some(view)
}

fn tx_queue(port: &PortView, parameters: &str) -> Option<Value> {
    let queue = queue(port, Direction::Tx, parameters)?;
    let config = port.config()?;
    let own = config.tx_queues.get(usize::from(queue.queue.0))?;
    let mut view = json!({
        "host_threshold": 0,
        "prefetch_threshold": 0,
        "writeback_threshold": 0,
        "rs_threshold": 0,
        "free_threshold": 0,
        "deferred_start": on_off(own.deferred_start),
        "offloads": tx_names(config.tx_offloads | own.offloads),
        "queue_state": u8::from(queue.running),
        "nb_desc": own.descriptors,
    });
    add_mode(&mut view, queue);
    Some(view)
}

fn add_mode(view: &mut Value, queue: QueueView) {
    if let Some(mode) = queue.mode {
        view["burst_flags"] = 0.into();
        view["burst_mode"] = mode.into();
    }
}

fn rss_info(port: &PortView, _: &str) -> Option<Value> {
    let rss = port.rss()?;
    let key = rss.key.unwrap_or_default();
    Some(json!({
        "rss_hf": hex(rss.fields.bits()),
        "rss_key_len": key.len(),
        "rss_key": key.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "algorithm": rss.algorithm.to_string(),
    }))
}

fn vlan(port: &PortView, _: &str) -> Option<Value> {
    let (config, filters) = (port.config()?, port.vlan_filters()?);
    let on = |offload| on_off(config.rx_offloads.contains(offload));
    let mut view = json!({
        "pvid": 0,
        "hw_vlan_reject_tagged": 0,
        "hw_vlan_reject_untagged": 0,
        "hw_vlan_insert_pvid": 0,
        "VLAN_STRIP": on(RxOffloads::VLAN_STRIP),
        "VLAN_EXTEND": on(RxOffloads::VLAN_EXTEND),
        "QINQ_STRIP": on(RxOffloads::QINQ_STRIP),
        "VLAN_FILTER": on(RxOffloads::VLAN_FILTER),
        "vlan_num": filters.len(),
    });
    let blocks = filters.chunk_by(|one, next| one / 64 == next / 64);
    let named = |block: &[u16]| {
        let first = block[0] / 64 * 64;
        (format!("vlan_{first}_to_{}", first + 63), Value::from(block))
    };
    view["vlan_ids"] = blocks.map(named).collect();
    Some(view)
}

fn fec(port: &PortView, _: &str) -> Option<Value> {
    let (Fec { active, .. }, capabilities) = port.fec()?;
    let names = |modes: FecModes| match modes.is_empty() {
        true => "unknown".to_owned(),
        false => modes.to_string().replace(", ", " "),
    };
    let speed = |mbps: Option<u32>| match mbps {
        None => "Unknown".to_owned(),
        Some(mbps) if mbps % 1000 == 0 => format!("{}_Gbps", mbps / 1000),
        Some(mbps) => format!("{mbps}_Mbps"),
    };
    let capabilities: Value =
        capabilities.iter().map(|one| (speed(one.speed_mbps), Value::from(names(one.modes)))).collect();
    Some(json!({ "fec_mode": names(active), "fec_capability": capabilities }))
}

fn dump_priv(port: &PortView, _: &str) -> Option<Value> {
    let queues =
        [Direction::Rx, Direction::Tx].into_iter().filter_map(|direction| port.queues(direction)).flatten();
    let dumps = queues.filter_map(|queue| {
        let QueueView { direction, queue: QueueId(number), .. } = queue;
        let dump = port.dump_queue(direction, queue.queue)?;
        Some(format!("{direction} queue {number}:\n{dump}"))
    });
    let mut text = dumps.collect::<Vec<_>>().join("\n");
    // Source: DPDK `lib/telemetry/rte_telemetry.h`, `RTE_TEL_MAX_SINGLE_STRING_LEN`.
    text.truncate(text.floor_char_boundary(8191));
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_numbers_are_read_as_dpdk_reads_them() {
        for (text, read) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("0x1f", Some(31)),
            ("010", Some(8)),
            ("3 ", Some(3)),
            ("3abc", Some(3)),
            ("", None),
            ("x", None),
            ("-1", None),
            (" 1", None),
            ("65536", None),
            ("99999999999999999999", None),
            ("0x", None),
        ] {
            assert_eq!(number(text), read, "{text:?}");
        }
    }
}
