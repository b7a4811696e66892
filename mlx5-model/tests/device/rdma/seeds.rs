//! Runs by seed: operations of all kinds with all forms of local memory, over a wire that loses, doubles, reorders and delays,
//! against plain arrays. `POLLUX_SEEDS` is how many seeds are run; 200 if it is not set.

use std::time::Duration;

use pollux_mlx5_abi::command::qp::context::service;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::{Atomic, Completion, Fence, INVALID_LKEY};
use pollux_mlx5_abi::wqe::{Data, InlineHeader};
use pollux_mlx5_model::wire::Impairments;
use zerocopy::IntoBytes;

use super::node::{Ends, Pair, Plan, data, remote};
use super::shared::Shared;
use crate::rig::HCA_DELTA;

/// The same sequence for the same seed: xorshift64*.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Bytes of the area that a side's peer may write to, and of its neighbours that it may not.
const AREA: usize = 0x6000;
const GUARD: usize = 0x800;
const WORK: usize = 24;
const MESSAGE_MAX: u64 = 5000;

/// Local memory of one request: segments, and what they hold.
fn source(ends: &Ends, chance: &mut Chance, at: u64, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let content: Vec<u8> = (0..bytes).map(|_| chance.next() as u8).collect();
    let mut body = Vec::new();
    if bytes <= 200 && chance.one_in(2) {
        body.extend(InlineHeader::new(bytes as u32).as_bytes());
        body.extend(&content);
        body.resize(body.len().next_multiple_of(16), 0);
        return (body, content);
    }
    ends.a.rig.write(at, &content);
    (pieces(ends.a.rig.lkey, chance, at, bytes), content)
}

/// Data segments over a stretch of memory, one or many.
fn pieces(key: u32, chance: &mut Chance, at: u64, bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let (mut done, count) = (0, 1 + chance.below(4));
    for piece in 0..count {
        let left = bytes - done;
        let length = if piece + 1 == count { left } else { chance.below(left as u64 + 1) as usize };
        if length > 0 {
            body.extend(data(key, at + done as u64, length as u32));
            done += length;
        }
    }
    body
}

/// What a request must have come to.
enum Expected {
    Nothing,
    /// So many bytes are at this address.
    Local(u64, Vec<u8>),
}

