//! What goes wrong, at both ends, with the syndrome that says so.

use pollux_mlx5_abi::command::mkey::MkeyContext;
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::qp::context::{service, state};
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::Atomic;
use pollux_wire::roce::operation;
use zerocopy::IntoBytes;

use super::fuzz::seal;
use super::node::{Ends, Node, Pair, Plan, data, remote};
use crate::rig::number;

/// Memory on both sides and keys for it.
struct Memory {
    here: u64,
    there: u64,
    key: u32,
}

fn set_up(plan: Plan) -> (Ends, Pair, Pair, Memory) {
    let ends = Ends::new();
    let (a, b) = ends.connected(plan);
    let (here, there) = (ends.a.rig.room(0x8000), ends.b.rig.room(0x8000));
    let key = ends.b.key(there, 0x4000, |_| {});
    (ends, a, b, Memory { here, there, key })
}

fn write(memory: &Memory, ends: &Ends, key: u32, at: u64, bytes: u32) -> Vec<u8> {
    let mut body = remote(key, at);
    body.extend(data(ends.a.rig.lkey, memory.here, bytes));
    body
}

#[track_caller]
fn sender(ends: &Ends, a: &mut Pair, code: u8) {
    let error = a.send_cq.error(&ends.a.rig);
    assert_eq!(error.syndrome().code, code, "{}", error.syndrome());
    assert_eq!(error.qpn(), a.number);
}

#[track_caller]
fn receiver(ends: &Ends, b: &mut Pair, code: u8) {
    let error = b.receive_cq.error(&ends.b.rig);
    assert_eq!(error.syndrome().code, code, "{}", error.syndrome());
}

#[test]
fn a_message_longer_than_the_buffer() {
    let (ends, mut a, mut b, memory) = set_up(Plan::default());
    b.receive(&ends.b, ends.b.rig.lkey, memory.there, 1500);
    b.receive(&ends.b, ends.b.rig.lkey, memory.there, 1500);
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, memory.here, 2000));
    ends.steps(10);
    sender(&ends, &mut a, S::REMOTE_INVAL_REQ_ERR);
    receiver(&ends, &mut b, S::LOCAL_LENGTH_ERR);
    receiver(&ends, &mut b, S::WR_FLUSH_ERR);
    assert_eq!((ends.a.state(a.number), ends.b.state(b.number)), (state::ERR, state::ERR));
}

#[test]
fn a_receive_that_memory_refuses() {
    let (ends, mut a, mut b, memory) = set_up(Plan::default());
    b.receive(&ends.b, ends.b.rig.lkey ^ 1, memory.there, 4096);
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, memory.here, 100));
    ends.steps(10);
    sender(&ends, &mut a, S::REMOTE_OP_ERR);
    receiver(&ends, &mut b, S::LOCAL_PROT_ERR);
}

#[test]
fn what_local_memory_refuses() {
    for read in [false, true] {
        let (ends, mut a, b, memory) = set_up(Plan::default());
        let mut body = remote(memory.key, memory.there);
        body.extend(data(ends.a.rig.lkey ^ 1, memory.here, 100));
        // What comes before is not touched by it.
        a.send(&ends.a, send::RDMA_WRITE, &write(&memory, &ends, memory.key, memory.there, 3000));
        a.send(&ends.a, if read { send::RDMA_READ } else { send::RDMA_WRITE }, &body);
        a.send(&ends.a, send::RDMA_WRITE, &write(&memory, &ends, memory.key, memory.there, 10));
        ends.steps(20);
        assert_eq!(a.done(&ends.a).send_opcode(), send::RDMA_WRITE);
        sender(&ends, &mut a, S::LOCAL_PROT_ERR);
        sender(&ends, &mut a, S::WR_FLUSH_ERR);
        assert_eq!(ends.b.state(b.number), state::RTS, "the peer knows nothing of it");
    }
}

#[test]
fn an_entry_that_the_queue_pair_cannot_work_on() {
    for (opcode, service) in
        [(send::TSO, service::RC), (send::RDMA_READ, service::UC), (send::RDMA_WRITE, service::UD)]
    {
        let (ends, mut a, _b, memory) = set_up(Plan { service, ..Plan::default() });
        a.send(&ends.a, opcode, &write(&memory, &ends, memory.key, memory.there, 8));
        ends.steps(5);
        sender(&ends, &mut a, S::LOCAL_QP_OP_ERR);
        let after = if service == service::RC { state::ERR } else { state::SQER };
        assert_eq!(ends.a.state(a.number), after);
    }
}

