//! l2fwd between two ports of the threaded device model on two cores: packets a second, where the cycles go, and whether a packet
//! is lost below that rate.
//!
//! It is l2fwd's own loop (`pollux_kit::forward`), an lcore on each of the first two CPUs, with a source of 64-byte frames on each
//! model's wire. The models' thread has no core of its own: it shares the two with the lcores, as `cargo run --bin l2fwd` does.
//!
//! **Rate.** Packets that both ports sent, by their counters, over the time between the lcores' start and end.
//!
//! **Cycles.** The time-stamp counter is read when a step begins, and after its receive, its own work and its send; steps that receive
//! nothing are left out. What two reads cost is taken off. A part that took longer than 20 us was interrupted, by the models' thread
//! as a rule, and is left out and counted. The model's cycles are the processor time of its thread as the kernel counts it
//! (`/proc/self/task/TID/schedstat`), in cycles of the counter, over the same packets: it makes, receives, sends and swallows each.
//!
//! **Loss.** Sources with a rate (`source:64:RATE`) offer a quarter, half, three quarters and nine tenths of what was reached without.
//! What was received must all be sent, and nothing may be dropped by anyone; else the program fails. How much of the rate
//! arrived is printed: the models' thread offers less where it has no core. A frame that finds no receive slot waits on the wire, as under pause frames.
//!
//! `cargo run --release -p pollux-benches --bin mlx5_l2fwd [-- SECONDS]`

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pollux_bringup::program::tell;
use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_eal::clock::{Clock, Nanos, cycles};
use pollux_kit::forward::{self, Edit, Laps, Part, Path};
use pollux_port::PortId;

/// A part that takes longer was interrupted.
const INTERRUPTED: Duration = Duration::from_micros(20);
/// As in l2fwd.
const PATIENCE: Nanos = Nanos(100_000_000);
/// Parts of the rate that was reached at which nothing may be lost, in percent.
const OFFERED: [u64; 4] = [25, 50, 75, 90];

/// Cycles and packets of each part.
#[derive(Clone, Copy, Debug)]
struct Taken {
    last: u64,
    cost: u64,
    longest: u64,
    cycles: [u64; 3],
    packets: [u64; 3],
    interrupted: u64,
}

impl Taken {
    fn new(clock: &Clock) -> Self {
        // The least of many: what two reads cost that nothing comes between.
        let cost = (0..1000)
            .map(|_| {
                let first = cycles::now();
                cycles::now().wrapping_sub(first)
            })
            .min();
        let longest = clock.cycles(Nanos(INTERRUPTED.as_nanos() as u64)).0;
        Self { last: 0, cost: cost.unwrap_or(0), longest, cycles: [0; 3], packets: [0; 3], interrupted: 0 }
    }

    fn add(&mut self, other: &Self) {
        for part in 0..3 {
            self.cycles[part] += other.cycles[part];
            self.packets[part] += other.packets[part];
        }
        self.interrupted += other.interrupted;
    }

    fn each(&self, part: Part) -> f64 {
        self.cycles[part as usize] as f64 / self.packets[part as usize].max(1) as f64
    }
}

impl Laps for Taken {
    #[inline]
    fn begin(&mut self) {
        self.last = cycles::now();
    }

    #[inline]
    fn lap(&mut self, part: Part, packets: usize) {
        let now = cycles::now();
        let spent = now.wrapping_sub(self.last).saturating_sub(self.cost);
        self.last = now;
        if spent > self.longest {
            self.interrupted += 1;
            return;
        }
        self.cycles[part as usize] += spent;
        self.packets[part as usize] += packets as u64;
    }
}

/// Nanoseconds that the threads of models ran.
fn models_ns() -> std::io::Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // A thread may end meanwhile.
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else { continue };
        if name.starts_with("model-") {
            let stat = std::fs::read_to_string(task.join("schedstat"))?;
            sum += stat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(sum)
}

/// What a run came to.
struct Run {
    seconds: f64,
    received: u64,
    sent: u64,
    /// By reason.
    dropped: Vec<(String, u64)>,
    taken: Taken,
    model_cycles: f64,
}

