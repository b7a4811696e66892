//! Pools under threads: with a slot and without, slots that change hands, pools that end while their mbufs travel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use pollux_eal::slot;
use pollux_mempool::{Backend, Burst, Mbuf, MbufPool, PoolEvent, subscribe};

const BACKENDS: [Backend; 5] =
    [Backend::RingMpMc, Backend::RingRts, Backend::RingHts, Backend::RingSpSc, Backend::Stack];

fn pool(name: &str, count: usize, backend: Backend) -> MbufPool {
    let builder = MbufPool::builder(name, count).data_room(128).headroom(0).cache(32);
    builder.backend(backend).build_anonymous().expect("a small pool")
}

/// Stamps an mbuf so that a second owner would be noticed.
fn stamp(mbuf: &mut Mbuf, by: u64) {
    mbuf.append(8).expect("an empty mbuf of 128 bytes").copy_from_slice(&by.to_le_bytes());
}

#[test]
fn threads_with_and_without_slots_share_a_pool() {
    for backend in BACKENDS {
        let pool = pool("shared", 512, backend);
        let (to_others, from_others) = mpsc::channel::<Mbuf>();
        let from_others = Arc::new(Mutex::new(from_others));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (pool, to_others, from_others) =
                    (pool.clone(), to_others.clone(), Arc::clone(&from_others));
                scope.spawn(move || {
                    // Threads 0 and 1 hold a slot and give it back now and then, the others never have one.
                    let mut lease = (thread < 2).then(|| slot::lease().expect("a slot is free"));
                    let mut burst = Burst::new();
                    for round in 0..2_000_u64 {
                        if thread < 2 && round % 500 == 499 {
                            drop(lease.take());
                            lease = slot::lease();
                        }
                        pool.alloc_up_to(&mut burst, 1 + (round * 7 + thread) as usize % 40);
                        let mine = thread << 32 | round;
                        burst.iter_mut().for_each(|mbuf| stamp(mbuf, mine));
                        for mbuf in &burst {
                            assert_eq!(mbuf.data(), mine.to_le_bytes(), "an mbuf with two owners");
                        }
                        // Half go home from another thread.
                        let half = burst.len() / 2;
                        for mbuf in burst.drain(..half) {
                            to_others.send(mbuf).expect("the test holds the receiver");
                        }
                        burst.clear();
                        let received =
                            from_others.lock().expect("no thread panics").try_iter().take(16).count();
                        assert!(received <= 16);
                    }
                });
            }
        });
        drop(to_others);
        from_others.lock().expect("no thread panics").iter().for_each(drop);
        assert_eq!(pool.available(), 512, "{backend:?}");
    }
}

/// Many threads with nothing between them and the back end, which is near to full all the time: whoever loses its core in
/// the middle of a get must not make another's put fail.
#[test]
fn nothing_is_lost_where_threads_lose_their_cores() {
    for backend in BACKENDS {
        let pool = pool("crowded", 64, backend);
        // MP/MC publishes in the order of claims: once threads are in single file, each waits for all others to have a core.
        let rounds = if backend == Backend::RingMpMc { 1_000 } else { 100_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut burst = Burst::new();
                    for _ in 0..rounds {
                        pool.alloc_up_to(&mut burst, 1);
                        burst.clear();
                    }
                });
            }
        });
        assert_eq!((pool.available(), pool.stats().overflows), (64, 0), "{backend:?}");
    }
}

#[test]
fn a_slot_that_is_given_back_leaves_nothing_behind() {
    let pool = pool("left", 96, Backend::RingMpMc);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let lease = slot::lease().expect("a slot is free");
            drop(pool.alloc().expect("a fresh pool"));
            assert!(pool.stats().cached > 0);
            drop(lease);
        });
    });
    assert_eq!(pool.stats().cached, 0);
    let all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), 96, "this thread has no slot, and still gets what the other one had cached");
}

#[test]
fn a_pool_ends_when_its_last_mbuf_is_home() {
    let ended = Arc::new(AtomicUsize::new(0));
    let _subscription = subscribe({
        let ended = Arc::clone(&ended);
        move |event| {
            if let PoolEvent::Destroyed(info) = event
                && info.name.starts_with("ending")
            {
                ended.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let mut rounds = 0;
    for backend in BACKENDS {
        for round in 0..60_usize {
            let pool = pool("ending", 256, backend);
            let mut bursts: Vec<Burst> = (0..3).map(|_| Burst::new()).collect();
            {
                let lease = slot::lease();
                for burst in &mut bursts {
                    assert!(pool.alloc_burst(burst, 40));
                }
                if round % 2 == 0 {
                    drop(lease);
                } else {
                    // Some rest in this thread's cache, whose slot is given back before the end.
                    bursts[0].free_front(10);
                    drop(lease);
                }
            }
            rounds += 1;
            // Each thread brings a third home, by bursts and one by one, while the last handle goes.
            std::thread::scope(|scope| {
                for (thread, mut burst) in bursts.into_iter().enumerate() {
                    scope.spawn(move || {
                        let _lease = (thread > 0).then(slot::lease);
                        if round % 3 == 0 {
                            burst.clear();
                        } else {
                            while let Some(mbuf) = burst.pop() {
                                drop(mbuf);
                            }
                        }
                    });
                }
                scope.spawn(move || drop(pool));
            });
            assert_eq!(ended.load(Ordering::SeqCst), rounds, "{backend:?} {round}");
        }
    }
}

#[test]
fn a_forgotten_mbuf_only_leaks() {
    let pool = pool("forgotten", 96, Backend::Stack);
    std::mem::forget(pool.alloc());
    assert_eq!(pool.in_use(), 1);
    let all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), 95);
    drop(pool);
    drop(all);
}