#[expect(clippy::too_many_lines, reason = "one run, from set-up to comparison")]
fn run(seed: u64) {
    let mut chance = Chance::new(seed);
    let service =
        [service::RC, service::RC, service::XRC, service::UC, service::UD][chance.below(5) as usize];
    let reliable = matches!(service, service::RC | service::XRC);
    let lossy = reliable && !chance.one_in(4);
    let share = |chance: &mut Chance| if lossy { chance.below(60) as f64 / 1000.0 } else { 0.0 };
    let impairments = Impairments {
        loss: share(&mut chance),
        reorder: share(&mut chance),
        dup: share(&mut chance),
        corrupt: share(&mut chance) / 4.0,
        delay: Duration::from_micros(if lossy { chance.below(8) } else { 0 }),
        seed,
    };
    let selective = chance.one_in(2);
    let ends = Ends::with(impairments, |traits| traits.selective_repeat = selective);
    let plan = Plan {
        service,
        mtu: 1 + chance.below(5) as u32,
        psn: chance.next() as u32 & 0xff_ffff,
        timeout: 4,
        retries: 7,
        log_reads: chance.below(4) as u32,
        xrc_domain: ends.domain(service),
        ..Plan::default()
    };
    let (mut a, mut b) = ends.connected(plan);
    let mtu = 128 << plan.mtu;
    let most = if service == service::UD { mtu } else { MESSAGE_MAX };
    // The peer's: an area to write to, one to read from, cells for atomics; what is around them is not touched.
    let target = ends.b.rig.room(AREA + 2 * GUARD);
    let mut memory: Vec<u8> = (0..AREA + 2 * GUARD).map(|_| chance.next() as u8).collect();
    ends.b.rig.write(target, &memory);
    let write_key = ends.b.key(target + GUARD as u64, AREA as u64, |_| {});
    let store = ends.b.rig.room(AREA);
    let stored: Vec<u8> = (0..AREA).map(|_| chance.next() as u8).collect();
    ends.b.rig.write(store, &stored);
    let read_key = ends.b.key(store, AREA as u64, |_| {});
    let cells = ends.b.rig.room(64);
    let cell_key = ends.b.key(cells, 64, |_| {});
    let mut values = [0_u64; 8];
    // Ours.
    let local = ends.a.rig.room(WORK * 0x1800);
    // Receive entries of several pieces.
    let inbox = ends.b.rig.room(WORK * 0x1800);
    let room = MESSAGE_MAX as u32 + 40;
    let late = reliable && chance.one_in(3);
    let mut to_post = 0..WORK as u64;
    let mut shared = (service == service::XRC).then(|| Shared::xrc(&ends.b, plan.xrc_domain, &b.receive_cq));
    let xrc = shared.as_ref().map_or_else(Vec::new, Shared::segment);
    let mut post = |b: &mut Pair, index: u64| {
        let at = inbox + index * 0x1800;
        if let Some(shared) = &mut shared {
            shared.post(&ends.b, at, room);
            return;
        }
        let (one, two) = (100, 1000);
        let key = ends.b.rig.lkey;
        b.rq.post(
            &ends.b.rig,
            &[
                Data::new(one, key, at + HCA_DELTA),
                Data::new(two, key, at + 100 + HCA_DELTA),
                Data::new(room - 1100, key, at + 1100 + HCA_DELTA),
                Data::new(0, INVALID_LKEY, 0),
            ],
        );
    };
    if !late {
        to_post.by_ref().for_each(|index| post(&mut b, index));
    }
    let (mut expected, mut received) = (Vec::new(), Vec::new());
    let mut posted = 0;
    while posted < WORK {
        // Several entries to one doorbell.
        for _ in 0..(1 + chance.below(6)).min((WORK - posted) as u64) {
            let bytes = if chance.one_in(8) { 0 } else { 1 + chance.below(most) } as usize;
            let at = local + posted as u64 * 0x1800;
            let kinds = if reliable {
                7
            } else if service == service::UC {
                4
            } else {
                2
            };
            let fence = if chance.one_in(6) { Fence::Fence as u8 } else { 0 };
            let flags = Completion::Always as u8 | fence;
            let imm = chance.next() as u32;
            let to = GUARD + chance.below((AREA as u64) - most) as usize;
            let kind = chance.below(kinds);
            let (opcode, body) = match kind {
                0 | 1 => {
                    let (segments, content) = source(&ends, &mut chance, at, bytes);
                    let opcode = if kind == 0 { send::SEND } else { send::SEND_IMM };
                    let came =
                        if kind == 0 { completion::RESPONDER_SEND } else { completion::RESPONDER_SEND_IMM };
                    received.push((came, content, imm));
                    let mut body = xrc.clone();
                    if service == service::UD {
                        body.extend(super::node::vector(&ends.b, b.number, plan.qkey));
                    }
                    body.extend(segments);
                    expected.push(Expected::Nothing);
                    (opcode, body)
                }
                2 | 3 => {
                    let (segments, content) = source(&ends, &mut chance, at, bytes);
                    memory[to..to + bytes].copy_from_slice(&content);
                    let mut body = xrc.clone();
                    body.extend(remote(write_key, target + to as u64));
                    body.extend(segments);
                    expected.push(Expected::Nothing);
                    if kind == 3 {
                        received.push((completion::RESPONDER_RDMA_WRITE_IMM, vec![0; bytes], imm));
                    }
                    (if kind == 2 { send::RDMA_WRITE } else { send::RDMA_WRITE_IMM }, body)
                }
                4 => {
                    let from = chance.below(AREA as u64 - most) as usize;
                    let mut body = xrc.clone();
                    body.extend(remote(read_key, store + from as u64));
                    body.extend(pieces(ends.a.rig.lkey, &mut chance, at, bytes));
                    expected.push(Expected::Local(at, stored[from..from + bytes].to_vec()));
                    (send::RDMA_READ, body)
                }
                _ => {
                    let cell = chance.below(8) as usize;
                    let old = values[cell];
                    let (swap_add, compare) = (chance.next(), if chance.one_in(2) { old } else { old ^ 1 });
                    values[cell] = match kind {
                        5 => old.wrapping_add(swap_add),
                        _ if old == compare => swap_add,
                        _ => old,
                    };
                    let mut body = xrc.clone();
                    body.extend(remote(cell_key, cells + cell as u64 * 8));
                    body.extend(Atomic { swap_add: swap_add.into(), compare: compare.into() }.as_bytes());
                    body.extend(data(ends.a.rig.lkey, at, 8));
                    expected.push(Expected::Local(at, old.to_le_bytes().to_vec()));
                    (if kind == 5 { send::ATOMIC_FA } else { send::ATOMIC_CS }, body)
                }
            };
            a.post(&ends.a, opcode, flags, imm, &body);
            posted += 1;
        }
        a.sq.ring(&ends.a.rig);
        ends.steps(chance.below(20) as usize);
        if late {
            to_post.by_ref().take(3).for_each(|index| post(&mut b, index));
        }
    }
    to_post.for_each(|index| post(&mut b, index));
    let (mut done, mut last) = (0, None);
    for step in 0..60_000 {
        ends.step();
        while let Some(entry) = a.send_cq.poll(&ends.a.rig) {
            assert_eq!(entry.opcode(), completion::REQUESTER, "seed {seed}: {entry:?}");
            assert!(last < Some(entry.wqe_counter.get()), "seed {seed}: out of order");
            last = Some(entry.wqe_counter.get());
            done += 1;
        }
        if done == WORK {
            break;
        }
        assert!(
            step < 59_999,
            "seed {seed}: {done} of {WORK} done, {}",
            if selective { "selective" } else { "go-back-N" }
        );
    }
    ends.steps(200);
    assert!(a.send_cq.poll(&ends.a.rig).is_none(), "seed {seed}: more completions than work");
    for (index, what) in expected.iter().enumerate() {
        if let Expected::Local(at, content) = what {
            assert!(
                ends.a.rig.read(*at, content.len()) == *content,
                "seed {seed}: what entry {index} fetched"
            );
        }
    }
    assert!(ends.b.rig.read(target, memory.len()) == memory, "seed {seed}: memory that was written to");
    assert!(ends.b.rig.read(store, AREA) == stored, "seed {seed}: memory that was read");
    let left: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(ends.b.rig.read(cells, 64), left, "seed {seed}: cells of atomics");
    let global = if service == service::UD { 40 } else { 0 };
    for (index, (opcode, content, imm)) in received.iter().enumerate() {
        let entry = b.receive_cq.poll(&ends.b.rig).unwrap_or_else(|| panic!("seed {seed}: receive {index}"));
        assert_eq!(entry.opcode(), *opcode, "seed {seed}: receive {index}");
        assert_eq!(entry.byte_cnt.get() as usize, content.len() + global, "seed {seed}: receive {index}");
        assert_eq!(usize::from(entry.wqe_counter.get()), index, "seed {seed}");
        if *opcode != completion::RESPONDER_SEND {
            assert_eq!(entry.imm_inval_pkey.get(), *imm, "seed {seed}: receive {index}");
        }
        if *opcode != completion::RESPONDER_RDMA_WRITE_IMM {
            let at = inbox + index as u64 * 0x1800 + global as u64;
            assert!(ends.b.rig.read(at, content.len()) == *content, "seed {seed}: message {index}");
        }
    }
    assert!(b.receive_cq.poll(&ends.b.rig).is_none(), "seed {seed}: more receives than messages");
}

