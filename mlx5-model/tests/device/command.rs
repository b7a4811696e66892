use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::{self, QueryHcaCapOut, kind};
use pollux_mlx5_abi::command::cq::{CqContext, CreateCqIn};
use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext, QueryMkeyOut};
use pollux_mlx5_abi::command::register::{AccessRegisterIn, Paos, Pmtu, Ppcnt, Ptys, access, id};
use pollux_mlx5_abi::command::sq::{CreateSqIn, QuerySqOut, SqContext};
use pollux_mlx5_abi::command::tir::{CreateTirIn, TirContext, dispatch};
use pollux_mlx5_abi::command::user::{CreateUctxIn, CreateUmemIn, UmemContext, place};
use pollux_mlx5_abi::command::vport::{
    FieldSelect, ModifyNicVportContextIn, NicVportContext, QueryNicVportContextOut, QueryVportStateOut,
};
use pollux_mlx5_abi::command::wq::WorkQueue;
use pollux_mlx5_abi::command::{self, opcode as op, status};
use pollux_mlx5_abi::eqe::{event, port_change};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::Completion;
use pollux_mlx5_kernel::CommandQueue;
use pollux_mlx5_model::wire::Null;
use pollux_mlx5_model::{Device, DeviceConfig, Traits};

use super::rig::{Rig, Sq, frame, number, run, simple};
use super::send::plain;

fn refused(rig: &Rig, opcode: u16, input: &mut [u8]) -> u8 {
    rig.command(opcode, 0, input, 272).map_or_else(|refused| refused.status, |_| status::OK)
}

/// A command of a user context.
fn as_user(rig: &Rig, uid: u16, opcode: u16, input: &mut [u8]) -> Result<Vec<u8>, u8> {
    command::start(input, opcode, uid, 0);
    let mut out = vec![0; 272];
    rig.device.execute(input, &mut out).expect("there");
    command::outcome(&out).map(|()| out).map_err(|refused| refused.status)
}

fn named(number: u32) -> [u8; 16] {
    let mut input = [0; 16];
    input[8..12].copy_from_slice(&number.to_be_bytes());
    input
}

#[test]
fn the_function_comes_up_and_goes_down_in_order() {
    let device = Device::new(DeviceConfig::default(), Box::new(Null::default())).expect("memory");
    let status = |opcode, bytes| {
        run(&device, opcode, 1, &mut vec![0; bytes], 272)
            .map_or_else(|refused| refused.status, |_| status::OK)
    };
    assert_eq!(status(op::INIT_HCA, 32), status::BAD_SYS_STATE_ERR);
    assert_eq!(status(op::ALLOC_PD, 16), status::BAD_SYS_STATE_ERR);
    assert_eq!(status(op::ENABLE_HCA, 16), status::OK);
    assert_eq!(status(op::ENABLE_HCA, 16), status::BAD_SYS_STATE_ERR);
    assert_eq!(status(op::ALLOC_PD, 16), status::BAD_SYS_STATE_ERR);
    assert_eq!(status(op::QUERY_PAGES, 16), status::OK);
    assert_eq!(status(op::INIT_HCA, 16), status::BAD_INP_LEN_ERR);
    assert_eq!(status(op::INIT_HCA, 32), status::OK);
    assert_eq!(status(op::ALLOC_PD, 16), status::OK);
    assert_eq!(status(op::TEARDOWN_HCA, 16), status::OK);
    assert_eq!(status(op::ALLOC_PD, 16), status::BAD_SYS_STATE_ERR);
    assert_eq!(status(op::DISABLE_HCA, 16), status::OK);
    assert_eq!(status(op::QUERY_ISSI, 16), status::OK);
}

#[test]
fn pages_that_were_lent_come_back() {
    let rig = Rig::new();
    simple(&rig.device, op::TEARDOWN_HCA);
    let mut take = named(0);
    take[15] = 100;
    let out = rig.must(op::MANAGE_PAGES, 2, &mut take, 16 + 100 * 8);
    let count = u32::from_be_bytes(out[8..12].try_into().expect("4 bytes")) as usize;
    let mut back: Vec<u64> = command::pages(&out[16..16 + count * 8]).collect();
    back.sort_unstable();
    assert_eq!((back.len(), back[0], back[11]), (12, 0, 7 * 4096));
}

