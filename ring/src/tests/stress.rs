//! Threads that race for a moment on a small ring: nothing is lost, doubled, or out of its producer's order.

use super::{Put, Take, near_wrap};
use crate::header::{Kind, Plan};
use crate::shared::{self, Discipline};
use crate::{hts, mpmc, rts, spsc};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Boxed, so that a lost or doubled element is also a leak or a crash.
type Element = Box<(usize, u64)>;

const TIME: Duration = Duration::from_millis(300);

/// Every producer sends so many at least, however busy the machine is.
const SENT_MIN: u64 = 100;

/// One race at a time: they are to race among themselves, not with each other.
static TRACK: Mutex<()> = Mutex::new(());

/// Sends numbers until time is up; says how many.
fn produce(id: usize, mut end: impl Put<Element>) -> u64 {
    let (started, mut next) = (Instant::now(), 0);
    let mut batch: Vec<Element> = Vec::with_capacity(64);
    while started.elapsed() < TIME || next < SENT_MIN {
        let size = (next % 7 + 1) as usize;
        while batch.len() < size {
            batch.push(Box::new((id, next)));
            next += 1;
        }
        let done = if next % 2 == 0 { end.burst(&mut batch) } else { end.bulk(&mut batch) };
        if done.count == 0 {
            thread::yield_now();
        }
    }
    next - batch.len() as u64
}

/// Receives until the producers are done and the ring is empty; the numbers of each producer, in order.
fn consume(mut end: impl Take<Element>, done: &AtomicBool) -> HashMap<usize, Vec<u64>> {
    let mut got: HashMap<usize, Vec<u64>> = HashMap::new();
    let mut batch = Vec::with_capacity(8);
    let mut turn = 0;
    loop {
        let last = done.load(Ordering::Acquire);
        turn += 1;
        let moved = if turn % 3 == 0 { end.bulk(&mut batch, 3) } else { end.burst(&mut batch, 8) };
        for element in batch.drain(..) {
            got.entry(element.0).or_default().push(element.1);
        }
        if moved.count == 0 {
            // A bulk may fail on a rest of two, a burst does not.
            if last && turn % 3 != 0 {
                return got;
            }
            thread::yield_now();
        }
    }
}

fn race(producers: Vec<impl Put<Element> + Send>, consumers: Vec<impl Take<Element> + Send>) {
    let _track = TRACK.lock().unwrap_or_else(PoisonError::into_inner);
    let (done, at_work) = (AtomicBool::new(false), AtomicUsize::new(producers.len()));
    let (sent, got) = thread::scope(|scope| {
        let producers: Vec<_> = producers
            .into_iter()
            .enumerate()
            .map(|(id, end)| {
                let (done, at_work) = (&done, &at_work);
                scope.spawn(move || {
                    let sent = produce(id, end);
                    if at_work.fetch_sub(1, Ordering::AcqRel) == 1 {
                        done.store(true, Ordering::Release);
                    }
                    sent
                })
            })
            .collect();
        let consumers: Vec<_> =
            consumers.into_iter().map(|end| scope.spawn(|| consume(end, &done))).collect();
        let sent: Vec<u64> = producers.into_iter().map(|thread| thread.join().unwrap()).collect();
        let got: Vec<_> = consumers.into_iter().map(|thread| thread.join().unwrap()).collect();
        (sent, got)
    });
    for (id, sent) in sent.into_iter().enumerate() {
        let mut all: Vec<u64> = Vec::new();
        for numbers in got.iter().filter_map(|consumer| consumer.get(&id)) {
            assert!(numbers.is_sorted(), "producer {id} sent in order");
            all.extend(numbers);
        }
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..sent), "producer {id}: {} of {sent} arrived", all.len());
    }
}

fn race_shared<D: Discipline>(kind: Kind) {
    // The plan's distance is one element: the RTS head may hardly run ahead.
    let plan = Plan { distance_max: 1, ..near_wrap(kind, 21) };
    let (producer, consumer) = shared::ring_from::<Element, D>(plan).unwrap();
    let producers = vec![producer.clone(), producer];
    race(producers, vec![consumer.clone(), consumer]);
}

#[test]
fn spsc_race() {
    let (producer, consumer) = spsc::ring_from(near_wrap(Kind::Spsc, 21)).unwrap();
    race(vec![producer], vec![consumer]);
}

#[test]
fn mpmc_race() {
    race_shared::<mpmc::Mpmc>(Kind::Mpmc);
}

#[test]
fn rts_race() {
    race_shared::<rts::Rts>(Kind::Rts);
}

#[test]
fn hts_race() {
    race_shared::<hts::Hts>(Kind::Hts);
}

/// Threads peek, take a part and abort, while others dequeue.
#[test]
fn hts_peek_race() {
    let (producer, consumer) = shared::ring_from::<Element, hts::Hts>(near_wrap(Kind::Hts, 21)).unwrap();
    struct Peeking(hts::Consumer<Element>);
    impl Take<Element> for Peeking {
        fn bulk(&mut self, to: &mut Vec<Element>, count: usize) -> crate::Dequeued {
            drop(self.0.peek_bulk(count));
            self.burst(to, count)
        }
        fn burst(&mut self, to: &mut Vec<Element>, max: usize) -> crate::Dequeued {
            let Some(mut seen) = self.0.peek_burst(max) else { return crate::Dequeued { count: 0, used: 0 } };
            assert!(seen.iter().all(|element| element.0 < 2));
            seen.take_into(to, 2);
            seen.finish()
        }
        fn one(&mut self) -> Option<Element> {
            self.0.dequeue()
        }
        fn empty(&mut self) -> usize {
            self.0.clear()
        }
    }
    race(vec![producer.clone(), producer], vec![Peeking(consumer.clone()), Peeking(consumer)]);
}
