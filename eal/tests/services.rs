//! Services on service cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pollux_config::EalSpec;
use pollux_eal::lcore::{self, CpuSet, LcoreRole};
use pollux_eal::service::{ServiceId, Services, Work};
use pollux_eal::{Eal, EalError, LcoreId, StopReason};

/// Lcore 0 for the application, 1 and 2 for services, all on one CPU.
fn eal() -> Eal {
    let cpu = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
    let lcores = Some(format!("(0-2)@{cpu}").parse().expect("a map"));
    let service_lcores = [1, 2].into_iter().collect();
    Eal::init(EalSpec { lcores, service_lcores, ..EalSpec::default() }).expect("an Eal")
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn calls(services: &Services, id: ServiceId) -> u64 {
    services.stats(id).expect("the service").calls
}

#[test]
fn a_service_is_called_where_it_is_mapped_and_only_while_started() {
    let eal = eal();
    let services = eal.services();
    assert_eq!(services.lcores(), [LcoreId(1), LcoreId(2)]);
    assert_eq!(eal.lcores().with_role(LcoreRole::Service), [LcoreId(1), LcoreId(2)]);
    assert_eq!(eal.lcores().dataplane(), [LcoreId(0)]);
    assert!(matches!(eal.launch(LcoreId(1), |_| ()), Err(EalError::WrongRole { .. })));

    let elsewhere = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&elsewhere);
    let id = services.register("watch", move || {
        seen.fetch_or(lcore::current() != Some(LcoreId(2)), Ordering::Relaxed);
        Work::Done
    });
    let id = id.expect("registered");
    services.map(id, LcoreId(2), true).expect("mapped");
    services.start_lcore(LcoreId(1)).expect("started");
    services.start_lcore(LcoreId(2)).expect("started");
    services.start_lcore(LcoreId(2)).expect("starting twice is one start");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(calls(services, id), 0, "not started");
    assert!(!services.may_be_active(id).expect("known"));
    services.start(id).expect("started");
    assert!(services.may_be_active(id).expect("known"));
    until("it is called", || calls(services, id) > 100);
    services.stop(id).expect("stopped");
    let after = calls(services, id);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(calls(services, id), after, "stopped");
    services.start(id).expect("started again");
    until("it is called again", || calls(services, id) > after);
    services.stop_lcore(LcoreId(2)).expect("stopped");
    let after = calls(services, id);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(calls(services, id), after, "its core does not run");
    assert!(!services.may_be_active(id).expect("known"));
    assert!(!elsewhere.load(Ordering::Relaxed), "only on lcore 2");
    assert!(services.stats(id).expect("known").cycles > 0);
    assert!(services.rounds(LcoreId(2)).expect("a core") > 0);
    assert!(eal.lcores().usage(LcoreId(2)).expect("a core").busy > 0);
}

#[test]
fn a_plain_service_is_never_in_two_calls_at_once_and_a_shared_one_may_be() {
    let eal = eal();
    let services = eal.services();
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let call = |pause: Duration| {
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        move || {
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(pause);
            inside.fetch_sub(1, Ordering::SeqCst);
            Work::Idle
        }
    };
    let plain = services.register("plain", call(Duration::from_micros(200))).expect("registered");
    for lcore in services.lcores() {
        services.map(plain, lcore, true).expect("mapped");
    }
    services.start_all().expect("started");
    until("it is called", || calls(services, plain) > 50);
    services.unregister(plain).expect("gone");
    assert_eq!(inside.load(Ordering::SeqCst), 0, "no call is under way");
    assert_eq!(most.swap(0, Ordering::SeqCst), 1);
    assert!(matches!(services.stats(plain), Err(EalError::UnknownService { .. })));

    let shared = services.register_shared("shared", call(Duration::from_millis(5))).expect("registered");
    for lcore in services.lcores() {
        services.map(shared, lcore, true).expect("mapped");
    }
    services.start(shared).expect("started");
    until("both cores are in it at once", || most.load(Ordering::SeqCst) == 2);
    services.stop(shared).expect("stopped");
    assert_eq!(inside.load(Ordering::SeqCst), 0);
    let stats = services.stats(shared).expect("known");
    assert_eq!((stats.calls, stats.cycles), (stats.idle_calls, 0));
}

