//! Data that goes out: signatures of memory checked and stripped, those of the wire made.

use pollux_mlx5_abi::cqe::{CqeSignature, signature_domain, signature_error};
use pollux_mlx5_abi::opcode::send as opcode;
use pollux_mlx5_abi::wqe::signature::check;
use pollux_mlx5_abi::wqe::{RepeatBlock, RepeatEntry};
use zerocopy::IntoBytes;

use super::{CHECKSUM, CRC32, CRC32C, CRC64, DIF, Side, Signed, Wanted, ends, error, go, text};
use crate::rdma::node::{Plan, remote};
use crate::rig::HCA_DELTA;

/// Has memory with signatures written to a peer without; which completion of a signature came, if any did.
fn strip(side: Side, checked: u8, spoil: impl FnOnce(&mut Vec<u8>)) -> Option<(CqeSignature, u32, u32)> {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::default());
    let data = text(3 * side.block() + 20);
    let mut memory = side.signed(&data);
    spoil(&mut memory);
    let (here, there) = (ends.a.rig.room(memory.len()), ends.b.rig.room(data.len()));
    ends.a.rig.write(here, &memory);
    let key = Signed::new(&ends.a);
    let wanted = Wanted { memory: Some(side), check: checked, ..Wanted::default() };
    key.lay(&ends, &ends.a, &mut a, here, memory.len(), wanted);
    let body = [remote(ends.b.key(there, 16384, |_| {}), there), key.at(0, data.len())].concat();
    go(&mut a, &ends.a, opcode::RDMA_WRITE, &body);
    ends.steps(20);
    let first = a.done(&ends.a);
    let found = CqeSignature::of(&first).copied();
    // The transfer goes on, and completes behind the error.
    let done = if found.is_some() { a.done(&ends.a) } else { first };
    assert_eq!((done.opcode(), done.send_opcode()), (0, opcode::RDMA_WRITE));
    assert!(a.send_cq.poll(&ends.a.rig).is_none());
    let mut left = Vec::<u8>::new();
    for block in memory.chunks(side.signed(&data[..side.block()]).len()) {
        left.extend(&block[..block.len().min(side.block())]);
    }
    assert_eq!(ends.b.rig.read(there, data.len()), left, "what is in memory, without signatures");
    found.map(|found| (found, key.key, a.number))
}

#[test]
fn good_signatures_are_stripped() {
    for side in [CRC32, CRC32C, CRC64, DIF, CHECKSUM, Side { block: 3, ..DIF }, Side { block: 2, ..CRC32 }] {
        assert!(strip(side, 0xff, |_| {}).is_none());
    }
    for seedless in [Side { from: 0, ..CRC32C }, Side { from: 0, ..DIF }] {
        assert!(strip(seedless, 0xff, |_| {}).is_none());
    }
}

#[test]
fn one_flipped_bit_is_reported() {
    for side in [CRC32, CRC32C, CRC64, DIF, CHECKSUM, Side { block: 4, ..DIF }] {
        let mut stored = Vec::new();
        let mut computed = Vec::new();
        let block = side.block();
        let stride = side.signed(&vec![0; block]).len();
        let found = strip(side, 0xff, |memory| {
            memory[stride + 77] ^= 0x10;
            stored = memory[stride + block..2 * stride].to_vec();
            computed = side.sign(1, &memory[stride..stride + block]);
        });
        let (found, key, number) = found.expect("an error");
        assert_eq!(found.syndrome.get(), signature_error::GUARD);
        assert_eq!((found.domain, found.sig_type), (signature_domain::MEMORY, 0));
        assert_eq!(found.err_offset.get(), stride as u64);
        assert_eq!((found.mkey.get(), found.qpn.get()), (key, number));
        assert_eq!((found.expected_trans_sig.get(), found.expected_reftag.get()), side.words(&stored));
        assert_eq!((found.actual_trans_sig.get(), found.actual_reftag.get()), side.words(&computed));
    }
}

