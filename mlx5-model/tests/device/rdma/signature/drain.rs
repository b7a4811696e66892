//! Send queues that are drained when a signature does not fit, as rdma-core's signature pipelining uses them: `providers/mlx5/mlx5.c`,
//! `mlx5_modify_qp_drain_sigerr`; `providers/mlx5/qp.c`, `mlx5dv_qp_cancel_posted_send_wrs`; `tests/test_mlx5_mkey.py`,
//! `test_mkey_sig_pipelining_bad`.

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::qp::context::{QpContext, optional, state};
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::opcode::send as opcode;
use pollux_mlx5_abi::wqe::{Completion, Fence};

use super::{CRC32, Signed, Wanted, ends, error, text};
use crate::rdma::node::{Ends, Pair, Plan, data, remote};

/// Two ends, the first of which drains.
fn draining(ends: &Ends) -> (Pair, Pair) {
    let plan = Plan::default();
    let (a, b) = (ends.a.pair(plan), ends.b.pair(plan));
    ends.a.to_init(&a);
    let drains = |context: &mut [u8; QpContext::BYTES]| QpContext::DRAIN_SIGERR.set(context, 1);
    ends.a.transit(op::INIT2INIT_QP, a.number, optional::DRAIN_SIGERR, drains).expect("it can");
    assert!(QpContext::DRAIN_SIGERR.is_set(&ends.a.query(a.number)));
    ends.a.to_receive(&a, &ends.b, b.number, &plan, |_| {});
    ends.a.to_send(&a);
    ends.b.connect(&b, &ends.a, a.number, &plan);
    (a, b)
}

/// Writes data whose signature is wrong or not, and says so behind a fence, the entry stored to the register itself.
fn write_and_tell(ends: &Ends, a: &mut Pair, b: &mut Pair, good: bool) {
    let mut memory = CRC32.signed(&text(512));
    memory[9] ^= u8::from(!good);
    let (here, there) = (ends.a.rig.room(memory.len()), ends.b.rig.room(512));
    ends.a.rig.write(here, &memory);
    let key = Signed::new(&ends.a);
    key.lay(ends, &ends.a, a, here, memory.len(), Wanted { memory: Some(CRC32), ..Wanted::default() });
    b.receive(&ends.b, ends.b.rig.lkey, there, 16);
    let body = [remote(ends.b.key(there, 16384, |_| {}), there), key.at(0, 512)].concat();
    a.post(&ends.a, opcode::RDMA_WRITE, Completion::OnError as u8 | Fence::InitiatorSmall as u8, 0, &body);
    let flags = Completion::Always as u8 | Fence::SmallAndFence as u8;
    let slot = u64::from(a.sq.next) & ((1 << a.sq.log) - 1);
    a.post(&ends.a, opcode::SEND, flags, 0, &data(ends.a.rig.lkey, here, 16));
    a.sq.write_record(&ends.a.rig);
    let entry = ends.a.rig.read(a.sq.ring + slot * 64, 64);
    // The buffers take turns.
    ends.a.rig.store(uar::BLUE_FLAME + uar::BLUE_FLAME_BYTES, &entry);
}

#[test]
fn what_is_good_goes_on() {
    let ends = ends();
    let (mut a, mut b) = draining(&ends);
    write_and_tell(&ends, &mut a, &mut b, true);
    ends.steps(10);
    assert_eq!(a.done(&ends.a).send_opcode(), opcode::SEND);
    b.came(&ends.b);
    assert_eq!(ends.a.state(a.number), state::RTS);
}

#[test]
fn what_is_bad_stops_the_queue_until_software_lets_it_go_on() {
    // More is posted while the queue waits, or when it goes on: the device has the entry that came by the register, still.
    for early in [true, false] {
        what_is_bad_stops_the_queue(early);
    }
}

fn what_is_bad_stops_the_queue(early: bool) {
    let ends = ends();
    let (mut a, mut b) = draining(&ends);
    ends.a.events();
    write_and_tell(&ends, &mut a, &mut b, false);
    ends.steps(10);
    assert!(ends.a.events().contains(&(event::SQ_DRAINED, a.number)));
    error(&mut a.send_cq, &ends.a);
    assert!(a.send_cq.poll(&ends.a.rig).is_none() && b.receive_cq.poll(&ends.b.rig).is_none());
    let context = ends.a.query(a.number);
    assert_eq!(QpContext::STATE.get(&context), state::SQD);
    // The entry that waits is told, and made to do nothing; another follows.
    let waits = QpContext::HW_SQ_WQEBB_COUNTER.get(&context);
    assert_eq!(waits + 1, u32::from(a.sq.next));
    let at = a.sq.ring + u64::from(waits & ((1 << a.sq.log) - 1)) * 64;
    let head = ends.a.rig.read(at, 4);
    assert_eq!(head[3], opcode::SEND);
    ends.a.rig.write(at, &[0, head[1], head[2], opcode::NOP]);
    let body = data(ends.a.rig.lkey, ends.a.rig.room(16), 16);
    if early {
        a.send(&ends.a, opcode::SEND, &body);
    }
    ends.steps(5);
    assert!(a.send_cq.poll(&ends.a.rig).is_none());
    ends.a.transit(op::SQD_RTS_QP, a.number, 0, |_| {}).expect("from SQD");
    ends.steps(10);
    assert_eq!(a.done(&ends.a).send_opcode(), opcode::NOP);
    if !early {
        a.send(&ends.a, opcode::SEND, &body);
        ends.steps(10);
    }
    assert_eq!(a.done(&ends.a).send_opcode(), opcode::SEND);
    b.came(&ends.b);
    assert!(b.receive_cq.poll(&ends.b.rig).is_none());
}

#[test]
fn others_go_on() {
    let ends = ends();
    let (mut a, mut b) = ends.connected(Plan::default());
    write_and_tell(&ends, &mut a, &mut b, false);
    ends.steps(10);
    error(&mut a.send_cq, &ends.a);
    assert_eq!(a.done(&ends.a).send_opcode(), opcode::SEND);
    b.came(&ends.b);
    assert_eq!(ends.a.state(a.number), state::RTS);
}
