//! Commands on signature variables and keys, and what cards say of themselves.

use pollux_mlx5_abi::caps::general::GeneralCaps as G;
use pollux_mlx5_abi::caps::{QueryHcaCapIn, kind};
use pollux_mlx5_abi::command::mkey::{MkeyContext as M, access_mode};
use pollux_mlx5_abi::command::object::DeallocPdIn;
use pollux_mlx5_abi::command::psv::{CreatePsvIn, CreatePsvOut, DestroyPsvIn, cap};
use pollux_mlx5_abi::command::qp::context::optional;
use pollux_mlx5_abi::command::user::DestroyUctxIn;
use pollux_mlx5_abi::command::{Refused, opcode as op, status};
use pollux_mlx5_abi::opcode::send as opcode;
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::signature::SetPsv;
use pollux_mlx5_model::wire::Impairments;
use zerocopy::IntoBytes;

use super::{context, create, ends, go, variables};
use crate::rdma::node::{Ends, Node, Plan};
use crate::rig::number;

fn make(node: &Node, count: u32, domain: u32, bytes: usize) -> Result<Vec<u8>, Refused> {
    let mut input = CreatePsvIn::ZERO;
    CreatePsvIn::NUM_PSV.set(&mut input, count);
    CreatePsvIn::PD.set(&mut input, domain);
    node.rig.command(op::CREATE_PSV, 0, &mut input, bytes)
}

fn end(node: &Node, number: u32) -> Result<Vec<u8>, Refused> {
    let mut input = DestroyPsvIn::ZERO;
    DestroyPsvIn::PSVN.set(&mut input, number);
    node.rig.command(op::DESTROY_PSV, 0, &mut input, 16)
}

#[test]
fn variables_come_up_to_four_at_once() {
    let ends = ends();
    let node = &ends.a;
    let mut all: Vec<u32> = (1..=4).flat_map(|count| variables(node, count)).collect();
    assert_eq!(all.len(), 10);
    all.sort_unstable();
    all.dedup();
    assert!(all.len() == 10 && all.iter().all(|number| (1..1 << 24).contains(number)));
    for (count, domain, bytes, code) in [
        (0, node.rig.pd, 32, status::BAD_PARAM_ERR),
        (5, node.rig.pd, 32, status::BAD_PARAM_ERR),
        (15, node.rig.pd, 32, status::BAD_PARAM_ERR),
        (1, 0xff_fff0, 32, status::BAD_RES_ERR),
        (1, node.rig.pd, 16, status::BAD_OUTP_LEN_ERR),
    ] {
        assert_eq!(make(node, count, domain, bytes).expect_err("refused").status, code);
    }
    // Their domain stays while they are there.
    let domain = number(&node.rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16));
    let out = make(node, 1, domain, 32).expect("a variable");
    let one = CreatePsvOut::PSV0_INDEX.get(out.first_chunk().expect("an answer"));
    let mut input = DeallocPdIn::ZERO;
    DeallocPdIn::PD.set(&mut input, domain);
    let busy = node.rig.command(op::DEALLOC_PD, 0, &mut input, 16).expect_err("in use");
    assert_eq!(busy.status, status::RES_BUSY);
    end(node, one).expect("it ends");
    assert_eq!(end(node, one).expect_err("gone").status, status::BAD_RES_ERR);
    node.rig.must(op::DEALLOC_PD, 0, &mut input, 16);
}

#[test]
fn there_are_so_many_and_no_more() {
    let ends = ends();
    let node = &ends.a;
    let made = (0..1 << 15).take_while(|_| make(node, 3, node.rig.pd, 32).is_ok()).count();
    assert_eq!(made, (1 << 16) / 3);
    // One is left, and a command has all that it asks for or none.
    assert_eq!(make(node, 2, node.rig.pd, 32).expect_err("one is left").status, status::NO_RES_ERR);
    make(node, 1, node.rig.pd, 32).expect("the last");
    assert_eq!(make(node, 1, node.rig.pd, 32).expect_err("none is left").status, status::NO_RES_ERR);
}

