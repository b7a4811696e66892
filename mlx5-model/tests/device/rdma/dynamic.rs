//! Dynamic connections: initiators, their streams, and targets.

mod command;
mod hostile;

use pollux_mlx5_abi::command::counter::{AllocQCounterOut, QueryQCounterIn, QueryQCounterOut};
use pollux_mlx5_abi::command::dct::{
    CreateDctIn, DctContext, DestroyDctIn, QueryDctOut, state as target_state, stream,
};
use pollux_mlx5_abi::command::qp::context::{QpContext, service, state};
use pollux_mlx5_abi::command::qp::{TransitionIn, TransitionOut};
use pollux_mlx5_abi::command::{Refused, opcode as op, source_port, status};
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::{AddressVector, Atomic, Completion, Control, EXTENDED_UD_AV, GRH_PRESENT};
use pollux_mlx5_model::wire::Impairments;
use zerocopy::IntoBytes;

use super::node::{Ends, Node, Pair, Plan, data, remote};
use super::shared::Shared;
use crate::rig::{Cq, number};

const KEY: u64 = 0x1122_3344_5566_7788;
const NAME: u32 = 0x55;

/// A target, its receive entries, its completion queue.
struct Target {
    number: u32,
    shared: Shared,
    cq: Cq,
}

fn ends() -> Ends {
    Ends::with(Impairments::default(), |traits| traits.dynamic_connections = true)
}

fn create(node: &Node, context: [u8; 64], output: usize) -> Result<Vec<u8>, Refused> {
    let mut input = CreateDctIn::ZERO;
    CreateDctIn::DCT_CONTEXT_ENTRY.set(&mut input, context);
    node.rig.command(op::CREATE_DCT, 0, &mut input, output)
}

fn context(node: &Node, pool: u32, cqn: u32) -> [u8; 64] {
    use DctContext as D;
    let mut context = D::ZERO;
    D::PD.set(&mut context, node.rig.pd);
    D::CQN.set(&mut context, cqn);
    D::SRQN_XRQN.set(&mut context, pool);
    D::USER_INDEX.set(&mut context, NAME);
    D::DC_ACCESS_KEY.set(&mut context, KEY);
    D::MTU.set(&mut context, 3);
    D::PORT.set(&mut context, 1);
    D::HOP_LIMIT.set(&mut context, 64);
    D::MIN_RNR_NAK.set(&mut context, 1);
    for right in [D::RRE, D::RWE, D::RAE] {
        right.set(&mut context, 1);
    }
    context
}

impl Target {
    fn new(node: &Node) -> Self {
        Self::with(node, |_| {})
    }

    fn with(node: &Node, change: impl FnOnce(&mut [u8; 64])) -> Self {
        let (shared, cq) = (Shared::pool(node), node.rig.cq(7));
        let mut context = context(node, shared.number, cq.number);
        change(&mut context);
        let number = number(&create(node, context, 16).expect("a target"));
        Self { number, shared, cq }
    }

    fn query(&self, node: &Node) -> [u8; 64] {
        let out = named(node, op::QUERY_DCT, self.number, QueryDctOut::BYTES).expect("its context");
        QueryDctOut::DCT_CONTEXT_ENTRY.get(out.first_chunk().expect("an answer"))
    }
}

/// A command that names an object in its third dword.
fn named(node: &Node, opcode: u16, number: u32, output: usize) -> Result<Vec<u8>, Refused> {
    let mut input = DestroyDctIn::ZERO;
    DestroyDctIn::DCTN.set(&mut input, number);
    node.rig.command(opcode, 0, &mut input, output)
}

/// An initiator that sends.
fn initiator(ends: &Ends, plan: Plan, change: impl FnOnce(&mut [u8; QpContext::BYTES])) -> Pair {
    let shared = Shared::pool(&ends.a);
    let plan = Plan { service: service::DCI, pool: Some(shared.number), ..plan };
    let pair = ends.a.pair_with(plan, change);
    ready(ends, &pair);
    pair
}

fn ready(ends: &Ends, pair: &Pair) {
    ends.a.to_init(pair);
    ends.a.to_receive(pair, &ends.b, 0, &pair.plan, |_| {});
    ends.a.to_send(pair);
}

