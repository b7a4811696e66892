use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::cq::{CqContext, DestroyCqIn, ModifyCqIn, QueryCqOut, modify, state, stride};
use pollux_mlx5_abi::command::{opcode as op, period_mode};
use pollux_mlx5_abi::cqe::{
    Cqe64, FRESH, FRESH_PASS, MINIS, MiniCqe, MiniFormat, Validity, enhanced_minis, format, layout,
};
use pollux_mlx5_abi::doorbell::{ArmWord, uar};
use pollux_mlx5_abi::eqe::{self, event};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::Completion;
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::{DeviceConfig, Traits, Violation};
use std::time::Duration;
use zerocopy::FromBytes;

use super::receive::{arrive, buffer};
use super::rig::{Cq, Rig, Rq, Sq, frame};
use super::send::plain;

fn nop(rig: &Rig, sq: &mut Sq, count: usize) {
    for _ in 0..count {
        sq.write(rig, send::NOP, &[], Completion::Always);
    }
    sq.ring(rig);
    rig.settle();
}

fn arm(rig: &Rig, cq: &Cq, sequence: u8, solicited_only: bool) {
    let word = ArmWord { sequence, solicited_only, consumer: cq.next };
    rig.write(cq.record + 4, &word.word().to_be_bytes());
    rig.store(uar::CQ_ARM, &word.register(cq.number));
}

/// The same by a store that is seen when the device looks there.
fn arm_quietly(rig: &Rig, cq: &Cq, sequence: u8) {
    let word = ArmWord { sequence, solicited_only: false, consumer: cq.next };
    rig.write(cq.record + 4, &word.word().to_be_bytes());
    rig.store_quietly(uar::CQ_ARM, word.register(cq.number));
}

/// The completion events that came since the last look.
fn events(rig: &Rig) -> Vec<u32> {
    let mut seen = Vec::new();
    while let Some(event) = rig.event() {
        if event.kind == event::COMP {
            seen.push(eqe::Completion::read_from_bytes(&event.data[..]).expect("28 bytes").cqn.get());
        }
    }
    rig.arm_events();
    seen
}

#[test]
fn the_owner_bit_flips_with_each_pass() {
    let rig = Rig::new();
    let mut cq = rig.cq(2);
    let mut sq = rig.sq(6, &cq);
    for turn in 0..50_u32 {
        nop(&rig, &mut sq, 1);
        let entry = cq.poll(&rig).expect("a completion");
        assert_eq!(u32::from(entry.owner()), turn >> 2 & 1);
        cq.give_back(&rig);
    }
}

#[test]
fn an_entry_of_128_bytes_stands_in_its_second_half() {
    let traits = Traits { padded_completions: true, ..Traits::default() };
    let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
    for size in [stride::BYTES_128, stride::BYTES_128_PAD] {
        let mut cq = rig.cq_with(3, |context| CqContext::CQE_SZ.set(context, size));
        let mut sq = rig.sq(4, &cq);
        for turn in 0..20 {
            nop(&rig, &mut sq, 1);
            assert_eq!(cq.poll(&rig).expect("a completion").wqe_counter.get(), turn);
            cq.give_back(&rig);
        }
        assert_eq!(rig.read(cq.ring, 64), [0; 64], "the first half is left alone");
    }
}

#[test]
fn a_full_queue_is_dead_and_says_so() {
    let rig = Rig::new();
    let mut cq = rig.cq(2);
    let mut sq = rig.sq(6, &cq);
    nop(&rig, &mut sq, 4);
    assert!(events(&rig).is_empty());
    nop(&rig, &mut sq, 2);
    for index in 0..4 {
        assert_eq!(cq.poll(&rig).expect("what fitted").wqe_counter.get(), index);
    }
    let kinds: Vec<u8> = std::iter::from_fn(|| rig.event()).map(|event| event.kind).collect();
    assert_eq!(kinds, [event::CQ_ERROR, event::WQ_CATAS_ERROR]);
    cq.give_back(&rig);
    nop(&rig, &mut sq, 1);
    assert!(cq.poll(&rig).is_none());
    let mut query = [0; 16];
    query[8..12].copy_from_slice(&cq.number.to_be_bytes());
    let out = rig.must(op::QUERY_CQ, 0, &mut query, 272);
    let context = QueryCqOut::CQ_CONTEXT.get(out.first_chunk().expect("an answer"));
    assert_eq!((CqContext::STATUS.get(&context), CqContext::PRODUCER_COUNTER.get(&context)), (9, 4));
}

