//! What panics on a thread of an `Eal`, in a callback, in what it captured, or in what the panic itself carries, is reported, and
//! the thread goes on.
#![forbid(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use pollux_config::EalSpec;
use pollux_eal::event::EventFd;
use pollux_eal::interrupt::After;
use pollux_eal::lcore::CpuSet;
use pollux_eal::service::Work;
use pollux_eal::timer::{Firing, Timer};
use pollux_eal::{Eal, LcoreId, StopReason};

const LONG: Duration = Duration::from_secs(20);

/// Lcores 0 and 1 for the application, 2 for services, all on one CPU.
fn eal() -> Eal {
    let cpu = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
    let lcores = Some(format!("(0-2)@{cpu}").parse().expect("a map"));
    let service_lcores = [2].into_iter().collect();
    Eal::init(EalSpec { lcores, service_lcores, ..EalSpec::default() }).expect("an Eal")
}

/// A payload, or a capture, that panics when it is dropped, and whose panic carries another one.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Bomb(self.0 - 1));
        }
    }
}

fn explode() -> ! {
    std::panic::panic_any(Bomb(3))
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the `Eal` and counts its reports.
fn reports(eal: Eal) -> usize {
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(eal.shutdown()));
    let exit = ended.recv_timeout(LONG).expect("the Eal ends");
    assert_eq!(exit.reason, Some(StopReason::Panic));
    exit.panics.len()
}

#[test]
fn a_payload_that_panics_on_an_lcore() {
    let eal = eal();
    for _ in 0..2 {
        let launched = eal.launch(LcoreId(1), |_| explode()).expect("launched, the second time too");
        let launched = launched.wait_timeout(LONG).map_err(|_| "it runs on").expect("it ends");
        assert_eq!(launched.map(|()| 0).expect_err("it panicked").message, "(no message)");
    }
    eal.scope(|scope| {
        scope.launch(LcoreId(1), |_| explode()).expect("launched");
    });
    assert_eq!(eal.launch(LcoreId(1), |_| 7).expect("launched").wait(), Ok(7));
    assert_eq!(reports(eal), 3);
}

#[test]
fn a_result_that_panics_when_nobody_takes_it() {
    let eal = eal();
    let (go, wait) = channel::<()>();
    let launched = eal.launch(LcoreId(1), move |_| {
        let _gone = wait.recv();
        Bomb(1)
    });
    drop(launched.expect("launched"));
    drop(go);
    until("it is done", || eal.wait(LcoreId(1)).is_ok());
    assert_eq!(eal.launch(LcoreId(1), |_| 7).expect("launched").wait(), Ok(7));
    assert_eq!(reports(eal), 1);
}

#[test]
fn a_payload_that_panics_on_a_control_thread() {
    let eal = eal();
    let thread = eal.control_thread("bad", |_| explode()).expect("started");
    until("it ends", || thread.is_finished());
    assert_eq!(thread.wait().map(|()| 0).expect_err("it panicked").thread, "control-bad");
    assert_eq!(reports(eal), 1);
}

#[test]
fn a_payload_that_panics_in_an_alarm() {
    let eal = eal();
    let (sender, called) = channel();
    eal.alarms().set(Duration::ZERO, || explode()).expect("set");
    eal.alarms().set(Duration::from_millis(5), move || sender.send(()).expect("it waits")).expect("set");
    called.recv_timeout(LONG).expect("the next alarm still comes");
    assert_eq!(reports(eal), 1);
}

#[test]
fn captures_of_alarms_that_never_come() {
    let eal = eal();
    for _ in 0..2 {
        let bomb = Bomb(2);
        eal.alarms().set(Duration::from_secs(3600), move || std::mem::forget(bomb)).expect("set");
    }
    assert_eq!(reports(eal), 2, "and the end of the Eal is complete");
}

