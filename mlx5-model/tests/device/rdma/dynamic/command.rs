//! Commands on targets, and what cards say of themselves.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::AtomicCaps;
use pollux_mlx5_abi::caps::{QueryHcaCapIn, kind};
use pollux_mlx5_abi::command::dct::{CreateDctIn, DATA_IN_ORDER, DctContext, state as target_state, stream};
use pollux_mlx5_abi::command::user::DestroyUctxIn;
use pollux_mlx5_abi::command::{self, opcode as op, status};
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_kernel::CommandQueue;
use pollux_mlx5_model::wire::Impairments;

use super::{KEY, Target, context, create, ends, initiator, joined, named, to};
use crate::rdma::node::{Ends, Plan, data};
use crate::rdma::shared::Shared;
use crate::rig::number;

#[test]
fn a_target_is_drained_before_it_ends() {
    let ends = ends();
    let mut target = Target::new(&ends.b);
    let node = &ends.b;
    let (here, there) = (ends.a.rig.room(0x1000), node.rig.room(0x1000));
    let found = target.query(node);
    assert_eq!(DctContext::DC_ACCESS_KEY.get(&found), KEY);
    assert_eq!((DctContext::STATE.get(&found), DATA_IN_ORDER.get(&found)), (target_state::ACTIVE, 1));
    let destroy = |number| named(node, op::DESTROY_DCT, number, 16);
    assert_eq!(destroy(target.number).expect_err("not drained").status, status::BAD_RES_STATE_ERR);
    // What it needs stays.
    let busy = named(node, op::DESTROY_RMP, target.shared.number, 16).expect_err("in use");
    assert_eq!(busy.status, status::RES_BUSY);
    // It is no queue pair.
    for opcode in [op::QUERY_QP, op::TO_RST_QP, op::TO_ERR_QP, op::DESTROY_QP] {
        let refused = named(node, opcode, target.number, 272).expect_err("a target");
        assert_eq!(refused.status, status::BAD_RES_ERR);
    }
    let (_, pair) = ends.connected(Plan::default());
    for opcode in [op::QUERY_DCT, op::DRAIN_DCT, op::ARM_DCT_FOR_KEY_VIOLATION, op::DESTROY_DCT] {
        for number in [pair.number, 0xff_ffff, 0] {
            let refused = named(node, opcode, number, 128).expect_err("no target");
            assert_eq!(refused.status, status::BAD_RES_ERR);
        }
    }
    let short = named(node, op::QUERY_DCT, target.number, 16).expect_err("no room");
    assert_eq!(short.status, status::BAD_OUTP_LEN_ERR);
    named(node, op::DRAIN_DCT, target.number, 16).expect("drains");
    let again = named(node, op::DRAIN_DCT, target.number, 16).expect_err("it does already");
    assert_eq!(again.status, status::BAD_RES_STATE_ERR);
    assert_eq!(DctContext::STATE.get(&target.query(node)), target_state::DRAINING);
    ends.steps(2);
    assert!(node.events().contains(&(event::DCT_DRAINED, target.number)));
    assert_eq!(DctContext::STATE.get(&target.query(node)), target_state::DRAINED);
    // Nothing gets in any more.
    target.shared.post(node, there, 0x1000);
    let mut a = initiator(&ends, Plan { timeout: 1, retries: 1, ..Plan::default() }, |_| {});
    a.send(&ends.a, send::SEND, &joined(&[to(node, target.number, KEY), data(ends.a.rig.lkey, here, 8)]));
    ends.steps(1000);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::TRANSPORT_RETRY_EXC_ERR);
    assert!(target.cq.poll(&node.rig).is_none());
    destroy(target.number).expect("it is drained");
    assert_eq!(destroy(target.number).expect_err("gone").status, status::BAD_RES_ERR);
    named(node, op::DESTROY_RMP, target.shared.number, 16).expect("free again");
}

