//! Send queues that are held to a rate.

use std::time::Duration;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::QosCaps;
use pollux_mlx5_abi::caps::{self, kind};
use pollux_mlx5_abi::command::rate::{RateContext, SetPpRateLimitIn};
use pollux_mlx5_abi::command::sq::{ModifySqIn, QuerySqOut, SqContext, modify};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::Completion;
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::config::Profile;
use pollux_mlx5_model::time::Clock;

use super::rig::{Rig, Sq, block, frame};
use super::send::plain;

pub(super) fn set(rig: &Rig, index: u32, kbps: u32, burst: u32) -> u8 {
    let mut input = SetPpRateLimitIn::ZERO;
    SetPpRateLimitIn::RATE_LIMIT_INDEX.set(&mut input, index);
    let context = SetPpRateLimitIn::CTX.of_mut(&mut input);
    RateContext::RATE_LIMIT.set(context, kbps);
    RateContext::BURST_UPPER_BOUND.set(context, burst);
    rig.command(op::SET_PP_RATE_LIMIT, 0, &mut input, 16).map_or_else(|no| no.status, |_| status::OK)
}

/// As Linux's `mlx5e_modify_sq` does it, on a queue that works.
fn hold(rig: &Rig, sq: &Sq, index: u32) -> u8 {
    let mut input = ModifySqIn::ZERO;
    ModifySqIn::SQN.set(&mut input, sq.number);
    ModifySqIn::SQ_STATE.set(&mut input, 1);
    ModifySqIn::MODIFY_BITMASK.set(&mut input, modify::RATE_LIMIT_INDEX);
    let context = ModifySqIn::CTX.of_mut(&mut input);
    SqContext::STATE.set(context, 1);
    SqContext::PACKET_PACING_RATE_LIMIT_INDEX.set(context, index);
    rig.command(op::MODIFY_SQ, 0, &mut input, 16).map_or_else(|no| no.status, |_| status::OK)
}

fn post(rig: &Rig, sq: &mut Sq, count: usize) {
    for _ in 0..count {
        sq.write(rig, send::SEND, &plain(rig, &frame(1000, 1)), Completion::Always);
    }
    sq.ring(rig);
    rig.settle();
}

fn stepped() -> (Clock, Rig) {
    let clock = Clock::stepped();
    let rig = Rig::with(DeviceConfig { clock: clock.clone(), ..DeviceConfig::default() });
    (clock, rig)
}

#[test]
fn the_card_says_which_rates_it_keeps() {
    for profile in Profile::ALL {
        let rig = Rig::with(DeviceConfig { traits: profile.traits(), ..DeviceConfig::default() });
        let block = |kind| block(&rig.device, kind, caps::NOW);
        let qos = block(kind::QOS);
        assert!(GeneralCaps::QOS.is_set(&block(kind::GENERAL)) && QosCaps::PACKET_PACING.is_set(&qos));
        let (most, least) =
            (QosCaps::PACKET_PACING_MAX_RATE.get(&qos), QosCaps::PACKET_PACING_MIN_RATE.get(&qos));
        assert_eq!((most, least), (profile.speed_mbps() * 1000, 1));
        let last = QosCaps::PACKET_PACING_RATE_TABLE_SIZE.get(&qos) - 1;
        assert_eq!([set(&rig, last, most, 0), set(&rig, last, least, 0)], [status::OK; 2]);
        // Index 0 is no limit.
        for (index, kbps) in [(0, 1000), (last + 1, 1000), (1, most + 1)] {
            assert_eq!(set(&rig, index, kbps, 0), status::BAD_PARAM_ERR, "{index} {kbps}");
        }
    }
}

#[test]
fn a_queue_keeps_its_rate() {
    let (clock, rig) = stepped();
    let cq = rig.cq(8);
    let mut sq = rig.sq(8, &cq);
    let sent = || rig.wire.ends().sent.len();
    let after = |us| {
        clock.advance(Duration::from_micros(us));
        rig.settle();
        sent()
    };
    post(&rig, &mut sq, 5);
    assert_eq!(sent(), 5, "all at once");
    assert_eq!(hold(&rig, &sq, 1), status::BAD_PARAM_ERR, "no such rate yet");
    // 1000 bytes a millisecond.
    assert_eq!([set(&rig, 1, 8000, 1000), hold(&rig, &sq, 1)], [status::OK; 2]);
    let mut query = [0; 16];
    query[8..12].copy_from_slice(&sq.number.to_be_bytes());
    let out = rig.must(op::QUERY_SQ, 0, &mut query, 272);
    let context = QuerySqOut::SQ_CONTEXT.get(out.first_chunk().expect("an answer"));
    assert_eq!(SqContext::PACKET_PACING_RATE_LIMIT_INDEX.get(&context), 1);
    post(&rig, &mut sq, 20);
    assert_eq!(sent(), 6);
    assert_eq!((after(999), after(1), after(1000)), (6, 7, 8));
    // Ten times as fast: queues follow their entry of the table.
    assert_eq!(set(&rig, 1, 80_000, 1000), status::OK);
    assert_eq!((after(0), after(100), after(99), after(1)), (9, 10, 10, 11));
    // What it missed it makes up for by a burst at most: one frame of this queue's.
    assert_eq!(after(1000), 13);
    assert_eq!(hold(&rig, &sq, 0), status::OK);
    assert_eq!(after(0), 25, "no limit any more");
    // The rate taken out of the table is no limit either.
    assert_eq!([set(&rig, 2, 8, 0), hold(&rig, &sq, 2), set(&rig, 2, 0, 0)], [status::OK; 3]);
    post(&rig, &mut sq, 5);
    assert_eq!(sent(), 30);
}

#[test]
fn a_queue_is_made_with_a_rate_and_others_go_on() {
    let (clock, rig) = stepped();
    let cq = rig.cq(8);
    let index = SqContext::PACKET_PACING_RATE_LIMIT_INDEX;
    let mut refused = rig.sq_input(4, &cq, rig.room(1024), rig.room(64), |context| index.set(context, 5));
    let no = rig.command(op::CREATE_SQ, 0, &mut refused, 16).expect_err("no such rate");
    assert_eq!(no.status, status::BAD_PARAM_ERR);
    assert_eq!(set(&rig, 5, 8000, 1000), status::OK);
    let mut slow = rig.sq_with(6, &cq, |context| index.set(context, 5));
    let mut fast = rig.sq(6, &cq);
    post(&rig, &mut slow, 3);
    post(&rig, &mut fast, 4);
    assert_eq!(rig.wire.ends().sent.len(), 5, "one of the slow queue's and four of the other's");
    clock.advance(Duration::from_millis(1));
    rig.settle();
    assert_eq!(rig.wire.ends().sent.len(), 6);
}
