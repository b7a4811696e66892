//! What nobody in his right mind sends: packets and entries of any bytes. The device goes on.

use pollux_mlx5_abi::command::qp::context::{service, state};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Completion, Control};

use super::node::{Ends, Pair, Plan, data, remote};
use super::seeds::Chance;

/// Writes the CRC that a changed packet must have to be looked at.
pub(crate) fn seal(frame: &mut [u8]) {
    let Some(end) = frame.len().checked_sub(4).filter(|end| *end >= 54) else { return };
    if let Some(sum) = pollux_wire::roce::icrc(&frame[14..end], 20) {
        frame[end..].copy_from_slice(&sum);
    }
}

fn work(ends: &Ends, a: &mut Pair, key: u32, there: u64, here: u64, chance: &mut Chance) {
    let opcode =
        [send::SEND, send::RDMA_WRITE, send::RDMA_READ, send::RDMA_WRITE_IMM][chance.below(4) as usize];
    let mut body = if opcode == send::SEND { Vec::new() } else { remote(key, there) };
    body.extend(data(ends.a.rig.lkey, here, 1 + chance.below(4000) as u32));
    a.send(&ends.a, opcode, &body);
}

#[test]
fn packets_of_any_bytes_are_survived() {
    for seed in 1..=40 {
        let mut chance = Chance::new(seed);
        let (ends, frames) = Ends::watched();
        let service = [service::RC, service::RC, service::UC][chance.below(3) as usize];
        let plan = Plan { service, timeout: 3, ..Plan::default() };
        let (mut a, mut b) = ends.connected(plan);
        let (here, there) = (ends.a.rig.room(0x4000), ends.b.rig.room(0x4000));
        let guard = ends.b.rig.room(0x1000);
        ends.b.rig.write(guard, &[0x33; 0x1000]);
        let key = ends.b.key(there, 0x4000, |_| {});
        for _ in 0..60 {
            if ends.a.state(a.number) != state::RTS || ends.b.state(b.number) != state::RTS {
                break;
            }
            b.receive(&ends.b, ends.b.rig.lkey, there, 0x4000);
            work(&ends, &mut a, key, there, here, &mut chance);
            ends.steps(3);
            // What was on the wire, changed, once more: to the other side, or back to the sender.
            let seen: Vec<Vec<u8>> = frames.lock().expect("whole").drain(..).collect();
            for mut frame in seen {
                for _ in 0..chance.below(4) {
                    let at = 42 + chance.below(40.min(frame.len() as u64 - 42)) as usize;
                    frame[at] = chance.next() as u8;
                }
                if chance.one_in(4) {
                    let cut = 54 + chance.below(frame.len() as u64 - 54 + 1) as usize;
                    frame.truncate(cut);
                    let bytes = (frame.len() - 34) as u16;
                    frame[38..40].copy_from_slice(&bytes.to_be_bytes());
                    let total = (frame.len() - 14) as u16;
                    frame[16..18].copy_from_slice(&total.to_be_bytes());
                }
                seal(&mut frame);
                ends.inject(frame);
            }
            ends.steps(2);
            while a.send_cq.poll(&ends.a.rig).is_some() {}
            while b.receive_cq.poll(&ends.b.rig).is_some() {}
            a.send_cq.give_back(&ends.a.rig);
            b.receive_cq.give_back(&ends.b.rig);
        }
        assert_eq!(ends.b.rig.read(guard, 0x1000), [0x33; 0x1000], "seed {seed}: what no key covers");
        // A new connection works.
        let (mut a, mut b) = ends.connected(Plan::default());
        b.receive(&ends.b, ends.b.rig.lkey, there, 0x4000);
        a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, here, 100));
        ends.steps(600);
        a.done(&ends.a);
        b.came(&ends.b);
    }
}

#[test]
fn entries_of_any_bytes_are_survived() {
    for seed in 1..=300 {
        let mut chance = Chance::new(seed);
        let ends = Ends::new();
        let service = [service::RC, service::UC, service::UD, service::XRC][chance.below(4) as usize];
        let (mut a, _b) = ends.connected(Plan {
            service,
            xrc_domain: ends.domain(service),
            registers: seed % 2 == 0,
            ..Plan::default()
        });
        let opcodes = [
            send::NOP,
            send::SEND_INVAL,
            send::RDMA_WRITE,
            send::RDMA_WRITE_IMM,
            send::SEND,
            send::SEND_IMM,
            send::RDMA_READ,
            send::ATOMIC_CS,
            send::ATOMIC_FA,
            send::LOCAL_INVAL,
            send::UMR,
            chance.next() as u8,
        ];
        let opcode = opcodes[chance.below(opcodes.len() as u64) as usize];
        let segments = 1 + chance.below(63) as u8;
        let body: Vec<u8> = (0..(usize::from(segments) - 1) * 16)
            .map(|_| if chance.one_in(3) { chance.next() as u8 } else { 0 })
            .collect();
        let flags = Completion::Always as u8 | (chance.next() as u8 & 0xe0);
        let control = Control::new(opcode, 0, a.sq.next, a.number, segments, flags, chance.next() as u32);
        a.sq.write_raw(&ends.a.rig, &control, &body);
        a.sq.ring(&ends.a.rig);
        ends.steps(5);
        // It is done, failed, or waits for a peer; the device answers.
        assert!(matches!(ends.a.state(a.number), state::RTS | state::SQER | state::ERR));
    }
}
