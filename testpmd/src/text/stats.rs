//! What is counted: forwarding, ports, latency.

use std::fmt::Write;
use std::time::Instant;

use pollux_port::{Direction, PortId, PortStats};

use super::port;
use crate::engine::Mode;
use crate::lane::{Count, LaneCounts};
use crate::session::Session;

const FORWARD: &str = "----------------------";
const ALL: &str = "+++++++++++++++";
const NIC: &str = "########################";

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
}
