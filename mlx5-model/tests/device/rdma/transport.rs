//! How loss is repaired, what is counted, and what comes to an end.

use pollux_mlx5_abi::command::counter::{AllocQCounterOut, QueryQCounterIn, QueryQCounterOut};
use pollux_mlx5_abi::command::cq::{CqContext, ModifyCqIn, modify};
use pollux_mlx5_abi::command::qp::CreateQpIn;
use pollux_mlx5_abi::command::qp::context::{QpContext, receive};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::cqe::FRESH;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_model::wire::Impairments;

use super::node::{Ends, Plan, data, remote};

/// Steps until 64 writes of 16 KiB each are done, with so much loss and delay.
fn steps(selective: bool, loss: f64) -> usize {
    steps_of(selective, loss, 0)
}

/// The same where the ends ask for options of their connection, or, with 0, for none.
fn steps_of(selective: bool, loss: f64, options: u32) -> usize {
    let delay = std::time::Duration::from_micros(20);
    let impairments = Impairments { loss, delay, seed: 3, ..Impairments::default() };
    let ends = Ends::with(impairments, |traits| traits.selective_repeat = selective);
    let plan = Plan { timeout: 7, options, ..Plan::default() };
    let (mut a, _b) = ends.connected(plan);
    let (here, there) = (ends.a.rig.room(0x4000), ends.b.rig.room(0x4000));
    let key = ends.b.key(there, 0x4000, |_| {});
    for _ in 0..64 {
        let mut body = remote(key, there);
        body.extend(data(ends.a.rig.lkey, here, 0x4000));
        a.post(&ends.a, send::RDMA_WRITE, 2 << 2, 0, &body);
    }
    a.sq.ring(&ends.a.rig);
    let mut done = 0;
    for step in 0..1_000_000 {
        ends.step();
        while let Some(entry) = a.send_cq.poll(&ends.a.rig) {
            assert_eq!(entry.opcode(), completion::REQUESTER);
            done += 1;
        }
        if done == 64 {
            return step;
        }
    }
    panic!("{done} of 64 done");
}

#[test]
fn sending_what_is_lost_alone_is_faster() {
    let (clean, back, selective) = (steps(false, 0.0), steps(false, 0.02), steps(true, 0.02));
    assert!(clean < selective && 2 * selective < back, "{clean} without loss, {selective}, {back}");
}

#[test]
fn what_was_agreed_on_is_what_is_done() {
    let (back, selective) = (steps(false, 0.02), steps(true, 0.02));
    assert_eq!(steps_of(true, 0.02, 0x3000_0001), selective, "both repeat selectively");
    assert_eq!(steps_of(true, 0.02, 0x3000_0000), back, "they can, and one was told that the other cannot");
    assert_eq!(steps_of(false, 0.02, 0x3000_0001), back, "they cannot, whatever is asked for");
}

#[test]
fn counters_tell_what_the_transport_did() {
    let impairments = Impairments { loss: 0.05, seed: 5, ..Impairments::default() };
    let ends = Ends::with(impairments, |_| {});
    let set = |node: &super::node::Node| {
        let out = node.rig.must(op::ALLOC_Q_COUNTER, 0, &mut [0; 16], 16);
        AllocQCounterOut::COUNTER_SET_ID.get(out.first_chunk().expect("an answer"))
    };
    let (set_a, set_b) = (set(&ends.a), set(&ends.b));
    let plan = Plan::default();
    let mut a = ends.a.pair_with(plan, |context| QpContext::COUNTER_SET_ID.set(context, set_a));
    let b = ends.b.pair_with(plan, |context| QpContext::COUNTER_SET_ID.set(context, set_b));
    ends.a.connect_counted(&a, &ends.b, b.number, &plan, set_a);
    ends.b.connect_counted(&b, &ends.a, a.number, &plan, set_b);
    let (here, there) = (ends.a.rig.room(0x4000), ends.b.rig.room(0x4000));
    let key = ends.b.key(there, 0x4000, |_| {});
    for opcode in [send::RDMA_WRITE, send::RDMA_READ].repeat(20) {
        let mut body = remote(key, there);
        body.extend(data(ends.a.rig.lkey, here, 0x2000));
        a.send(&ends.a, opcode, &body);
        ends.steps(600);
    }
    let count = |node: &super::node::Node, set: u32| {
        let mut input = QueryQCounterIn::ZERO;
        QueryQCounterIn::COUNTER_SET_ID.set(&mut input, set);
        let out = node.rig.must(op::QUERY_Q_COUNTER, 0, &mut input, QueryQCounterOut::BYTES);
        *out.first_chunk::<{ QueryQCounterOut::BYTES }>().expect("an answer")
    };
    let (ours, theirs) = (count(&ends.a, set_a), count(&ends.b, set_b));
    assert_eq!(QueryQCounterOut::RX_WRITE_REQUESTS.get(&theirs), 20);
    assert_eq!(QueryQCounterOut::RX_READ_REQUESTS.get(&theirs), 20);
    for field in [QueryQCounterOut::OUT_OF_SEQUENCE, QueryQCounterOut::DUPLICATE_REQUEST] {
        assert!(field.get(&theirs) > 0);
    }
    for field in [
        QueryQCounterOut::PACKET_SEQ_ERR,
        QueryQCounterOut::IMPLIED_NAK_SEQ_ERR,
        QueryQCounterOut::LOCAL_ACK_TIMEOUT_ERR,
    ] {
        assert!(field.get(&ours) > 0);
    }
}

