use pollux_mlx5_abi::command::sq::{CreateSqIn, SqContext};
use pollux_mlx5_abi::command::wq::WorkQueue;
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{Completion, Control, Data, Ethernet, InlineHeader};
use pollux_mlx5_model::ledger::Crossing;
use pollux_mlx5_model::{DeviceConfig, Traits, Violation};
use zerocopy::IntoBytes;

use super::rig::{Cq, HCA_DELTA, Rig, Sq, frame, number};

/// An Ethernet segment with `inline` bytes of header, and what follows in whole segments.
pub(super) fn ethernet(header: &[u8], change: impl FnOnce(&mut Ethernet)) -> Vec<u8> {
    let mut segment = Ethernet::default();
    segment.inline_hdr_sz.set(header.len() as u16);
    let first = header.len().min(2);
    segment.inline_hdr_start[..first].copy_from_slice(&header[..first]);
    change(&mut segment);
    let mut bytes = segment.as_bytes().to_vec();
    bytes.extend(&header[first..]);
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    bytes
}

fn data(rig: &Rig, at: u64, bytes: usize) -> Vec<u8> {
    Data::new(bytes as u32, rig.lkey, at + HCA_DELTA).as_bytes().to_vec()
}

/// A frame in memory, and the entry that sends it from there.
pub(super) fn plain(rig: &Rig, frame: &[u8]) -> Vec<u8> {
    let at = rig.room(frame.len());
    rig.write(at, frame);
    let mut body = ethernet(&[], |_| {});
    body.extend(data(rig, at, frame.len()));
    body
}

fn rig() -> (Rig, Cq, Sq) {
    let rig = Rig::new();
    let cq = rig.cq(6);
    let sq = rig.sq(6, &cq);
    (rig, cq, sq)
}

#[test]
fn a_frame_goes_out_and_is_completed() {
    let (rig, mut cq, mut sq) = rig();
    let sent = frame(100, 7);
    sq.write(&rig, send::SEND, &plain(&rig, &sent), Completion::Always);
    sq.ring(&rig);
    assert!(rig.wire.ends().sent.is_empty(), "the doorbell announces, the step works");
    rig.settle();
    assert_eq!(rig.wire.ends().sent, [sent]);
    let entry = cq.poll(&rig).expect("a completion");
    assert_eq!((entry.opcode(), entry.send_opcode()), (completion::REQUESTER, send::SEND));
    assert_eq!((entry.qpn(), entry.wqe_counter.get(), entry.user_index()), (sq.number, 0, 0x51));
    assert!(cq.poll(&rig).is_none());
    assert_eq!(rig.device.violations().1, 0);
}

#[test]
fn headers_inline_and_pieces_from_memory_make_one_frame() {
    let (rig, mut cq, mut sq) = rig();
    let whole = frame(300, 3);
    for inline in [0, 1, 2, 14, 18, 19, 50, 300] {
        let mut body = ethernet(&whole[..inline], |_| {});
        let mut at = inline;
        for piece in [1, 63, 1000] {
            let piece = piece.min(whole.len() - at);
            if piece > 0 {
                let room = rig.room(piece + 5) + 5;
                rig.write(room, &whole[at..at + piece]);
                body.extend(data(&rig, room, piece));
                at += piece;
            }
        }
        sq.write(&rig, send::SEND, &body, Completion::Always);
        sq.ring(&rig);
        rig.settle();
        assert_eq!(rig.wire.ends().sent.pop(), Some(whole.clone()), "{inline} bytes inline");
        assert_eq!(cq.poll(&rig).expect("a completion").opcode(), completion::REQUESTER);
    }
}

#[test]
fn an_inline_data_segment_is_payload_too() {
    let (rig, _cq, mut sq) = rig();
    let whole = frame(90, 1);
    let mut body = ethernet(&whole[..18], |_| {});
    body.extend(InlineHeader::new(72).as_bytes());
    body.extend(&whole[18..]);
    body.resize(body.len().next_multiple_of(16), 0);
    sq.write(&rig, send::SEND, &body, Completion::OnError);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(rig.wire.ends().sent, [whole]);
}

