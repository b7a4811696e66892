//! What every kind of ring must do, checked on each.
#![expect(unsafe_code, reason = "tests the calls that take pointers, and rings in regions")]

mod drops;
mod holds;
mod hostile;
mod oracle;
mod regions;
mod stress;
mod surface;

use crate::header::{Kind, Plan};
use crate::index::Seq;
use crate::shared::{self, Discipline};
use crate::{Dequeued, Enqueued, spsc};

/// A plan whose positions wrap after a few elements.
fn near_wrap(kind: Kind, capacity: usize) -> Plan {
    Plan { start: Seq::new(u32::MAX - 5), ..Plan::new(kind, capacity) }
}

/// A producer of any kind.
trait Put<T> {
    fn bulk(&mut self, from: &mut Vec<T>) -> Enqueued;
    fn burst(&mut self, from: &mut Vec<T>) -> Enqueued;
    fn one(&mut self, value: T) -> Result<(), T>;
    /// Capacity, count, free, empty, full.
    fn counts(&self) -> (usize, usize, usize, bool, bool);
}

/// A consumer of any kind.
trait Take<T> {
    fn bulk(&mut self, to: &mut Vec<T>, count: usize) -> Dequeued;
    fn burst(&mut self, to: &mut Vec<T>, max: usize) -> Dequeued;
    fn one(&mut self) -> Option<T>;
    fn empty(&mut self) -> usize;
}

macro_rules! ends {
    ([$($generics:tt)*] $producer:ty, $consumer:ty) => {
        impl<$($generics)*> Put<T> for $producer {
            fn bulk(&mut self, from: &mut Vec<T>) -> Enqueued {
                self.enqueue_bulk(from)
            }
            fn burst(&mut self, from: &mut Vec<T>) -> Enqueued {
                self.enqueue_burst(from)
            }
            fn one(&mut self, value: T) -> Result<(), T> {
                self.enqueue(value)
            }
            fn counts(&self) -> (usize, usize, usize, bool, bool) {
                (self.capacity(), self.count(), self.free(), self.is_empty(), self.is_full())
            }
        }
        impl<$($generics)*> Take<T> for $consumer {
            fn bulk(&mut self, to: &mut Vec<T>, count: usize) -> Dequeued {
                self.dequeue_bulk(to, count)
            }
            fn burst(&mut self, to: &mut Vec<T>, max: usize) -> Dequeued {
                self.dequeue_burst(to, max)
            }
            fn one(&mut self) -> Option<T> {
                self.dequeue()
            }
            fn empty(&mut self) -> usize {
                self.clear()
            }
        }
    };
}
ends!([T] spsc::Producer<T>, spsc::Consumer<T>);
ends!([T, D: Discipline] shared::Producer<T, D>, shared::Consumer<T, D>);

/// Runs a generic test on each kind, as `test(plan, make, reset)`.
macro_rules! on_each_kind {
    ($test:path) => {
        #[test]
        fn spsc() {
            use crate::{header::Kind, spsc};
            $test(Kind::Spsc, spsc::ring_from, spsc::reset);
        }
        #[test]
        fn mpmc() {
            use crate::{header::Kind, mpmc, shared};
            $test(Kind::Mpmc, shared::ring_from, mpmc::reset);
        }
        #[test]
        fn rts() {
            use crate::{header::Kind, rts, shared};
            $test(Kind::Rts, shared::ring_from, rts::reset);
        }
        #[test]
        fn hts() {
            use crate::{header::Kind, hts, shared};
            $test(Kind::Hts, shared::ring_from, hts::reset);
        }
    };
}
pub(crate) use on_each_kind;
