//! Data that comes in: signatures of the wire checked and stripped, those of memory made; and keys that a peer reaches.

use pollux_mlx5_abi::cqe::{signature_domain, signature_error};
use pollux_mlx5_abi::opcode::send as opcode;
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::{Atomic, Data, INVALID_LKEY, RemoteAddress};
use zerocopy::IntoBytes;

use super::{CHECKSUM, CRC32, CRC32C, CRC64, DIF, Side, Signed, Wanted, ends, error, go, text};
use crate::rdma::node::{Plan, data, remote};
use crate::rig::HCA_DELTA;

fn there(key: u32, at: u64) -> Vec<u8> {
    RemoteAddress::new(at, key).as_bytes().to_vec()
}

#[test]
fn signatures_are_checked_and_stripped() {
    for side in [CRC32, CRC32C, CRC64, DIF, CHECKSUM, Side { block: 3, ..DIF }] {
        for flipped in [None, Some(5), Some(side.block())] {
            let ends = ends();
            let (mut a, mut b) = ends.connected(Plan { mtu: 1, ..Plan::default() });
            let raw = text(2 * side.block() + 30);
            let mut wire = side.signed(&raw);
            let stride = side.signed(&vec![0; side.block()]).len();
            if let Some(at) = flipped {
                wire[stride + at] ^= 4;
            }
            let (here, memory) = (ends.a.rig.room(wire.len()), ends.b.rig.room(raw.len()));
            ends.a.rig.write(here, &wire);
            let key = Signed::new(&ends.b);
            let wanted = Wanted { wire: Some(side), ..Wanted::default() };
            key.lay(&ends, &ends.b, &mut b, memory, raw.len(), wanted);
            let last = Data::new(0, INVALID_LKEY, 0);
            b.rq.post(&ends.b.rig, &[Data::new(wire.len() as u32, key.key, 0), last]);
            a.send(&ends.a, opcode::SEND, &data(ends.a.rig.lkey, here, wire.len() as u32));
            ends.steps(60);
            a.done(&ends.a);
            let data_of = |block: &[u8]| block[..block.len().min(side.block())].to_vec();
            let stripped: Vec<u8> = wire.chunks(stride).flat_map(data_of).collect();
            if flipped.is_some() {
                let found = error(&mut b.receive_cq, &ends.b);
                let block = &wire[stride..2 * stride];
                assert_eq!(found.syndrome.get(), signature_error::GUARD);
                assert_eq!((found.domain, found.err_offset.get()), (signature_domain::WIRE, stride as u64));
                assert_eq!((found.mkey.get(), found.qpn.get()), (key.key, b.number));
                let stored = side.words(&block[side.block()..]);
                assert_eq!((found.expected_trans_sig.get(), found.expected_reftag.get()), stored);
                let computed = side.words(&side.sign(1, &block[..side.block()]));
                assert_eq!((found.actual_trans_sig.get(), found.actual_reftag.get()), computed);
            }
            assert_eq!(b.came(&ends.b).byte_cnt.get() as usize, wire.len());
            assert_eq!(ends.b.rig.read(memory, raw.len()), stripped);
            assert!(b.receive_cq.poll(&ends.b.rig).is_none());
        }
    }
}

#[test]
fn signatures_are_made_in_memory() {
    for side in [CRC32, CRC32C, CRC64, DIF, CHECKSUM, Side { block: 2, ..CRC32C }] {
        let ends = ends();
        let (mut a, mut b) = ends.connected(Plan { mtu: 1, ..Plan::default() });
        let raw = text(3 * side.block() + 20);
        let memory = side.signed(&raw);
        let (here, room) = (ends.a.rig.room(raw.len()), ends.b.rig.room(memory.len()));
        ends.a.rig.write(here, &raw);
        let key = Signed::new(&ends.b);
        let wanted = Wanted { memory: Some(side), ..Wanted::default() };
        key.lay(&ends, &ends.b, &mut b, room, memory.len(), wanted);
        let body = [there(key.key, 0), data(ends.a.rig.lkey, here, raw.len() as u32)].concat();
        a.send(&ends.a, opcode::RDMA_WRITE, &body);
        ends.steps(60);
        assert_eq!(a.done(&ends.a).opcode(), 0);
        assert_eq!(ends.b.rig.read(room, memory.len()), memory);
        // As it comes, in pieces that end anywhere.
        ends.b.rig.write(room, &vec![0; memory.len()]);
        let mut at = 0;
        for bytes in [1, 510, 3, 700, raw.len() - 1214] {
            let body =
                [there(key.key, at as u64), data(ends.a.rig.lkey, here + at as u64, bytes as u32)].concat();
            a.send(&ends.a, opcode::RDMA_WRITE, &body);
            ends.steps(30);
            assert_eq!(a.done(&ends.a).opcode(), 0);
            at += bytes;
        }
        assert_eq!(ends.b.rig.read(room, memory.len()), memory);
    }
}

