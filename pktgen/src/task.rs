//! What lanes are told to do: one task after the other, which all of them begin at once.
//!
//! ```text
//!   control thread: Desk::put, for each lane ── Start::give       lane: Start::given changed ── Desk::exchange ── begins
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use pollux_eal::clock::Clock;
use pollux_mempool::{Burst, Mbuf};

use crate::count::{SenderCounters, TaskCounters};
use crate::gaps::Gaps;
use crate::replay::Replay;
use crate::schedule::{Pattern, Schedule};
use crate::stamp::{self, Mark};
use crate::stream::Stream;
use crate::tracker::Tracker;

/// Where packets come from.
#[derive(Debug)]
pub(crate) enum Content {
    Made(Box<Stream>),
    Replayed(Replay),
}

/// A stream and when its packets are due.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) content: Content,
    pub(crate) pattern: Pattern,
    /// Packets a second; none: as many as it goes.
    pub(crate) pps: Option<f64>,
    /// Another rate while it is sent; none where it stays as it is.
    pub(crate) pace: Option<Pace>,
    /// It sends so many packets, however late.
    pub(crate) counted: bool,
    /// Packets that are to be made yet.
    pub(crate) left: u64,
    pub(crate) seed: u64,
    pub(crate) counters: Arc<SenderCounters>,
    /// Where they are measured.
    pub(crate) gaps: Option<Box<Gaps>>,
    /// While packets are sent.
    pub(crate) schedule: Option<Schedule>,
}

impl Sender {
    /// Goes on with another rate from `now` on.
    #[cold]
    pub(crate) fn go_on_at(&mut self, pps: Option<f64>, clock: &Clock, now: u64) {
        if let Some(mut schedule) = self.schedule.take() {
            self.counters.offered.add(schedule.rest(now).min(self.left));
            self.pps = pps;
            self.schedule = Some(Schedule::new(clock, self.pattern, pps, self.seed, now));
        }
    }
}

/// A rate that changes while packets are sent: 0 is as many as it goes. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    wanted: Arc<CachePadded<AtomicU64>>,
    /// What this end saw last, in bits.
    seen: u64,
}

impl Pace {
    pub(crate) fn new(pps: Option<f64>) -> Self {
        let bits = pps.unwrap_or(0.0).to_bits();
        Self { wanted: Arc::new(CachePadded::new(AtomicU64::new(bits))), seen: bits }
    }

    /// Whether there is a rate to be kept.
    pub(crate) fn is_set(&self) -> bool {
        f64::from_bits(self.wanted.load(Ordering::Relaxed)) > 0.0
    }

    pub(crate) fn set(&self, pps: Option<f64>) {
        self.wanted.store(pps.unwrap_or(0.0).to_bits(), Ordering::Relaxed);
    }

    /// The new rate, if there is one since this was asked last.
    #[inline(always)]
    pub(crate) fn changed(&mut self) -> Option<Option<f64>> {
        let bits = self.wanted.load(Ordering::Relaxed);
        if bits == self.seen {
            return None;
        }
        self.seen = bits;
        let pps = f64::from_bits(bits);
        Some((pps > 0.0).then_some(pps))
    }
}

/// Finds marks in what comes back.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) cookie: u32,
    /// By the number of the stream; none: its returns are not measured.
    pub(crate) trackers: Vec<Option<Tracker>>,
}

impl Receiver {
    /// Measures a burst that came at `now`. Packets that were sent in one burst mostly come in one: they are counted together.
    #[inline]
    pub(crate) fn measure(&mut self, burst: &Burst, now: u64) {
        let (mut first, mut count) = (Mark::default(), 0);
        for mbuf in burst.iter() {
            let mark =
                if mbuf.is_contiguous() { mbuf.data().last_chunk().map(Mark::of) } else { gathered(mbuf) };
            let Some(mark) = mark else { continue };
            // Whether these are marks at all is asked once for all that follow each other.
            if !mark.is_behind(first, count) {
                self.came(first, count, now);
                (first, count) = (mark, 0);
            }
            count += 1;
        }
        self.came(first, count, now);
    }

    #[inline]
    fn came(&mut self, first: Mark, count: u32, now: u64) {
        let Some(first) = first.read(self.cookie).filter(|_| count > 0) else { return };
        if let Some(Some(tracker)) = self.trackers.get_mut(usize::from(first.stream)) {
            tracker.came_together(first.number, count, stamp::since(now, first.time));
        }
    }
}

