//! Random operations on each kind of ring, against a `VecDeque`.

use super::{Put, Take, near_wrap, on_each_kind};
use crate::RingError;
use crate::header::{Kind, Plan};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// An element that counts how many of its like live.
#[derive(Debug)]
struct Counted(u64, Rc<Cell<isize>>);

impl Counted {
    fn new(value: u64, alive: &Rc<Cell<isize>>) -> Counted {
        alive.set(alive.get() + 1);
        Counted(value, Rc::clone(alive))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.set(self.1.get() - 1);
    }
}

#[derive(Clone, Debug)]
enum Operation {
    PutBulk(usize),
    PutBurst(usize),
    PutOne,
    TakeBulk(usize),
    TakeBurst(usize),
    TakeOne,
    Clear,
    Reset,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..12usize).prop_map(Operation::PutBulk),
        6 => (0..12usize).prop_map(Operation::PutBurst),
        3 => Just(Operation::PutOne),
        6 => (0..12usize).prop_map(Operation::TakeBulk),
        6 => (0..12usize).prop_map(Operation::TakeBurst),
        3 => Just(Operation::TakeOne),
        1 => Just(Operation::Clear),
        1 => Just(Operation::Reset),
    ]
}

fn agrees<P: Put<Counted>, C: Take<Counted>>(
    kind: Kind,
    make: fn(Plan) -> Result<(P, C), RingError>,
    reset: fn(&mut P, &mut C) -> Result<(), RingError>,
) {
    proptest!(|(capacity in 1..20usize, operations in proptest::collection::vec(operation(), 0..200))| {
        let alive = Rc::new(Cell::new(0));
        let (mut producer, mut consumer) = make(near_wrap(kind, capacity)).unwrap();
        let mut oracle = VecDeque::new();
        let mut next = 0;
        let mut input = |count: usize| -> Vec<Counted> {
            (0..count).map(|_| { next += 1; Counted::new(next, &alive) }).collect()
        };
        // Kinds that keep a note of their peer may report less than there is, but nothing that is not.
        let exact = matches!(kind, Kind::Rts | Kind::Hts);
        let reports = |reported: usize, truth: usize| if exact { reported == truth } else { reported <= truth };
        for operation in operations {
            match operation {
                Operation::PutBulk(count) | Operation::PutBurst(count) => {
                    let bulk = matches!(operation, Operation::PutBulk(_));
                    let free = capacity - oracle.len();
                    let fits = if count <= free { count } else if bulk { 0 } else { free };
                    let mut from = input(count);
                    let values: Vec<u64> = from.iter().map(|element| element.0).collect();
                    let done = if bulk { producer.bulk(&mut from) } else { producer.burst(&mut from) };
                    prop_assert_eq!(done.count, fits);
                    prop_assert!(reports(done.free, free - fits), "{:?} of {}", done, free - fits);
                    oracle.extend(&values[..fits]);
                    prop_assert_eq!(from.iter().map(|element| element.0).collect::<Vec<_>>(), &values[fits..]);
                }
                Operation::PutOne => {
                    let element = input(1).pop().unwrap();
                    let value = element.0;
                    match producer.one(element) {
                        Ok(()) => oracle.push_back(value),
                        Err(back) => {
                            prop_assert_eq!(back.0, value);
                            prop_assert_eq!(oracle.len(), capacity);
                        }
                    }
                }
                Operation::TakeBulk(count) | Operation::TakeBurst(count) => {
                    let bulk = matches!(operation, Operation::TakeBulk(_));
                    let there = oracle.len();
                    let taken = if count <= there { count } else if bulk { 0 } else { there };
                    let mut to = Vec::with_capacity(12);
                    let done = if bulk { consumer.bulk(&mut to, count) } else { consumer.burst(&mut to, count) };
                    prop_assert_eq!(done.count, taken);
                    prop_assert!(reports(done.used, there - taken), "{:?} of {}", done, there - taken);
                    let got: Vec<u64> = to.iter().map(|element| element.0).collect();
                    prop_assert_eq!(got, oracle.drain(..taken).collect::<Vec<_>>());
                }
                Operation::TakeOne => {
                    prop_assert_eq!(consumer.one().map(|element| element.0), oracle.pop_front());
                }
                Operation::Clear => {
                    prop_assert_eq!(consumer.empty(), oracle.len());
                    oracle.clear();
                }
                Operation::Reset => {
                    reset(&mut producer, &mut consumer).unwrap();
                    oracle.clear();
                }
            }
            let len = oracle.len();
            prop_assert_eq!(producer.counts(), (capacity, len, capacity - len, len == 0, len == capacity));
            prop_assert_eq!(alive.get(), len as isize);
        }
        drop(producer);
        drop(consumer);
        prop_assert_eq!(alive.get(), 0);
    });
}
on_each_kind!(agrees);
