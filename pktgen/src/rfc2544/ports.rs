//! Trials at the ports of this run.

use std::time::{Duration, Instant};

use pollux_bringup::BringupError;
use pollux_eal::StopFlag;
use pollux_eal::clock::Clock;
use pollux_eal::histogram;
use pollux_kit::Latency;

use super::plan::{End, Outcome, Pauses, Tester, Trial};
use crate::rate::Rate;
use crate::report::Reported;
use crate::setup::Rig;
use crate::size::Sizes;
use crate::spec::StreamSpec;

/// How often the end of a trial is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// A burst that the ports have not taken by then has not been sent back to back.
const BURST_PATIENCE: Duration = Duration::from_secs(20);

/// Sends the frames of a stream by the lanes of a rig.
#[derive(Debug)]
pub(crate) struct PortTester {
    pub(crate) rig: Rig,
    /// But for its size, rate and count.
    pub(crate) spec: StreamSpec,
    pub(crate) pauses: Pauses,
    pub(crate) clock: Clock,
    pub(crate) stop: StopFlag,
    /// When the last trial ended.
    pub(crate) ended: Option<Instant>,
}

impl PortTester {
    /// Sleeps; a program that is to end ends the trials.
    fn sleep(&self, time: Duration) -> Result<(), End> {
        if self.stop.wait(time) { Err(End::Stopped) } else { Ok(()) }
    }

    fn send(&self, trial: &Trial) -> Result<Outcome, End> {
        let spec = StreamSpec {
            sizes: Sizes(vec![trial.bytes]),
            rate: Rate::Packets(trial.pps),
            count: trial.count,
            latency: true,
            ..self.spec.clone()
        };
        let time = if trial.count.is_some() { BURST_PATIENCE } else { self.pauses.trial };
        let tasks = self.rig.tasks(&[spec], Some(time), |path, _| {
            Err(BringupError::Usage(format!("{}: no file is replayed in a trial", path.path.display())))
        })?;
        let running = self.rig.begin(tasks);
        while !running.has_ended() {
            self.sleep(LOOK)?;
        }
        self.sleep(self.pauses.wait)?;
        let mut outcome = outcome(&running.streams, self.clock);
        if let Some(count) = trial.count {
            let due = |stream: &Reported| trial.due_of_burst(count, stream.seconds(self.clock));
            outcome.offered = running.streams.iter().map(due).sum();
        }
        Ok(outcome)
    }
}

impl Tester for PortTester {
    fn trial(&mut self, trial: &Trial) -> Result<Outcome, End> {
        if let Some(ended) = self.ended {
            self.sleep(self.pauses.settle.saturating_sub(ended.elapsed()))?;
        }
        let outcome = self.send(trial);
        self.ended = Some(Instant::now());
        outcome
    }
}

/// What became of the streams of all ports.
fn outcome(streams: &[Reported], clock: Clock) -> Outcome {
    let (mut received, mut latency) = (0, histogram::Counts::default());
    for stream in streams {
        let (returns, ticks) = stream.returned();
        received += returns.received;
        latency += &ticks;
    }
    let sum = |count: fn(&Reported) -> u64| streams.iter().map(count).sum();
    Outcome {
        offered: sum(Reported::offered),
        sent: sum(Reported::sent),
        received,
        latency: Latency::new(latency, clock),
    }
}
