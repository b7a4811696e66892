//! What lcores are told while they run: which run of the generator this is, how fast, for how long.
//!
//! ```text
//!   control thread ── Run, then its number ──► lcores, which look at the number once a round
//!                  ◄── ends of runs ──────────
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

/// One run of all streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    /// What all rates are multiplied by. Streams without a rate send as fast as they can.
    pub(crate) scale: f64,
    /// How long packets are sent; none: until something else is said.
    pub(crate) time: Option<Duration>,
    /// Nothing is sent.
    pub(crate) pause: bool,
}

#[derive(Debug, Default)]
struct Shared {
    number: CachePadded<AtomicU64>,
    scale: AtomicU64,
    nanos: AtomicU64,
    pause: AtomicU64,
}

/// Tells all lcores. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control(Arc<Shared>);

impl Control {
    /// Begins a run; its number. One thread calls this.
    pub(crate) fn begin(&self, run: Run) -> u64 {
        let shared = &*self.0;
        let nanos = run.time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
        shared.scale.store(run.scale.to_bits(), Ordering::Relaxed);
        shared.nanos.store(nanos, Ordering::Relaxed);
        shared.pause.store(run.pause.into(), Ordering::Relaxed);
        let number = shared.number.load(Ordering::Relaxed) + 1;
        // Pairs with the load in `number`.
        shared.number.store(number, Ordering::Release);
        number
    }

    /// The number of the latest run, 0 before the first. Hot: one load.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.0.number.load(Ordering::Acquire)
    }

    /// The latest run.
    pub(crate) fn run(&self) -> Run {
        let nanos = self.0.nanos.load(Ordering::Relaxed);
        Run {
            scale: f64::from_bits(self.0.scale.load(Ordering::Relaxed)),
            time: (nanos > 0).then(|| Duration::from_nanos(nanos)),
            pause: self.0.pause.load(Ordering::Relaxed) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_with_its_number() {
        let control = Control::default();
        assert_eq!(control.number(), 0);
        let run = Run { scale: 0.5, time: Some(Duration::from_millis(3)), pause: false };
        assert_eq!((control.begin(run), control.number(), control.run()), (1, 1, run));
        let endless = Run { scale: 1.0, time: None, pause: true };
        assert_eq!((control.begin(endless), control.clone().run()), (2, endless));
    }
}
