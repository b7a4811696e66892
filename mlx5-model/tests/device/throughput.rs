//! Many frames between two devices: in order, none lost, none altered. `POLLUX_PACKETS` says how many, to measure.

use std::time::{Duration, Instant};

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Completion, Data};
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::wire::Cable;
use zerocopy::IntoBytes;

use super::rig::{HCA_DELTA, Hand, Rig, frame};
use super::send::ethernet;

const BURST: usize = 32;
const SLOT: u64 = 2048;

#[test]
fn frames_cross_a_cable_in_order() {
    let wanted = pollux_tests::amount::amount("POLLUX_PACKETS", 100_000_usize);
    let (left, right) = Cable::pair();
    let sender = Rig::on(DeviceConfig::default(), Box::new(left), Hand::default());
    let receiver = Rig::on(DeviceConfig::default(), Box::new(right), Hand::default());
    let mut sent_cq = sender.cq(8);
    let mut sq = sender.sq(8, &sent_cq);
    let mut cq = receiver.cq(9);
    let mut rq = receiver.rq(8, 4, &cq);
    receiver.all_to(receiver.direct_tir(&rq));
    let from = sender.room(BURST * SLOT as usize);
    let to = receiver.room(256 * SLOT as usize);
    for slot in 0..256 {
        rq.post(&receiver, &[Data::new(SLOT as u32, receiver.lkey, to + slot * SLOT + HCA_DELTA)]);
    }
    let mut spent = Duration::ZERO;
    let mut came = 0_usize;
    for burst in 0..wanted / BURST {
        for index in 0..BURST {
            let at = from + index as u64 * SLOT;
            let mut whole = frame(64, 0);
            whole[20..28].copy_from_slice(&((burst * BURST + index) as u64).to_be_bytes());
            sender.write(at, &whole);
            let body =
                [ethernet(&[], |_| {}), Data::new(64, sender.lkey, at + HCA_DELTA).as_bytes().to_vec()]
                    .concat();
            let last = index + 1 == BURST;
            sq.write(&sender, send::SEND, &body, if last { Completion::Always } else { Completion::OnError });
        }
        sq.ring(&sender);
        let start = Instant::now();
        sender.device.step(64);
        receiver.device.step(64);
        spent += start.elapsed();
        sent_cq.poll(&sender).expect("the burst is out");
        sent_cq.give_back(&sender);
        while let Some(entry) = cq.poll(&receiver) {
            let at = to + (u64::from(entry.wqe_counter.get()) & 255) * SLOT;
            let seen = receiver.read(at, 64);
            assert_eq!(u64::from_be_bytes(seen[20..28].try_into().expect("8 bytes")), came as u64);
            rq.post(&receiver, &[Data::new(SLOT as u32, receiver.lkey, at + HCA_DELTA)]);
            came += 1;
        }
        cq.give_back(&receiver);
    }
    assert_eq!(came, wanted / BURST * BURST);
    assert_eq!(sender.device.violations().1, 0);
    println!("{came} frames, {} ns each in both devices", spent.as_nanos() / came as u128);
}
