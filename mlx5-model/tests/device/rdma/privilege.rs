//! What the kernel's queues may do and those of user contexts may not.

use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext as M, access_mode};
use pollux_mlx5_abi::command::qp::TransitionIn;
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext as Q, service};
use pollux_mlx5_abi::command::rq::{CreateRqIn, RqContext};
use pollux_mlx5_abi::command::sq::SqContext;
use pollux_mlx5_abi::command::wq::{self, WorkQueue};
use pollux_mlx5_abi::command::{Refused, opcode as op, status};
use pollux_mlx5_abi::cqe::CqeError;
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::{MkeyContext, UmrControl, mkey_access, mkey_mask as mask, umr_flag};
use zerocopy::{FromBytes, IntoBytes};

use super::node::{Ends, Node, Pair, Plan};
use super::registration::{Wanted, free_key, pages, pieces, post, register};
use crate::rig::{HCA_DELTA, number};

/// Two ends, and a user context of the second, in whose domain all is that is made there from now on.
fn with_user() -> (Ends, u16) {
    let mut ends = Ends::new();
    let uid = ends.b.rig.user();
    ends.b.rig.pd = ends.b.rig.domain_of(uid);
    (ends, uid)
}

#[test]
fn the_key_for_any_memory_is_the_kernels() {
    let (ends, uid) = with_user();
    let node = &ends.b;
    let made = |uid, key: u32| {
        let made = node.pair_as(uid, Plan::default(), |context| Q::RLKY.set(context, key));
        made.map(|pair| pair.number).map_err(|refused| refused.status)
    };
    assert!(made(0, 1).is_ok() && made(uid, 0).is_ok());
    assert_eq!(made(uid, 1), Err(status::BAD_PARAM_ERR));
    let send = |uid, key: u32| {
        let (cq, ring, record) = (node.rig.cq(4), node.rig.room(1024), node.rig.room(64));
        let mut input = node.rig.sq_input(4, &cq, ring, record, |context| SqContext::RLKY.set(context, key));
        node.rig.command_as(uid, op::CREATE_SQ, &mut input, 16).map_err(|refused| refused.status)
    };
    assert!(send(0, 1).is_ok() && send(uid, 0).is_ok());
    assert_eq!(send(uid, 1).expect_err("the kernel's"), status::BAD_PARAM_ERR);
}

/// One that is made without it does not come by it later.
#[test]
fn no_transition_of_a_user_gives_the_key_for_any_memory() {
    let (ends, uid) = with_user();
    let node = &ends.b;
    let number = made_by(node, uid).number;
    for opcode in [op::RST2INIT_QP, op::INIT2RTR_QP, op::RTR2RTS_QP, op::RTS2RTS_QP] {
        let moved = |key: u32| {
            let mut input = TransitionIn::ZERO;
            TransitionIn::QPN.set(&mut input, number);
            let context = TransitionIn::QPC.of_mut(&mut input);
            AddressPath::VHCA_PORT_NUM.set(Q::PRIMARY_ADDRESS_PATH.of_mut(context), 1);
            Q::MTU.set(context, 3);
            Q::RLKY.set(context, key);
            node.rig.command_as(uid, opcode, &mut input, 16).map_err(|refused| refused.status)
        };
        assert_eq!(moved(1).expect_err("the kernel's"), status::BAD_PARAM_ERR, "{opcode:#x}");
        assert!(moved(0).is_ok(), "it stands where it stood");
    }
}

fn made_by(node: &Node, uid: u16) -> Pair {
    node.pair_as(uid, Plan::default(), |_| {}).expect("a queue pair")
}