#[test]
fn short_frames_are_padded_as_the_port_does() {
    let (rig, _cq, mut sq) = rig();
    sq.write(&rig, send::SEND, &plain(&rig, &frame(20, 9)), Completion::OnError);
    sq.ring(&rig);
    rig.settle();
    let sent = rig.wire.ends().sent.pop().expect("a frame");
    assert_eq!((sent.len(), &sent[..20], &sent[20..]), (60, &frame(20, 9)[..], &[0; 40][..]));
}

#[test]
fn only_what_asks_for_it_is_completed() {
    let (rig, mut cq, mut sq) = rig();
    for completion in [Completion::OnError, Completion::OnFirstError, Completion::OnError, Completion::Always]
    {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(60, 0)), completion);
    }
    sq.ring(&rig);
    rig.settle();
    assert_eq!(rig.wire.ends().sent.len(), 4);
    assert_eq!(cq.poll(&rig).map(|entry| entry.wqe_counter.get()), Some(3));
    assert!(cq.poll(&rig).is_none());
}

#[test]
fn entries_wrap_round_the_ring_and_the_index_round_its_bits() {
    let (rig, mut cq, mut sq) = rig();
    // Entries of 3 blocks in a ring of 64: every third turn one goes round the end.
    let whole = frame(120, 5);
    let mut body = ethernet(&whole, |_| {});
    body.resize(11 * 16, 0);
    let body = ethernet(&whole[..100], |_| {});
    let at = rig.room(64);
    rig.write(at, &whole[100..]);
    let body = [body, data(&rig, at, 20)].concat();
    assert_eq!((16 + body.len()).div_ceil(64), 3);
    for turn in 0..22_000_u32 {
        sq.write(&rig, send::SEND, &body, Completion::Always);
        sq.ring(&rig);
        rig.device.step(64);
        let entry = cq.poll(&rig).unwrap_or_else(|| panic!("turn {turn}"));
        assert_eq!(
            (entry.opcode(), u32::from(entry.wqe_counter.get())),
            (completion::REQUESTER, (turn * 3) & 0xffff)
        );
        cq.give_back(&rig);
    }
    assert_eq!(rig.wire.ends().sent.len(), 22_000);
    assert!(rig.wire.ends().sent.iter().all(|sent| *sent == whole));
}

#[test]
fn a_busy_wire_loses_nothing_and_repeats_nothing() {
    let (rig, mut cq, mut sq) = rig();
    let mut body = ethernet(&[], |_| {});
    let frames: Vec<Vec<u8>> = (0..5).map(|mark| frame(80, mark)).collect();
    for frame in &frames {
        let at = rig.room(80);
        rig.write(at, frame);
        body.extend(data(&rig, at, 80));
    }
    sq.write(&rig, send::ENHANCED_MPSW, &body, Completion::Always);
    sq.write(&rig, send::SEND, &plain(&rig, &frame(70, 99)), Completion::Always);
    rig.wire.ends().room = Some(2);
    sq.ring(&rig);
    for _ in 0..5 {
        rig.device.step(64);
    }
    assert_eq!(rig.wire.ends().sent.len(), 2);
    assert!(cq.poll(&rig).is_none() && rig.device.is_pending());
    rig.wire.ends().room = None;
    rig.settle();
    assert_eq!(rig.wire.ends().sent[..5], frames);
    assert_eq!(rig.wire.ends().sent[5], frame(70, 99));
    assert_eq!(
        [cq.poll(&rig), cq.poll(&rig)].map(|entry| entry.map(|entry| entry.wqe_counter.get())),
        [Some(0), Some(2)]
    );
}

