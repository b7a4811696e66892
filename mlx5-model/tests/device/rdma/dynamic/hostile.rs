//! What breaks off, and what nobody in his right mind sends.

use pollux_mlx5_abi::command::dct::{DctContext, state as target_state};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::qp::context::state;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_model::wire::Impairments;

use super::{KEY, Target, ends, initiator, joined, named, post, streams, to};
use crate::rdma::fuzz::seal;
use crate::rdma::node::{Ends, Plan, data, remote};
use crate::rdma::paging::{empty, pages, question};
use crate::rdma::seeds::Chance;

/// In frames over IPv4: the BTH's opcode, and the header of a dynamic connection.
const OPCODE: usize = 42;
const HEADER: usize = 54;

#[test]
fn a_message_that_breaks_off_gives_its_receive_entry_back() {
    let (ends, frames) = Ends::watched_with(|traits| traits.dynamic_connections = true);
    let mut target = Target::new(&ends.b);
    let (here, there) = (ends.a.rig.room(0x1000), ends.b.rig.room(0x4000));
    let mut a = initiator(&ends, Plan::default(), |_| {});
    (0..5).for_each(|_| target.shared.post(&ends.b, there, 0x1000));
    let vector = to(&ends.b, target.number, KEY);
    a.send(&ends.a, send::SEND, &joined(&[vector.clone(), data(ends.a.rig.lkey, here, 3000)]));
    ends.steps(20);
    a.done(&ends.a);
    assert!(target.cq.poll(&ends.b.rig).is_some());
    // The first packet of later connections, and no other.
    let seen = frames.lock().expect("whole").clone();
    let first = seen.iter().find(|frame| frame[OPCODE] == 0xc0).expect("the first packet").clone();
    let begin = |session: u64, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = first.clone();
        frame[HEADER + 8..HEADER + 16].copy_from_slice(&session.to_be_bytes());
        change(&mut frame);
        seal(&mut frame);
        ends.inject(frame);
        ends.steps(5);
    };
    let flushed = |target: &mut Target| {
        assert_eq!(target.cq.error(&ends.b.rig).syndrome().code, S::WR_FLUSH_ERR);
        assert!(target.cq.poll(&ends.b.rig).is_none());
    };
    begin(u64::MAX - 2, &|_| {});
    assert!(target.cq.poll(&ends.b.rig).is_none(), "its entry is held");
    // Another connection of the same initiator takes its place.
    begin(u64::MAX - 1, &|_| {});
    flushed(&mut target);
    // What cannot follow ends the connection.
    begin(u64::MAX - 1, &|frame| {
        frame[OPCODE] = 0xc6;
        frame[OPCODE + 11] = frame[OPCODE + 11].wrapping_add(1);
    });
    flushed(&mut target);
    // Then it takes nothing any more, though it were whole and its turn.
    begin(u64::MAX - 1, &|frame| {
        frame[OPCODE] = 0xc4;
        frame[OPCODE + 11] = frame[OPCODE + 11].wrapping_add(1);
    });
    assert!(target.cq.poll(&ends.b.rig).is_none());
    begin(u64::MAX, &|_| {});
    assert!(target.cq.poll(&ends.b.rig).is_none());
    // Whoever comes with an older one is not heard.
    a.send(&ends.a, send::SEND, &joined(&[vector, data(ends.a.rig.lkey, here, 30)]));
    ends.steps(5);
    assert!(target.cq.poll(&ends.b.rig).is_none());
    named(&ends.b, op::DRAIN_DCT, target.number, 16).expect("drains");
    ends.steps(3);
    flushed(&mut target);
}