/// As the kernel makes them of user contexts' memory: keys of its own, in domains that the context's queues work in.
#[test]
fn addresses_of_pages_come_from_the_kernels_queues_alone() {
    let (ends, uid) = with_user();
    let node = &ends.b;
    let memory = node.rig.room(2 * 4096);
    let below = node.key(memory, 8192, |_| {});
    let wanted = |bytes| Wanted {
        flags: umr_flag::CHECK_FREE | umr_flag::INLINE,
        start: 0,
        bytes,
        log_page: 12,
        variable: 1,
    };
    let of = |service: u32, registers: bool, uid: u16, key: u32, body: &[u8]| {
        let plan = Plan { service, xrc_domain: ends.domain(service), registers, ..Plan::default() };
        let (peer, mut pair) = (ends.a.pair(plan), node.pair_as(uid, plan, |_| {}).expect("a queue pair"));
        node.connect(&pair, &ends.a, peer.number, &plan);
        post(&mut pair, node, key, body);
        ends.steps(3);
        let entry = pair.send_cq.poll(&node.rig).expect("a completion");
        CqeError::of(&entry).map_or(0, |error| error.syndrome().code)
    };
    let outcome = |uid: u16, key: u32, body: &[u8]| of(service::RC, true, uid, key, body);
    let key = free_key(node, access_mode::MTT, 4, 12);
    // Not in a row.
    let given = [register(wanted(8192), 4), pages(&[memory + 4096, memory])].concat();
    assert_eq!(outcome(uid, key, &given), S::MW_BIND_ERR);
    // Without the size of the pages it is the list alone.
    let fields =
        mask::LEN | mask::START_ADDR | mask::KEY | mask::FREE | mask::LR | mask::LW | mask::RR | mask::RW;
    let mut list_alone = given.clone();
    UmrControl::mut_from_prefix(&mut list_alone).expect("an entry").0.mkey_mask.set(fields);
    assert_eq!(outcome(uid, key, &list_alone), S::MW_BIND_ERR);
    // Programs without DEVX, and those' initiators of XRC, have the kernel's number.
    for service in [service::RC, service::XRC] {
        assert_eq!(of(service, false, 0, key, &given), S::MW_BIND_ERR);
        assert_eq!(of(service, false, 0, key, &list_alone), S::MW_BIND_ERR);
    }
    assert_eq!(outcome(0, key, &given), 0);
    // Nor does a user say that the pages are larger than they are. What else there is of the key, it may change.
    let change = |fields: u64| {
        let control =
            UmrControl { flags: umr_flag::INLINE, mkey_mask: fields.into(), ..UmrControl::default() };
        let context = MkeyContext {
            access_flags: mkey_access::LOCAL_READ,
            qpn_mkey: 0xffff_ff01.into(),
            log_page_size: 30,
            flags_pd: node.rig.pd.into(),
            ..MkeyContext::default()
        };
        [control.as_bytes(), context.as_bytes()].concat()
    };
    assert_eq!(outcome(uid, key | 1, &change(mask::PAGE_SIZE)), S::MW_BIND_ERR);
    assert_eq!(outcome(uid, key | 1, &change(mask::LR | mask::LW)), 0);
    assert_eq!(outcome(0, key | 1, &change(mask::PAGE_SIZE)), 0);
    // Nor that the key is of another domain, be it the user's own.
    assert_eq!(outcome(uid, key | 1, &change(mask::PD)), S::MW_BIND_ERR);
    assert_eq!(of(service::RC, false, 0, key | 1, &change(mask::PD)), S::MW_BIND_ERR);
    assert_eq!(outcome(0, key | 1, &change(mask::PD)), 0);
    // What stands for other keys reaches no more than those do.
    let laid = [register(wanted(0x100), 4), pieces(&[(0x100, below, memory + HCA_DELTA)])].concat();
    assert_eq!(outcome(uid, free_key(node, access_mode::KLM, 4, 12), &laid), 0);
}

/// Whose entries change the keys of all domains.
#[test]
fn the_queue_pair_for_all_keys_is_the_kernels() {
    let (ends, uid) = with_user();
    let made = |uid, service| {
        let made = ends.b.pair_as(uid, Plan::default(), |context| Q::ST.set(context, service));
        made.map(|pair| pair.number).map_err(|refused| refused.status)
    };
    assert_eq!(made(uid, service::REG_UMR), Err(status::BAD_PARAM_ERR));
    assert!(made(0, service::REG_UMR).is_ok() && made(uid, service::RC).is_ok());
}

/// There, any queue would reach what the kernel's keys do.
#[test]
fn no_queue_or_key_of_a_user_is_in_the_kernels_domain_or_anothers() {
    type Make<'m> = &'m dyn Fn(u32) -> Result<u32, Refused>;
    let (ends, uid) = with_user();
    let node = &ends.b;
    let (kernels, others) = (number(&node.rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16)), node.rig.user());
    let others = node.rig.domain_of(others);
    let cq = node.rig.cq(4);
    let (ring, record) = (node.rig.room(4096), node.rig.room(64));
    let pair = |domain: u32| {
        node.pair_as(uid, Plan::default(), |context| Q::PD.set(context, domain)).map(|pair| pair.number)
    };
    let send = |domain: u32| {
        let change = |context: &mut [u8; SqContext::BYTES]| {
            WorkQueue::PD.set(SqContext::WQ.of_mut(context), domain);
        };
        let mut input = node.rig.sq_input(4, &cq, ring, record, change);
        node.rig.command_as(uid, op::CREATE_SQ, &mut input, 16).map(|out| number(&out))
    };
    let receive = |domain: u32| {
        let mut input = CreateRqIn::ZERO.to_vec();
        let context = CreateRqIn::CTX.of_mut(input.first_chunk_mut().expect("a command"));
        RqContext::CQN.set(context, cq.number);
        let queue = RqContext::WQ.of_mut(context);
        for (field, value) in [
            (WorkQueue::WQ_TYPE, wq::kind::CYCLIC),
            (WorkQueue::PD, domain),
            (WorkQueue::LOG_WQ_STRIDE, 4),
            (WorkQueue::LOG_WQ_SZ, 4),
        ] {
            field.set(queue, value);
        }
        WorkQueue::DBR_ADDR.set(queue, record);
        input.extend(ring.to_be_bytes());
        node.rig.command_as(uid, op::CREATE_RQ, &mut input, 16).map(|out| number(&out))
    };
    let key = |domain: u32| {
        let mut context = M::ZERO;
        for (field, value) in [
            (M::FREE, 1),
            (M::UMR_EN, 1),
            (M::ACCESS_MODE_1_0, access_mode::KLM),
            (M::QPN, 0xff_ffff),
            (M::PD, domain),
            (M::TRANSLATIONS_OCTWORD_SIZE, 4),
        ] {
            field.set(&mut context, value);
        }
        let mut input = CreateMkeyIn::ZERO.to_vec();
        CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(input.first_chunk_mut().expect("a command"), context);
        node.rig.command_as(uid, op::CREATE_MKEY, &mut input, 16).map(|out| number(&out))
    };
    let all: [(&str, Make<'_>); 4] =
        [("queue pair", &pair), ("send queue", &send), ("receive queue", &receive), ("key", &key)];
    for (what, make) in all {
        for domain in [kernels, others] {
            assert_eq!(make(domain).expect_err(what).status, status::BAD_RES_ERR, "{what}");
        }
        make(node.rig.pd).expect(what);
    }
}