/// The mark at the end of the last segments.
#[cold]
fn gathered(mbuf: &Mbuf) -> Option<Mark> {
    let mut bytes = [0; stamp::BYTES];
    let at = (mbuf.pkt_len() as usize).saturating_sub(stamp::BYTES);
    (mbuf.read(at, &mut bytes) == stamp::BYTES).then(|| Mark::of(&bytes))
}

/// What one lane sends and measures.
#[derive(Debug, Default)]
pub(crate) struct Task {
    pub(crate) senders: Vec<Sender>,
    pub(crate) receiver: Option<Receiver>,
    /// How long packets are sent; none: until the end.
    pub(crate) time: Option<Duration>,
    pub(crate) counters: Arc<TaskCounters>,
    /// No more is to be sent.
    pub(crate) halt: Arc<AtomicBool>,
}

impl Task {
    #[inline(always)]
    pub(crate) fn is_halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}

/// Where a lane finds its next task. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desk(Arc<Mutex<Task>>);

impl Desk {
    /// Puts a task there before the start is given. What lay there is one that has ended.
    pub(crate) fn put(&self, task: Task) {
        // It is freed here, and not while the desk is locked.
        drop(self.swap(task));
    }

    /// For the lane, once the start is given: takes the task, and leaves the one that has ended, so that nothing is freed there. The lock is
    /// free: nobody puts a task until this one has ended.
    pub(crate) fn exchange(&self, task: &mut Task) {
        *task = self.swap(std::mem::take(task));
    }

    fn swap(&self, task: Task) -> Task {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), task)
    }
}

/// How many tasks have begun: a lane that has taken fewer takes the next one. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start(Arc<CachePadded<AtomicU64>>);

impl Start {
    pub(crate) fn give(&self) {
        // Pairs with `given`: the tasks lie there.
        self.0.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn given(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use pollux_mempool::MbufPool;

    use super::*;

    const COOKIE: u32 = 0xc00c_1e05;

    #[test]
    fn marks_are_found_in_runs_between_other_packets_and_in_chains() {
        let pool = MbufPool::builder("returns", 64).build_anonymous().expect("a pool");
        let packet = |bytes: &[u8]| {
            let mut mbuf = pool.alloc().expect("an mbuf");
            assert!(mbuf.append_slice(bytes));
            mbuf
        };
        let marked = |cookie, stream, time, number| {
            let mut bytes = [7; 60];
            Mark::new(cookie, stream, time, number).put(&mut bytes);
            bytes
        };
        let mut burst = Burst::new();
        // Two runs of stream 1, and one of stream 0 with another run's packet and a short one in it; the last mark lies in two mbufs.
        for number in 0..3 {
            burst.push(packet(&marked(COOKIE, 1, 100, number)));
        }
        for number in 3..5 {
            burst.push(packet(&marked(COOKIE, 1, 120, number)));
        }
        burst.push(packet(&marked(COOKIE, 0, 120, 0)));
        burst.push(packet(&marked(COOKIE + 1, 0, 120, 1)));
        burst.push(packet(&[0; 60]));
        burst.push(packet(&[0; 15]));
        let last = marked(COOKIE, 0, 120, 1);
        let mut first = packet(&last[..50]);
        first.chain(packet(&last[50..])).expect("a chain");
        burst.push(first);

        let (trackers, returns): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| Tracker::new())
            .map(|(tracker, counters, histogram)| (Some(tracker), (counters, histogram)))
            .unzip();
        let mut receiver = Receiver { cookie: COOKIE, trackers };
        receiver.measure(&burst, 125);
        for ((counters, histogram), [received, slowest]) in returns.iter().zip([[2, 5], [5, 25]]) {
            let told = counters.read();
            assert_eq!((told.received, told.duplicates, told.reordered, told.late), (received, 0, 0, 0));
            assert_eq!((histogram.counts().total(), histogram.counts().max()), (received, Some(slowest)));
        }
        // The same again is known.
        receiver.measure(&burst, 126);
        let duplicates = returns.iter().map(|(counters, _)| counters.read().duplicates);
        assert_eq!(duplicates.collect::<Vec<_>>(), [2, 5]);
    }
}