#[test]
fn capabilities_say_what_the_card_is() {
    let query = |traits: Traits, kind: u16| {
        let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
        let out = rig.must(op::QUERY_HCA_CAP, caps::op_mod(kind, caps::NOW), &mut [0; 16], 4112);
        let block = QueryHcaCapOut::CAPABILITY.get(out.first_chunk().expect("an answer"));
        *block.first_chunk::<256>().expect("a block")
    };
    let newest = query(Traits::default(), kind::GENERAL);
    for field in
        [GeneralCaps::STRIDING_RQ, GeneralCaps::CQE_COMPRESSION, GeneralCaps::BF, GeneralCaps::CQE_VERSION]
    {
        assert_eq!(field.get(&newest), 1);
    }
    // Nothing is claimed that is not there.
    assert_eq!(GeneralCaps::DCT.get(&newest), 0);
    for field in [GeneralCaps::RC, GeneralCaps::UD, GeneralCaps::XRC, GeneralCaps::ATOMIC] {
        assert_eq!(field.get(&newest), 1);
    }
    let oldest = query(
        Traits {
            striding_rq: false,
            cqe_compression: false,
            blue_flame: false,
            devx: false,
            rdma: false,
            ..Traits::default()
        },
        kind::GENERAL,
    );
    for field in [
        GeneralCaps::STRIDING_RQ,
        GeneralCaps::CQE_COMPRESSION,
        GeneralCaps::BF,
        GeneralCaps::LOG_MAX_UCTX,
        GeneralCaps::RC,
        GeneralCaps::LOG_MAX_QP,
    ] {
        assert_eq!(field.get(&oldest), 0);
    }
    let rig = Rig::new();
    assert_eq!(
        rig.command(op::QUERY_HCA_CAP, 0x99, &mut [0; 16], 4112).expect_err("unknown").status,
        status::BAD_PARAM_ERR
    );
}

#[test]
fn commands_that_are_not_there_or_too_short_are_refused() {
    let rig = Rig::new();
    for opcode in [op::MODIFY_GENERAL_OBJECT, op::CREATE_LAG, 0xfff] {
        assert_eq!(refused(&rig, opcode, &mut [0; 512]), status::BAD_OP_ERR, "{opcode:#x}");
    }
    for (opcode, _) in op::NAMES {
        let mut short = [0; 16];
        command::start(&mut short, *opcode, 0, 0);
        for bytes in 0..16 {
            let mut out = [0; 64];
            rig.device.execute(&short[..bytes], &mut out).expect("there");
            assert_ne!(out[0], status::OK, "{opcode:#x} of {bytes} bytes");
        }
        let mut out = [0xee; 7];
        rig.device.execute(&short, &mut out).expect("there");
        assert_eq!(out, [0xee; 7]);
    }
}

#[test]
fn a_refusal_names_its_check() {
    let rig = Rig::new();
    let refusal = rig.command(op::DESTROY_CQ, 0, &mut named(0xffff), 16).expect_err("no such queue");
    assert_eq!((refusal.status, refusal.syndrome >> 16), (status::BAD_RES_ERR, op::DESTROY_CQ.into()));
    assert!(refusal.syndrome & 0xffff != 0);
}

#[test]
fn objects_in_use_stay() {
    let rig = Rig::new();
    let cq = rig.cq(4);
    let sq = rig.sq(4, &cq);
    let rq = rig.rq(4, 4, &cq);
    let tir = rig.direct_tir(&rq);
    let chain = [
        (op::DEALLOC_PD, rig.pd),
        (op::DEALLOC_UAR, rig.uar),
        (op::DESTROY_EQ, rig.eq.number),
        (op::DESTROY_CQ, cq.number),
        (op::DESTROY_TIS, rig.tis),
        (op::DEALLOC_TRANSPORT_DOMAIN, rig.td),
        (op::DESTROY_RQ, rq.number),
    ];
    for (opcode, number) in chain {
        assert_eq!(refused(&rig, opcode, &mut named(number)), status::RES_BUSY, "{opcode:#x}");
    }
    for (opcode, number) in [
        (op::DESTROY_TIR, tir),
        (op::DESTROY_RQ, rq.number),
        (op::DESTROY_SQ, sq.number),
        (op::DESTROY_TIS, rig.tis),
        (op::DEALLOC_TRANSPORT_DOMAIN, rig.td),
        (op::DESTROY_CQ, cq.number),
        (op::DESTROY_EQ, rig.eq.number),
        (op::DEALLOC_UAR, rig.uar),
        (op::DESTROY_MKEY, rig.lkey >> 8),
        (op::DEALLOC_PD, rig.pd),
    ] {
        assert_eq!(refused(&rig, opcode, &mut named(number)), status::OK, "{opcode:#x}");
        assert_eq!(refused(&rig, opcode, &mut named(number)), status::BAD_RES_ERR, "{opcode:#x} again");
    }
}

