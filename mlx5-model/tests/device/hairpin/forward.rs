//! Packets on their way through hairpin queues: unchanged, rewritten, waiting, dropped.

use std::time::Duration;

use pollux_mlx5_abi::command::flow::{action, criteria, destination, table};
use pollux_mlx5_abi::command::matching::{MatchHeaders, MatchMisc, MatchParameters};
use pollux_mlx5_abi::command::rewrite::field;
use pollux_mlx5_abi::command::sq::SqContext;
use pollux_mlx5_abi::command::tir::{TirContext, merge};
use pollux_mlx5_abi::command::wq::state::{ERROR, READY, RESET};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_model::time::Clock;

use super::{
    DOWN, Pair, UP, VHCA, come, counter_set, destroy_sender, dropped, frames, gone, move_receiver,
    move_sender, query_receiver, query_sender, receiver, rig, rig_by, room, sender, through,
};
use crate::offload::{ipv4, l2, tcp, udp};
use crate::pace::set as set_rate;
use crate::receive::out_of_buffer;
use crate::rewrite::{Does, all, changes, set, summed, table_with};
use crate::rig::{Rig, frame, simple};

#[test]
fn what_comes_in_goes_out_unchanged_and_in_order() {
    use pollux_mlx5_model::ledger::Crossing;
    let (rig, _) = through();
    let before = rig.device.ledger().total();
    let mut sent: Vec<_> = (0..300).map(|index| frame(60 + index * 7 % 900, index as u8)).collect();
    sent.push([&l2(0x88b5, &[7, 9])[..], &[3; 60]].concat());
    sent.push([&l2(0x800, &[])[..], &ipv4(17, &udp(200))].concat());
    come(&rig, &sent);
    assert!(gone(&rig) == sent);
    // The machine's memory has no part in it, and nobody is told.
    let crossed = rig.device.ledger().total() - before;
    let bytes = [Crossing::ReceivePayload, Crossing::SendPayload].map(|what| crossed.of(what).bytes);
    assert_eq!((bytes, dropped(&rig), rig.device.is_pending()), ([0; 2], 0, false));
    // A tag stays, though other queues that are made so take it off.
    let tagged = [&l2(0x800, &[5])[..], &ipv4(17, &udp(64))].concat();
    come(&rig, std::slice::from_ref(&tagged));
    assert_eq!(gone(&rig), [tagged]);
}

#[test]
fn headers_are_rewritten_on_either_side() {
    let rig = rig();
    let pair = Pair::new(&rig);
    let incoming = changes(
        &rig,
        table::NIC_RX,
        &[
            set(field::DMAC_47_16, 0, 32, 0x0202_0304),
            set(field::DMAC_15_0, 0, 16, 0x0506),
            set(field::DIPV4, 0, 32, 0x0a09_0807),
        ],
    );
    let to = Some((destination::TIR, pair.tir(&rig)));
    let does = Does { actions: action::MOD_HDR, changes: incoming.expect("a list"), to, ..Does::default() };
    rig.root_of(table::NIC_RX, all(&rig, table::NIC_RX, 0, does).expect("an entry"));
    let frame = summed([&l2(0x800, &[])[..], &ipv4(6, &tcp(0x10, 77))].concat(), 34, 16);
    let mut expected = frame.clone();
    expected[..6].copy_from_slice(&[2, 2, 3, 4, 5, 6]);
    expected[30..34].copy_from_slice(&[10, 9, 8, 7]);
    let expected = summed(expected, 34, 16);
    come(&rig, std::slice::from_ref(&frame));
    assert_eq!(gone(&rig), std::slice::from_ref(&expected));
    // And by the send queue that it leaves from.
    let by_queue = |number| {
        let mut all = MatchParameters::ZERO;
        MatchMisc::SOURCE_SQN.set(MatchParameters::MISC_PARAMETERS.of_mut(&mut all), number);
        all
    };
    let outgoing = changes(&rig, table::NIC_TX, &[set(field::TCP_SPORT, 0, 16, 4000)]).expect("a list");
    let does = Does { actions: action::ALLOW | action::MOD_HDR, changes: outgoing, ..Does::default() };
    let (mask, value) = (by_queue(0xff_ffff), by_queue(pair.sq));
    let made = table_with(&rig, table::NIC_TX, 0, criteria::MISC_PARAMETERS, mask, value, does);
    rig.root_of(table::NIC_TX, made.expect("a table"));
    come(&rig, std::slice::from_ref(&frame));
    let mut again = expected;
    again[34..36].copy_from_slice(&4000_u16.to_be_bytes());
    assert_eq!(gone(&rig), [summed(again, 34, 16)]);
}

