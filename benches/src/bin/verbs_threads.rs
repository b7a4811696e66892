//! Threads that post to queue pairs of their own: with a doorbell page (UAR) to each, and with one register for all.
//!
//! Two stepped device models on a cable. Threads, each pinned to a CPU, have a queue pair and a completion queue each and post
//! [`REQUESTS`] WRITEs of 8 bytes at the same time, each request with a doorbell of its own, or 32 with one; between the rounds,
//! outside the time taken, the first of them lets the models work. What is measured is the library, from the first call of a round to
//! the return of the last. A row's figure is the median of [`ROUNDS`] rounds of the first thread: the rings of the others were last
//! read by the models on a CPU that is not theirs, which no card does. The last column is its rate over that of the thread alone.
//!
//! The doorbell page of a model is memory: a store to it costs what a store to a cache line costs that nobody else has. On a card it
//! leaves the processor through a write-combining buffer. What is measured here is the waiting for each other, which is the same.
//!
//! `cargo run --release -p pollux-benches --bin verbs_threads [-- THREADS]`: as many threads as there are CPUs, at most 8.

use std::error::Error;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_benches::two_reads;
use pollux_bringup::program::tell;
use pollux_eal::clock::Clock;
use pollux_eal::clock::cycles::now_precise;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::Cable;
use pollux_verbs::{
    Access, Connection, Context, Cq, CqOptions, Mr, Mtu, Options, Path, Pd, Provider, Qp, QpKind, QpOptions,
};

/// Of a round and thread. Long against the time in which threads see that a round has begun.
const REQUESTS: usize = 512;
const ROUNDS: usize = 400;
const WARM_UP: usize = 20;
/// More would wait for each other's models, not for registers.
const THREADS: usize = 8;

/// Which registers queue pairs ring at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// A page to each.
    Own,
    /// One register for all.
    One,
}

/// One end: a queue pair and its completion queue.
struct End {
    qp: Qp,
    cq: Cq,
}

/// One card.
struct Card {
    model: Model,
    context: Context,
    pd: Pd,
    gid: [u8; 16],
}

impl Card {
    fn new(name: &str, plug: Cable, pages: Option<NonZeroUsize>) -> Result<Self, Box<dyn Error>> {
        let model = Model::builder(name).plugged(plug).stepped().build()?;
        let options = Options { doorbell_pages: pages, ..Options::default() };
        let context = Context::open(model.open(), Provider::Mlx5, options)?;
        let pd = Pd::new(&context)?;
        let gid = context.gid(1, 0)?.ok_or("no GID")?.gid;
        Ok(Self { model, context, pd, gid })
    }

    fn end(&self, blueflame: bool) -> Result<End, Box<dyn Error>> {
        let cq = Cq::new(&self.context, CqOptions::new(64))?;
        let options =
            QpOptions { blueflame, ..QpOptions::new(QpKind::Rc).depth(REQUESTS as u32, 4).inline(8) };
        let mut qp = Qp::new(&self.pd, &cq, &cq, &options)?;
        qp.init(1, Access::REMOTE_WRITE)?;
        Ok(End { qp, cq })
    }
}

fn connect(ends: [&mut End; 2], gids: [[u8; 16]; 2]) -> Result<(), Box<dyn Error>> {
    let [near, far] = ends;
    let numbers = [near.qp.qpn(), far.qp.qpn()];
    for (qp, gid, qpn) in [(&mut near.qp, gids[1], numbers[1]), (&mut far.qp, gids[0], numbers[0])] {
        qp.connect(&Connection { mtu: Mtu::Bytes4096, ..Connection::new(Path::new(gid, 0), qpn) })?;
    }
    Ok(())
}

/// Posts a round's requests, `batch` with a doorbell; the last asks for a completion.
#[inline(never)]
fn post(qp: &mut Qp, target: (u64, u32), batch: usize) -> Result<(), pollux_verbs::PostError> {
    let mut number = 0;
    while number < REQUESTS {
        let mut requests = qp.batch();
        for _ in 0..batch {
            requests.write(number as u64, target.0, target.1).inline(&[7; 8]);
            number += 1;
        }
        if number == REQUESTS {
            requests.signalled();
        }
        requests.ring()?;
    }
    Ok(())
}

/// Where threads wait until all are there. Spinning, as they share CPUs with nobody.
struct Meet {
    threads: usize,
    came: AtomicUsize,
    turn: AtomicUsize,
}

