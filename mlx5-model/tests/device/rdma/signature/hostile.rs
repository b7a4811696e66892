//! Signature parts, variables and keys that make no sense: the work fails, the device goes on.

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::psv::DestroyPsvIn;
use pollux_mlx5_abi::command::qp::context::QpContext;
use pollux_mlx5_abi::cqe::CqeError;
use pollux_mlx5_abi::opcode::send as opcode;
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::signature::{ALL_DATA, Bsf, SAME_STRUCTURE, format, size};
use pollux_mlx5_abi::wqe::{Atomic, MkeyContext, RemoteAddress, UmrControl, mkey_mask as mask, umr_flag};
use zerocopy::{FromBytes, IntoBytes};

use super::{CRC32C, DIF, Side, Signed, Wanted, ends, error, go, set, text, variables_of};
use crate::rdma::node::{Ends, Pair, Plan, data, remote};
use crate::rig::{HCA_DELTA, number};

/// The key that reads as zeros in every domain.
const NULL_KEY: u32 = 0x200;

/// An entry with a changed signature part: what it fails with, 0 for nothing.
fn lay(change: impl FnOnce(&mut Bsf)) -> u8 {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::default());
    let here = ends.a.rig.room(4096);
    let key = Signed::new(&ends.a);
    let wanted = Wanted { memory: Some(DIF), wire: Some(DIF), copy: Some(0), ..Wanted::default() };
    let mut bsf = wanted.bsf(&key);
    change(&mut bsf);
    let body = key.entry(&[(2080, ends.a.rig.lkey, here + HCA_DELTA)], Some(&bsf));
    a.post(&ends.a, opcode::UMR, 2 << 2, key.key, &body);
    a.sq.ring(&ends.a.rig);
    ends.steps(3);
    let entry = a.send_cq.poll(&ends.a.rig).expect("a completion");
    CqeError::of(&entry).map_or(0, |error| error.syndrome().code)
}

#[test]
fn signature_parts_that_nobody_knows_are_refused() {
    type Change = fn(&mut Bsf);
    assert_eq!(lay(|_| {}), 0);
    assert_eq!(lay(|bsf| *bsf = Bsf { raw_data_size: ALL_DATA.into(), ..Bsf::default() }), 0, "plain");
    let cases: [(&str, Change); 15] = [
        ("block 0", |bsf| bsf.mem = 0),
        ("block of 2^30", |bsf| bsf.mem = 5),
        ("block 7", |bsf| bsf.mem = 7),
        ("block 255", |bsf| bsf.mem = 255),
        ("a format", |bsf| bsf.m_bfs_psv = (bsf.m_bfs_psv.get() | 0x70 << 24).into()),
        ("a format of the wire", |bsf| bsf.w_bfs_psv = (bsf.w_bfs_psv.get() | 0xff << 24).into()),
        ("a CRC that runs on", |bsf| {
            bsf.m_bfs_psv = (bsf.m_bfs_psv.get() | u32::from(format::CRC32) << 24).into();
        }),
        ("a guard", |bsf| bsf.w_inl.sig_type = 3),
        ("a guard that runs on", |bsf| bsf.w_inl.rp_inv_seed = 0),
        ("alike, with a plain domain", |bsf| bsf.w_inl.vld_refresh = 0.into()),
        ("alike, with another kind", |bsf| {
            bsf.w_bfs_psv = (bsf.w_bfs_psv.get() | 0x22 << 24).into();
        }),
        ("a whole transaction", |bsf| bsf.m_tfs_psv = 1.into()),
        ("encryption too", |bsf| {
            bsf.bsf_size_sbs = size::SIGNATURE_AND_CRYPTO << size::SHIFT | SAME_STRUCTURE;
        }),
        ("encryption alone", |bsf| bsf.bsf_size_sbs |= 1),
        ("no such variable", |bsf| bsf.m_bfs_psv = 0xff_ffff.into()),
    ];
    for (name, change) in cases {
        assert_eq!(lay(change), S::MW_BIND_ERR, "{name}");
    }
}

