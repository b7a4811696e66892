//! Each operation once, and what its completion says.

use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::Atomic;
use zerocopy::IntoBytes;

use super::node::{Ends, Plan, data, remote};

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

#[test]
fn a_send_arrives() {
    let ends = Ends::new();
    let (mut a, mut b) = ends.connected(Plan::default());
    let (from, to) = (ends.a.rig.room(0x4000), ends.b.rig.room(0x4000));
    for (index, bytes) in [0_usize, 1, 1023, 1024, 1025, 10_000].into_iter().enumerate() {
        let message = pattern(bytes, index as u8);
        ends.a.rig.write(from, &message);
        b.receive(&ends.b, ends.b.rig.lkey, to, 0x4000);
        let body = if bytes == 0 { Vec::new() } else { data(ends.a.rig.lkey, from, bytes as u32) };
        a.send(&ends.a, send::SEND_IMM, &body);
        ends.steps(20);
        let sent = a.done(&ends.a);
        assert_eq!((sent.opcode(), sent.send_opcode()), (completion::REQUESTER, send::SEND_IMM));
        assert_eq!(sent.qpn(), a.number);
        let came = b.came(&ends.b);
        assert_eq!(came.opcode(), completion::RESPONDER_SEND_IMM);
        assert_eq!((came.byte_cnt.get() as usize, came.imm_inval_pkey.get()), (bytes, 0xabcd));
        assert_eq!((came.qpn(), usize::from(came.wqe_counter.get())), (b.number, index));
        assert_eq!(ends.b.rig.read(to, bytes), message);
    }
}

#[test]
fn memory_of_the_peer_is_written_and_read() {
    let ends = Ends::new();
    let (mut a, mut b) = ends.connected(Plan::default());
    let (here, there) = (ends.a.rig.room(0x8000), ends.b.rig.room(0x8000));
    let key = ends.b.key(there, 0x8000, |_| {});
    for bytes in [1_usize, 1024, 5000] {
        let message = pattern(bytes, 3);
        ends.a.rig.write(here, &message);
        let mut body = remote(key, there + 16);
        body.extend(data(ends.a.rig.lkey, here, bytes as u32));
        a.send(&ends.a, send::RDMA_WRITE, &body);
        let mut body = remote(key, there + 16);
        body.extend(data(ends.a.rig.lkey, here + 0x4000, bytes as u32));
        a.send(&ends.a, send::RDMA_READ, &body);
        ends.steps(30);
        assert_eq!(a.done(&ends.a).send_opcode(), send::RDMA_WRITE);
        let read = a.done(&ends.a);
        assert_eq!((read.send_opcode(), read.byte_cnt.get() as usize), (send::RDMA_READ, bytes));
        assert_eq!(ends.b.rig.read(there + 16, bytes), message);
        assert_eq!(ends.a.rig.read(here + 0x4000, bytes), message);
    }
    assert!(b.receive_cq.poll(&ends.b.rig).is_none());
    b.receive(&ends.b, ends.b.rig.lkey, there, 16);
    let mut body = remote(key, there);
    body.extend(data(ends.a.rig.lkey, here, 2000));
    a.send(&ends.a, send::RDMA_WRITE_IMM, &body);
    ends.steps(20);
    let came = b.came(&ends.b);
    assert_eq!(came.opcode(), completion::RESPONDER_RDMA_WRITE_IMM);
    assert_eq!((came.byte_cnt.get(), came.imm_inval_pkey.get()), (2000, 0xabcd));
}

#[test]
fn atomics_give_what_was_there() {
    let ends = Ends::new();
    let (mut a, _b) = ends.connected(Plan::default());
    let (here, there) = (ends.a.rig.room(64), ends.b.rig.room(64));
    let key = ends.b.key(there, 64, |_| {});
    ends.b.rig.write(there, &100_u64.to_le_bytes());
    let mut run = |opcode, operand: u64, compare: u64| {
        let mut body = remote(key, there);
        body.extend(Atomic { swap_add: operand.into(), compare: compare.into() }.as_bytes());
        body.extend(data(ends.a.rig.lkey, here, 8));
        a.send(&ends.a, opcode, &body);
        ends.steps(20);
        assert_eq!(a.done(&ends.a).send_opcode(), opcode);
        let value = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        (value(ends.a.rig.read(here, 8)), value(ends.b.rig.read(there, 8)))
    };
    assert_eq!(run(send::ATOMIC_FA, 5, 0), (100, 105));
    assert_eq!(run(send::ATOMIC_CS, 7, 104), (105, 105));
    assert_eq!(run(send::ATOMIC_CS, 7, 105), (105, 7));
    assert_eq!(run(send::ATOMIC_FA, u64::MAX, 0), (7, 6));
}
