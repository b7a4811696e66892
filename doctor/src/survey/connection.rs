//! RC over the card's own port: two queue pairs of one context, connected to each other, each operation once with its data
//! looked at; doorbells of both kinds; errors that one side makes, and the way back from them.

use std::time::{Duration, Instant};

use pollux_verbs::{
    Access, Connection, Context, Cq, CqOptions, Mr, Path, Pd, PortState, Qp, QpAttributes, QpKind, QpOptions,
    QpState, WcOpcode, WcStatus,
};

use super::step::{Refusal, Step, refused, timed};
use super::subject::Subject;

/// The port of an Ethernet function.
const PORT: u8 = 1;
/// Bytes of each end's memory; the second half is what the peer reaches.
const MEMORY: usize = 8192;
const HALF: usize = MEMORY / 2;
/// Bytes of a message.
const MESSAGE: usize = 256;
/// Bytes inline in an entry.
const INLINE: u32 = 64;
/// Requests of each kind whose cost is taken.
const ROUNDS: u64 = 32;
/// How long a completion is waited for; the card gives up on a peer sooner.
const PATIENCE: Duration = Duration::from_secs(3);
/// 4.096 us x 2^10 four times: 17 ms until a silent peer is given up.
const TIMEOUT: u8 = 10;
const RETRIES: u8 = 3;

const RIGHTS: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// What a completion says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Done {
    id: u64,
    status: WcStatus,
    opcode: WcOpcode,
    receive: bool,
    bytes: u32,
    imm: Option<u32>,
}

/// One queue pair, with its memory.
struct End {
    qp: Qp,
    memory: Mr,
}

/// Two ends of one connection.
struct Pair {
    near: End,
    far: End,
    cq: Cq,
    path: Path,
}

/// Requests that a receive, a near and a far send are known by.
const RECEIVE: u64 = 1 << 32;

impl Pair {
    fn new(context: &Context) -> Result<Self, Refusal> {
        if context.port_state(PORT).map_err(refused)? != PortState::Active {
            return Err("skipped: the port is not active, plug in a cable".into());
        }
        let gid = context.best_gid(PORT, false).map_err(refused)?;
        let gid = gid.ok_or("skipped: the port has no GID, give its interface an address")?;
        let index = u8::try_from(gid.index).map_err(|_| format!("GID {} is out of range", gid.index))?;
        let pd = Pd::new(context).map_err(refused)?;
        let cq = Cq::new(context, CqOptions::new(256)).map_err(refused)?;
        let end = || -> Result<End, Refusal> {
            let options = QpOptions::new(QpKind::Rc).depth(64, 64).inline(INLINE);
            let qp = Qp::new(&pd, &cq, &cq, &options).map_err(refused)?;
            Ok(End { qp, memory: Mr::allocate(&pd, MEMORY, RIGHTS).map_err(refused)? })
        };
        let mut pair = Self { near: end()?, far: end()?, cq, path: Path::new(gid.gid, index) };
        pair.connect()?;
        Ok(pair)
    }

    /// From RESET to RTS, each to the other.
    fn connect(&mut self) -> Result<(), Refusal> {
        let (near, far) = (self.near.qp.qpn(), self.far.qp.qpn());
        for (end, peer) in [(&mut self.near, far), (&mut self.far, near)] {
            end.qp.init(PORT, RIGHTS).map_err(refused)?;
            let connection = Connection {
                timeout: TIMEOUT,
                retries: RETRIES,
                rnr_retries: 1,
                min_rnr_timer: 1,
                ..Connection::new(self.path, peer)
            };
            end.qp.connect(&connection).map_err(refused)?;
        }
        Ok(())
    }

    /// Completions until there are `count`, or patience is over.
    fn wait(&mut self, count: usize) -> Vec<Done> {
        let (mut all, begin) = (Vec::new(), Instant::now());
        while all.len() < count && begin.elapsed() < PATIENCE {
            let got = self.cq.poll(16, |wc| {
                let done = Done {
                    id: wc.id(),
                    status: wc.status(),
                    opcode: wc.opcode(),
                    receive: wc.is_receive(),
                    bytes: if wc.is_ok() { wc.bytes() } else { 0 },
                    imm: if wc.is_ok() { wc.imm() } else { None },
                };
                all.push(done);
                while wc.take().is_some() {}
            });
            if got == 0 {
                std::thread::yield_now();
            }
        }
        all.sort_by_key(|done| done.id);
        all
    }

    fn receive(&mut self, id: u64, bytes: usize) -> Result<(), Refusal> {
        let memory = self.far.memory.clone();
        let mut list = self.far.qp.receives().ok_or("the queue pair has no receive queue")?;
        let _ = list.mr(RECEIVE + id, &memory, HALF..HALF + bytes);
        list.ring().map(drop).map_err(refused)
    }

