//! What was measured, as JSON and as Markdown.

use std::fmt;

use pollux_kit::table::grouped;
use serde::Serialize;

use super::plan::{Outcome, Pauses, Plan, Size, Trial};
use crate::rate::GAP;

/// Of the frames that were due so many must have been sent, or the rate was not that of the trial: a thousandth may be made up for later.
const SENT_LEAST: f64 = 0.999;

/// One trial.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    /// Frames a second of each port that sends.
    pps: f64,
    /// Frames that were due.
    offered: u64,
    sent: u64,
    pub(super) lost: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
}

impl Point {
    pub(super) fn new(trial: &Trial, outcome: &Outcome) -> Self {
        let Outcome { offered, sent, received, latency } = outcome;
        let quantile = |part| latency.quantile_ns(part);
        Self {
            pps: trial.pps,
            offered: *offered,
            sent: *sent,
            lost: sent.saturating_sub(*received),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: quantile(1.0),
        }
    }

    /// Whether the ports that send took what was due.
    fn was_sent(&self) -> bool {
        self.sent > 0 && self.sent as f64 >= self.offered as f64 * SENT_LEAST
    }

    /// Whether all was sent, and no more was lost than may be.
    pub(super) fn holds(&self, tolerance: f64) -> bool {
        self.was_sent() && self.lost as f64 <= self.sent as f64 * tolerance
    }

    fn lost_percent(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { 100.0 * self.lost as f64 / self.sent as f64 }
    }

    /// For the plot: 50 % and 99 % of the latencies, in microseconds.
    pub(super) fn latency_us(&self) -> Option<[f64; 2]> {
        Some([self.p50_ns? as f64 / 1e3, self.p99_ns? as f64 / 1e3])
    }

    pub(super) fn pps(&self) -> f64 {
        self.pps
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.6} Mpps: {} of {} frames lost",
            self.pps / 1e6,
            grouped(self.lost),
            grouped(self.sent)
        )?;
        if !self.was_sent() {
            write!(f, "; only so many of {} that were due were sent", grouped(self.offered))?;
        }
        Ok(())
    }
}

/// What was measured of one size. What was not is absent.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OfSize {
    pub(super) bytes: u16,
    /// Frames a second of each port.
    pub(super) highest_pps: f64,
    /// The highest at which nothing was lost; 0 if there was none.
    pub(super) throughput_pps: Option<f64>,
    pub(super) latency: Vec<Point>,
    pub(super) loss: Vec<Point>,
    pub(super) back_to_back_frames: Option<u64>,
}

impl OfSize {
    pub(super) fn new(size: Size) -> Self {
        Self {
            bytes: size.bytes,
            highest_pps: size.highest,
            throughput_pps: None,
            latency: Vec::new(),
            loss: Vec::new(),
            back_to_back_frames: None,
        }
    }

    fn percent(&self, pps: f64) -> f64 {
        100.0 * pps / self.highest_pps
    }
}

/// All that was measured, and how.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// All of the plan.
    pub(super) complete: bool,
    trial_seconds: f64,
    wait_seconds: f64,
    settle_seconds: f64,
    resolution_percent: f64,
    tolerance_percent: f64,
    pub(super) sizes: Vec<OfSize>,
}

impl Report {
    pub(super) fn new(plan: &Plan, pauses: &Pauses) -> Self {
        Self {
            complete: false,
            trial_seconds: pauses.trial.as_secs_f64(),
            wait_seconds: pauses.wait.as_secs_f64(),
            settle_seconds: pauses.settle.as_secs_f64(),
            resolution_percent: plan.resolution * 100.0,
            tolerance_percent: plan.tolerance * 100.0,
            sizes: Vec::new(),
        }
    }

    /// The report for people.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "# RFC 2544\n\nTrials of {} s, {} s for returns, {} s between them. Results to {} % of the highest rate; loss of {} % counts as none.\n\
             Rates are those of each port that sends.\n",
            self.trial_seconds,
            self.wait_seconds,
            self.settle_seconds,
            self.resolution_percent,
            self.tolerance_percent
        );
        if !self.complete {
            text.push_str("\nEnded before all was measured.\n");
        }
        self.throughput(&mut text);
        self.points(&mut text, "Latency at parts of the throughput", |size| &size.latency);
        self.points(&mut text, "Frame loss rate", |size| &size.loss);
        let rows = self.sizes.iter().filter_map(|size| {
            let frames = size.back_to_back_frames?;
            let micros = frames as f64 / size.highest_pps * 1e6;
            Some(vec![size.bytes.to_string(), grouped(frames), format!("{micros:.1}")])
        });
        table(&mut text, "Back-to-back frames", &["bytes", "frames", "us"], rows);
        text
    }

    fn throughput(&self, text: &mut String) {
        let rows = self.sizes.iter().filter_map(|size| {
            let (pps, bytes) = (size.throughput_pps?, f64::from(size.bytes));
            Some(vec![
                size.bytes.to_string(),
                format!("{:.6}", pps / 1e6),
                format!("{:.3}", size.percent(pps)),
                format!("{:.3}", pps * bytes * 8.0 / 1e9),
                format!("{:.3}", pps * (bytes + GAP) * 8.0 / 1e9),
            ])
        });
        let head = ["bytes", "Mpps", "% of the highest", "Gbit/s", "Gbit/s on the wire"];
        table(text, "Throughput", &head, rows);
    }

    fn points(&self, text: &mut String, title: &str, of: impl Fn(&OfSize) -> &[Point]) {
        let micros = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{:.1}", ns as f64 / 1e3));
        let rows = self.sizes.iter().flat_map(|size| of(size).iter().map(move |point| (size, point)));
        let rows = rows.map(|(size, point)| {
            vec![
                size.bytes.to_string(),
                format!("{:.6}", point.pps / 1e6),
                format!("{:.3}", size.percent(point.pps)),
                grouped(point.sent),
                grouped(point.lost),
                format!("{:.4}", point.lost_percent()),
                micros(point.p50_ns),
                micros(point.p99_ns),
                micros(point.p999_ns),
                micros(point.max_ns),
            ]
        });
        let head = [
            "bytes",
            "Mpps",
            "% of the highest",
            "sent",
            "lost",
            "% lost",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "max us",
        ];
        table(text, title, &head, rows);
    }
}

/// A section with a table, if it has a row.
fn table(text: &mut String, title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    text.push_str(&format!("\n## {title}\n\n"));
    text.push_str(&line(&head.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()));
    text.push_str(&format!("|{}\n", "--:|".repeat(head.len())));
    rows.for_each(|row| text.push_str(&line(&row)));
}
