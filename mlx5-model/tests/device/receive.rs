use pollux_mlx5_abi::command::counter::{QueryQCounterIn, QueryQCounterOut};
use pollux_mlx5_abi::command::rq::{CreateRmpIn, RmpContext, RqContext, memory};
use pollux_mlx5_abi::command::wq::{WorkQueue, end_padding, kind};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{Data, INVALID_LKEY, NextSegment};
use zerocopy::IntoBytes;

use pollux_mlx5_model::DeviceConfig;

use super::rig::{Cq, HCA_DELTA, Rig, Rq, frame, number};

fn rig() -> (Rig, Cq, Rq) {
    let rig = Rig::new();
    let cq = rig.cq(8);
    let rq = rig.rq(4, 6, &cq);
    rig.all_to(rig.direct_tir(&rq));
    (rig, cq, rq)
}

/// A buffer and the segment that posts it.
pub(super) fn buffer(rig: &Rig, bytes: usize) -> (u64, Data) {
    let at = rig.room(bytes);
    (at, Data::new(bytes as u32, rig.lkey, at + HCA_DELTA))
}

pub(super) fn arrive(rig: &Rig, frame: &[u8]) {
    rig.wire.ends().incoming.push_back(frame.to_vec());
    rig.settle();
}

pub(super) fn out_of_buffer(rig: &Rig, set: u32) -> u32 {
    let mut query = QueryQCounterIn::ZERO;
    QueryQCounterIn::COUNTER_SET_ID.set(&mut query, set);
    let out = rig.must(op::QUERY_Q_COUNTER, 0, &mut query, 256);
    QueryQCounterOut::OUT_OF_BUFFER.get(out.first_chunk().expect("an answer"))
}

#[test]
fn a_frame_comes_in_and_is_completed() {
    let (rig, mut cq, mut rq) = rig();
    let (at, data) = buffer(&rig, 2048);
    rq.post(&rig, &[data]);
    arrive(&rig, &frame(100, 3));
    assert_eq!(rig.read(at, 101), [frame(100, 3), vec![0]].concat());
    let entry = cq.poll(&rig).expect("a completion");
    assert_eq!((entry.opcode(), entry.byte_cnt.get()), (completion::RESPONDER_SEND, 100));
    assert_eq!((entry.wqe_counter.get(), entry.user_index(), entry.flow_tag()), (0, 0x52, 0));
    assert!(cq.poll(&rig).is_none());
}

#[test]
fn a_frame_is_spread_over_segments() {
    let (rig, mut cq, mut rq) = rig();
    let parts: Vec<(u64, Data)> = [1, 13, 64, 500].iter().map(|bytes| buffer(&rig, *bytes)).collect();
    let segments: Vec<Data> = parts.iter().map(|(_, data)| *data).collect();
    rq.post(&rig, &segments);
    let sent = frame(333, 1);
    arrive(&rig, &sent);
    let whole: Vec<u8> =
        parts.iter().flat_map(|(at, data)| rig.read(*at, data.byte_count.get() as usize)).collect();
    assert_eq!(whole[..333], sent);
    assert_eq!(cq.poll(&rig).expect("a completion").byte_cnt.get(), 333);
    // A list that ends early is as long as it says.
    let (_, data) = buffer(&rig, 100);
    rq.post(&rig, &[data, Data::new(0, INVALID_LKEY, 0), buffer(&rig, 500).1]);
    arrive(&rig, &sent);
    assert_eq!(cq.error(&rig).syndrome, Syndrome::LOCAL_LENGTH_ERR);
}

/// Whoever means no bytes ends the list by its key: 0 stands for 2^31, more than the memory has.
#[test]
fn a_segment_of_length_0_is_as_long_as_can_be() {
    let sent = frame(333, 1);
    for (from, seen) in [(0, &sent[100..]), (1, &sent[..])] {
        let (rig, mut cq, mut rq) = rig();
        let (at, data) = buffer(&rig, 4096);
        // Both pieces are the same memory.
        let segments = [Data { byte_count: 100.into(), ..data }, Data { byte_count: 0.into(), ..data }];
        rq.post(&rig, &segments[from..]);
        arrive(&rig, &sent);
        assert_eq!(cq.poll(&rig).expect("a completion").byte_cnt.get(), 333);
        assert_eq!(rig.read(at, seen.len()), seen);
    }
}