#[test]
fn a_driver_may_keep_sixteen_bits_of_the_index() {
    let rig = Rig::new();
    let mut cq = rig.cq(5);
    let mut sq = rig.sq(6, &cq);
    while cq.next < 0x1_0000 + 64 {
        nop(&rig, &mut sq, 32);
        (0..32).for_each(|_| assert!(cq.poll(&rig).is_some(), "completion {}", cq.next));
        rig.write(cq.record, &(cq.next & 0xffff).to_be_bytes());
    }
    assert!(events(&rig).is_empty());
    // And it is still full when it is.
    nop(&rig, &mut sq, 33);
    assert_eq!(rig.event().map(|event| event.kind), Some(event::CQ_ERROR));
}

#[test]
fn a_queue_may_ask_to_run_over() {
    let rig = Rig::new();
    let mut cq = rig.cq_with(2, |context| CqContext::OI.set(context, 1));
    let mut sq = rig.sq(6, &cq);
    nop(&rig, &mut sq, 6);
    assert!(cq.poll(&rig).is_none(), "overwritten in the second pass");
    assert_eq!(cq.peek(&rig, 5).expect("the last one").wqe_counter.get(), 5);
}

#[test]
fn a_queue_is_armed_for_one_event() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    nop(&rig, &mut sq, 1);
    assert!(events(&rig).is_empty(), "not armed");
    cq.poll(&rig).expect("a completion");
    arm(&rig, &cq, 0, false);
    assert!(events(&rig).is_empty(), "armed, nothing new");
    nop(&rig, &mut sq, 3);
    assert_eq!(events(&rig), [cq.number], "one event for all");
    nop(&rig, &mut sq, 1);
    assert!(events(&rig).is_empty(), "fired");
    // Armed for what was seen so far while more has come: at once.
    arm(&rig, &cq, 1, false);
    assert_eq!(events(&rig), [cq.number]);
    // The same turn again is a repetition.
    arm(&rig, &cq, 1, false);
    assert!(events(&rig).is_empty());
    arm(&rig, &cq, 2, false);
    assert_eq!(events(&rig), [cq.number]);
}

#[test]
fn who_waits_for_solicited_ones_is_not_woken_by_others() {
    let rig = Rig::new();
    let cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    arm(&rig, &cq, 0, true);
    nop(&rig, &mut sq, 3);
    assert!(events(&rig).is_empty());
    sq.write(&rig, send::NOP, &[], Completion::AlwaysAndEvent);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(events(&rig), [cq.number]);
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    arm(&rig, &cq, 0, true);
    sq.write(&rig, 0xee, &[], Completion::OnError);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(events(&rig), [cq.number], "errors wake everybody");
    cq.error(&rig);
}

#[test]
fn an_arm_that_another_came_over_is_not_lost() {
    let rig = Rig::new();
    let mut queues = [rig.cq(6), rig.cq(6)];
    for sequence in 0..=3 {
        // The second takes the first one's place in the register.
        queues.iter().for_each(|cq| arm_quietly(&rig, cq, sequence));
        rig.settle();
        for cq in &mut queues {
            let mut sq = rig.sq(6, cq);
            sq.write(&rig, send::NOP, &[], Completion::Always);
            sq.ring(&rig);
            rig.settle();
            assert!(cq.poll(&rig).is_some());
        }
        let mut armed = events(&rig);
        armed.sort_unstable();
        assert_eq!(armed, queues.each_ref().map(|cq| cq.number), "arm {sequence}");
        rig.arm_events();
    }
    assert_eq!(rig.device.violations().1, 0);
}

#[test]
fn a_store_before_a_command_comes_before_it() {
    let rig = Rig::new();
    let cq = rig.cq(6);
    arm_quietly(&rig, &cq, 0);
    let mut input = DestroyCqIn::ZERO;
    DestroyCqIn::CQN.set(&mut input, cq.number);
    rig.must(op::DESTROY_CQ, 0, &mut input, 16);
    rig.settle();
    assert_eq!(rig.device.violations().1, 0, "the queue was there");
}

