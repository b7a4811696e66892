//! send_lat and write_lat between two threads, each on a core of its own, and where the time of a way goes.
//!
//! Each thread is an end: its program and its device model, which it steps itself between its own looks, so nobody sleeps and nobody
//! is woken; the cable between the two models is memory. A way of a message is cut at five moments of the counter that both cores
//! share, seen from outside the library and the models:
//!
//! | part | from | to |
//! |---|---|---|
//! | poster | before the batch is begun | `ring` has returned |
//! | sending model | | the step that put the packet on the cable has returned |
//! | cable | | the other end's step that took it begins |
//! | receiving model | | that step has returned: data and completion are in memory |
//! | completion | | the program has seen them |
//!
//! Half a round trip is what `send_lat` and `write_lat` print. `cargo run --release -p pollux-benches --bin rdma_latency
//! [-- EXCHANGES]`.

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_bringup::program::tell;
use pollux_eal::clock::Clock;
use pollux_eal::clock::cycles::now;
use pollux_eal::lcore::CpuSet;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::Cable;
use pollux_verbs::{
    Access, Connection, Context, Cq, CqOptions, Mr, Options, Path, Pd, Provider, Qp, QpKind, QpOptions,
};

/// Bytes of a message, perftest's default for latency.
const BYTES: usize = 2;
/// Exchanges that are not measured, at the beginning.
const WARM_UP: usize = 200;
/// Receives that are posted at most.
const RECEIVES: usize = 256;
/// What an end says that was stopped because the other one failed.
const STOPPED: &str = "the other end failed";
/// Parts of a way.
const PARTS: [&str; 5] = ["poster", "sending model", "cable", "receiving model", "completion"];

#[derive(Clone, Copy, PartialEq)]
enum Test {
    Send,
    Write,
}

/// Moments of one message at the end that sends it: before the post, behind it, behind the step that sent it.
#[derive(Clone, Copy, Default)]
struct Sent([u64; 3]);

/// At the end that receives it: before the step that took it, behind it, when the program had it.
#[derive(Clone, Copy, Default)]
struct Taken([u64; 3]);

struct End {
    model: Model,
    cq: Cq,
    qp: Qp,
    mr: Mr,
    gid: [u8; 16],
    peer: (u64, u32),
    posted: usize,
}