#[test]
fn a_queues_state_changes_as_it_may() {
    let rig = Rig::new();
    let cq = rig.cq(4);
    let sq = rig.sq(4, &cq);
    let state = |number| {
        let out = rig.must(op::QUERY_SQ, 0, &mut named(number), 272);
        SqContext::STATE.get(QuerySqOut::SQ_CONTEXT.of(out.first_chunk().expect("an answer")))
    };
    let go = |from, to| rig.sq_state(&sq, from, to).map_or_else(|refused| refused.status, |_| status::OK);
    assert_eq!(state(sq.number), 1);
    assert_eq!(go(0, 1), status::BAD_RES_STATE_ERR, "not from the state it is in");
    assert_eq!(go(1, 2), status::BAD_PARAM_ERR);
    assert_eq!(go(1, 3), status::OK);
    assert_eq!((state(sq.number), go(3, 1)), (3, status::BAD_RES_STATE_ERR));
    assert_eq!((go(3, 0), state(sq.number)), (status::OK, 0));
    assert_eq!(go(0, 3), status::BAD_RES_STATE_ERR);
    assert_eq!((go(0, 1), state(sq.number)), (status::OK, 1));
}

#[test]
fn rings_are_checked_where_they_are_made() {
    let rig = Rig::new();
    let cq = rig.cq(4);
    type Change = fn(&mut [u8; SqContext::BYTES]);
    let change: [(Change, u8); 9] = [
        (|context| SqContext::CQN.set(context, 0xffff), status::BAD_RES_ERR),
        (|context| SqContext::TIS_NUM_0.set(context, 0), status::BAD_RES_ERR),
        (|context| SqContext::STATE.set(context, 1), status::BAD_PARAM_ERR),
        (|context| WorkQueue::PD.set(SqContext::WQ.of_mut(context), 0), status::BAD_RES_ERR),
        (|context| WorkQueue::UAR_PAGE.set(SqContext::WQ.of_mut(context), 0x1ff), status::BAD_RES_ERR),
        (|context| WorkQueue::LOG_WQ_STRIDE.set(SqContext::WQ.of_mut(context), 5), status::BAD_PARAM_ERR),
        (|context| WorkQueue::LOG_WQ_SZ.set(SqContext::WQ.of_mut(context), 16), status::BAD_PARAM_ERR),
        (|context| WorkQueue::LOG_WQ_SZ.set(SqContext::WQ.of_mut(context), 12), status::BAD_INP_LEN_ERR),
        (|context| WorkQueue::DBR_ADDR.set(SqContext::WQ.of_mut(context), 0x1001), status::BAD_PARAM_ERR),
    ];
    for (index, (change, expected)) in change.into_iter().enumerate() {
        let mut input = rig.sq_input(4, &cq, rig.room(4096), rig.room(64), change);
        assert_eq!(refused(&rig, op::CREATE_SQ, &mut input), expected, "case {index}");
    }
}

