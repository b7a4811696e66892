//! More threads than there are slots. A test of its own, as it takes all slots of the process.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_eal::slot;
use pollux_mempool::{Burst, MbufPool};

/// Threads that hold slots they forgot about, more than there are, and all of them alive.
#[test]
fn pools_serve_threads_that_find_all_slots_taken() {
    const THREADS: usize = 150;
    let builder = MbufPool::builder("crowd", 4 * THREADS * 32).data_room(128).headroom(0).cache(32);
    let pool = builder.build_anonymous().expect("a small pool");
    let (leased, all_there) = (AtomicUsize::new(0), std::sync::Barrier::new(THREADS));
    let work = || {
        if let Some(lease) = slot::lease() {
            leased.fetch_add(1, Ordering::Relaxed);
            std::mem::forget(lease);
        }
        all_there.wait();
        let mut burst = Burst::new();
        for _ in 0..20 {
            assert!(pool.alloc_burst(&mut burst, 32), "with a slot: {}", slot::current().is_some());
            burst.clear();
        }
        all_there.wait();
    };
    std::thread::scope(|scope| {
        // Joined one by one: a scope's own end does not wait for the end of a thread's own variables.
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("the thread ends well"));
    });
    assert!(leased.into_inner() <= slot::SLOTS);
    assert_eq!(
        (pool.available(), pool.stats().cached),
        (pool.capacity(), 0),
        "the threads' ends empty their caches"
    );
    assert!(slot::lease().is_some(), "and give back their slots");
}
