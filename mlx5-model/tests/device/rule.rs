//! Rules that a driver can break without harm on a lenient model: each way is found, by the rule's name.

use pollux_mlx5_abi::command::cq::CreateCqIn;
use pollux_mlx5_abi::command::eq::CreateEqIn;
use pollux_mlx5_abi::command::mkey::CreateMkeyIn;
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::qp::{CreateQpIn, TransitionIn, context::QpContext};
use pollux_mlx5_abi::command::rq::{CreateRmpIn, CreateRqIn, ModifyRqIn, RqContext};
use pollux_mlx5_abi::command::rqt::CreateRqtIn;
use pollux_mlx5_abi::command::sq::{CreateSqIn, SqContext};
use pollux_mlx5_abi::command::srq::{CreateSrqIn, CreateXrcSrqIn};
use pollux_mlx5_abi::command::tir::{CreateTirIn, CreateTisIn};
use pollux_mlx5_abi::command::user::CreateUmemIn;
use pollux_mlx5_abi::command::wq::{WorkQueue, kind};
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{BLOCK_BYTES, Completion, Data, InlineHeader, StridingReceive};
use pollux_mlx5_model::{DeviceConfig, Traits, Violation};
use zerocopy::IntoBytes;

use super::rig::{HCA_DELTA, Rig, Sq, frame, number};
use super::send::{ethernet, plain};

/// The first rule that was broken.
fn broken(rig: &Rig) -> Option<Violation> {
    rig.device.violations().0.first().copied()
}

#[test]
fn a_send_queue_without_a_tis_sends_nothing() {
    for opcode in [send::SEND, send::ENHANCED_MPSW, send::TSO] {
        let rig = Rig::new();
        let mut cq = rig.cq(6);
        let mut sq = rig.sq_with(6, &cq, |context| SqContext::TIS_LST_SZ.set(context, 0));
        // Control work is what it is for.
        sq.write(&rig, send::NOP, &[], Completion::Always);
        sq.ring(&rig);
        rig.settle();
        assert_eq!(cq.poll(&rig).map(|entry| entry.opcode()), Some(completion::REQUESTER));
        sq.write(&rig, opcode, &plain(&rig, &frame(80, 1)), Completion::Always);
        sq.ring(&rig);
        rig.settle();
        assert_eq!(cq.error(&rig).syndrome(), Syndrome { code: Syndrome::LOCAL_QP_OP_ERR, vendor: 0x6a });
        assert!(rig.wire.ends().sent.is_empty());
    }
}

/// An entry of many frames, `segments` segments long in all.
fn many(rig: &Rig, segments: usize, inline: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut body = ethernet(&[], |_| {});
    let mut frames = Vec::new();
    let each = if inline { 4 } else { 1 };
    while 1 + body.len() / 16 + each <= segments {
        let frame = frame(60, frames.len() as u8);
        if inline {
            body.extend(InlineHeader::new(60).as_bytes());
            body.extend(&frame);
        } else {
            let at = rig.room(64);
            rig.write(at, &frame);
            body.extend(Data::new(60, rig.lkey, at + HCA_DELTA).as_bytes());
        }
        frames.push(frame);
    }
    (body, frames)
}

#[test]
fn an_entry_of_many_frames_has_60_segments_at_most() {
    for (inline, allowed, beyond) in [(false, [3, 58, 60], [61, 62, 63]), (true, [6, 58, 58], [62, 62, 62])] {
        for segments in allowed {
            let rig = Rig::new();
            let mut cq = rig.cq(6);
            let mut sq = rig.sq(6, &cq);
            let (body, frames) = many(&rig, segments, inline);
            sq.write(&rig, send::ENHANCED_MPSW, &body, Completion::Always);
            sq.ring(&rig);
            rig.settle();
            assert_eq!(cq.poll(&rig).map(|entry| entry.opcode()), Some(completion::REQUESTER), "{segments}");
            assert_eq!(rig.wire.ends().sent, frames, "{segments}");
        }
        for segments in beyond {
            let rig = Rig::new();
            let mut cq = rig.cq(6);
            let mut sq = rig.sq(6, &cq);
            sq.write(&rig, send::ENHANCED_MPSW, &many(&rig, segments, inline).0, Completion::Always);
            sq.ring(&rig);
            rig.settle();
            let expected = Syndrome { code: Syndrome::LOCAL_QP_OP_ERR, vendor: 0x63 };
            assert_eq!(cq.error(&rig).syndrome(), expected, "{segments}");
            assert!(rig.wire.ends().sent.is_empty(), "{segments}");
        }
    }
}