#[test]
fn an_entry_without_room_for_its_signature_part_is_refused() {
    let ends = ends();
    for (which, code) in [
        (0, S::LOCAL_QP_OP_ERR),
        (1, S::LOCAL_QP_OP_ERR),
        (2, S::MW_BIND_ERR),
        (3, S::MW_BIND_ERR),
        (4, S::MW_BIND_ERR),
        (5, 0),
    ] {
        let (mut a, _b) = ends.connected(Plan::default());
        let here = ends.a.rig.room(4096);
        let mut key = Signed::new(&ends.a);
        let bsf = Wanted { memory: Some(CRC32C), ..Wanted::default() }.bsf(&key);
        let mut body = key.entry(&[(516, ends.a.rig.lkey, here + HCA_DELTA)], Some(&bsf));
        match which {
            // It ends before, or stands elsewhere.
            0 => body.truncate(body.len() - 16),
            1 => body[0] &= !umr_flag::INLINE,
            // Not all of it, and more than the key has room for.
            2 => body[6..8].copy_from_slice(&1_u16.to_be_bytes()),
            3 => body[6..8].copy_from_slice(&8_u16.to_be_bytes()),
            // A key that was not made for it.
            4 => key.key = ends.a.key_of_pieces(false),
            _ => {}
        }
        a.post(&ends.a, opcode::UMR, 2 << 2, key.key, &body);
        a.sq.ring(&ends.a.rig);
        ends.steps(3);
        let entry = a.send_cq.poll(&ends.a.rig).expect("a completion");
        assert_eq!(CqeError::of(&entry).map_or(0, |error| error.syndrome().code), code, "{which}");
    }
}

#[test]
fn a_key_takes_variables_of_its_own_domain_alone() {
    let ends = ends();
    let other = number(&ends.a.rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16));
    for (domain, code) in [(ends.a.rig.pd, 0), (other, S::MW_BIND_ERR)] {
        let (mut a, _b) = ends.connected(Plan::default());
        let mut key = Signed::new(&ends.a);
        key.memory = variables_of(&ends.a, domain, 1)[0];
        let here = ends.a.rig.room(4096);
        let bsf = Wanted { memory: Some(DIF), wire: Some(DIF), copy: Some(0), ..Wanted::default() }.bsf(&key);
        let body = key.entry(&[(2080, ends.a.rig.lkey, here + HCA_DELTA)], Some(&bsf));
        a.post(&ends.a, opcode::UMR, 2 << 2, key.key, &body);
        a.sq.ring(&ends.a.rig);
        ends.steps(3);
        let entry = a.send_cq.poll(&ends.a.rig).expect("a completion");
        assert_eq!(CqeError::of(&entry).map_or(0, |error| error.syndrome().code), code);
    }
}

#[test]
fn a_variable_is_set_by_its_own_domain_alone() {
    let ends = ends();
    for (number, code) in [(0, S::MW_BIND_ERR), (0xff_ffff, S::MW_BIND_ERR), (u32::MAX, S::MW_BIND_ERR)] {
        let (mut a, _b) = ends.connected(Plan::default());
        set(&mut a, &ends.a, number, 7);
        a.sq.ring(&ends.a.rig);
        ends.steps(3);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, code);
    }
    // One that is there: of the queue's domain, and of another.
    let other = number(&ends.a.rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16));
    for (domain, code) in [(ends.a.rig.pd, 0), (other, S::MW_BIND_ERR)] {
        let (mut a, _b) = ends.connected(Plan::default());
        set(&mut a, &ends.a, variables_of(&ends.a, domain, 1)[0], 7);
        a.sq.ring(&ends.a.rig);
        ends.steps(3);
        let entry = a.send_cq.poll(&ends.a.rig).expect("a completion");
        assert_eq!(CqeError::of(&entry).map_or(0, |error| error.syndrome().code), code);
    }
    let (mut a, _b) = ends.connected(Plan::default());
    go(&mut a, &ends.a, opcode::SET_PSV, &[]);
    ends.steps(3);
    assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::LOCAL_QP_OP_ERR);
}

/// What sending by a key fails with.
fn send(ends: &Ends, body: &[u8]) -> u8 {
    let (mut a, mut b) = ends.connected(Plan::default());
    let there = ends.b.rig.room(8192);
    b.receive(&ends.b, ends.b.rig.lkey, there, 8192);
    go(&mut a, &ends.a, opcode::SEND, body);
    ends.steps(20);
    a.send_cq.error(&ends.a.rig).syndrome().code
}

/// Whose sum with the signatures in front of it is more than 64 bits hold, and what is left of that is a place in any key.
const WRAPS: u64 = 0xfe03_f80f_e03f_8200;

