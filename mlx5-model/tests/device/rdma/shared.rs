//! Shared receive queues: plain, as pools, and of XRC domains.

use pollux_mlx5_abi::command::object::AllocXrcdOut;
use pollux_mlx5_abi::command::qp::context::{QpContext, receive, service};
use pollux_mlx5_abi::command::rq::{CreateRmpIn, ModifyRmpIn, RmpContext};
use pollux_mlx5_abi::command::srq::{
    ArmXrcSrqIn, CreateSrqIn, CreateXrcSrqIn, DestroyXrcSrqIn, QueryXrcSrqIn, QueryXrcSrqOut, SrqContext,
    XrcSrqContext,
};
use pollux_mlx5_abi::command::wq::WorkQueue;
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::{Data, NextSegment, Xrc};
use zerocopy::IntoBytes;

use super::node::{Ends, Node, Plan, data, remote};
use crate::rig::{Cq, HCA_DELTA, number};

const LOG: u32 = 5;
const LOG_BYTES: u32 = 6;

/// A shared receive queue, entries in a chain.
pub(crate) struct Shared {
    pub(crate) number: u32,
    ring: u64,
    record: u64,
    posted: u16,
}

impl Shared {
    fn pages(ring: u64) -> impl Iterator<Item = u8> {
        (0..(1_u64 << (LOG + LOG_BYTES)).div_ceil(4096))
            .flat_map(move |page| (ring + page * 4096).to_be_bytes())
    }

    fn rings(node: &Node) -> (u64, u64) {
        (node.rig.room(1 << (LOG + LOG_BYTES)), node.rig.room(64))
    }

    pub(crate) fn pool(node: &Node) -> Self {
        let (ring, record) = Self::rings(node);
        let mut input = CreateRmpIn::ZERO.to_vec();
        let context = CreateRmpIn::CTX.of_mut(input.first_chunk_mut().expect("a command"));
        RmpContext::STATE.set(context, 1);
        let work = RmpContext::WQ.of_mut(context);
        WorkQueue::PD.set(work, node.rig.pd);
        WorkQueue::DBR_ADDR.set(work, record);
        WorkQueue::LOG_WQ_SZ.set(work, LOG);
        WorkQueue::LOG_WQ_STRIDE.set(work, LOG_BYTES);
        input.extend(Self::pages(ring));
        let number = number(&node.rig.must(op::CREATE_RMP, 0, &mut input, 16));
        Self { number, ring, record, posted: 0 }
    }

    fn plain(node: &Node) -> Self {
        let (ring, record) = Self::rings(node);
        let mut input = CreateSrqIn::ZERO.to_vec();
        let context = CreateSrqIn::SRQ_CONTEXT_ENTRY.of_mut(input.first_chunk_mut().expect("a command"));
        SrqContext::PD.set(context, node.rig.pd);
        SrqContext::DBR_ADDR.set(context, record);
        SrqContext::LOG_SRQ_SIZE.set(context, LOG);
        SrqContext::LOG_RQ_STRIDE.set(context, LOG_BYTES - 4);
        input.extend(Self::pages(ring));
        let number = number(&node.rig.must(op::CREATE_SRQ, 0, &mut input, 16));
        Self { number, ring, record, posted: 0 }
    }

    pub(crate) fn xrc(node: &Node, domain: u32, cq: &Cq) -> Self {
        let (ring, record) = Self::rings(node);
        let mut input = CreateXrcSrqIn::ZERO.to_vec();
        let context =
            CreateXrcSrqIn::XRC_SRQ_CONTEXT_ENTRY.of_mut(input.first_chunk_mut().expect("a command"));
        XrcSrqContext::PD.set(context, node.rig.pd);
        XrcSrqContext::XRCD.set(context, domain);
        XrcSrqContext::CQN.set(context, cq.number);
        XrcSrqContext::USER_INDEX.set(context, 0x99);
        XrcSrqContext::DBR_ADDR_4.set(context, record >> 2);
        XrcSrqContext::LOG_XRC_SRQ_SIZE.set(context, LOG);
        XrcSrqContext::LOG_RQ_STRIDE.set(context, LOG_BYTES - 4);
        input.extend(Self::pages(ring));
        let number = number(&node.rig.must(op::CREATE_XRC_SRQ, 0, &mut input, 16));
        Self { number, ring, record, posted: 0 }
    }