/// Rings for the entry written last: with the entry itself, or with its head.
fn ring_at(rig: &Rig, sq: &Sq, offset: usize, copied: bool) {
    sq.write_record(rig);
    let slot = u64::from(sq.next.wrapping_sub(1)) & ((1 << sq.log) - 1);
    let block = rig.read(sq.ring + slot * BLOCK_BYTES as u64, BLOCK_BYTES);
    rig.store(offset, if copied { &block } else { &block[..8] });
}

#[test]
fn blue_flame_buffers_take_turns() {
    let (first, second) = (uar::BLUE_FLAME, uar::BLUE_FLAME + uar::BLUE_FLAME_BYTES);
    let other = uar::BLUE_FLAME + 2 * uar::BLUE_FLAME_BYTES;
    // Where, with the entry or not; and whether that is in order.
    let cases: [(&[(usize, bool)], bool); 7] = [
        (&[(first, true), (second, true), (first, true)], true),
        (&[(first, true), (first, true)], false),
        (&[(first, true), (first, false)], false),
        (&[(first, false), (first, true)], false),
        // As Linux's network driver and DPDK ring.
        (&[(first, false), (first, false), (first, false)], true),
        (&[(first, true), (second, false), (first, true)], true),
        // Each register has buffers of its own.
        (&[(first, true), (other, true), (first, true)], false),
    ];
    for (index, (stores, orderly)) in cases.into_iter().enumerate() {
        let rig = Rig::new();
        let cq = rig.cq(6);
        let mut sq = rig.sq(6, &cq);
        for &(offset, copied) in stores {
            sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 1)), Completion::Always);
            ring_at(&rig, &sq, offset, copied);
            rig.settle();
        }
        let found = broken(&rig);
        if orderly {
            assert_eq!(found, None, "case {index}");
            assert_eq!(rig.wire.ends().sent.len(), stores.len(), "case {index}");
        } else {
            assert_eq!(found, Some(Violation::Buffer { queue: sq.number, offset: first }), "case {index}");
            assert!(rig.wire.ends().sent.len() < stores.len(), "case {index}: the queue is in error");
        }
    }
}

#[test]
fn a_new_queue_begins_with_either_buffer() {
    let rig = Rig::new();
    let cq = rig.cq(6);
    for _ in 0..2 {
        let mut sq = rig.sq(6, &cq);
        sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 1)), Completion::Always);
        ring_at(&rig, &sq, uar::BLUE_FLAME, true);
        rig.settle();
        let mut input = [0; 16];
        input[8..12].copy_from_slice(&sq.number.to_be_bytes());
        rig.must(pollux_mlx5_abi::command::opcode::DESTROY_SQ, 0, &mut input, 16);
    }
    assert_eq!(broken(&rig), None);
}

#[test]
fn records_say_zero_as_a_queue_leaves_reset() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    let mut rq = rig.rq(4, 4, &cq);
    sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 1)), Completion::Always);
    sq.ring(&rig);
    let at = rig.room(2048);
    rq.post(&rig, &[Data::new(2048, rig.lkey, at + HCA_DELTA)]);
    rig.settle();
    assert!(cq.poll(&rig).is_some());
    rig.sq_state(&sq, 1, 0).expect("to RESET");
    rig.rq_state(&rq, 1, 0).expect("to RESET");
    rig.rq_state(&rq, 0, 1).expect("to READY");
    assert_eq!(broken(&rig), Some(Violation::RecordAtReady { queue: rq.number, record: 1 }));
    // What it says is posted, as far as the device knows.
    rig.all_to(rig.direct_tir(&rq));
    rig.wire.ends().incoming.push_back(frame(80, 2));
    rig.settle();
    assert_eq!(cq.poll(&rig).map(|entry| entry.opcode()), Some(completion::RESPONDER_SEND));
    rig.sq_state(&sq, 0, 1).expect("to READY");
    assert_eq!(rig.device.violations().0[1], Violation::RecordAtReady { queue: sq.number, record: 1 });
    assert_eq!(cq.error(&rig).syndrome().code, Syndrome::LOCAL_QP_OP_ERR);
}

