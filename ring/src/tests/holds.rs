//! Peek and zero-copy, on the two kinds that have them.

use super::near_wrap;
use crate::header::Kind;
use crate::shared::ring_from;
use crate::{hts, spsc};
use proptest::prelude::*;
use std::collections::VecDeque;

#[test]
fn look_then_take_part_or_none() {
    let (mut producer, mut consumer) = spsc::ring_from(near_wrap(Kind::Spsc, 8)).unwrap();
    assert_eq!(producer.enqueue_iter(0..10).count, 8);
    assert!(consumer.peek_bulk(9).is_none());
    let mut seen = consumer.peek_bulk(5).unwrap();
    assert_eq!(seen.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(seen.take(), Some(0));
    assert_eq!(seen.discard(1), 1);
    assert_eq!(format!("{seen:?}"), "[2, 3, 4]");
    let done = seen.finish();
    assert_eq!((done.count, done.used), (2, 6));
    drop(consumer.peek_burst(8));
    assert_eq!(consumer.count(), 6, "a look takes nothing");
    let mut out = Vec::with_capacity(3);
    let mut seen = consumer.peek_burst(8);
    assert_eq!(seen.take_into(&mut out, 8), 3, "as many as the vector has room for");
    assert_eq!((out, seen.len()), (vec![2, 3, 4], 3));
}

#[test]
fn two_spans_across_the_end_of_the_storage() {
    let (mut producer, mut consumer) = spsc::ring(8).unwrap();
    assert_eq!(producer.enqueue_bulk(&[0; 6]).count, 6);
    assert_eq!(consumer.clear(), 6);
    let mut room = producer.reserve_bulk(5).unwrap();
    let (first, second) = room.spans();
    assert_eq!((first.len(), second.len()), (2, 3));
    for (value, slot) in (1..).zip(first.iter_mut().chain(second)) {
        slot.write(value);
    }
    // SAFETY: all five slots were just written; the fifth is not published.
    unsafe { room.assume_written(4) };
    let done = room.finish();
    assert_eq!((done.count, done.free), (4, 4));
    let seen = consumer.peek_burst(8);
    assert_eq!(seen.spans(), (&[1, 2][..], &[3, 4][..]));
}

#[test]
#[should_panic(expected = "3 elements cannot have been written to 2 slots")]
fn more_than_the_room_cannot_have_been_written() {
    let (mut producer, _consumer) = spsc::ring::<u8>(2).unwrap();
    // SAFETY: it panics.
    unsafe { producer.reserve_burst(2).assume_written(3) };
}

#[test]
fn hts_guards_shut_out_their_side_only() {
    let (producer, consumer) = hts::ring(4).unwrap();
    assert!(consumer.peek_burst(4).is_none());
    assert!(producer.reserve_bulk(5).is_none());
    let mut room = producer.reserve_burst(9).unwrap();
    assert_eq!(room.push_slice(&[1, 2, 3, 4, 5]), 4);
    assert_eq!(room.push(6), Err(6));
    assert_eq!(consumer.dequeue(), None, "nothing is published yet, and the consumer does not wait");
    assert_eq!(room.finish().count, 4);
    let mut seen = consumer.peek_bulk(2).unwrap();
    assert_eq!(seen.take(), Some(1));
    assert_eq!(producer.enqueue(7), Err(7), "the slots are not free before the guard ends");
    drop(seen);
    assert_eq!(producer.enqueue(7), Ok(()));
    assert_eq!(consumer.dequeue(), Some(2));
}

#[derive(Clone, Debug)]
enum Operation {
    Write { reserve: usize, push: usize, finish: bool },
    Look { peek: usize, take: usize, discard: usize },
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0..12usize, 0..12usize, proptest::bool::weighted(0.8))
            .prop_map(|(reserve, push, finish)| Operation::Write { reserve, push, finish }),
        (0..12usize, 0..8usize, 0..4usize).prop_map(|(peek, take, discard)| Operation::Look {
            peek,
            take,
            discard
        }),
    ]
}

macro_rules! guards_agree {
    ($name:ident, $kind:expr, $make:path, $some:path) => {
        proptest! {
            #[test]
            fn $name(capacity in 1..20usize, operations in proptest::collection::vec(operation(), 0..200)) {
                #[allow(unused_mut, clippy::allow_attributes, reason = "one of the two kinds needs it")]
                let (mut producer, mut consumer) = $make(near_wrap($kind, capacity)).unwrap();
                let mut oracle = VecDeque::new();
                let mut next = 0;
                for operation in operations {
                    match operation {
                        Operation::Write { reserve, push, finish } => {
                            let fits = reserve.min(capacity - oracle.len());
                            let Some(mut room) = $some(producer.reserve_burst(reserve)) else {
                                prop_assert_eq!(fits, 0);
                                continue;
                            };
                            prop_assert_eq!(room.room(), fits);
                            let values: Vec<u32> = (next..).take(push.min(fits)).collect();
                            next += 100;
                            let half = values.len() / 2;
                            prop_assert_eq!(room.push_slice(&values[..half]), half);
                            for &value in &values[half..] {
                                prop_assert_eq!(room.push(value), Ok(()));
                            }
                            prop_assert_eq!(room.written(), values.len());
                            if finish {
                                prop_assert_eq!(room.finish().count, values.len());
                                oracle.extend(values);
                            }
                        }
                        Operation::Look { peek, take, discard } => {
                            let there = peek.min(oracle.len());
                            let Some(mut seen) = $some(consumer.peek_burst(peek)) else {
                                prop_assert_eq!(there, 0);
                                continue;
                            };
                            prop_assert!(seen.iter().eq(oracle.iter().take(there)));
                            let mut out = Vec::with_capacity(8);
                            let taken = seen.take_into(&mut out, take);
                            prop_assert_eq!(taken, take.min(there));
                            prop_assert!(oracle.drain(..taken).eq(out));
                            let gone = seen.discard(discard);
                            prop_assert_eq!(gone, discard.min(there - taken));
                            oracle.drain(..gone);
                            prop_assert_eq!(seen.finish().count, taken + gone);
                        }
                    }
                    prop_assert_eq!(consumer.count(), oracle.len());
                }
            }
        }
    };
}
guards_agree!(spsc_guards_agree, Kind::Spsc, spsc::ring_from, Some);
guards_agree!(hts_guards_agree, Kind::Hts, ring_from::<u32, hts::Hts>, std::convert::identity);