/// Posts one entry and polls its error.
fn failing(opcode: u8, change: impl FnOnce(&Rig, &mut Vec<u8>, &mut Sq)) -> (u8, u8) {
    let (rig, mut cq, mut sq) = rig();
    let mut body = plain(&rig, &frame(80, 1));
    change(&rig, &mut body, &mut sq);
    sq.write(&rig, opcode, &body, Completion::OnError);
    sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 2)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert!(rig.wire.ends().sent.is_empty(), "nothing behind a failed entry goes out");
    let error = cq.error(&rig);
    assert_eq!(
        (error.op_own >> 4, error.qpn(), error.wqe_counter.get()),
        (completion::REQUESTER_ERROR, sq.number, 0)
    );
    assert_eq!(error.srqn.get(), 0x51);
    let flushed = cq.error(&rig);
    assert!(flushed.syndrome().is_flush() && flushed.wqe_counter.get() > 0);
    assert!(cq.poll(&rig).is_none());
    // In error: what is posted later is flushed too, until the queue is made new.
    sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 3)), Completion::OnError);
    sq.ring(&rig);
    rig.settle();
    assert!(cq.error(&rig).syndrome().is_flush());
    let refused = rig.sq_state(&sq, 1, 0).expect_err("its state is ERROR");
    assert_eq!(refused.status, status::BAD_RES_STATE_ERR);
    rig.sq_state(&sq, 3, 0).expect("to RESET");
    rig.write(sq.record + 4, &[0; 4]);
    rig.sq_state(&sq, 0, 1).expect("to READY");
    sq.next = 0;
    sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 4)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(rig.wire.ends().sent, [frame(80, 4)]);
    assert_eq!(cq.poll(&rig).map(|entry| entry.opcode()), Some(completion::REQUESTER));
    (error.syndrome, error.vendor_err_synd)
}

#[test]
fn a_card_may_believe_that_a_queue_is_ready() {
    let traits = Traits { believes_ready: true, ..Traits::default() };
    let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
    let cq = rig.cq(4);
    let (sq, rq) = (rig.sq(4, &cq), rig.rq(4, 4, &cq));
    for (from, to, taken) in [(1, 3, true), (0, 0, false), (1, 0, true), (1, 0, false), (3, 0, false)] {
        assert_eq!(rig.sq_state(&sq, from, to).is_ok(), taken, "{from} to {to}");
        assert_eq!(rig.rq_state(&rq, from, to).is_ok(), taken, "{from} to {to}");
    }
}

fn last_data(body: &mut [u8], change: impl FnOnce(&mut Data)) {
    use zerocopy::FromBytes;
    let at = body.len() - 16;
    let mut segment = Data::read_from_bytes(&body[at..]).expect("16 bytes");
    change(&mut segment);
    body[at..].copy_from_slice(segment.as_bytes());
}

#[test]
fn each_fault_has_its_syndrome() {
    type Change = fn(&Rig, &mut Vec<u8>, &mut Sq);
    let cases: [(u8, Change, u8, u8); 14] = [
        (
            send::SEND,
            // A page where no memory is, of a key that covers it.
            |rig, body, _| {
                let key = rig.mkey(1 << 62, 4096, false);
                last_data(body, |data| {
                    data.lkey.set(key);
                    data.addr.set((1 << 62) + HCA_DELTA);
                });
            },
            Syndrome::LOCAL_PROT_ERR,
            0x55,
        ),
        (
            send::SEND,
            |rig, body, _| last_data(body, |data| data.lkey.set(rig.lkey ^ 1)),
            Syndrome::LOCAL_PROT_ERR,
            0x51,
        ),
        (send::SEND, |_, body, _| last_data(body, |data| data.lkey.set(0)), Syndrome::LOCAL_PROT_ERR, 0x51),
        // The process's own address is not the key's.
        (
            send::SEND,
            |_, body, _| last_data(body, |data| data.addr.set(data.addr.get() - (8 << 20))),
            Syndrome::LOCAL_PROT_ERR,
            0x53,
        ),
        (
            send::SEND,
            |_, body, _| last_data(body, |data| data.addr.set(u64::MAX - 7)),
            Syndrome::LOCAL_PROT_ERR,
            0x53,
        ),
        (
            send::SEND,
            |_, body, _| last_data(body, |data| data.byte_count.set(1600)),
            Syndrome::LOCAL_LENGTH_ERR,
            0x71,
        ),
        (
            send::SEND,
            |_, body, _| last_data(body, |data| data.byte_count.set(13)),
            Syndrome::LOCAL_LENGTH_ERR,
            0x71,
        ),
        (
            send::SEND,
            |_, body, _| last_data(body, |data| data.byte_count.set(0)),
            Syndrome::LOCAL_LENGTH_ERR,
            0x71,
        ),
        (send::SEND, |_, body, _| body.truncate(0), Syndrome::LOCAL_QP_OP_ERR, 0x63),
        (
            send::SEND,
            |_, body, _| body[12..14].copy_from_slice(&200_u16.to_be_bytes()),
            Syndrome::LOCAL_QP_OP_ERR,
            0x63,
        ),
        (send::RDMA_WRITE, |_, _, _| {}, Syndrome::LOCAL_QP_OP_ERR, 0x62),
        (send::UMR, |_, _, _| {}, Syndrome::LOCAL_QP_OP_ERR, 0x62),
        (0xee, |_, _, _| {}, Syndrome::LOCAL_QP_OP_ERR, 0x62),
        (send::TSO, |_, _, _| {}, Syndrome::LOCAL_QP_OP_ERR, 0x65),
    ];
    for (index, (opcode, change, syndrome, vendor)) in cases.into_iter().enumerate() {
        assert_eq!(failing(opcode, change), (syndrome, vendor), "case {index}");
    }
}

