//! Cycles of posting and polling RDMA requests, and what they make the bus carry: on two stepped device models and the cable
//! between them.
//!
//! The models work between the calls, outside the time taken: what is measured is the library, from the call to the return. The
//! counter is read around each call; what two reads in a row cost is taken off, and printed. Each figure is the median of
//! [`ROUNDS`] rounds of [`REQUESTS`] requests, in cycles for a request, with the 10th and 90th percentile of the sum beside it, warm, and
//! cold: rings, records and data flushed before each call. Beside each stands the ratio to the yardstick of the machine, a plain
//! copy loop over as many bytes as the ledger has for the row's requests, timed in turn with it.
//! The bytes are those of the sending card's ledger, both ways, overhead included. A model that is not told of each store sees the
//! last doorbell of a round alone, and no copied entry: what each way costs, store by store, is in `tests/rdma/ledger.rs` of
//! `verbs`, equal to a count by hand.
//!
//! The operations are behind [`Library`]: another implementation of the same requests can be put beside ours, as another value of
//! that trait with a rig of its own. A row is a switch of a technique against the row before it:
//!
//! * inline: the data stand in the entry, or are fetched;
//! * BlueFlame: the entry goes along with the doorbell, or is fetched;
//! * batching: one doorbell for 1, 4 or 32 requests;
//! * selective signalling: a completion for each request or for one of 32;
//! * UD against RC fan-out: 32 peers behind one queue pair, or behind one each;
//! * receives in lists: one record for 1 or 32 receives, of a queue pair or a shared queue;
//! * linked receives: entries that were written once, and are posted as they stand.
//!
//! `cargo run --release -p pollux-benches --bin verbs_post [-- ROW]`: all rows, or those whose name contains ROW.
//! `verbs_post --trial [WORD]` is for `cargo xtask bench`: a line a figure whose name contains WORD, its name and its [`Trial`].
//! `verbs_post --beside FIGURE` is for `cargo xtask bench witness`: the [`Means`] of one figure, warm.
#![expect(unsafe_code, reason = "names the memory whose cache lines are flushed")]

use std::error::Error;
use std::process::ExitCode;

use pollux_benches::{Cold, Column, Means, Plan, Timed, Trial, columns, two_reads};
use pollux_bringup::program::tell;
use pollux_eal::clock::cycles::now_precise;
use pollux_eal::memory::Memory;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::Cable;
use pollux_verbs::{
    Access, Ah, Batch, Buf, Buffers, Connection, Context, Cq, CqOptions, Mr, Mtu, Options, Path, Pd,
    Provider, Qp, QpKind, QpOptions, Srq, SrqOptions, WcStatus,
};

const REQUESTS: usize = 32;
const ROUNDS: usize = 2000;
const WARM_UP: usize = 100;
const QKEY: u32 = 0x1111_1111;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// A message.
    Send,
    /// A write to the peer's memory.
    Write,
    /// A receive, posted.
    Receive,
}

/// Where its data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// In the request.
    Inline,
    /// In a buffer that moves into the queue.
    Buffer,
    /// In a region.
    Region,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// As `cargo xtask bench` calls it.
    figure: &'static str,
    name: &'static str,
    kind: QpKind,
    operation: Operation,
    data: Data,
    bytes: usize,
    /// Requests that go with one doorbell, or one record.
    batch: usize,
    signal_every: usize,
    blueflame: bool,
    /// Peers, in turn.
    peers: usize,
    /// Receives go through a shared queue.
    shared: bool,
    /// Receives are linked to the region, and posted as they stand.
    linked: bool,
    /// Completions that a call of poll takes at most.
    poll_most: usize,
}

impl Row {
    fn with(figure: &'static str, name: &'static str, change: impl FnOnce(&mut Self)) -> Self {
        let mut row = Self {
            figure,
            name,
            kind: QpKind::Rc,
            operation: Operation::Send,
            data: Data::Inline,
            bytes: 64,
            batch: 32,
            signal_every: 32,
            blueflame: false,
            peers: 1,
            shared: false,
            linked: false,
            poll_most: 64,
        };
        change(&mut row);
        row
    }
}

