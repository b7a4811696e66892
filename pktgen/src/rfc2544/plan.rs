//! What is to be measured, in trials, each of which has an outcome.

use std::time::Duration;

use pollux_bringup::BringupError;
use pollux_kit::Latency;

use super::options::Tests;
use crate::schedule::DEBT_PART;

/// Seconds by which frames at a constant rate may be late.
const MADE_UP: f64 = 1.0 / DEBT_PART as f64;

/// One size of frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) bytes: u16,
    /// The highest rate that is tried, in frames a second of each port that sends.
    pub(super) highest: f64,
}

/// What is measured.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) tests: Tests,
    pub(super) sizes: Vec<Size>,
    /// The part of the highest rate to which results are found.
    pub(super) resolution: f64,
    /// The part of the frames that may be lost.
    pub(super) tolerance: f64,
}

/// Frames of one size that are sent once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) bytes: u16,
    /// Frames a second of each port.
    pub(super) pps: f64,
    /// Each port sends so many; else for the time of a trial.
    pub(super) count: Option<u64>,
}

impl Trial {
    /// Frames of a burst that one port should have sent in the time that it took, if that was longer than at its rate: those of the burst, then,
    /// were not back to back. It may be late by what a constant rate makes up for, too.
    pub(super) fn due_of_burst(&self, count: u64, seconds: f64) -> u64 {
        count.max((self.pps * (seconds - MADE_UP)).max(0.0) as u64)
    }
}

/// What became of them, at all ports together.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Due by the rate.
    pub(super) offered: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) latency: Latency,
}

/// Why no more is measured.
#[derive(Debug)]
pub(crate) enum End {
    /// The program is to end.
    Stopped,
    Failed(BringupError),
}

/// Sends frames and sees what comes back.
pub(super) trait Tester {
    fn trial(&mut self, trial: &Trial) -> Result<Outcome, End>;
}

impl From<BringupError> for End {
    fn from(error: BringupError) -> Self {
        Self::Failed(error)
    }
}

/// Times of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    /// Frames are sent for so long.
    pub(crate) trial: Duration,
    /// Returns are waited for.
    pub(crate) wait: Duration,
    /// Between two trials.
    pub(crate) settle: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_that_took_longer_than_at_its_rate_was_not_back_to_back() {
        let trial = Trial { bytes: 64, pps: 1e6, count: Some(2_000_000) };
        let due = |count, seconds| trial.due_of_burst(count, seconds);
        assert_eq!(due(2_000_000, 2.0), 2_000_000);
        assert_eq!(due(2_000_000, 2.009), 2_000_000);
        assert_eq!(due(2_000_000, 2.51), 2_500_000);
        // Shorter than what may be made up for.
        assert_eq!((due(1, 0.000_02), due(1, 0.0)), (1, 1));
    }
}