#[test]
fn a_key_of_another_domain_is_refused() {
    use pollux_mlx5_abi::command::opcode as op;
    let (mut rig, mut cq, mut sq) = rig();
    let own = rig.pd;
    rig.pd = super::rig::number(&rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16));
    let at = rig.room(4096);
    let key = rig.mkey(at, 4096, false);
    rig.pd = own;
    let body = [ethernet(&[], |_| {}), Data::new(64, key, at + HCA_DELTA).as_bytes().to_vec()].concat();
    sq.write(&rig, send::SEND, &body, Completion::OnError);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(cq.error(&rig).syndrome(), Syndrome { code: Syndrome::LOCAL_PROT_ERR, vendor: 0x52 });
}

#[test]
fn an_entry_must_name_its_queue_and_place() {
    for (change, what) in [
        ((|control| control.qpn_ds.set(control.qpn_ds.get() + 256)) as fn(&mut Control), "queue"),
        (|control| control.opmod_idx_opcode.set(control.opmod_idx_opcode.get() + 256), "index"),
        (|control| control.qpn_ds.set(control.qpn_ds.get() & !63), "length"),
        (|control| control.opmod_idx_opcode.set(control.opmod_idx_opcode.get() | 1 << 24), "modifier"),
    ] {
        let (rig, mut cq, mut sq) = rig();
        let body = plain(&rig, &frame(80, 1));
        let mut control = Control::new(send::SEND, 0, 0, sq.number, 3, Completion::OnError as u8, 0);
        change(&mut control);
        sq.write_raw(&rig, &control, &body);
        // A good one behind, so that the doorbell itself is in order.
        sq.write(&rig, send::NOP, &[], Completion::OnError);
        sq.ring(&rig);
        rig.settle();
        assert_eq!(cq.error(&rig).syndrome, Syndrome::LOCAL_QP_OP_ERR, "{what}");
        assert!(rig.wire.ends().sent.is_empty());
    }
}

#[test]
fn of_many_that_are_flushed_only_the_first_error_is_reported_if_that_is_asked() {
    let (rig, mut cq, mut sq) = rig();
    sq.write(&rig, 0xee, &[], Completion::OnFirstError);
    for _ in 0..5 {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 1)), Completion::OnFirstError);
    }
    sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 1)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(cq.error(&rig).syndrome, Syndrome::LOCAL_QP_OP_ERR);
    assert!(cq.error(&rig).syndrome().is_flush());
    assert!(cq.poll(&rig).is_none());
}

#[test]
fn nothing_is_flushed_where_the_queue_does_not_ask() {
    use pollux_mlx5_abi::command::sq::SqContext;
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut sq = rig.sq_with(6, &cq, |context| SqContext::FLUSH_IN_ERROR_EN.set(context, 0));
    sq.write(&rig, 0xee, &[], Completion::OnError);
    sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 1)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    cq.error(&rig);
    assert!(cq.poll(&rig).is_none());
}