    /// What an XRC request begins with that is for this queue.
    pub(crate) fn segment(&self) -> Vec<u8> {
        Xrc { xrc_srqn: self.number.into(), reserved: [0; 12] }.as_bytes().to_vec()
    }

    pub(crate) fn post(&mut self, node: &Node, at: u64, bytes: u32) {
        let slot = u64::from(self.posted) & ((1 << LOG) - 1);
        let next = NextSegment {
            next_wqe_index: ((slot as u16 + 1) & ((1 << LOG) - 1)).into(),
            ..NextSegment::default()
        };
        let mut entry = next.as_bytes().to_vec();
        entry.extend(Data::new(bytes, node.rig.lkey, at + HCA_DELTA).as_bytes());
        entry.extend(Data::new(0, 0x100, 0).as_bytes());
        node.rig.write(self.ring + (slot << LOG_BYTES), &entry);
        self.posted = self.posted.wrapping_add(1);
        node.rig.write(self.record, &u32::from(self.posted).to_be_bytes());
    }
}

#[test]
fn queue_pairs_share_what_is_posted() {
    for plain in [false, true] {
        let ends = Ends::new();
        let mut shared = if plain { Shared::plain(&ends.b) } else { Shared::pool(&ends.b) };
        let plan = Plan { pool: Some(shared.number), ..Plan::default() };
        let mut connections: Vec<_> = (0..2)
            .map(|_| {
                let (a, b) = (ends.a.pair(Plan::default()), ends.b.pair(plan));
                ends.a.connect(&a, &ends.b, b.number, &plan);
                ends.b.connect(&b, &ends.a, a.number, &plan);
                (a, b)
            })
            .collect();
        let (from, to) = (ends.a.rig.room(4096), ends.b.rig.room(0x8000));
        (0..4).for_each(|index| shared.post(&ends.b, to + index * 0x1000, 0x1000));
        for round in 0..4_u16 {
            let (a, b) = &mut connections[usize::from(round) % 2];
            a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, from, 3000));
            ends.steps(10);
            a.done(&ends.a);
            let came = b.came(&ends.b);
            assert_eq!((came.wqe_counter.get(), came.user_index()), (round, super::node::USER_INDEX));
        }
        // A limit that is reached already is told at once, and once.
        let mut arm = ModifyRmpIn::ZERO;
        ModifyRmpIn::RMPN.set(&mut arm, shared.number);
        ModifyRmpIn::BITMASK_LWM.set(&mut arm, 1);
        WorkQueue::LWM.set(RmpContext::WQ.of_mut(ModifyRmpIn::CTX.of_mut(&mut arm)), 2);
        if plain {
            assert!(ends.b.rig.command(op::MODIFY_RMP, 0, &mut arm, 16).is_err(), "of the other kind");
            continue;
        }
        (0..3).for_each(|_| shared.post(&ends.b, to, 0x1000));
        ends.b.events();
        ends.b.rig.must(op::MODIFY_RMP, 0, &mut arm, 16);
        let told = |ends: &Ends| ends.b.events().contains(&(event::SRQ_RQ_LIMIT, shared.number));
        assert!(!told(&ends));
        let (a, _) = &mut connections[0];
        a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, from, 10));
        ends.steps(10);
        assert!(!told(&ends), "two are left");
        a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, from, 10));
        ends.steps(10);
        assert!(told(&ends), "one is left");
        a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, from, 10));
        ends.steps(10);
        assert!(!told(&ends), "told once");
        let number = connections[0].1.number;
        ends.b.end(op::TO_ERR_QP, number).expect("from any state");
        ends.steps(3);
        assert!(ends.b.events().contains(&(event::SRQ_LAST_WQE, number)));
    }
}

fn domain(node: &Node) -> u32 {
    let out = node.rig.must(op::ALLOC_XRCD, 0, &mut [0; 16], 16);
    AllocXrcdOut::XRCD.get(out.first_chunk().expect("an answer"))
}