/// Frames to two addresses, each by a pair of its own.
fn two_ways(rig: &Rig, pairs: [Pair; 2]) {
    let to = |address| {
        let mut all = MatchParameters::ZERO;
        MatchHeaders::DMAC.set(MatchParameters::OUTER_HEADERS.of_mut(&mut all), address);
        all
    };
    let table = rig.table(0, 4);
    let group = rig.group(table, 0, 7, criteria::OUTER_HEADERS, to(0xff));
    for (index, pair) in pairs.into_iter().enumerate() {
        let way = [(destination::TIR, pair.tir(rig))];
        rig.entry(table, group, index as u32, to(1 + index as u64), 0, &way, &[]).expect("an entry");
    }
    rig.root(table);
}

fn addressed(to: u8, mark: u8) -> Vec<u8> {
    let mut frame = frame(100, mark);
    frame[5] = to;
    frame
}

#[test]
fn pairs_do_not_mix() {
    let rig = rig();
    let pairs = [Pair::new(&rig), Pair::new(&rig)];
    two_ways(&rig, pairs);
    let sent: Vec<_> = (0..40).map(|index| addressed(1 + index % 3 / 2, index)).collect();
    let of = |frames: &[Vec<u8>], to: u8| -> Vec<Vec<u8>> {
        frames.iter().filter(|frame| frame[5] == to).cloned().collect()
    };
    come(&rig, &sent);
    let out = gone(&rig);
    assert_eq!((of(&out, 1), of(&out, 2), out.len()), (of(&sent, 1), of(&sent, 2), 40));
    // One rests, the other goes on.
    assert_eq!(pairs[0].sender(&rig, DOWN), status::OK);
    come(&rig, &sent);
    assert_eq!(gone(&rig), of(&sent, 2));
    assert!(rig.device.is_pending());
    assert_eq!(pairs[0].sender(&rig, UP), status::OK);
    rig.settle();
    assert_eq!(gone(&rig), of(&sent, 1));
    // Queues without doorbells share none.
    assert_eq!(rig.device.violations().1, 0);
}

/// Pairs take turns where a step is too short for all that waits.
#[test]
fn a_pair_with_much_to_send_does_not_keep_another_from_it() {
    let rig = rig();
    let pairs = [Pair::new(&rig), Pair::new(&rig)];
    two_ways(&rig, pairs);
    for pair in pairs {
        assert_eq!(pair.sender(&rig, DOWN), status::OK);
    }
    let sent: Vec<_> = (0..40).map(|index| addressed(if index < 30 { 1 } else { 2 }, index)).collect();
    come(&rig, &sent);
    for pair in pairs {
        assert_eq!(pair.sender(&rig, UP), status::OK);
    }
    rig.device.step(10);
    rig.device.step(10);
    let out = gone(&rig);
    assert_eq!([1, 2].map(|to| out.iter().filter(|frame| frame[5] == to).count()), [10, 10]);
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let rig = rig();
    let set = counter_set(&rig);
    // 2 KiB, 4 packets.
    let pair = Pair::sized(&rig, 11, 2, set);
    rig.all_to(pair.tir(&rig));
    room(&rig, Some(0));
    let sent = frames(10, 100, 0);
    come(&rig, &sent);
    assert_eq!((out_of_buffer(&rig, set), dropped(&rig), gone(&rig).len()), (6, 6, 0));
    assert!(rig.device.is_pending());
    // The port keeps one for the wire, so there is room for another.
    come(&rig, &sent[4..6]);
    assert_eq!((out_of_buffer(&rig, set), dropped(&rig)), (7, 7));
    room(&rig, None);
    rig.settle();
    assert_eq!(gone(&rig), sent[..5]);
    assert_eq!((rig.device.port_counters().steering_discards, rig.device.is_pending()), (0, false));
    // Its bytes have an end too, and a packet has a quarter of them at most.
    let pair = Pair::sized(&rig, 11, 5, set);
    rig.all_to(pair.tir(&rig));
    come(&rig, &[frame(512, 1), frame(513, 2)]);
    assert_eq!((gone(&rig), out_of_buffer(&rig, set)), (vec![frame(512, 1)], 8));
    assert_eq!(pair.sender(&rig, DOWN), status::OK);
    let sent = frames(5, 500, 7);
    come(&rig, &sent);
    assert_eq!((out_of_buffer(&rig, set), dropped(&rig)), (9, 9));
    assert_eq!(pair.sender(&rig, UP), status::OK);
    rig.settle();
    assert_eq!(gone(&rig), sent[..4]);
}

