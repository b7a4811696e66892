//! What each stream came to: as lines, and as JSON beside what every program reports.

use std::sync::Arc;

use pollux_eal::clock::Clock;
use pollux_eal::counter::Counter;
use pollux_eal::histogram::{self, Histogram};
use pollux_kit::table::{align, grouped, rate};
use pollux_kit::{Counts, Latency, Report};
use serde::Serialize;

use crate::answer::{AnswerCounters, Answers};
use crate::count::{SenderCounters, TaskCounters};
use crate::gaps::{GapCounts, GapView};
use crate::rate::GAP;
use crate::rfc2544;
use crate::stream::turn_bytes;
use crate::tracker::{ReturnCounters, Returns};

/// Where a copy of a stream is counted.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) counters: Arc<SenderCounters>,
    /// Bytes of its packets: see [`turn_bytes`].
    pub(crate) bytes_until: Box<[u64]>,
    pub(crate) task: Arc<TaskCounters>,
    /// Where they are measured.
    pub(crate) gaps: Option<GapView>,
    /// On each lcore that receives.
    pub(crate) returns: Vec<(Arc<ReturnCounters>, Histogram)>,
}

/// A stream at a port.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) name: String,
    pub(crate) port: u16,
    /// It has a rate to be kept.
    pub(crate) paced: bool,
    /// It is a capture file.
    pub(crate) replayed: bool,
    pub(crate) latency: bool,
    pub(crate) parts: Vec<Part>,
}

/// What came back of a stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Returned {
    received: u64,
    lost: u64,
    duplicates: u64,
    reordered: u64,
    late: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
}

/// What a stream came to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamReport {
    name: String,
    port: u16,
    sent: u64,
    bytes: u64,
    /// It is sent at the times of a capture file.
    #[serde(skip)]
    recorded: bool,
    /// Packets that were due by the rate; null without one.
    offered: Option<u64>,
    seconds: f64,
    offered_pps: Option<f64>,
    sent_pps: f64,
    layer2_bits_per_second: f64,
    layer1_bits_per_second: f64,
    latency: Option<Returned>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gaps: Option<Evenness>,
}

/// How evenly the packets of a stream left.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Evenness {
    /// How much longer than the rate's the mean gap was, as a part of it; null without two packets.
    mean_error: Option<f64>,
    p50_error_ns: Option<u64>,
    p99_error_ns: Option<u64>,
    max_error_ns: Option<u64>,
    /// Gaps in which the lcore was interrupted, or what was due then was made up for.
    left_out: u64,
}

impl Reported {
    pub(crate) fn read(&self, clock: Clock) -> StreamReport {
        let sum = |count: fn(&Part) -> u64| self.parts.iter().map(count).sum::<u64>();
        // Returns first: what is sent meanwhile is not lost.
        let returned = self.latency.then(|| self.returned());
        let sent = self.sent();
        let bytes =
            sum(|part| turn_bytes(&part.bytes_until, part.counters.sent.get()) + part.counters.bytes.get());
        let offered = self.paced.then(|| self.offered());
        let seconds = self.seconds(clock);
        let per_second = |count: f64| if seconds > 0.0 { round(count / seconds, 1e3) } else { 0.0 };
        StreamReport {
            name: self.name.clone(),
            port: self.port,
            sent,
            bytes,
            recorded: self.replayed && !self.paced,
            offered,
            seconds: round(seconds, 1e6),
            offered_pps: offered.map(|offered| per_second(offered as f64)),
            sent_pps: per_second(sent as f64),
            layer2_bits_per_second: per_second(8.0 * bytes as f64),
            layer1_bits_per_second: per_second(8.0 * (bytes as f64 + GAP * sent as f64)),
            gaps: self.evenness(clock),
            latency: returned.map(|(returns, latency)| Returned {
                received: returns.received,
                lost: sent.saturating_sub(returns.received),
                duplicates: returns.duplicates,
                reordered: returns.reordered,
                late: returns.late,
                p50_ns: Latency::new(latency.clone(), clock).quantile_ns(0.5),
                p99_ns: Latency::new(latency.clone(), clock).quantile_ns(0.99),
                p999_ns: Latency::new(latency.clone(), clock).quantile_ns(0.999),
                max_ns: Latency::new(latency, clock).quantile_ns(1.0),
            }),
        }
    }

    fn evenness(&self, clock: Clock) -> Option<Evenness> {
        let views: Vec<&GapView> = self.parts.iter().filter_map(|part| part.gaps.as_ref()).collect();
        let interval = views.first()?.interval;
        let sum = |count: fn(&GapCounts) -> &Counter| -> u64 {
            views.iter().map(|view| count(&view.counts).get()).sum()
        };
        let (span, gaps) = (sum(|counts| &counts.span) as f64, sum(|counts| &counts.gaps));
        let mut errors = histogram::Counts::default();
        views.iter().for_each(|view| errors += &view.errors.counts());
        let errors = Latency::new(errors, clock);
        Some(Evenness {
            mean_error: (gaps > 0).then(|| round(span / gaps as f64 / interval - 1.0, 1e9)),
            p50_error_ns: errors.quantile_ns(0.5),
            p99_error_ns: errors.quantile_ns(0.99),
            max_error_ns: errors.quantile_ns(1.0),
            left_out: sum(|counts| &counts.left_out),
        })
    }

