//! The end of a pool: its memory goes with the last mbuf or the last handle, whichever comes later, at whatever moment they meet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pollux_eal::slot;
use pollux_mempool::{Burst, MbufPool, PoolEvent, subscribe};

const ROUNDS: usize = 20_000;

/// Enough: where the machine is busy a round takes long.
const TIME: Duration = Duration::from_secs(3);

/// Waits for another thread, which may have to get its processor first.
fn wait_for(count: &AtomicUsize, wanted: usize) {
    let mut looks = 0_u32;
    while count.load(Ordering::Acquire) < wanted {
        looks += 1;
        if looks < 2_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

struct End<'a>(&'a AtomicUsize);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(usize::MAX, Ordering::Release);
    }
}

#[test]
fn the_last_handle_and_the_last_put_may_meet() {
    let ended = Arc::new(AtomicUsize::new(0));
    let _subscription = subscribe({
        let ended = Arc::clone(&ended);
        move |event| {
            if let PoolEvent::Destroyed(info) = event
                && info.name == "meeting"
            {
                ended.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let (handed, begun, freed) = (Mutex::new(None::<Burst>), AtomicUsize::new(0), AtomicUsize::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The slot is what makes its puts fast.
            let _lease = slot::lease().expect("a slot is free");
            for round in 1.. {
                wait_for(&begun, round);
                // One put of all: long, as the other thread's processor has the mbufs' lines.
                let Some(mut burst) = handed.lock().expect("unpoisoned").take() else { break };
                burst.clear();
                freed.store(round, Ordering::Release);
            }
        });
        // Whatever happens here, the other thread comes to its end.
        let _end = End(&begun);
        let (mut lost, mut last) = (0, 0);
        for round in (1..=ROUNDS).take_while(|_| started.elapsed() < TIME) {
            let builder = MbufPool::builder("meeting", 96).data_room(64).headroom(0).cache(32);
            let pool = builder.build_anonymous().expect("a small pool");
            let mut burst = Burst::new();
            assert!(pool.alloc_burst(&mut burst, 32));
            *handed.lock().expect("unpoisoned") = Some(burst);
            begun.store(round, Ordering::Release);
            for _ in 0..round % 200 {
                std::hint::spin_loop();
            }
            drop(pool);
            wait_for(&freed, round);
            if ended.load(Ordering::SeqCst) + lost < round {
                lost += 1;
            }
            last = round;
        }
        println!("{last} rounds");
        // A lost one is found when anything else ends, so the sum over all rounds would hide it.
        assert_eq!(lost, 0, "of {last} pools whose mbufs are all home, so many are still there");
    });
}
