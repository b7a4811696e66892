//! Timers of an `Eal`'s lcores: armed from anywhere, run where they belong, gone with the `Eal`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use pollux_config::EalSpec;
use pollux_eal::clock::Nanos;
use pollux_eal::lcore::{self, CpuSet, Main, RegisteredThread};
use pollux_eal::timer::{Cancelled, TIMERS_PER_LCORE, TimerError};
use pollux_eal::{Eal, EalError, LcoreContext, LcoreId};

const PATIENCE: Duration = Duration::from_secs(20);

/// `count` lcores from 0 on, all on the first CPU that this process may use.
fn on_one_cpu(count: u16) -> EalSpec {
    let cpu = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
    EalSpec { lcores: Some(format!("(0-{})@{cpu}", count - 1).parse().expect("a map")), ..EalSpec::default() }
}

fn run_until_stopped(context: &LcoreContext) {
    while !context.stop_requested() {
        context.run_timers();
        std::thread::yield_now();
    }
}

#[test]
fn a_timer_runs_on_its_lcore_whoever_armed_it() {
    let eal = Eal::init(on_one_cpu(3)).expect("an Eal");
    let clock = eal.clock();
    let (told, fired) = channel();
    let on = |lcore: u16| {
        let told = told.clone();
        let timers = eal.timers(LcoreId(lcore)).expect("the lcore exists");
        let late = move |deadline| (clock.now().0 >= deadline, lcore, lcore::current());
        timers
            .timer(move |firing| told.send(late(firing.deadline())).expect("the test listens"))
            .expect("room")
    };
    let (mut from_control, mut from_main, mut from_other) = (on(1), on(0), on(1));
    let soon = move || clock.now().0 + clock.cycles(Nanos(2_000_000)).0;
    let loops: Vec<_> =
        [0, 1].map(|id| eal.launch(LcoreId(id), run_until_stopped).expect("launched")).into_iter().collect();
    let fired = || fired.recv_timeout(PATIENCE).expect("it fires");

    from_control.arm(soon()).expect("armed");
    assert_eq!(fired(), (true, 1, Some(LcoreId(1))));
    from_main.arm(soon()).expect("armed");
    assert_eq!(fired(), (true, 0, Some(LcoreId(0))), "the main lcore has timers too");
    let armed = eal.launch(LcoreId(2), move |_| {
        from_other.arm(soon()).expect("armed");
        from_other
    });
    let mut from_other = armed.expect("launched").wait().expect("no panic");
    assert_eq!(fired(), (true, 1, Some(LcoreId(1))), "armed on lcore 2");

    from_other.arm(clock.now().0 + clock.cycles(Nanos(3_600_000_000_000)).0).expect("armed");
    assert_eq!(from_other.cancel_and_wait(), Cancelled::Prevented);
    eal.stop_flag().set();
    loops.into_iter().for_each(|launched| launched.wait().expect("no panic"));
}

