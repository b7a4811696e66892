//! Lcores from the outside: where they run, what they give back, how they end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pollux_config::EalSpec;
use pollux_eal::lcore::{self, ChangeCallback, CpuSet, LcoreInfo, LcoreRole, LcoreState, Main, Usage};
use pollux_eal::{Eal, EalError, LcoreContext, LcoreId, StopReason, slot};

fn allowed() -> CpuSet {
    // The machine may have any CPUs; read before a test's first `Eal` narrows its thread.
    CpuSet::of_this_thread().expect("an affinity")
}

/// `count` lcores from 0 on, all on the first CPU of the affinity.
fn on_one_cpu(count: u16) -> EalSpec {
    let cpu = allowed().as_slice()[0];
    EalSpec { lcores: Some(format!("(0-{})@{cpu}", count - 1).parse().expect("a map")), ..EalSpec::default() }
}

fn kernel_says(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("the thread's status");
    let line = status.lines().find(|line| line.starts_with(key)).expect("the key");
    line[key.len() + 1..].trim().to_string()
}

fn spin_until_stopped(context: &LcoreContext) {
    while !context.stop_requested() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_thread_has_its_name_and_its_cpus() {
    let all = allowed();
    let eal = Eal::init(EalSpec::default()).expect("an Eal on all CPUs");
    assert_eq!(eal.lcores().count(), all.len());
    let seen = eal.launch_all(Main::Call, |context| {
        (
            context.id(),
            context.cpus().to_string(),
            kernel_says("Name:"),
            kernel_says("Cpus_allowed_list:"),
            lcore::current(),
        )
    });
    let seen: Vec<_> =
        seen.expect("launched").into_iter().map(|launched| launched.wait().expect("a result")).collect();
    for ((id, cpus, name, kernel, current), &cpu) in seen.iter().zip(all.as_slice()) {
        assert_eq!(id.0, cpu);
        assert_eq!(*name, format!("lcore-{cpu}"));
        assert_eq!(*kernel, cpu.to_string());
        assert_eq!(cpus, kernel);
        assert_eq!(*current, Some(*id));
    }
    assert_eq!(lcore::current(), None);
    let skipped = eal.launch_all(Main::Skip, LcoreContext::id).expect("launched");
    assert!(skipped.iter().all(|launched| launched.lcore() != eal.lcores().main()));
    assert_eq!(skipped.len(), all.len() - 1);
}

#[test]
fn an_lcore_may_have_several_cpus() {
    let all = allowed();
    let spec = EalSpec { lcores: Some(format!("7@({all})").parse().expect("a map")), ..EalSpec::default() };
    let eal = Eal::init(spec).expect("an Eal");
    let kernel = eal.launch(LcoreId(7), |_| kernel_says("Cpus_allowed_list:")).expect("launched").wait();
    assert_eq!(kernel.expect("a result"), all.to_string());
}

#[test]
fn the_control_thread_leaves_the_lcores_alone_and_comes_back() {
    let all = allowed();
    let eal = Eal::init(on_one_cpu(2)).expect("an Eal");
    let now = CpuSet::of_this_thread().expect("an affinity");
    if all.len() > 1 {
        assert_eq!(now.to_string(), all.without(&CpuSet::from_iter([all.as_slice()[0]])).to_string());
    }
    // The CPU that this thread was moved off is still the process's.
    let second = Eal::init(on_one_cpu_of(&all)).expect("a second Eal on the same CPU");
    drop(eal);
    drop(second);
    assert_eq!(CpuSet::of_this_thread().expect("an affinity"), all);
}

fn on_one_cpu_of(all: &CpuSet) -> EalSpec {
    EalSpec { lcores: Some(format!("0@{}", all.as_slice()[0]).parse().expect("a map")), ..EalSpec::default() }
}

#[test]
fn a_cpu_that_is_not_there_is_one_clear_line() {
    let spec = EalSpec { lcores: Some("0@1023".parse().expect("a map")), ..EalSpec::default() };
    let line = Eal::init(spec).expect_err("no machine has CPU 1023").to_string();
    assert!(line.contains("lcore 0 needs CPU 1023") && line.contains(&allowed().to_string()), "{line}");
}

#[test]
fn what_the_affinity_leaves_out_is_refused() {
    let all = allowed();
    let first: CpuSet = all.as_slice().iter().copied().take(1).collect();
    std::thread::spawn(move || {
        first.pin_this_thread().expect("narrowed, as taskset does");
        let eal = Eal::init(EalSpec::default()).expect("an Eal");
        assert_eq!(eal.lcores().dataplane(), [LcoreId(first.as_slice()[0])]);
        drop(eal);
        for &cpu in &all.as_slice()[1..] {
            let spec =
                EalSpec { lcores: Some(format!("5@{cpu}").parse().expect("a map")), ..EalSpec::default() };
            let refused = Eal::init(spec).expect_err("outside the affinity");
            let EalError::CpuNotAllowed { lcore, cpu: named, allowed } = refused else { panic!("{refused}") };
            assert_eq!((lcore, named, &allowed), (LcoreId(5), cpu, &first));
        }
    })
    .join()
    .expect("the thread ends well");
}

#[test]
fn states_follow_the_work() {
    let eal = Eal::init(on_one_cpu(1)).expect("an Eal");
    let main = eal.lcores().main();
    assert_eq!(eal.state(main).expect("a state"), LcoreState::Wait);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let launched = eal.launch(main, move |_| wait.recv().is_err()).expect("launched");
    assert_eq!(eal.state(main).expect("a state"), LcoreState::Running);
    assert!(matches!(eal.launch(main, |_| ()), Err(EalError::LcoreBusy { .. })));
    let launched = launched.wait_timeout(Duration::from_millis(10)).expect_err("it still runs");
    drop(go);
    eal.wait(main).expect("it returns");
    assert_eq!(eal.state(main).expect("a state"), LcoreState::Finished);
    assert!(launched.is_finished());
    assert!(launched.wait().expect("a result"));
    assert_eq!(eal.state(main).expect("a state"), LcoreState::Wait);
    for round in 0..100 {
        assert_eq!(eal.launch(main, move |_| round).expect("relaunched").wait(), Ok(round));
    }
    assert!(matches!(eal.launch(LcoreId(99), |_| ()), Err(EalError::UnknownLcore { .. })));
}

#[test]
fn each_lcore_thread_holds_a_slot_of_its_own() {
    let eal = Eal::init(on_one_cpu(4)).expect("an Eal");
    let slots = eal.launch_all(Main::Call, |context| (context.slot(), slot::current())).expect("launched");
    let slots: Vec<_> = slots.into_iter().map(|launched| launched.wait().expect("a result")).collect();
    assert!(slots.iter().all(|(context, thread)| context == thread && context.is_some()));
    let different: std::collections::HashSet<_> = slots.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(different.len(), 4);
}

#[test]
fn a_panic_stops_the_others_and_is_reported() {
    let eal = Eal::init(on_one_cpu(2)).expect("an Eal");
    let other = eal.launch(LcoreId(0), spin_until_stopped).expect("launched");
    let bad = eal.launch(LcoreId(1), |_| panic!("ring {} is on fire", 3)).expect("launched");
    let panic = bad.wait().expect_err("it panicked");
    assert_eq!(panic.lcore, Some(LcoreId(1)));
    assert_eq!(panic.to_string(), "lcore-1 panicked: ring 3 is on fire");
    other.wait().expect("the stop flag ends it");
    assert_eq!(eal.stop_flag().reason(), Some(StopReason::Panic));
    assert_eq!(eal.launch(LcoreId(1), |_| 5).expect("relaunched").wait(), Ok(5), "the thread survives");
    let exit = eal.shutdown();
    assert_eq!(exit.code(), 1);
    assert_eq!(exit.panics, [panic]);
}

#[test]
fn scoped_work_borrows() {
    let eal = Eal::init(on_one_cpu(3)).expect("an Eal");
    let mut counts = [0; 3];
    let total = AtomicUsize::new(0);
    let returned = eal.scope(|scope| {
        for (lcore, count) in counts.iter_mut().enumerate() {
            let total = &total;
            let launched = scope.launch(LcoreId(lcore as u16), move |_| {
                *count = lcore + 1;
                total.fetch_add(lcore + 1, Ordering::Relaxed);
            });
            launched.expect("launched");
        }
        let busy = scope.launch(LcoreId(9), |_| ()).map(|_| ());
        assert!(matches!(busy, Err(EalError::UnknownLcore { .. })));
        "done"
    });
    assert_eq!(returned, "done");
    assert_eq!(counts, [1, 2, 3]);
    assert_eq!(total.into_inner(), 6);
}

#[test]
fn a_scope_whose_body_panics_still_waits() {
    let eal = Eal::init(on_one_cpu(1)).expect("an Eal");
    let ended = AtomicUsize::new(0);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eal.scope(|scope| {
            let launched = scope.launch(LcoreId(0), |context| {
                spin_until_stopped(context);
                ended.store(1, Ordering::Relaxed);
            });
            launched.expect("launched");
            panic!("the body gives up");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(ended.load(Ordering::Relaxed), 1);
}

#[test]
fn two_eals_run_at_once_and_share_nothing() {
    let all = allowed();
    let one = Eal::init(on_one_cpu_of(&all)).expect("the first");
    let two = Eal::init(on_one_cpu_of(&all)).expect("the second");
    let meet = Arc::new(std::sync::Barrier::new(2));
    let run = |eal: &Eal| {
        let meet = Arc::clone(&meet);
        eal.launch(LcoreId(0), move |context| {
            meet.wait();
            context.busy(1);
            spin_until_stopped(context);
            context.slot()
        })
        .expect("launched")
    };
    let (first, second) = (run(&one), run(&two));
    one.stop_flag().set();
    let first = first.wait().expect("the first ends");
    assert!(!two.stop_flag().is_set());
    assert_eq!(two.state(LcoreId(0)).expect("a state"), LcoreState::Running);
    drop(one);
    assert!(!second.is_finished());
    two.stop_flag().set();
    assert_ne!(first, second.wait().expect("the second ends"), "slots are of the process");
    assert_eq!(two.shutdown().code(), 0);
}

#[test]
fn dropping_an_eal_ends_what_runs() {
    let eal = Eal::init(on_one_cpu(2)).expect("an Eal");
    let launched = eal.launch_all(Main::Call, |context| {
        spin_until_stopped(context);
        context.id()
    });
    drop(eal);
    let ids: Vec<_> =
        launched.expect("launched").into_iter().map(|launched| launched.wait().expect("a result")).collect();
    assert_eq!(ids, [LcoreId(0), LcoreId(1)]);
}

#[test]
fn usage_is_seen_from_outside() {
    let eal = Eal::init(on_one_cpu(1)).expect("an Eal");
    let launched = eal.launch(LcoreId(0), |context| {
        for _ in 0..10 {
            context.busy(3);
            context.idle(4);
        }
        context.usage()
    });
    let inside = launched.expect("launched").wait().expect("a result");
    assert_eq!(inside, Usage { busy: 30, total: 70 });
    assert_eq!(eal.lcores().usage(LcoreId(0)), Some(inside));
}

#[derive(Default)]
struct Diary {
    lines: Mutex<Vec<String>>,
    refuse: Option<LcoreId>,
}

impl ChangeCallback for Diary {
    fn added(&self, lcore: &LcoreInfo) -> Result<(), String> {
        if self.refuse == Some(lcore.id) {
            return Err("no room".into());
        }
        self.lines.lock().expect("unpoisoned").push(format!("+{}", lcore.id));
        Ok(())
    }

    fn removed(&self, lcore: &LcoreInfo) {
        self.lines.lock().expect("unpoisoned").push(format!("-{}", lcore.id));
    }
}

impl Diary {
    fn read(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().expect("unpoisoned"))
    }
}

#[test]
fn a_foreign_thread_becomes_an_lcore_and_callbacks_hear_of_it() {
    let eal = Eal::init(on_one_cpu(2)).expect("an Eal");
    let diary = Arc::new(Diary::default());
    eal.lcores().on_change(Arc::<Diary>::clone(&diary)).expect("all accepted");
    assert_eq!(diary.read(), ["+0", "+1"]);
    let lcores = eal.lcores().clone();
    std::thread::spawn(move || {
        let here = lcores.register_this_thread().expect("registered");
        assert_eq!(here.context().id(), LcoreId(2));
        assert_eq!(here.context().role(), LcoreRole::NonEal);
        assert_eq!(here.context().slot(), slot::current());
        assert!(slot::current().is_some());
        assert_eq!(lcore::current(), Some(LcoreId(2)));
        assert!(matches!(lcores.register_this_thread(), Err(EalError::AlreadyLcore { .. })));
        assert_eq!(lcores.count(), 3);
        assert_eq!(lcores.with_role(LcoreRole::NonEal), [LcoreId(2)]);
        drop(here);
        assert_eq!(slot::current(), None);
        assert_eq!(lcore::current(), None);
    })
    .join()
    .expect("the thread ends well");
    assert_eq!(eal.lcores().count(), 2);
    assert_eq!(diary.read(), ["+2", "-2"]);

    let strict = Arc::new(Diary { refuse: Some(LcoreId(2)), ..Diary::default() });
    eal.lcores().on_change(Arc::<Diary>::clone(&strict)).expect("0 and 1 are accepted");
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| eal.lcores().register_this_thread().map(|_| ())).join().expect("the thread ends well")
    });
    assert_eq!(refused.expect_err("refused").to_string(), "lcore 2 was refused: no room");
    assert_eq!(diary.read(), ["+2", "-2"], "who accepted is told that it is gone");
    let stricter = Arc::new(Diary { refuse: Some(LcoreId(1)), ..Diary::default() });
    assert!(eal.lcores().on_change(Arc::<Diary>::clone(&stricter)).is_err());
    assert_eq!(stricter.read(), ["+0", "-0"]);
    drop(eal);
    assert_eq!(diary.read(), ["-0", "-1"]);
}