fn rows() -> Vec<Row> {
    vec![
        Row::with("verbs_send64", "RC SEND 64 B, inline, batch 32, signalled 1 in 32", |_| {}),
        Row::with("verbs_write8", "RC WRITE 8 B, inline, batch 32, signalled 1 in 32", |row| {
            (row.operation, row.bytes) = (Operation::Write, 8);
        }),
        Row::with("verbs_send64_buffer", "inline off: RC SEND 64 B, buffer", |row| row.data = Data::Buffer),
        Row::with("verbs_send64_region", "inline off: RC SEND 64 B, region", |row| row.data = Data::Region),
        Row::with("verbs_send64_signalled", "selective off: RC SEND 64 B, inline, each signalled", |row| {
            row.signal_every = 1;
        }),
        Row::with("verbs_send64_polled_singly", "RC SEND 64 B, each signalled and polled by a call", |row| {
            (row.signal_every, row.poll_most) = (1, 1);
        }),
        Row::with("verbs_write8_batch4", "batching: RC WRITE 8 B, inline, batch 4", |row| {
            (row.operation, row.bytes, row.batch) = (Operation::Write, 8, 4);
        }),
        Row::with("verbs_write8_single", "batching off: RC WRITE 8 B, inline, one a doorbell", |row| {
            (row.operation, row.bytes, row.batch) = (Operation::Write, 8, 1);
        }),
        Row::with("verbs_write8_blueflame", "BlueFlame: RC WRITE 8 B, inline, one a doorbell", |row| {
            (row.operation, row.bytes, row.batch, row.blueflame) = (Operation::Write, 8, 1, true);
        }),
        Row::with("verbs_send64_single", "batching off: RC SEND 64 B, inline, one a doorbell", |row| {
            row.batch = 1
        }),
        Row::with("verbs_fan_rc", "fan-out: RC SEND 8 B to 32 queue pairs, one each", |row| {
            (row.bytes, row.peers, row.batch, row.signal_every) = (8, 32, 1, 1);
        }),
        Row::with("verbs_fan_ud", "fan-out: UD SEND 8 B to 32 peers, one queue pair, batch 32", |row| {
            (row.bytes, row.peers, row.kind) = (8, 32, QpKind::Ud);
        }),
        Row::with("verbs_receive", "receives in a list of 32", |row| {
            (row.operation, row.data) = (Operation::Receive, Data::Buffer);
        }),
        Row::with("verbs_receive_single", "receives one by one", |row| {
            (row.operation, row.data, row.batch) = (Operation::Receive, Data::Buffer, 1);
        }),
        Row::with("verbs_receive_region", "receives into a region, in a list of 32", |row| {
            (row.operation, row.data) = (Operation::Receive, Data::Region);
        }),
        Row::with("verbs_receive_linked", "linked: receives into a region, as they stand", |row| {
            (row.operation, row.data, row.linked) = (Operation::Receive, Data::Region, true);
        }),
        Row::with("verbs_receive_shared", "receives of a shared queue, in a list of 32", |row| {
            (row.operation, row.data, row.shared) = (Operation::Receive, Data::Buffer, true);
        }),
        Row::with("verbs_receive_shared_single", "receives of a shared queue, one by one", |row| {
            (row.operation, row.data, row.shared, row.batch) = (Operation::Receive, Data::Buffer, true, 1);
        }),
    ]
}

/// What posts and polls. The calls are timed; all else happens between them.
trait Library {
    /// Gets ready for a round, untimed: receives for what will be sent, buffers for what will be posted.
    fn prepare(&mut self) -> Result<(), Box<dyn Error>>;
    /// Posts the row's requests. Timed.
    fn post(&mut self);
    /// Lets the devices work, untimed.
    fn work(&mut self);
    /// Takes the completions of the round; how many. Timed.
    fn poll(&mut self) -> usize;
}

/// One end.
struct End {
    model: Model,
    memory: Memory,
    pd: Pd,
    cq: Cq,
    gid: [u8; 16],
    buffers: Buffers,
    region: Mr,
}

