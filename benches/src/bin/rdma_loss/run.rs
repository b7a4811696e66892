//! One run: WRITEs over the link until all are confirmed.

use std::error::Error;
use std::time::Duration;

use pollux_mlx5_model::Model;
use pollux_mlx5_model::time::STEP;
use pollux_verbs::{
    Access, Connection, Context, Cq, CqOptions, Mr, Options, Path, Pd, Provider, Qp, QpKind, QpOptions,
};

use crate::link::Link;

/// Bytes of a message.
pub(crate) const MESSAGE: usize = 16 * 1024;
/// Messages under way: half a megabyte, as much as the model's window of 512 packets of 1024 bytes.
pub(crate) const DEPTH: usize = 32;
/// ACK timeout exponent: 4.096 us x 2^n, about a millisecond.
const TIMEOUT: u8 = 8;
/// A run that takes longer, in steps, is stuck.
const STEPS_MAX: u64 = 20_000_000;

/// How what was lost is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the first that is lost on, all.
    GoBackN,
    /// What is lost alone.
    SelectiveRepeat,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    /// Nanoseconds in all.
    pub(crate) nanos: u64,
    /// Of each message, in nanoseconds.
    pub(crate) latencies: Vec<u64>,
    /// Data packets that the sender put on the wire.
    pub(crate) sent: u64,
}

/// What several runs came to.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Gbit/s, the median of the runs.
    pub(crate) goodput: f64,
    /// Nanoseconds, of all messages.
    pub(crate) p99: f64,
    /// Packets beyond those that the messages need, as a share of these.
    pub(crate) again: f64,
}

impl Found {
    pub(crate) fn of(runs: Vec<Run>) -> Self {
        let mut goodputs: Vec<f64> =
            runs.iter().map(|run| (run.latencies.len() * MESSAGE * 8) as f64 / run.nanos as f64).collect();
        goodputs.sort_unstable_by(f64::total_cmp);
        let needed: u64 = runs.iter().map(|run| (run.latencies.len() * MESSAGE / 1024) as u64).sum();
        let sent: u64 = runs.iter().map(|run| run.sent).sum();
        let mut latencies: Vec<u64> = runs.into_iter().flat_map(|run| run.latencies).collect();
        latencies.sort_unstable();
        let p99 = latencies[latencies.len() * 99 / 100] as f64;
        Self { goodput: goodputs[goodputs.len() / 2], p99, again: sent as f64 / needed as f64 - 1.0 }
    }
}

/// Runs `messages` WRITEs.
pub(crate) fn run(
    way: Way,
    loss: f64,
    delay: Duration,
    seed: u64,
    messages: usize,
) -> Result<Run, Box<dyn Error>> {
    let link = Link::new(loss, delay, seed);
    let selective = way == Way::SelectiveRepeat;
    let model = |name, end| {
        Model::builder(name)
            .plugged(link.end(end))
            .traits(|traits| traits.selective_repeat = selective)
            .stepped()
            .build()
    };
    let (near, far) = (model("near", 0)?, model("far", 1)?);
    let open = |model: &Model| -> Result<_, Box<dyn Error>> {
        let context = Context::open(model.open(), Provider::Mlx5, Options::default())?;
        let pd = Pd::new(&context)?;
        let cq = Cq::new(&context, CqOptions::new(2 * DEPTH as u32))?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = Mr::allocate(&pd, MESSAGE, rights)?;
        let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc).depth(2 * DEPTH as u32, 1))?;
        qp.init(1, Access::REMOTE_WRITE)?;
        // Of the link itself: who has it is known without asking.
        let gid = context.gid(1, 0)?.ok_or("no GID")?.gid;
        Ok((cq, mr, qp, gid))
    };
    let (mut cq, source, mut qp, near_gid) = open(&near)?;
    let (_far_cq, target, mut far_qp, far_gid) = open(&far)?;
    let to = |gid, qpn| Connection { timeout: TIMEOUT, ..Connection::new(Path::new(gid, 0), qpn) };
    qp.connect(&to(far_gid, far_qp.qpn()))?;
    far_qp.connect(&to(near_gid, qp.qpn()))?;

    let before = link.data_to(1);
    let begin = link.now();
    let mut posted_at = Vec::with_capacity(messages);
    let mut latencies = Vec::with_capacity(messages);
    let mut failed = None;
    let mut steps = 0;
    while latencies.len() < messages {
        let now = link.now();
        let room = DEPTH - (posted_at.len() - latencies.len());
        let count = room.min(messages - posted_at.len());
        if count > 0 {
            let mut batch = qp.batch();
            for _ in 0..count {
                batch.write(posted_at.len() as u64, target.address(), target.rkey());
                batch.mr(&source, 0..MESSAGE).signalled();
                posted_at.push(now);
            }
            batch.ring()?;
        }
        link.advance(STEP);
        near.step();
        far.step();
        let now = link.now();
        cq.poll(2 * DEPTH, |wc| {
            if wc.is_ok() {
                latencies.push(now - posted_at[wc.id() as usize]);
            } else {
                failed.get_or_insert(wc.status());
            }
        });
        if let Some(status) = failed {
            return Err(format!("{way:?}, loss {loss}, delay {delay:?}, seed {seed}: {status}").into());
        }
        steps += 1;
        if steps > STEPS_MAX {
            return Err(format!("{way:?}, loss {loss}, delay {delay:?}, seed {seed}: no end").into());
        }
    }
    Ok(Run { nanos: link.now() - begin, latencies, sent: link.data_to(1) - before })
}
