//! How evenly packets leave: the distance of each to the one before, held against that of the rate.
//!
//! A packet has left when the port has taken it. What another program or the hypervisor did to the lcore is none of the rate's: gaps in which
//! it was not running, and those of the packets that were made up for afterwards, are counted and left out.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pollux_eal::clock::Clock;
use pollux_eal::counter::Counter;
use pollux_eal::histogram::{self, Histogram, Recorder};

/// Whoever is this much late is asked whether it was interrupted, in nanoseconds: to ask takes as long.
const SUSPECT_NS: u64 = 20_000;

/// What is counted of the gaps of a stream on one lcore.
#[derive(Debug, Default)]
pub(crate) struct GapCounts {
    /// Ticks from the first packet to the last, and how many came after the first.
    pub(crate) span: Counter,
    pub(crate) gaps: Counter,
    /// Gaps that are in no histogram.
    pub(crate) left_out: Counter,
}

/// Where the gaps of a stream on one lcore are read.
#[derive(Clone, Debug)]
pub(crate) struct GapView {
    pub(crate) counts: Arc<GapCounts>,
    /// How much gaps were longer or shorter than those of the rate, in ticks.
    pub(crate) errors: Histogram,
    /// Ticks between packets by the rate.
    pub(crate) interval: f64,
}

/// The gaps of a stream on one lcore, which measures them.
#[derive(Debug)]
pub(crate) struct Gaps {
    interval: u64,
    suspect: u64,
    last: Option<u64>,
    /// Packets are made up for that were due while the lcore was interrupted.
    catching_up: bool,
    interruptions: Interruptions,
    counts: Arc<GapCounts>,
    recorder: Recorder,
}

impl Gaps {
    /// Of a stream of `pps` packets a second.
    pub(crate) fn new(clock: Clock, pps: f64) -> (Self, GapView) {
        let interval = clock.hz() as f64 / pps;
        let (recorder, errors) = histogram::new();
        let counts = Arc::<GapCounts>::default();
        let view = GapView { counts: Arc::clone(&counts), errors, interval };
        let gaps = Self {
            interval: interval.round() as u64,
            suspect: interval as u64 + clock.cycles(SUSPECT_NS).0,
            last: None,
            catching_up: false,
            interruptions: Interruptions::default(),
            counts,
            recorder,
        };
        (gaps, view)
    }

    /// So many packets have left at `now`, one right behind the other.
    #[inline]
    pub(crate) fn left(&mut self, packets: u64, now: u64) {
        let Some(last) = self.last.replace(now) else {
            // The first of all has no gap before it; those behind it in its burst are none of a steady rate.
            self.interruptions.begin();
            return;
        };
        let gap = now.wrapping_sub(last);
        self.counts.span.add(gap);
        self.counts.gaps.add(packets);
        if gap > self.suspect {
            self.catching_up |= self.interruptions.happened();
        } else if packets == 1 {
            self.catching_up = false;
        }
        if self.catching_up {
            self.counts.left_out.add(packets);
            return;
        }
        self.recorder.record(gap.abs_diff(self.interval));
        self.recorder.record_many(self.interval, packets - 1);
    }
}

/// What took the processor from this thread.
#[derive(Debug, Default)]
struct Interruptions {
    /// `schedstat` of the thread, and `stat` of the machine, where the kernel has them.
    files: Option<[File; 2]>,
    /// The processor on which it runs.
    cpu: usize,
    before: [Option<u64>; 2],
}

impl Interruptions {
    /// On the thread that is meant.
    #[cold]
    fn begin(&mut self) {
        let [schedstat, stat] = ["/proc/thread-self/schedstat", "/proc/stat"].map(File::open);
        self.files = schedstat.ok().zip(stat.ok()).map(|(schedstat, stat)| [schedstat, stat]);
        self.cpu = rustix::thread::sched_getcpu();
        self.happened();
    }

    /// Whether this thread waited for its processor, or the hypervisor took that, since this was asked last. Source: proc(5), fields
    /// `run_delay` of schedstat and `steal` of stat.
    #[cold]
    fn happened(&mut self) -> bool {
        let now = match &self.files {
            Some([schedstat, stat]) => [field(schedstat, 0, 1), field(stat, self.cpu + 1, 8)],
            None => [None; 2],
        };
        let before = std::mem::replace(&mut self.before, now);
        now != before
    }
}

/// A number of a line.
fn field(file: &File, line: usize, at: usize) -> Option<u64> {
    // A line of 60 bytes or so for each processor.
    let mut text = [0; 1 << 16];
    let bytes = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..bytes)?).ok()?;
    text.lines().nth(line)?.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps() -> (Gaps, GapView) {
        let clock = Clock::get();
        Gaps::new(clock, clock.hz() as f64 / 1000.0)
    }

    #[test]
    fn errors_are_those_of_the_interval() {
        let (mut gaps, view) = gaps();
        for now in [5000, 6000, 7010, 7990] {
            gaps.left(1, now);
        }
        let errors = view.errors.counts();
        assert_eq!((errors.total(), errors.quantile(0.3)), (3, Some(0)));
        assert!(errors.max().is_some_and(|most| (20..22).contains(&most)), "{errors:?}");
        assert_eq!((view.counts.span.get(), view.counts.gaps.get()), (2990, 3));
        // Not every clock's rate comes back exactly from its thousandth.
        assert!((view.interval - 1000.0).abs() < 1e-6, "{view:?}");
        // Three at once: one is late, two have no distance.
        gaps.left(3, 10_990);
        let errors = view.errors.counts();
        assert_eq!((errors.total(), view.counts.gaps.get()), (6, 6));
        assert!(errors.max().is_some_and(|most| (2000..2064).contains(&most)), "{errors:?}");
        assert_eq!(view.counts.left_out.get(), 0);
    }

    #[test]
    fn what_is_made_up_for_after_an_interruption_is_left_out() {
        let (mut gaps, view) = gaps();
        gaps.left(1, 0);
        gaps.left(1, 1000);
        // As if the thread had waited since it was asked last.
        gaps.interruptions.before = [Some(u64::MAX); 2];
        let late = 2000 + gaps.suspect;
        gaps.left(32, late);
        gaps.left(32, late + 100);
        assert_eq!((view.counts.left_out.get(), view.errors.counts().total()), (64, 1));
        gaps.left(1, late + 900);
        assert_eq!((view.counts.left_out.get(), view.errors.counts().total()), (64, 2));
        assert_eq!(view.counts.gaps.get(), 66);
    }

    #[test]
    fn a_thread_that_waited_for_its_processor_was_interrupted() {
        let mut interruptions = Interruptions::default();
        interruptions.begin();
        assert!(interruptions.before.iter().all(Option::is_some), "{interruptions:?}");
        // Two threads on one processor.
        let cpus = rustix::thread::sched_getaffinity(None).expect("a set");
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| cpus.is_set(*cpu)).expect("a processor");
        let mut one = rustix::thread::CpuSet::new();
        one.set(first);
        rustix::thread::sched_setaffinity(None, &one).expect("set");
        let stop = std::sync::atomic::AtomicBool::new(false);
        let waited = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
            let mut waited = false;
            while !waited && std::time::Instant::now() < end {
                waited = interruptions.happened();
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            waited
        });
        assert!(waited);
    }

    #[test]
    fn a_thread_that_was_not_interrupted_is_late_by_itself() {
        let (mut gaps, view) = gaps();
        gaps.interruptions = Interruptions::default();
        gaps.last = Some(0);
        gaps.left(1, 2 * gaps.suspect);
        assert_eq!((view.counts.left_out.get(), view.errors.counts().total()), (0, 1));
    }
}
