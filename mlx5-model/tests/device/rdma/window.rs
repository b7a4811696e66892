//! Memory windows, invalidation, and memory of the device.

use pollux_mlx5_abi::caps::roce::DeviceMemoryCaps;
use pollux_mlx5_abi::caps::{self, QueryHcaCapOut, kind};
use pollux_mlx5_abi::command::memory::{AllocMemicIn, AllocMemicOut, DeallocMemicIn};
use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext as M, access_mode};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::{
    Data, Klm, MkeyContext, UmrControl, mkey_access, mkey_flag, mkey_mask as mask, umr_flag,
};
use pollux_mlx5_kernel::CommandQueue;
use zerocopy::IntoBytes;

use super::node::{Ends, Node, Pair, Plan, data, remote};
use crate::rig::{HCA_DELTA, number};

/// The entry that binds a window, or with no bytes makes it free, as rdma-core's driver writes it.
#[expect(clippy::too_many_arguments, reason = "what a window is bound to")]
fn bind(pair: &mut Pair, node: &Node, kind: u32, old: u32, new: u32, key: u32, at: u64, bytes: u64) {
    let mut control =
        UmrControl { flags: umr_flag::TRANSLATION_OFFSET | umr_flag::INLINE, ..UmrControl::default() };
    let mut fields = mask::FREE | mask::KEY;
    let mut context = MkeyContext::default();
    if kind == 2 {
        fields |= mask::QPN;
    }
    let bound = if kind == 1 || bytes == 0 { 0xff_ffff } else { pair.number };
    context.qpn_mkey = (new & 0xff | bound << 8).into();
    let mut body = Vec::new();
    if bytes > 0 {
        control.klm_octowords = 4.into();
        if kind == 2 {
            control.flags |= umr_flag::CHECK_FREE;
        }
        fields |= mask::LEN | mask::START_ADDR | mask::LW | mask::RR | mask::RW | mask::A;
        context.access_flags = mkey_access::REMOTE_READ | mkey_access::REMOTE_WRITE;
        context.start_addr = (at + HCA_DELTA).into();
        context.len = bytes.into();
    } else {
        if kind == 2 {
            control.flags |= umr_flag::CHECK_QPN;
        }
        context.free = mkey_flag::FREE;
    }
    control.mkey_mask = fields.into();
    body.extend(control.as_bytes());
    body.extend(context.as_bytes());
    if bytes > 0 {
        body.extend(
            Klm { byte_count: (bytes as u32).into(), mkey: key.into(), address: (at + HCA_DELTA).into() }
                .as_bytes(),
        );
        body.resize(body.len() + 48, 0);
    }
    pair.post(node, send::UMR, 2 << 2, old, &body);
    pair.sq.ring(&node.rig);
}