#[test]
fn a_send_queue_that_failed_goes_on() {
    let (ends, mut a, mut b, memory) = set_up(Plan { service: service::UC, ..Plan::default() });
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey ^ 1, memory.here, 8));
    ends.steps(5);
    sender(&ends, &mut a, S::LOCAL_PROT_ERR);
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, memory.here, 8));
    ends.steps(5);
    sender(&ends, &mut a, S::WR_FLUSH_ERR);
    ends.a.transit(op::SQERR2RTS_QP, a.number, 0, |_| {}).expect("from SQER");
    b.receive(&ends.b, ends.b.rig.lkey, memory.there, 4096);
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, memory.here, 8));
    ends.steps(5);
    a.done(&ends.a);
    b.came(&ends.b);
}

/// A key that is right in all but its domain.
fn of_another_domain(node: &Node, at: u64) -> u32 {
    let domain = number(&node.rig.must(op::ALLOC_PD, 0, &mut [0; 16], 16));
    node.key(at, 64, |key| MkeyContext::PD.set(key, domain))
}

#[test]
fn a_key_of_another_domain_is_refused_here_too() {
    let (ends, mut a, _b, memory) = set_up(Plan::default());
    let key = of_another_domain(&ends.a, memory.here);
    a.send(&ends.a, send::SEND, &data(key, memory.here, 8));
    ends.steps(5);
    sender(&ends, &mut a, S::LOCAL_PROT_ERR);
}

#[test]
fn an_answer_that_is_none() {
    let (ends, frames) = Ends::watched();
    let plan = Plan::default();
    let (here, there) = (ends.a.rig.room(64), ends.b.rig.room(64));
    let key = ends.b.key(there, 64, |_| {});
    let mut body = remote(key, there);
    body.extend(data(ends.a.rig.lkey, here, 8));
    let (mut a, _b) = ends.connected(plan);
    a.send(&ends.a, send::RDMA_READ, &body);
    ends.steps(5);
    a.done(&ends.a);
    // What answered this read, made an atomic's answer to the next one.
    let mut answer = frames.lock().expect("whole").last().expect("an answer").clone();
    a.send(&ends.a, send::RDMA_READ, &body);
    ends.a.rig.device.step(64);
    answer[42] = operation::ATOMIC_ACKNOWLEDGE;
    answer[51..54].copy_from_slice(&(plan.psn + 1).to_be_bytes()[1..]);
    seal(&mut answer);
    ends.inject(answer);
    ends.a.rig.device.step(64);
    ends.a.rig.device.step(64);
    sender(&ends, &mut a, S::BAD_RESP_ERR);
}

/// Requests that the peer's memory refuses: by key, by bounds, by right of the key, by right of the queue pair, by domain.
#[test]
fn what_remote_memory_refuses() {
    for case in 0..10 {
        let rights = [case != 6, case != 7, case != 8];
        let (ends, mut a, mut b, memory) = set_up(Plan { rights, ..Plan::default() });
        b.receive(&ends.b, ends.b.rig.lkey, memory.there, 64);
        let (key, there) = (memory.key, memory.there);
        let (opcode, key, at) = match case {
            0 => (send::RDMA_WRITE, key ^ 1, there),
            1 => (send::RDMA_WRITE, key, there + 0x4000 - 7),
            2 => (send::RDMA_WRITE, key, there - 1),
            3 => (send::RDMA_READ, ends.b.key(there, 64, |key| MkeyContext::RR.set(key, 0)), there),
            4 => (send::RDMA_WRITE, ends.b.key(there, 64, |key| MkeyContext::RW.set(key, 0)), there),
            5 => (send::ATOMIC_FA, ends.b.key(there, 64, |key| MkeyContext::A.set(key, 0)), there),
            6 => (send::RDMA_WRITE, key, there),
            7 => (send::RDMA_READ, key, there),
            9 => (send::RDMA_WRITE, of_another_domain(&ends.b, there), there),
            _ => (send::ATOMIC_FA, key, there),
        };
        let mut body = remote(key, at);
        if opcode == send::ATOMIC_FA {
            body.extend(Atomic::default().as_bytes());
        }
        body.extend(data(ends.a.rig.lkey, memory.here, 8));
        a.send(&ends.a, opcode, &body);
        ends.steps(10);
        sender(&ends, &mut a, S::REMOTE_ACCESS_ERR);
        receiver(&ends, &mut b, S::WR_FLUSH_ERR);
        assert_eq!(ends.b.rig.read(there, 8), [0; 8], "case {case}");
        let told = ends
            .b
            .events()
            .into_iter()
            .any(|(kind, number)| (kind, number) == (event::WQ_ACCESS_ERROR, b.number));
        assert!(told, "case {case}");
    }
}

