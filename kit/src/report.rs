//! The final report as one JSON object.

use pollux_bringup::PortLedger;
use serde::Serialize;

use crate::counts::{Counts, Reasons, underscored};

/// The form that all apps have; one with more to say flattens it into its own (`#[serde(flatten)]`).
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    app: &'a str,
    seconds: f64,
    ports: Vec<Port<'a>>,
    lcores: Vec<Lcore<'a>>,
    /// What would have crossed PCIe; only the device model counts it.
    ledger: Option<Ledger<'a>>,
}

#[derive(Debug, Serialize)]
struct Ledger<'a> {
    max_payload: u64,
    ports: Vec<LedgerPort<'a>>,
}

#[derive(Debug, Serialize)]
struct LedgerPort<'a> {
    name: &'a str,
    #[serde(flatten)]
    counts: &'a PortLedger,
}

fn ledger(counts: &Counts) -> Option<Ledger<'_>> {
    let counted = counts.ports.iter().filter_map(|port| Some((port, port.ledger.as_ref()?)));
    let ports: Vec<LedgerPort<'_>> =
        counted.map(|(port, counts)| LedgerPort { name: &port.name, counts }).collect();
    (!ports.is_empty()).then_some(Ledger { max_payload: PortLedger::MAX_PAYLOAD, ports })
}

#[derive(Debug, Serialize)]
struct Port<'a> {
    name: &'a str,
    driver: &'a str,
    rx_packets: u64,
    tx_packets: u64,
    rx_bytes: u64,
    tx_bytes: u64,
    #[serde(serialize_with = "underscored")]
    dropped: &'a Reasons,
}

#[derive(Debug, Serialize)]
struct Lcore<'a> {
    lcore: u16,
    ports: &'a [u16],
    busy: f64,
    cycles_per_packet: f64,
}

impl<'a> Report<'a> {
    /// What these counts come to. Reasons are written with underscores: `tx_full`.
    #[must_use]
    pub fn new(app: &'a str, counts: &'a Counts) -> Self {
        let ports = counts.ports.iter().map(|port| Port {
            name: &port.name,
            driver: &port.driver,
            rx_packets: port.rx_packets,
            tx_packets: port.tx_packets,
            rx_bytes: port.rx_bytes,
            tx_bytes: port.tx_bytes,
            dropped: &port.dropped,
        });
        let lcores = counts.lcores.iter().map(|lcore| Lcore {
            lcore: lcore.id,
            ports: &lcore.ports,
            busy: rounded(lcore.busy(), 1e4),
            cycles_per_packet: rounded(lcore.cycles_per_packet(), 1e3),
        });
        let seconds = rounded(counts.seconds, 1e6);
        Self { app, seconds, ports: ports.collect(), lcores: lcores.collect(), ledger: ledger(counts) }
    }
}

/// [`Report`] as one line, without the line's end.
///
/// # Panics
/// Never: plain numbers and texts always have a JSON form.
#[must_use]
pub fn json(app: &str, counts: &Counts) -> String {
    serde_json::to_string(&Report::new(app, counts)).expect("plain numbers and texts have a JSON form")
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::{LcoreCounts, PortCounts};

    #[test]
    fn the_report_has_the_agreed_shape() {
        let port = PortCounts {
            name: "net_null0".into(),
            driver: "net_null".into(),
            rx_packets: 3,
            rx_bytes: 192,
            dropped: [("tx full".to_owned(), 2)].into(),
            ..PortCounts::default()
        };
        let lcore = LcoreCounts { id: 1, ports: vec![0], packets: 3, busy_cycles: 40, total_cycles: 80 };
        let counts = Counts { seconds: 1.25, ports: vec![port], lcores: vec![lcore], ..Counts::default() };
        assert_eq!(
            json("l2fwd", &counts),
            concat!(
                r#"{"app":"l2fwd","seconds":1.25,"ports":[{"name":"net_null0","driver":"net_null","rx_packets":3,"#,
                r#""tx_packets":0,"rx_bytes":192,"tx_bytes":0,"dropped":{"tx_full":2}}],"#,
                r#""lcores":[{"lcore":1,"ports":[0],"busy":0.5,"cycles_per_packet":13.333}],"ledger":null}"#
            )
        );
    }

    #[test]
    fn the_ledger_stands_beside_the_ports() {
        let crossing = pollux_bringup::Crossing { name: "doorbell", transfers: 1, bytes: 8, bus_packets: 1 };
        let ledger = PortLedger {
            packets_sent: 32,
            packets_received: 0,
            bytes_to_device: 32,
            bytes_from_device: 0,
            crossings: vec![crossing],
        };
        let port = PortCounts { name: "mlx5_model0".into(), ledger: Some(ledger), ..PortCounts::default() };
        let counts = Counts { ports: vec![port, PortCounts::default()], ..Counts::default() };
        let line = json("l2fwd", &counts);
        assert!(
            line.ends_with(concat!(
                r#""ledger":{"max_payload":256,"ports":[{"name":"mlx5_model0","tx_packets":32,"rx_packets":0,"#,
                r#""bytes_to_device":32,"bytes_from_device":0,"#,
                r#""crossings":{"doorbell":{"transfers":1,"bytes":8,"tlps":1}}}]}}"#
            )),
            "{line}"
        );
    }
}
