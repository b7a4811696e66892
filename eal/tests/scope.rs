//! Borrowing work: whoever launches it on the scope, nothing of it outlives the scope.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pollux_config::EalSpec;
use pollux_eal::lcore::{CpuSet, LcoreState, Scope};
use pollux_eal::{Eal, EalError, LcoreContext, LcoreId, StopReason};

/// `count` lcores from 0 on, all on the first CPU of the affinity.
fn eal(count: u16) -> Eal {
    let cpu = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
    let lcores = Some(format!("(0-{})@{cpu}", count - 1).parse().expect("a map"));
    Eal::init(EalSpec { lcores, ..EalSpec::default() }).expect("an Eal")
}

const SHORT: Duration = Duration::from_millis(30);

/// Each lcore launches the next one as its last act, so that the scope's end meets the launch.
fn chain<'scope>(scope: &'scope Scope<'scope, '_>, lcore: u16, last: u16, done: &'scope [AtomicBool]) {
    let launched = scope.launch(LcoreId(lcore), move |_| {
        std::thread::sleep(SHORT);
        if lcore < last {
            chain(scope, lcore + 1, last, done);
        }
        done[usize::from(lcore)].store(true, Ordering::Relaxed);
    });
    launched.expect("launched");
}

#[test]
fn what_a_job_launches_is_waited_for() {
    let eal = eal(4);
    let done: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
    eal.scope(|scope| chain(scope, 0, 3, &done));
    let done: Vec<bool> = done.into_iter().map(AtomicBool::into_inner).collect();
    assert_eq!(done, [true; 4]);
    for lcore in 0..4 {
        // The results were dropped unread, so nothing is left to take.
        assert_eq!(eal.state(LcoreId(lcore)).expect("known"), LcoreState::Wait, "lcore {lcore}");
    }
}

#[test]
fn what_a_job_that_panics_launched_is_waited_for() {
    let eal = eal(3);
    let done = AtomicBool::new(false);
    eal.scope(|scope| {
        let launched = scope.launch(LcoreId(1), |_| {
            scope
                .launch(LcoreId(2), |_| {
                    std::thread::sleep(SHORT);
                    done.store(true, Ordering::Relaxed);
                })
                .expect("launched");
            panic!("after its launch");
        });
        launched.expect("launched");
    });
    assert!(done.load(Ordering::Relaxed));
    assert_eq!(eal.stop_flag().reason(), Some(StopReason::Panic));
    assert_eq!(eal.shutdown().panics.len(), 1);
}

#[test]
fn a_body_that_panics_waits_for_what_its_jobs_launch() {
    let eal = eal(3);
    let done = AtomicBool::new(false);
    let body = std::panic::AssertUnwindSafe(|| {
        eal.scope(|scope| {
            let launched = scope.launch(LcoreId(1), |context| {
                while !context.stop_requested() {
                    std::thread::yield_now();
                }
                let last = scope.launch(LcoreId(2), |_| {
                    std::thread::sleep(SHORT);
                    done.store(true, Ordering::Relaxed);
                });
                last.expect("launched");
            });
            launched.expect("launched");
            panic!("the body fails");
        });
    });
    assert!(std::panic::catch_unwind(body).is_err());
    assert!(done.load(Ordering::Relaxed));
}

#[test]
fn launches_that_race_with_the_end_of_the_scope_are_waited_for() {
    let eal = eal(3);
    for round in 0..2_000u32 {
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        eal.scope(|scope| {
            let work = |_: &LcoreContext| {
                begun.fetch_add(1, Ordering::Relaxed);
                for _ in 0..round % 61 {
                    std::hint::spin_loop();
                }
                ended.fetch_add(1, Ordering::Relaxed);
            };
            let launched = scope.launch(LcoreId(1), move |_| {
                scope.launch(LcoreId(2), work).expect("launched");
            });
            launched.expect("launched");
            for _ in 0..round % 37 {
                std::hint::spin_loop();
            }
        });
        assert_eq!((begun.into_inner(), ended.into_inner()), (1, 1), "round {round}");
        assert_eq!(eal.state(LcoreId(2)).expect("known"), LcoreState::Wait, "round {round}");
    }
}

/// Launches when it is dropped.
struct LaunchesAtItsEnd<'scope, 'env>(&'scope Scope<'scope, 'env>, &'scope AtomicUsize);

impl Drop for LaunchesAtItsEnd<'_, '_> {
    fn drop(&mut self) {
        let count = self.1;
        let launched = self.0.launch(LcoreId(2), move |_| {
            std::thread::sleep(SHORT);
            count.fetch_add(1, Ordering::Relaxed);
        });
        launched.expect("launched");
    }
}

/// As a capture of a job that was refused, as one of a job that ran, and as a result that nobody takes.
#[test]
fn what_goes_with_a_job_may_launch_too() {
    let eal = eal(3);
    let count = AtomicUsize::new(0);
    eal.scope(|scope| {
        let last = LaunchesAtItsEnd(scope, &count);
        let refused = scope.launch(LcoreId(77), move |_| drop(last));
        assert!(matches!(refused, Err(EalError::UnknownLcore { .. })));
    });
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let go = AtomicBool::new(false);
    eal.scope(|scope| {
        let busy = scope.launch(LcoreId(0), |_| {
            while !go.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        busy.expect("launched");
        let last = LaunchesAtItsEnd(scope, &count);
        let refused = scope.launch(LcoreId(0), move |_| drop(last));
        assert!(matches!(refused, Err(EalError::LcoreBusy { .. })));
        go.store(true, Ordering::Relaxed);
    });
    assert_eq!(count.load(Ordering::Relaxed), 2);
    eal.scope(|scope| {
        let last = LaunchesAtItsEnd(scope, &count);
        scope.launch(LcoreId(0), move |_| last).expect("launched");
    });
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[test]
fn scopes_nest_on_lcores() {
    let eal = eal(3);
    let (outer, inner) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = Instant::now();
    eal.scope(|scope| {
        let launched = scope.launch(LcoreId(1), |_| {
            let seen = AtomicUsize::new(0);
            eal.scope(|within| {
                let launched = within.launch(LcoreId(2), |_| {
                    std::thread::sleep(SHORT);
                    seen.fetch_add(1, Ordering::Relaxed);
                });
                launched.expect("launched");
            });
            inner.store(seen.into_inner(), Ordering::Relaxed);
            outer.fetch_add(1, Ordering::Relaxed);
        });
        launched.expect("launched");
    });
    assert!(begun.elapsed() >= SHORT);
    assert_eq!((outer.into_inner(), inner.into_inner()), (1, 1));
}