#[test]
fn each_part_of_a_signature_is_checked_where_the_mask_says_so() {
    let parts = [
        (0, 0xc0, signature_error::GUARD),
        (3, 0x30, signature_error::APPTAG),
        (7, 0x0f, signature_error::REFTAG),
    ];
    for (byte, bits, expected) in parts {
        for (checked, found) in [(0xff, true), (bits, true), (!bits, false)] {
            let came = strip(DIF, checked, |memory| memory[2 * 520 + 512 + byte] ^= 1);
            let came = came.map(|(found, ..)| (found.syndrome.get(), found.err_offset.get()));
            assert_eq!(came, found.then_some((expected, 1040)));
        }
    }
    // The guard comes first.
    let all = strip(DIF, 0xff, |memory| memory[512..520].fill(0x55)).expect("an error").0;
    assert_eq!(all.syndrome.get(), signature_error::GUARD);
}

#[test]
fn tags_of_ones_turn_checking_off() {
    let spoil = |app: u8, reference: u8| {
        move |memory: &mut Vec<u8>| {
            memory[512..514].fill(0);
            memory[514..516].fill(app);
            memory[516..520].fill(reference);
        }
    };
    let app = Side { bits: DIF.bits | check::APPTAG_ESCAPE, ..DIF };
    let both = Side { bits: DIF.bits | check::APPREF_ESCAPE, ..DIF };
    assert!(strip(DIF, 0xff, spoil(0xff, 0xff)).is_some());
    assert!(strip(app, 0xff, spoil(0xff, 0)).is_none());
    assert!(strip(app, 0xff, spoil(0xfe, 0xff)).is_some());
    assert!(strip(both, 0xff, spoil(0xff, 0xff)).is_none());
    assert!(strip(both, 0xff, spoil(0xff, 0)).is_some());
}

#[test]
fn signatures_are_made_for_the_wire() {
    for side in [CRC32, CRC32C, CRC64, DIF, CHECKSUM, Side { block: 6, ..CRC32C }] {
        let ends = ends();
        let (mut a, mut b) = ends.connected(Plan::default());
        let data = text(2 * side.block() + 9);
        let wire = side.signed(&data);
        let (here, there) = (ends.a.rig.room(data.len()), ends.b.rig.room(wire.len()));
        ends.a.rig.write(here, &data);
        let key = Signed::new(&ends.a);
        let wanted = Wanted { wire: Some(side), ..Wanted::default() };
        key.lay(&ends, &ends.a, &mut a, here, data.len(), wanted);
        b.receive(&ends.b, ends.b.rig.lkey, there, wire.len() as u32);
        go(&mut a, &ends.a, opcode::SEND, &key.at(0, wire.len()));
        ends.steps(20);
        a.done(&ends.a);
        assert_eq!(b.came(&ends.b).byte_cnt.get() as usize, wire.len());
        assert_eq!(ends.b.rig.read(there, wire.len()), wire);
        // No more than there is, and any part of it.
        b.receive(&ends.b, ends.b.rig.lkey, there, 64);
        go(&mut a, &ends.a, opcode::SEND, &key.at(side.block() as u64 - 3, 5));
        ends.steps(20);
        a.done(&ends.a);
        assert_eq!(ends.b.rig.read(there, 5), wire[side.block() - 3..][..5]);
        go(&mut a, &ends.a, opcode::SEND, &key.at(0, wire.len() + 1));
        ends.steps(20);
        a.send_cq.error(&ends.a.rig);
    }
}

#[test]
fn one_kind_becomes_another() {
    // Nine blocks of 512 in memory are one of 4096 on the wire, and 512 bytes behind it.
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan::default());
    let (small, large) = (DIF, Side { block: 3, ..CRC64 });
    let data = text(9 * 512);
    let (memory, wire) = (small.signed(&data), large.signed(&data));
    let (here, there) = (ends.a.rig.room(memory.len()), ends.b.rig.room(wire.len()));
    ends.a.rig.write(here, &memory);
    let key = Signed::new(&ends.a);
    let wanted = Wanted { memory: Some(small), wire: Some(large), ..Wanted::default() };
    key.lay(&ends, &ends.a, &mut a, here, memory.len(), wanted);
    b.receive(&ends.b, ends.b.rig.lkey, there, wire.len() as u32);
    go(&mut a, &ends.a, opcode::SEND, &key.at(0, wire.len()));
    ends.steps(20);
    assert_eq!(a.done(&ends.a).opcode(), 0);
    b.came(&ends.b);
    assert_eq!(ends.b.rig.read(there, wire.len()), wire);
}

