//! What went wrong around the vport, counted, and ports that are not bonded.

use pollux_mlx5_abi::caps::general::GeneralCaps as G;
use pollux_mlx5_abi::caps::{self, kind};
use pollux_mlx5_abi::command::counter::QueryVportCounterIn;
use pollux_mlx5_abi::command::environment::{
    QueryVnicEnvIn, QueryVnicEnvOut, VnicEnvironment as V, steering_failures,
};
use pollux_mlx5_abi::command::lag::{LagContext, QueryLagOut};
use pollux_mlx5_abi::command::register::{AccessRegisterIn, Paos, access, id};
use pollux_mlx5_abi::command::tir::{ModifyTisIn, TisContext};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::Completion;

use super::rig::{Rig, frame};
use super::send::plain;

pub(super) fn counters(rig: &Rig) -> [u8; V::BYTES] {
    let out = rig.must(op::QUERY_VNIC_ENV, 0, &mut QueryVnicEnvIn::ZERO.clone(), QueryVnicEnvOut::BYTES);
    QueryVnicEnvOut::VPORT_ENV.get(out.first_chunk().expect("an answer"))
}

/// Clears the vport's own counters.
pub(super) fn clear_vport(rig: &Rig) {
    let mut clear = QueryVportCounterIn::ZERO;
    QueryVportCounterIn::CLEAR.set(&mut clear, 1);
    rig.must(op::QUERY_VPORT_COUNTER, 0, &mut clear, 528);
}

fn nothing_is_wrong(rig: &Rig) -> bool {
    counters(rig) == V::ZERO
}

#[test]
fn what_is_counted_is_announced() {
    let rig = Rig::new();
    let out = rig.must(op::QUERY_HCA_CAP, caps::op_mod(kind::GENERAL, caps::NOW), &mut [0; 16], 4112);
    let caps: &[u8; 256] = out[16..].first_chunk().expect("a block");
    for field in [
        G::VNIC_ENV_QUEUE_COUNTERS,
        G::VNIC_ENV_CQ_OVERRUN,
        G::NIC_RECEIVE_STEERING_DISCARD,
        G::RECEIVE_DISCARD_VPORT_DOWN,
        G::TRANSMIT_DISCARD_VPORT_DOWN,
        G::EQ_OVERRUN_COUNT,
        G::INVALID_COMMAND_COUNT,
        steering_failures::CAP,
    ] {
        assert!(field.is_set(caps));
    }
    // What is not counted is not.
    for field in [G::VNIC_ENV_INT_RQ_OOB, G::ETH_WQE_TOO_SMALL, G::QUOTA_EXCEEDED_COUNT] {
        assert!(!field.is_set(caps));
    }
    assert!(nothing_is_wrong(&rig));
    // As long as Linux 6.12 has it.
    rig.must(op::QUERY_VNIC_ENV, 0, &mut QueryVnicEnvIn::ZERO.clone(), 524);
    let mut other = QueryVnicEnvIn::ZERO;
    QueryVnicEnvIn::OTHER_VPORT.set(&mut other, 1);
    let refused =
        rig.command(op::QUERY_VNIC_ENV, 0, &mut other, QueryVnicEnvOut::BYTES).expect_err("no e-switch");
    assert_eq!(refused.status, status::BAD_PARAM_ERR);
    assert_eq!(V::INVALID_COMMAND.get(&counters(&rig)), 1);
}

#[test]
fn packets_that_nobody_wants_are_counted() {
    let rig = Rig::new();
    for mark in 0..3 {
        rig.wire.ends().incoming.push_back(frame(64, mark));
    }
    rig.settle();
    assert_eq!(V::NIC_RECEIVE_STEERING_DISCARD.get(&counters(&rig)), 3);
    // They stay when the vport's own counters are cleared.
    clear_vport(&rig);
    assert_eq!(V::NIC_RECEIVE_STEERING_DISCARD.get(&counters(&rig)), 3);
}

#[test]
fn packets_while_the_port_is_down_are_counted() {
    let rig = Rig::new();
    let cq = rig.cq(4);
    let mut sq = rig.sq(4, &cq);
    let mut down = Paos::ZERO;
    Paos::ADMIN_STATUS.set(&mut down, 2);
    let mut input = AccessRegisterIn::ZERO.to_vec();
    AccessRegisterIn::REGISTER_ID.set(input.first_chunk_mut().expect("a command"), id::PAOS.into());
    input.extend(down);
    rig.must(op::ACCESS_REG, access::WRITE, &mut input, 32);
    for _ in 0..2 {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::Always);
    }
    sq.ring(&rig);
    rig.wire.ends().incoming.push_back(frame(64, 1));
    rig.settle();
    let counters = counters(&rig);
    assert_eq!(
        (V::RECEIVE_DISCARD_VPORT_DOWN.get(&counters), V::TRANSMIT_DISCARD_VPORT_DOWN.get(&counters)),
        (1, 2)
    );
}