#[test]
fn keys_that_lack_what_signatures_need_are_of_no_use() {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::default());
    let here = ends.a.rig.room(4096);
    ends.a.rig.write(here, &CRC32C.signed(&text(1024)));
    let lkey = ends.a.rig.lkey;
    let wanted = Wanted { memory: Some(CRC32C), ..Wanted::default() };
    // No room for the last signature: memory of 1024 bytes has one whole block and its signature.
    let short = Signed::new(&ends.a);
    short.lay(&ends, &ends.a, &mut a, here, 1024, wanted);
    assert_eq!(send(&ends, &short.at(0, 1024)), S::LOCAL_PROT_ERR);
    // Further than any key reaches.
    for at in [u64::MAX, u64::MAX - 511, 1 << 63, 1 << 48, WRAPS] {
        assert_eq!(send(&ends, &short.at(at, 512)), S::LOCAL_PROT_ERR, "{at:#x}");
    }
    // Shorter than what it is made of, by one byte of the last signature.
    let cut = Signed::new(&ends.a);
    let mut body = cut.entry(&[(1032, lkey, here + HCA_DELTA)], Some(&wanted.bsf(&cut)));
    let (_, behind) = UmrControl::mut_from_prefix(&mut body).expect("an entry");
    MkeyContext::mut_from_prefix(behind).expect("an entry").0.len.set(1031);
    go_change(&mut a, &ends, cut.key, &body);
    assert_eq!(send(&ends, &cut.at(0, 1024)), S::LOCAL_PROT_ERR);
    // More data than it is said to have.
    let bounded = Signed::new(&ends.a);
    let mut bsf = wanted.bsf(&bounded);
    bsf.raw_data_size = 512.into();
    let body = bounded.entry(&[(1032, lkey, here + HCA_DELTA)], Some(&bsf));
    go_change(&mut a, &ends, bounded.key, &body);
    assert_eq!(send(&ends, &bounded.at(0, 513)), S::LOCAL_PROT_ERR);
    // Its variable is gone.
    let gone = Signed::new(&ends.a);
    gone.lay(&ends, &ends.a, &mut a, here, 1032, wanted);
    let mut input = DestroyPsvIn::ZERO;
    DestroyPsvIn::PSVN.set(&mut input, gone.memory);
    ends.a.rig.must(op::DESTROY_PSV, 0, &mut input, 16);
    assert_eq!(send(&ends, &gone.at(0, 512)), S::LOCAL_PROT_ERR);
    // Nothing was ever said of it but that it has signatures.
    let silent = Signed::new(&ends.a);
    let mut body = silent.entry(&[(1032, lkey, here + HCA_DELTA)], Some(&bsf));
    body.truncate(body.len() - 64);
    body[6..8].fill(0);
    go_change(&mut a, &ends, silent.key, &body);
    assert_eq!(send(&ends, &silent.at(0, 8)), S::LOCAL_PROT_ERR);
}

/// The kernel moves a key whose variables stay where they are; memory that is everybody's goes with it.
#[test]
fn a_key_that_left_its_variables_domain_is_of_no_use() {
    let ends = ends();
    let (mut kernels, _) = ends.connected(Plan::of_kernel());
    let key = Signed::new(&ends.a);
    let wanted = Wanted { memory: Some(CRC32C), check: 0, ..Wanted::default() };
    let wanted = Wanted { wire: Some(CRC32C), ..wanted };
    let body = key.entry(&[(1032, NULL_KEY, 0)], Some(&wanted.bsf(&key)));
    key.lay_by(&ends, &ends.a, &mut kernels, &body, wanted);
    let other = number(&ends.a.rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16));
    let send = |domain: u32| {
        let plan = Plan::default();
        let mut a = ends.a.pair_with(plan, |context| QpContext::PD.set(context, domain));
        let mut b = ends.b.pair(plan);
        ends.a.connect(&a, &ends.b, b.number, &plan);
        ends.b.connect(&b, &ends.a, a.number, &plan);
        b.receive(&ends.b, ends.b.rig.lkey, ends.b.rig.room(4096), 4096);
        go(&mut a, &ends.a, opcode::SEND, &key.at(0, 516));
        ends.steps(20);
        let entry = a.send_cq.poll(&ends.a.rig).expect("a completion");
        CqeError::of(&entry).map(|error| (error.syndrome().code, error.syndrome().vendor))
    };
    assert_eq!(send(ends.a.rig.pd), None);
    let control = UmrControl { mkey_mask: mask::PD.into(), ..UmrControl::default() };
    let context = MkeyContext { flags_pd: other.into(), ..MkeyContext::default() };
    go_change(&mut kernels, &ends, key.key, &[control.as_bytes(), context.as_bytes()].concat());
    assert_eq!(send(other), Some((S::LOCAL_PROT_ERR, 0x57)));
}

fn go_change(pair: &mut Pair, ends: &Ends, key: u32, body: &[u8]) {
    pair.post(&ends.a, opcode::UMR, 2 << 2, key, body);
    pair.sq.ring(&ends.a.rig);
    ends.steps(3);
    assert_eq!(pair.done(&ends.a).opcode(), 0);
}