#[test]
fn initiators_without_end_are_survived() {
    let (ends, frames) = Ends::watched_with(|traits| traits.dynamic_connections = true);
    let mut target = Target::new(&ends.b);
    let (here, there) = (ends.a.rig.room(0x1000), ends.b.rig.room(0x1000));
    let key = ends.b.key(there, 0x1000, |_| {});
    let mut a = initiator(&ends, Plan::default(), |_| {});
    let write =
        joined(&[to(&ends.b, target.number, KEY), remote(key, there), data(ends.a.rig.lkey, here, 8)]);
    a.send(&ends.a, send::RDMA_WRITE, &write);
    ends.steps(10);
    a.done(&ends.a);
    let request = frames.lock().expect("whole").iter().find(|frame| frame[OPCODE] == 0xca).cloned();
    let request = request.expect("a write");
    let answers = |frames: &std::sync::Mutex<Vec<Vec<u8>>>, syndrome: u8| {
        let mut frames = frames.lock().expect("whole");
        let count = frames.iter().filter(|frame| frame[OPCODE] == 0xd1 && frame[54] >> 5 == syndrome).count();
        frames.clear();
        count
    };
    answers(&frames, 0);
    let attempt = |from: u32| {
        for source in from..from + 200 {
            let mut frame = request.clone();
            frame[HEADER + 16..HEADER + 20].copy_from_slice(&source.to_be_bytes());
            seal(&mut frame);
            ends.inject(frame);
        }
        ends.steps(200);
    };
    attempt(1);
    // One has been there before them. Those that find no place are told to come again.
    let (taken, later) = {
        let all = frames.lock().expect("whole").clone();
        let of =
            |syndrome| all.iter().filter(|frame| frame[OPCODE] == 0xd1 && frame[54] >> 5 == syndrome).count();
        (of(0), of(1))
    };
    assert_eq!((taken, later), (63, 137));
    answers(&frames, 0);
    // After a while those that do nothing give way.
    ends.clock.advance(std::time::Duration::from_secs(2));
    attempt(1000);
    assert_eq!(answers(&frames, 0), 64);
    // Packets of any bytes.
    for seed in 1..=400 {
        let mut chance = Chance::new(seed);
        let mut frame = request.clone();
        for _ in 0..=chance.below(4) {
            let at = OPCODE + chance.below(frame.len() as u64 - OPCODE as u64) as usize;
            frame[at] = chance.next() as u8;
        }
        if chance.one_in(3) {
            let cut = OPCODE + 12 + chance.below(frame.len() as u64 - OPCODE as u64 - 12) as usize;
            frame.truncate(cut);
            let (udp, ip) = ((frame.len() - 34) as u16, (frame.len() - 14) as u16);
            frame[38..40].copy_from_slice(&udp.to_be_bytes());
            frame[16..18].copy_from_slice(&ip.to_be_bytes());
        }
        seal(&mut frame);
        ends.inject(frame);
        ends.steps(2);
    }
    ends.clock.advance(std::time::Duration::from_secs(2));
    a.send(&ends.a, send::RDMA_WRITE, &write);
    ends.steps(100);
    assert_eq!(a.done(&ends.a).opcode(), completion::REQUESTER);
    assert_eq!(DctContext::STATE.get(&target.query(&ends.b)), target_state::ACTIVE);
    while target.cq.poll(&ends.b.rig).is_some() {}
}

#[test]
fn entries_of_any_bytes_are_survived() {
    for seed in 1..=200 {
        let mut chance = Chance::new(seed);
        let ends = ends();
        let target = Target::new(&ends.b);
        let mut a = initiator(&ends, Plan { timeout: 1, retries: 1, ..Plan::default() }, streams);
        for _ in 0..8 {
            let opcode = [send::SEND, send::RDMA_WRITE, send::RDMA_READ, send::ATOMIC_FA, send::SEND_INVAL]
                [chance.below(5) as usize];
            let mut body = to(&ends.b, target.number, KEY);
            body.extend(
                (0..chance.below(20) * 16).map(|_| if chance.one_in(3) { chance.next() as u8 } else { 0 }),
            );
            if chance.one_in(3) {
                let at = chance.below(body.len() as u64) as usize;
                body[at] = chance.next() as u8;
            }
            post(&mut a, &ends.a, chance.below(3) as u16, opcode, &body);
        }
        ends.steps(100);
        assert!(matches!(ends.a.state(a.number), state::RTS | state::ERR));
    }
}

#[test]
fn pages_that_are_not_there_are_refused() {
    let ends = Ends::with(Impairments::default(), |traits| {
        (traits.dynamic_connections, traits.on_demand_paging) = (true, true);
    });
    let (mut near, mut far) = ends.connected(Plan::of_kernel());
    let target = Target::new(&ends.b);
    let (here, there) = (pages(&ends.a), pages(&ends.b));
    let absent = (empty(&ends, &mut near, &ends.a, here), empty(&ends, &mut far, &ends.b, there));
    let present = ends.b.key(there, 0x1000, |_| {});
    for (local, key, code) in
        [(absent.0, present, S::LOCAL_PROT_ERR), (ends.a.rig.lkey, absent.1, S::REMOTE_ACCESS_ERR)]
    {
        let mut a = initiator(&ends, Plan::default(), |_| {});
        let body = joined(&[to(&ends.b, target.number, KEY), remote(key, there), data(local, here, 8)]);
        a.send(&ends.a, send::RDMA_WRITE, &body);
        ends.steps(20);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, code);
        assert!(question(&ends.a).is_none() && question(&ends.b).is_none(), "nobody is asked");
    }
}
