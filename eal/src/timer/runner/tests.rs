use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use super::*;
use crate::timer::{Cancelled, Timer};

const MICROS: u64 = 1_000_000;

fn counter() -> (Arc<AtomicU32>, impl FnMut(&mut Firing) + Send + 'static) {
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    (count, move |_: &mut Firing| {
        seen.fetch_add(1, Ordering::Relaxed);
    })
}

#[test]
fn armed_cancelled_armed_again() {
    let mut lcore = LcoreTimers::new(2, MICROS, 0).unwrap();
    let (count, callback) = counter();
    let mut timer = lcore.maker().timer(callback).unwrap();
    assert_eq!(timer.cancel(), Cancelled::Idle);
    timer.arm(100).unwrap();
    assert!(timer.is_armed());
    assert_eq!((lcore.manage(99), lcore.manage(100), lcore.manage(1000)), (0, 1, 0));
    assert_eq!((timer.is_armed(), timer.cancel()), (false, Cancelled::Idle));
    timer.arm(2000).unwrap();
    lcore.manage(1001);
    assert_eq!(timer.cancel(), Cancelled::Prevented);
    assert_eq!(lcore.manage(3000), 0);
    // Later than it was, then earlier than that; the last word counts.
    for deadline in [4000, 9000, 5000] {
        timer.arm(deadline).unwrap();
        lcore.manage(3001);
    }
    assert_eq!((lcore.manage(4999), lcore.manage(5000), lcore.manage(20_000)), (0, 1, 0));
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn periodic_until_the_callback_or_the_handle_says_so() {
    let mut lcore = LcoreTimers::new(2, MICROS, 0).unwrap();
    let maker = lcore.maker();
    let mut count = 0;
    let mut five = maker
        .timer(move |firing| {
            count += 1;
            assert_eq!(firing.deadline(), count * 10);
            if count == 5 {
                firing.stop();
            }
        })
        .unwrap();
    five.arm_periodic(10, 10).unwrap();
    let (other, callback) = counter();
    let mut endless = maker.timer(callback).unwrap();
    endless.arm_periodic(10, 10).unwrap();
    assert_eq!((1..=100).map(|now| lcore.manage(now)).sum::<usize>(), 5 + 10);
    assert!(!five.is_armed() && endless.is_armed());
    assert_eq!(endless.cancel(), Cancelled::Prevented);
    assert_eq!((101..=200).map(|now| lcore.manage(now)).sum::<usize>(), 0);
    assert_eq!(other.load(Ordering::Relaxed), 10);
}

#[test]
fn a_callback_arms_itself_and_meets_its_own_handle() {
    let mut lcore = LcoreTimers::new(2, MICROS, 0).unwrap();
    let handle: Arc<Mutex<Option<Timer>>> = Arc::default();
    let inner = Arc::clone(&handle);
    let mut runs = 0;
    let timer = lcore
        .maker()
        .timer(move |firing| {
            runs += 1;
            firing.arm(firing.now() + 10);
            if runs == 3 {
                // Waiting for itself would never end.
                let mut own = lock(&inner);
                assert_eq!(own.as_mut().unwrap().cancel_and_wait(), Cancelled::Running);
            }
        })
        .unwrap();
    *lock(&handle) = Some(timer);
    lock(&handle).as_mut().unwrap().arm(10).unwrap();
    assert_eq!(
        (1..=200).map(|now| lcore.manage(now)).sum::<usize>(),
        3,
        "the cancel wins over the callback's wish"
    );
    drop(lock(&handle).take());
}

#[test]
fn the_handle_wins_over_the_run_it_meets() {
    let mut lcore = LcoreTimers::new(2, MICROS, 0).unwrap();
    let handle: Arc<Mutex<Option<Timer>>> = Arc::default();
    let inner = Arc::clone(&handle);
    let timer = lcore
        .maker()
        .timer(move |firing| {
            if firing.deadline() == 10 {
                lock(&inner).as_mut().unwrap().arm(500).unwrap();
                firing.arm(20);
            }
        })
        .unwrap();
    *lock(&handle) = Some(timer);
    lock(&handle).as_mut().unwrap().arm_periodic(10, 10).unwrap();
    assert_eq!((1..500).map(|now| lcore.manage(now)).sum::<usize>(), 1);
    assert_eq!(lcore.manage(500), 1);
    drop(lock(&handle).take());
}

#[test]
fn dropped_and_detached() {
    let mut lcore = LcoreTimers::new(2, MICROS, 0).unwrap();
    let maker = lcore.maker();
    let (dropped, callback) = counter();
    let mut timer = maker.timer(callback).unwrap();
    timer.arm(10).unwrap();
    lcore.manage(1);
    drop(timer);
    let (detached, callback) = counter();
    let mut timer = maker.timer(callback).unwrap();
    timer.arm(10).unwrap();
    timer.detach();
    assert!(matches!(maker.timer(|_| {}), Err(TimerError::Full { capacity: 2 })));
    assert_eq!((lcore.manage(9), lcore.manage(10)), (0, 1));
    assert_eq!((dropped.load(Ordering::Relaxed), detached.load(Ordering::Relaxed)), (0, 1));
    assert_eq!((Arc::strong_count(&dropped), Arc::strong_count(&detached)), (1, 1), "the closures are gone");
    // Both places are free again.
    let mut timers = [maker.timer(|_| {}).unwrap(), maker.timer(|_| {}).unwrap()];
    timers.iter_mut().for_each(|timer| timer.arm(20).unwrap());
    assert_eq!(lcore.manage(20), 2);
    drop(lcore);
    assert_eq!(timers[0].arm(30), Err(TimerError::Gone));
    assert!(matches!(maker.timer(|_| {}), Err(TimerError::Gone)));
}

#[test]
fn a_panicking_callback_is_over_and_the_rest_goes_on() {
    let mut lcore = LcoreTimers::new(2, MICROS, 0).unwrap();
    let mut bad = lcore.maker().timer(|_| panic!("the callback's own fault")).unwrap();
    bad.arm(10).unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lcore.manage(10)));
    assert!(result.is_err());
    assert_eq!(bad.cancel_and_wait(), Cancelled::Idle);
    let (count, callback) = counter();
    let mut good = lcore.maker().timer(callback).unwrap();
    good.arm(20).unwrap();
    lcore.manage(20);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