#[test]
fn what_waits_goes_when_the_receive_queue_is_unbound() {
    for down in [(READY, RESET), (READY, ERROR)] {
        let (rig, pair) = through();
        room(&rig, Some(0));
        come(&rig, &frames(5, 100, 0));
        assert_eq!(pair.receiver(&rig, down), status::OK);
        let peer = if down.1 == RESET { (RESET, 0, 0) } else { (ERROR, VHCA, pair.sq) };
        assert_eq!(query_receiver(&rig, pair.rq), peer);
        room(&rig, None);
        rig.settle();
        // The port had one already.
        assert_eq!((gone(&rig), rig.device.is_pending()), (frames(1, 100, 0), false));
        // Nobody takes what comes now.
        come(&rig, &frames(3, 100, 50));
        let counted = rig.device.port_counters().steering_discards;
        assert_eq!((gone(&rig).len(), counted, dropped(&rig)), (0, 3, 0));
        if down.1 == ERROR {
            assert_eq!(pair.receiver(&rig, (ERROR, RESET)), status::OK);
        }
        assert_eq!(pair.receiver(&rig, UP), status::OK);
        come(&rig, &frames(3, 100, 90));
        assert_eq!(gone(&rig), frames(3, 100, 90));
    }
}

#[test]
fn what_waits_stays_when_the_send_queue_is_unbound() {
    for down in [(READY, RESET), (READY, ERROR)] {
        let (rig, pair) = through();
        room(&rig, Some(0));
        come(&rig, &frames(5, 100, 0));
        assert_eq!(pair.sender(&rig, down), status::OK);
        room(&rig, None);
        come(&rig, &frames(2, 100, 5));
        assert_eq!((gone(&rig), rig.device.is_pending()), (frames(1, 100, 0), true));
        if down.1 == ERROR {
            assert_eq!(pair.sender(&rig, (ERROR, RESET)), status::OK);
        }
        assert_eq!(query_sender(&rig, pair.sq), (RESET, 0, 0));
        assert_eq!(pair.sender(&rig, UP), status::OK);
        rig.settle();
        assert_eq!(gone(&rig), frames(6, 100, 1));
    }
}

#[test]
fn a_function_that_goes_down_forgets_what_waits() {
    let (rig, _) = through();
    room(&rig, Some(0));
    come(&rig, &frames(5, 100, 0));
    assert!(rig.device.is_pending());
    simple(&rig.device, op::TEARDOWN_HCA);
    room(&rig, None);
    rig.settle();
    // The port may have had one.
    assert!(gone(&rig).len() <= 1 && !rig.device.is_pending());
}

/// One that was bound to a queue that is another's now gets nothing out of it.
#[test]
fn packets_flow_only_where_each_names_the_other() {
    let (rig, pair) = through();
    let other = receiver(&rig, 0, |_| {}).expect("made");
    assert_eq!(pair.sender(&rig, DOWN), status::OK);
    // The send queue turns to another receive queue; the first is bound to it still.
    assert_eq!(move_sender(&rig, 0, pair.sq, UP, (VHCA, other)), status::OK);
    come(&rig, &frames(3, 100, 0));
    assert_eq!((gone(&rig).len(), rig.device.is_pending()), (0, true));
    assert_eq!(pair.sender(&rig, DOWN), status::OK);
    assert_eq!(pair.sender(&rig, UP), status::OK);
    rig.settle();
    assert_eq!(gone(&rig), frames(3, 100, 0));
}

/// With a TIS, as DPDK makes them, and a rate.
#[test]
fn a_send_queue_keeps_its_rate() {
    let clock = Clock::stepped();
    let rig = rig_by(clock.clone());
    assert_eq!(set_rate(&rig, 1, 8000, 1000), status::OK);
    let sq = sender(&rig, 0, |context| {
        SqContext::TIS_LST_SZ.set(context, 1);
        SqContext::TIS_NUM_0.set(context, rig.tis);
        SqContext::PACKET_PACING_RATE_LIMIT_INDEX.set(context, 1);
    });
    let pair = Pair { rq: receiver(&rig, 0, |_| {}).expect("made"), sq: sq.expect("made") };
    pair.bind(&rig);
    rig.all_to(pair.tir(&rig));
    come(&rig, &frames(4, 1000, 0));
    let mut out = gone(&rig).len();
    assert_eq!(out, 1, "1000 bytes a millisecond");
    for expected in 2..=4 {
        clock.advance(Duration::from_millis(1));
        rig.settle();
        out += gone(&rig).len();
        assert_eq!(out, expected);
    }
}