/// Signals `file` and hears of the call.
fn heard(file: &EventFd, sender: Sender<()>) -> impl FnMut(BorrowedFd<'_>) -> After + Send + 'static {
    file.signal();
    move |_| {
        sender.send(()).expect("the test waits");
        After::Unregister
    }
}

#[test]
fn payloads_and_captures_that_panic_in_interrupts() {
    let eal = eal();
    let (sender, called) = channel();
    let event = || Arc::new(EventFd::new().expect("an event file"));
    let mut sources = Vec::new();
    for round in 0..6 {
        let file = event();
        file.signal();
        let bomb = Bomb(2);
        let callback = move |_: BorrowedFd<'_>| {
            if round % 2 == 0 {
                explode();
            }
            let _captured = &bomb;
            After::Unregister
        };
        sources.push(eal.interrupts().register(file, callback).expect("registered"));
        until("it is unregistered", || !sources[round].is_registered());
        let file = event();
        let callback = heard(&file, sender.clone());
        sources.push(eal.interrupts().register(file, callback).expect("registered"));
        called.recv_timeout(LONG).expect("the next interrupt still comes");
        sources.pop();
    }
    sources.clear();
    for _ in 0..2 {
        let bomb = Bomb(2);
        let callback = move |_: BorrowedFd<'_>| {
            let _captured = &bomb;
            After::Mask
        };
        std::mem::forget(eal.interrupts().register(event(), callback).expect("registered"));
    }
    // Six captures and three payloads, and two captures at the end.
    assert_eq!(reports(eal), 11);
}

#[test]
fn payloads_and_captures_that_panic_in_services() {
    let eal = eal();
    let services = eal.services();
    let bad = services.register("bad", || explode()).expect("registered");
    services.start_all().expect("started");
    until("it is stopped", || !services.list()[0].running);
    // It was the only one that ran: its stop finds the call ended.
    services.unregister(bad).expect("known");
    // Its core holds the last of it when it is taken away during its call.
    let own = services.clone();
    let (sender, id) = channel();
    let bomb = Bomb(2);
    let gone = services.register("gone", move || {
        let _captured = &bomb;
        own.unregister(id.recv().expect("sent below")).expect("known");
        Work::Done
    });
    let gone = gone.expect("registered");
    sender.send(gone).expect("it waits");
    services.start_all().expect("started");
    until("it is gone", || services.list().is_empty());
    let after = services.register("after", || Work::Done).expect("registered");
    services.start_all().expect("started");
    until("the next service is called", || services.stats(after).expect("known").calls > 0);
    let bomb = Bomb(2);
    let last = services.register("last", move || {
        let _captured = &bomb;
        Work::Idle
    });
    last.expect("registered");
    assert_eq!(reports(eal), 3);
}

#[test]
fn timers_learn_of_the_others_when_a_capture_panics() {
    let eal = eal();
    let maker = eal.timers(LcoreId(1)).expect("an lcore");
    let mut bombs: Vec<_> = (0..3)
        .map(|_| {
            let bomb = Bomb(2);
            let timer = maker.timer(move |_| {
                let _captured = &bomb;
            });
            timer.expect("room")
        })
        .collect();
    let run = |eal: &Eal| eal.launch(LcoreId(1), |lcore| lcore.run_timers()).expect("launched").wait();
    bombs.iter_mut().for_each(|timer| timer.arm(u64::MAX / 2).expect("armed"));
    assert_eq!(run(&eal), Ok(0));
    // All in one round: timers that end, and one that is due.
    let (sender, called) = channel();
    bombs.truncate(1);
    let mut due = maker.timer(move |_| sender.send(()).expect("it waits")).expect("room");
    due.arm(0).expect("armed");
    run(&eal).expect_err("a capture panicked");
    assert_eq!(run(&eal), Ok(1), "the one that is due was not lost");
    called.recv_timeout(LONG).expect("called");
    // The callback of one that is due carries a payload that panics.
    let mut bad = maker.timer(|_| explode()).expect("room");
    bad.arm(0).expect("armed");
    run(&eal).expect_err("a callback panicked");
    assert_eq!(run(&eal), Ok(0));
    let rest: Vec<_> = (0..2)
        .map(|_| {
            let bomb = Bomb(2);
            let callback = move |_: &mut Firing| {
                let _captured = &bomb;
            };
            let mut timer = maker.timer(callback).expect("room");
            timer.arm(u64::MAX / 2).expect("armed");
            timer
        })
        .collect();
    assert_eq!(run(&eal), Ok(0));
    rest.into_iter().for_each(Timer::detach);
    // One for the timers that ended, one for the callback, one for those that the end of the lcore drops.
    assert_eq!(reports(eal), 3);
}