    /// Takes both ends from wherever they are to RESET, and connects them anew.
    fn recover(&mut self) -> Result<(), Refusal> {
        for end in [&mut self.near, &mut self.far] {
            end.qp.modify(&QpAttributes::state(QpState::RESET)).map_err(refused)?;
        }
        // What was flushed is fetched; how much that is depends on when.
        let _flushed = self.wait_all();
        self.connect()
    }

    /// What there is, without waiting for more.
    fn wait_all(&mut self) -> usize {
        let mut count = 0;
        loop {
            let got = self.cq.poll(16, |wc| while wc.take().is_some() {});
            if got == 0 {
                return count;
            }
            count += got;
        }
    }
}

/// Status, opcode and lengths of completions, in few words.
fn told(all: &[Done]) -> String {
    let each = all.iter().map(|done| {
        let kind = if done.receive { "receive" } else { "request" };
        let imm = done.imm.map_or_else(String::new, |imm| format!(" imm={imm:#x}"));
        let bytes = if done.receive { format!(" bytes={}", done.bytes) } else { String::new() };
        format!("{kind}: {} ({}){bytes}{imm}", done.status.as_str(), done.opcode.as_str())
    });
    let all: Vec<String> = each.collect();
    if all.is_empty() { "nothing completed".into() } else { all.join(", ") }
}

/// What the data of an operation has to be.
fn pattern(seed: u8) -> Vec<u8> {
    (0..MESSAGE).map(|at| (at as u8).wrapping_mul(7) ^ seed).collect()
}

/// Each operation once.
pub(crate) fn operations(subject: &Subject, step: &mut Step) -> Result<(), Refusal> {
    let context = subject.context()?;
    let mut pair = Pair::new(&context)?;
    let operations =
        ["send", "send_imm", "inline", "write", "write_imm", "read", "compare_swap", "fetch_add"];
    for (number, name) in operations.into_iter().enumerate() {
        let said = operation(&mut pair, name, number as u8 + 1)?;
        step.fact(name, said);
    }
    Ok(())
}

fn operation(pair: &mut Pair, name: &str, seed: u8) -> Result<String, Refusal> {
    let data = pattern(seed);
    let inline = &data[..INLINE as usize];
    pair.near.memory.write(0, &data);
    pair.far.memory.write(HALF, &vec![0; HALF]);
    let takes_receive = matches!(name, "send" | "send_imm" | "inline" | "write_imm");
    if takes_receive {
        pair.receive(0, MESSAGE)?;
    }
    let (address, rkey) = (pair.far.memory.address() + HALF as u64, pair.far.memory.rkey());
    match name {
        "read" => pair.far.memory.write(HALF, &data),
        "compare_swap" | "fetch_add" => pair.far.memory.store64(HALF, 40),
        _ => {}
    }
    let near = pair.near.memory.clone();
    let mut batch = pair.near.qp.batch();
    match name {
        "send" => batch.send(1).mr(&near, 0..MESSAGE),
        "send_imm" => batch.send(1).imm(0x1234).mr(&near, 0..MESSAGE),
        "inline" => batch.send(1).inline(inline),
        "write" => batch.write(1, address, rkey).mr(&near, 0..MESSAGE),
        "write_imm" => batch.write(1, address, rkey).imm(0x5678).mr(&near, 0..MESSAGE),
        "read" => batch.read(1, address, rkey).mr(&near, 1024..1024 + MESSAGE),
        "compare_swap" => batch.compare_swap(1, address, rkey, 40, 50).mr(&near, 1024..1032),
        _ => batch.fetch_add(1, address, rkey, 2).mr(&near, 1024..1032),
    };
    let _ = batch.signalled();
    batch.ring().map_err(refused)?;
    let done = pair.wait(if takes_receive { 2 } else { 1 });
    let mut came = vec![0; MESSAGE];
    let right = match name {
        "compare_swap" => (near.load64(1024), pair.far.memory.load64(HALF)) == (40, 50),
        "fetch_add" => (near.load64(1024), pair.far.memory.load64(HALF)) == (40, 42),
        "read" => {
            near.read(1024, &mut came);
            came == data
        }
        "inline" => {
            pair.far.memory.read(HALF, &mut came);
            came.starts_with(inline)
        }
        _ => {
            pair.far.memory.read(HALF, &mut came);
            came == data
        }
    };
    Ok(format!("{}; data {}", told(&done), if right { "right" } else { "wrong" }))
}

