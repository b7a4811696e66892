//! Lcores that sleep while nothing comes, inside one process, on ports of the device model.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_eal::clock::{Nanos, cycles};
use pollux_kit::forward::{self, Edit, Path, paths};
use pollux_kit::pairs::Hop;
use pollux_kit::{Idle, IdleMode, IdleOptions, IdlePolicy, Polled};
use pollux_port::{PortId, RxQueue};

const HOPS: [Hop; 2] = [Hop { from: 0, to: 1 }, Hop { from: 1, to: 0 }];
const SLEEPING: IdleOptions = IdleOptions { mode: IdleMode::Interrupt, after_us: 100 };

/// Two ports on such wires, and what is to forward between them.
fn two_ports(wires: [&str; 2]) -> (Bringup, Vec<Path>) {
    let [a, b] = wires;
    let (a, b) = (format!("mlx5_model0,wire={a}"), format!("mlx5_model1,wire={b}"));
    let line = CommandLine::parse(["idle", "-l", "0", "--vdev", &a, "--vdev", &b]).expect("a line");
    let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
    let request = PortRequest::new().lcores(1).rx_interrupts_where_supported(true);
    let (queues, _pool) = bringup.start_ports(&[PortId(0), PortId(1)], &request).expect("up");
    let paths = paths(&HOPS, queues, Nanos(1_000_000), |_| Ok(Edit::Keep)).expect("two paths");
    (bringup, paths.into_iter().map(|(path, _)| path).collect())
}

fn policy<'a>(bringup: &Bringup, queues: impl Iterator<Item = &'a RxQueue>) -> IdlePolicy {
    let stop = bringup.eal.stop_flag();
    SLEEPING.policy(bringup.eal.clock(), &[stop.as_fd()], queues).expect("files are to be had")
}

/// Forwards until the stop flag is set, while `meanwhile` runs here.
fn forward<R>(bringup: &mut Bringup, mut paths: Vec<Path>, meanwhile: impl FnOnce(&mut Bringup) -> R) -> R {
    let mut idle = policy(bringup, paths.iter().map(Path::rx));
    let main = bringup.eal.lcores().main();
    let run = move |lcore: &LcoreContext| forward::run_with(lcore, &mut paths, &mut (), &mut idle);
    let running = bringup.eal.launch(main, run).expect("launched");
    let done = meanwhile(bringup);
    bringup.eal.stop_flag().set();
    running.wait().expect("no panic");
    done
}

#[test]
fn a_timer_wakes_its_lcore() {
    let (mut bringup, paths) = two_ports(["null", "null"]);
    let clock = bringup.eal.clock();
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let timers = bringup.eal.timers(bringup.eal.lcores().main()).expect("the lcore has timers");
    let timer = timers.timer(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut timer = timer.expect("room");
    let each = clock.cycles(Nanos(2_000_000)).0;
    timer.arm_periodic(clock.now().0 + each, each).expect("armed");
    let (begun, before) = (Instant::now(), count.load(Ordering::Relaxed));
    forward(&mut bringup, paths, |_| std::thread::sleep(Duration::from_millis(400)));
    let calls = count.load(Ordering::Relaxed) - before;
    // Sleeps of 20 ms would still catch up, one call a round; but not in time.
    assert!(calls > 100, "{calls} calls in {:?}, one each 2 ms", begun.elapsed());
}

#[test]
fn a_port_that_stops_does_not_wait_for_a_sleeper_and_wakes_it_when_it_runs_again() {
    let (mut bringup, paths) = two_ports(["source:64:200", "null"]);
    forward(&mut bringup, paths, |bringup| {
        let port = bringup.ports.get_mut(PortId(0)).expect("a port");
        for _ in 0..5 {
            let wanted = port.stats().ipackets + 10;
            let end = Instant::now() + Duration::from_secs(20);
            while port.stats().ipackets < wanted {
                assert!(Instant::now() < end, "packets come again");
                std::thread::sleep(Duration::from_millis(5));
            }
            let begun = Instant::now();
            port.stop().expect("nobody is at work");
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
            std::thread::sleep(Duration::from_millis(30));
            port.start().expect("starts");
        }
    });
    let busy = bringup.eal.lcores().usage(bringup.eal.lcores().main()).expect("an lcore");
    assert!(busy.busy < busy.total / 2, "{busy:?}");
}

/// A queue whose owner holds something back.
struct Held(RxQueue, bool);

impl Polled for Held {
    fn rx_queue(&mut self) -> &mut RxQueue {
        &mut self.0
    }

    fn has_work(&self) -> bool {
        self.1
    }
}

#[test]
fn who_has_work_does_not_sleep_and_others_sleep_only_so_long() {
    let line = CommandLine::parse(["idle", "-l", "0", "--vdev", "mlx5_model0,wire=null"]).expect("a line");
    let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
    let request = PortRequest::new().lcores(1).rx_interrupts(true);
    let (mut queues, _pool) = bringup.start_ports(&[PortId(0)], &request).expect("up");
    let mut idle = policy(&bringup, queues[0].rx.iter());
    let mut held = [Held(queues.remove(0).rx.remove(0), true)];
    let main = bringup.eal.lcores().main();
    let work = move |lcore: &LcoreContext| {
        // So many cycles are longer than any time that it might wait for.
        let mut now = cycles::now();
        let mut round = |held: &mut [Held]| {
            now += 1 << 32;
            idle.empty(lcore, now, held)
        };
        let with_work: Vec<bool> = (0..10).map(|_| round(&mut held)).collect();
        held[0].1 = false;
        let armed = round(&mut held);
        held[0].1 = true;
        let work_after_all = round(&mut held);
        held[0].1 = false;
        let begun = Instant::now();
        let slept = round(&mut held);
        (with_work, armed, work_after_all, slept, begun.elapsed())
    };
    let (with_work, armed, work_after_all, slept, time) =
        bringup.eal.launch(main, work).expect("launched").wait().expect("no panic");
    assert_eq!(with_work, [false; 10]);
    assert!(armed && !work_after_all && slept);
    assert!(time >= Duration::from_millis(15) && time < Duration::from_secs(5), "{time:?}");
}

#[test]
fn pauses_grow_and_end() {
    let (bringup, mut paths) = two_ports(["null", "null"]);
    let options = IdleOptions { mode: IdleMode::Pause, ..SLEEPING };
    let mut idle = options.policy(bringup.eal.clock(), &[], paths.iter().map(Path::rx)).expect("no file");
    let main = bringup.eal.lcores().main();
    let work = move |lcore: &LcoreContext| {
        // The least of many: what nothing came between.
        let mut least = |rounds: usize| {
            let times = (0..1000).map(|_| {
                idle.busy();
                for _ in 1..rounds {
                    idle.empty(lcore, 0, &mut paths);
                }
                let begun = cycles::now();
                assert!(idle.empty(lcore, 0, &mut paths));
                cycles::now() - begun
            });
            times.min().unwrap_or(0)
        };
        [1, 4, 8, 100].map(&mut least)
    };
    let [first, fourth, eighth, hundredth] =
        bringup.eal.launch(main, work).expect("launched").wait().expect("no panic");
    assert!(
        first < fourth && fourth < eighth && hundredth < 2 * eighth,
        "{first} {fourth} {eighth} {hundredth}"
    );
    bringup.eal.stop_flag().set();
}