#[test]
fn by_default_services_take_turns_on_the_cores() {
    let eal = eal();
    let services = eal.services();
    let ids: Vec<_> =
        (0..3).map(|n| services.register(&format!("s{n}"), || Work::Idle).expect("registered")).collect();
    services.start_all().expect("started");
    let list = services.list();
    let homes: Vec<_> = list.iter().map(|service| (service.name.as_str(), service.lcores.clone())).collect();
    assert_eq!(homes, [("s0", vec![LcoreId(1)]), ("s1", vec![LcoreId(2)]), ("s2", vec![LcoreId(1)])]);
    assert!(list.iter().all(|service| service.running));
    for id in ids {
        until("it is called", || calls(services, id) > 0);
    }
}

#[test]
fn an_application_thread_may_run_a_service_itself() {
    let eal = eal();
    let services = eal.services();
    let total = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&total);
    let own = services.clone();
    let id = Arc::new(std::sync::OnceLock::new());
    let me = Arc::clone(&id);
    let registered = services.register("five times", move || {
        if sum.fetch_add(1, Ordering::Relaxed) == 4 {
            own.stop(*me.get().expect("set below")).expect("it may stop itself");
        }
        Work::Done
    });
    let registered = registered.expect("registered");
    id.set(registered).expect("once");
    assert_eq!(services.run_once(registered).expect("known"), None, "stopped");
    services.start(registered).expect("started");
    let mut runs = 0;
    while services.run_once(registered).expect("known").is_some() {
        runs += 1;
    }
    assert_eq!((runs, total.load(Ordering::Relaxed), calls(services, registered)), (5, 5, 5));
}

#[test]
fn a_panic_in_a_service_stops_it_and_the_eal() {
    let eal = eal();
    let id = eal.services().register("bad", || panic!("a service that fails")).expect("registered");
    eal.services().start_all().expect("started");
    assert!(eal.stop_flag().wait(Duration::from_secs(60)));
    until("it is stopped", || !eal.services().list()[0].running);
    assert_eq!(calls(eal.services(), id), 0);
    let exit = eal.shutdown();
    assert_eq!(exit.reason, Some(StopReason::Panic));
    assert!(exit.panics[0].message.contains("a service that fails"), "{exit:?}");
}

#[test]
fn without_service_cores_the_line_says_so() {
    let cpu = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
    let lcores = Some(format!("0@{cpu}").parse().expect("a map"));
    let eal = Eal::init(EalSpec { lcores, ..EalSpec::default() }).expect("an Eal");
    let services = eal.services();
    let id = services.register("lost", || Work::Idle).expect("registered");
    let refused = services.map(id, LcoreId(0), true).expect_err("lcore 0 is no service core");
    assert_eq!(refused.to_string(), "lcore 0 needs a service core; service cores: none, name some with -S");
    assert!(services.start_all().is_err());
}

/// Runs `work` on a thread of its own, which it may hang.
fn ends(what: &str, work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(work);
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().expect("the thread ends well");
}

#[test]
fn a_service_may_run_another_one_and_itself() {
    ends("run_once inside run_once", || {
        let eal = eal();
        let services = eal.services();
        let inner = services.register("inner", || Work::Done).expect("registered");
        let (own, id) = (services.clone(), Arc::new(std::sync::OnceLock::new()));
        let me = Arc::clone(&id);
        let outer = services.register("outer", move || {
            assert_eq!(own.run_once(inner).expect("known"), Some(Work::Done));
            assert_eq!(own.run_once(*me.get().expect("set")).expect("known"), None, "it is being called");
            Work::Done
        });
        let outer = outer.expect("registered");
        id.set(outer).expect("once");
        services.start(inner).expect("started");
        services.start(outer).expect("started");
        for _ in 0..10 {
            assert_eq!(services.run_once(outer).expect("known"), Some(Work::Done));
        }
        assert_eq!((calls(services, outer), calls(services, inner)), (10, 10));
    });
}

#[test]
fn many_threads_run_one_service_and_every_call_counts() {
    let eal = eal();
    let services = eal.services();
    let id = services.register_shared("shared", || Work::Idle).expect("registered");
    services.start(id).expect("started");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5_000).for_each(|_| assert!(services.run_once(id).expect("known").is_some())));
        }
    });
    assert_eq!(calls(services, id), 20_000);
}

