//! Construction, sources and sinks, what is said about a ring.

use super::{Put, Take, on_each_kind};
use crate::header::{Kind, Plan};
use crate::{Plain, RingError, hts, mpmc, rts, spsc};
use std::mem::MaybeUninit;

fn exact_capacity_in_order<P: Put<u64>, C: Take<u64>>(
    kind: Kind,
    make: fn(Plan) -> Result<(P, C), RingError>,
    _reset: fn(&mut P, &mut C) -> Result<(), RingError>,
) {
    let (mut producer, mut consumer) = make(Plan::new(kind, 1000)).unwrap();
    let mut input: Vec<u64> = (0..1200).collect();
    assert_eq!(producer.bulk(&mut input).count, 0);
    assert_eq!(producer.burst(&mut input).count, 1000);
    assert_eq!(input, (1000..1200).collect::<Vec<_>>());
    assert_eq!(producer.burst(&mut input).count, 0);
    let mut out = Vec::with_capacity(2000);
    assert_eq!(consumer.burst(&mut out, 600).count, 600);
    assert_eq!(producer.bulk(&mut input).count, 200);
    assert_eq!(consumer.bulk(&mut out, 601).count, 0);
    assert_eq!(consumer.bulk(&mut out, 600).count, 600);
    assert_eq!(out, (0..1200).collect::<Vec<_>>());
}
on_each_kind!(exact_capacity_in_order);

/// The RTS counts of operations once went wrong by this.
fn moving_nothing_changes_nothing<P: Put<u64>, C: Take<u64>>(
    kind: Kind,
    make: fn(Plan) -> Result<(P, C), RingError>,
    _reset: fn(&mut P, &mut C) -> Result<(), RingError>,
) {
    let (mut producer, mut consumer) = make(Plan::new(kind, 2)).unwrap();
    assert_eq!(producer.burst(&mut Vec::new()).count, 0);
    assert_eq!(consumer.bulk(&mut Vec::new(), 0).count, 0);
    producer.one(1).unwrap();
    assert_eq!(consumer.burst(&mut Vec::new(), 9).count, 0);
    assert_eq!(consumer.one(), Some(1));
}

mod nothing {
    use super::super::on_each_kind;
    on_each_kind!(super::moving_nothing_changes_nothing);
}

#[test]
fn unfit_capacities_are_refused() {
    for capacity in [0, (1 << 31) + 1, usize::MAX] {
        let error = spsc::ring::<u64>(capacity).unwrap_err();
        assert_eq!(error, RingError::Capacity { capacity, max: 1 << 31, element_bytes: 8 });
    }
    let error = mpmc::ring::<[u8; 1 << 40]>(1 << 30).unwrap_err();
    let RingError::Capacity { max, .. } = error else { panic!("{error}") };
    assert!(max < 1 << 30);
    assert!(error.to_string().starts_with("ring capacity 1073741824: must be from 1 to "));
}

#[test]
fn slices_are_copied() {
    let (mut producer, mut consumer) = spsc::ring(4).unwrap();
    assert_eq!(producer.enqueue_burst(&[1, 2, 3, 4, 5][..]).count, 4);
    let mut out = [0; 3];
    assert_eq!(consumer.dequeue_burst(&mut out[..2], 8).count, 2);
    assert_eq!(consumer.dequeue_bulk(&mut out[2..], 2).count, 0, "a sink too small for the bulk takes none");
    assert_eq!(consumer.dequeue_bulk(&mut out[2..], 1).count, 1);
    assert_eq!(out, [1, 2, 3]);
    let mut raw = [MaybeUninit::new(0), MaybeUninit::uninit()];
    assert_eq!(consumer.dequeue_burst(&mut raw[..], 2).count, 1);
    // SAFETY: the first was initialised above, whatever the dequeue did.
    assert_eq!(unsafe { raw[0].assume_init() }, 4);
}

