//! Every interleaving of those who bring objects home with whoever ends the pool, and of the references of one mbuf, explored by loom:
//! `cargo xtask loom`. Which of them finds which weakened ordering: `order.rs`.
//!
//! The words are those of a pool; its memory is a tracked cell, which whoever brings an object home reads, and who ends the pool
//! writes, so that an end that comes too early is found.
//!
//! Whoever looks is the thread that is made last: that one loom runs last by itself, and so it sees any of the stores. Were it to run
//! first, loom would not always find that a store matters to it.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use pollux_atomic::{AtomicU64, AtomicUsize, Ordering, explore};

use crate::cache::length::Length;
use crate::mbuf::header::REFERENCES;
use crate::mbuf::reference;
use crate::shared::passage::Passages;

/// A closed pool of two objects.
struct Pool {
    cached: Length,
    /// A back end: a lock, or a ring.
    stored: AtomicUsize,
    passages: Passages,
    memory: UnsafeCell<u32>,
}

impl Pool {
    fn new(cached: usize, stored: usize) -> Arc<Self> {
        Arc::new(Pool {
            cached: Length::new(cached),
            stored: AtomicUsize::new(stored),
            passages: Passages::default(),
            memory: UnsafeCell::new(0),
        })
    }

    fn may_go(&self) -> bool {
        self.passages.none_while(|| self.cached.sum() + self.stored.load(Ordering::Acquire) == 2)
    }
}

/// Has a thread use the pool while another looks whether it may go, and ends it.
fn used_and_ended(cached: usize, stored: usize, put: fn(&Pool)) {
    explore(4, move || {
        let pool = Pool::new(cached, stored);
        let putter = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || put(&pool))
        };
        let reclaimer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                if pool.may_go() {
                    pool.memory.with_mut(drop);
                }
            })
        };
        putter.join().unwrap();
        reclaimer.join().unwrap();
        assert!(pool.may_go(), "both are home and nobody is inside");
    });
}

/// The fast path of a put.
#[test]
fn a_put_is_seen_whole() {
    used_and_ended(0, 1, |pool| {
        let len = pool.cached.own();
        pool.memory.with(drop);
        pool.cached.publish(len + 1);
    });
}

/// The slow path: what is cached goes to the back end, and counts twice for a while; then comes the object, which was out.
#[test]
fn a_passage_is_seen_whole() {
    used_and_ended(1, 0, |pool| {
        let passage = pool.passages.enter();
        let len = pool.cached.own();
        pool.stored.fetch_add(len, Ordering::AcqRel);
        pool.memory.with(drop);
        pool.cached.publish(0);
        pool.memory.with(drop);
        pool.stored.fetch_add(1, Ordering::AcqRel);
        pool.memory.with(drop);
        drop(passage);
    });
}

/// An mbuf of a pool with number 7 and so many references, and its data.
fn mbuf(references: u64) -> Arc<(AtomicU64, UnsafeCell<u32>)> {
    Arc::new((AtomicU64::new(7 << 32 | references), UnsafeCell::new(0)))
}

/// A clone that is read and dropped, and an owner that writes once it is the only one.
#[test]
fn who_is_alone_may_write() {
    explore(4, || {
        let owned = mbuf(1);
        assert!(reference::share(&owned.0));
        let clone = {
            let owned = Arc::clone(&owned);
            thread::spawn(move || {
                owned.1.with(drop);
                assert!(reference::end(&owned.0).is_none(), "the owner keeps its own");
            })
        };
        let owner = thread::spawn(move || {
            if reference::settled(&owned.0) & REFERENCES == 1 {
                owned.1.with_mut(drop);
            }
        });
        clone.join().unwrap();
        owner.join().unwrap();
    });
}

/// Two that refer to the data, and whoever is last takes it home, to be written by the next.
#[test]
fn the_last_reference_goes_home() {
    explore(4, || {
        let owned = mbuf(2);
        let finish = |owned: &(AtomicU64, UnsafeCell<u32>)| {
            owned.1.with(drop);
            let last = reference::end(&owned.0);
            if let Some(word) = last {
                assert_eq!(word >> 32, 7);
                owned.1.with_mut(drop);
            }
            usize::from(last.is_some())
        };
        let other = {
            let owned = Arc::clone(&owned);
            thread::spawn(move || finish(&owned))
        };
        let here = finish(&owned);
        assert_eq!(here + other.join().unwrap(), 1, "one of the two is last");
    });
}

#[test]
fn relaxations() {
    pollux_atomic::print(crate::order::RELAXATIONS);
}