#[test]
fn a_key_comes_back_as_it_was_made_and_its_list_must_be_whole() {
    let rig = Rig::new();
    let out = rig.must(op::QUERY_MKEY, 0, &mut named(rig.lkey >> 8), 304);
    let context = QueryMkeyOut::MEMORY_KEY_MKEY_ENTRY.get(out.first_chunk().expect("an answer"));
    assert_eq!((MkeyContext::PD.get(&context), MkeyContext::MKEY_7_0.get(&context)), (rig.pd, 0x42));
    let make = |change: fn(&mut [u8; 64]), pages: usize| {
        let mut context = context;
        MkeyContext::LEN.set(&mut context, 8192);
        change(&mut context);
        let mut input = CreateMkeyIn::ZERO.to_vec();
        let head: &mut [u8; CreateMkeyIn::BYTES] = input.first_chunk_mut().expect("a command");
        CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(head, context);
        CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(head, 1);
        input.extend(vec![0; pages * 8]);
        refused(&rig, op::CREATE_MKEY, &mut input)
    };
    assert_eq!(make(|_| {}, 2), status::OK);
    assert_eq!(make(|_| {}, 1), status::BAD_INP_LEN_ERR);
    assert_eq!(make(|context| MkeyContext::LEN.set(context, 3 * 4096), 2), status::BAD_PARAM_ERR);
    assert_eq!(make(|context| MkeyContext::LEN.set(context, 0), 2), status::BAD_PARAM_ERR);
    assert_eq!(make(|context| MkeyContext::PD.set(context, 0xffff), 2), status::BAD_RES_ERR);
    assert_eq!(make(|context| MkeyContext::LOG_PAGE_SIZE.set(context, 5), 2), status::BAD_PARAM_ERR);
    assert_eq!(make(|context| MkeyContext::ACCESS_MODE_1_0.set(context, 2), 2), status::OK);
    assert_eq!(make(|context| MkeyContext::ACCESS_MODE_1_0.set(context, 2), 1), status::BAD_INP_LEN_ERR);
    assert_eq!(make(|context| MkeyContext::ACCESS_MODE_4_2.set(context, 1), 2), status::BAD_PARAM_ERR);
    assert_eq!(make(|context| MkeyContext::START_ADDR.set(context, u64::MAX), 2), status::BAD_PARAM_ERR);
}

#[test]
fn user_contexts_have_their_own_objects() {
    let rig = Rig::new();
    let mut create = CreateUctxIn::ZERO;
    let users: Vec<u16> =
        (0..2).map(|_| number(&rig.must(op::CREATE_UCTX, 0, &mut create.clone(), 16)) as u16).collect();
    CreateUctxIn::CAP.set(&mut create, 1 << 7);
    assert_eq!(refused(&rig, op::CREATE_UCTX, &mut create), status::BAD_PARAM_ERR);
    assert_eq!(as_user(&rig, 0x99, op::ALLOC_PD, &mut [0; 16]), Err(status::BAD_RES_ERR), "no such context");
    let pd = rig.domain_of(users[0]);
    assert_eq!(
        as_user(&rig, users[1], op::DEALLOC_PD, &mut named(pd)),
        Err(status::BAD_RES_ERR),
        "another's"
    );
    assert_eq!(
        as_user(&rig, users[1], op::DEALLOC_PD, &mut named(rig.pd)),
        Err(status::BAD_RES_ERR),
        "the kernel's"
    );
    let query = as_user(&rig, users[0], op::QUERY_TIS, &mut named(rig.tis));
    assert!(query.is_ok(), "the kernel's can be named");
    rig.must(op::DESTROY_UCTX, 0, &mut named(users[0].into()), 16);
    assert_eq!(refused(&rig, op::DEALLOC_PD, &mut named(pd)), status::BAD_RES_ERR, "gone with its context");
}

#[test]
fn transport_domain_0_is_everybodys() {
    let rig = Rig::new();
    let cq = rig.cq(4);
    let rq = rig.rq(4, 6, &cq);
    let [one, other] =
        [0; 2].map(|_| number(&rig.must(op::CREATE_UCTX, 0, &mut CreateUctxIn::ZERO.clone(), 16)) as u16);
    let own = number(&as_user(&rig, one, op::ALLOC_TRANSPORT_DOMAIN, &mut [0; 16]).expect("accepted"));
    assert_ne!(own, 0, "it is nobody's own");
    let tir = |user: u16, domain: u32| {
        let mut input = CreateTirIn::ZERO;
        let context = CreateTirIn::CTX.of_mut(&mut input);
        TirContext::DISP_TYPE.set(context, dispatch::DIRECT);
        TirContext::INLINE_RQN.set(context, rq.number);
        TirContext::TRANSPORT_DOMAIN.set(context, domain);
        as_user(&rig, user, op::CREATE_TIR, &mut input).map(drop)
    };
    for user in [0, one, other] {
        assert_eq!(tir(user, 0), Ok(()), "user {user}");
        assert_eq!(tir(user, own + 1), Err(status::BAD_RES_ERR), "user {user}: there is none");
    }
    assert_eq!((tir(one, own), tir(other, own)), (Ok(()), Err(status::BAD_RES_ERR)), "another's");
    let give_back = as_user(&rig, one, op::DEALLOC_TRANSPORT_DOMAIN, &mut named(0));
    assert_eq!(give_back.map(drop), Err(status::BAD_RES_ERR));
}