#[test]
fn queues_that_run_over_or_fail_are_counted() {
    let rig = Rig::new();
    let small = rig.cq(2);
    let mut sq = rig.sq(4, &small);
    for _ in 0..6 {
        sq.write(&rig, send::NOP, &[], Completion::Always);
    }
    sq.ring(&rig);
    rig.settle();
    let after = counters(&rig);
    assert_eq!((V::CQ_OVERRUN.get(&after), V::TOTAL_ERROR_QUEUES.get(&after)), (1, 1));
    rig.sq_state(&sq, 3, 0).expect("to RESET");
    let after = counters(&rig);
    assert_eq!(
        (V::CQ_OVERRUN.get(&after), V::TOTAL_ERROR_QUEUES.get(&after)),
        (1, 0),
        "one counts, one tells"
    );
    // The event queue has 64 entries, and nobody takes any: the port's up, and the end of the completion queue's.
    let before = counters(&rig);
    assert_eq!(V::ASYNC_EQ_OVERRUN.get(&before), 0);
    for turn in 0..80 {
        let mut toggled = Paos::ZERO;
        Paos::ADMIN_STATUS.set(&mut toggled, 1 + (turn + 1) % 2);
        let mut input = AccessRegisterIn::ZERO.to_vec();
        AccessRegisterIn::REGISTER_ID.set(input.first_chunk_mut().expect("a command"), id::PAOS.into());
        input.extend(toggled);
        rig.must(op::ACCESS_REG, access::WRITE, &mut input, 32);
    }
    let after = counters(&rig);
    assert!(V::ASYNC_EQ_OVERRUN.get(&after) >= 16, "{}", V::ASYNC_EQ_OVERRUN.get(&after));
    assert_eq!(V::COMP_EQ_OVERRUN.get(&after), 0);
}

#[test]
fn changes_to_the_priority_of_a_queue_are_counted() {
    let rig = Rig::new();
    let cq = rig.cq(4);
    let _queues = [rig.sq(4, &cq), rig.sq(4, &cq)];
    let change = |prio| {
        let mut input = ModifyTisIn::ZERO;
        ModifyTisIn::TISN.set(&mut input, rig.tis);
        ModifyTisIn::BITMASK.set(&mut input, 1);
        TisContext::PRIO.set(ModifyTisIn::CTX.of_mut(&mut input), prio);
        rig.must(op::MODIFY_TIS, 0, &mut input, 16);
        V::SEND_QUEUE_PRIORITY_UPDATE_FLOW.get(&counters(&rig))
    };
    assert_eq!([change(3), change(3), change(0)], [2, 2, 4]);
}

#[test]
fn the_port_is_not_bonded() {
    let rig = Rig::new();
    let out = rig.must(op::QUERY_LAG, 0, &mut [0; 16], QueryLagOut::BYTES);
    let context = QueryLagOut::CTX.get(out.first_chunk().expect("an answer"));
    assert_eq!((LagContext::LAG_STATE.get(&context), context), (0, [0; 8]));
    let out = rig.must(op::QUERY_HCA_CAP, caps::op_mod(kind::GENERAL, caps::NOW), &mut [0; 16], 4112);
    let caps: &[u8; 256] = out[16..].first_chunk().expect("a block");
    let none = [G::LAG_MASTER, G::VPORT_GROUP_MANAGER, G::ESWITCH_MANAGER].map(|field| field.get(caps));
    assert_eq!((none, G::NUM_LAG_PORTS.get(caps), G::NUM_PORTS.get(caps)), ([0; 3], 0, 1));
    let mut short = [0; 16];
    assert!(rig.command(op::CREATE_LAG, 0, &mut short, 16).is_err());
    // Sets of counters, as many as are announced.
    let sets = G::MAX_QP_CNT.get(caps);
    for _ in 0..sets {
        rig.must(op::ALLOC_Q_COUNTER, 0, &mut [0; 16], 16);
    }
    let one_more = rig.command(op::ALLOC_Q_COUNTER, 0, &mut [0; 16], 16).expect_err("all are taken");
    assert_eq!((sets, one_more.status), (255, status::NO_RES_ERR));
}