/// The key of no memory takes any address, reads as zeros, and neither way crosses PCIe.
#[test]
fn the_key_of_no_memory_takes_what_nobody_wants() {
    use pollux_mlx5_abi::command::start::QuerySpecialContextsOut;
    use pollux_mlx5_model::ledger::Crossing;
    let (rig, mut cq, mut rq) = rig();
    let out = rig.must(op::QUERY_SPECIAL_CONTEXTS, 0, &mut [0; 16], 32);
    let key = QuerySpecialContextsOut::DUMP_FILL_MKEY.get(out.first_chunk().expect("an answer"));
    assert_ne!(key, 0);
    let (at, data) = buffer(&rig, 100);
    rq.post(&rig, &[data, Data::new(150, key, u64::MAX - 9), buffer(&rig, 500).1]);
    let before = rig.device.ledger().total();
    arrive(&rig, &frame(333, 1));
    assert_eq!(rig.read(at, 100), frame(333, 1)[..100]);
    assert_eq!(cq.poll(&rig).expect("a completion").byte_cnt.get(), 333);
    let crossed = (rig.device.ledger().total() - before).of(Crossing::ReceivePayload).bytes;
    assert_eq!(crossed, 333 - 150);
    let mut sq = rig.sq(4, &cq);
    let mut body = super::send::ethernet(&[], |_| {});
    body.extend(zerocopy::IntoBytes::as_bytes(&Data::new(64, key, 7)));
    sq.write(&rig, pollux_mlx5_abi::opcode::send::SEND, &body, pollux_mlx5_abi::wqe::Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(rig.wire.ends().sent, [vec![0; 64]]);
}

#[test]
fn a_buffer_that_asks_for_padding_in_front_is_as_long_as_it_says() {
    let (rig, mut cq, mut rq) = rig();
    let parts: Vec<(u64, Data)> = [100, 64, 500].iter().map(|bytes| buffer(&rig, *bytes)).collect();
    // As Linux's network driver posts them.
    let segments: Vec<Data> = parts
        .iter()
        .map(|(_, data)| Data { byte_count: (data.byte_count.get() | 1 << 31).into(), ..*data })
        .collect();
    rq.post(&rig, &segments);
    let sent = frame(333, 1);
    arrive(&rig, &sent);
    let whole: Vec<u8> =
        parts.iter().flat_map(|(at, data)| rig.read(*at, data.byte_count.get() as usize)).collect();
    assert_eq!(whole[..333], sent);
    assert_eq!(cq.poll(&rig).expect("a completion").byte_cnt.get(), 333);
}

#[test]
fn without_a_buffer_a_frame_is_dropped_and_counted() {
    let rig = Rig::new();
    let set = number(&rig.must(op::ALLOC_Q_COUNTER, 0, &mut [0; 16], 16));
    let mut cq = rig.cq(8);
    let mut rq = rig.rq_with(4, 4, &cq, |context| RqContext::COUNTER_SET_ID.set(context, set));
    rig.all_to(rig.direct_tir(&rq));
    arrive(&rig, &frame(64, 1));
    arrive(&rig, &frame(64, 1));
    assert_eq!(out_of_buffer(&rig, set), 2);
    rq.post(&rig, &[buffer(&rig, 2048).1]);
    arrive(&rig, &frame(64, 2));
    assert_eq!((out_of_buffer(&rig, set), cq.poll(&rig).map(|entry| entry.byte_cnt.get())), (2, Some(64)));
}

#[test]
fn what_a_queues_counters_count() {
    for (bad, length, protection) in [(true, 1, 0), (false, 0, 1)] {
        let rig = Rig::new();
        let set = number(&rig.must(op::ALLOC_Q_COUNTER, 0, &mut [0; 16], 16));
        let cq = rig.cq(8);
        let mut rq = rig.rq_with(4, 4, &cq, |context| RqContext::COUNTER_SET_ID.set(context, set));
        rig.all_to(rig.direct_tir(&rq));
        let good = buffer(&rig, 2048).1;
        rq.post(
            &rig,
            &[if bad { Data::new(20, good.lkey.get(), good.addr.get()) } else { Data::new(2048, 7, 0) }],
        );
        (0..3).for_each(|_| rq.post(&rig, &[good]));
        arrive(&rig, &frame(64, 1));
        let mut query = QueryQCounterIn::ZERO;
        QueryQCounterIn::COUNTER_SET_ID.set(&mut query, set);
        QueryQCounterIn::CLEAR.set(&mut query, 1);
        let read = || {
            let out = rig.must(op::QUERY_Q_COUNTER, 0, &mut query.clone(), 256);
            let out = out.first_chunk().expect("an answer");
            [
                QueryQCounterOut::RESP_LOCAL_LENGTH_ERROR.get(out),
                QueryQCounterOut::RESP_LOCAL_PROTECTION.get(out),
                QueryQCounterOut::RESP_CQE_FLUSH_ERROR.get(out),
            ]
        };
        assert_eq!(read(), [length, protection, 3]);
        assert_eq!(read(), [0, 0, 0], "cleared");
    }
}

#[test]
fn posted_entries_are_read_together() {
    use pollux_mlx5_model::ledger::Crossing;
    let (rig, mut cq, _) = rig();
    let mut rq = rig.rq(6, 4, &cq);
    rig.all_to(rig.direct_tir(&rq));
    let data = buffer(&rig, 2048).1;
    (0..64).for_each(|_| rq.post(&rig, &[data]));
    let before = rig.device.ledger().total();
    (0..64).for_each(|mark| rig.wire.ends().incoming.push_back(frame(64, mark)));
    rig.settle();
    let spent = (rig.device.ledger().total() - before).of(Crossing::ReceiveEntry);
    assert_eq!((spent.transfers, spent.bytes), (2, 64 * 16));
    assert_eq!(std::iter::from_fn(|| cq.poll(&rig)).count(), 64);
}

#[test]
fn a_card_of_the_first_version_of_completions_names_no_user_index() {
    use pollux_mlx5_model::{DeviceConfig, Traits};
    let traits = Traits { cqe_version: 0, ..Traits::default() };
    let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
    let mut cq = rig.cq(8);
    let mut rq = rig.rq(4, 4, &cq);
    rig.all_to(rig.direct_tir(&rq));
    rq.post(&rig, &[buffer(&rig, 2048).1]);
    arrive(&rig, &frame(64, 1));
    assert_eq!(cq.poll(&rig).map(|entry| entry.srqn_uidx.get()), Some(0));
}

#[test]
fn the_ring_and_its_index_wrap() {
    let (rig, mut cq, mut rq) = rig();
    let (at, data) = buffer(&rig, 2048);
    for turn in 0..70_000_u32 {
        rq.post(&rig, &[data]);
        rig.wire.ends().incoming.push_back(frame(64, turn as u8));
        rig.device.step(8);
        let entry = cq.poll(&rig).unwrap_or_else(|| panic!("turn {turn}"));
        assert_eq!(u32::from(entry.wqe_counter.get()), turn & 0xffff);
        cq.give_back(&rig);
    }
    assert_eq!(rig.read(at, 64), frame(64, 69_999_u32 as u8));
}

#[test]
fn each_fault_has_its_syndrome_and_the_rest_is_flushed() {
    type Change = fn(&Rig, &mut Data);
    let cases: [(Change, u8, u8); 5] = [
        (|_, data| data.byte_count.set(63), Syndrome::LOCAL_LENGTH_ERR, 0x71),
        (|_, data| data.lkey.set(data.lkey.get() ^ 3), Syndrome::LOCAL_PROT_ERR, 0x51),
        (|_, data| data.addr.set(data.addr.get() + (8 << 20)), Syndrome::LOCAL_PROT_ERR, 0x53),
        (|_, data| data.addr.set(data.addr.get() - HCA_DELTA - (8 << 20)), Syndrome::LOCAL_PROT_ERR, 0x53),
        (
            |rig, data| {
                // A key for reading alone.
                data.lkey.set(rig.mkey(data.addr.get() - HCA_DELTA, 2048, false));
            },
            Syndrome::LOCAL_PROT_ERR,
            0x54,
        ),
    ];
    for (change, syndrome, vendor) in cases {
        let (rig, mut cq, mut rq) = rig();
        let (_, good) = buffer(&rig, 2048);
        let mut bad = good;
        change(&rig, &mut bad);
        rq.post(&rig, &[bad, Data::new(0, INVALID_LKEY, 0)]);
        rq.post(&rig, &[good]);
        arrive(&rig, &frame(64, 1));
        let error = cq.error(&rig);
        assert_eq!(
            (error.op_own >> 4, error.syndrome()),
            (completion::RESPONDER_ERROR, Syndrome { code: syndrome, vendor })
        );
        assert_eq!((error.wqe_counter.get(), error.qpn(), error.srqn.get()), (0, rq.number, 0x52));
        let flushed = cq.error(&rig);
        assert!(flushed.syndrome().is_flush() && flushed.wqe_counter.get() == 1);
        // Posted in error: flushed too.
        rq.post(&rig, &[good]);
        rig.settle();
        assert!(cq.error(&rig).syndrome().is_flush());
        arrive(&rig, &frame(64, 1));
        assert!(cq.poll(&rig).is_none());
        // And back to work.
        let refused = rig.rq_state(&rq, 1, 0).expect_err("its state is ERROR");
        assert_eq!(refused.status, status::BAD_RES_STATE_ERR);
        rig.rq_state(&rq, 3, 0).expect("to RESET");
        rig.write(rq.record, &[0; 4]);
        rq.posted = 0;
        rig.rq_state(&rq, 0, 1).expect("to READY");
        rq.post(&rig, &[good]);
        arrive(&rig, &frame(64, 9));
        assert_eq!(
            cq.poll(&rig).map(|entry| (entry.opcode(), entry.wqe_counter.get())),
            Some((completion::RESPONDER_SEND, 0))
        );
    }
}

#[test]
fn a_queue_that_is_made_to_fail_flushes_all() {
    let (rig, mut cq, mut rq) = rig();
    for _ in 0..16 {
        rq.post(&rig, &[buffer(&rig, 64).1]);
    }
    rig.rq_state(&rq, 1, 3).expect("to ERROR");
    rig.settle();
    for index in 0..16 {
        let error = cq.error(&rig);
        assert!(error.syndrome().is_flush() && error.wqe_counter.get() == index);
    }
    assert!(cq.poll(&rig).is_none());
    assert!(rig.rq_state(&rq, 3, 1).is_err(), "only by way of RESET");
}

#[test]
fn buffers_can_be_a_pools() {
    let rig = Rig::new();
    let mut cq = rig.cq(8);
    let (ring, record) = (rig.room(32 * 16), rig.room(64));
    let mut context = RmpContext::ZERO;
    RmpContext::STATE.set(&mut context, 1);
    let wq = RmpContext::WQ.of_mut(&mut context);
    WorkQueue::WQ_TYPE.set(wq, kind::LINKED_LIST);
    WorkQueue::PD.set(wq, rig.pd);
    WorkQueue::DBR_ADDR.set(wq, record);
    WorkQueue::LOG_WQ_STRIDE.set(wq, 5);
    WorkQueue::LOG_WQ_SZ.set(wq, 4);
    let mut input = CreateRmpIn::ZERO.to_vec();
    CreateRmpIn::CTX.set(input.first_chunk_mut().expect("a command"), context);
    input.extend(ring.to_be_bytes());
    let pool = number(&rig.must(op::CREATE_RMP, 0, &mut input, 16));
    let queues: Vec<Rq> = (0..2)
        .map(|_| {
            rig.rq_with(4, 4, &cq, |context| {
                RqContext::MEM_RQ_TYPE.set(context, memory::RMP);
                RqContext::RMPN.set(context, pool);
            })
        })
        .collect();
    // Entries lead from 0 to 5 to 2: the order of the links, not of the ring.
    let order = [0_u16, 5, 2];
    let buffers: Vec<(u64, Data)> = order.iter().map(|_| buffer(&rig, 256)).collect();
    for (index, slot) in order.iter().enumerate() {
        let mut next = NextSegment::default();
        next.next_wqe_index.set(order.get(index + 1).copied().unwrap_or(0));
        let entry = [next.as_bytes(), buffers[index].1.as_bytes()].concat();
        rig.write(ring + u64::from(*slot) * 32, &entry);
    }
    rig.write(record, &3_u32.to_be_bytes());
    let table = rig.table(0, 4);
    let group = rig.group(table, 0, 0, 0, [0; 512]);
    let to: Vec<(u32, u32)> = queues.iter().map(|rq| (2, rig.direct_tir(rq))).collect();
    rig.entry(table, group, 0, [0; 512], 0, &to, &[]).expect("two destinations");
    rig.root(table);
    arrive(&rig, &frame(64, 7));
    let entries = [cq.poll(&rig), cq.poll(&rig)].map(|entry| entry.map(|entry| entry.wqe_counter.get()));
    assert_eq!(entries, [Some(0), Some(5)]);
    assert_eq!((rig.read(buffers[0].0, 64), rig.read(buffers[1].0, 64)), (frame(64, 7), frame(64, 7)));
    let mut destroy = [0; 16];
    destroy[8..12].copy_from_slice(&pool.to_be_bytes());
    assert_eq!(rig.command(op::DESTROY_RMP, 0, &mut destroy, 16).expect_err("in use").status, 6);
}

/// Every kind of ring that a pool can have, and where in an entry its segments begin.
#[test]
fn entries_of_a_pool_begin_with_a_link_unless_it_says_otherwise() {
    for (ring_kind, basic, head) in [(kind::CYCLIC, 1, 0), (kind::CYCLIC, 0, 16), (kind::LINKED_LIST, 0, 16)]
    {
        let rig = Rig::new();
        let mut cq = rig.cq(8);
        let (ring, record) = (rig.room(32 * 16), rig.room(64));
        let mut context = RmpContext::ZERO;
        RmpContext::STATE.set(&mut context, 1);
        RmpContext::BASIC_CYCLIC_RCV_WQE.set(&mut context, basic);
        let wq = RmpContext::WQ.of_mut(&mut context);
        WorkQueue::WQ_TYPE.set(wq, ring_kind);
        WorkQueue::PD.set(wq, rig.pd);
        WorkQueue::DBR_ADDR.set(wq, record);
        WorkQueue::LOG_WQ_STRIDE.set(wq, 5);
        WorkQueue::LOG_WQ_SZ.set(wq, 4);
        let mut input = CreateRmpIn::ZERO.to_vec();
        CreateRmpIn::CTX.set(input.first_chunk_mut().expect("a command"), context);
        input.extend(ring.to_be_bytes());
        let pool = number(&rig.must(op::CREATE_RMP, 0, &mut input, 16));
        let rq = rig.rq_with(4, 4, &cq, |context| {
            RqContext::MEM_RQ_TYPE.set(context, memory::RMP);
            RqContext::RMPN.set(context, pool);
        });
        rig.all_to(rig.direct_tir(&rq));
        let (at, data) = buffer(&rig, 256);
        let ends = Data::new(0, INVALID_LKEY, 0);
        let segments = if head == 0 { [data, ends] } else { [Data::new(0, 0, 0), data] };
        rig.write(ring, segments.as_bytes());
        rig.write(record, &1_u32.to_be_bytes());
        arrive(&rig, &frame(64, 7));
        let came = cq.poll(&rig).map(|entry| (entry.opcode(), entry.byte_cnt.get()));
        assert_eq!(came, Some((completion::RESPONDER_SEND, 64)), "type {ring_kind}, basic {basic}");
        assert_eq!(rig.read(at, 64), frame(64, 7));
    }
}

#[test]
fn the_end_of_a_packet_is_padded_to_a_line_if_asked() {
    let rig = Rig::new();
    let mut cq = rig.cq(8);
    let mut rq = rig.rq_with(4, 4, &cq, |context| {
        WorkQueue::END_PADDING_MODE.set(RqContext::WQ.of_mut(context), end_padding::ALIGN);
    });
    rig.all_to(rig.direct_tir(&rq));
    let (at, data) = buffer(&rig, 200);
    rig.write(at, &[0xee; 200]);
    rq.post(&rig, &[data]);
    arrive(&rig, &frame(70, 1));
    assert_eq!(rig.read(at + 70, 130), [vec![0; 58], vec![0xee; 72]].concat());
    // Never past the buffer.
    rig.write(at, &[0xee; 200]);
    rq.post(&rig, &[Data::new(75, rig.lkey, at + HCA_DELTA)]);
    arrive(&rig, &frame(70, 1));
    assert_eq!(rig.read(at + 70, 10), [0, 0, 0, 0, 0, 0xee, 0xee, 0xee, 0xee, 0xee]);
    assert_eq!(cq.poll(&rig).expect("a completion").byte_cnt.get(), 70);
}

/// A physical function has no filter in front of its steering, which DPDK's driver relies on.
#[test]
fn a_physical_functions_port_lets_in_all() {
    let (rig, mut cq, mut rq) = rig();
    let at = buffer(&rig, 2048).1;
    for destination in [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9], [1, 0, 0x5e, 0, 0, 5], [0xff; 6]] {
        rq.post(&rig, &[at]);
        let mut frame = frame(64, 0);
        frame[..6].copy_from_slice(&destination);
        arrive(&rig, &frame);
        assert!(cq.poll(&rig).is_some(), "{destination:x?}");
    }
    assert_eq!(rig.device.port_counters().filtered, 0);
}

