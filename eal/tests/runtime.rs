//! The `Eal` value: what it keeps apart, and the order in which it goes.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollux_config::{EalSpec, LogColor, LogSpec};
use pollux_eal::event::EventFd;
use pollux_eal::interrupt::After;
use pollux_eal::lcore::CpuSet;
use pollux_eal::log::Logs;
use pollux_eal::service::Work;
use pollux_eal::{Eal, LcoreId};

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().expect("unpoisoned"))).expect("text")
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("unpoisoned").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn spec(log_level: &str) -> EalSpec {
    let cpu = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
    let filters = vec![log_level.parse().expect("a filter")];
    let mut spec = EalSpec {
        lcores: Some(format!("0@{cpu}").parse().expect("a map")),
        log: LogSpec { filters, color: LogColor::Never, ..LogSpec::default() },
        ..EalSpec::default()
    };
    spec.memory.no_huge = true;
    spec
}

fn eal_on(page: &Page, log_level: &str) -> Eal {
    let writer = page.clone();
    Eal::init_with_logs(spec(log_level), |log| Logs::to(log, move || writer.clone())).expect("an Eal")
}

#[test]
fn two_eals_have_logs_and_memory_of_their_own() {
    let (page_one, page_two) = (Page::default(), Page::default());
    let one = eal_on(&page_one, "info");
    let two = eal_on(&page_two, "debug");
    page_one.take();
    page_two.take();
    let zone_one = one.memory().reserve("table", 4096, 64, None).expect("memory");
    let zone_two = two.memory().reserve("table", 4096, 64, None).expect("the same name elsewhere");
    assert_ne!(zone_one.region().id(), zone_two.region().id());
    page_one.take();
    page_two.take();
    let speak = |eal: &Eal, word: &'static str| {
        let launched = eal.launch(LcoreId(0), move |_| {
            tracing::info!(target: "user1", "{word}");
            tracing::debug!(target: "user1", "{word} in detail");
        });
        launched.expect("launched").wait().expect("no panic");
    };
    speak(&one, "first");
    speak(&two, "second");
    assert_eq!(page_one.take(), "user1: first\n");
    assert_eq!(page_two.take(), "user1: second\nuser1: second in detail\n");
    let guard = one.enter_logs();
    tracing::info!(target: "user1", "from here");
    drop(guard);
    assert_eq!((page_one.take().as_str(), page_two.take().as_str()), ("user1: from here\n", ""));
}

#[test]
fn the_end_comes_in_order() {
    let page = Page::default();
    let eal = eal_on(&page, "error");
    let diary = Arc::new(Mutex::new(Vec::new()));
    let note = |word: &'static str| {
        let diary = Arc::clone(&diary);
        move || diary.lock().expect("unpoisoned").push(word)
    };
    eal.at_exit("first in", note("first in, last out"));
    eal.at_exit("fails", || panic!("a handler that fails"));
    let alarms = eal.alarms().clone();
    let answer = note("alarms still work");
    eal.at_exit("last in", move || {
        let (sender, called) = std::sync::mpsc::channel();
        alarms.set(Duration::ZERO, move || sender.send(()).expect("it waits")).expect("set");
        called.recv_timeout(Duration::from_secs(60)).expect("called");
        answer();
    });
    let (lcore, control) = (note("lcore"), note("control"));
    let launched = eal.launch(LcoreId(0), move |context| {
        while !context.stop_requested() {
            std::thread::yield_now();
        }
        lcore();
    });
    let thread = eal.control_thread("report", move |stop| {
        let name = std::thread::current().name().map(str::to_owned);
        assert!(stop.wait(Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(20));
        control();
        name
    });
    let never = eal.alarms().set(Duration::from_secs(3600), note("never")).expect("set");
    let exit = eal.shutdown();
    launched.expect("launched").wait().expect("no panic");
    assert_eq!(thread.expect("started").wait().expect("no panic").as_deref(), Some("control-report"));
    let mut diary = diary.lock().expect("unpoisoned").clone();
    // These two end at the same time, whichever comes first; all else comes after both.
    diary[..2].sort_unstable();
    assert_eq!(diary, ["control", "lcore", "alarms still work", "first in, last out"]);
    assert_eq!(never.cancel(), pollux_eal::alarm::Cancel::TooLate);
    assert_eq!(exit.panics.len(), 1);
    assert_eq!(exit.code(), 1);
    assert!(page.take().contains("exit handler fails did not finish"));
}

#[test]
fn control_threads_stay_off_the_lcores() {
    let all = CpuSet::of_this_thread().expect("an affinity");
    let eal = Eal::init(spec("error")).expect("an Eal");
    let first: CpuSet = all.as_slice().iter().copied().take(1).collect();
    let left = if all.len() > 1 { all.without(&first) } else { all };
    // Made by an lcore, whose one CPU a plain thread would inherit.
    let (sender, seen) = std::sync::mpsc::channel();
    let alarms = eal.alarms().clone();
    let launched = eal.launch(LcoreId(0), move |_| {
        let callback = move || sender.send(CpuSet::of_this_thread().expect("an affinity")).expect("it waits");
        alarms.set(Duration::ZERO, callback).map(|_| ())
    });
    launched.expect("launched").wait().expect("no panic").expect("set");
    assert_eq!(seen.recv_timeout(Duration::from_secs(60)).expect("called"), left);
    let thread = eal.control_thread("look", |_| CpuSet::of_this_thread().expect("an affinity"));
    assert_eq!(thread.expect("started").wait().expect("no panic"), left);
    assert_eq!(CpuSet::of_this_thread().expect("an affinity"), left);
}

fn threads_named(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

#[test]
fn nothing_is_left_and_nothing_new_is_taken() {
    let eal = Eal::init(spec("error")).expect("an Eal");
    let (lcores, alarms, interrupts, services) =
        (eal.lcores().clone(), eal.alarms().clone(), eal.interrupts().clone(), eal.services().clone());
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Count(Arc<AtomicUsize>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let held = [(); 4].map(|()| Count(Arc::clone(&dropped)));
    let [alarm, interrupt, service, handler] = held;
    alarms.set(Duration::from_secs(3600), move || drop(alarm)).expect("set");
    let file = EventFd::new().expect("an event file");
    let source = interrupts.register(file, move |_| {
        let _held = &interrupt;
        After::Mask
    });
    services
        .register("held", move || {
            let _held = &service;
            Work::Idle
        })
        .expect("registered");
    eal.at_exit("held", move || drop(handler));
    drop(eal);
    assert_eq!(dropped.load(Ordering::Relaxed), 4, "what callbacks hold is gone");
    assert!(lcores.launch(LcoreId(0), |_| ()).is_err());
    assert!(alarms.set(Duration::ZERO, || ()).is_err());
    assert!(interrupts.register(EventFd::new().expect("an event file"), |_| After::Mask).is_err());
    assert!(services.register("late", || Work::Idle).is_err());
    assert!(source.expect("registered").enable().is_err());
    // Other tests of this file run threads of these kinds too, but end.
    let begun = std::time::Instant::now();
    while threads_named("lcore-") + threads_named("control-") > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "threads are left");
        std::thread::sleep(Duration::from_millis(5));
    }
}