#[test]
fn an_atomic_off_its_place_is_no_request() {
    let (ends, mut a, _b, memory) = set_up(Plan::default());
    let mut body = remote(memory.key, memory.there + 4);
    body.extend(Atomic::default().as_bytes());
    body.extend(data(ends.a.rig.lkey, memory.here, 8));
    a.send(&ends.a, send::ATOMIC_FA, &body);
    ends.steps(10);
    sender(&ends, &mut a, S::REMOTE_INVAL_REQ_ERR);
}

#[test]
fn memory_that_goes_while_it_is_written() {
    let (ends, mut a, mut b, memory) = set_up(Plan { mtu: 1, ..Plan::default() });
    b.receive(&ends.b, ends.b.rig.lkey, memory.there, 64);
    let key = ends.b.key(memory.there, 0x8000, |_| {});
    // A step sends 64 packets; the last one, which takes the receive entry, finds no key any more.
    a.send(&ends.a, send::RDMA_WRITE_IMM, &write(&memory, &ends, key, memory.there, 64 * 256 + 1));
    ends.step();
    ends.b.destroy_key(key);
    ends.steps(10);
    sender(&ends, &mut a, S::REMOTE_ACCESS_ERR);
    receiver(&ends, &mut b, S::LOCAL_ACCESS_ERR);
}

#[test]
fn a_peer_that_is_gone() {
    let (ends, mut a, b, memory) = set_up(Plan { retries: 2, ..Plan::default() });
    ends.b.end(op::DESTROY_QP, b.number).expect("there");
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, memory.here, 100));
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, memory.here, 100));
    // Three times 131 us.
    ends.steps(380);
    assert!(a.send_cq.poll(&ends.a.rig).is_none());
    ends.steps(40);
    sender(&ends, &mut a, S::TRANSPORT_RETRY_EXC_ERR);
    sender(&ends, &mut a, S::WR_FLUSH_ERR);
}

#[test]
fn a_peer_that_posts_nothing() {
    let (ends, mut a, mut b, memory) = set_up(Plan { rnr_retries: 2, rnr_timer: 5, ..Plan::default() });
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, memory.here, 100));
    // Twice 60 us, in which nothing is late.
    ends.steps(110);
    assert!(a.send_cq.poll(&ends.a.rig).is_none());
    ends.steps(40);
    sender(&ends, &mut a, S::RNR_RETRY_EXC_ERR);
    let (ends2, mut a2, mut b2, memory2) = set_up(Plan { rnr_timer: 5, ..Plan::default() });
    a2.send(&ends2.a, send::SEND, &data(ends2.a.rig.lkey, memory2.here, 100));
    ends2.steps(1000);
    b2.receive(&ends2.b, ends2.b.rig.lkey, memory2.there, 4096);
    ends2.steps(200);
    a2.done(&ends2.a);
    b2.came(&ends2.b);
    assert!(b.receive_cq.poll(&ends.b.rig).is_none());
}

#[test]
fn completions_that_find_no_room_end_the_queue_pair() {
    let (ends, mut a, _b, memory) = set_up(Plan::default());
    for _ in 0..600 {
        if ends.a.state(a.number) != state::RTS {
            break;
        }
        a.send(&ends.a, send::RDMA_WRITE, &write(&memory, &ends, memory.key, memory.there, 1));
        ends.steps(4);
    }
    assert_eq!(ends.a.state(a.number), state::ERR);
    let kinds: Vec<u8> = ends.a.events().into_iter().map(|(kind, _)| kind).collect();
    assert!(kinds.contains(&event::CQ_ERROR) && kinds.contains(&event::WQ_CATAS_ERROR), "{kinds:?}");
}