#[test]
fn a_user_contexts_variables_are_its_own_and_end_with_it() {
    let ends = ends();
    let node = &ends.a;
    let (uid, kernels) = (node.rig.user(), variables(node, 1)[0]);
    let make = |domain: u32| {
        let mut input = CreatePsvIn::ZERO;
        CreatePsvIn::NUM_PSV.set(&mut input, 1);
        CreatePsvIn::PD.set(&mut input, domain);
        node.rig.command_as(uid, op::CREATE_PSV, &mut input, CreatePsvOut::BYTES)
    };
    assert_eq!(make(node.rig.pd).expect_err("the kernel's").status, status::BAD_RES_ERR);
    let out = make(node.rig.domain_of(uid)).expect("a variable");
    let its = CreatePsvOut::PSV0_INDEX.get(out.first_chunk().expect("an answer"));
    let mut input = DestroyPsvIn::ZERO;
    DestroyPsvIn::PSVN.set(&mut input, kernels);
    let refused = node.rig.command_as(uid, op::DESTROY_PSV, &mut input, 16).expect_err("the kernel's");
    assert_eq!(refused.status, status::BAD_RES_ERR);
    let mut input = DestroyUctxIn::ZERO;
    DestroyUctxIn::UID.set(&mut input, uid.into());
    node.rig.must(op::DESTROY_UCTX, 0, &mut input, 16);
    assert_eq!(end(node, its).expect_err("gone").status, status::BAD_RES_ERR);
    end(node, kernels).expect("it stays");
}

#[test]
fn a_key_for_signatures_is_of_pieces_and_has_room_for_them() {
    type Change = fn(&mut [u8; M::BYTES]);
    let ends = ends();
    let cases: [(Change, bool); 7] = [
        (|_| {}, true),
        (|context| M::BSF_OCTWORD_SIZE.set(context, 8), true),
        (|context| M::ACCESS_MODE_1_0.set(context, access_mode::KSM), true),
        (|context| M::ACCESS_MODE_1_0.set(context, access_mode::MTT), false),
        (|context| M::BSF_OCTWORD_SIZE.set(context, 0), false),
        (|context| M::BSF_OCTWORD_SIZE.set(context, 3), false),
        (|context| M::BSF_OCTWORD_SIZE.set(context, u32::MAX), false),
    ];
    for (index, (change, good)) in cases.into_iter().enumerate() {
        let mut context = context(&ends.a);
        change(&mut context);
        let made = ends.a.rig.command(op::CREATE_MKEY, 0, &mut create(context), 16);
        assert_eq!(made.err().map(|no| no.status), (!good).then_some(status::BAD_PARAM_ERR), "{index}");
    }
}

#[test]
fn cards_without_have_none_of_it() {
    for can in [false, true] {
        let ends = Ends::with(Impairments::default(), |traits| traits.signatures = can);
        let node = &ends.a;
        let mut input = QueryHcaCapIn::ZERO;
        let out = node.rig.must(op::QUERY_HCA_CAP, kind::GENERAL << 1 | 1, &mut input, 16 + 256);
        let caps: [u8; 256] = out[16..].try_into().expect("a block");
        for field in [
            G::SHO,
            G::SIGERR_CQE,
            G::DRAIN_SIGERR,
            cap::DOMAIN_AND_TYPE,
            cap::BLOCK_4048,
            cap::CRC32C,
            cap::CRC64_XP10,
        ] {
            assert_eq!(field.is_set(&caps), can);
        }
        let refused = make(node, 1, node.rig.pd, 32).err().map(|no| no.status);
        assert_eq!(refused, (!can).then_some(status::BAD_OP_ERR));
        let refused = node.rig.command(op::CREATE_MKEY, 0, &mut create(context(node)), 16);
        assert_eq!(refused.is_ok(), can);
        let pair = node.pair(Plan::default());
        node.to_init(&pair);
        let drains = node.transit(op::INIT2INIT_QP, pair.number, optional::DRAIN_SIGERR, |_| {});
        assert_eq!(drains.err().map(|no| no.status), (!can).then_some(status::BAD_PARAM_ERR));
        let (mut a, _b) = ends.connected(Plan::default());
        go(&mut a, node, opcode::SET_PSV, SetPsv::default().as_bytes());
        ends.steps(3);
        let why = a.send_cq.error(&node.rig).syndrome().code;
        assert_eq!(why, if can { S::MW_BIND_ERR } else { S::LOCAL_QP_OP_ERR });
    }
}
