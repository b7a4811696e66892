//! The table that an operator watches.
//!
//! Aligned by hand: the fifteen lines of `align` would become as many calls of comfy-table, and three crates.

use std::fmt::Write;

use crate::counts::{Counts, PortCounts};

/// Totals since the start beside the rates of `span`.
#[must_use]
pub fn table(app: &str, total: &Counts, span: &Counts) -> String {
    let mut text = format!("{app} after {:.1} s, rates over {:.1} s\n", total.seconds, span.seconds);
    let mut rows =
        vec![["port", "to", "received", "Mpps", "sent", "Mpps", "Gbit/s", "dropped"].map(str::to_owned)];
    for (port, recent) in total.ports.iter().zip(&span.ports) {
        let name = format!("{} {}{}", port.id, port.name, if port.gone { " (gone)" } else { "" });
        rows.push(cells(name, port.to.map(|to| to.to_string()).unwrap_or_default(), port, recent, span));
    }
    if total.ports.len() > 1 {
        let (all, recent) = (sum(&total.ports), sum(&span.ports));
        rows.push(cells("total".into(), String::new(), &all, &recent, span));
    }
    align(&mut text, &rows, 1);
    for port in total.ports.iter().filter(|port| port.dropped_packets() > 0) {
        let reasons: Vec<String> = port
            .dropped
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{reason} {}", grouped(*count)))
            .collect();
        let _ = writeln!(text, "dropped at port {}: {}", port.id, reasons.join(", "));
    }
    let mut rows = vec![["lcore", "busy", "cycles/packet", "ports"].map(str::to_owned)];
    if span.lcores.is_empty() {
        return text;
    }
    for lcore in &span.lcores {
        let ports: Vec<String> = lcore.ports.iter().map(u16::to_string).collect();
        let cycles =
            if lcore.packets == 0 { "-".into() } else { format!("{:.1}", lcore.cycles_per_packet()) };
        rows.push([lcore.id.to_string(), format!("{:.1}%", lcore.busy() * 100.0), cycles, ports.join(" ")]);
    }
    align(&mut text, &rows, 1);
    text
}

fn cells(name: String, to: String, total: &PortCounts, recent: &PortCounts, span: &Counts) -> [String; 8] {
    [
        name,
        to,
        grouped(total.rx_packets),
        rate(span.per_second(recent.rx_packets) / 1e6),
        grouped(total.tx_packets),
        rate(span.per_second(recent.tx_packets) / 1e6),
        rate(span.per_second(recent.tx_bytes) * 8.0 / 1e9),
        grouped(total.dropped_packets()),
    ]
}

fn sum(ports: &[PortCounts]) -> PortCounts {
    let add = |count: fn(&PortCounts) -> u64| ports.iter().map(count).sum();
    PortCounts {
        rx_packets: add(|port| port.rx_packets),
        tx_packets: add(|port| port.tx_packets),
        rx_bytes: add(|port| port.rx_bytes),
        tx_bytes: add(|port| port.tx_bytes),
        dropped: [(String::new(), add(PortCounts::dropped_packets))].into(),
        ..PortCounts::default()
    }
}

/// `12_345` as `12,345`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three digits behind the point; small rates keep more, for a ping a second is a rate too.
#[must_use]
pub fn rate(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        ..0.01 => format!("{value:.6}"),
        _ => format!("{value:.3}"),
    }
}

/// Appends rows, a line each. Columns are as wide as their widest cell: the first `left` ones stand to the left, numbers to the right.
pub fn align<const COLUMNS: usize>(text: &mut String, rows: &[[String; COLUMNS]], left: usize) {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = if column < left {
                write!(line, "{gap}{cell:<0$}", width(column))
            } else {
                write!(line, "{gap}{cell:>0$}", width(column))
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::LcoreCounts;

    #[test]
    fn a_table_reads_well() {
        let port = |id, rx, tx| PortCounts {
            id,
            name: format!("net_null{id}"),
            to: Some(1 - id),
            rx_packets: rx,
            tx_packets: tx,
            tx_bytes: tx * 64,
            ..PortCounts::default()
        };
        let mut total = Counts {
            seconds: 11.0,
            ports: vec![port(0, 1_234_567_890, 999), port(1, 12, 0)],
            lcores: vec![LcoreCounts {
                id: 4,
                ports: vec![0, 1],
                packets: 10,
                busy_cycles: 129,
                total_cycles: 130,
            }],
            ..Counts::default()
        };
        total.ports[1].dropped.insert("tx full".into(), 1_000);
        total.ports[1].gone = true;
        let mut span = total.clone();
        span.seconds = 10.0;
        let expected = "\
l2fwd after 11.0 s, rates over 10.0 s
port                to       received      Mpps  sent      Mpps    Gbit/s  dropped
0 net_null0          1  1,234,567,890   123.457   999  0.000100  0.000051        0
1 net_null1 (gone)   0             12  0.000001     0         0         0    1,000
total                   1,234,567,902   123.457   999  0.000100  0.000051    1,000
dropped at port 1: tx full 1,000
lcore   busy  cycles/packet  ports
4      99.2%           12.9    0 1
";
        assert_eq!(table("l2fwd", &total, &span), expected);
    }
}