#[test]
fn a_signature_comes_in_two_parts() {
    for flipped in [false, true] {
        let ends = ends();
        let (mut a, mut b) = ends.connected(Plan::default());
        let mut wire = DIF.signed(&text(1024));
        if flipped {
            wire[515] ^= 1;
        }
        let (here, memory) = (ends.a.rig.room(wire.len()), ends.b.rig.room(1024));
        ends.a.rig.write(here, &wire);
        let key = Signed::new(&ends.b);
        let wanted = Wanted { wire: Some(DIF), ..Wanted::default() };
        key.lay(&ends, &ends.b, &mut b, memory, 1024, wanted);
        for (from, bytes) in [(0, 514), (514, 526)] {
            let body = [there(key.key, from), data(ends.a.rig.lkey, here + from, bytes)].concat();
            a.send(&ends.a, opcode::RDMA_WRITE, &body);
            ends.steps(10);
            assert_eq!(a.done(&ends.a).opcode(), 0);
        }
        if flipped {
            assert_eq!(error(&mut b.receive_cq, &ends.b).syndrome.get(), signature_error::APPTAG);
        }
        assert!(b.receive_cq.poll(&ends.b.rig).is_none());
        // Only the end of one: nobody can tell.
        let body = [there(key.key, 516), data(ends.a.rig.lkey, here, 4)].concat();
        a.send(&ends.a, opcode::RDMA_WRITE, &body);
        ends.steps(10);
        assert_eq!(a.done(&ends.a).opcode(), 0);
        assert!(b.receive_cq.poll(&ends.b.rig).is_none());
    }
}

#[test]
fn a_peer_reads_with_signatures() {
    // What one end makes for the wire, the other checks, and keeps as it is.
    for flipped in [false, true] {
        let ends = ends();
        let (mut a, mut b) = ends.connected(Plan { mtu: 2, ..Plan::default() });
        let raw = text(2048);
        let wire = DIF.signed(&raw);
        let (room, memory) = (ends.a.rig.room(wire.len()), ends.b.rig.room(2048));
        ends.b.rig.write(memory, &raw);
        let far = Signed::new(&ends.b);
        far.lay(&ends, &ends.b, &mut b, memory, 2048, Wanted { wire: Some(DIF), ..Wanted::default() });
        let near = Signed::new(&ends.a);
        // Another reference tag is waited for.
        let side = if flipped { Side { from: DIF.from + 1, ..DIF } } else { DIF };
        let wanted = Wanted { memory: Some(side), wire: Some(side), copy: Some(0xff), ..Wanted::default() };
        near.lay(&ends, &ends.a, &mut a, room, wire.len(), wanted);
        go(&mut a, &ends.a, opcode::RDMA_READ, &[there(far.key, 0), near.at(0, wire.len())].concat());
        ends.steps(40);
        if flipped {
            let found = error(&mut a.send_cq, &ends.a);
            assert_eq!((found.syndrome.get(), found.err_offset.get()), (signature_error::REFTAG, 0));
            assert_eq!((found.expected_reftag.get(), found.actual_reftag.get()), (0x0123_4567, 0x0123_4568));
        }
        assert_eq!(a.done(&ends.a).opcode(), 0);
        assert_eq!(ends.a.rig.read(room, wire.len()), wire);
    }
}

#[test]
fn a_peer_that_reads_what_is_wrong_tells_its_owner() {
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan::default());
    let mut memory = CRC32.signed(&text(512));
    memory[0] ^= 0x80;
    let (here, room) = (ends.b.rig.room(memory.len()), ends.a.rig.room(512));
    ends.b.rig.write(here, &memory);
    let key = Signed::new(&ends.b);
    key.lay(&ends, &ends.b, &mut b, here, memory.len(), Wanted { memory: Some(CRC32), ..Wanted::default() });
    let body = [there(key.key, 0), data(ends.a.rig.lkey, room, 512)].concat();
    a.send(&ends.a, opcode::RDMA_READ, &body);
    ends.steps(10);
    assert_eq!(a.done(&ends.a).opcode(), 0);
    assert_eq!(error(&mut b.receive_cq, &ends.b).mkey.get(), key.key);
    assert_eq!(ends.a.rig.read(room, 512), memory[..512]);
    // What is not the key's is refused as ever.
    let body = [remote(key.key, HCA_DELTA), data(ends.a.rig.lkey, room, 8)].concat();
    a.send(&ends.a, opcode::RDMA_READ, &body);
    ends.steps(10);
    a.send_cq.error(&ends.a.rig);
}

