//! The final report as one line of JSON: the form that all apps have, and the latency of each stream.

use pollux_kit::Report;
use serde::Serialize;
use serde_json::{Value, json as value};

use crate::lane::Count;
use crate::session::Session;

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: Report<'a>,
    streams: Value,
}

/// The line.
///
/// # Panics
/// Never: plain numbers and texts always have a JSON form.
#[must_use]
pub(crate) fn line(session: &Session) -> String {
    let counts = session.meter.read(&session.bringup.view());
    let whole = Whole { report: Report::new("testpmd", &counts), streams: streams(session) };
    serde_json::to_string(&whole).expect("plain numbers and texts have a JSON form")
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