#[test]
fn segments_are_not_joined_on_their_way() {
    let (rig, pair) = through();
    rig.all_to(rig.tir(|context| {
        TirContext::INLINE_RQN.set(context, pair.rq);
        TirContext::PACKET_MERGE_MASK.set(context, merge::IPV4_LRO);
        TirContext::LRO_TIMEOUT_PERIOD_USECS.set(context, 32);
        TirContext::LRO_MAX_IP_PAYLOAD_SIZE.set(context, 16);
    }));
    let segment = |number: u32| {
        let mut segment = tcp(0x10, 200);
        segment[4..8].copy_from_slice(&(1000 + 200 * number).to_be_bytes());
        summed([&l2(0x800, &[])[..], &ipv4(6, &segment)].concat(), 34, 16)
    };
    let sent: Vec<_> = (0..4).map(segment).collect();
    come(&rig, &sent);
    assert_eq!(gone(&rig), sent);
}

/// The MTU got smaller while packets waited.
#[test]
fn what_is_too_long_for_the_port_by_now_is_lost() {
    let (rig, pair) = through();
    assert_eq!(pair.sender(&rig, DOWN), status::OK);
    come(&rig, &[frame(1500, 1), frame(100, 2)]);
    assert!(rig.device.set_mtu(1000));
    assert_eq!(pair.sender(&rig, UP), status::OK);
    rig.settle();
    assert_eq!((gone(&rig), rig.device.port_counters().sent_too_long), (vec![frame(100, 2)], 1));
}

/// Queues of both kinds are bound, unbound and ended at random, while frames come: none is sent twice or changed, and the device
/// comes to rest.
#[test]
fn anything_may_be_bound_to_anything() {
    let mut all = 0;
    for seed in 1..=20_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % below
        };
        let rig = rig();
        let rqs: Vec<_> = (0..3).map(|_| receiver(&rig, 0, |_| {}).expect("made")).collect();
        let mut sqs: Vec<_> = (0..3).map(|_| sender(&rig, 0, |_| {}).expect("made")).collect();
        let tirs: Vec<_> =
            rqs.iter().map(|rq| rig.tir(|context| TirContext::INLINE_RQN.set(context, *rq))).collect();
        // To one of the receive queues, to two, to all.
        let tables = [1, 2, 3].map(|count| {
            let table = rig.table(0, 4);
            let group = rig.group(table, 0, 0, 0, [0; 512]);
            let to: Vec<_> = tirs[..count].iter().map(|tir| (destination::TIR, *tir)).collect();
            rig.entry(table, group, 0, [0; 512], 0, &to, &[]).expect("an entry");
            table
        });
        rig.root(tables[0]);
        let mut next = 0_u32;
        for _ in 0..400 {
            let (rq, sq) = (rqs[roll(3)], sqs[roll(3)]);
            let states = [UP, UP, DOWN, (READY, ERROR), (ERROR, RESET)][roll(5)];
            match roll(8) {
                0 | 1 => {
                    move_receiver(&rig, 0, rq, states, (VHCA, sq));
                }
                2 | 3 => {
                    move_sender(&rig, 0, sq, states, (VHCA, rq));
                }
                4 => rig.root(tables[roll(3)]),
                5 if roll(8) == 0 => {
                    let at = roll(3);
                    destroy_sender(&rig, sqs[at]);
                    sqs[at] = sender(&rig, 0, |_| {}).expect("made");
                }
                _ => {
                    let mut frame = frame(100 + roll(1000), 0);
                    frame[14..18].copy_from_slice(&next.to_be_bytes());
                    next += 1;
                    rig.wire.ends().incoming.push_back(frame);
                }
            }
            room(&rig, [Some(0), Some(3), None][roll(3)]);
            rig.device.step(1 + roll(8));
        }
        room(&rig, None);
        rig.settle();
        let mut seen = std::collections::BTreeMap::new();
        for out in gone(&rig) {
            let mut expected = frame(out.len(), 0);
            expected[14..18].copy_from_slice(&out[14..18]);
            assert_eq!(out, expected, "seed {seed}");
            *seen.entry(out[14..18].to_vec()).or_insert(0) += 1;
        }
        assert!(seen.values().all(|times| *times <= 3), "seed {seed}");
        all += seen.len();
    }
    assert!(all > 200, "{all} frames went through: hardly any queues were bound");
}