/// Where a request goes.
fn to(node: &Node, target: u32, key: u64) -> Vec<u8> {
    let vector = AddressVector {
        key: key.into(),
        dqp_dct: (EXTENDED_UD_AV | target).into(),
        rmac: node.mac,
        hop_limit: 64,
        grh_gid_fl: GRH_PRESENT.into(),
        rgid: node.gid,
        ..AddressVector::default()
    };
    vector.as_bytes().to_vec()
}

fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

/// An entry of a stream.
fn post(pair: &mut Pair, node: &Node, of: u16, opcode: u8, body: &[u8]) {
    let segments = 1 + body.len().div_ceil(16);
    let flags = Completion::Always as u8;
    let control = Control::new(opcode, 0, pair.sq.next, pair.number, segments as u8, flags, 0);
    let control = Control { dci_stream_channel_id: of.to_be_bytes(), ..control };
    pair.sq.write_raw(&node.rig, &control, body);
    pair.sq.ring(&node.rig);
}

fn streams(context: &mut [u8; QpContext::BYTES]) {
    QpContext::LOG_NUM_DCI_STREAM_CHANNELS.set(context, 3);
    QpContext::LOG_NUM_DCI_ERRORED_STREAMS.set(context, 1);
}

#[test]
fn an_initiator_does_all_that_a_connection_does() {
    let ends = ends();
    let counters = AllocQCounterOut::COUNTER_SET_ID
        .get(ends.b.rig.must(op::ALLOC_Q_COUNTER, 0, &mut [0; 16], 16).first_chunk().expect("an answer"));
    let mut b = Target::with(&ends.b, |context| DctContext::COUNTER_SET_ID.set(context, counters));
    let mut a = initiator(&ends, Plan::default(), |_| {});
    let (here, there) = (ends.a.rig.room(0x4000), ends.b.rig.room(0x8000));
    let key = ends.b.key(there, 0x8000, |_| {});
    ends.a.rig.write(here, &[7; 3000]);
    let (vector, local) = (to(&ends.b, b.number, KEY), |bytes| data(ends.a.rig.lkey, here, bytes));
    for (opcode, kind) in
        [(send::SEND, completion::RESPONDER_SEND), (send::SEND_IMM, completion::RESPONDER_SEND_IMM)]
    {
        b.shared.post(&ends.b, there, 0x4000);
        a.send(&ends.a, opcode, &joined(&[vector.clone(), local(3000)]));
        ends.steps(10);
        assert_eq!(a.done(&ends.a).send_opcode(), opcode);
        let came = b.cq.poll(&ends.b.rig).expect("a completion");
        assert_eq!((came.opcode(), came.byte_cnt.get(), came.user_index()), (kind, 3000, NAME));
        assert_eq!((came.qpn(), came.flags_rqpn.get() & 0xff_ffff), (b.number, a.number));
        assert_eq!(came.imm_inval_pkey.get(), if opcode == send::SEND_IMM { 0xabcd } else { 0 });
        assert_eq!(ends.b.rig.read(there, 3000), [7; 3000]);
    }
    b.shared.post(&ends.b, there, 0x4000);
    for opcode in [send::RDMA_WRITE, send::RDMA_WRITE_IMM] {
        a.send(&ends.a, opcode, &joined(&[vector.clone(), remote(key, there + 0x4000), local(3000)]));
        ends.steps(10);
        a.done(&ends.a);
    }
    let came = b.cq.poll(&ends.b.rig).expect("a completion");
    assert_eq!(came.opcode(), completion::RESPONDER_RDMA_WRITE_IMM);
    assert_eq!(ends.b.rig.read(there + 0x4000, 3000), [7; 3000]);
    ends.b.rig.write(there + 0x4000, &[9; 3000]);
    a.send(&ends.a, send::RDMA_READ, &joined(&[vector.clone(), remote(key, there + 0x4000), local(3000)]));
    ends.steps(10);
    a.done(&ends.a);
    assert_eq!(ends.a.rig.read(here, 3000), [9; 3000]);
    ends.b.rig.write(there, &5_u64.to_le_bytes());
    for (opcode, swap_add, compare) in [(send::ATOMIC_FA, 3_u64, 0_u64), (send::ATOMIC_CS, 99, 8)] {
        let operands = Atomic { swap_add: swap_add.into(), compare: compare.into() }.as_bytes().to_vec();
        a.send(&ends.a, opcode, &joined(&[vector.clone(), remote(key, there), operands, local(8)]));
        ends.steps(10);
        a.done(&ends.a);
    }
    assert_eq!(ends.a.rig.read(here, 8), 8_u64.to_le_bytes(), "what was there before the second");
    assert_eq!(ends.b.rig.read(there, 8), 99_u64.to_le_bytes());
    let mut query = QueryQCounterIn::ZERO;
    QueryQCounterIn::COUNTER_SET_ID.set(&mut query, counters);
    let out = ends.b.rig.must(op::QUERY_Q_COUNTER, 0, &mut query, QueryQCounterOut::BYTES);
    let out = out.first_chunk().expect("an answer");
    assert_eq!(QueryQCounterOut::RX_DCT_CONNECT.get(out), 7, "one whenever nothing was under way");
    assert_eq!(QueryQCounterOut::RX_WRITE_REQUESTS.get(out), 2);
}

