//! The counts now, and what happened in the last second or so: what metrics, page and screen show.

use pollux_bringup::View;
use serde::Serialize;

use crate::counts::Counts;
use crate::meter::Meter;

/// The least length of a span in seconds, where the program has run for as long.
const SPAN_MIN: f64 = 0.9;

/// Totals, and a span that ends with them.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// The program.
    pub app: String,
    /// Since the start.
    pub total: Counts,
    /// Since an earlier sample, about a second ago where samples are taken that often.
    pub span: Counts,
}

/// Takes samples of one program.
#[derive(Debug)]
pub struct Sampler {
    app: String,
    meter: Meter,
    view: View,
    /// The last two samples at least [`SPAN_MIN`] apart, the older first.
    marks: [Counts; 2],
}

impl Sampler {
    /// One that has seen nothing: its first span is the whole run.
    #[must_use]
    pub fn new(app: &str, meter: &Meter, view: View) -> Self {
        Self { app: app.into(), meter: meter.clone(), view, marks: Default::default() }
    }

    /// Reads the counters.
    pub fn sample(&mut self) -> Sample {
        let total = self.meter.read(&self.view);
        let [older, newer] = &mut self.marks;
        let apart = total.seconds - newer.seconds >= SPAN_MIN;
        let span = total.since(if apart { newer } else { older });
        if apart {
            *older = std::mem::replace(newer, total.clone());
        }
        Sample { app: self.app.clone(), total, span }
    }
}

#[cfg(test)]
mod tests {
    use pollux_bringup::Bringup;
    use pollux_config::CommandLine;
    use std::time::Duration;

    use super::*;

    #[test]
    fn samples_in_quick_succession_look_back_about_a_second() {
        let line = CommandLine::parse("sampler -l 0 --no-huge --vdev net_null0".split(' ')).expect("a line");
        let bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let mut sampler = Sampler::new("app", &Meter::of_ports(&[]), bringup.view());
        let first = sampler.sample();
        assert_eq!(first.span.seconds, first.total.seconds, "the whole run");
        std::thread::sleep(Duration::from_secs_f64(SPAN_MIN));
        let second = sampler.sample();
        let third = sampler.sample();
        assert!(second.span.seconds >= SPAN_MIN && third.span.seconds >= second.span.seconds, "{third:?}");
    }
}
