//! What rings count anyway, and a queue's count over all the rings that it had.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::locked;

/// What a ring counts, whoever asks. Called on other threads than those that post and poll.
pub(crate) trait Gauge: Send + Sync {
    fn fill(&self) -> Fill;
}

/// A ring as it is, read while others use it: the parts may be of slightly different times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) places: u32,
    pub(crate) used: u32,
    pub(crate) posted: u64,
}

/// How full a queue is, and what went through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Places of its ring. Of a send queue of mlx5 these are blocks of 64 bytes, of which a request takes one or more.
    pub places: u32,
    /// Places in use: posted and not known to be done, or of a completion queue written and not polled.
    pub used: u32,
    /// Requests posted in all; 0 of a completion queue.
    pub posted: u64,
    /// Of a receive queue: requests that completed, flushed ones included. It never decreases.
    pub completed: u64,
}

/// The gauge of a ring, which may be another one after the queue was reset or resized.
pub(crate) struct Meter(Mutex<Metered>);

struct Metered {
    gauge: Option<Arc<dyn Gauge>>,
    /// Requests posted to the rings before this one.
    before: u64,
    /// Requests that resets discarded: posted, not in use and not completed.
    discarded: u64,
    /// The most that were seen to be completed.
    completed: u64,
}

impl Metered {
    fn level(&mut self) -> Option<Level> {
        let Fill { places, used, posted } = self.gauge.as_ref()?.fill();
        let posted = self.before + posted;
        self.completed = self.completed.max(posted.saturating_sub(u64::from(used) + self.discarded));
        Some(Level { places, used, posted, completed: self.completed })
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level().fmt(f)
    }
}

impl Meter {
    /// Of a ring; `None`: there is none.
    pub(crate) fn new(gauge: Option<Arc<dyn Gauge>>) -> Self {
        Self(Mutex::new(Metered { gauge, before: 0, discarded: 0, completed: 0 }))
    }

    /// Goes on with the ring of a queue that was reset, another one or the same; what was in use is discarded. `settled`: the
    /// [level](Self::level) before the reset, after which a ring that stays is empty.
    pub(crate) fn was_reset(&self, gauge: Option<Arc<dyn Gauge>>, settled: Option<Level>) {
        let mut metered = locked(&self.0);
        let stays = match (&metered.gauge, &gauge) {
            (Some(one), Some(two)) => std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(two)),
            _ => false,
        };
        // The ring that goes counts on by itself, should a completion of its be polled meanwhile.
        let last = if stays { settled } else { metered.level() };
        // Of no ring there is none after either.
        let Some(Level { posted, completed, .. }) = last else { return };
        metered.discarded = posted.saturating_sub(completed);
        if !stays {
            metered.before = posted;
            metered.gauge = gauge;
        }
    }

    /// Goes on with another ring, to which went what was in use.
    pub(crate) fn replace(&self, gauge: Arc<dyn Gauge>) {
        locked(&self.0).gauge = Some(gauge);
    }

    /// How full the ring is now.
    pub(crate) fn level(&self) -> Option<Level> {
        locked(&self.0).level()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use super::*;

    /// A ring as a test says.
    #[derive(Default)]
    pub(crate) struct Ring {
        used: AtomicU32,
        posted: AtomicU64,
        pub(crate) looks: AtomicU32,
    }

    impl Ring {
        fn set(&self, posted: u64, used: u32) {
            self.posted.store(posted, Ordering::Relaxed);
            self.used.store(used, Ordering::Relaxed);
        }
    }

    impl Gauge for Ring {
        fn fill(&self) -> Fill {
            self.looks.fetch_add(1, Ordering::Relaxed);
            let (used, posted) = (self.used.load(Ordering::Relaxed), self.posted.load(Ordering::Relaxed));
            Fill { places: 8, used, posted }
        }
    }

    fn told(meter: &Meter) -> (u32, u64, u64) {
        meter.level().map_or((0, 0, 0), |level| (level.used, level.posted, level.completed))
    }

    #[test]
    fn what_a_reset_discards_is_not_completed() {
        let ring = Arc::new(Ring::default());
        let meter = Meter::new(Some(ring.clone()));
        ring.set(5, 3);
        // Another ring, as mlx5 has it.
        let (second, old) = (Arc::new(Ring::default()), meter.level());
        meter.was_reset(Some(second.clone()), old);
        assert_eq!(told(&meter), (0, 5, 2));
        second.set(4, 3);
        assert_eq!(told(&meter), (3, 9, 3));
        meter.was_reset(Some(Arc::new(Ring::default())), meter.level());
        assert_eq!(told(&meter), (0, 9, 3));
    }

    #[test]
    fn a_ring_that_stays_goes_on_counting() {
        // As the kernel's of rxe: it counts on, and the kernel takes what is in it out.
        let ring = Arc::new(Ring::default());
        let meter = Meter::new(Some(ring.clone()));
        ring.set(5, 3);
        let settled = meter.level();
        ring.set(5, 0);
        meter.was_reset(Some(ring.clone()), settled);
        assert_eq!(told(&meter), (0, 5, 2), "posted is not counted twice, and nothing completed");
        ring.set(9, 1);
        assert_eq!(told(&meter), (1, 9, 5));
        let settled = meter.level();
        ring.set(9, 0);
        meter.was_reset(Some(ring), settled);
        assert_eq!(told(&meter), (0, 9, 5));
    }
}
