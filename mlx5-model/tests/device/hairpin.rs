//! Queues whose frames go out again, made and bound as Linux (`drivers/net/ethernet/mellanox/mlx5/core/transobj.c`) and DPDK
//! (`drivers/net/mlx5/mlx5_devx.c`, `mlx5_trigger.c`) do it.

mod bind;
mod forward;

use pollux_mlx5_abi::command::counter::AllocQCounterOut;
use pollux_mlx5_abi::command::environment::{QueryVnicEnvIn, QueryVnicEnvOut, VnicEnvironment};
use pollux_mlx5_abi::command::rq::{CreateRqIn, ModifyRqIn, QueryRqOut, RqContext};
use pollux_mlx5_abi::command::sq::{CreateSqIn, DestroySqIn, ModifySqIn, QuerySqOut, SqContext};
use pollux_mlx5_abi::command::tir::TirContext;
use pollux_mlx5_abi::command::wq::WorkQueue;
use pollux_mlx5_abi::command::wq::state::{READY, RESET};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::{DeviceConfig, Traits};

use super::rig::{Rig, frame, number};

/// The function's number.
const VHCA: u32 = 1;

fn rig() -> Rig {
    rig_by(Clock::machine())
}

fn rig_by(clock: Clock) -> Rig {
    let traits = Traits { hairpin: true, ..Traits::default() };
    Rig::with(DeviceConfig { traits, clock, ..DeviceConfig::default() })
}

fn sizes(ring: &mut [u8; WorkQueue::BYTES], log_bytes: u32, log_packets: u32) {
    WorkQueue::LOG_HAIRPIN_DATA_SZ.set(ring, log_bytes);
    WorkQueue::LOG_HAIRPIN_NUM_PACKETS.set(ring, log_packets);
}

fn receiver(rig: &Rig, uid: u16, change: impl FnOnce(&mut [u8; RqContext::BYTES])) -> Result<u32, u8> {
    let mut input = CreateRqIn::ZERO;
    let context = CreateRqIn::CTX.of_mut(&mut input);
    RqContext::HAIRPIN.set(context, 1);
    sizes(RqContext::WQ.of_mut(context), 16, 10);
    change(context);
    let made = rig.command_as(uid, op::CREATE_RQ, &mut input, 16);
    made.map(|out| number(&out)).map_err(|refused| refused.status)
}

fn sender(rig: &Rig, uid: u16, change: impl FnOnce(&mut [u8; SqContext::BYTES])) -> Result<u32, u8> {
    let mut input = CreateSqIn::ZERO;
    let context = CreateSqIn::CTX.of_mut(&mut input);
    SqContext::HAIRPIN.set(context, 1);
    sizes(SqContext::WQ.of_mut(context), 16, 10);
    change(context);
    let made = rig.command_as(uid, op::CREATE_SQ, &mut input, 16);
    made.map(|out| number(&out)).map_err(|refused| refused.status)
}

/// A receive queue from one state to another, with a peer where it gets ready.
fn move_receiver(rig: &Rig, uid: u16, rq: u32, (from, to): (u32, u32), (vhca, sq): (u32, u32)) -> u8 {
    let mut input = ModifyRqIn::ZERO;
    ModifyRqIn::RQN.set(&mut input, rq);
    ModifyRqIn::RQ_STATE.set(&mut input, from);
    let context = ModifyRqIn::CTX.of_mut(&mut input);
    RqContext::STATE.set(context, to);
    RqContext::HAIRPIN_PEER_SQ.set(context, sq);
    RqContext::HAIRPIN_PEER_VHCA.set(context, vhca);
    rig.command_as(uid, op::MODIFY_RQ, &mut input, 16).map_or_else(|refused| refused.status, |_| status::OK)
}

fn move_sender(rig: &Rig, uid: u16, sq: u32, (from, to): (u32, u32), (vhca, rq): (u32, u32)) -> u8 {
    let mut input = ModifySqIn::ZERO;
    ModifySqIn::SQN.set(&mut input, sq);
    ModifySqIn::SQ_STATE.set(&mut input, from);
    let context = ModifySqIn::CTX.of_mut(&mut input);
    SqContext::STATE.set(context, to);
    SqContext::HAIRPIN_PEER_RQ.set(context, rq);
    SqContext::HAIRPIN_PEER_VHCA.set(context, vhca);
    rig.command_as(uid, op::MODIFY_SQ, &mut input, 16).map_or_else(|refused| refused.status, |_| status::OK)
}

const UP: (u32, u32) = (RESET, READY);
const DOWN: (u32, u32) = (READY, RESET);
const NOBODY: (u32, u32) = (0, 0);

/// Two queues that are bound.
#[derive(Clone, Copy, Debug)]
struct Pair {
    rq: u32,
    sq: u32,
}