#[test]
fn there_are_so_many_queue_pairs() {
    let ends = Ends::new();
    let cq = ends.a.rig.cq(3);
    let (ring, record) = (ends.a.rig.room(4096), ends.a.rig.room(64));
    let mut context = QpContext::ZERO;
    QpContext::PD.set(&mut context, ends.a.rig.pd);
    QpContext::UAR_PAGE.set(&mut context, ends.a.rig.uar);
    QpContext::CQN_SND.set(&mut context, cq.number);
    QpContext::CQN_RCV.set(&mut context, cq.number);
    QpContext::RQ_TYPE.set(&mut context, receive::NONE);
    QpContext::DBR_ADDR.set(&mut context, record);
    let mut input = CreateQpIn::ZERO.to_vec();
    CreateQpIn::QPC.set(input.first_chunk_mut().expect("a command"), context);
    input.extend(ring.to_be_bytes());
    let mut last = Vec::new();
    let refused = loop {
        match ends.a.rig.command(op::CREATE_QP, 0, &mut input, 16) {
            Ok(out) => last = out,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.status, status::NO_RES_ERR);
    ends.a.end(op::DESTROY_QP, crate::rig::number(&last)).expect("there");
    ends.a.rig.must(op::CREATE_QP, 0, &mut input, 16);
    // What queue pairs report to stays.
    let mut destroy = [0; 16];
    destroy[8..12].copy_from_slice(&cq.number.to_be_bytes());
    let refused = ends.a.rig.command(op::DESTROY_CQ, 0, &mut destroy, 16).expect_err("in use");
    assert_eq!(refused.status, status::RES_BUSY);
}

#[test]
fn completions_go_on_in_another_ring() {
    let ends = Ends::new();
    let (mut a, _b) = ends.connected(Plan::default());
    let (here, there) = (ends.a.rig.room(64), ends.b.rig.room(64));
    let key = ends.b.key(there, 64, |_| {});
    let mut body = remote(key, there);
    body.extend(data(ends.a.rig.lkey, here, 8));
    let one = |a: &mut super::node::Pair| {
        a.send(&ends.a, send::RDMA_WRITE, &body);
        ends.steps(4);
    };
    (0..3).for_each(|_| one(&mut a));
    // From 512 entries to 16.
    let ring = ends.a.rig.room(64 << 4);
    for entry in 1..=16 {
        ends.a.rig.write(ring + entry * 64 - 1, &[FRESH]);
    }
    let resize = |log: u32, fields: u32| {
        let mut input = ModifyCqIn::ZERO.to_vec();
        let head: &mut [u8; ModifyCqIn::BYTES] = input.first_chunk_mut().expect("a command");
        ModifyCqIn::CQN.set(head, a.send_cq.number);
        ModifyCqIn::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.set(head, fields);
        CqContext::LOG_CQ_SIZE.set(ModifyCqIn::CQ_CONTEXT.of_mut(head), log);
        input.extend(ring.to_be_bytes());
        ends.a.rig.command(op::MODIFY_CQ, 1, &mut input, 16).map_err(|refused| refused.status)
    };
    assert_eq!(resize(1, modify::RING), Err(status::BAD_SIZE_OUTS_CQES_ERR), "three are outstanding");
    assert_eq!(resize(4, modify::PERIOD), Err(status::BAD_PARAM_ERR));
    resize(4, modify::RING).expect("there is room");
    one(&mut a);
    for _ in 0..3 {
        assert_eq!(a.done(&ends.a).opcode(), completion::REQUESTER);
    }
    assert_eq!(a.done(&ends.a).opcode(), completion::RESIZE_CQ);
    // The next one stands at its index of the new ring.
    (a.send_cq.ring, a.send_cq.log) = (ring, 4);
    for _ in 0..40 {
        assert_eq!(a.done(&ends.a).opcode(), completion::REQUESTER);
        a.send_cq.give_back(&ends.a.rig);
        one(&mut a);
    }
}
