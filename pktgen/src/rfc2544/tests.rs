//! The tests of RFC 2544 at a made-up device.

use std::time::Duration;

use pollux_eal::histogram;
use pollux_kit::Latency;

use super::plan::Outcome;
use super::*;

/// Forwards so many frames a second, holds so many more for a moment, and loses the rest.
struct Device {
    pps: f64,
    buffer: f64,
    /// What the ports that send can do.
    sender: f64,
    trials: Vec<Trial>,
    stops_after: usize,
}

impl Device {
    fn new(pps: f64, buffer: f64) -> Self {
        Self { pps, buffer, sender: f64::MAX, trials: Vec::new(), stops_after: usize::MAX }
    }
}

impl Tester for Device {
    fn trial(&mut self, trial: &Trial) -> Result<Outcome, End> {
        if self.trials.len() == self.stops_after {
            return Err(End::Stopped);
        }
        self.trials.push(*trial);
        let offered = trial.count.map_or(trial.pps * 10.0, |count| count as f64);
        let sent = offered.min(self.sender * offered / trial.pps);
        let seconds = sent / trial.pps;
        let received = sent.min(self.pps * seconds + self.buffer);
        let (mut recorder, histogram) = histogram::new();
        recorder.record((trial.pps / 1e3) as u64);
        Ok(Outcome {
            offered: offered as u64,
            sent: sent as u64,
            received: received as u64,
            latency: Latency::new(histogram.counts(), Clock::get()),
        })
    }
}

fn plan(tests: &str, sizes: &[(u16, f64)]) -> Plan {
    Plan {
        tests: tests.parse().expect("tests"),
        sizes: sizes.iter().map(|(bytes, highest)| Size { bytes: *bytes, highest: *highest }).collect(),
        resolution: 0.001,
        tolerance: 0.0,
    }
}

fn pauses() -> Pauses {
    let [trial, wait, settle] = [10, 2, 5].map(Duration::from_secs);
    Pauses { trial, wait, settle }
}

/// Measures; the report, what was told, and what ended it.
fn measured(device: &mut Device, plan: &Plan) -> (Report, Vec<String>, Result<(), End>) {
    let (mut report, mut told) = (Report::new(plan, &pauses()), Vec::new());
    let end = measure(device, plan, &mut report, |line| told.push(line));
    (report, told, end)
}

#[test]
fn a_device_is_found_as_it_is() {
    let mut device = Device::new(700_000.0, 500.0);
    let (report, told, end) = measured(&mut device, &plan("all", &[(64, 1e6), (1518, 500_000.0)]));
    assert!(end.is_ok() && report.complete);
    assert_eq!(told.len(), device.trials.len());
    assert!(
        told[0].starts_with("throughput, 64 bytes, 1.000000 Mpps: 2,999,500 of 10,000,000 frames lost"),
        "{}",
        told[0]
    );
    let [small, large] = &report.sizes[..] else { panic!("two sizes") };
    // Its buffer holds 50 frames for each second of a trial.
    let found = small.throughput_pps.expect("measured");
    assert!((699_050.0..=700_050.0).contains(&found), "{found}");
    // A burst of N frames takes N / 1e6 s, of which it forwards 7 in 10.
    let burst = small.back_to_back_frames.expect("measured");
    assert!((0..=2000).contains(&(1667_i64 - burst as i64)), "{burst}");
    assert_eq!(large.throughput_pps, Some(500_000.0), "the highest at once");
    assert_eq!(large.back_to_back_frames, Some(1_000_000), "two seconds of them");
    // Down by tenths until two have lost nothing.
    let rates =
        |size: &OfSize| size.loss.iter().map(|point| point.pps() / size.highest_pps).collect::<Vec<_>>();
    assert_eq!(rates(small), [1.0, 0.9, 0.8, 0.7, 0.6]);
    assert_eq!(rates(large), [1.0, 0.9]);
    assert_eq!(small.latency.len(), 10);
    assert!(small.latency.iter().all(|point| point.lost == 0));
}

#[test]
fn a_sender_that_is_too_slow_is_no_device_that_holds() {
    let mut device = Device::new(f64::MAX, 0.0);
    device.sender = 300_000.0;
    let (report, told, _) = measured(&mut device, &plan("throughput", &[(64, 1e6)]));
    let found = report.sizes[0].throughput_pps.expect("measured");
    assert!((299_000.0..=300_400.0).contains(&found), "{found}");
    assert!(told[0].ends_with("only so many of 10,000,000 that were due were sent"), "{}", told[0]);
    // Nor are rates that were not sent at free of loss.
    let (report, ..) = measured(&mut device, &plan("loss", &[(64, 1e6)]));
    assert_eq!(report.sizes[0].loss.len(), 9, "300,000 and 200,000 are the first that were sent");
}

#[test]
fn a_device_that_forwards_nothing_is_measured_too() {
    let mut device = Device::new(0.0, 0.0);
    let (report, ..) = measured(&mut device, &plan("all", &[(64, 1e6)]));
    let size = &report.sizes[0];
    assert_eq!((size.throughput_pps, size.back_to_back_frames), (Some(0.0), Some(0)));
    assert!(size.latency.is_empty() && size.loss.len() == 10, "no rate to measure latency at");
    assert!(report.markdown().contains("| 64 | 0.000000 | 0.000 |"), "{}", report.markdown());
}

#[test]
fn loss_that_is_tolerated_counts_as_none() {
    let mut device = Device::new(700_000.0, 0.0);
    let with = Plan { tolerance: 0.1, ..plan("throughput", &[(64, 1e6)]) };
    let found = measured(&mut device, &with).0.sizes[0].throughput_pps.expect("measured");
    assert!((776_000.0..=778_000.0).contains(&found), "700,000 are nine tenths: {found}");
}

#[test]
fn what_was_measured_before_the_end_is_reported() {
    let mut device = Device::new(700_000.0, 0.0);
    device.stops_after = 15;
    let (report, told, end) = measured(&mut device, &plan("throughput,loss", &[(64, 1e6), (128, 1e6)]));
    assert!(matches!(end, Err(End::Stopped)) && !report.complete);
    assert_eq!((report.sizes.len(), told.len()), (1, 15));
    assert!(report.sizes[0].throughput_pps.is_some() && !report.sizes[0].loss.is_empty());
    assert!(report.markdown().contains("Ended before all was measured."));
}

#[test]
fn reports_have_all_that_was_measured() {
    let mut device = Device::new(700_000.0, 500.0);
    let (report, ..) = measured(&mut device, &plan("all", &[(64, 1e6), (1518, 500_000.0)]));
    let text = report.markdown();
    for title in
        ["# RFC 2544", "## Throughput", "## Latency at parts", "## Frame loss rate", "## Back-to-back"]
    {
        assert!(text.contains(title), "{title} in {text}");
    }
    let widths = |line: &str| line.matches('|').count();
    for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
        let mut lines = table.lines().map(widths);
        let head = lines.next();
        assert!(lines.all(|width| Some(width) == head), "{table}");
    }
    let svg = plot::svg(&report);
    assert_eq!((svg.matches("<polyline").count(), svg.matches(" bytes</text>").count()), (4, 2), "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    // Without a point there is a plot without a line.
    assert!(!plot::svg(&Report::new(&plan("loss", &[]), &pauses())).contains("polyline"));
    let json = serde_json::to_value(&report).expect("numbers");
    assert_eq!(json["sizes"][1]["throughput_pps"], 500_000.0);
    assert_eq!(json["sizes"][0]["latency"].as_array().map(Vec::len), Some(10));
}
