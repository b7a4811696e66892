//! Keys that entries of send queues change, and the striding receive queue behind them, as Linux's network driver has both: Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`, `mlx5e_create_umr_mkey`; `en_rx.c`, `mlx5e_alloc_rx_mpwqe`.

use pollux_mlx5_abi::caps::ethernet::EthernetCaps;
use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::{self, QueryHcaCapOut, kind as cap};
use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext as M, access_mode};
use pollux_mlx5_abi::command::rq::RqContext;
use pollux_mlx5_abi::command::sq::SqContext;
use pollux_mlx5_abi::command::wq::{WorkQueue, kind};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{
    Completion, Control, Data, MkeyContext, StridingReceive, UmrControl, mkey_mask, umr_flag,
};
use pollux_mlx5_model::{DeviceConfig, Traits};
use zerocopy::IntoBytes;

use super::receive::arrive;
use super::rig::{Cq, Rig, Sq, frame, number};

const PAGE: u64 = 4096;

/// A free key for `pages` pages, each of them `filler` at first.
fn key(rig: &Rig, pages: u32, filler: u64) -> u32 {
    let mut context = M::ZERO;
    for (field, value) in [
        (M::FREE, 1),
        (M::UMR_EN, 1),
        (M::LR, 1),
        (M::LW, 1),
        (M::ACCESS_MODE_1_0, access_mode::MTT),
        (M::QPN, 0xff_ffff),
        (M::PD, rig.pd),
        (M::TRANSLATIONS_OCTWORD_SIZE, pages / 2),
        (M::LOG_PAGE_SIZE, 12),
    ] {
        field.set(&mut context, value);
    }
    M::LEN.set(&mut context, u64::from(pages) * PAGE);
    let mut input = CreateMkeyIn::ZERO.to_vec();
    let head: &mut [u8; CreateMkeyIn::BYTES] = input.first_chunk_mut().expect("a command");
    CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(head, context);
    CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(head, pages / 2);
    input.extend((0..pages).flat_map(|_| filler.to_be_bytes()));
    number(&rig.must(op::CREATE_MKEY, 0, &mut input, 16)) << 8
}

/// A queue without a TIS whose entries may change keys.
fn changing(rig: &Rig, cq: &Cq) -> Sq {
    rig.sq_with(6, cq, |context| {
        SqContext::REG_UMR.set(context, 1);
        SqContext::TIS_LST_SZ.set(context, 0);
    })
}

/// Has a key lead to pages, from that unit of 16 bytes on.
fn map(rig: &Rig, sq: &mut Sq, key: u32, begin: u16, pages: &[u64]) {
    let control = UmrControl {
        flags: umr_flag::TRANSLATION_OFFSET | umr_flag::INLINE,
        klm_octowords: (pages.len().next_multiple_of(8) as u16 / 2).into(),
        translation_offset: begin.into(),
        mkey_mask: mkey_mask::FREE.into(),
        ..UmrControl::default()
    };
    let mut body = [control.as_bytes(), MkeyContext::default().as_bytes()].concat();
    body.extend(pages.iter().flat_map(|page| (page | 2).to_be_bytes()));
    body.resize(body.len().next_multiple_of(64), 0);
    let segments = (1 + body.len() / 16) as u8;
    let control = Control::new(send::UMR, 0, sq.next, sq.number, segments, Completion::Always as u8, key);
    sq.write_raw(rig, &control, &body);
    sq.ring(rig);
    rig.settle();
}