#[test]
fn register_and_record_of_an_arm_agree() {
    let rig = Rig::new();
    let cq = rig.cq(6);
    let word = ArmWord { sequence: 0, solicited_only: false, consumer: 0 };
    rig.store(uar::CQ_ARM, &ArmWord { sequence: 1, ..word }.register(cq.number));
    assert_eq!(rig.device.violations().0, [Violation::Arm { queue: cq.number }]);
    rig.store(uar::CQ_ARM, &word.register(cq.number + 1));
    assert_eq!(rig.device.violations().1, 2);
}

#[test]
fn events_are_moderated_by_count_and_time() {
    let clock = Clock::stepped();
    let rig = Rig::with(DeviceConfig { clock: clock.clone(), ..DeviceConfig::default() });
    let mut cq = rig.cq_with(6, |context| {
        CqContext::CQ_MAX_COUNT.set(context, 3);
        CqContext::CQ_PERIOD.set(context, 16);
    });
    let mut sq = rig.sq(6, &cq);
    arm(&rig, &cq, 0, false);
    nop(&rig, &mut sq, 2);
    assert!(events(&rig).is_empty());
    nop(&rig, &mut sq, 1);
    assert_eq!(events(&rig), [cq.number], "three of them");
    while cq.poll(&rig).is_some() {}
    arm(&rig, &cq, 1, false);
    nop(&rig, &mut sq, 1);
    clock.advance(Duration::from_micros(15));
    rig.settle();
    assert!(events(&rig).is_empty());
    clock.advance(Duration::from_micros(1));
    rig.settle();
    assert_eq!(events(&rig), [cq.number], "one of them, after 16 us");
    // And changed while it works.
    let mut input = ModifyCqIn::ZERO;
    ModifyCqIn::CQN.set(&mut input, cq.number);
    ModifyCqIn::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.set(&mut input, modify::COUNT | modify::PERIOD);
    rig.must(op::MODIFY_CQ, 0, &mut input, 16);
    while cq.poll(&rig).is_some() {}
    arm(&rig, &cq, 2, false);
    let mut query = [0; 16];
    query[8..12].copy_from_slice(&cq.number.to_be_bytes());
    let context = QueryCqOut::CQ_CONTEXT
        .get(rig.must(op::QUERY_CQ, 0, &mut query, 272).first_chunk().expect("an answer"));
    assert_eq!(CqContext::ST.get(&context), state::NOTIFICATION_REQUEST_ARMED);
    nop(&rig, &mut sq, 1);
    assert_eq!(events(&rig), [cq.number]);
}

#[test]
fn an_event_queue_fires_its_vector_once_an_arm() {
    use pollux_mlx5_kernel::CommandQueue;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    let rig = Rig::new();
    let fired = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&fired);
    rig.device.on_interrupt(
        0,
        Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }),
    );
    while rig.event().is_some() {}
    rig.arm_events();
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    rig.settle();
    while rig.event().is_some() {}
    rig.arm_events();
    fired.store(0, Ordering::Relaxed);
    for turn in 0..3 {
        arm(&rig, &cq, turn, false);
        nop(&rig, &mut sq, 1);
        cq.poll(&rig).expect("a completion");
    }
    assert_eq!(fired.load(Ordering::Relaxed), 1, "three events, armed once");
    // Armed while events are there: at once.
    rig.arm_events();
    assert_eq!(fired.load(Ordering::Relaxed), 2);
    assert_eq!(events(&rig).len(), 3);
}

fn compressed(kept: MiniFormat, log: u8) -> (Rig, Cq, Rq) {
    compressed_in(layout::BASIC, kept, log)
}

fn compressed_in(layout: u32, kept: MiniFormat, log: u8) -> (Rig, Cq, Rq) {
    let rig = Rig::new();
    let cq = rig.cq_with(log, |context| {
        CqContext::CQE_COMP_EN.set(context, 1);
        CqContext::CQE_COMPRESSION_LAYOUT.set(context, layout);
        CqContext::MINI_CQE_RES_FORMAT.set(context, kept as u32);
    });
    let rq = rig.rq(6, 4, &cq);
    rig.all_to(rig.direct_tir(&rq));
    (rig, cq, rq)
}