#[test]
fn requests_go_to_many_targets_in_order() {
    for loss in [0.0, 0.05] {
        let impairments = Impairments { loss, dup: loss, reorder: loss, seed: 5, ..Impairments::default() };
        let ends = Ends::with(impairments, |traits| {
            traits.dynamic_connections = true;
            traits.selective_repeat = true;
        });
        let mut targets: Vec<Target> = (0..3).map(|_| Target::new(&ends.b)).collect();
        let mut a = initiator(&ends, Plan { timeout: 5, ..Plan::default() }, |_| {});
        let (here, there) = (ends.a.rig.room(0x4000), ends.b.rig.room(0x4000));
        for target in &mut targets {
            (0..16).for_each(|_| target.shared.post(&ends.b, there, 0x4000));
        }
        // Twice the same, then another.
        for round in 0..48_u32 {
            let target = &targets[round as usize / 2 % 3];
            let body =
                joined(&[to(&ends.b, target.number, KEY), data(ends.a.rig.lkey, here, 1 + round * 100)]);
            a.post(&ends.a, send::SEND_IMM, Completion::Always as u8, round, &body);
        }
        a.sq.ring(&ends.a.rig);
        ends.steps(20_000);
        for round in 0..48_u32 {
            let done = a.done(&ends.a);
            assert_eq!(done.opcode(), completion::REQUESTER, "{round}");
            let target = &mut targets[round as usize / 2 % 3];
            let came = target.cq.poll(&ends.b.rig).expect("a completion");
            assert_eq!((came.imm_inval_pkey.get(), came.byte_cnt.get()), (round, 1 + round * 100));
        }
        targets.iter_mut().for_each(|target| assert!(target.cq.poll(&ends.b.rig).is_none(), "once each"));
    }
}

#[test]
fn nothing_is_repeated_selectively() {
    let ends = Ends::with(Impairments::default(), |traits| {
        (traits.dynamic_connections, traits.selective_repeat) = (true, true);
    });
    let pool = Some(Shared::pool(&ends.a).number);
    for (service, agreed) in [(service::RC, 0x3000_0001), (service::DCI, 0x3000_0000)] {
        let pair = ends.a.pair(Plan { service, pool, ..Plan::default() });
        ends.a.to_init(&pair);
        let out = ends.a.transit_with(op::INIT2RTR_QP, pair.number, (0, 0x3000_0001), |context| {
            QpContext::MTU.set(context, 3);
        });
        let out = out.expect("to RTR");
        assert_eq!(TransitionOut::ECE.get(out.first_chunk().expect("an answer")), agreed);
    }
}

#[test]
fn a_target_on_the_same_device() {
    let ends = ends();
    let mut target = Target::new(&ends.a);
    let mut a = initiator(&ends, Plan::default(), |_| {});
    let here = ends.a.rig.room(0x4000);
    target.shared.post(&ends.a, here + 0x2000, 0x1000);
    let body = joined(&[to(&ends.a, target.number, KEY), data(ends.a.rig.lkey, here, 100)]);
    a.send(&ends.a, send::SEND, &body);
    ends.steps(10);
    a.done(&ends.a);
    assert_eq!(target.cq.poll(&ends.a.rig).expect("a completion").byte_cnt.get(), 100);
}

