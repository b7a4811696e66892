//! The final report as one line of JSON: the form that all apps have, and the latency of each stream.

use pollux_kit::{Counts, LcoreCounts, Meter, json};
use pollux_port::PortId;
use serde_json::{Value, json as value};

use crate::lane::Count;
use crate::session::Session;

/// What is counted from the start of the program on.
#[derive(Debug)]
pub(crate) struct Report(Meter);

impl Report {
    /// Counts from here.
    #[must_use]
    pub(crate) fn begin(session: &Session) -> Self {
        let ids: Vec<PortId> = session.ports.slots.iter().map(|slot| slot.id).collect();
        Self(Meter::of_ports(&ids))
    }

    /// The line.
    #[must_use]
    pub(crate) fn json(&self, session: &Session) -> String {
        let counts = Counts { lcores: lcores(session), ..self.0.read(&session.bringup) };
        let line = json("testpmd", &counts);
        let Ok(Value::Object(mut report)) = serde_json::from_str(&line) else { return line };
        report.insert("streams".into(), streams(session));
        Value::Object(report).to_string()
    }
}

fn lcores(session: &Session) -> Vec<LcoreCounts> {
    let Some(run) = &session.run else { return Vec::new() };
    let all = session.bringup.eal.lcores();
    run.shares
        .iter()
        .map(|(lcore, places)| {
            let lanes = places.iter().map(|&place| &run.lanes[place]);
            let usage = all.usage(*lcore).unwrap_or_default();
            let mut ports: Vec<u16> = lanes.clone().map(|lane| lane.from.0.0).collect();
            ports.dedup();
            let packets = |lane: &crate::lane::LaneView| {
                let counts = lane.counts();
                counts.of(Count::RxPackets).max(counts.of(Count::TxPackets))
            };
            LcoreCounts {
                id: lcore.0,
                ports,
                packets: lanes.map(packets).sum(),
                busy_cycles: usage.busy,
                total_cycles: usage.total,
            }
        })
        .collect()
}

fn streams(session: &Session) -> Value {
    let Some(run) = &session.run else { return value!([]) };
    let clock = session.bringup.eal.clock();
    let each = run.lanes.iter().map(|lane| {
        let (counts, latency) = (lane.counts(), lane.residence());
        let nanos = |of: f64| latency.quantile(of).map(|cycles| clock.nanos(cycles).0);
        value!({
            "rx_port": lane.from.0.0,
            "tx_port": lane.to.0.0,
            "queue": lane.from.1.0,
            "rx_packets": counts.of(Count::RxPackets),
            "tx_packets": counts.of(Count::TxPackets),
            "tx_dropped": counts.of(Count::Dropped),
            "busy_cycles": counts.of(Count::Cycles),
            "latency_ns": { "p50": nanos(0.5), "p99": nanos(0.99), "p999": nanos(0.999), "max": nanos(1.0) },
        })
    });
    Value::Array(each.collect())
}