#[test]
fn of_like_signatures_as_much_goes_on_as_the_mask_says() {
    // The wire has other tags and another seed.
    let other = Side { from: 0x0000_1111_2222_3333, ..DIF };
    for copy in [0xff, 0x00, 0xc0, 0x3f] {
        let ends = ends();
        let (mut a, mut b) = ends.connected(Plan::default());
        let data = text(512);
        let memory = DIF.signed(&data);
        let (here, there) = (ends.a.rig.room(520), ends.b.rig.room(520));
        ends.a.rig.write(here, &memory);
        let key = Signed::new(&ends.a);
        let wanted = Wanted { memory: Some(DIF), wire: Some(other), copy: Some(copy), ..Wanted::default() };
        key.lay(&ends, &ends.a, &mut a, here, 520, wanted);
        b.receive(&ends.b, ends.b.rig.lkey, there, 520);
        go(&mut a, &ends.a, opcode::SEND, &key.at(0, 520));
        ends.steps(20);
        assert_eq!(a.done(&ends.a).opcode(), 0);
        let made = other.sign(0, &data);
        let expected: Vec<u8> = (0..8)
            .map(|byte| if copy >> (7 - byte) & 1 == 1 { memory[512 + byte] } else { made[byte] })
            .collect();
        assert_eq!(ends.b.rig.read(there + 512, 8), expected, "{copy:#x}");
    }
}

#[test]
fn the_first_error_alone_is_reported_until_an_entry_says_that_it_was_seen() {
    let ends = ends();
    let (mut a, _b) = ends.connected(Plan::default());
    let mut memory = CRC32C.signed(&text(1024));
    memory[3] ^= 1;
    memory[600] ^= 1;
    let (here, there) = (ends.a.rig.room(memory.len()), ends.b.rig.room(1024));
    ends.a.rig.write(here, &memory);
    let mut key = Signed::new(&ends.a);
    let wanted = Wanted { memory: Some(CRC32C), ..Wanted::default() };
    let body = [remote(ends.b.key(there, 16384, |_| {}), there), key.at(0, 1024)].concat();
    for (expected, reports) in [(true, true), (true, false), (false, true), (false, false), (true, true)] {
        key.expected = expected;
        key.lay(&ends, &ends.a, &mut a, here, memory.len(), wanted);
        go(&mut a, &ends.a, opcode::RDMA_WRITE, &body);
        ends.steps(10);
        if reports {
            assert_eq!(error(&mut a.send_cq, &ends.a).err_offset.get(), 0);
        }
        assert_eq!(a.done(&ends.a).opcode(), 0);
        assert!(a.send_cq.poll(&ends.a.rig).is_none());
    }
}

/// As many as a key may have, each a block and its signature: an access goes over its blocks more than once, and passes those in front
/// of them but once.
#[test]
fn blocks_behind_many_pieces_are_reached() {
    const PIECES: u32 = 1 << 16;
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan { mtu: 5, ..Plan::default() });
    let (raw, here, there) = (text(512), ends.a.rig.room(516), ends.b.rig.room(4096));
    ends.a.rig.write(here, &CRC32C.signed(&raw));
    let key = Signed::new(&ends.a);
    let wanted = Wanted { memory: Some(CRC32C), ..Wanted::default() };
    // All of them are one.
    let head = RepeatBlock {
        byte_count: 516.into(),
        op: 0x400.into(),
        repeat_count: PIECES.into(),
        num_ent: 1.into(),
        ..RepeatBlock::default()
    };
    let entry = RepeatEntry {
        stride: 0.into(),
        byte_count: 516.into(),
        memkey: ends.a.rig.lkey.into(),
        va: (here + HCA_DELTA).into(),
    };
    let list = [head.as_bytes(), entry.as_bytes()].concat();
    let body = key.entry_of(list, 516 * u64::from(PIECES), Some(&wanted.bsf(&key)));
    key.lay_by(&ends, &ends.a, &mut a, &body, wanted);
    b.receive(&ends.b, ends.b.rig.lkey, there, 4096);
    go(&mut a, &ends.a, opcode::SEND, &key.at(512 * u64::from(PIECES - 8), 4096));
    ends.steps(20);
    assert_eq!(a.done(&ends.a).opcode(), 0);
    b.came(&ends.b);
    assert_eq!(ends.b.rig.read(there, 4096), raw.repeat(8));
}