#[test]
fn starting_is_fast() {
    // The best of several, as others use the machine too.
    let best = (0..20).map(|_| {
        let begun = Instant::now();
        let eal = Eal::init(on_one_cpu(2)).expect("an Eal");
        let took = begun.elapsed();
        drop(eal);
        took
    });
    let best = best.min().expect("some runs");
    println!("Eal::init, two lcores: {best:?}");
    assert!(best < Duration::from_millis(3), "{best:?}");
}

/// More than there are slots, each forgotten by its thread.
#[test]
fn a_forgotten_registration_ends_with_its_thread() {
    let eal = Eal::init(on_one_cpu(1)).expect("an Eal");
    let diary = Arc::new(Diary::default());
    eal.lcores().on_change(Arc::<Diary>::clone(&diary)).expect("accepted");
    for _ in 0..150 {
        let lcores = eal.lcores().clone();
        let slot = std::thread::spawn(move || {
            let here = lcores.register_this_thread().expect("registered");
            assert_eq!(here.context().id(), LcoreId(1), "the last one's number");
            std::mem::forget(here);
            slot::current()
        });
        assert!(slot.join().expect("the thread ends well").is_some(), "the last one's slot came back");
    }
    assert_eq!(eal.lcores().count(), 1);
    assert_eq!(diary.read().len(), 1 + 2 * 150);
}