fn end(name: &str, plug: Cable) -> Result<End, Box<dyn Error>> {
    let model = Model::builder(name).plugged(plug).stepped().build()?;
    let memory = Memory::ordinary();
    let options = Options { memory: memory.clone(), ..Options::default() };
    let context = Context::open(model.open(), Provider::Mlx5, options)?;
    let pd = Pd::new(&context)?;
    let gid = context.gid(1, 0)?.ok_or("no GID")?.gid;
    let cq = Cq::new(&context, CqOptions::new(4096))?;
    let buffers = Buffers::new(&pd, 256, 256)?;
    let region = Mr::allocate(&pd, 65536, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    Ok(End { model, memory, pd, cq, gid, buffers, region })
}

/// Ours.
struct Ours {
    row: Row,
    near: End,
    far: End,
    senders: Vec<Qp>,
    receivers: Vec<Qp>,
    srq: Option<Srq>,
    addresses: Vec<(Ah, u32)>,
    held: Vec<Buf>,
    payload: Vec<u8>,
    target: (u64, u32),
}

impl Ours {
    fn new(row: Row) -> Result<Self, Box<dyn Error>> {
        let (near, far) = Cable::pair();
        let (near, far) = (end("verbs_bench0", near)?, end("verbs_bench1", far)?);
        let options = QpOptions {
            blueflame: row.blueflame,
            ..QpOptions::new(row.kind).depth(128, 128).inline(if row.data == Data::Inline { 64 } else { 0 })
        };
        let queue_pairs = if row.kind == QpKind::Ud { 1 } else { row.peers };
        let mut srq = if row.shared { Some(Srq::new(&far.pd, &SrqOptions::new(255))?) } else { None };
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..queue_pairs {
            let mut sender = Qp::new(&near.pd, &near.cq, &near.cq, &options)?;
            let mut receiver = match &mut srq {
                Some(srq) => Qp::with_srq(&far.pd, &far.cq, &far.cq, srq, &options)?,
                None => Qp::new(&far.pd, &far.cq, &far.cq, &options)?,
            };
            if row.kind == QpKind::Ud {
                sender.ready_datagram(1, QKEY, 0)?;
                receiver.ready_datagram(1, QKEY, 0)?;
            } else {
                sender.init(1, Access::REMOTE_WRITE)?;
                receiver.init(1, Access::REMOTE_WRITE)?;
                sender.connect(&Connection {
                    mtu: Mtu::Bytes4096,
                    ..Connection::new(Path::new(far.gid, 0), receiver.qpn())
                })?;
                receiver.connect(&Connection {
                    mtu: Mtu::Bytes4096,
                    ..Connection::new(Path::new(near.gid, 0), sender.qpn())
                })?;
            }
            senders.push(sender);
            receivers.push(receiver);
        }
        if row.linked {
            receivers[0].link_receives(&far.region, 64)?;
        }
        let qpn = receivers[0].qpn();
        let addresses = if row.kind == QpKind::Ud {
            let each = |_| Ok((Ah::new(&near.pd, &Path::new(far.gid, 0))?, qpn));
            (0..row.peers).map(each).collect::<Result<_, Box<dyn Error>>>()?
        } else {
            Vec::new()
        };
        let target = (far.region.address(), far.region.rkey());
        let payload = vec![0x5a; row.bytes];
        Ok(Self { row, near, far, senders, receivers, srq, addresses, held: Vec::new(), payload, target })
    }

    /// Receives for what a round sends.
    fn supply(&mut self) -> Result<(), Box<dyn Error>> {
        if self.row.operation != Operation::Send {
            return Ok(());
        }
        let each = REQUESTS / self.receivers.len();
        for receiver in &mut self.receivers {
            let mut receives = receiver.receives().ok_or("no receives")?;
            for id in 0..each {
                receives.mr(id as u64, &self.far.region, 0..256);
            }
            receives.ring()?;
        }
        Ok(())
    }

    /// Posts requests of `BYTES` to the one peer.
    #[inline(always)]
    fn post_known<const BYTES: usize>(&mut self, begin: impl Begin) {
        let Self { row, near, senders, held, payload, .. } = self;
        let (row, sender) = (*row, &mut senders[0]);
        match row.data {
            Data::Inline => {
                let payload: &[u8; BYTES] = payload.as_slice().try_into().expect("made of so many");
                rounds(row, sender, begin, |request| request.inline(payload));
            }
            Data::Buffer => {
                rounds(row, sender, begin, |request| request.piece(held.pop().expect("prepared")))
            }
            Data::Region => rounds(row, sender, begin, |request| request.mr(&near.region, 0..BYTES)),
        }
    }

    fn post_receives(&mut self) {
        let Self { row, far, held, srq, receivers, .. } = self;
        for _ in 0..REQUESTS / row.batch {
            if row.linked {
                receivers[0].post_linked(row.batch as u32).expect("room for them");
                continue;
            }
            let mut receives = match srq {
                Some(srq) => srq.receives(),
                None => receivers[0].receives().expect("its own"),
            };
            for id in 0..row.batch {
                match row.data {
                    Data::Region => receives.mr(id as u64, &far.region, id * 64..(id + 1) * 64),
                    _ => receives.piece(id as u64, held.pop().expect("prepared")),
                };
            }
            receives.ring().expect("room for them");
        }
    }
}

/// Begins a request. No closure: where the compiler makes a call of that, the batch lies in memory, and each request waits for what the
/// last one stored. A program that names the operation where it posts has no such call.
trait Begin {
    fn begin<'b, 'q>(&self, batch: &'b mut Batch<'q>, id: u64) -> &'b mut Batch<'q>;
}

/// A message.
struct Message;

impl Begin for Message {
    #[inline(always)]
    fn begin<'b, 'q>(&self, batch: &'b mut Batch<'q>, id: u64) -> &'b mut Batch<'q> {
        batch.send(id)
    }
}

/// A write to the peer's memory.
struct ToMemory {
    address: u64,
    rkey: u32,
}

impl Begin for ToMemory {
    #[inline(always)]
    fn begin<'b, 'q>(&self, batch: &'b mut Batch<'q>, id: u64) -> &'b mut Batch<'q> {
        batch.write(id, self.address, self.rkey)
    }
}

/// Posts a round of requests, each begun and given its data by code that is known when this is built.
#[inline(always)]
fn rounds(
    row: Row,
    sender: &mut Qp,
    begin: impl Begin,
    mut give: impl for<'b, 'q> FnMut(&'b mut Batch<'q>) -> &'b mut Batch<'q>,
) {
    let (mut number, mut silent) = (0, row.signal_every);
    while number < REQUESTS as u64 {
        let mut batch = sender.batch();
        for _ in 0..row.batch {
            let request = give(begin.begin(&mut batch, number));
            number += 1;
            silent -= 1;
            if silent == 0 {
                silent = row.signal_every;
                request.signalled();
            }
        }
        batch.ring().expect("room for them");
    }
}

impl Library for Ours {
    fn prepare(&mut self) -> Result<(), Box<dyn Error>> {
        self.supply()?;
        let pool =
            if self.row.operation == Operation::Receive { &self.far.buffers } else { &self.near.buffers };
        while self.row.data == Data::Buffer && self.held.len() < REQUESTS {
            let mut buf = pool.take().ok_or("no buffer is left")?;
            buf.set_len(self.row.bytes);
            self.held.push(buf);
        }
        Ok(())
    }

    #[inline(never)]
    fn post(&mut self) {
        if self.row.operation == Operation::Receive {
            return self.post_receives();
        }
        // What a program knows when it is built is known here too: what it posts, and how long it is.
        match (self.row.operation, self.row.peers, self.row.bytes) {
            (Operation::Write, 1, 8) => {
                let (address, rkey) = self.target;
                return self.post_known::<8>(ToMemory { address, rkey });
            }
            (Operation::Send, 1, 64) => return self.post_known::<64>(Message),
            _ => {}
        }
        let Self { row, near, senders, addresses, held, payload, target, .. } = self;
        // No division in the loop: it would cost as much as the request.
        let (mut number, mut silent) = (0, row.signal_every);
        while number < REQUESTS {
            // As many requests a round as there are peers, or one peer alone.
            let which = if senders.len() == 1 { 0 } else { number };
            let mut batch = senders[which].batch();
            for _ in 0..row.batch {
                match row.operation {
                    Operation::Write => batch.write(number as u64, target.0, target.1),
                    _ => batch.send(number as u64),
                };
                if let Some((ah, qpn)) = addresses.get(number) {
                    batch.to(ah, *qpn, QKEY);
                }
                match row.data {
                    Data::Inline => batch.inline(payload),
                    Data::Buffer => batch.piece(held.pop().expect("prepared")),
                    Data::Region => batch.mr(&near.region, 0..row.bytes),
                };
                number += 1;
                silent -= 1;
                if silent == 0 {
                    silent = row.signal_every;
                    batch.signalled();
                }
            }
            batch.ring().expect("room for them");
        }
    }

    fn work(&mut self) {
        loop {
            let near = self.near.model.settle();
            let far = self.far.model.settle();
            if near + far == 0 {
                break;
            }
        }
        if self.row.operation != Operation::Receive {
            self.far.cq.poll(usize::MAX, |wc| assert!(wc.is_ok(), "{wc:?}"));
        }
    }

    #[inline(never)]
    fn poll(&mut self) -> usize {
        let (held, cq) = match self.row.operation {
            Operation::Receive => (&mut self.held, &mut self.far.cq),
            _ => (&mut self.held, &mut self.near.cq),
        };
        let (takes, most) = (self.row.data == Data::Buffer, self.row.poll_most);
        let mut done = 0;
        loop {
            let taken = cq.poll(most, |wc| {
                debug_assert_eq!(wc.status(), WcStatus::SUCCESS);
                if takes {
                    while let Some(buf) = wc.take_buf() {
                        held.push(buf);
                    }
                }
            });
            done += taken;
            // Another call would find nothing.
            if taken < most || done == REQUESTS {
                return done;
            }
        }
    }
}

impl Ours {
    /// Of receives: the peer sends what fills them, untimed.
    fn feed(&mut self) -> Result<(), Box<dyn Error>> {
        if self.row.operation != Operation::Receive {
            return Ok(());
        }
        let mut batch = self.senders[0].batch();
        for id in 0..REQUESTS {
            batch.send(id as u64).mr(&self.near.region, 0..self.row.bytes);
        }
        batch.signalled();
        batch.ring()?;
        self.work();
        self.near.cq.poll(64, |wc| assert!(wc.is_ok(), "{wc:?}"));
        Ok(())
    }
}

impl Timed for Ours {
    type Error = Box<dyn Error>;

    fn round(&mut self, chill: &dyn Fn()) -> Result<[u64; 2], Box<dyn Error>> {
        self.prepare()?;
        chill();
        let start = now_precise();
        self.post();
        let posted = now_precise() - start;
        self.work();
        self.feed()?;
        chill();
        let start = now_precise();
        let done = self.poll();
        let polled = now_precise() - start;
        let Row { operation, signal_every, name, .. } = self.row;
        let expected = if operation == Operation::Receive { REQUESTS } else { REQUESTS / signal_every };
        if done != expected {
            return Err(format!("{name}: {done} completions of {expected}").into());
        }
        Ok([posted, polled])
    }

    fn bytes(&self) -> u64 {
        let end = if self.row.operation == Operation::Receive { &self.far } else { &self.near };
        let spent = end.model.ledger();
        spent.bytes_to_device() + spent.bytes_from_device()
    }
}

const fn plan(overhead: u64) -> Plan {
    Plan { rounds: ROUNDS, warm_up: WARM_UP, operations: REQUESTS, overhead }
}

/// Takes what is wanted of a row's rounds.
fn run<T>(
    row: Row,
    take: impl FnOnce(&mut Ours, &Cold) -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let mut library = Ours::new(row)?;
    let mut lines = Cold::new();
    // SAFETY: rings, records, regions and buffers live as long as the ends.
    unsafe {
        for end in [&library.near, &library.far] {
            lines.zones(&end.memory);
        }
    }
    let taken = take(&mut library, &lines)?;
    for end in [&library.near, &library.far] {
        let (violation, violations) = end.model.device().violations();
        if violations != 0 {
            return Err(format!("{}: {violations} rules broken, first {violation:?}", row.name).into());
        }
    }
    Ok(taken)
}

/// What a row came to, warm and cold; and bytes on the bus for a request.
fn measure(row: Row, overhead: u64) -> Result<([Column; 2], f64), Box<dyn Error>> {
    run(row, |library, lines| columns(plan(overhead), lines, library))
}

fn table() -> Result<(), Box<dyn Error>> {
    let mut wanted = std::env::args().skip(1).peekable();
    let trial = wanted.next_if_eq("--trial").is_some();
    let beside = wanted.next_if_eq("--beside").is_some();
    let wanted = wanted.next().unwrap_or_default();
    let overhead = two_reads();
    if trial {
        for row in rows().into_iter().filter(|row| row.figure.contains(&wanted)) {
            let trial = Trial::of(&measure(row, overhead)?.0);
            tell(format_args!("{} {trial}", row.figure));
        }
        return Ok(());
    }
    if beside {
        let row = rows().into_iter().find(|row| row.figure == wanted);
        let row = row.ok_or_else(|| format!("there is no row {wanted}"))?;
        let means = run(row, |library, _| Means::take(plan(overhead), library))?;
        // The second part by completions, as the peer has it.
        let second = means.second * row.signal_every as f64;
        tell(format_args!("{}", Means { second, ..means }));
        return Ok(());
    }
    tell(format_args!(
        "cycles for a request, in rounds of {REQUESTS}; two reads of the counter cost {overhead} and are taken off"
    ));
    tell(format_args!(
        "row | warm: post poll sum (10%..90%) sum/copy loop | cold: the same | bytes on PCIe for a request, both ways"
    ));
    for row in rows().into_iter().filter(|row| row.name.contains(&wanted) || row.figure.contains(&wanted)) {
        match measure(row, overhead) {
            Ok(([warm, cold], bytes)) => {
                tell(format_args!("{:<62} | {warm} | {cold} | {bytes:.1}", row.name));
            }
            Err(why) => tell(format_args!("{:<62} | not measured: {why}", row.name)),
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("verbs_post: {why}");
            ExitCode::FAILURE
        }
    }
}