/// Takes a ring of compressed completions apart, by the description in `mlx5-abi`: lengths and sums, in order.
fn unfold(rig: &Rig, cq: &mut Cq) -> Vec<(u32, u16)> {
    let mut seen = Vec::new();
    while let Some(title) = cq.peek(rig, cq.next) {
        if title.format() != format::COMPRESSED {
            seen.push((title.byte_cnt.get(), title.check_sum.get()));
            cq.next += 1;
            continue;
        }
        let count = title.byte_cnt.get();
        let place = cq.next & ((1 << cq.log) - 1);
        assert!(place + count <= 1 << cq.log, "a block of {count} at {place} goes on over the ring's end");
        for index in 0..count {
            let array = index / MINIS as u32;
            let slot = cq.next + if array == 0 { 1 } else { array * MINIS as u32 };
            let bytes = cq.at(rig, slot);
            let minis: [MiniCqe; MINIS] = zerocopy::transmute!(bytes);
            let mini = minis[index as usize % MINIS];
            seen.push((mini.byte_cnt.get(), mini.checksum()));
        }
        // Software marks the places as invalid before it gives them back.
        for index in 0..count {
            let slot = u64::from((cq.next + index) & ((1 << cq.log) - 1));
            let owner = ((cq.next + index) >> cq.log & 1) as u8;
            rig.write(cq.ring + slot * 64 + 63, &[completion::INVALID << 4 | owner]);
        }
        cq.next += count;
    }
    cq.give_back(rig);
    seen
}

#[test]
fn like_packets_share_a_title() {
    let (rig, mut cq, mut rq) = compressed(MiniFormat::Checksum, 6);
    let data = buffer(&rig, 2048).1;
    let before = rig.device.ledger().total();
    let mut sent = 0_u32;
    for round in 0..200_usize {
        // Rounds of 1 to 40 packets, all unlike in length.
        let count = 1 + round % 40;
        for index in 0..count {
            rq.post(&rig, &[data]);
            rig.wire.ends().incoming.push_back(frame(60 + index, round as u8));
        }
        while rig.device.step(64) {}
        let seen = unfold(&rig, &mut cq);
        assert_eq!(
            seen.iter().map(|(bytes, _)| *bytes as usize).collect::<Vec<_>>(),
            (60..60 + count).collect::<Vec<_>>()
        );
        sent += count as u32;
    }
    use pollux_mlx5_model::ledger::Crossing;
    let spent = rig.device.ledger().total() - before;
    assert!(spent.of(Crossing::Completion).bytes < u64::from(sent) * 64 / 3, "{spent}");
}

/// Takes a ring of the enhanced layout apart, by the description in `mlx5-abi`: lengths and sums, in order, and how many
/// packets each entry stood for. Nothing is marked.
fn unfold_enhanced(rig: &Rig, cq: &mut Cq) -> (Vec<(u32, u16)>, Vec<u32>) {
    let (mut seen, mut entries) = (Vec::new(), Vec::new());
    loop {
        let entry = cq.at(rig, cq.next);
        if !Validity::ENHANCED.is_ready(entry.last_word(), cq.next, cq.log) {
            break;
        }
        if entry.format() != format::COMPRESSED {
            seen.push((entry.byte_cnt.get(), entry.check_sum.get()));
            entries.push(1);
            cq.next += 1;
            continue;
        }
        let count = enhanced_minis(entry.op_own);
        assert!((1..=7).contains(&count), "{count}");
        let minis: [MiniCqe; MINIS] = zerocopy::transmute!(entry);
        seen.extend(minis[..count as usize].iter().map(|mini| (mini.byte_cnt.get(), mini.checksum())));
        entries.push(count);
        cq.next += count;
    }
    cq.give_back(rig);
    (seen, entries)
}

#[test]
fn in_the_enhanced_layout_arrays_follow_a_title_over_all_passes() {
    let (rig, mut cq, mut rq) = compressed_in(layout::ENHANCED, MiniFormat::Checksum, 6);
    for slot in 0..64 {
        rig.write(cq.ring + slot * 64 + 62, &[FRESH_PASS, FRESH]);
    }
    let data = buffer(&rig, 2048).1;
    // More than 256 passes of 64 places.
    for round in 0..900_usize {
        let count = 1 + round % 40;
        for index in 0..count {
            rq.post(&rig, &[data]);
            rig.wire.ends().incoming.push_back(frame(60 + index, round as u8));
        }
        while rig.device.step(64) {}
        let (seen, entries) = unfold_enhanced(&rig, &mut cq);
        let lengths: Vec<_> = seen.iter().map(|(bytes, _)| *bytes as usize).collect();
        assert_eq!(lengths, (60..60 + count).collect::<Vec<_>>(), "round {round}");
        if round == 39 {
            // The title of the first round serves them all.
            assert_eq!(entries, [7, 7, 7, 7, 7, 5]);
        }
        // A hole that is 256 passes old looks like news: whoever reads must have marked it by then.
        if cq.next % (64 * 100) < 64 {
            for slot in 0..64_u64 {
                rig.write(cq.ring + slot * 64 + 63, &[FRESH]);
            }
        }
    }
}