#[test]
fn a_card_need_not_read_the_send_record_as_a_queue_leaves_reset() {
    let traits = Traits { send_record_at_ready: false, ..Traits::default() };
    let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
    let cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    for mark in 1..=2 {
        sq.next = 0;
        sq.write(&rig, send::SEND, &plain(&rig, &frame(80, mark)), Completion::Always);
        sq.ring(&rig);
        rig.settle();
        rig.sq_state(&sq, 1, 0).expect("to RESET");
        rig.sq_state(&sq, 0, 1).expect("to READY");
    }
    assert_eq!((broken(&rig), rig.wire.ends().sent.len()), (None, 2));
}

#[test]
fn a_doorbell_record_is_one_queues_alone() {
    let rig = Rig::new();
    let cq = rig.cq(6);
    let (sq, rq) = (rig.sq(6, &cq), rig.rq(4, 4, &cq));
    assert_eq!(broken(&rig), None);
    // Whether a queue has the record of another, and by which words: a completion queue has both, the others one each.
    let sender_at = |rig: &Rig, record: u64| {
        let mut input = rig.sq_input(6, &cq, rig.room(64 << 6), record, |_| {});
        number(&rig.must(op::CREATE_SQ, 0, &mut input, 16))
    };
    let halves = sender_at(&rig, rq.record);
    assert_eq!(broken(&rig), None, "a queue pair's record is a receiver's and a sender's");
    let queue = sender_at(&rig, sq.record);
    assert_eq!(broken(&rig), Some(Violation::SharedRecord { queue, other: sq.number }));
    let queue = sender_at(&rig, cq.record);
    assert_eq!(rig.device.violations().0[1], Violation::SharedRecord { queue, other: cq.number });
    // It is free again with the queue.
    for number in [halves, queue] {
        let mut input = [0; 16];
        input[8..12].copy_from_slice(&number.to_be_bytes());
        rig.must(op::DESTROY_SQ, 0, &mut input, 16);
    }
    sender_at(&rig, rq.record);
    assert_eq!(rig.device.violations().1, 2);
}

#[test]
fn bits_of_entries_that_mean_nothing_are_zero() {
    // Where in the entry, and which bits; whether they mean nothing.
    let cases: [(usize, u8, bool); 19] = [
        // Length, check byte, stream, flags: fence, completion, solicited.
        (7, 0x40, true),
        (7, 0x80, true),
        (8, 0xff, false),
        (9, 1, true),
        (10, 0x80, true),
        (11, 0x01, true),
        (11, 0x02, false),
        (11, 0x10, true),
        (11, 0x80, false),
        (11, 0xe0, true),
        // Sums, what to cut into, metadata, a header's place without one, the tag.
        (20, 0x01, true),
        (20, 0x08, true),
        (22, 0x40, true),
        (23, 0x01, true),
        (24, 0xff, false),
        (30, 0x01, true),
        (31, 0x80, true),
        (28, 0x80, false),
        (28, 0xc0, true),
    ];
    for opcode in [send::SEND, send::ENHANCED_MPSW] {
        for (at, bits, reserved) in cases {
            // An entry of many frames has no tag, and is refused if it is to be cut.
            if matches!(at, 22 | 23 | 28) && opcode != send::SEND {
                continue;
            }
            let rig = Rig::new();
            let mut cq = rig.cq(6);
            let mut sq = rig.sq(6, &cq);
            sq.write(&rig, opcode, &plain(&rig, &frame(80, 1)), Completion::Always);
            let mut byte = rig.read(sq.ring + at as u64, 1);
            byte[0] |= bits;
            rig.write(sq.ring + at as u64, &byte);
            ring_at(&rig, &sq, uar::BLUE_FLAME, false);
            rig.settle();
            let found = Violation::Reserved { queue: sq.number, byte: at };
            assert_eq!(broken(&rig), reserved.then_some(found), "{opcode:#x}: byte {at}, {bits:#x}");
            // What a card makes of them is not told: this one takes no notice.
            assert_eq!(cq.poll(&rig).map(|entry| entry.opcode()), Some(completion::REQUESTER), "byte {at}");
        }
    }
}