#[test]
fn a_striding_queue_receives_into_pages_that_entries_name() {
    let rig = Rig::new();
    let (mut cq, mut done) = (rig.cq(6), rig.cq(6));
    let (filler, memory) = (rig.room(PAGE as usize), rig.room(16 * PAGE as usize));
    let key = key(&rig, 32, filler);
    let mut sq = changing(&rig, &done);
    // Entries of 8 pages, 16 strides of 2 KiB, each entry in its part of the key.
    let mut rq = rig.rq_with(2, 5, &cq, |context| {
        let wq = RqContext::WQ.of_mut(context);
        WorkQueue::WQ_TYPE.set(wq, kind::CYCLIC_STRIDING_RQ);
        WorkQueue::LOG_WQE_NUM_OF_STRIDES.set(wq, 0xb);
        WorkQueue::LOG_WQE_STRIDE_SIZE.set(wq, 5);
    });
    rig.all_to(rig.direct_tir(&rq));
    // The second entry's pages are mapped, in the order from the last to the first; the third's are the filler.
    let pages: Vec<u64> = (0..8).rev().map(|page| memory + page * PAGE).collect();
    map(&rig, &mut sq, key, 4, &pages);
    assert_eq!(done.poll(&rig).expect("a completion").send_opcode(), send::UMR);
    for entry in [1, 2] {
        let data = Data::new(8 * PAGE as u32, key, entry * 8 * PAGE);
        rq.post_raw(&rig, StridingReceive { data, ..Default::default() }.as_bytes());
    }
    for mark in 0..17 {
        arrive(&rig, &frame(1500, mark));
        assert_eq!(cq.poll(&rig).expect("a completion").strides().bytes, 1500, "{mark}");
    }
    assert_eq!(rig.read(memory + 7 * PAGE, 1500), frame(1500, 0));
    assert_eq!(rig.read(memory + 7 * PAGE + 2048, 1500), frame(1500, 1));
    assert_eq!(rig.read(memory + 2048, 1500), frame(1500, 15));
    assert_eq!(rig.read(filler, 1500), frame(1500, 16));
}

#[test]
fn a_queue_asks_to_change_keys_or_may_not() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let memory = rig.room(PAGE as usize);
    let key = key(&rig, 8, memory);
    let mut sq = rig.sq_with(6, &cq, |context| SqContext::TIS_LST_SZ.set(context, 0));
    map(&rig, &mut sq, key, 0, &[memory; 8]);
    assert_eq!(cq.error(&rig).syndrome(), Syndrome { code: Syndrome::LOCAL_QP_OP_ERR, vendor: 0x62 });
    // A key of another domain, and more than the key has room for.
    let mut foreign = rig.mkey(memory, PAGE, true);
    for (begin, what) in [(0, "domain"), (4, "room")] {
        let mut sq = changing(&rig, &cq);
        map(&rig, &mut sq, foreign, begin, &[memory; 8]);
        assert_eq!(cq.error(&rig).syndrome().code, Syndrome::MW_BIND_ERR, "{what}");
        foreign = key;
    }
}

#[test]
fn a_card_without_says_so_and_refuses_such_queues() {
    let said = |rig: &Rig, kind: u16| {
        let out = rig.must(op::QUERY_HCA_CAP, caps::op_mod(kind, caps::NOW), &mut [0; 16], 4112);
        let block = QueryHcaCapOut::CAPABILITY.get(out.first_chunk().expect("an answer"));
        *block.first_chunk::<256>().expect("a block")
    };
    for has in [true, false] {
        let traits = Traits { change_keys: has, ..Traits::default() };
        let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
        let general = said(&rig, cap::GENERAL);
        assert_eq!(GeneralCaps::UMR_MODIFY_ENTITY_SIZE_DISABLED.is_set(&general), !has);
        assert_eq!(GeneralCaps::UMR_PTR_RLKY.is_set(&general), has);
        assert_eq!(EthernetCaps::REG_UMR_SQ.is_set(&said(&rig, cap::ETHERNET_OFFLOADS)), has);
        let cq = rig.cq(6);
        let (ring, record) = (rig.room(64 << 6), rig.room(64));
        let mut input = rig.sq_input(6, &cq, ring, record, |context| SqContext::REG_UMR.set(context, 1));
        let made = rig.command(op::CREATE_SQ, 0, &mut input, 16);
        assert_eq!(made.map_err(|refused| refused.status).err(), (!has).then_some(status::BAD_PARAM_ERR));
    }
}
