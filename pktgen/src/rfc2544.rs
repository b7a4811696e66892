//! The tests of RFC 2544, section 26, of a device that brings back what it is sent: throughput, latency, frame loss rate, back-to-back frames.
//!
//! ```text
//!   options ─► Plan: sizes, highest rates ─► measure ── Trial ─► Tester: the ports (`ports`), or a made-up device in tests
//!                                               │   ◄─ Outcome ─┘
//!                                               └─► Report ─► Markdown, JSON (`report`), SVG (`plot`)
//! ```
//!
//! What RFC 2544 leaves open: the highest rate that loses nothing is found by halving the range in which it must lie (`search`), and each
//! frame's latency is measured, not that of one.

mod files;
pub(crate) mod options;
mod plan;
mod plot;
mod ports;
mod report;
mod search;

use std::collections::BTreeSet;
use std::time::Duration;

use pollux_bringup::BringupError;
use pollux_eal::StopFlag;
use pollux_eal::clock::Clock;

pub(crate) use files::Files;
pub(crate) use plan::End;
pub(crate) use report::Report;

use crate::rate::Rate;
use crate::setup::Rig;
use crate::spec::StreamSpec;
use options::{SearchOptions, Tests};
use plan::{Pauses, Plan, Size, Tester, Trial};
use ports::PortTester;
use report::{OfSize, Point};

/// Seconds at the highest rate in which the longest burst of back-to-back frames fits. Source: RFC 2544, section 26.4.
const BURST_SECONDS: f64 = 2.0;

/// Seconds of a trial. Source: RFC 2544, section 24.
const TRIAL: f64 = 60.0;
/// Seconds for which returns are waited for. Source: RFC 2544, section 23.
const WAIT: f64 = 2.0;

/// What options that are not of these tests alone say of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    /// The highest.
    pub(crate) rate: Option<Rate>,
    /// Seconds of a trial.
    pub(crate) duration: Option<f64>,
    /// Seconds for returns.
    pub(crate) wait: Option<f64>,
}

/// A device to be measured by the ports of a run.
#[derive(Debug)]
pub(crate) struct Search {
    plan: Plan,
    tester: PortTester,
}

impl Search {
    /// `spec` has all sizes that are to be tested.
    pub(crate) fn new(
        tests: Tests,
        options: &SearchOptions,
        usual: Usual,
        (rig, spec): (Rig, StreamSpec),
        (clock, stop): (Clock, StopFlag),
    ) -> Result<Self, BringupError> {
        let speed = rig.usual.iter().filter_map(|port| *rig.speeds.get(usize::from(port.0))?).min();
        let rate = usual.rate.unwrap_or(Rate::Percent(100.0));
        let highest = |bytes: u16| match rate.packets_per_second(bytes.into(), speed) {
            Ok(Some(highest)) => Ok(Size { bytes, highest }),
            Ok(None) => Err("--rate max: the highest rate to be tried is to be a number".to_owned()),
            Err(why) => Err(format!("--rfc2544: {why}")),
        };
        // Of a mix, each once.
        let different: BTreeSet<u16> = spec.sizes.0.iter().copied().collect();
        let sizes: Result<Vec<Size>, String> = different.into_iter().map(highest).collect();
        let plan = Plan {
            tests,
            sizes: sizes.map_err(BringupError::Usage)?,
            resolution: options.resolution / 100.0,
            tolerance: options.tolerance / 100.0,
        };
        let pauses = Pauses {
            trial: Duration::from_secs_f64(usual.duration.unwrap_or(TRIAL)),
            wait: Duration::from_secs_f64(usual.wait.unwrap_or(WAIT)),
            settle: Duration::from_secs_f64(options.settle),
        };
        Ok(Self { plan, tester: PortTester { rig, spec, pauses, clock, stop, ended: None } })
    }

    /// Without results.
    pub(crate) fn report(&self) -> Report {
        Report::new(&self.plan, &self.tester.pauses)
    }

    /// Measures, and tells of each trial. What is known so far is in the report, whatever ends it.
    pub(crate) fn run(mut self, report: &mut Report, tell: impl FnMut(String)) -> Result<(), End> {
        measure(&mut self.tester, &self.plan, report, tell)
    }
}

/// Measures what the plan says. What is known so far is in the report, whatever ends it.
fn measure(
    tester: &mut impl Tester,
    plan: &Plan,
    report: &mut Report,
    tell: impl FnMut(String),
) -> Result<(), End> {
    let mut run = Run { tester, plan, tell };
    for size in &plan.sizes {
        let mut of = OfSize::new(*size);
        let end = run.size(*size, &mut of);
        report.sizes.push(of);
        end?;
    }
    report.complete = true;
    Ok(())
}

struct Run<'a, T, F> {
    tester: &'a mut T,
    plan: &'a Plan,
    tell: F,
}

impl<T: Tester, F: FnMut(String)> Run<'_, T, F> {
    fn size(&mut self, size: Size, of: &mut OfSize) -> Result<(), End> {
        let Size { bytes, highest } = size;
        let Tests { throughput, latency, loss, back_to_back } = self.plan.tests;
        if throughput || latency {
            let step = highest * self.plan.resolution;
            let found: Result<f64, End> = search::highest(highest, step, |pps| {
                let point = self.point("throughput", Trial { bytes, pps, count: None })?;
                Ok(point.holds(self.plan.tolerance))
            });
            of.throughput_pps = Some(found?);
        }
        if let Some(pps) = of.throughput_pps.filter(|pps| latency && *pps > 0.0) {
            for tenths in 1..=10 {
                let pps = pps * f64::from(tenths) / 10.0;
                of.latency.push(self.point("latency", Trial { bytes, pps, count: None })?);
            }
        }
        if loss {
            // Down from the highest rate, until two trials in a row have sent all and lost nothing. Source: RFC 2544, section 26.3.
            let mut clean = 0;
            for tenths in (1..=10).rev() {
                let pps = highest * f64::from(tenths) / 10.0;
                let point = self.point("loss", Trial { bytes, pps, count: None })?;
                clean = if point.holds(0.0) { clean + 1 } else { 0 };
                of.loss.push(point);
                if clean == 2 {
                    break;
                }
            }
        }
        if back_to_back {
            let most = (highest * BURST_SECONDS).floor().max(1.0);
            let step = (most * self.plan.resolution).max(1.0);
            let found: Result<f64, End> = search::highest(most, step, |frames| {
                let count = frames.floor().max(1.0) as u64;
                let point = self.point("back-to-back", Trial { bytes, pps: highest, count: Some(count) })?;
                Ok(point.holds(self.plan.tolerance))
            });
            of.back_to_back_frames = Some(found?.floor() as u64);
        }
        Ok(())
    }

    fn point(&mut self, test: &str, trial: Trial) -> Result<Point, End> {
        let outcome = self.tester.trial(&trial)?;
        let point = Point::new(&trial, &outcome);
        (self.tell)(format!("{test}, {} bytes, {point}", trial.bytes));
        Ok(point)
    }
}

#[cfg(test)]
mod tests;
