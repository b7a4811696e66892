//! What is asked for.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

/// Sizes of frames on Ethernet that are tested, check sequences counted. Source: RFC 2544, section 9.1.
pub(crate) const SIZES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// Which tests are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    pub(crate) throughput: bool,
    pub(crate) latency: bool,
    pub(crate) loss: bool,
    pub(crate) back_to_back: bool,
}

impl FromStr for Tests {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut tests = Self::default();
        for name in text.split(',') {
            match name.trim() {
                "all" => {
                    tests = Self { throughput: true, latency: true, loss: true, back_to_back: true };
                }
                "throughput" => tests.throughput = true,
                "latency" => tests.latency = true,
                "loss" => tests.loss = true,
                "back-to-back" => tests.back_to_back = true,
                other => {
                    return Err(format!(
                        "has '{other}', which is not throughput, latency, loss, back-to-back or all"
                    ));
                }
            }
        }
        Ok(tests)
    }
}

/// Options of the tests of RFC 2544.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "RFC 2544")]
pub(crate) struct SearchOptions {
    /// Measure the device that returns what is sent: throughput, latency, loss, back-to-back or all, with commas. --size has the sizes
    /// [default: 64,128,256,512,1024,1280,1518], --rate the highest rate [default: 100%], --duration the time of a trial [default: 60]
    #[arg(
        long,
        value_name = "TESTS",
        num_args = 0..=1,
        default_missing_value = "all",
        conflicts_with_all = ["streams", "pcap", "count", "pattern"]
    )]
    pub(crate) rfc2544: Option<Tests>,
    /// How close results come to the highest, in percent of the highest rate, 0.001 to 50
    #[arg(long, value_name = "PERCENT", default_value = "0.1", requires = "rfc2544", value_parser = resolution)]
    pub(crate) resolution: f64,
    /// Loss that counts as none, in percent of the frames, 0 to 50
    #[arg(long, value_name = "PERCENT", default_value = "0", requires = "rfc2544", value_parser = tolerance)]
    pub(crate) tolerance: f64,
    /// Seconds between trials, for the device to settle, 0 to 60
    #[arg(long, value_name = "S", default_value = "5", requires = "rfc2544", value_parser = pause)]
    pub(crate) settle: f64,
    /// Write the report to PATH.md and PATH.json, latency against rate to PATH.svg
    #[arg(long, value_name = "PATH", requires = "rfc2544")]
    pub(crate) report: Option<PathBuf>,
}

/// A time to wait.
pub(crate) fn pause(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=60.0).contains(seconds));
    seconds.ok_or_else(|| "is not a time in seconds from 0 to 60".into())
}

fn resolution(text: &str) -> Result<f64, String> {
    percent(text, 0.001)
}

fn tolerance(text: &str) -> Result<f64, String> {
    percent(text, 0.0)
}

fn percent(text: &str, least: f64) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (least..=50.0).contains(percent));
    percent.ok_or_else(|| format!("is not a number from {least} to 50"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named() {
        let read = |text: &str| text.parse::<Tests>();
        assert_eq!(read("throughput"), Ok(Tests { throughput: true, ..Tests::default() }));
        assert_eq!(
            read("loss, back-to-back"),
            Ok(Tests { loss: true, back_to_back: true, ..Tests::default() })
        );
        assert_eq!(read("all"), read("throughput,latency,loss,back-to-back"));
        for text in ["", "speed", "loss,", "Loss"] {
            assert!(read(text).is_err_and(|why| why.contains("which is not throughput")), "{text}");
        }
    }
}
