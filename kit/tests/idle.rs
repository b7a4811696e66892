//! Lcores that sleep while nothing comes, inside one process, on ports of the device model.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_eal::clock::{Nanos, cycles};
use pollux_eal::event::EventFd;
use pollux_kit::forward::{self, Edit, Path, paths};
use pollux_kit::idle::SLEEP_MAX;
use pollux_kit::pairs::Hop;
use pollux_kit::{Idle, IdleMode, IdleOptions, IdlePolicy, Polled};
use pollux_port::{PortId, RxQueue};
use pollux_tests::patience::patient;

const HOPS: [Hop; 2] = [Hop { from: 0, to: 1 }, Hop { from: 1, to: 0 }];
const SLEEPING: IdleOptions = IdleOptions { mode: IdleMode::Interrupt, after_us: 100 };

/// Held by the test whose lcore has the processor: all of them pin it to the same one.
fn alone() -> MutexGuard<'static, ()> {
    static PROCESSOR: Mutex<()> = Mutex::new(());
    PROCESSOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Half of the times are shorter than the answer.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

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
    policy_of(SLEEPING, bringup, queues)
}

fn policy_of<'a>(
    options: IdleOptions,
    bringup: &Bringup,
    queues: impl Iterator<Item = &'a RxQueue>,
) -> IdlePolicy {
    let stop = bringup.eal.stop_flag();
    options.policy(bringup.eal.clock(), &[stop.as_fd()], queues).expect("files are to be had")
}

/// Forwards until the stop flag is set, while `meanwhile` runs here.
fn forward<R>(
    options: IdleOptions,
    bringup: &mut Bringup,
    mut paths: Vec<Path>,
    meanwhile: impl FnOnce(&mut Bringup) -> R,
) -> R {
    let mut idle = policy_of(options, bringup, paths.iter().map(Path::rx));
    let main = bringup.eal.lcores().main();
    let run = move |lcore: &LcoreContext| forward::run_with(lcore, &mut paths, &mut (), &mut idle);
    let running = bringup.eal.launch(main, run).expect("launched");
    let done = meanwhile(bringup);
    bringup.eal.stop_flag().set();
    running.wait().expect("no panic");
    done
}

/// Whatever an lcore does while nothing arrives, its timers are called, and in time: a periodic one as often as it says, though sleeps
/// of 20 ms would be ten times as long.
#[test]
fn timers_are_called_in_every_mode() {
    const PERIOD: Duration = Duration::from_millis(2);
    const CALLS: u32 = 100;
    let _alone = alone();
    for mode in IdleMode::ALL {
        let (mut bringup, paths) = two_ports(["null", "null"]);
        let clock = bringup.eal.clock();
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let timers = bringup.eal.timers(bringup.eal.lcores().main()).expect("the lcore has timers");
        let timer = timers.timer(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let mut timer = timer.expect("room");
        let options = IdleOptions { mode, ..SLEEPING };
        let took = forward(options, &mut bringup, paths, |_| {
            let each = clock.cycles(Nanos(PERIOD.as_nanos() as u64)).0;
            let begun = Instant::now();
            timer.arm_periodic(clock.now().0 + each, each).expect("armed");
            while count.load(Ordering::Relaxed) < CALLS {
                assert!(begun.elapsed() < patient(Duration::from_secs(20)), "{mode:?}: {count:?} calls");
                std::thread::sleep(Duration::from_millis(1));
            }
            begun.elapsed()
        });
        let mean = took / CALLS;
        assert!(mean >= PERIOD * 9 / 10 && mean < patient(2 * PERIOD), "{mode:?}: {mean:?} between calls");
    }
}

/// What ends a loop, or has something for it, wakes its lcore: by a file, at once. Without that it would sleep on, for 17 of its 20 ms.
#[test]
fn a_file_wakes_a_sleeper_at_once() {
    const ROUNDS: usize = 40;
    let _alone = alone();
    let (bringup, mut paths) = two_ports(["null", "null"]);
    let wake = Arc::new(EventFd::new().expect("a file"));
    let stop = bringup.eal.stop_flag();
    let files = [stop.as_fd(), wake.as_fd()];
    let queues = paths.iter().map(Path::rx);
    let mut idle = SLEEPING.policy(bringup.eal.clock(), &files, queues).expect("files are to be had");
    let asked = Arc::new(AtomicU32::new(0));
    let (answer, answers) = mpsc::channel();
    let seen_by_lcore = Arc::clone(&asked);
    let work = move |lcore: &LcoreContext| {
        let mut seen = 0;
        while !lcore.stop_requested() {
            let now = seen_by_lcore.load(Ordering::Acquire);
            if now != seen {
                seen = now;
                answer.send(now).expect("the test waits");
            }
            idle.empty(lcore, cycles::now(), &mut paths);
        }
    };
    let main = bringup.eal.lcores().main();
    let running = bringup.eal.launch(main, work).expect("launched");
    let times = (1..=ROUNDS).map(|round| {
        // It sleeps by then.
        std::thread::sleep(Duration::from_millis(3));
        let begun = Instant::now();
        asked.store(round as u32, Ordering::Release);
        wake.signal();
        let answered = answers.recv_timeout(patient(Duration::from_secs(20)));
        let took = begun.elapsed();
        assert_eq!(answered, Ok(round as u32));
        // A file that stays readable would wake it for ever.
        assert_eq!(wake.drain(), 1);
        took
    });
    let half = median(times.collect());
    bringup.eal.stop_flag().set();
    running.wait().expect("no panic");
    assert!(half < patient(SLEEP_MAX / 5).min(SLEEP_MAX / 2), "half of {ROUNDS} wake-ups took {half:?}");
}

#[test]
fn a_port_that_stops_does_not_wait_for_a_sleeper_and_wakes_it_when_it_runs_again() {
    let _alone = alone();
    let (mut bringup, paths) = two_ports(["source:64:200", "null"]);
    forward(SLEEPING, &mut bringup, paths, |bringup| {
        let port = bringup.ports.get_mut(PortId(0)).expect("a port");
        for _ in 0..5 {
            let wanted = port.stats().ipackets + 10;
            let end = Instant::now() + patient(Duration::from_secs(20));
            while port.stats().ipackets < wanted {
                assert!(Instant::now() < end, "packets come again");
                std::thread::sleep(Duration::from_millis(5));
            }
            let begun = Instant::now();
            port.stop().expect("nobody is at work");
            assert!(begun.elapsed() < patient(Duration::from_secs(2)), "{:?}", begun.elapsed());
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
    let _alone = alone();
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
    assert!(time >= Duration::from_millis(15) && time < patient(Duration::from_secs(5)), "{time:?}");
}

#[test]
fn pauses_grow_and_end() {
    let _alone = alone();
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
