//! An `Eal` whose last owner is one of its own threads ends there, without waiting for that thread.
#![forbid(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollux_config::EalSpec;
use pollux_eal::event::EventFd;
use pollux_eal::interrupt::After;
use pollux_eal::lcore::CpuSet;
use pollux_eal::service::Work;
use pollux_eal::{Eal, LcoreId};

const LONG: Duration = Duration::from_secs(20);

/// Lcores 0 and 1 for the application, 2 for services, all on one CPU.
fn eal() -> Arc<Eal> {
    let cpu = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
    let lcores = Some(format!("(0-2)@{cpu}").parse().expect("a map"));
    let service_lcores = [2].into_iter().collect();
    Arc::new(Eal::init(EalSpec { lcores, service_lcores, ..EalSpec::default() }).expect("an Eal"))
}

/// The last owner of an `Eal`, once the test has let go of its own.
struct Last {
    eal: Option<Arc<Eal>>,
    begin: Receiver<()>,
    ended: Sender<bool>,
}

impl Last {
    /// Drops it; says whether the stop flag is set then, which is the first thing that the end does.
    fn end(&mut self) {
        self.begin.recv_timeout(LONG).expect("the test lets go");
        let Some(eal) = Arc::into_inner(self.eal.take().expect("once")) else { return };
        let flag = eal.stop_flag();
        drop(eal);
        // Only the test may be gone, after its time.
        let _heard = self.ended.send(flag.is_set());
    }
}

/// Has `start` bring the last owner to a thread of the `Eal`.
fn ends(start: impl FnOnce(&Arc<Eal>, Last)) {
    let eal = eal();
    let ((begin, begun), (ended, heard)) = (channel(), channel());
    // There is one that a panic would be reported to, and every other thread has something to end.
    eal.alarms().set(Duration::from_secs(3600), || ()).expect("set");
    let other = eal.control_thread("other", |stop| while !stop.wait(LONG) {}).expect("started");
    start(&eal, Last { eal: Some(Arc::clone(&eal)), begin: begun, ended });
    drop(eal);
    begin.send(()).expect("it waits");
    assert_eq!(heard.recv_timeout(LONG), Ok(true), "the end of the Eal does not end");
    other.wait().expect("told to stop");
}

#[test]
fn a_control_thread() {
    ends(|eal, mut last| {
        eal.control_thread("last", move |_| last.end()).expect("started");
    });
}

#[test]
fn an_lcore() {
    ends(|eal, mut last| {
        eal.launch(LcoreId(1), move |_| last.end()).expect("launched");
    });
}

#[test]
fn an_alarm() {
    ends(|eal, mut last| {
        eal.alarms().set(Duration::ZERO, move || last.end()).expect("set");
    });
}

#[test]
fn an_interrupt() {
    ends(|eal, mut last| {
        let file = Arc::new(EventFd::new().expect("an event file"));
        file.signal();
        let callback = move |_: BorrowedFd<'_>| {
            last.end();
            After::Unregister
        };
        // Its handle would wait for it.
        std::mem::forget(eal.interrupts().register(file, callback).expect("registered"));
    });
}

#[test]
fn a_service() {
    ends(|eal, last| {
        let last = Mutex::new(Some(last));
        let call = move || match last.lock().expect("unpoisoned").take() {
            Some(mut last) => {
                last.end();
                Work::Done
            }
            None => Work::Idle,
        };
        eal.services().register_shared("last", call).expect("registered");
        eal.services().start_all().expect("started");
    });
}

#[test]
fn a_timer() {
    ends(|eal, mut last| {
        let mut timer = eal.timers(LcoreId(1)).expect("an lcore").timer(move |_| last.end()).expect("room");
        timer.arm(0).expect("armed");
        timer.detach();
        let run = eal.launch(LcoreId(1), |lcore| while lcore.run_timers() == 0 {});
        run.expect("launched");
    });
}