impl Pair {
    fn unbound(rig: &Rig) -> Self {
        Self { rq: receiver(rig, 0, |_| {}).expect("made"), sq: sender(rig, 0, |_| {}).expect("made") }
    }

    fn new(rig: &Rig) -> Self {
        let pair = Self::unbound(rig);
        pair.bind(rig);
        pair
    }

    /// With a buffer of another size, and a set of counters.
    fn sized(rig: &Rig, log_bytes: u32, log_packets: u32, set: u32) -> Self {
        let rq = receiver(rig, 0, |context| {
            RqContext::COUNTER_SET_ID.set(context, set);
            sizes(RqContext::WQ.of_mut(context), log_bytes, log_packets);
        });
        let pair = Self { rq: rq.expect("made"), sq: sender(rig, 0, |_| {}).expect("made") };
        pair.bind(rig);
        pair
    }

    fn bind(self, rig: &Rig) {
        assert_eq!([self.sender(rig, UP), self.receiver(rig, UP)], [status::OK; 2]);
    }

    fn sender(self, rig: &Rig, states: (u32, u32)) -> u8 {
        move_sender(rig, 0, self.sq, states, if states == UP { (VHCA, self.rq) } else { NOBODY })
    }

    fn receiver(self, rig: &Rig, states: (u32, u32)) -> u8 {
        move_receiver(rig, 0, self.rq, states, if states == UP { (VHCA, self.sq) } else { NOBODY })
    }

    fn tir(self, rig: &Rig) -> u32 {
        rig.tir(|context| TirContext::INLINE_RQN.set(context, self.rq))
    }
}

/// A pair that everything goes through.
fn through() -> (Rig, Pair) {
    let rig = rig();
    let pair = Pair::new(&rig);
    rig.all_to(pair.tir(&rig));
    (rig, pair)
}

fn come(rig: &Rig, frames: &[Vec<u8>]) {
    rig.wire.ends().incoming.extend(frames.iter().cloned());
    rig.settle();
}

/// What went out since last asked.
fn gone(rig: &Rig) -> Vec<Vec<u8>> {
    std::mem::take(&mut rig.wire.ends().sent)
}

/// The wire takes so many frames more, or any number; the port keeps one beside.
fn room(rig: &Rig, frames: Option<usize>) {
    rig.wire.ends().room = frames;
}

fn frames(count: usize, bytes: usize, first: u8) -> Vec<Vec<u8>> {
    (0..count).map(|index| frame(bytes, first.wrapping_add(index as u8))).collect()
}

fn query_receiver(rig: &Rig, rq: u32) -> (u32, u32, u32) {
    let mut query = [0; 16];
    query[8..12].copy_from_slice(&rq.to_be_bytes());
    let out = rig.must(op::QUERY_RQ, 0, &mut query, QueryRqOut::BYTES);
    let context = QueryRqOut::RQ_CONTEXT.get(out.first_chunk().expect("an answer"));
    let peer = (RqContext::HAIRPIN_PEER_VHCA.get(&context), RqContext::HAIRPIN_PEER_SQ.get(&context));
    (RqContext::STATE.get(&context), peer.0, peer.1)
}

fn query_sender(rig: &Rig, sq: u32) -> (u32, u32, u32) {
    let mut query = [0; 16];
    query[8..12].copy_from_slice(&sq.to_be_bytes());
    let out = rig.must(op::QUERY_SQ, 0, &mut query, QuerySqOut::BYTES);
    let context = QuerySqOut::SQ_CONTEXT.get(out.first_chunk().expect("an answer"));
    let peer = (SqContext::HAIRPIN_PEER_VHCA.get(&context), SqContext::HAIRPIN_PEER_RQ.get(&context));
    (SqContext::STATE.get(&context), peer.0, peer.1)
}

fn destroy_sender(rig: &Rig, sq: u32) {
    let mut input = DestroySqIn::ZERO;
    DestroySqIn::SQN.set(&mut input, sq);
    rig.must(op::DESTROY_SQ, 0, &mut input, 16);
}

fn dropped(rig: &Rig) -> u32 {
    let out = rig.must(op::QUERY_VNIC_ENV, 0, &mut QueryVnicEnvIn::ZERO.clone(), QueryVnicEnvOut::BYTES);
    let counters = QueryVnicEnvOut::VPORT_ENV.get(out.first_chunk().expect("an answer"));
    VnicEnvironment::INTERNAL_RQ_OUT_OF_BUFFER.get(&counters)
}

fn counter_set(rig: &Rig) -> u32 {
    let out = rig.must(op::ALLOC_Q_COUNTER, 0, &mut [0; 16], AllocQCounterOut::BYTES);
    AllocQCounterOut::COUNTER_SET_ID.get(out.first_chunk().expect("an answer"))
}