fn umem(rig: &Rig, at: u64, bytes: u64) -> u32 {
    let mut input = CreateUmemIn::ZERO.to_vec();
    let umem = CreateUmemIn::UMEM.of_mut(input.first_chunk_mut().expect("a command"));
    let first = at & !0xfff;
    let count = (at + bytes - first).div_ceil(4096);
    UmemContext::PAGE_OFFSET.set(umem, (at - first) as u32);
    UmemContext::NUM_OF_MTT.set(umem, count);
    input.extend((0..count).flat_map(|page| ((first + page * 4096) | 3).to_be_bytes()));
    number(&rig.must(op::CREATE_UMEM, 0, &mut input, 16))
}

#[test]
fn queues_can_name_their_memory_by_umem() {
    let rig = Rig::new();
    // One umem for all: completion ring, send ring, records.
    let base = rig.room(32 * 1024) + 192;
    let number_of = umem(&rig, base, 31 * 1024);
    let mut input = CreateCqIn::ZERO;
    let context = CreateCqIn::CQ_CONTEXT.of_mut(&mut input);
    CqContext::LOG_CQ_SIZE.set(context, 4);
    CqContext::UAR_PAGE.set(context, rig.uar);
    CqContext::C_EQN_OR_APU_ELEMENT.set(context, rig.eq.number);
    CqContext::DBR_UMEM_VALID.set(context, 1);
    CqContext::DBR_ADDR.set(context, 0x7000);
    place::CQ_RECORD_UMEM.set(context, number_of);
    CreateCqIn::CQ_UMEM_VALID.set(&mut input, 1);
    place::CQ_UMEM.set(&mut input, number_of);
    place::CQ_OFFSET.set(&mut input, 0x1000);
    let cqn = number(&rig.must(op::CREATE_CQ, 0, &mut input, 16));
    let mut cq = super::rig::Cq {
        number: cqn,
        ring: base + 0x1000,
        record: base + 0x7000,
        log: 4,
        entry_bytes: 64,
        next: 0,
    };
    (1..=16).for_each(|entry| rig.write(cq.ring + entry * 64 - 1, &[0xf1]));
    let mut input = rig.sq_input(4, &cq, 0, 0x7040, |context| {
        let wq = SqContext::WQ.of_mut(context);
        WorkQueue::DBR_UMEM_VALID.set(wq, 1);
        WorkQueue::WQ_UMEM_VALID.set(wq, 1);
        place::WQ_RECORD_UMEM.set(wq, number_of);
        place::WQ_UMEM.set(wq, number_of);
        place::WQ_OFFSET.set(wq, 0x2000);
    });
    input.truncate(CreateSqIn::BYTES);
    let sqn = number(&rig.must(op::CREATE_SQ, 0, &mut input, 16));
    let mut sq = Sq::at(sqn, base + 0x2000, base + 0x7040, 4);
    rig.sq_state(&sq, 0, 1).expect("to READY");
    for _ in 0..40 {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::Always);
        sq.ring(&rig);
        rig.settle();
        assert!(cq.poll(&rig).is_some());
        cq.give_back(&rig);
    }
    assert_eq!(rig.wire.ends().sent.len(), 40);
    place::WQ_OFFSET.set(
        SqContext::WQ.of_mut(CreateSqIn::CTX.of_mut(input.first_chunk_mut().expect("a command"))),
        0x7c00,
    );
    assert_eq!(refused(&rig, op::CREATE_SQ, &mut input), status::BAD_PARAM_ERR, "past the umem's end");
}