#[test]
fn an_unlike_packet_is_the_next_title() {
    let (rig, mut cq, mut rq) = compressed_in(layout::ENHANCED, MiniFormat::Checksum, 6);
    let data = buffer(&rig, 2048).1;
    let mut ip = frame(64, 1);
    ip[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    ip[16..18].copy_from_slice(&50_u16.to_be_bytes());
    for frame in [frame(64, 2), frame(65, 2), ip.clone(), ip, frame(66, 3), frame(67, 3)] {
        rq.post(&rig, &[data]);
        rig.wire.ends().incoming.push_back(frame);
    }
    rig.settle();
    let (seen, entries) = unfold_enhanced(&rig, &mut cq);
    assert_eq!(seen.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [64, 65, 64, 64, 66, 67]);
    assert_eq!(entries, [1, 1, 1, 1, 1, 1], "arrays of one, each behind its title");
    let formats = [0, 1, 2, 3].map(|index| cq.at(&rig, index).format());
    assert_eq!(formats, [format::PLAIN, format::COMPRESSED, format::PLAIN, format::COMPRESSED]);
}

#[test]
fn a_lone_packet_is_a_plain_completion_and_unlike_ones_end_a_block() {
    let (rig, mut cq, mut rq) = compressed(MiniFormat::Checksum, 6);
    let data = buffer(&rig, 2048).1;
    rq.post(&rig, &[data]);
    arrive(&rig, &frame(64, 1));
    let lone = cq.poll(&rig).expect("a completion");
    assert_eq!((lone.format(), lone.byte_cnt.get(), lone.wqe_counter.get()), (format::PLAIN, 64, 0));
    let mut ip = frame(64, 1);
    ip[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    ip[16..18].copy_from_slice(&50_u16.to_be_bytes());
    for frame in [frame(64, 2), frame(65, 2), ip.clone(), ip, frame(66, 3)] {
        rq.post(&rig, &[data]);
        rig.wire.ends().incoming.push_back(frame);
    }
    rig.settle();
    let formats: Vec<(u8, u32, u16)> = [1, 3, 5]
        .map(|index| cq.peek(&rig, index).expect("a completion"))
        .map(|entry: Cqe64| (entry.format(), entry.byte_cnt.get(), entry.wqe_counter.get()))
        .to_vec();
    assert_eq!(formats, [(format::COMPRESSED, 2, 1), (format::COMPRESSED, 2, 3), (format::PLAIN, 66, 5)]);
}

#[test]
fn errors_and_senders_are_never_compressed() {
    let (rig, mut cq, mut rq) = compressed(MiniFormat::Hash, 6);
    let mut sq = rig.sq(6, &cq);
    nop(&rig, &mut sq, 3);
    assert!((0..3).all(|_| cq.poll(&rig).is_some_and(|entry| entry.format() == format::PLAIN)));
    let good = buffer(&rig, 2048).1;
    rq.post(&rig, &[good]);
    rq.post(&rig, &[buffer(&rig, 10).1]);
    rig.wire.ends().incoming.extend([frame(64, 1), frame(64, 2)]);
    rig.settle();
    assert_eq!(cq.poll(&rig).map(|entry| entry.opcode()), Some(completion::RESPONDER_SEND));
    cq.error(&rig);
}

#[test]
fn compression_is_refused_where_it_cannot_be() {
    let rig = Rig::new();
    let base = |context: &mut [u8; CqContext::BYTES]| {
        CqContext::LOG_CQ_SIZE.set(context, 4);
        CqContext::UAR_PAGE.set(context, rig.uar);
        CqContext::C_EQN_OR_APU_ELEMENT.set(context, rig.eq.number);
        CqContext::DBR_ADDR.set(context, rig.room(64));
        CqContext::CQE_COMP_EN.set(context, 1);
    };
    for change in [
        (|context| CqContext::CQE_SZ.set(context, 1)) as fn(&mut [u8; CqContext::BYTES]),
        |context| CqContext::CQE_COMPRESSION_LAYOUT.set(context, 2),
        |context| {
            CqContext::CQE_COMP_EN.set(context, 0);
            CqContext::CQE_COMPRESSION_LAYOUT.set(context, 1)
        },
        // Padding, where the card does not say that it can.
        |context| {
            CqContext::CQE_COMP_EN.set(context, 0);
            CqContext::CQE_SZ.set(context, stride::BYTES_128_PAD);
        },
    ] {
        use pollux_mlx5_abi::command::cq::CreateCqIn;
        let mut context = CqContext::ZERO;
        base(&mut context);
        change(&mut context);
        let mut input = CreateCqIn::ZERO.to_vec();
        CreateCqIn::CQ_CONTEXT.set(input.first_chunk_mut().expect("a command"), context);
        input.extend(rig.room(4096).to_be_bytes());
        assert_eq!(rig.command(op::CREATE_CQ, 0, &mut input, 16).expect_err("refused").status, 3);
    }
}

#[test]
fn the_clock_stands_in_completions_and_on_its_page() {
    use pollux_mlx5_kernel::CommandQueue;
    let clock = Clock::stepped();
    let rig = Rig::with(DeviceConfig { clock: clock.clone(), ..DeviceConfig::default() });
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    let page = rig.device.clock().expect("a page");
    for turn in 1..5 {
        clock.advance(Duration::from_nanos(1_234_567));
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 0)), Completion::Always);
        sq.ring(&rig);
        rig.settle();
        assert_eq!(cq.poll(&rig).expect("a completion").timestamp.get(), turn * 1_234_567);
        assert_eq!(page.read64(0), Some((turn * 1_234_567).to_be()));
    }
}