    /// Packets that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.parts.iter().map(|part| part.counters.sent.get()).sum()
    }

    /// For how long it was sent, or has been until now.
    pub(crate) fn seconds(&self, clock: Clock) -> f64 {
        let ticks = self.parts.iter().map(|part| sending(&part.task, clock)).max().unwrap_or(0);
        ticks as f64 / clock.hz() as f64
    }

    /// Packets that were due by the rate.
    pub(crate) fn offered(&self) -> u64 {
        self.parts.iter().map(|part| part.counters.offered.get()).sum()
    }

    /// What came back, and the ticks that each packet took.
    pub(crate) fn returned(&self) -> (Returns, histogram::Counts) {
        let (mut sum, mut latency) = (Returns::default(), histogram::Counts::default());
        for (counters, histogram) in self.parts.iter().flat_map(|part| &part.returns) {
            let one = counters.read();
            sum.received += one.received;
            sum.duplicates += one.duplicates;
            sum.reordered += one.reordered;
            sum.late += one.late;
            latency += &histogram.counts();
        }
        (sum, latency)
    }
}

/// For how long a task has sent, or has until now.
fn sending(task: &TaskCounters, clock: Clock) -> u64 {
    match (task.begun.get(), task.ended.get()) {
        (begun @ 1.., 0) => clock.now().0.saturating_sub(begun),
        _ => task.sending.get(),
    }
}

fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// What a port answered.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PortAnswers {
    port: u16,
    #[serde(flatten)]
    answers: Answers,
}

/// By port, each of which may have several lcores.
pub(crate) fn answers(all: &[(u16, Arc<AnswerCounters>)]) -> Vec<PortAnswers> {
    let mut ports: Vec<PortAnswers> = Vec::new();
    for (port, counters) in all {
        let more = counters.read();
        match ports.iter_mut().find(|known| known.port == *port) {
            Some(PortAnswers { answers, .. }) => {
                answers.arp += more.arp;
                answers.neighbour += more.neighbour;
                answers.echo += more.echo;
                answers.left_out += more.left_out;
            }
            None => ports.push(PortAnswers { port: *port, answers: more }),
        }
    }
    ports
}

/// A line for each stream, and another one for its returns where they are measured.
pub(crate) fn table(streams: &[StreamReport], ports: &[PortAnswers]) -> String {
    let mut text = String::new();
    let head = ["stream", "port", "packets", "seconds", "offered Mpps", "sent Mpps", "Gbit/s", "on the wire"];
    let mut rows = vec![head.map(str::to_owned)];
    for stream in streams {
        rows.push([
            stream.name.clone(),
            stream.port.to_string(),
            grouped(stream.sent),
            format!("{:.3}", stream.seconds),
            match stream.offered_pps {
                Some(pps) => rate(pps / 1e6),
                None if stream.recorded => "recorded".into(),
                None => "max".into(),
            },
            rate(stream.sent_pps / 1e6),
            rate(stream.layer2_bits_per_second / 1e9),
            rate(stream.layer1_bits_per_second / 1e9),
        ]);
    }
    if rows.len() > 1 {
        align(&mut text, &rows, 1);
    }
    let head = [
        "returns of",
        "port",
        "received",
        "lost",
        "duplicates",
        "reordered",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for stream in streams {
        let Some(returned) = &stream.latency else { continue };
        let micros = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{:.1}", ns as f64 / 1e3));
        rows.push([
            stream.name.clone(),
            stream.port.to_string(),
            grouped(returned.received),
            grouped(returned.lost),
            grouped(returned.duplicates),
            grouped(returned.reordered),
            micros(returned.p50_ns),
            micros(returned.p99_ns),
            micros(returned.p999_ns),
            micros(returned.max_ns),
        ]);
    }
    if rows.len() > 1 {
        align(&mut text, &rows, 1);
    }
    for stream in streams {
        let Some(gaps) = &stream.gaps else { continue };
        let micros = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{:.2}", ns as f64 / 1e3));
        text.push_str(&format!(
            "gaps of {} at port {}: {} % from the rate in the mean; errors p50 {} us, p99 {} us, max {} us; left out {}\n",
            stream.name,
            stream.port,
            gaps.mean_error.map_or("-".into(), |error| format!("{:+.4}", 100.0 * error)),
            micros(gaps.p50_error_ns),
            micros(gaps.p99_error_ns),
            micros(gaps.max_error_ns),
            grouped(gaps.left_out),
        ));
    }
    for PortAnswers { port, answers } in ports {
        let Answers { arp, neighbour, echo, left_out } = answers;
        text.push_str(&format!(
            "answered at port {port}: ARP {arp}, neighbour solicitations {neighbour}, pings {echo}; without room {left_out}\n"
        ));
    }
    for stream in streams {
        if let Some(offered) = stream.offered.filter(|offered| *offered > stream.sent) {
            text.push_str(&format!(
                "stream {} at port {}: {} of {} packets that were due were not sent\n",
                stream.name,
                stream.port,
                grouped(offered - stream.sent),
                grouped(offered)
            ));
        }
    }
    text
}

/// What every program reports, and the streams.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: Report<'a>,
    streams: &'a [StreamReport],
    answers: &'a [PortAnswers],
    /// Where its tests were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    rfc2544: Option<&'a rfc2544::Report>,
}

/// One line of JSON.
pub(crate) fn json(
    counts: &Counts,
    streams: &[StreamReport],
    answers: &[PortAnswers],
    rfc2544: Option<&rfc2544::Report>,
) -> String {
    let whole = Whole { report: Report::new("pktgen", counts), streams, answers, rfc2544 };
    serde_json::to_string(&whole).expect("plain numbers and texts have a JSON form")
}