#[test]
fn a_virtual_functions_port_lets_in_what_is_its_own() {
    let mut config = DeviceConfig::default();
    config.traits.filters_vport = true;
    let rig = Rig::with(config);
    let mut cq = rig.cq(8);
    let mut rq = rig.rq(4, 6, &cq);
    rig.all_to(rig.direct_tir(&rq));
    let at = buffer(&rig, 2048).1;
    (0..10).for_each(|_| rq.post(&rig, &[at]));
    let to = |first: u8, last: u8| {
        let mut frame = frame(64, 0);
        (frame[0], frame[5]) = (first, last);
        frame
    };
    let came = |cq: &mut Cq| {
        let mut count = 0;
        while cq.poll(&rig).is_some() {
            count += 1;
        }
        count
    };
    arrive(&rig, &to(2, 1));
    assert_eq!(came(&mut cq), 1, "its own address");
    arrive(&rig, &to(2, 2));
    assert_eq!((came(&mut cq), rig.device.port_counters().filtered), (0, 1));
    arrive(&rig, &to(3, 7));
    rig.device.set_multicast(vec![[3, 0, 0, 0, 0, 7]]);
    arrive(&rig, &to(3, 7));
    assert_eq!((came(&mut cq), rig.device.port_counters().filtered), (1, 2), "groups that it listed");
    rig.device.set_unicast(vec![[2, 0, 0, 0, 0, 2]]);
    arrive(&rig, &to(2, 2));
    rig.device.set_unicast(Vec::new());
    rig.device.set_promiscuous(true);
    arrive(&rig, &to(2, 9));
    rig.device.set_promiscuous(false);
    arrive(&rig, &to(2, 9));
    assert_eq!((came(&mut cq), rig.device.port_counters().filtered), (2, 3));
    // The MTU caps what comes in: 1500 and up to 22 bytes of headers.
    arrive(&rig, &frame(1522, 0));
    arrive(&rig, &frame(1523, 0));
    assert_eq!((came(&mut cq), rig.device.port_counters().too_long), (1, 1));
    arrive(&rig, &[2, 0, 0]);
    assert_eq!(rig.device.port_counters().too_short, 1);
    assert_eq!(rig.device.port_counters().received.all().packets, 5);
}