/// A peer writes the front of a signature, something else, and the rest.
#[test]
fn what_memory_has_of_a_signature_stays_where_its_front_was_not_seen() {
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan::default());
    let wire = DIF.signed(&text(1024));
    let (here, memory) = (ends.a.rig.room(wire.len()), ends.b.rig.room(wire.len()));
    ends.a.rig.write(here, &wire);
    ends.b.rig.write(memory, &[0xee; 1040]);
    let key = Signed::new(&ends.b);
    let wanted = Wanted { memory: Some(DIF), wire: Some(DIF), copy: Some(0xff), ..Wanted::default() };
    key.lay(&ends, &ends.b, &mut b, memory, wire.len(), wanted);
    for (from, bytes) in [(0, 514), (600, 8), (514, 6)] {
        let body = [there(key.key, from), data(ends.a.rig.lkey, here + from, bytes)].concat();
        a.send(&ends.a, opcode::RDMA_WRITE, &body);
        ends.steps(10);
        assert_eq!(a.done(&ends.a).opcode(), 0);
    }
    let expected = [&wire[..512], &[0xee; 2], &wire[514..520]].concat();
    assert_eq!(ends.b.rig.read(memory, 520), expected);
    assert!(b.receive_cq.poll(&ends.b.rig).is_none(), "nobody can tell");
}

/// The access that comes upon it fails further on, where memory is not pinned.
#[test]
fn what_is_found_is_told_in_front_of_what_fails_behind_it() {
    const NOWHERE: u64 = 0x10_0000;
    for (what, answer) in [(opcode::SEND, S::REMOTE_OP_ERR), (opcode::RDMA_WRITE_IMM, S::REMOTE_ACCESS_ERR)] {
        let ends = ends();
        let (mut a, mut b) = ends.connected(Plan { mtu: 5, ..Plan::default() });
        let mut wire = DIF.signed(&text(1024));
        wire[512] ^= 1;
        let (here, memory) = (ends.a.rig.room(wire.len()), ends.b.rig.room(512));
        ends.a.rig.write(here, &wire);
        let key = Signed::new(&ends.b);
        let wanted = Wanted { wire: Some(DIF), ..Wanted::default() };
        let pieces = [
            (512, ends.b.rig.lkey, memory + HCA_DELTA),
            (512, ends.b.key(NOWHERE, 4096, |_| {}), NOWHERE + HCA_DELTA),
        ];
        let entry = key.entry(&pieces, Some(&wanted.bsf(&key)));
        key.lay_by(&ends, &ends.b, &mut b, &entry, wanted);
        let source = data(ends.a.rig.lkey, here, wire.len() as u32);
        let last = Data::new(0, INVALID_LKEY, 0);
        b.rq.post(&ends.b.rig, &[Data::new(wire.len() as u32, key.key, 0), last]);
        let body = if what == opcode::SEND { source } else { [there(key.key, 0), source].concat() };
        a.send(&ends.a, what, &body);
        ends.steps(20);
        let found = error(&mut b.receive_cq, &ends.b);
        assert_eq!((found.syndrome.get(), found.err_offset.get()), (signature_error::GUARD, 0));
        b.receive_cq.error(&ends.b.rig);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, answer);
    }
}

/// Where a signature is to come, a value comes.
#[test]
fn what_an_atomic_brings_is_checked_and_told_with_it() {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::default());
    let (memory, value) = (ends.a.rig.room(512), ends.b.rig.room(8));
    let key = Signed::new(&ends.a);
    key.lay(&ends, &ends.a, &mut a, memory, 512, Wanted { wire: Some(DIF), ..Wanted::default() });
    let atomic = Atomic { swap_add: 1.into(), compare: 0.into() };
    let far = remote(ends.b.key(value, 4096, |_| {}), value);
    go(&mut a, &ends.a, opcode::ATOMIC_FA, &[&far, atomic.as_bytes(), &key.at(512, 8)].concat());
    ends.steps(10);
    assert_eq!(error(&mut a.send_cq, &ends.a).syndrome.get(), signature_error::GUARD);
    assert_eq!(a.done(&ends.a).send_opcode(), opcode::ATOMIC_FA);
}