#[test]
fn another_key_is_refused_counted_and_told_of_once() {
    let ends = ends();
    let mut target = Target::new(&ends.b);
    let (here, there) = (ends.a.rig.room(0x1000), ends.b.rig.room(0x1000));
    let violated = |ends: &Ends| {
        ends.b.events().into_iter().filter(|told| told.0 == event::DCT_KEY_VIOLATION).collect::<Vec<_>>()
    };
    for (round, armed) in [false, true, false].into_iter().enumerate() {
        if armed {
            named(&ends.b, op::ARM_DCT_FOR_KEY_VIOLATION, target.number, 16).expect("armed");
        }
        let mut a = initiator(&ends, Plan::default(), |_| {});
        target.shared.post(&ends.b, there, 0x1000);
        let body = joined(&[to(&ends.b, target.number, KEY ^ 1), data(ends.a.rig.lkey, here, 10)]);
        a.send(&ends.a, send::SEND, &body);
        ends.steps(20);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::REMOTE_ACCESS_ERR);
        assert_eq!(ends.a.state(a.number), state::ERR);
        assert!(target.cq.poll(&ends.b.rig).is_none(), "nothing was delivered");
        let count = DctContext::DC_ACCESS_KEY_VIOLATION_COUNT.get(&target.query(&ends.b));
        assert_eq!(count, round as u32 + 1);
        let expected = if armed { vec![(event::DCT_KEY_VIOLATION, target.number)] } else { vec![] };
        assert_eq!(violated(&ends), expected);
    }
    // With the key it goes on.
    let mut a = initiator(&ends, Plan::default(), |_| {});
    a.send(&ends.a, send::SEND, &joined(&[to(&ends.b, target.number, KEY), data(ends.a.rig.lkey, here, 10)]));
    ends.steps(20);
    a.done(&ends.a);
    assert!(target.cq.poll(&ends.b.rig).is_some());
}

#[test]
fn a_request_that_fails_ends_its_connection_alone() {
    let ends = ends();
    let mut target = Target::new(&ends.b);
    let (here, there) = (ends.a.rig.room(0x4000), ends.b.rig.room(0x4000));
    let (mut bad, mut good) =
        (initiator(&ends, Plan::default(), |_| {}), initiator(&ends, Plan::default(), |_| {}));
    let local = |bytes| data(ends.a.rig.lkey, here, bytes);
    let vector = to(&ends.b, target.number, KEY);
    // Memory that no key covers: the requests behind are flushed.
    bad.post(
        &ends.a,
        send::RDMA_WRITE,
        2 << 2,
        0,
        &joined(&[vector.clone(), remote(0x100, there), local(8)]),
    );
    bad.send(&ends.a, send::SEND, &joined(&[vector.clone(), local(8)]));
    target.shared.post(&ends.b, there, 0x1000);
    good.send(&ends.a, send::SEND, &joined(&[vector.clone(), local(3000)]));
    ends.steps(20);
    assert_eq!(bad.send_cq.error(&ends.a.rig).syndrome().code, S::REMOTE_ACCESS_ERR);
    assert_eq!(bad.send_cq.error(&ends.a.rig).syndrome().code, S::WR_FLUSH_ERR);
    good.done(&ends.a);
    assert_eq!(target.cq.poll(&ends.b.rig).expect("a completion").byte_cnt.get(), 3000);
    assert_eq!(DctContext::STATE.get(&target.query(&ends.b)), target_state::ACTIVE);
    let told = ends.b.events();
    assert!(told.iter().all(|(_, number)| *number != target.number), "no queue pair's: {told:?}");
    // A message that is longer than its buffer: both sides are told.
    target.shared.post(&ends.b, there, 100);
    good.send(&ends.a, send::SEND, &joined(&[vector.clone(), local(3000)]));
    ends.steps(20);
    assert_eq!(good.send_cq.error(&ends.a.rig).syndrome().code, S::REMOTE_INVAL_REQ_ERR);
    let error = target.cq.error(&ends.b.rig);
    assert_eq!((error.syndrome().code, error.qpn()), (S::LOCAL_LENGTH_ERR, target.number));
    // From ERR over RESET it comes back, and reaches the same target.
    ends.a.end(op::TO_RST_QP, bad.number).expect("to RESET");
    bad.sq = crate::rig::Sq::at(bad.number, bad.sq.ring, bad.sq.record, bad.sq.log);
    ends.a.rig.write(bad.sq.record, &[0; 8]);
    ready(&ends, &bad);
    target.shared.post(&ends.b, there, 0x1000);
    bad.send(&ends.a, send::SEND, &joined(&[vector, local(8)]));
    ends.steps(20);
    bad.done(&ends.a);
    assert_eq!(target.cq.poll(&ends.b.rig).expect("a completion").byte_cnt.get(), 8);
}