#[test]
fn bits_of_commands_that_belong_to_no_field_are_zero() {
    let rig = Rig::new();
    let cq = rig.cq(6);
    let queue = |byte: usize, bits: u8| {
        let mut input = [0; 16];
        input[8..12].copy_from_slice(&cq.number.to_be_bytes());
        input[byte] |= bits;
        input
    };
    assert_eq!(broken(&rig), None);
    // The number has 24 bits; the rest of the command means nothing. It is answered all the same.
    for (index, (byte, bits)) in [(4, 0x80), (8, 0x01), (12, 0x80), (15, 0x01)].into_iter().enumerate() {
        rig.must(op::QUERY_CQ, 0, &mut queue(byte, bits), 272);
        let bit = byte as u32 * 8 + bits.leading_zeros();
        let found = Violation::ReservedInCommand { opcode: op::QUERY_CQ, bit };
        assert_eq!(rig.device.violations().0.get(index), Some(&found), "byte {byte}");
    }
    assert_eq!(rig.device.violations().1, 4);
}

#[test]
fn umems_of_rings_stand_in_bits_that_linux_calls_reserved() {
    for at in [0x50, 0x57, 0x58, 0x5b] {
        let rig = Rig::new();
        // A queue that says so but has no umem is refused for that alone.
        let mut input = vec![0; 272];
        input[at] = 1;
        let _refused = rig.command(op::CREATE_CQ, 0, &mut input, 16);
        assert_eq!(broken(&rig), None, "byte {at:#x}");
    }
}

/// The first bit of a command that means nothing, as the device finds it where those of byte `at` are `bits`. Other commands on the
/// way to an answer are no matter: most such are refused.
fn unknown_bit(opcode: u16, at: usize, bits: u8) -> Option<Violation> {
    let rig = Rig::new();
    let mut input = vec![0; 300];
    input[at] = bits;
    let _refused = rig.command(opcode, 0, &mut input, 16);
    broken(&rig)
}

