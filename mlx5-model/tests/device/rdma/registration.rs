//! Memory registered by entries of queue pairs, in the forms that Linux's mlx5_ib posts: Linux `drivers/infiniband/hw/mlx5/wr.c`,
//! `set_reg_wr`, `set_linv_wr`; `umr.c`, `_mlx5r_umr_update_mr_pas`, `mlx5r_umr_revoke_mr`.

use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext as M, access_mode};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::cqe::CqeError;
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::{
    Data, MkeyContext, RemoteAddress, UmrControl, mkey_access, mkey_flag, mkey_mask as mask, umr_flag,
};
use zerocopy::IntoBytes;

use super::node::{Ends, Node, Pair, Plan, data};
use crate::rig::{HCA_DELTA, number};

const PAGE: u64 = 4096;

/// A key of no memory, with room for so many units of 16 bytes.
pub(super) fn free_key(node: &Node, mode: u32, units: u32, log_page: u32) -> u32 {
    let mut context = M::ZERO;
    for (field, value) in [
        (M::FREE, 1),
        (M::UMR_EN, 1),
        (M::LR, 1),
        (M::ACCESS_MODE_1_0, mode),
        (M::QPN, 0xff_ffff),
        (M::PD, node.rig.pd),
        (M::TRANSLATIONS_OCTWORD_SIZE, units),
        (M::LOG_PAGE_SIZE, log_page),
    ] {
        field.set(&mut context, value);
    }
    let mut input = CreateMkeyIn::ZERO.to_vec();
    CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(input.first_chunk_mut().expect("a command"), context);
    number(&node.rig.must(op::CREATE_MKEY, 0, &mut input, 16)) << 8
}

/// What an entry registers.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) flags: u8,
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) log_page: u8,
    pub(super) variable: u8,
}

/// The head of an entry that registers memory for everything, as `set_reg_wr` has it.
pub(super) fn register(wanted: Wanted, units: u16) -> Vec<u8> {
    let fields = mask::LEN
        | mask::PAGE_SIZE
        | mask::START_ADDR
        | mask::EN_RINVAL
        | mask::KEY
        | mask::LR
        | mask::LW
        | mask::RR
        | mask::RW
        | mask::A
        | mask::FREE;
    let control = UmrControl {
        flags: wanted.flags,
        klm_octowords: units.into(),
        mkey_mask: fields.into(),
        ..UmrControl::default()
    };
    let context = MkeyContext {
        access_flags: mkey_access::LOCAL_READ
            | mkey_access::LOCAL_WRITE
            | mkey_access::REMOTE_READ
            | mkey_access::REMOTE_WRITE,
        qpn_mkey: (u32::from(wanted.variable) | 0xffff_ff00).into(),
        start_addr: wanted.start.into(),
        len: wanted.bytes.into(),
        log_page_size: wanted.log_page,
        ..MkeyContext::default()
    };
    [control.as_bytes(), context.as_bytes()].concat()
}

