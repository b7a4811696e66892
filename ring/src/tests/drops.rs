//! Every element is dropped once, whatever happens.

use super::near_wrap;
use crate::header::Kind;
use crate::shared::ring_from;
use crate::{hts, mpmc, spsc};
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