/// A doorbell that breaks a rule: the queue fails and the rule is named.
fn broken(act: impl FnOnce(&Rig, &mut Sq)) -> Violation {
    let (rig, mut cq, mut sq) = rig();
    sq.write(&rig, send::SEND, &plain(&rig, &frame(80, 1)), Completion::Always);
    act(&rig, &mut sq);
    rig.settle();
    assert!(rig.wire.ends().sent.is_empty());
    let (violations, count) = rig.device.violations();
    assert_eq!(count, 1, "{violations:?}");
    if !matches!(violations[0], Violation::Unknown { .. }) {
        assert_eq!(cq.error(&rig).syndrome(), Syndrome { code: Syndrome::LOCAL_QP_OP_ERR, vendor: 0x66 });
        let kinds: Vec<u8> = std::iter::from_fn(|| rig.event()).map(|event| event.kind).collect();
        assert!(kinds.contains(&pollux_mlx5_abi::eqe::event::WQ_INVAL_REQ_ERROR), "{kinds:?}");
    }
    violations[0]
}

#[test]
fn doorbells_have_rules() {
    // The record was not written.
    let forgotten = broken(|rig, sq| rig.store(uar::BLUE_FLAME, &sq.last()));
    assert!(matches!(forgotten, Violation::RecordValue { record: 0, expected: 1, .. }), "{forgotten}");
    // The register carries another entry than the last.
    let stale = broken(|rig, sq| {
        let first = sq.last();
        sq.write(rig, send::SEND, &plain(rig, &frame(80, 2)), Completion::Always);
        sq.write_record(rig);
        rig.store(uar::BLUE_FLAME, &first);
    });
    assert!(matches!(stale, Violation::RecordValue { record: 2, expected: 1, .. }), "{stale}");
    // Rung before the entry was written.
    let early = broken(|rig, sq| {
        let mut head = sq.last();
        head[3] = send::NOP;
        sq.write_record(rig);
        rig.store(uar::BLUE_FLAME, &head);
    });
    assert!(matches!(early, Violation::Head { .. }), "{early}");
    // Another queue's number, or none.
    let foreign = broken(|rig, sq| {
        let mut head = sq.last();
        head[6] ^= 0xff;
        sq.write_record(rig);
        rig.store(uar::BLUE_FLAME, &head);
    });
    assert!(matches!(foreign, Violation::Unknown { .. }), "{foreign}");
    assert!(foreign.to_string().contains("names no queue"));
}

#[test]
fn an_entry_in_a_blue_flame_buffer_is_carried_out_from_there() {
    for strict in [true, false] {
        let rig = Rig::with(DeviceConfig { strict, ..DeviceConfig::default() });
        let mut cq = rig.cq(6);
        let mut sq = rig.sq(6, &cq);
        for turn in 0..100_usize {
            // Of two entries the second comes with the doorbell; there it asks for a completion, in memory it does not.
            sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::OnError);
            let body = plain(&rig, &frame(64, 2));
            let (index, number) = (sq.next, sq.number);
            sq.write(&rig, send::SEND, &body, Completion::OnError);
            sq.write_record(&rig);
            let segments = 1 + body.len() as u8 / 16;
            let control = Control::new(send::SEND, 0, index, number, segments, Completion::Always as u8, 0);
            let mut bytes = [control.as_bytes(), &body].concat();
            bytes.resize(64, 0);
            rig.store(uar::blue_flame(0, turn), &bytes);
            rig.settle();
            assert_eq!(cq.poll(&rig).expect("a completion").wqe_counter.get(), index);
            assert!(cq.poll(&rig).is_none());
            cq.give_back(&rig);
        }
        assert_eq!(rig.wire.ends().sent.len(), 200);
        assert_eq!(rig.device.violations().1, 0);
    }
}