/// What fences and doorbells cost: no fence is without the other kind of page, so each is taken on its own and as part of a post.
pub(crate) fn doorbells(subject: &Subject, step: &mut Step) -> Result<(), Refusal> {
    use pollux_eal::barrier;
    let fence = |fence: fn()| (0..64).map(|_| timed(fence).0).collect();
    step.cost("fence_to_device", fence(barrier::to_device));
    step.cost("fence_from_device", fence(barrier::from_device));
    step.cost("fence_wc_flush", fence(barrier::wc_flush));
    let context = subject.context()?;
    let mut pair = Pair::new(&context)?;
    let data = pattern(9);
    for (name, copies) in [("head", false), ("blueflame", true)] {
        pair.near.qp.set_blueflame(copies);
        let (mut post, mut whole) = (Vec::new(), Vec::new());
        let mut right = 0;
        for round in 0..ROUNDS {
            pair.receive(round, MESSAGE)?;
            let mut batch = pair.near.qp.batch();
            let _ = batch.send(round).inline(&data[..16]).signalled();
            let begin = pollux_eal::clock::cycles::now_precise();
            let (cycles, posted) = timed(|| batch.ring());
            posted.map_err(refused)?;
            post.push(cycles);
            let done = pair.wait(2);
            whole.push(pollux_eal::clock::cycles::now_precise().wrapping_sub(begin));
            right += u64::from(done.len() == 2 && done.iter().all(|done| done.status == WcStatus::SUCCESS));
        }
        step.fact(format!("doorbell_{name}"), format!("{right} of {ROUNDS} sends came"));
        step.cost(format!("doorbell_{name}"), post);
        step.cost(format!("round_{name}"), whole);
    }
    Ok(())
}

/// What each mistake of the requester is answered with, and that both queue pairs work again afterwards.
pub(crate) fn errors(subject: &Subject, step: &mut Step) -> Result<(), Refusal> {
    let context = subject.context()?;
    let mut pair = Pair::new(&context)?;
    for name in ["wrong_key", "out_of_bounds", "no_receive", "short_receive"] {
        let near = pair.near.memory.clone();
        let (address, rkey) = (pair.far.memory.address() + HALF as u64, pair.far.memory.rkey());
        if name == "short_receive" {
            pair.receive(0, 8)?;
        }
        let mut batch = pair.near.qp.batch();
        let _ = match name {
            // A key that was never given out: its low byte alone is another one.
            "wrong_key" => batch.write(1, address, rkey ^ 0xff).mr(&near, 0..MESSAGE),
            "out_of_bounds" => batch.write(1, address + HALF as u64 - 8, rkey).mr(&near, 0..MESSAGE),
            _ => batch.send(1).mr(&near, 0..MESSAGE),
        }
        .signalled();
        batch.ring().map_err(refused)?;
        let done = pair.wait(if name == "short_receive" { 2 } else { 1 });
        step.fact(name, told(&done));
        let state = pair.near.qp.query().map_err(refused)?.qp_state;
        step.fact(format!("{name}_state"), QpState(state));
        // Whatever is posted now is flushed.
        let mut batch = pair.near.qp.batch();
        let _ = batch.send(2).mr(&near, 0..MESSAGE).signalled();
        let flushed = batch.ring().map(|_| told(&pair.wait(1)));
        step.outcome(format!("{name}_then"), flushed.map_err(refused));
        pair.recover()?;
        step.fact(format!("{name}_recovered"), operation(&mut pair, "send", 3)?);
    }
    Ok(())
}

/// Each kind of queue pair is made, asked and let go; completion queues are made, resized and moderated.
pub(crate) fn queues(subject: &Subject, step: &mut Step) -> Result<(), Refusal> {
    let context = subject.context()?;
    let pd = Pd::new(&context).map_err(refused)?;
    let (cycles, cq) = timed(|| Cq::new(&context, CqOptions::new(64)));
    let mut cq = cq.map_err(refused)?;
    step.cost("create_cq", vec![cycles]);
    step.fact("cq_entries", cq.entries());
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud, QpKind::Raw] {
        let name = format!("qp_{kind}").to_lowercase();
        let (cycles, made) = timed(|| Qp::new(&pd, &cq, &cq, &QpOptions::new(kind).inline(INLINE)));
        let qp = match made {
            Ok(qp) => qp,
            Err(error) => {
                step.refusal(name, refused(error));
                continue;
            }
        };
        step.cost(format!("create_{name}"), vec![cycles]);
        let sizes = qp.sizes();
        step.fact(
            &name,
            format!("sends={} receives={} inline={}", sizes.sends, sizes.receives, sizes.inline),
        );
        let state = qp.query().map(|told| QpState(told.qp_state).to_string());
        step.outcome(format!("{name}_state"), state.map_err(refused));
        let (cycles, ()) = timed(|| drop(qp));
        step.cost(format!("destroy_{name}"), vec![cycles]);
    }
    let resized = cq.resize(256).map(|()| format!("{} entries", cq.entries()));
    step.outcome("cq_resize", resized.map_err(refused));
    step.outcome("cq_moderate", cq.moderate(8, 16).map(|()| "ok").map_err(refused));
    Ok(())
}