/// Forwards between two models with that wire.
fn run(wire: &str, time: Duration) -> Result<Run, Box<dyn Error>> {
    let mut args = vec!["mlx5_l2fwd".to_owned(), "-l".into(), "0,1".into()];
    for end in 0..2 {
        args.extend(["--vdev".into(), format!("mlx5_model{end},wire={wire}")]);
    }
    let mut bringup = Bringup::new(&CommandLine::parse(args)?)?;
    let ids = [PortId(0), PortId(1)];
    let (queues, _pool) = bringup.start_ports(&ids, &PortRequest::new().lcores(2))?;
    let (rx, mut tx): (Vec<_>, Vec<_>) = queues.into_iter().map(|queues| (queues.rx, queues.tx)).unzip();
    tx.reverse();
    let (mut lost, mut launched) = (Vec::new(), Vec::new());
    let lcores = bringup.eal.lcores().dataplane();
    let clock = Clock::get();
    let (begun, model_before) = (Instant::now(), models_ns()?);
    for (from, (rx, tx)) in rx.into_iter().flatten().zip(tx.into_iter().flatten()).enumerate() {
        let to = 1 - from as u16;
        let mut path = Path::new(rx, tx, Edit::l2fwd(to, bringup.mac(PortId(to))?), PATIENCE);
        lost.push(path.lost());
        let work = move |lcore: &pollux_eal::LcoreContext| {
            let mut taken = Taken::new(&Clock::get());
            forward::run_with(lcore, std::slice::from_mut(&mut path), &mut taken, &mut ());
            taken
        };
        launched.push(bringup.eal.launch(lcores[from], work)?);
    }
    std::thread::sleep(time);
    bringup.eal.stop_flag().set();
    let mut taken = Taken::new(&clock);
    for one in launched {
        taken.add(&one.wait()?);
    }
    let (seconds, model) = (begun.elapsed().as_secs_f64(), models_ns()? - model_before);
    let (mut received, mut sent, mut dropped) = (0, 0, Vec::new());
    for id in ids {
        let port = bringup.ports.get_mut(id).ok_or("no such port")?;
        let stats = port.stats();
        (received, sent) = (received + stats.ipackets, sent + stats.opackets);
        dropped.extend(
            port.dropped().iter().map(|one| (format!("{} {}", one.direction, one.reason), one.packets)),
        );
    }
    for lost in &lost {
        let by_reason = lost.by_reason().into_iter().filter(|(_, count)| *count > 0);
        dropped.extend(by_reason.map(|(reason, count)| (reason.to_owned(), count)));
    }
    let model_cycles = model as f64 * clock.hz() as f64 / 1e9;
    Ok(Run { seconds, received, sent, dropped, taken, model_cycles })
}

fn figures() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse::<f64>())?;
    let time = Duration::try_from_secs_f64(seconds)?;
    let most = run("source:64", time)?;
    let packets = most.sent.max(1) as f64;
    let rate = packets / most.seconds;
    tell(format_args!("mlx5_l2fwd {:.4}", rate / 1e6));
    for (name, value) in [
        ("mlx5_l2fwd_rx", most.taken.each(Part::Receive)),
        ("mlx5_l2fwd_app", most.taken.each(Part::Edit)),
        ("mlx5_l2fwd_tx", most.taken.each(Part::Send)),
        ("mlx5_l2fwd_model", most.model_cycles / packets),
    ] {
        tell(format_args!("{name} {value:.2}"));
    }
    tell(format_args!("# {} parts were interrupted and left out", most.taken.interrupted));
    let mut lossy: Vec<String> = check("any", &most).into_iter().collect();
    for percent in OFFERED {
        let each = (rate / 2.0 * percent as f64 / 100.0) as u64;
        let run = run(&format!("source:64:{each}"), time)?;
        tell(format_args!(
            "# at {percent} %: {:.3} Mpps offered, {:.3} received, {} of {} lost",
            2.0 * each as f64 / 1e6,
            run.received as f64 / run.seconds / 1e6,
            run.received - run.sent.min(run.received),
            run.received,
        ));
        lossy.extend(check(&format!("{percent} % of the"), &run));
    }
    if lossy.is_empty() { Ok(()) } else { Err(lossy.join("; ").into()) }
}

/// What is wrong with a run at a rate at which nothing may be lost.
fn check(rate: &str, run: &Run) -> Option<String> {
    let lost = !run.dropped.is_empty() || run.sent != run.received || run.received == 0;
    lost.then(|| {
        format!("at {rate} rate {} were received, {} sent, dropped {:?}", run.received, run.sent, run.dropped)
    })
}

fn main() -> ExitCode {
    match figures() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mlx5_l2fwd: {why}");
            ExitCode::FAILURE
        }
    }
}