#[test]
fn bits_of_contexts_that_belong_to_no_field_are_zero() {
    let queue = SqContext::WQ.offset();
    assert_eq!(queue, RqContext::WQ.offset());
    let [sq, rq, rmp] = [CreateSqIn::CTX.offset(), CreateRqIn::CTX.offset(), CreateRmpIn::CTX.offset()];
    let path = QpContext::PRIMARY_ADDRESS_PATH.offset();
    let [qp, moved] = [CreateQpIn::QPC.offset(), TransitionIn::QPC.offset()];
    let cq = CreateCqIn::CQ_CONTEXT.offset();
    // Where, which bits; and of those the first that means nothing, if any does.
    let cases: [(u16, usize, u8, Option<u32>); 42] = [
        // Between the entries' size and the moderation of solicited ones; the record's umem; above the ring's size and place.
        (op::CREATE_CQ, cq + 1, 0xff, Some(4)),
        (op::CREATE_CQ, cq + 4, 0xff, None),
        (op::CREATE_CQ, cq + 12, 0xff, Some(0)),
        (op::CREATE_CQ, cq + 12, 0x1f, None),
        (op::CREATE_CQ, cq + 24, 0xe0, Some(0)),
        (op::CREATE_CQ, cq + 32, 0x01, Some(7)),
        (op::CREATE_CQ, cq + 52, 0x80, Some(0)),
        (op::CREATE_CQ, cq + 56, 0xff, None),
        (op::CREATE_SQ, sq + 1, 0x0f, None),
        (op::CREATE_SQ, sq + 2, 0x80, None),
        (op::CREATE_SQ, sq + 2, 0x48, Some(1)),
        (op::CREATE_SQ, sq + 4, 0x01, Some(7)),
        (op::CREATE_SQ, sq + 40, 0x10, Some(3)),
        // The ring under a queue: above its place, its stride, and behind all.
        (op::CREATE_SQ, sq + queue, 0xff, None),
        (op::CREATE_SQ, sq + queue + 1, 0x01, Some(7)),
        (op::CREATE_SQ, sq + queue + 8, 0x80, Some(0)),
        (op::CREATE_SQ, sq + queue + 40, 0xff, None),
        (op::CREATE_SQ, sq + queue + 55, 0xff, None),
        (op::CREATE_SQ, sq + queue + 64, 0x20, Some(2)),
        (op::CREATE_RQ, rq + queue + 33, 0xff, Some(0)),
        (op::CREATE_RQ, rq, 0xff, None),
        (op::CREATE_RQ, rq + 1, 0x08, Some(4)),
        (op::CREATE_RQ, rq + 44, 0x01, Some(7)),
        (op::MODIFY_RQ, ModifyRqIn::CTX.offset() + 1, 0x08, Some(4)),
        (op::CREATE_RMP, rmp + 8, 0x02, Some(6)),
        (op::CREATE_RMP, rmp + queue + 64, 0x02, Some(6)),
        (op::CREATE_TIR, CreateTirIn::CTX.offset(), 0x80, Some(0)),
        (op::CREATE_TIR, CreateTirIn::CTX.offset() + 0x20, 0x40, Some(1)),
        (op::CREATE_TIR, CreateTirIn::CTX.offset() + 0x50, 0xff, None),
        (op::CREATE_TIS, CreateTisIn::CTX.offset() + 4, 0x01, Some(7)),
        (op::CREATE_RQT, CreateRqtIn::RQT_CONTEXT.offset(), 0x01, Some(7)),
        (op::CREATE_EQ, CreateEqIn::EQ_CONTEXT_ENTRY.offset() + 4, 0x40, Some(1)),
        (op::CREATE_MKEY, CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.offset(), 0x80, Some(0)),
        (op::CREATE_MKEY, CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.offset() + 8, 0x01, Some(7)),
        (op::CREATE_SRQ, CreateSrqIn::SRQ_CONTEXT_ENTRY.offset() + 4, 0x20, Some(2)),
        (op::CREATE_XRC_SRQ, CreateXrcSrqIn::XRC_SRQ_CONTEXT_ENTRY.offset() + 4, 0x20, Some(2)),
        (op::CREATE_QP, qp + 2, 0xff, Some(0)),
        (op::CREATE_QP, qp + 4, 0x08, Some(4)),
        (op::CREATE_QP, qp + path + 2, 0xff, None),
        (op::CREATE_QP, qp + path, 0x20, Some(2)),
        (op::RST2INIT_QP, moved + path + 4, 0x01, Some(7)),
        (op::CREATE_UMEM, CreateUmemIn::UMEM.offset() + 19, 0x20, Some(2)),
    ];
    for (opcode, at, bits, first) in cases {
        let found = first.map(|bit| Violation::ReservedInCommand { opcode, bit: at as u32 * 8 + bit });
        assert_eq!(unknown_bit(opcode, at, bits), found, "{opcode:#x}, byte {at:#x}, {bits:#x}");
    }
}

#[test]
fn segments_in_front_of_receive_entries_are_clear() {
    for (at, bits, reserved) in [(0, 1, true), (1, 0x80, true), (4, 0xff, false), (5, 1, true), (15, 1, true)]
    {
        let rig = Rig::new();
        let cq = rig.cq(6);
        let mut rq = rig.rq_with(4, 5, &cq, |context| {
            let wq = RqContext::WQ.of_mut(context);
            WorkQueue::WQ_TYPE.set(wq, kind::CYCLIC_STRIDING_RQ);
            WorkQueue::LOG_WQE_NUM_OF_STRIDES.set(wq, 0xa);
        });
        rig.all_to(rig.direct_tir(&rq));
        let data = Data::new(512, rig.lkey, rig.room(512) + HCA_DELTA);
        let mut entry = StridingReceive { data, ..Default::default() };
        entry.as_mut_bytes()[at] = bits;
        rq.post_raw(&rig, entry.as_bytes());
        rig.wire.ends().incoming.extend([frame(64, 1), frame(64, 2)]);
        rig.settle();
        let found = Violation::ReservedInReceive { queue: rq.number, byte: at };
        let expected: Vec<_> = reserved.then_some(found).into_iter().collect();
        assert_eq!(rig.device.violations().0, expected, "byte {at}, {bits:#x}: told of once");
    }
}
