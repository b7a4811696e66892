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