#[test]
fn a_ring_begins_in_64ths_of_its_page() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    // Pages of 64 KiB, as the kernel chooses them where it can; the ring begins 24 KiB into the first.
    let (page, record) = (rig.room(2 << 16).next_multiple_of(1 << 16), rig.room(64));
    let ring = page + (24 << 10);
    let mut input = rig.sq_input(6, &cq, ring, record, |context| {
        let wq = SqContext::WQ.of_mut(context);
        WorkQueue::LOG_WQ_PG_SZ.set(wq, 4);
        WorkQueue::PAGE_OFFSET.set(wq, 24);
    });
    input.truncate(CreateSqIn::BYTES);
    input.extend(page.to_be_bytes());
    let mut sq = Sq::at(number(&rig.must(op::CREATE_SQ, 0, &mut input, 16)), ring, record, 6);
    rig.sq_state(&sq, 0, 1).expect("from RESET to READY");
    sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(rig.wire.ends().sent, [frame(64, 1)]);
    assert!(cq.poll(&rig).is_some());
}

#[test]
fn registers_are_found_by_looking_too() {
    let (rig, mut cq, mut sq) = rig();
    for turn in 0..200_usize {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, turn as u8)), Completion::Always);
        sq.write_record(&rig);
        rig.store_quietly(uar::blue_flame(0, turn), sq.last());
        // Seen late, software is further than the register says.
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 0)), Completion::Always);
        sq.write_record(&rig);
        rig.device.step(64);
        assert_eq!(rig.wire.ends().sent.len(), 2 * turn + 1);
        rig.store_quietly(uar::blue_flame(0, turn + 1), sq.last());
        rig.settle();
        assert!(cq.poll(&rig).is_some() && cq.poll(&rig).is_some() && cq.poll(&rig).is_none());
        cq.give_back(&rig);
    }
    assert_eq!(rig.device.violations().1, 0);
}

#[test]
fn a_device_that_is_not_strict_goes_by_the_record() {
    let rig = Rig::with(DeviceConfig { strict: false, ..DeviceConfig::default() });
    let cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    for _ in 0..3 {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::Always);
    }
    sq.write_record(&rig);
    rig.store(uar::BLUE_FLAME, &[0, 0, 0, 1, 0, (sq.number >> 8) as u8, sq.number as u8, 1]);
    rig.settle();
    assert_eq!(rig.wire.ends().sent.len(), 3);
}

#[test]
fn a_card_that_needs_headers_inline_says_so() {
    let traits = Traits { needs_inline_l2: true, enhanced_multi_packet: false, ..Traits::default() };
    for (inline, tagged, fine) in [(13, false, false), (14, false, true), (17, true, false), (18, true, true)]
    {
        let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
        let mut cq = rig.cq(6);
        let mut sq = rig.sq_with(6, &cq, |context| {
            pollux_mlx5_abi::command::sq::SqContext::ALLOW_MULTI_PKT_SEND_WQE.set(context, 0);
        });
        let mut whole = frame(80, 1);
        if tagged {
            whole[12..14].copy_from_slice(&[0x81, 0]);
        }
        let at = rig.room(80);
        rig.write(at, &whole);
        let body = [ethernet(&whole[..inline], |_| {}), data(&rig, at + inline as u64, 80 - inline)].concat();
        sq.write(&rig, send::SEND, &body, Completion::Always);
        sq.ring(&rig);
        rig.settle();
        let entry = cq.poll(&rig).expect("a completion");
        assert_eq!(entry.opcode() == completion::REQUESTER, fine, "{inline} bytes inline, tagged: {tagged}");
    }
}