#[test]
fn the_port_is_asked_and_changed() {
    let rig = Rig::new();
    let context = || {
        let out = rig.must(op::QUERY_NIC_VPORT_CONTEXT, 0, &mut [0; 16], 272 + 16);
        QueryNicVportContextOut::NIC_VPORT_CONTEXT.get(out.first_chunk().expect("an answer"))
    };
    assert_eq!(NicVportContext::PERMANENT_ADDRESS.get(&context()), 0x0200_0000_0001);
    // With 22 bytes for headers, as PMTU has it.
    assert_eq!(NicVportContext::MTU.get(&context()), 1522);
    let mut input = ModifyNicVportContextIn::ZERO.to_vec();
    let head: &mut [u8; ModifyNicVportContextIn::BYTES] = input.first_chunk_mut().expect("a command");
    let mut fields = [0; 4];
    for field in [FieldSelect::MTU, FieldSelect::PROMISC, FieldSelect::ADDRESSES_LIST] {
        field.set(&mut fields, 1);
    }
    ModifyNicVportContextIn::FIELD_SELECT.set(head, u32::from_be_bytes(fields));
    let changed = ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(head);
    NicVportContext::MTU.set(changed, 9022);
    NicVportContext::PROMISC_ALL.set(changed, 1);
    NicVportContext::ALLOWED_LIST_SIZE.set(changed, 1);
    input.extend(0x0200_0000_0077_u64.to_be_bytes());
    rig.must(op::MODIFY_NIC_VPORT_CONTEXT, 0, &mut input, 16);
    assert_eq!((rig.device.mtu(), NicVportContext::PROMISC_ALL.get(&context())), (9000, 1));
    assert_eq!(NicVportContext::ALLOWED_LIST_SIZE.get(&context()), 1);
    let changed =
        ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(input.first_chunk_mut().expect("a command"));
    NicVportContext::MTU.set(changed, 60_000);
    assert_eq!(refused(&rig, op::MODIFY_NIC_VPORT_CONTEXT, &mut input), status::BAD_PARAM_ERR);
    // The most that PMTU names is the most that the vport takes.
    let changed =
        ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(input.first_chunk_mut().expect("a command"));
    NicVportContext::MTU.set(changed, 10_000);
    rig.must(op::MODIFY_NIC_VPORT_CONTEXT, 0, &mut input, 16);
    assert_eq!((rig.device.mtu(), NicVportContext::MTU.get(&context())), (9978, 10_000));
}

pub(crate) fn register<const N: usize>(rig: &Rig, number: u16, write: bool, block: [u8; N]) -> [u8; N] {
    let mut input = AccessRegisterIn::ZERO.to_vec();
    AccessRegisterIn::REGISTER_ID.set(input.first_chunk_mut().expect("a command"), number.into());
    input.extend(block);
    let op_mod = if write { access::WRITE } else { access::READ };
    let out = rig.must(op::ACCESS_REG, op_mod, &mut input, 16 + N);
    *out[16..].first_chunk().expect("the register")
}

#[test]
fn registers_of_the_port_answer() {
    let rig = Rig::new();
    let mut ptys = Ptys::ZERO;
    Ptys::PROTO_MASK.set(&mut ptys, 4);
    let ptys = register(&rig, id::PTYS, false, ptys);
    assert_eq!(Ptys::ETH_PROTO_OPER.get(&ptys), 1 << 20, "100GBASE-CR4");
    let pmtu = register(&rig, id::PMTU, false, Pmtu::ZERO);
    assert_eq!((Pmtu::MAX_MTU.get(&pmtu), Pmtu::OPER_MTU.get(&pmtu)), (10_000, 1522));
    let cq = rig.cq(4);
    let mut sq = rig.sq(4, &cq);
    sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    let counters = register(&rig, id::PPCNT, false, Ppcnt::ZERO);
    assert_eq!(counters[8 + 7], 1, "one frame sent");
    assert!(
        rig.event()
            .is_some_and(|event| event.kind == event::PORT_CHANGE && event.sub_type == port_change::ACTIVE)
    );
    let mut down = Paos::ZERO;
    Paos::ADMIN_STATUS.set(&mut down, 2);
    let paos = register(&rig, id::PAOS, true, down);
    assert_eq!((Paos::OPER_STATUS.get(&paos), rig.device.link_is_up()), (2, false));
    assert!(rig.event().is_some_and(|event| event.sub_type == port_change::DOWN));
    let out = rig.must(op::QUERY_VPORT_STATE, 0, &mut [0; 16], 16);
    assert_eq!(QueryVportStateOut::STATE.get(out.first_chunk().expect("an answer")), 0);
    sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!((rig.wire.ends().sent.len(), rig.device.port_counters().sent_while_down), (1, 1));
}
