//! Every element is dropped once, whatever happens.

use super::near_wrap;
use crate::header::Kind;
use crate::shared::ring_from;
use crate::{Peeked, hts, mpmc, spsc};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts drops; the one with the number that is to fail panics.
struct Fragile<'a> {
    drops: &'a AtomicUsize,
    fails: bool,
}

impl<'a> Fragile<'a> {
    fn sound(drops: &'a AtomicUsize) -> Self {
        Fragile { drops, fails: false }
    }
}

impl Drop for Fragile<'_> {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        assert!(!self.fails, "as it is to");
    }
}

#[test]
fn what_is_left_is_dropped_with_the_last_end() {
    let drops = AtomicUsize::new(0);
    let (producer, consumer) = ring_from::<_, mpmc::Mpmc>(near_wrap(Kind::Mpmc, 10)).unwrap();
    for _ in 0..10 {
        assert!(producer.enqueue(Fragile::sound(&drops)).is_ok());
    }
    drop(consumer.dequeue());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(producer);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(consumer);
    assert_eq!(drops.load(Ordering::Relaxed), 10);
}

#[test]
fn an_abandoned_reservation_drops_what_was_written() {
    let drops = AtomicUsize::new(0);
    let (mut producer, consumer) = spsc::ring(4).unwrap();
    let mut room = producer.reserve_bulk(3).unwrap();
    assert!(room.push(Fragile::sound(&drops)).is_ok());
    assert!(room.push(Fragile::sound(&drops)).is_ok());
    room.abort();
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    assert!(consumer.is_empty());
}

#[test]
fn a_panicking_iterator_leaves_the_ring_as_it_was() {
    let drops = AtomicUsize::new(0);
    let (producer, consumer) = hts::ring(4).unwrap();
    let elements = (0..4).map(|index| {
        assert!(index < 2, "the source breaks");
        Fragile::sound(&drops)
    });
    assert!(catch_unwind(AssertUnwindSafe(|| producer.enqueue_iter(elements))).is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    assert!(consumer.is_empty());
    assert!(producer.enqueue(Fragile::sound(&drops)).is_ok(), "the side is free again");
}

#[test]
fn a_panicking_drop_loses_no_other_element() {
    let drops = AtomicUsize::new(0);
    let (mut producer, mut consumer) = spsc::ring(4).unwrap();
    for index in 0..4 {
        assert!(producer.enqueue(Fragile { drops: &drops, fails: index == 1 }).is_ok());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| consumer.clear())).is_err());
    assert_eq!((drops.load(Ordering::Relaxed), consumer.count()), (2, 2));
    assert_eq!(consumer.clear(), 2);
    assert_eq!(drops.load(Ordering::Relaxed), 4);
}

#[test]
fn a_panicking_drop_in_an_abandoned_reservation_frees_the_side() {
    let drops = AtomicUsize::new(0);
    let (producer, consumer) = hts::ring(4).unwrap();
    let mut room = producer.reserve_bulk(2).unwrap();
    assert!(room.push(Fragile { drops: &drops, fails: true }).is_ok());
    assert!(catch_unwind(AssertUnwindSafe(|| room.abort())).is_err());
    assert!(producer.enqueue(Fragile::sound(&drops)).is_ok());
    assert_eq!(consumer.count(), 1);
}

/// What a guard does before it is forgotten, and how many elements are dropped by it.
type Act = for<'a, 'b, 'c> fn(&'a mut Peeked<'b, Fragile<'c>>) -> usize;

/// Every way to take something out of a guard; the elements that come out are dropped at once.
const ACTS: [(&str, Act); 5] = [
    ("nothing", |_| 0),
    ("take", |seen| seen.take().into_iter().count()),
    ("take_into", |seen| {
        let mut out = Vec::with_capacity(2);
        seen.take_into(&mut out, 8)
    }),
    ("discard", |seen| seen.discard(3)),
    ("all", |seen| seen.discard(4)),
];

/// Puts four elements, peeks at them, acts, and forgets the guard.
fn peek_and_forget_spsc<'a>(
    drops: &'a AtomicUsize,
    act: Act,
) -> (spsc::Producer<Fragile<'a>>, spsc::Consumer<Fragile<'a>>) {
    let (mut producer, mut consumer) = spsc::ring_from(near_wrap(Kind::Spsc, 4)).unwrap();
    assert_eq!(producer.enqueue_iter((0..4).map(|_| Fragile::sound(drops))).count, 4);
    let mut seen = consumer.peek_burst(4);
    let taken = act(&mut seen);
    assert_eq!(drops.load(Ordering::Relaxed), taken);
    std::mem::forget(seen);
    (producer, consumer)
}

#[test]
fn a_forgotten_spsc_guard_yields_no_element_again() {
    for (name, act) in ACTS {
        let drops = AtomicUsize::new(0);
        let (mut producer, mut consumer) = peek_and_forget_spsc(&drops, act);
        let taken = drops.load(Ordering::Relaxed);
        assert_eq!(consumer.count(), 4 - taken, "{name}");
        assert_eq!(
            producer.enqueue_iter((0..9).map(|_| Fragile::sound(&drops))).count,
            taken,
            "{name}: the slots are free"
        );
        assert_eq!(consumer.clear(), 4, "{name}");
        assert_eq!(drops.load(Ordering::Relaxed), 4 + taken, "{name}");

        let drops = AtomicUsize::new(0);
        drop(peek_and_forget_spsc(&drops, act));
        assert_eq!(drops.load(Ordering::Relaxed), 4, "{name}: the last end drops the rest alone");
    }
}

#[test]
fn a_forgotten_hts_guard_yields_no_element_again() {
    for (name, act) in ACTS {
        for reset in [false, true] {
            let drops = AtomicUsize::new(0);
            let (mut producer, mut consumer) = ring_from::<_, hts::Hts>(near_wrap(Kind::Hts, 5)).unwrap();
            assert_eq!(producer.enqueue_iter((0..5).map(|_| Fragile::sound(&drops))).count, 5);
            let mut seen = consumer.peek_bulk(4).unwrap();
            let taken = act(&mut seen);
            std::mem::forget(seen);
            if reset {
                hts::reset(&mut producer, &mut consumer).unwrap();
                assert!(producer.enqueue(Fragile::sound(&drops)).is_ok());
                assert!(consumer.dequeue().is_some(), "the side is free again");
            }
            drop((producer, consumer));
            // What the guard held is leaked, as with anything that is forgotten; the fifth is the ring's.
            let expected = taken + 1 + usize::from(reset);
            assert_eq!(drops.load(Ordering::Relaxed), expected, "{name}, reset {reset}");
        }
    }
}

#[test]
fn a_forgotten_reservation_publishes_nothing() {
    let drops = AtomicUsize::new(0);
    let (mut producer, consumer) = spsc::ring(4).unwrap();
    let mut room = producer.reserve_bulk(3).unwrap();
    assert!(room.push(Fragile::sound(&drops)).is_ok());
    std::mem::forget(room);
    assert!(consumer.is_empty());
    drop((producer, consumer));
    let (producer, consumer) = hts::ring(4).unwrap();
    let mut room = producer.reserve_bulk(3).unwrap();
    assert!(room.push(Fragile::sound(&drops)).is_ok());
    std::mem::forget(room);
    drop((producer, consumer));
    assert_eq!(drops.load(Ordering::Relaxed), 0, "leaked, as anything that is forgotten");
}