#[test]
fn keys_over_keys_with_signatures_and_atomics_are_refused() {
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan::default());
    let here = ends.a.rig.room(4096);
    let wanted = Wanted { memory: Some(CRC32C), ..Wanted::default() };
    let below = Signed::new(&ends.a);
    below.lay(&ends, &ends.a, &mut a, here, 1032, wanted);
    for bsf in [None, Some(wanted)] {
        let (mut a, _b) = ends.connected(Plan::default());
        let above = Signed::new(&ends.a);
        let bsf = bsf.map(|wanted| wanted.bsf(&above));
        let body = above.entry(&[(1032, below.key, 0)], bsf.as_ref());
        a.post(&ends.a, opcode::UMR, 2 << 2, above.key, &body);
        a.sq.ring(&ends.a.rig);
        ends.steps(3);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::MW_BIND_ERR);
    }
    let room = ends.b.rig.room(16);
    let atomic = Atomic { swap_add: 1.into(), compare: 0.into() };
    let body =
        [RemoteAddress::new(0, below.key).as_bytes(), atomic.as_bytes(), &data(ends.b.rig.lkey, room, 8)]
            .concat();
    b.send(&ends.b, opcode::ATOMIC_FA, &body);
    ends.steps(10);
    assert_eq!(b.send_cq.error(&ends.b.rig).syndrome().code, S::REMOTE_ACCESS_ERR);
}

#[test]
fn signatures_can_be_turned_off_again() {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::default());
    let (here, there) = (ends.a.rig.room(4096), ends.b.rig.room(4096));
    let mut memory = CRC32C.signed(&text(512));
    memory[0] ^= 1;
    ends.a.rig.write(here, &memory);
    let mut key = Signed::new(&ends.a);
    let wanted = Wanted { memory: Some(CRC32C), ..Wanted::default() };
    key.lay(&ends, &ends.a, &mut a, here, 516, wanted);
    let write = [remote(ends.b.key(there, 16384, |_| {}), there), key.at(0, 512)].concat();
    go(&mut a, &ends.a, opcode::RDMA_WRITE, &write);
    ends.steps(10);
    error(&mut a.send_cq, &ends.a);
    a.done(&ends.a);
    key.expected = false;
    let body = key.entry(&[(516, ends.a.rig.lkey, here + HCA_DELTA)], None);
    go_change(&mut a, &ends, key.key, &body);
    let write = [remote(ends.b.key(there, 16384, |_| {}), there), key.at(0, 516)].concat();
    go(&mut a, &ends.a, opcode::RDMA_WRITE, &write);
    ends.steps(10);
    assert_eq!(a.done(&ends.a).opcode(), 0);
    assert_eq!(ends.b.rig.read(there, 516), memory);
}

#[test]
fn whatever_stands_there_the_device_goes_on() {
    // A seed; each part of it is tried in turn.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let ends = ends();
    let here = ends.a.rig.room(8192);
    for round in 0..60 {
        let (mut a, mut b) = ends.connected(Plan::default());
        let there = ends.b.rig.room(4096);
        b.receive(&ends.b, ends.b.rig.lkey, there, 4096);
        let key = Signed::new(&ends.a);
        let side = |block| Side { block, ..if round % 2 == 0 { DIF } else { CRC32C } };
        let wanted = Wanted { memory: Some(side(1)), wire: Some(side(2)), ..Wanted::default() };
        let mut bsf = wanted.bsf(&key);
        for _ in 0..round % 4 {
            let (at, value) = (next() as usize % 64, next() as u8);
            bsf.as_mut_bytes()[at] = value;
        }
        let bsf = Bsf::read_from_bytes(bsf.as_bytes()).expect("as long");
        let body = key.entry(&[(8192, ends.a.rig.lkey, here + HCA_DELTA)], Some(&bsf));
        a.post(&ends.a, opcode::UMR, 2 << 2, key.key, &body);
        set(&mut a, &ends.a, key.memory, next());
        go(&mut a, &ends.a, opcode::SEND, &key.at(next() % 9000, 1 + next() as usize % 4000));
        ends.steps(20);
        let made = std::iter::from_fn(|| a.send_cq.poll(&ends.a.rig)).count();
        assert!((3..=4).contains(&made), "{round}: {made}");
        for (node, number) in [(&ends.a, a.number), (&ends.b, b.number)] {
            node.end(op::DESTROY_QP, number).expect("it ends");
        }
    }
}