#[test]
fn an_inner_service_may_stop_the_one_that_runs_it() {
    ends("a stop from a service inside", || {
        let eal = eal();
        let services = eal.services();
        let id = Arc::new(std::sync::OnceLock::new());
        let (own, outer_id) = (services.clone(), Arc::clone(&id));
        let inner = services.register("inner", move || {
            own.stop(*outer_id.get().expect("set")).expect("known");
            Work::Done
        });
        let inner = inner.expect("registered");
        let own = services.clone();
        let outer = services.register("outer", move || own.run_once(inner).expect("known").expect("run"));
        let outer = outer.expect("registered");
        id.set(outer).expect("once");
        services.start(inner).expect("started");
        services.start(outer).expect("started");
        assert_eq!(services.run_once(outer).expect("known"), Some(Work::Done));
        assert_eq!(services.run_once(outer).expect("known"), None, "stopped");
    });
}

/// Each is in a call when it stops the other one, or the core that the other one is on.
fn two_that_end_each_other(end: fn(&Services, ServiceId, LcoreId)) {
    let eal = eal();
    let services = eal.services();
    let both = Arc::new(std::sync::Barrier::new(2));
    let ids = Arc::new(std::sync::OnceLock::<[ServiceId; 2]>::new());
    let over = Arc::new(AtomicUsize::new(0));
    let registered = [0, 1].map(|n: usize| {
        let (own, both, ids, over) =
            (services.clone(), Arc::clone(&both), Arc::clone(&ids), Arc::clone(&over));
        let call = move || {
            both.wait();
            let other = 1 - n;
            end(&own, ids.get().expect("set")[other], LcoreId(1 + other as u16));
            over.fetch_add(1, Ordering::SeqCst);
            Work::Done
        };
        services.register(&format!("s{n}"), call).expect("registered")
    });
    ids.set(registered).expect("once");
    services.start_all().expect("started");
    until("both have returned", || over.load(Ordering::SeqCst) == 2);
    registered.into_iter().for_each(|id| services.stop(id).expect("known"));
}

#[test]
fn services_may_stop_each_other() {
    for _ in 0..20 {
        ends("two stops of one another", || {
            two_that_end_each_other(|services, id, _| services.stop(id).expect("known"))
        });
    }
}

#[test]
fn services_may_stop_the_cores_of_each_other() {
    for _ in 0..20 {
        ends("two stops of cores", || {
            two_that_end_each_other(|services, _, lcore| services.stop_lcore(lcore).expect("known"))
        });
    }
}

#[test]
fn a_stop_from_anywhere_returns_while_others_call() {
    ends("a stop while threads call", || {
        let eal = eal();
        let services = eal.services();
        let id = services.register_shared("busy", || Work::Done).expect("registered");
        services.start_all().expect("started");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _stopped_or_not = services.run_once(id).expect("known");
                    }
                });
            }
            let lcore = eal.launch(LcoreId(0), {
                let services = services.clone();
                move |_| (0..200).for_each(|_| services.stop(id).expect("known"))
            });
            for _ in 0..200 {
                services.start(id).expect("known");
                services.stop(id).expect("known");
            }
            lcore.expect("launched").wait().expect("its stops return");
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn services_of_two_eals_with_one_number_are_two() {
    let (one, two) = (eal(), eal());
    let (sender, begun) = std::sync::mpsc::channel();
    let over = Arc::new(AtomicBool::new(false));
    let mark = Arc::clone(&over);
    let slow = two.services().register("slow", move || {
        let _heard = sender.send(());
        std::thread::sleep(Duration::from_millis(50));
        mark.store(true, Ordering::SeqCst);
        Work::Done
    });
    let slow = slow.expect("registered");
    let others = two.services().clone();
    let stops = one.services().register("stops", move || {
        others.stop(slow).expect("known");
        assert!(over.load(Ordering::SeqCst), "the stop did not wait for the other Eal's service");
        Work::Done
    });
    let stops = stops.expect("registered");
    assert_eq!(stops, slow, "each Eal counts from one");
    two.services().start_all().expect("started");
    begun.recv_timeout(Duration::from_secs(20)).expect("called");
    one.services().start(stops).expect("started");
    assert_eq!(one.services().run_once(stops).expect("known"), Some(Work::Done));
}