#[test]
fn xrc_requests_name_their_queue() {
    let ends = Ends::new();
    let (here, there) = (domain(&ends.a), domain(&ends.b));
    let mut cq = ends.b.rig.cq(6);
    let mut queues: Vec<Shared> = (0..2).map(|_| Shared::xrc(&ends.b, there, &cq)).collect();
    let plan = |xrc_domain| Plan { service: service::XRC, xrc_domain, ..Plan::default() };
    let none = |context: &mut [u8; QpContext::BYTES]| QpContext::RQ_TYPE.set(context, receive::NONE);
    let mut a = ends.a.pair_with(plan(here), |context| {
        none(context);
        QpContext::LOG_RQ_SIZE.set(context, 0);
    });
    // Without a ring of its own for receiving, that for sending begins the buffer.
    a.sq = crate::rig::Sq::at(a.number, a.rq.ring, a.rq.record, super::node::LOG_RING);
    let b = ends.b.pair_with(plan(there), |context| {
        none(context);
        QpContext::NO_SQ.set(context, 1);
    });
    ends.a.connect(&a, &ends.b, b.number, &b.plan);
    ends.b.connect(&b, &ends.a, a.number, &a.plan);
    let (from, to) = (ends.a.rig.room(4096), ends.b.rig.room(0x4000));
    let key = ends.b.key(to, 0x4000, |_| {});
    ends.a.rig.write(from, &[9; 3000]);
    for queue in &mut queues {
        queue.post(&ends.b, to, 0x1000);
        let mut body = queue.segment();
        body.extend(data(ends.a.rig.lkey, from, 3000));
        a.send(&ends.a, send::SEND, &body);
        ends.steps(10);
        a.done(&ends.a);
        let came = cq.poll(&ends.b.rig).expect("a completion");
        assert_eq!((came.opcode(), came.user_index()), (completion::RESPONDER_SEND, 0x99));
        assert_eq!(came.qpn(), b.number);
        for opcode in [send::RDMA_WRITE, send::RDMA_READ] {
            let mut body = queue.segment();
            body.extend(remote(key, to + 0x1000));
            body.extend(data(ends.a.rig.lkey, from, 3000));
            a.send(&ends.a, opcode, &body);
            ends.steps(10);
            assert_eq!(a.done(&ends.a).send_opcode(), opcode);
        }
        assert_eq!(ends.b.rig.read(to + 0x1000, 3000), [9; 3000]);
    }
    let mut query = QueryXrcSrqIn::ZERO;
    QueryXrcSrqIn::XRC_SRQN.set(&mut query, queues[0].number);
    let out = ends.b.rig.must(op::QUERY_XRC_SRQ, 0, &mut query, QueryXrcSrqOut::BYTES);
    let context = QueryXrcSrqOut::XRC_SRQ_CONTEXT_ENTRY.get(out.first_chunk().expect("an answer"));
    assert_eq!((XrcSrqContext::XRCD.get(&context), XrcSrqContext::CQN.get(&context)), (there, cq.number));
    let mut arm = ArmXrcSrqIn::ZERO;
    ArmXrcSrqIn::XRC_SRQN.set(&mut arm, queues[0].number);
    ArmXrcSrqIn::LWM.set(&mut arm, 3);
    ends.b.rig.must(op::ARM_XRC_SRQ, 1, &mut arm, 16);
    assert!(ends.b.events().contains(&(event::SRQ_RQ_LIMIT, queues[0].number)));
    // A queue that is not there is no request; a domain in use stays.
    let mut body = Xrc { xrc_srqn: 0xfff.into(), reserved: [0; 12] }.as_bytes().to_vec();
    body.extend(data(ends.a.rig.lkey, from, 3000));
    a.send(&ends.a, send::SEND, &body);
    ends.steps(10);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, 0x12);
    let mut give_back = [0; 16];
    give_back[9..12].copy_from_slice(&there.to_be_bytes()[1..]);
    let refused = ends.b.rig.command(op::DEALLOC_XRCD, 0, &mut give_back, 16).expect_err("in use");
    assert_eq!(refused.status, status::RES_BUSY);
    let mut destroy = DestroyXrcSrqIn::ZERO;
    DestroyXrcSrqIn::XRC_SRQN.set(&mut destroy, queues[1].number);
    ends.b.rig.must(op::DESTROY_XRC_SRQ, 0, &mut destroy, 16);
}