/// By Linux's `DIM_CQ_PERIOD_MODE_START_FROM_CQE` each completion starts the time anew, as long as they come.
#[test]
fn the_time_starts_where_the_mode_says() {
    let clock = Clock::stepped();
    let rig = Rig::with(DeviceConfig { clock: clock.clone(), ..DeviceConfig::default() });
    let mut cq = rig.cq_with(6, |context| {
        CqContext::CQ_MAX_COUNT.set(context, 100);
        CqContext::CQ_PERIOD.set(context, 16);
        CqContext::CQ_PERIOD_MODE.set(context, period_mode::FROM_COMPLETION);
    });
    let mut sq = rig.sq(6, &cq);
    let mut query = [0; 16];
    query[8..12].copy_from_slice(&cq.number.to_be_bytes());
    let mut mode = || {
        let out = rig.must(op::QUERY_CQ, 0, &mut query, 272);
        CqContext::CQ_PERIOD_MODE.get(QueryCqOut::CQ_CONTEXT.of(out.first_chunk().expect("an answer")))
    };
    assert_eq!(mode(), period_mode::FROM_COMPLETION);
    let wait = |us| {
        clock.advance(Duration::from_micros(us));
        rig.settle();
        events(&rig)
    };
    arm(&rig, &cq, 0, false);
    for _ in 0..3 {
        nop(&rig, &mut sq, 1);
        assert!(wait(10).is_empty());
    }
    assert_eq!(wait(6), [cq.number], "16 us behind the last");
    while cq.poll(&rig).is_some() {}
    // The other mode, by a command while it works.
    let mut input = ModifyCqIn::ZERO;
    ModifyCqIn::CQN.set(&mut input, cq.number);
    ModifyCqIn::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.set(&mut input, period_mode::PART);
    rig.must(op::MODIFY_CQ, 0, &mut input, 16);
    assert_eq!(mode(), period_mode::FROM_EVENT);
    arm(&rig, &cq, 1, false);
    nop(&rig, &mut sq, 1);
    assert!(wait(10).is_empty());
    nop(&rig, &mut sq, 1);
    assert_eq!(wait(6), [cq.number], "16 us behind the first");
    CqContext::CQ_PERIOD_MODE.set(ModifyCqIn::CQ_CONTEXT.of_mut(&mut input), 2);
    assert!(rig.command(op::MODIFY_CQ, 0, &mut input, 16).is_err(), "there are two");
    let out = rig.must(op::QUERY_HCA_CAP, 1, &mut [0; 16], 4112);
    let caps: &[u8; 256] = out[16..].first_chunk().expect("a block");
    assert!(period_mode::CAP.is_set(caps) && GeneralCaps::CQ_PERIOD_START_FROM_CQE.is_set(caps));
}