/// Threads arm and cancel their timers on one lcore for a while. What each cancel answered must fit what was called.
#[test]
fn stress_of_arm_and_cancel_from_threads() {
    let begin = Instant::now();
    let nanos = move || begin.elapsed().as_nanos() as u64;
    let mut lcore = LcoreTimers::new(64, 1_000_000_000, nanos()).unwrap();
    let maker = lcore.maker();
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..3u64)
        .map(|seed| {
            let (maker, stop) = (maker.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut random = seed * 2 + 0x9e37_79b9_7f4a_7c15;
                let mut next = |bound: u64| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random % bound
                };
                let (mut prevented, mut fired) = (0u64, 0u64);
                while !stop.load(Ordering::Relaxed) {
                    let calls = Arc::new(AtomicU64::new(0));
                    let (inner, inside) = (Arc::clone(&calls), Arc::new(AtomicBool::new(false)));
                    let now = nanos;
                    let made = maker.timer(move |firing| {
                        assert!(!inside.swap(true, Ordering::AcqRel), "one run at a time");
                        assert!(firing.deadline() <= now(), "never early");
                        inner.fetch_add(1, Ordering::Relaxed);
                        inside.store(false, Ordering::Release);
                    });
                    let mut timer = match made {
                        Ok(timer) => timer,
                        // The lcore has yet to look at those that were dropped.
                        Err(TimerError::Full { .. }) => {
                            std::thread::yield_now();
                            continue;
                        }
                        Err(why) => panic!("{why}"),
                    };
                    for _ in 0..50 {
                        let before = calls.load(Ordering::Relaxed);
                        timer.arm(nanos() + next(20_000)).unwrap();
                        if next(3) == 0 {
                            timer.arm(nanos() + next(20_000)).unwrap();
                        }
                        let pause = Instant::now() + Duration::from_nanos(next(30_000));
                        while Instant::now() < pause {
                            std::thread::yield_now();
                        }
                        let answer = timer.cancel_and_wait();
                        let after = calls.load(Ordering::Relaxed);
                        match answer {
                            // A first arming may have fired before the second; the one that was stopped did not.
                            Cancelled::Prevented => {
                                prevented += 1;
                                assert!(after - before <= 1);
                            }
                            Cancelled::Running | Cancelled::Idle => {
                                fired += 1;
                                assert!((1..=2).contains(&(after - before)), "{answer:?}");
                            }
                        }
                        std::thread::yield_now();
                        assert_eq!(calls.load(Ordering::Relaxed), after, "not after a cancel");
                    }
                }
                (prevented, fired)
            })
        })
        .collect();
    while begin.elapsed() < Duration::from_millis(1500) {
        lcore.manage(nanos());
        std::thread::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    // The lcore goes on until nobody can be waiting for it.
    while threads.iter().any(|thread| !thread.is_finished()) {
        lcore.manage(nanos());
        std::thread::yield_now();
    }
    for thread in threads {
        let (prevented, fired) = thread.join().unwrap();
        assert!(prevented > 0 && fired > 0, "{prevented} prevented, {fired} fired");
    }
    lcore.manage(nanos());
    assert_eq!(lcore.stats().timers, 0, "every dropped handle's timer is gone");
}