impl Meet {
    fn wait(&self) {
        let turn = self.turn.load(Ordering::Acquire);
        if self.came.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.came.store(0, Ordering::Relaxed);
            self.turn.store(turn + 1, Ordering::Release);
            return;
        }
        let mut spun = 0_u32;
        while self.turn.load(Ordering::Acquire) == turn {
            spun += 1;
            // A machine that is not as quiet as it should be must not stand still.
            if spun.is_multiple_of(1 << 14) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

/// What threads do, and with what.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// How many there are.
    threads: usize,
    pages: Pages,
    blueflame: bool,
    /// Requests with one doorbell.
    batch: usize,
}

/// Cycles for a request of the first thread: the median of its rounds.
fn measure(way: Way) -> Result<f64, Box<dyn Error>> {
    let Way { threads, pages, blueflame, batch } = way;
    let (near, far) = Cable::pair();
    let pages = NonZeroUsize::new(1).filter(|_| pages == Pages::One);
    let (near, far) = (Card::new("threads0", near, pages)?, Card::new("threads1", far, None)?);
    let region = Mr::allocate(&far.pd, 4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let target = (region.address(), region.rkey());
    // A page has two registers: with the first one taken, all others ring at the second.
    let _first = pages.map(|_| near.end(blueflame)).transpose()?;
    let mut ends = Vec::new();
    for _ in 0..threads {
        let mut pair = [near.end(blueflame)?, far.end(false)?];
        let [one, two] = &mut pair;
        connect([one, two], [near.gid, far.gid])?;
        ends.push(pair);
    }
    let cpus = core_affinity::get_core_ids().ok_or("the CPUs are not known")?;
    let overhead = two_reads();
    let meet = Meet { threads, came: AtomicUsize::new(0), turn: AtomicUsize::new(0) };
    let settle = || while near.model.settle() + far.model.settle() > 0 {};
    // Told before all meet, and looked at after: so all end together.
    let failed = OnceLock::new();
    let figures = std::thread::scope(|scope| {
        let (meet, settle, failed) = (&meet, &settle, &failed);
        let threads = ends.iter_mut().enumerate().map(|(index, [end, _])| {
            let cpu = cpus[index % cpus.len()];
            scope.spawn(move || {
                core_affinity::set_for_current(cpu);
                let mut rounds = Vec::with_capacity(ROUNDS);
                for round in 0..ROUNDS + WARM_UP {
                    meet.wait();
                    if failed.get().is_some() {
                        return 0.0;
                    }
                    let start = now_precise();
                    let posted = post(&mut end.qp, target, batch);
                    let cycles = (now_precise() - start).saturating_sub(overhead);
                    meet.wait();
                    if index == 0 {
                        settle();
                    }
                    meet.wait();
                    let mut good = 0;
                    let done = end.cq.poll(64, |wc| good += usize::from(wc.is_ok()));
                    if posted.is_err() || (done, good) != (1, 1) {
                        let _ = failed.set(format!("{posted:?}: {done} completions of 1, {good} of success"));
                    }
                    if round >= WARM_UP {
                        rounds.push(cycles);
                    }
                }
                rounds.sort_unstable();
                rounds[rounds.len() / 2] as f64 / REQUESTS as f64
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked"))
            .collect::<Result<Vec<f64>, _>>()
    })?;
    if let Some(why) = failed.get() {
        return Err(why.as_str().into());
    }
    let (violation, violations) = near.model.device().violations();
    if violations != 0 {
        return Err(format!("{violations} rules broken, first {violation:?}").into());
    }
    Ok(figures[0])
}

fn table() -> Result<(), Box<dyn Error>> {
    let there = std::thread::available_parallelism()?.get();
    let wanted = std::env::args().nth(1).map(|word| word.parse::<usize>().map_err(|_| word)).transpose();
    let threads = match wanted {
        Ok(None) => there.min(THREADS),
        Ok(Some(count)) if (1..=there.min(THREADS)).contains(&count) => count,
        Ok(Some(count)) => {
            return Err(format!("{count} threads: 1 to {} have a CPU each", there.min(THREADS)).into());
        }
        Err(word) => return Err(format!("'{word}' is no number of threads").into()),
    };
    let hz = Clock::get().hz() as f64;
    tell(format_args!(
        "way | threads | doorbell pages | cycles for a request | M requests/s of a thread | of one alone"
    ));
    for (name, blueflame, batch) in [
        ("one a doorbell", false, 1),
        ("one a copied entry (BlueFlame)", true, 1),
        ("32 a doorbell", false, 32),
    ] {
        let way = Way { threads: 1, pages: Pages::Own, blueflame, batch };
        let alone = measure(way)?;
        let mut rows = vec![(1, "own", alone)];
        if threads > 1 {
            rows.push((threads, "own", measure(Way { threads, ..way })?));
            rows.push((threads, "one for all", measure(Way { threads, pages: Pages::One, ..way })?));
        }
        for (count, pages, cycles) in rows {
            tell(format_args!(
                "{name:<30} | {count} | {pages:<11} | {cycles:.1} | {:.2} | {:.2}",
                hz / cycles / 1e6,
                alone / cycles
            ));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("verbs_threads: {why}");
            ExitCode::FAILURE
        }
    }
}
