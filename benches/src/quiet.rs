//! Whether the machine left a timed part alone.

use std::fs;

/// The most of a timed part that others may take for it to count as quiet.
const MOST: f64 = 0.01;

/// What others took of a timed part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Involuntary switches of the timing thread for each timed round.
    pub switched: f64,
    /// The share of all processors' time that the hypervisor gave to others.
    pub stolen: f64,
}

impl Disturbance {
    /// Neither is above one in a hundred.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.switched <= MOST && self.stolen <= MOST
    }

    /// The worse of two parts, in each respect.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { switched: self.switched.max(other.switched), stolen: self.stolen.max(other.stolen) }
    }
}

/// Counts from now on, for the calling thread.
#[derive(Debug)]
pub struct Watch {
    switches: u64,
    ticks: Ticks,
}

impl Watch {
    /// Begins.
    #[must_use]
    pub fn begin() -> Self {
        Self { switches: switches(), ticks: Ticks::now() }
    }

    /// What came between, over so many timed rounds.
    #[must_use]
    pub fn end(&self, rounds: usize) -> Disturbance {
        let now = Ticks::now();
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        Disturbance {
            switched: share(switches().saturating_sub(self.switches), rounds as u64),
            stolen: share(
                now.stolen.saturating_sub(self.ticks.stolen),
                now.all.saturating_sub(self.ticks.all),
            ),
        }
    }
}

/// Involuntary switches of the calling thread so far (proc_pid_status(5)).
fn switches() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Time of all processors so far, in clock ticks (proc_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    stolen: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn read(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        // cpu user nice system idle iowait irq softirq steal guest guest_nice; a guest's time is in the user's already.
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).map_while(|ticks| ticks.parse().ok()).take(8).collect();
        Self { stolen: ticks.get(7).copied().unwrap_or(0), all: ticks.iter().sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_is_quiet_and_more_is_not() {
        let of = |switched, stolen| Disturbance { switched, stolen }.is_quiet();
        assert!(of(0.01, 0.01) && of(0.0, 0.0));
        assert!(!of(0.011, 0.0) && !of(0.0, 0.011));
    }

    #[test]
    fn the_kernel_s_line_is_read() {
        let line = "cpu  100 5 30 800 10 0 5 50 40 0\ncpu0 1 1 1 1 1 1 1 1\n";
        assert_eq!(Ticks::read(line), Ticks { stolen: 50, all: 1000 });
        assert_eq!(Ticks::read(""), Ticks { stolen: 0, all: 0 });
    }

    #[test]
    fn a_busy_thread_that_shares_its_processor_is_switched() {
        // More threads that never wait than processors: each is switched out against its will.
        let threads = std::thread::available_parallelism().map_or(2, usize::from) + 1;
        let busy = || {
            let (watch, begun) = (Watch::begin(), std::time::Instant::now());
            while begun.elapsed().as_millis() < 300 {
                std::hint::spin_loop();
            }
            watch.end(1).switched
        };
        let all: Vec<_> = (0..threads).map(|_| std::thread::spawn(busy)).collect();
        let most = all.into_iter().map(|one| one.join().expect("it only spins")).fold(0.0, f64::max);
        assert!(most > 0.0, "{threads} busy threads, none was switched");
    }
}