#[test]
fn a_sender_waits_for_a_receive_entry() {
    let ends = ends();
    let mut target = Target::new(&ends.b);
    let (here, there) = (ends.a.rig.room(0x1000), ends.b.rig.room(0x1000));
    let mut a = initiator(&ends, Plan::default(), |_| {});
    let body = joined(&[to(&ends.b, target.number, KEY), data(ends.a.rig.lkey, here, 10)]);
    a.send(&ends.a, send::SEND, &body);
    ends.steps(50);
    assert!(a.send_cq.poll(&ends.a.rig).is_none());
    target.shared.post(&ends.b, there, 0x1000);
    ends.steps(2000);
    a.done(&ends.a);
    assert!(target.cq.poll(&ends.b.rig).is_some());
    // Who may not wait is told.
    let mut a = initiator(&ends, Plan { rnr_retries: 0, ..Plan::default() }, |_| {});
    a.send(&ends.a, send::SEND, &body);
    ends.steps(50);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::RNR_RETRY_EXC_ERR);
}

fn mend(node: &Node, pair: &Pair, of: u32, change: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>, Refused> {
    let mut input = TransitionIn::ZERO;
    TransitionIn::QPN.set(&mut input, pair.number);
    stream::HAS_MORE.set(&mut input, 1);
    source_port::MORE_PARTS.set(&mut input, stream::PART);
    let mut more = [0; 192];
    stream::NUMBER.set(&mut more, of);
    let mut input = [&input[..], &more].concat();
    change(&mut input);
    node.rig.command(op::RTS2RTS_QP, 0, &mut input, 16)
}

#[test]
fn a_stream_fails_alone_until_it_is_mended() {
    let ends = ends();
    let mut target = Target::new(&ends.b);
    let (here, there) = (ends.a.rig.room(0x1000), ends.b.rig.room(0x1000));
    let key = ends.b.key(there, 0x1000, |_| {});
    let mut a = initiator(&ends, Plan::default(), streams);
    let vector = to(&ends.b, target.number, KEY);
    let write = |key| joined(&[vector.clone(), remote(key, there), data(ends.a.rig.lkey, here, 8)]);
    let refused = mend(&ends.a, &a, 1, |_| {}).expect_err("it works");
    assert_eq!(refused.status, status::BAD_PARAM_ERR);
    // Of one stream all behind the failure is flushed, and what is posted later too; the other goes on.
    for (of, key) in [(1, 0x100), (1, key), (2, key), (1, key), (0xffff, key)] {
        post(&mut a, &ends.a, of, send::RDMA_WRITE, &write(key));
    }
    ends.steps(30);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::REMOTE_ACCESS_ERR);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::WR_FLUSH_ERR);
    assert_eq!(a.done(&ends.a).opcode(), completion::REQUESTER);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::WR_FLUSH_ERR);
    assert_eq!(a.done(&ends.a).opcode(), completion::REQUESTER);
    assert_eq!(ends.a.state(a.number), state::RTS);
    // What the command lacks is told.
    let bare = mend(&ends.a, &a, 1, |input| input.truncate(TransitionIn::BYTES)).expect_err("no more");
    assert_eq!(bare.status, status::BAD_INP_LEN_ERR);
    let unsaid = mend(&ends.a, &a, 1, |input| input[8] = 0).expect_err("not said");
    assert_eq!(unsaid.status, status::BAD_PARAM_ERR);
    mend(&ends.a, &a, 1, |_| {}).expect("mended");
    post(&mut a, &ends.a, 1, send::RDMA_WRITE, &write(key));
    ends.steps(30);
    assert_eq!(a.done(&ends.a).opcode(), completion::REQUESTER);
    // An entry that the device refuses by itself fails its stream too; the second stream that failed is one too many.
    post(&mut a, &ends.a, 3, send::SEND, &joined(&[vector.clone(), data(0x9900, here, 8)]));
    ends.steps(30);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_PROT_ERR);
    assert_eq!(ends.a.state(a.number), state::RTS);
    post(&mut a, &ends.a, 4, 0x7f, &vector);
    post(&mut a, &ends.a, 5, send::RDMA_WRITE, &write(key));
    ends.steps(30);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_QP_OP_ERR);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::WR_FLUSH_ERR);
    assert_eq!(ends.a.state(a.number), state::ERR);
    assert!(target.cq.poll(&ends.b.rig).is_none());
    // Only initiators have streams.
    let (plain, _other) = ends.connected(Plan::default());
    assert_eq!(mend(&ends.a, &plain, 1, |_| {}).expect_err("no streams").status, status::BAD_PARAM_ERR);
}