#[test]
fn windows_open_and_close() {
    for kind in [1, 2] {
        let ends = Ends::new();
        let plan = Plan::default();
        let (mut a, mut b) = ends.connected(plan);
        let (mut other, other_b) = ends.connected(plan);
        let (here, there) = (ends.a.rig.room(4096), ends.b.rig.room(8192));
        let memory = ends.b.key(there, 8192, |key| {
            M::RW.set(key, 0);
            M::RR.set(key, 0);
        });
        let old = ends.b.key_of_pieces(kind == 2);
        let open = old | 0x11;
        bind(&mut b, &ends.b, kind, old, open, memory, there + 100, 1000);
        ends.steps(3);
        assert_eq!(b.done(&ends.b).send_opcode(), send::UMR);
        let write = |key, at, bytes| {
            let mut body = remote(key, at);
            body.extend(data(ends.a.rig.lkey, here, bytes));
            body
        };
        ends.a.rig.write(here, &[5; 1000]);
        a.send(&ends.a, send::RDMA_WRITE, &write(open, there + 100, 1000));
        a.send(&ends.a, send::RDMA_READ, &write(open, there + 100, 1000));
        ends.steps(10);
        a.done(&ends.a);
        a.done(&ends.a);
        assert_eq!(ends.b.rig.read(there + 100, 1000), [5; 1000]);
        assert_eq!(ends.b.rig.read(there, 100), [0; 100]);
        // Through another queue pair: type 2 is bound to one.
        other.send(&ends.a, send::RDMA_WRITE, &write(open, there + 100, 8));
        ends.steps(10);
        if kind == 2 {
            assert_eq!(other.send_cq.error(&ends.a.rig).syndrome().code, S::REMOTE_ACCESS_ERR);
            // The peer closes it by a send.
            b.receive(&ends.b, ends.b.rig.lkey, there, 64);
            a.post(&ends.a, send::SEND_INVAL, 2 << 2, open, &data(ends.a.rig.lkey, here, 8));
            a.sq.ring(&ends.a.rig);
            ends.steps(10);
            a.done(&ends.a);
            let came = b.came(&ends.b);
            assert_eq!((came.opcode(), came.imm_inval_pkey.get()), (completion::RESPONDER_SEND_INVAL, open));
            // It opens again, under another key, and closes from here.
            bind(&mut b, &ends.b, kind, open, old | 0x12, memory, there, 64);
            bind(&mut b, &ends.b, kind, old | 0x12, 0, 0, 0, 0);
            ends.steps(5);
            b.done(&ends.b);
            b.done(&ends.b);
        } else {
            other.done(&ends.a);
            bind(&mut b, &ends.b, kind, open, old | 0x13, memory, there, 64);
            ends.steps(5);
            b.done(&ends.b);
        }
        let _ = other_b;
        a.send(&ends.a, send::RDMA_WRITE, &write(open, there + 100, 8));
        ends.steps(10);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, S::REMOTE_ACCESS_ERR, "it is closed");
    }
}

#[test]
fn a_window_is_bound_to_what_is_there() {
    let ends = Ends::new();
    let there = ends.b.rig.room(8192);
    let memory = ends.b.key(there, 4096, |_| {});
    let read_only = ends.b.key(there, 4096, |key| M::LW.set(key, 0));
    for case in 0..4 {
        let (_a, mut b) = ends.connected(Plan::default());
        let old = ends.b.key_of_pieces(true);
        match case {
            // Past the end; a key that is not there; no right to write; a window that is bound already.
            0 => bind(&mut b, &ends.b, 2, old, old | 1, memory, there + 4000, 97),
            1 => bind(&mut b, &ends.b, 2, old, old | 1, memory ^ 1, there, 64),
            2 => bind(&mut b, &ends.b, 2, old, old | 1, read_only, there, 64),
            _ => {
                bind(&mut b, &ends.b, 2, old, old | 1, memory, there, 64);
                bind(&mut b, &ends.b, 2, old, old | 2, memory, there, 64);
            }
        }
        ends.steps(3);
        if case == 3 {
            b.done(&ends.b);
        }
        assert_eq!(b.send_cq.error(&ends.b.rig).syndrome().code, S::MW_BIND_ERR, "case {case}");
    }
}

/// CHECK_QPN asks of a bound key whose it is; one of any queue pair is everybody's.
#[test]
fn a_key_of_any_queue_pair_passes_the_check_of_its_queue_pair() {
    let ends = Ends::new();
    let (_a, mut b) = ends.connected(Plan::default());
    let key = ends.b.key_of_pieces(true);
    bind(&mut b, &ends.b, 2, key, key | 0x11, 0, 0, 0);
    ends.steps(3);
    assert_eq!(b.done(&ends.b).opcode(), completion::REQUESTER);
}