#[test]
fn what_a_target_is_made_of_is_checked() {
    use DctContext as D;
    type Change = fn(&mut [u8; 64]);
    let ends = ends();
    let node = &ends.b;
    let (shared, cq) = (Shared::pool(node), node.rig.cq(4));
    let good = context(node, shared.number, cq.number);
    let cases: [(Change, u8); 10] = [
        (|context| D::PD.set(context, 0xff_fff0), status::BAD_RES_ERR),
        (|context| D::CQN.set(context, 0xff_fff0), status::BAD_RES_ERR),
        (|context| D::SRQN_XRQN.set(context, 0xff_fff0), status::BAD_RES_ERR),
        (|context| D::COUNTER_SET_ID.set(context, 200), status::BAD_RES_ERR),
        (|context| D::STATE.set(context, 2), status::BAD_PARAM_ERR),
        (|context| D::MTU.set(context, 0), status::BAD_PARAM_ERR),
        (|context| D::MTU.set(context, 6), status::BAD_PARAM_ERR),
        (|context| D::PORT.set(context, 2), status::BAD_PARAM_ERR),
        (|context| D::PKEY_INDEX.set(context, 1), status::BAD_PARAM_ERR),
        (|context| D::MY_ADDR_INDEX.set(context, 255), status::BAD_PARAM_ERR),
    ];
    for (change, code) in cases {
        let mut bad = good;
        change(&mut bad);
        assert_eq!(create(node, bad, 16).expect_err("wrong").status, code, "{bad:x?}");
    }
    assert_eq!(create(node, good, 8).expect_err("no room").status, status::BAD_OUTP_LEN_ERR);
    let mut short = [0; 64];
    let refused = node.rig.command(op::CREATE_DCT, 0, &mut short, 16).expect_err("too short");
    assert_eq!(refused.status, status::BAD_INP_LEN_ERR);
    // There are so many, and no more.
    let made = (0..1000).take_while(|_| create(node, good, 16).is_ok()).count();
    assert_eq!(made, 256);
    assert_eq!(create(node, good, 16).expect_err("all are made").status, status::NO_RES_ERR);
}

#[test]
fn cards_without_have_none_of_it() {
    let caps = |ends: &Ends, kind: u16| -> [u8; 256] {
        let mut input = QueryHcaCapIn::ZERO;
        let out = ends.a.rig.must(op::QUERY_HCA_CAP, kind << 1 | 1, &mut input, 16 + 256);
        out[16..].try_into().expect("a block")
    };
    for can in [false, true] {
        let ends = Ends::with(Impairments::default(), |traits| traits.dynamic_connections = can);
        let (general, atomic) = (caps(&ends, kind::GENERAL), caps(&ends, kind::ATOMIC));
        for field in [
            GeneralCaps::DCT,
            GeneralCaps::LOG_MAX_RA_REQ_DC,
            GeneralCaps::LOG_MAX_RA_RES_DC,
            GeneralCaps::MAX_WQE_SZ_SQ_DC,
            GeneralCaps::LOG_MAX_DCI_STREAM_CHANNELS,
            GeneralCaps::LOG_MAX_DCI_ERRORED_STREAMS,
            stream::CAP_MORE,
        ] {
            assert_eq!(field.is_set(&general), can);
        }
        assert_eq!(AtomicCaps::ATOMIC_SIZE_DC.is_set(&atomic), can);
        let (shared, cq) = (Shared::pool(&ends.a), ends.a.rig.cq(4));
        let made = create(&ends.a, context(&ends.a, shared.number, cq.number), 16);
        assert_eq!(made.err().map(|refused| refused.status), (!can).then_some(status::BAD_OP_ERR));
    }
}

#[test]
fn a_user_contexts_target_ends_with_it_and_has_no_key_for_all_memory() {
    let mut ends = ends();
    let uid = ends.b.rig.user();
    ends.b.rig.pd = ends.b.rig.domain_of(uid);
    let node = &ends.b;
    let (shared, cq) = (Shared::pool(node), node.rig.cq(4));
    let create = |all: u32| {
        let mut context = context(node, shared.number, cq.number);
        DctContext::RLKY.set(&mut context, all);
        let (mut input, mut out) = (CreateDctIn::ZERO, [0; 16]);
        CreateDctIn::DCT_CONTEXT_ENTRY.set(&mut input, context);
        command::start(&mut input, op::CREATE_DCT, uid, 0);
        node.rig.device.execute(&input, &mut out).expect("the device is there");
        command::outcome(&out).map(|()| number(&out))
    };
    assert_eq!(create(1).expect_err("the kernel's").status, status::BAD_PARAM_ERR);
    let target = create(0).expect("a target");
    named(node, op::QUERY_DCT, target, 128).expect("it is there");
    let mut end = DestroyUctxIn::ZERO;
    DestroyUctxIn::UID.set(&mut end, uid.into());
    node.rig.must(op::DESTROY_UCTX, 0, &mut end, 16);
    assert_eq!(named(node, op::QUERY_DCT, target, 128).expect_err("gone").status, status::BAD_RES_ERR);
}
