//! What a test shows: rows as they come, files, the JSON line, limits.

use pollux_bringup::RdmaDevice;
use pollux_eal::clock::Clock;
use pollux_kit::Console;
use serde_json::{Value, json};

use super::counters::Counters;
use super::format::{self, Facts, RULE};
use super::options::Output;
use super::settings::Settings;
use super::{json as file, latency, statistic};
use crate::exchange::perftest::Results;
use crate::rdma::Failure;

/// The rows of a test so far.
#[derive(Debug)]
pub struct Report {
    console: Console,
    rows: Vec<Value>,
    /// Counters of the port, to be shown after each row.
    counters: Option<Counters>,
    /// The best average and rate, for limits.
    best: (f64, f64),
    /// The row of a bandwidth test that was shown last.
    pub last: Results,
}

impl Report {
    /// Without rows. After each row is shown by how much counters rose, at first since now.
    #[must_use]
    pub fn new(console: Console, mut counters: Option<Counters>) -> Self {
        if let Some(counters) = &mut counters {
            counters.rise();
        }
        Self { console, rows: Vec::new(), counters, best: (0.0, 0.0), last: Results::default() }
    }

    fn print(&mut self, row: &str) {
        self.console.print(row);
        if let Some(counters) = &mut self.counters {
            self.console.print(&counters.rise());
        }
    }

    /// A row of a bandwidth test.
    pub fn bandwidth(&mut self, settings: &Settings, results: &Results, load: Option<f64>) {
        self.last = *results;
        self.best = (self.best.0.max(results.average), self.best.1.max(results.rate));
        self.rows.push(file::bandwidth(results, load));
        let options = &settings.options;
        let text = match options.output {
            Some(Output::Bandwidth) => format!("{:.6}\n", results.average),
            Some(Output::MessageRate) => format!("{:.6}\n", results.rate),
            Some(Output::Latency) => String::new(),
            None => format::bandwidth(results, options.report_gbits, load),
        };
        self.print(&text);
    }

    /// A row of a latency test.
    pub fn latency(&mut self, settings: &Settings, size: u64, run: &latency::Run, load: Option<f64>) {
        let options = &settings.options;
        let ways = settings.test.ways();
        let hz = Clock::get().hz() as f64;
        let unit = if options.report_cycles { 1.0 } else { hz / 1e6 };
        let (mut text, row);
        if run.each.is_empty() {
            let exchanges = run.exchanges.max(1) as f64;
            let average = run.cycles as f64 / unit / ways / exchanges;
            let per_second = run.exchanges as f64 / (run.cycles as f64 / hz);
            text = format::latency_over_time(size, run.exchanges, average, per_second, load);
            row = file::latency_over_time(size, run.exchanges, average, per_second, load);
            if options.output == Some(Output::Latency) {
                text = format!("{average:.6}\n");
            }
        } else {
            let mut each = statistic::scaled(&run.each, unit * ways);
            let found = statistic::latency(each.clone());
            text = String::new();
            let name = if options.report_cycles { "cycles" } else { "usec" };
            if options.report_unsorted {
                text.push_str(&format::each(&each, name));
            }
            if options.report_histogram {
                each.sort_unstable_by(f64::total_cmp);
                text.push_str(&format::each(&each, name));
            }
            if !text.is_empty() && options.output.is_none() {
                text.push_str(&format!("{RULE}{}", format::columns(settings)));
            }
            match options.output {
                Some(Output::Latency) => text.push_str(&format!("{:.6}\n", found.average)),
                _ => text.push_str(&format::latency(size, run.exchanges, &found, load)),
            }
            row = file::latency(size, run.exchanges, &found, load);
        }
        self.print(&text);
        self.rows.push(row);
    }

    /// Adds to the last row.
    pub fn note(&mut self, key: &str, value: Value) {
        if let Some(row) = self.rows.last_mut().and_then(Value::as_object_mut) {
            row.insert(key.into(), value);
        }
    }

    /// The last words: the file, the JSON line, and whether the limits were kept.
    ///
    /// # Errors
    /// The file cannot be written, or a limit was not kept.
    pub fn end(
        &self,
        settings: &Settings,
        facts: &Facts<'_>,
        device: &RdmaDevice,
        seconds: f64,
    ) -> Result<(), Failure> {
        let options = &settings.options;
        if let Some(name) = options.report_file() {
            let text = format!("{:#}\n", file::file(settings, facts, &self.rows));
            std::fs::write(name, text)
                .map_err(|error| Failure::Error(format!("cannot write '{name}': {error}")))?;
        }
        self.console.json(|| {
            let ledger = device.ledger().map(|ledger| {
                json!({ "bytes_to_device": ledger.bytes_to_device, "bytes_from_device": ledger.bytes_from_device })
            });
            json!({
                "app": settings.program(), "device": device.name, "seconds": (seconds * 1e6).round() / 1e6,
                "results": self.rows, "ledger": ledger,
            })
        })?;
        let (average, rate) = self.best;
        let limits = [
            ("bandwidth", average, options.limit_bw, "-w"),
            ("message rate", rate, options.limit_msgrate, "-y"),
        ];
        for (what, value, limit, option) in limits {
            if let Some(limit) = limit.filter(|limit| value < *limit)
                && !self.rows.is_empty()
            {
                return Err(Failure::Error(format!("{what} {value:.3} is below {option} {limit}")));
            }
        }
        Ok(())
    }
}