#[test]
fn memory_of_the_device_is_lent() {
    let ends = Ends::new();
    let (mut a, _b) = ends.connected(Plan::default());
    let node = &ends.b;
    let out = node.rig.must(op::QUERY_HCA_CAP, caps::op_mod(kind::DEV_MEM, caps::NOW), &mut [0; 16], 4112);
    let block = QueryHcaCapOut::CAPABILITY.get(out.first_chunk().expect("an answer"));
    let block: &[u8; 256] = block.first_chunk().expect("a block");
    assert_eq!(DeviceMemoryCaps::MEMIC.get(block), 1);
    let (start, all) =
        (DeviceMemoryCaps::MEMIC_BAR_START_ADDR.get(block), DeviceMemoryCaps::MEMIC_BAR_SIZE.get(block));
    let alloc = |bytes: u32| {
        let mut input = AllocMemicIn::ZERO;
        AllocMemicIn::RANGE_START_ADDR.set(&mut input, start);
        AllocMemicIn::RANGE_SIZE.set(&mut input, all);
        AllocMemicIn::MEMIC_SIZE.set(&mut input, bytes);
        let out = node.rig.command(op::ALLOC_MEMIC, 0, &mut input, 16).map_err(|refused| refused.status)?;
        Ok(AllocMemicOut::MEMIC_START_ADDR.get(out.first_chunk().expect("an answer")))
    };
    let (first, second) = (alloc(4096).expect("room"), alloc(8192).expect("room"));
    assert!(second >= first + 4096);
    assert_eq!(alloc(all), Err(status::NO_RES_ERR));
    let memic = |at: u64, bytes: u64| {
        let mut context = M::ZERO;
        M::ACCESS_MODE_1_0.set(&mut context, access_mode::MEMIC & 3);
        M::ACCESS_MODE_4_2.set(&mut context, access_mode::MEMIC >> 2);
        for right in [M::LR, M::LW, M::RR, M::RW, M::A] {
            right.set(&mut context, 1);
        }
        M::QPN.set(&mut context, 0xff_ffff);
        M::PD.set(&mut context, node.rig.pd);
        M::START_ADDR.set(&mut context, at);
        M::LEN.set(&mut context, bytes);
        let mut input = CreateMkeyIn::ZERO.to_vec();
        CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(input.first_chunk_mut().expect("a command"), context);
        node.rig.command(op::CREATE_MKEY, 0, &mut input, 16).map(|out| number(&out) << 8)
    };
    let key = memic(second, 8192).expect("lent");
    assert!(memic(second + 4096, 8192).is_err(), "not all of it is lent");
    memic(second, 0).expect("of no length: Linux hands on what the program said");
    // Its addresses begin at 0.
    let here = ends.a.rig.room(8192);
    ends.a.rig.write(here, &[0x5a; 5000]);
    let mut body = pollux_mlx5_abi::wqe::RemoteAddress::new(16, key).as_bytes().to_vec();
    body.extend(data(ends.a.rig.lkey, here, 5000));
    a.send(&ends.a, send::RDMA_WRITE, &body);
    ends.steps(10);
    a.done(&ends.a);
    let page = node.rig.device.device_memory(second, 8192).expect("whole pages");
    assert_eq!((page.read64(8), page.read64(16)), (Some(0), Some(0x5a5a_5a5a_5a5a_5a5a)));
    assert!(node.rig.device.device_memory(second + 64, 4096).is_none());
    // And as a source, from the other side.
    let mut body = pollux_mlx5_abi::wqe::RemoteAddress::new(16, key).as_bytes().to_vec();
    body.extend(Data::new(1000, ends.a.rig.lkey, here + 5000 + HCA_DELTA).as_bytes());
    a.send(&ends.a, send::RDMA_READ, &body);
    ends.steps(10);
    a.done(&ends.a);
    assert_eq!(ends.a.rig.read(here + 5000, 1000), [0x5a; 1000]);
    let mut give_back = DeallocMemicIn::ZERO;
    DeallocMemicIn::MEMIC_START_ADDR.set(&mut give_back, first);
    node.rig.must(op::DEALLOC_MEMIC, 0, &mut give_back, 16);
    assert_eq!(alloc(4096), Ok(first));
}