#[test]
fn a_card_without_multi_packet_entries_refuses_them() {
    let traits = Traits { enhanced_multi_packet: false, ..Traits::default() };
    let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
    let mut cq = rig.cq(6);
    let mut sq = rig.sq_with(6, &cq, |context| {
        pollux_mlx5_abi::command::sq::SqContext::ALLOW_MULTI_PKT_SEND_WQE.set(context, 0);
    });
    sq.write(&rig, send::ENHANCED_MPSW, &plain(&rig, &frame(80, 1)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(cq.error(&rig).syndrome, Syndrome::LOCAL_QP_OP_ERR);
}

#[test]
fn the_ledger_counts_what_a_plain_send_costs() {
    let (rig, _cq, mut sq) = rig();
    let before = rig.device.ledger().total();
    for mark in 0..8 {
        sq.write(
            &rig,
            send::SEND,
            &plain(&rig, &frame(64, mark)),
            if mark == 7 { Completion::Always } else { Completion::OnError },
        );
    }
    sq.ring(&rig);
    rig.settle();
    let spent = rig.device.ledger().total() - before;
    let bytes = |crossing| spent.of(crossing).bytes;
    assert_eq!(spent.packets_sent, 8);
    assert_eq!(bytes(Crossing::Doorbell), 8);
    assert_eq!(bytes(Crossing::DoorbellRecord), 4);
    // Control, Ethernet and data segment of each.
    assert_eq!(bytes(Crossing::SendEntry), 8 * 64);
    assert_eq!(bytes(Crossing::SendPayload), 8 * 64);
    assert_eq!(bytes(Crossing::Completion), 64);
}

/// A command looks at the registers; the store of another thread may be found there before it is told of.
#[test]
fn a_doorbell_that_a_command_found_is_counted_once() {
    let (rig, mut cq, mut sq) = rig();
    for round in 0..3 {
        let before = rig.device.ledger().total();
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, round)), Completion::Always);
        sq.write_record(&rig);
        let block = rig.read(sq.ring + u64::from(round) * 64, 8);
        let value = *block.first_chunk::<8>().expect("8 bytes");
        rig.store_quietly(uar::BLUE_FLAME, value);
        rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16);
        rig.device.doorbell_store(rig.uar, uar::BLUE_FLAME, &value);
        rig.settle();
        assert!(cq.poll(&rig).is_some(), "round {round}");
        let spent = rig.device.ledger().total() - before;
        assert_eq!(spent.of(Crossing::Doorbell).bytes, 8, "round {round}");
        assert_eq!(spent.of(Crossing::DoorbellRecord).bytes, 4, "round {round}");
    }
}

/// It is held to the rules all the same.
#[test]
fn a_doorbell_that_a_command_found_must_be_as_its_record() {
    let (rig, _cq, mut sq) = rig();
    sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 0)), Completion::Always);
    let value = sq.last();
    sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::Always);
    // Of both, where the doorbell is of the first.
    sq.write_record(&rig);
    rig.store_quietly(uar::BLUE_FLAME, value);
    rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16);
    assert_eq!(rig.device.violations().1, 0, "software may be further");
    rig.device.doorbell_store(rig.uar, uar::BLUE_FLAME, &value);
    assert_eq!(rig.device.violations().1, 1, "it was not, as it rang");
}

#[test]
fn an_entry_that_came_with_the_doorbell_is_not_read_again() {
    let (rig, mut cq, mut sq) = rig();
    let before = rig.device.ledger().total();
    let body = plain(&rig, &frame(64, 1));
    sq.write(&rig, send::SEND, &body, Completion::Always);
    sq.write_record(&rig);
    let block = rig.read(sq.ring, 64);
    rig.store(uar::BLUE_FLAME, &block);
    rig.settle();
    let spent = rig.device.ledger().total() - before;
    assert_eq!((spent.of(Crossing::BlueFlame).bytes, spent.of(Crossing::Doorbell).bytes), (64, 0));
    assert_eq!(spent.of(Crossing::SendEntry).bytes, 0);
    assert!(cq.poll(&rig).is_some());
}

#[test]
fn a_doorbell_that_another_came_over_is_not_lost() {
    let rig = Rig::new();
    let cq = rig.cq(6);
    let mut queues = [rig.sq(6, &cq), rig.sq(6, &cq)];
    let mut expected = Vec::new();
    for round in 0..3 {
        for (index, sq) in queues.iter_mut().enumerate() {
            let frame = frame(80, round * 2 + index as u8);
            sq.write(&rig, send::SEND, &plain(&rig, &frame), Completion::Always);
            sq.write_record(&rig);
            // The second takes the first one's place in the register, before the device looks there.
            rig.store_quietly(uar::BLUE_FLAME, sq.last());
            expected.push(frame);
        }
        rig.settle();
        let mut sent = rig.wire.ends().sent.clone();
        sent.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sent, expected, "round {round}");
    }
    assert_eq!(rig.device.violations().1, 0);
}