impl End {
    fn new(name: &str, plug: Cable) -> Result<Self, Box<dyn Error>> {
        let model = Model::builder(name).plugged(plug).stepped().build()?;
        let context = Context::open(model.open(), Provider::Mlx5, Options::default())?;
        let pd = Pd::new(&context)?;
        let cq = Cq::new(&context, CqOptions::new(1024))?;
        let mr = Mr::allocate(&pd, 4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let options = QpOptions::new(QpKind::Rc).depth(8, RECEIVES as u32).inline(64);
        let mut qp = Qp::new(&pd, &cq, &cq, &options)?;
        qp.init(1, Access::REMOTE_WRITE)?;
        let gid = context.gid(1, 0)?.ok_or("no GID")?.gid;
        Ok(Self { model, cq, qp, mr, gid, peer: (0, 0), posted: 0 })
    }

    fn supply(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        // Long before the last one is used: nobody is to wait for a receive.
        while self.posted <= RECEIVES / 2 {
            let mut receives = self.qp.receives().ok_or("no receives")?;
            for id in 0..RECEIVES / 2 {
                receives.mr(id as u64, &self.mr, 64..64 + BYTES);
            }
            receives.ring()?;
            self.posted += RECEIVES / 2;
        }
        Ok(())
    }

    /// Sends message `number`, and works until the device has.
    fn send(&mut self, test: Test, number: usize) -> Result<Sent, Box<dyn Error + Send + Sync>> {
        let payload = [number as u8; BYTES];
        let begun = now();
        let mut batch = self.qp.batch();
        match test {
            Test::Send => batch.send(number as u64),
            Test::Write => batch.write(number as u64, self.peer.0 + 128, self.peer.1),
        };
        batch.inline(&payload).signalled();
        batch.ring()?;
        let posted = now();
        while !self.model.step() {}
        Ok(Sent([begun, posted, now()]))
    }

    /// Works until message `number` is there.
    fn take(
        &mut self,
        test: Test,
        number: usize,
        stop: &AtomicBool,
    ) -> Result<Taken, Box<dyn Error + Send + Sync>> {
        let mut last = (now(), now());
        loop {
            let before = now();
            if self.model.step() {
                last = (before, now());
            }
            let (mut came, mut failed) = (false, None);
            self.cq.poll(16, |wc| {
                if !wc.is_ok() {
                    failed.get_or_insert(wc.status());
                }
                came |= wc.is_receive();
            });
            if let Some(status) = failed {
                return Err(format!("message {number}: {status}").into());
            }
            if test == Test::Write {
                came = self.mr.load8(128 + BYTES - 1) == number as u8;
            }
            if came {
                self.posted -= usize::from(test == Test::Send);
                return Ok(Taken([last.0, last.1, now()]));
            }
            if stop.load(Ordering::Relaxed) {
                return Err(STOPPED.into());
            }
        }
    }
}

type Log = (Vec<Sent>, Vec<Taken>);

fn play(
    mut end: End,
    test: Test,
    first: bool,
    exchanges: usize,
    core: u16,
    stop: &AtomicBool,
) -> Result<Log, Box<dyn Error + Send + Sync>> {
    CpuSet::from_iter([core]).pin_this_thread()?;
    let (mut sent, mut taken) = (Vec::with_capacity(exchanges), Vec::with_capacity(exchanges));
    let run = (1..=exchanges).try_for_each(|number| {
        if test == Test::Send {
            end.supply()?;
        }
        if first {
            sent.push(end.send(test, number)?);
        }
        taken.push(end.take(test, number, stop)?);
        if !first {
            sent.push(end.send(test, number)?);
        }
        Ok(())
    });
    if run.is_err() {
        stop.store(true, Ordering::Relaxed);
    }
    run.map(|()| (sent, taken))
}

fn at(sorted: &[u64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize] as f64
}

fn measure(name: &str, test: Test, exchanges: usize) -> Result<(), Box<dyn Error>> {
    let (near, far) = Cable::pair();
    let (mut near, mut far) = (End::new("latency0", near)?, End::new("latency1", far)?);
    // Nothing is lost, and a model that is stepped while the other one's thread has no core sees its time run ahead: no timer.
    let to = |gid, qpn| Connection { timeout: 0, ..Connection::new(Path::new(gid, 0), qpn) };
    near.qp.connect(&to(far.gid, far.qp.qpn()))?;
    far.qp.connect(&to(near.gid, near.qp.qpn()))?;
    near.peer = (far.mr.address(), far.mr.rkey());
    far.peer = (near.mr.address(), near.mr.rkey());
    if test == Test::Send {
        for end in [&mut near, &mut far] {
            end.supply().map_err(|error| error.to_string())?;
        }
    }
    let stop = AtomicBool::new(false);
    let all = exchanges + WARM_UP;
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| play(far, test, false, all, 1, &stop));
        (play(near, test, true, all, 0, &stop), other.join())
    });
    let two = two.map_err(|_| "the other end panicked")?;
    let (one, two) = match (one, two) {
        (Ok(one), Ok(two)) => (one, two),
        // One that was only stopped says so; the other one knows why.
        (Err(one), Err(two)) if one.to_string() == STOPPED => return Err(two.to_string().into()),
        (Err(error), _) | (_, Err(error)) => return Err(error.to_string().into()),
    };

    let mut trips: Vec<u64> =
        one.0[WARM_UP..].windows(2).map(|pair| (pair[1].0[0] - pair[0].0[0]) / 2).collect();
    trips.sort_unstable();
    // Both ways alike.
    let ways = one.0.iter().zip(&two.1).skip(WARM_UP).chain(two.0.iter().zip(&one.1).skip(WARM_UP));
    let mut parts: [Vec<u64>; 5] = Default::default();
    for (Sent([begun, posted, sent]), Taken([step, stepped, seen])) in ways {
        // A step of the other end may have begun before the packet was on the cable.
        let moments = [*begun, *posted, *sent, (*step).max(*sent), *stepped, *seen];
        for (part, pair) in parts.iter_mut().zip(moments.windows(2)) {
            part.push(pair[1].saturating_sub(pair[0]));
        }
    }
    let scale = 1e6 / Clock::get().hz() as f64;
    let us = |cycles: f64| cycles * scale;
    let [least, typical, most] = [0.0, 0.5, 0.99].map(|share| us(at(&trips, share)));
    tell(format_args!("| {name} | {least:.2} | {typical:.2} | {most:.2} |{}", {
        let cells = parts.iter_mut().map(|part| {
            part.sort_unstable();
            format!(" {:.2} |", us(at(part, 0.5)))
        });
        cells.collect::<String>()
    }));
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    let exchanges: usize = match std::env::args().nth(1) {
        None => 20_000,
        Some(word) => word.parse().map_err(|_| format!("{word}: not a number of exchanges"))?,
    };
    if exchanges < 100 {
        return Err(format!("{exchanges} exchanges are too few: 100 at least").into());
    }
    tell(format_args!("microseconds a way; parts: medians"));
    tell(format_args!("| test | shortest | typical | 99 % | {} |", PARTS.join(" | ")));
    tell(format_args!("|---|---|---|---|---|---|---|---|---|"));
    measure("send_lat", Test::Send, exchanges)?;
    measure("write_lat", Test::Write, exchanges)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("rdma_latency: {why}");
            ExitCode::FAILURE
        }
    }
}