/// Addresses of pages, with the bits that say they may be written, filled up to 64 bytes.
pub(super) fn pages(list: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = list.iter().flat_map(|page| (page | 3).to_be_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    bytes
}

pub(super) fn post(pair: &mut Pair, node: &Node, key: u32, body: &[u8]) {
    pair.post(node, send::UMR, 2 << 2, key, body);
    pair.sq.ring(&node.rig);
}

/// Has A write to a key of B; whether that went well.
fn writes(ends: &Ends, a: &mut Pair, key: u32, at: u64, bytes: &[u8]) -> bool {
    let here = ends.a.rig.room(bytes.len());
    ends.a.rig.write(here, bytes);
    let there = RemoteAddress::new(at, key);
    let body = [there.as_bytes(), &data(ends.a.rig.lkey, here, bytes.len() as u32)].concat();
    a.send(&ends.a, send::RDMA_WRITE, &body);
    ends.steps(10);
    a.send_cq.poll(&ends.a.rig).is_some_and(|entry| entry.opcode() == 0)
}

#[test]
fn pages_are_registered_and_invalidated() {
    let ends = Ends::new();
    let (mut a, mut b) = ends.connected(Plan::of_kernel());
    let memory = ends.b.rig.room(8 * PAGE as usize);
    let key = free_key(&ends.b, access_mode::MTT, 4, 0);
    let wanted = Wanted {
        flags: umr_flag::CHECK_FREE | umr_flag::INLINE,
        // Not where the memory is, and not at the beginning of a page.
        start: 0x7_0000_0234,
        bytes: 2 * PAGE,
        log_page: 12,
        variable: 0x11,
    };
    let list = pages(&[memory + 4 * PAGE, memory, memory + 2 * PAGE]);
    post(&mut b, &ends.b, key, &[register(wanted, 4), list.clone()].concat());
    ends.steps(3);
    assert_eq!(b.done(&ends.b).send_opcode(), send::UMR);
    let text: Vec<u8> = (0..2 * PAGE).map(|index| index as u8 ^ (index >> 8) as u8).collect();
    assert!(writes(&ends, &mut a, key | 0x11, wanted.start, &text));
    let first = PAGE as usize - 0x234;
    assert_eq!(ends.b.rig.read(memory + 4 * PAGE + 0x234, first), text[..first]);
    assert_eq!(ends.b.rig.read(memory, PAGE as usize), text[first..][..PAGE as usize]);
    assert_eq!(ends.b.rig.read(memory + 2 * PAGE, 0x234), text[first + PAGE as usize..]);
    // Invalidated as IB_WR_LOCAL_INV is, and registered again in pages of 8 KiB, the list in memory.
    let control =
        UmrControl { flags: umr_flag::INLINE, mkey_mask: mask::FREE.into(), ..UmrControl::default() };
    let context = MkeyContext { free: mkey_flag::FREE, ..MkeyContext::default() };
    post(&mut b, &ends.b, key | 0x11, &[control.as_bytes(), context.as_bytes()].concat());
    ends.steps(3);
    b.done(&ends.b);
    let desk = ends.b.rig.room(64);
    ends.b.rig.write(desk, &pages(&[memory + 4 * PAGE, memory]));
    let wanted =
        Wanted { flags: umr_flag::CHECK_FREE, start: 0x1234, bytes: 0x3000, log_page: 13, variable: 0x12 };
    let pointer = Data::new(64, ends.b.rig.lkey, desk + HCA_DELTA);
    post(&mut b, &ends.b, key, &[register(wanted, 4), pointer.as_bytes().to_vec()].concat());
    ends.steps(3);
    assert_eq!(b.done(&ends.b).send_opcode(), send::UMR);
    assert!(writes(&ends, &mut a, key | 0x12, 0x1234, &text[..0x1000]));
    assert_eq!(ends.b.rig.read(memory + 4 * PAGE + 0x1234, 0xdcc), text[..0xdcc]);
    assert_eq!(ends.b.rig.read(memory, 0x234), text[0xdcc..0x1000]);
    assert!(!writes(&ends, &mut a, key | 0x11, 0x1234, &text[..8]), "the key of before");
}

/// An entry that must not change a key: what it fails with.
#[track_caller]
fn refused(units: u32, change: impl FnOnce(&mut Wanted) -> u16) -> u8 {
    let ends = Ends::new();
    let (_, mut b) = ends.connected(Plan::of_kernel());
    let memory = ends.b.rig.room(PAGE as usize);
    let key = free_key(&ends.b, access_mode::MTT, units, 12);
    let mut wanted = Wanted {
        flags: umr_flag::CHECK_FREE | umr_flag::INLINE,
        start: 0,
        bytes: PAGE,
        log_page: 12,
        variable: 1,
    };
    let written = change(&mut wanted);
    let list = pages(&vec![memory; usize::from(written) * 2]);
    post(&mut b, &ends.b, key, &[register(wanted, written), list].concat());
    ends.steps(3);
    b.send_cq
        .poll(&ends.b.rig)
        .map_or(0, |entry| CqeError::of(&entry).map_or(0, |error| error.syndrome().code))
}

#[test]
fn an_entry_says_what_a_key_must_be() {
    assert_eq!(refused(4, |_| 4), 0);
    assert_eq!(
        refused(4, |wanted| {
            wanted.flags = umr_flag::CHECK_NOT_FREE | umr_flag::INLINE;
            4
        }),
        S::MW_BIND_ERR
    );
    // More than the key was made for; Linux rounds up to 64 bytes.
    assert_eq!(refused(1, |_| 4), 0);
    assert_eq!(refused(4, |_| 8), S::MW_BIND_ERR);
}

#[test]
fn a_long_list_comes_in_parts() {
    let ends = Ends::new();
    let (mut a, mut b) = ends.connected(Plan::of_kernel());
    let memory = ends.b.rig.room(2 * PAGE as usize);
    // Further in than 16 bits of units of 16 bytes reach.
    let units = 0x1_0008;
    let key = free_key(&ends.b, access_mode::MTT, units, 12);
    let bytes = u64::from(units) * 2 * PAGE;
    let wanted = Wanted { flags: umr_flag::INLINE, start: 0, bytes, log_page: 12, variable: 1 };
    let mut head = register(wanted, 4);
    let control = UmrControl {
        flags: umr_flag::INLINE | umr_flag::TRANSLATION_OFFSET,
        klm_octowords: 4.into(),
        translation_offset: 4.into(),
        xlt_offset_47_16: 1.into(),
        mkey_mask: (mask::FREE | mask::KEY | mask::LEN | mask::RW | mask::START_ADDR).into(),
        ..UmrControl::default()
    };
    head[..48].copy_from_slice(control.as_bytes());
    post(&mut b, &ends.b, key, &[head, pages(&[memory, memory + PAGE])].concat());
    ends.steps(3);
    b.done(&ends.b);
    let last = 0x1_0004 * 2 * PAGE;
    assert!(writes(&ends, &mut a, key | 1, last + PAGE, &[7; 16]));
    assert_eq!(ends.b.rig.read(memory + PAGE, 16), [7; 16]);
    assert!(!writes(&ends, &mut a, key | 1, 8 * PAGE, &[7; 16]), "a page that nobody wrote");
}

#[test]
fn a_revoked_key_is_of_another_domain_and_free() {
    let ends = Ends::new();
    let (mut a, mut b) = ends.connected(Plan::of_kernel());
    let memory = ends.b.rig.room(PAGE as usize);
    let key = ends.b.key(memory, PAGE, |context| M::UMR_EN.set(context, 1));
    let at = memory + HCA_DELTA;
    assert!(writes(&ends, &mut a, key, at, &[1; 8]));
    let control = UmrControl {
        flags: umr_flag::INLINE,
        mkey_mask: (mask::PD | mask::FREE).into(),
        ..UmrControl::default()
    };
    let context = MkeyContext {
        free: mkey_flag::FREE,
        flags_pd: (ends.b.rig.pd + 1).into(),
        qpn_mkey: 0xffff_ff42.into(),
        ..MkeyContext::default()
    };
    post(&mut b, &ends.b, key, &[control.as_bytes(), context.as_bytes()].concat());
    ends.steps(3);
    b.done(&ends.b);
    assert!(!writes(&ends, &mut a, key, at, &[2; 8]));
    assert_eq!(ends.b.rig.read(memory, 8), [1; 8]);
}

/// Pieces as KLMs, or as KSMs, which say nothing of bytes.
pub(super) fn pieces(list: &[(u32, u32, u64)]) -> Vec<u8> {
    let piece = |(bytes, key, at): &(u32, u32, u64)| {
        [bytes.to_be_bytes(), key.to_be_bytes()].concat().into_iter().chain(at.to_be_bytes())
    };
    let mut bytes: Vec<u8> = list.iter().flat_map(piece).collect();
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    bytes
}

#[test]
fn pieces_of_other_keys_have_their_own_sizes_or_one_size() {
    for mode in [access_mode::KLM, access_mode::KSM] {
        let ends = Ends::new();
        let (mut a, mut b) = ends.connected(Plan::of_kernel());
        let memory = ends.b.rig.room(2 * PAGE as usize);
        let below = ends.b.key(memory, 2 * PAGE, |_| {});
        let key = free_key(&ends.b, mode, 4, 0);
        let (start, bytes) = (0x10_0040, 0x180);
        let wanted = Wanted { flags: umr_flag::INLINE, start, bytes, log_page: 8, variable: 1 };
        // Of one size, the list begins where a piece does, and `start` is 0x40 behind that.
        let at = memory + HCA_DELTA;
        let list = match mode {
            access_mode::KLM => pieces(&[(0xc0, below, at + 0x1040), (0xc0, below, at)]),
            _ => pieces(&[(0, below, at + 0x1000), (0, below, at)]),
        };
        post(&mut b, &ends.b, key, &[register(wanted, 4), list].concat());
        ends.steps(3);
        assert_eq!(b.done(&ends.b).send_opcode(), send::UMR);
        let text: Vec<u8> = (0..0x180_u32).map(|index| index as u8).collect();
        assert!(writes(&ends, &mut a, key | 1, start, &text));
        assert_eq!(ends.b.rig.read(memory + 0x1040, 0xc0), text[..0xc0], "{mode}");
        assert_eq!(ends.b.rig.read(memory, 0xc0), text[0xc0..], "{mode}");
    }
}