#[test]
fn a_stream_behind_one_that_failed_has_all_its_patience() {
    let ends = ends();
    let mut target = Target::new(&ends.b);
    let (here, there) = (ends.a.rig.room(0x1000), ends.b.rig.room(0x1000));
    let mut a = initiator(&ends, Plan { rnr_retries: 2, ..Plan::default() }, streams);
    let body = joined(&[to(&ends.b, target.number, KEY), data(ends.a.rig.lkey, here, 8)]);
    post(&mut a, &ends.a, 1, send::SEND, &body);
    let failed = (0..5000).find(|_| {
        ends.step();
        a.send_cq.peek(&ends.a.rig, 0).is_some()
    });
    assert!(failed.is_some());
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::RNR_RETRY_EXC_ERR);
    post(&mut a, &ends.a, 2, send::SEND, &body);
    ends.steps(5);
    assert!(a.send_cq.poll(&ends.a.rig).is_none(), "it waits");
    target.shared.post(&ends.b, there, 0x1000);
    ends.steps(5000);
    assert_eq!(a.done(&ends.a).opcode(), completion::REQUESTER);
    assert!(target.cq.poll(&ends.b.rig).is_some());
}

#[test]
fn without_streams_the_first_failure_is_the_last() {
    let ends = ends();
    let target = Target::new(&ends.b);
    let here = ends.a.rig.room(0x1000);
    let mut a = initiator(&ends, Plan::default(), |_| {});
    let body = joined(&[to(&ends.b, target.number, KEY), data(0x9900, here, 8)]);
    post(&mut a, &ends.a, 0, send::SEND, &body);
    ends.steps(30);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_PROT_ERR);
    assert_eq!(ends.a.state(a.number), state::ERR);
}

#[test]
fn entries_that_make_no_sense_fail() {
    let ends = ends();
    let target = Target::new(&ends.b);
    let here = ends.a.rig.room(0x1000);
    let local = data(ends.a.rig.lkey, here, 8);
    let mut compact = to(&ends.b, target.number, KEY);
    compact[8] = 0;
    let mut group = to(&ends.b, target.number, KEY);
    group[44] = 224;
    for body in [compact[..16].to_vec(), joined(&[compact, local.clone()]), joined(&[group, local.clone()])] {
        let mut a = initiator(&ends, Plan::default(), |_| {});
        a.send(&ends.a, send::SEND, &body);
        ends.steps(10);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_QP_OP_ERR);
    }
    // Nobody is there: retries come to an end.
    for (to, key) in [(0xdead, KEY), (target.number + 0x10_0000, KEY)] {
        let mut a = initiator(&ends, Plan { timeout: 1, retries: 2, ..Plan::default() }, |_| {});
        a.send(&ends.a, send::SEND, &joined(&[self::to(&ends.b, to, key), local.clone()]));
        ends.steps(2000);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::TRANSPORT_RETRY_EXC_ERR);
    }
}