#[test]
fn pointers_move_elements() {
    let (producer, consumer) = mpmc::ring::<String>(3).unwrap();
    let input = ["a", "b", "c", "d"].map(|text| MaybeUninit::new(text.to_owned()));
    let mut output = [const { MaybeUninit::<String>::uninit() }; 4];
    // SAFETY: each element is taken from `input` at most once, and read from `output` only where it was written; "d" is
    // dropped here.
    unsafe {
        assert_eq!(producer.enqueue_bulk_raw(input.as_ptr().cast(), 4).count, 0);
        assert_eq!(producer.enqueue_burst_raw(input.as_ptr().cast(), 4).count, 3);
        assert_eq!(consumer.dequeue_bulk_raw(output.as_mut_ptr().cast(), 4).count, 0);
        assert_eq!(consumer.dequeue_burst_raw(output.as_mut_ptr().cast(), 4).count, 3);
        drop(input[3].assume_init_read());
        assert_eq!(
            output.each_ref()[..3].iter().map(|text| text.assume_init_read()).collect::<String>(),
            "abc"
        );
    }
}

/// Elements of odd sizes take every step of the copy loop.
fn any_size<T: Plain + PartialEq + std::fmt::Debug>(of: impl Fn(u8) -> T) {
    for count in 0..70 {
        let (producer, consumer) = mpmc::ring(100).unwrap();
        for round in 0..5 {
            let input: Vec<T> = (0..count).map(|index| of(index + round)).collect();
            assert_eq!(producer.enqueue_bulk(&input[..]).count, input.len());
            let mut out = Vec::with_capacity(input.len());
            assert_eq!(consumer.dequeue_burst(&mut out, usize::MAX).count, input.len());
            assert_eq!(out, input);
        }
    }
}

#[test]
fn elements_of_any_size() {
    any_size(|value| value);
    any_size(u16::from);
    any_size(|value| [value; 3]);
    any_size(|value| [value; 13]);
    any_size(u64::from);
    any_size(|value| [value; 100]);
    any_size(|_| [0_u8; 0]);
}

#[test]
fn a_claim_beyond_the_rts_distance_waits_for_nobody_alone() {
    let (producer, consumer) = rts::ring(64).unwrap();
    rts::set_distance_max(&producer, 1).unwrap();
    assert_eq!(producer.enqueue_bulk(&[7; 32]).count, 32);
    assert_eq!(producer.enqueue_bulk(&[8; 32]).count, 32);
    assert_eq!(consumer.count(), 64);
    for distance in [0, 65] {
        let error = rts::set_distance_max(&producer, distance).unwrap_err();
        assert_eq!(error, RingError::Distance { distance, capacity: 64 });
    }
}

#[test]
fn clones_share_the_ring_and_forbid_a_reset() {
    let (mut producer, mut consumer) = hts::ring(8).unwrap();
    let clone = producer.clone();
    clone.enqueue(1).unwrap();
    producer.enqueue(2).unwrap();
    assert_eq!(consumer.clone().dequeue(), Some(1));
    assert_eq!(hts::reset(&mut producer, &mut consumer).unwrap_err(), RingError::NotExclusive { holders: 3 });
    drop(clone);
    hts::reset(&mut producer, &mut consumer).unwrap();
    assert!(consumer.is_empty());
    let (_other, mut stranger) = hts::ring::<i32>(8).unwrap();
    assert!(hts::reset(&mut producer, &mut stranger).is_err());
}

#[test]
fn a_reset_frees_a_side_that_hangs() {
    let (mut producer, mut consumer) = hts::ring(8).unwrap();
    producer.enqueue(1).unwrap();
    std::mem::forget(consumer.peek_burst(8));
    hts::reset(&mut producer, &mut consumer).unwrap();
    producer.enqueue(2).unwrap();
    assert_eq!(consumer.dequeue(), Some(2));
}

#[test]
fn ends_may_change_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn is_sync<T: Sync>(_: &T) {}
    let spsc = spsc::ring::<Box<u8>>(1).unwrap();
    is_send(&spsc);
    let mpmc = mpmc::ring::<Box<u8>>(1).unwrap();
    is_send(&mpmc);
    is_sync(&mpmc);
}

#[test]
fn debug_dumps_the_positions() {
    let (mut producer, consumer) = spsc::ring(6).unwrap();
    producer.enqueue(1_u16).unwrap();
    assert_eq!(
        format!("{consumer:?}"),
        "spsc::Consumer { capacity: 6, count: 1, element_bytes: 2, producer_head: \"0x0\", producer_tail: \"0x1\", \
         consumer_head: \"0x0\", consumer_tail: \"0x0\" }"
    );
}
