//! Counts in the text format of Prometheus, version 0.0.4. Source: prometheus/docs
//! `docs/instrumenting/exposition_formats.md`; names follow `docs/practices/naming.md` there.

use std::fmt::Write;

use crate::counts::{Latency, PortCounts, QueueCounts, StreamCounts, word};
use crate::sample::Sample;

/// The media type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper ends of the buckets of latency, in nanoseconds: always the same ones, as a series needs them.
const LATENCY_NS: [u64; 20] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    1_000_000_000,
];

/// Names and values that tell a series from the others of its family.
type Labels<'a> = Vec<(&'a str, String)>;

/// The text under construction.
struct Text(String);

impl Text {
    /// One family, unless there is nothing of it.
    fn family<'a>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) {
        let mut series = series.into_iter().peekable();
        if series.peek().is_some() {
            self.head(name, kind, help);
        }
        for (labels, value) in series {
            self.line(name, "", &labels, value);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &Labels<'_>, value: f64) {
        let _ = write!(self.0, "{name}{suffix}");
        for (place, (label, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn with<'a>(labels: &Labels<'a>, more: impl IntoIterator<Item = (&'a str, String)>) -> Labels<'a> {
    labels.iter().cloned().chain(more).collect()
}

fn of_port(port: &PortCounts) -> Labels<'static> {
    vec![("port", port.id.to_string()), ("name", port.name.clone()), ("driver", port.driver.clone())]
}

/// Everything of a sample that Prometheus keeps: totals, never rates.
pub(crate) fn text(sample: &Sample) -> String {
    let mut text = Text(String::with_capacity(8 * 1024));
    let version = vec![("app", sample.app.clone()), ("version", env!("CARGO_PKG_VERSION").to_owned())];
    text.family("pollux_build_info", "gauge", "The program and its version; always 1.", [(version, 1.0)]);
    text.family(
        "pollux_uptime_seconds",
        "gauge",
        "Time for which packets have been counted.",
        [(Labels::new(), sample.total.seconds)],
    );
    ports(&mut text, &sample.total.ports);
    queues(&mut text, "rx", &sample.total.ports, |port| &port.rx_queues);
    queues(&mut text, "tx", &sample.total.ports, |port| &port.tx_queues);
    ledgers(&mut text, &sample.total.ports);
    let lcores = &sample.total.lcores;
    let of_lcores = |value: fn(&crate::LcoreCounts) -> u64| {
        lcores.iter().map(move |lcore| (vec![("lcore", lcore.id.to_string())], value(lcore) as f64))
    };
    text.family(
        "pollux_lcore_packets_total",
        "counter",
        "Packets moved by an lcore.",
        of_lcores(|lcore| lcore.packets),
    );
    text.family(
        "pollux_lcore_busy_cycles_total",
        "counter",
        "TSC cycles that an lcore spent on packets.",
        of_lcores(|lcore| lcore.busy_cycles),
    );
    text.family(
        "pollux_lcore_cycles_total",
        "counter",
        "TSC cycles of an lcore, busy and idle.",
        of_lcores(|lcore| lcore.total_cycles),
    );
    let pools = &sample.total.pools;
    let of_pools = |value: fn(&crate::PoolCounts) -> u64| {
        pools.iter().map(move |pool| (vec![("pool", pool.name.clone())], value(pool) as f64))
    };
    text.family(
        "pollux_mempool_mbufs",
        "gauge",
        "Mbufs of a pool, free or in use.",
        of_pools(|pool| pool.capacity),
    );
    text.family(
        "pollux_mempool_free_mbufs",
        "gauge",
        "Free mbufs of a pool.",
        of_pools(|pool| pool.available),
    );
    latencies(&mut text, &sample.total.streams);
    text.0
}

fn ports(text: &mut Text, ports: &[PortCounts]) {
    type Value = fn(&PortCounts) -> u64;
    let families: [(&str, &str, &str, Value); 6] = [
        ("pollux_port_rx_packets_total", "counter", "Packets received.", |port| port.rx_packets),
        ("pollux_port_tx_packets_total", "counter", "Packets sent.", |port| port.tx_packets),
        ("pollux_port_rx_bytes_total", "counter", "Bytes received, without FCS.", |port| port.rx_bytes),
        ("pollux_port_tx_bytes_total", "counter", "Bytes sent, without FCS.", |port| port.tx_bytes),
        ("pollux_port_link_up", "gauge", "Whether the link is up.", |port| port.link_up.into()),
        ("pollux_port_gone", "gauge", "Whether the device has disappeared.", |port| port.gone.into()),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help, ports.iter().map(|port| (of_port(port), value(port) as f64)));
    }
    let speeds =
        ports.iter().filter_map(|port| Some((of_port(port), f64::from(port.link_mbps?) * 125_000.0)));
    text.family("pollux_port_link_speed_bytes", "gauge", "Speed of the link in bytes a second.", speeds);
    let dropped = ports.iter().flat_map(|port| {
        let of = |(reason, packets): (&String, &u64)| {
            (with(&of_port(port), [("reason", word(reason))]), *packets as f64)
        };
        port.dropped.iter().map(of).collect::<Vec<_>>()
    });
    text.family("pollux_port_dropped_packets_total", "counter", "Packets dropped, by reason.", dropped);
}

fn queues(text: &mut Text, way: &str, ports: &[PortCounts], of: fn(&PortCounts) -> &Vec<QueueCounts>) {
    type Value = fn(&QueueCounts) -> u64;
    let families: [(&str, &str, Value); 3] = [
        ("packets", "Packets", |queue| queue.packets),
        ("bytes", "Bytes without FCS", |queue| queue.bytes),
        ("errors", "Packets dropped as errors", |queue| queue.errors),
    ];
    for (what, help, value) in families {
        let series = ports.iter().flat_map(|port| {
            let one = |(number, queue): (usize, &QueueCounts)| {
                (with(&of_port(port), [("queue", number.to_string())]), value(queue) as f64)
            };
            of(port).iter().enumerate().map(one).collect::<Vec<_>>()
        });
        let name = format!("pollux_port_{way}_queue_{what}_total");
        text.family(&name, "counter", &format!("{help}, by {way} queue."), series);
    }
}

/// What the device model counts of PCIe.
fn ledgers(text: &mut Text, ports: &[PortCounts]) {
    let modelled: Vec<_> =
        ports.iter().filter_map(|port| Some((of_port(port), port.ledger.as_ref()?))).collect();
    let bytes = modelled.iter().flat_map(|(labels, ledger)| {
        let ways = [("to_device", ledger.bytes_to_device), ("from_device", ledger.bytes_from_device)];
        ways.map(|(way, bytes)| (with(labels, [("direction", way.to_owned())]), bytes as f64))
    });
    text.family(
        "pollux_pcie_bytes_total",
        "counter",
        "Bytes on PCIe, overhead included; counted by device models.",
        bytes,
    );
    type Value = fn(&pollux_bringup::Crossing) -> u64;
    let families: [(&str, &str, Value); 3] = [
        ("pollux_pcie_transfers_total", "PCIe transfers by kind.", |one| one.transfers),
        ("pollux_pcie_payload_bytes_total", "Payload of PCIe transfers by kind.", |one| one.bytes),
        ("pollux_pcie_tlps_total", "PCIe packets (TLPs) by kind of transfer.", |one| one.bus_packets),
    ];
    for (name, help, value) in families {
        let series = modelled.iter().flat_map(|(labels, ledger)| {
            ledger
                .crossings
                .iter()
                .map(move |one| (with(labels, [("kind", one.name.replace(' ', "_"))]), value(one) as f64))
        });
        text.family(name, "counter", help, series);
    }
}

fn latencies(text: &mut Text, streams: &[StreamCounts]) {
    const NAME: &str = "pollux_stream_latency_seconds";
    let counted: Vec<(&StreamCounts, &Latency)> =
        streams.iter().filter_map(|stream| Some((stream, stream.latency.as_ref()?))).collect();
    if counted.is_empty() {
        return;
    }
    text.head(NAME, "histogram", "Time of a packet from the end of the rx burst to the end of the tx burst.");
    for (stream, latency) in counted {
        let labels = vec![
            ("rx_port", stream.from.to_string()),
            ("tx_port", stream.to.to_string()),
            ("queue", stream.queue.to_string()),
            ("lcore", stream.lcore.to_string()),
        ];
        let buckets: Vec<(u64, u64)> = latency.buckets().collect();
        for end in LATENCY_NS {
            let below: u64 =
                buckets.iter().filter(|(most, _)| *most <= end).map(|(_, packets)| packets).sum();
            let le = with(&labels, [("le", (end as f64 / 1e9).to_string())]);
            text.line(NAME, "_bucket", &le, below as f64);
        }
        let packets = latency.packets() as f64;
        text.line(NAME, "_bucket", &with(&labels, [("le", "+Inf".to_owned())]), packets);
        // By the upper ends of the histogram's own buckets: at most 3.2 % above the true sum.
        let sum: f64 = buckets.iter().map(|(most, packets)| *most as f64 * *packets as f64).sum();
        text.line(NAME, "_sum", &labels, sum / 1e9);
        text.line(NAME, "_count", &labels, packets);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use pollux_bringup::{Crossing, PortLedger};
    use pollux_eal::clock::Clock;
    use pollux_eal::histogram;

    use super::*;
    use crate::counts::{Counts, LcoreCounts, PoolCounts};

    /// A sample in which nothing is missing.
    pub(crate) fn full() -> Sample {
        let crossing = Crossing { name: "doorbell", transfers: 1, bytes: 8, bus_packets: 1 };
        let ledger = PortLedger {
            packets_sent: 32,
            packets_received: 0,
            bytes_to_device: 32,
            bytes_from_device: 5,
            crossings: vec![crossing],
        };
        let queue = QueueCounts { packets: 3, bytes: 180, errors: 0 };
        let port = PortCounts {
            name: "net_\"odd\\name\"".into(),
            driver: "net_null".into(),
            link_up: true,
            link_mbps: Some(10_000),
            rx_packets: 3,
            dropped: [("tx full".to_owned(), 2)].into(),
            rx_queues: vec![queue, queue],
            tx_queues: vec![queue],
            ledger: Some(ledger),
            ..PortCounts::default()
        };
        let (mut recorder, histogram) = histogram::new();
        let clock = Clock::get();
        for nanos in [90u64, 400, 3_000_000_000] {
            recorder.record(clock.cycles(pollux_eal::clock::Nanos(nanos)).0);
        }
        let stream = StreamCounts {
            to: 1,
            packets: 3,
            latency: Some(Latency::new(histogram.counts(), clock)),
            ..StreamCounts::default()
        };
        let lcore = LcoreCounts { id: 1, ports: vec![0], packets: 3, busy_cycles: 40, total_cycles: 80 };
        let pool = PoolCounts { name: "mbufs".into(), capacity: 100, available: 60 };
        let total = Counts {
            seconds: 1.25,
            ports: vec![port],
            lcores: vec![lcore],
            streams: vec![stream],
            pools: vec![pool],
        };
        Sample { app: "l2fwd".into(), span: total.clone(), total }
    }

    /// Families by name, from the lines that announce them.
    fn families(text: &str) -> BTreeMap<&str, &str> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(|rest| rest.split_once(' ').expect("a name and a type")).collect()
    }

    #[test]
    fn the_text_has_series_under_names_by_convention() {
        let text = text(&full());
        for line in [
            r#"pollux_port_rx_packets_total{port="0",name="net_\"odd\\name\"",driver="net_null"} 3"#,
            r#"pollux_port_dropped_packets_total{port="0",name="net_\"odd\\name\"",driver="net_null",reason="tx_full"} 2"#,
            r#"pollux_port_rx_queue_packets_total{port="0",name="net_\"odd\\name\"",driver="net_null",queue="1"} 3"#,
            r#"pollux_port_link_speed_bytes{port="0",name="net_\"odd\\name\"",driver="net_null"} 1250000000"#,
            r#"pollux_lcore_busy_cycles_total{lcore="1"} 40"#,
            r#"pollux_mempool_free_mbufs{pool="mbufs"} 60"#,
            r#"pollux_stream_latency_seconds_bucket{rx_port="0",tx_port="1",queue="0",lcore="0",le="0.0000001"} 1"#,
            r#"pollux_stream_latency_seconds_bucket{rx_port="0",tx_port="1",queue="0",lcore="0",le="1"} 2"#,
            r#"pollux_stream_latency_seconds_bucket{rx_port="0",tx_port="1",queue="0",lcore="0",le="+Inf"} 3"#,
            r#"pollux_stream_latency_seconds_count{rx_port="0",tx_port="1",queue="0",lcore="0"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in:\n{text}");
        }
        for (name, kind) in families(&text) {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
        }
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/grafana/pollux.json");
        let dashboard = std::fs::read_to_string(path).expect("the dashboard");
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let text = text(&full());
        let known = families(&text);
        let mut asked = BTreeSet::new();
        for target in panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten()) {
            let query = target["expr"].as_str().expect("a query");
            let words = query.split(|at: char| !at.is_ascii_alphanumeric() && at != '_');
            let names: Vec<&str> = words.filter(|word| word.starts_with("pollux_")).collect();
            assert!(!names.is_empty(), "{query} asks for no metric");
            for name in names {
                let family = name.strip_suffix("_bucket").unwrap_or(name);
                let kind = known.get(family).unwrap_or_else(|| panic!("{query}: there is no {name}"));
                assert_eq!(*kind == "histogram", family != name, "{query}: {name}");
                asked.insert(family);
            }
        }
        assert!(asked.len() > 8, "{asked:?}");
    }
}