#[test]
fn every_run_agrees_with_plain_memory() {
    let seeds = pollux_tests::amount::amount("POLLUX_SEEDS", 200);
    for seed in 1..=seeds {
        run(seed);
    }
}

/// Without acknowledgement messages may be lost, and come twice or out of order: what comes is whole, and what was sent is
/// reported once, in order.
#[test]
fn what_nobody_acknowledges_is_whole_if_it_comes() {
    let mut arrived = 0;
    for seed in 1..=30 {
        let mut chance = Chance::new(seed);
        let service = [service::UC, service::UD][chance.below(2) as usize];
        let impairments = Impairments {
            loss: 0.05,
            reorder: 0.05,
            dup: 0.05,
            corrupt: 0.02,
            seed,
            ..Impairments::default()
        };
        let ends = Ends::with(impairments, |_| {});
        let plan = Plan { service, mtu: 1 + chance.below(5) as u32, ..Plan::default() };
        let (mut a, mut b) = ends.connected(plan);
        let most = if service == service::UD { 128 << plan.mtu } else { 4000 };
        let (from, to) = (ends.a.rig.room(WORK * 0x1000), ends.b.rig.room(2 * WORK * 0x1100));
        for index in 0..2 * WORK as u64 {
            b.receive(&ends.b, ends.b.rig.lkey, to + index * 0x1100, 0x1100);
        }
        let mut sent = Vec::new();
        for index in 0..WORK {
            let bytes = 1 + chance.below(most) as usize;
            let content: Vec<u8> = (0..bytes).map(|_| chance.next() as u8).collect();
            let at = from + index as u64 * 0x1000;
            ends.a.rig.write(at, &content);
            let mut body = if service == service::UD {
                super::node::vector(&ends.b, b.number, plan.qkey)
            } else {
                Vec::new()
            };
            body.extend(data(ends.a.rig.lkey, at, bytes as u32));
            a.post(&ends.a, send::SEND_IMM, Completion::Always as u8, index as u32, &body);
            a.sq.ring(&ends.a.rig);
            sent.push(content);
            ends.steps(2);
        }
        ends.steps(20);
        let mut last = None;
        for _ in 0..WORK {
            let entry = a.done(&ends.a);
            assert_eq!(entry.opcode(), completion::REQUESTER, "seed {seed}");
            assert!(last < Some(entry.wqe_counter.get()), "seed {seed}");
            last = Some(entry.wqe_counter.get());
        }
        assert!(a.send_cq.poll(&ends.a.rig).is_none(), "seed {seed}");
        let global = if service == service::UD { 40 } else { 0 };
        while let Some(entry) = b.receive_cq.poll(&ends.b.rig) {
            assert_eq!(entry.opcode(), completion::RESPONDER_SEND_IMM, "seed {seed}");
            let content = &sent[entry.imm_inval_pkey.get() as usize];
            assert_eq!(entry.byte_cnt.get() as usize, content.len() + global, "seed {seed}");
            let at = to + u64::from(entry.wqe_counter.get()) * 0x1100 + global as u64;
            assert!(ends.b.rig.read(at, content.len()) == *content, "seed {seed}");
            arrived += 1;
        }
    }
    assert!(arrived > 15 * WORK, "{arrived} of {} came", 30 * WORK);
}