#[test]
fn timers_wait_for_a_loop_that_manages_them() {
    let eal = Eal::init(on_one_cpu(1)).expect("an Eal");
    let (clock, lcore) = (eal.clock(), LcoreId(0));
    let count = Arc::new(AtomicU32::new(0));
    let counter = || {
        let count = Arc::clone(&count);
        move |_: &mut _| {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let timers = eal.timers(lcore).expect("the lcore exists");
    let mut once = timers.timer(counter()).expect("room");
    once.arm(clock.now().0).expect("armed while nothing runs");
    let mut often = timers.timer(counter()).expect("room");
    let millisecond = clock.cycles(Nanos(1_000_000)).0;
    often.arm_periodic(clock.now().0, millisecond).expect("armed");
    eal.launch(lcore, |_| std::thread::sleep(Duration::from_millis(5)))
        .expect("launched")
        .wait()
        .expect("ended");
    assert_eq!(count.load(Ordering::Relaxed), 0, "that one did not manage them");

    let called = eal.launch(lcore, move |context| {
        let mut called = vec![context.manage_timers(clock.now())];
        while called.iter().sum::<usize>() < 6 {
            called.push(context.manage_timers(clock.now()));
        }
        called
    });
    let called = called.expect("launched").wait().expect("ended");
    assert_eq!(called[0], 2, "the single shot, and the periodic one once");
    assert!(called[1..].iter().all(|&calls| calls <= 1), "what was missed comes once a call");
    assert_eq!(count.load(Ordering::Relaxed) as usize, called.iter().sum::<usize>());
    assert_eq!(often.cancel(), Cancelled::Prevented);
    let nothing = eal.launch(lcore, |context| (context.run_timers(), context.timer_stats().timers));
    assert_eq!(nothing.expect("launched").wait().expect("ended"), (0, 2));
}

#[test]
fn an_lcore_knows_until_when_it_may_sleep() {
    let eal = Eal::init(on_one_cpu(2)).expect("an Eal");
    let (clock, lcore) = (eal.clock(), LcoreId(1));
    let mut timer = eal.timers(lcore).expect("the lcore exists").timer(|_| {}).expect("room");
    let due = clock.now().0 + clock.cycles(Nanos(3_600_000_000_000)).0;
    let seen = eal.launch(lcore, move |context| {
        let before = context.next_timer();
        timer.arm(due).expect("armed");
        let posted = context.next_timer();
        context.run_timers();
        (before, posted, context.next_timer(), timer)
    });
    let (before, posted, known, timer) = seen.expect("launched").wait().expect("no panic");
    assert_eq!(before, None, "none is armed");
    // A wheel's times are rounded down by a resolution at most; coarser levels of it come up earlier.
    let known = known.expect("one is armed").0;
    assert!(
        posted.is_some_and(|next| next.0 <= due) && known <= due && known > clock.now().0,
        "{posted:?} {known}"
    );
    drop(timer);
}

#[test]
fn a_loop_arms_its_own() {
    let eal = Eal::init(on_one_cpu(2)).expect("an Eal");
    let ran = eal.launch_all(Main::Call, |context| {
        let clock = context.clock();
        assert_eq!(
            (context.run_timers(), context.timer_stats().capacity),
            (0, 0),
            "nobody asked for any yet"
        );
        let count = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&count);
        let mut tick = context
            .timers()
            .timer(move |_| {
                seen.fetch_add(1, Ordering::Relaxed);
            })
            .expect("room");
        tick.arm_periodic(clock.now().0, clock.cycles(Nanos(100_000)).0).expect("armed");
        while count.load(Ordering::Relaxed) < 5 {
            context.manage_timers(clock.now());
        }
        context.timer_stats().capacity
    });
    for launched in ran.expect("launched") {
        assert_eq!(launched.wait().expect("no panic"), TIMERS_PER_LCORE);
    }
}

#[test]
fn a_panic_in_a_callback_stops_the_eal_and_leaves_the_other_timers() {
    let eal = Eal::init(on_one_cpu(1)).expect("an Eal");
    let (clock, lcore) = (eal.clock(), LcoreId(0));
    let timers = eal.timers(lcore).expect("the lcore exists");
    let (told, fired) = channel();
    let mut bad = timers.timer(|_| panic!("a callback that fails")).expect("room");
    let mut good = timers.timer(move |_| told.send(()).expect("the test listens")).expect("room");
    bad.arm(clock.now().0).expect("armed");
    let ended = eal.launch(lcore, run_until_stopped).expect("launched").wait();
    assert_eq!(ended.expect_err("it panicked").message, "a callback that fails");
    good.arm(clock.now().0).expect("armed");
    let again = eal.launch(lcore, |context| while context.run_timers() == 0 {});
    again.expect("launched").wait().expect("no panic");
    fired.try_recv().expect("the other timer fires");
    assert_eq!(eal.shutdown().code(), 1);
}

#[test]
fn the_end_drops_what_is_armed_and_calls_nothing() {
    let eal = Eal::init(on_one_cpu(2)).expect("an Eal");
    let clock = eal.clock();
    let (used, unused) = (LcoreId(0), LcoreId(1));
    let alive = Arc::new(());
    let mut handles = Vec::new();
    for lcore in [used, unused] {
        let held = Arc::clone(&alive);
        let timers = eal.timers(lcore).expect("the lcore exists");
        let mut timer = timers.timer(move |_| panic!("{held:?}: never called")).expect("room");
        timer.arm(clock.now().0 + clock.cycles(Nanos(3_600_000_000_000)).0).expect("armed");
        handles.push((timers, timer));
    }
    // One lcore knows of its timer, the other has it in its inbox.
    eal.launch(used, |context| context.run_timers()).expect("launched").wait().expect("no panic");
    let lcores = eal.lcores().clone();
    assert_eq!(eal.shutdown().code(), 0);
    for (timers, mut timer) in handles {
        assert_eq!(timers.timer(|_| {}).err(), Some(TimerError::Gone));
        assert_eq!(timer.cancel_and_wait(), Cancelled::Prevented);
        assert_eq!([0, 1].map(|deadline| timer.arm(deadline)), [Err(TimerError::Gone); 2]);
    }
    assert_eq!(Arc::strong_count(&alive), 1, "what the closures captured is gone");
    assert_eq!(lcores.timers(used).expect("a maker").timer(|_| {}).err(), Some(TimerError::Gone));
}

#[test]
fn who_has_timers() {
    let spec = EalSpec { service_lcores: [1].into_iter().collect(), ..on_one_cpu(1) };
    let Ok(eal) = Eal::init(spec) else {
        // A machine of one CPU: its service core takes the only one, or lies outside the affinity.
        eprintln!("skipped: needs two CPUs");
        return;
    };
    let refused = eal.timers(LcoreId(1)).expect_err("a service core");
    assert_eq!(refused.to_string(), "lcore 1 is a service core and cannot have timers");
    assert!(matches!(eal.timers(LcoreId(77)), Err(EalError::UnknownLcore { .. })));

    let own = eal.lcores().register_this_thread().expect("a thread that registers itself");
    let id = own.context().id();
    let timers = eal.timers(id).expect("it has timers");
    let (told, fired) = channel();
    let mut timer = timers.timer(move |_| told.send(()).expect("the test listens")).expect("room");
    timer.arm(0).expect("armed");
    while own.context().run_timers() == 0 {}
    fired.try_recv().expect("it fired");
    drop(own);
    assert_eq!(timer.arm(0), Err(TimerError::Gone));
    assert!(matches!(eal.timers(id), Err(EalError::UnknownLcore { .. })));
}

#[test]
fn two_eals_do_not_share() {
    let (one, two) = (Eal::init(on_one_cpu(1)).expect("an Eal"), Eal::init(on_one_cpu(1)).expect("an Eal"));
    let lcore = LcoreId(0);
    let mut timer = one.timers(lcore).expect("the lcore exists").timer(|_| {}).expect("room");
    timer.arm(0).expect("armed");
    let run = |eal: &Eal| {
        let ran = eal.launch(lcore, |context| (context.run_timers(), context.timer_stats().timers));
        ran.expect("launched").wait().expect("no panic")
    };
    assert_eq!(run(&two), (0, 0));
    drop(two);
    assert!(timer.is_armed());
    assert_eq!(run(&one), (1, 1));
}

thread_local! {
    static REGISTERED: RefCell<Option<Rc<RegisteredThread>>> = const { RefCell::new(None) };
}

/// Its own thread's registration, which a callback finds without having captured it.
fn here() -> Rc<RegisteredThread> {
    REGISTERED.with_borrow(|place| place.clone()).expect("registered")
}

#[test]
fn a_callback_may_ask_its_threads_timers() {
    let (sender, seen) = channel();
    let eal = Eal::init(on_one_cpu(1)).expect("an Eal");
    let lcores = eal.lcores().clone();
    let thread = std::thread::spawn(move || {
        let registered = Rc::new(lcores.register_this_thread().expect("registered"));
        REGISTERED.set(Some(Rc::clone(&registered)));
        let context = registered.context();
        let nested = sender.clone();
        let mut first = context
            .timers()
            .timer(move |_| {
                let here = here();
                let stats = here.context().timer_stats();
                nested.send((stats.timers, here.context().run_timers())).expect("the test waits");
            })
            .expect("room");
        let mut second = context.timers().timer(|_| ()).expect("room");
        first.arm(1).expect("armed");
        second.arm(1).expect("armed");
        // The nested run has nothing; this one calls both, and the next round goes on as ever.
        let called = context.run_timers();
        sender.send((called, context.timer_stats().fired as usize)).expect("the test waits");
        second.arm(1).expect("armed");
        sender.send((context.run_timers(), 0)).expect("the test waits");
        REGISTERED.take();
    });
    let seen: Vec<_> =
        (0..3).map(|_| seen.recv_timeout(PATIENCE).expect("a callback that asks hangs")).collect();
    thread.join().expect("the thread ends well");
    assert_eq!(seen, [(0, 0), (2, 2), (1, 0)]);
}
