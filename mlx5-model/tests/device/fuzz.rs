//! Whatever software does, the device answers or refuses; it never falls over, and never touches memory that is not its own.
//! Seeds are fixed, and printed when something fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_mlx5_abi::command::wq::{WorkQueue, kind};
use pollux_mlx5_abi::command::{self, opcode as op};
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Completion, Control};
use pollux_mlx5_kernel::CommandQueue;
use pollux_mlx5_model::DeviceConfig;

use super::receive::buffer;
use super::rig::{Rig, frame};
use super::send::plain;

/// Numbers from a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.roll(256) as u8).collect()
    }

    /// Changes some bits of a buffer that made sense.
    fn spoil(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.roll(4) {
            if !bytes.is_empty() {
                let at = self.roll(bytes.len());
                bytes[at] =
                    if self.roll(2) == 0 { self.roll(256) as u8 } else { bytes[at] ^ 1 << self.roll(8) };
            }
        }
    }
}

/// Calls `act` with dice of each seed; a failure names the seed.
fn for_seeds(seeds: std::ops::Range<u64>, act: impl Fn(&mut Dice) + std::panic::RefUnwindSafe) {
    for seed in seeds {
        let result =
            std::panic::catch_unwind(|| act(&mut Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)));
        assert!(result.is_ok(), "seed {seed} fails");
    }
}

#[test]
fn any_command_is_answered() {
    for_seeds(0..40, |dice| {
        let rig = Rig::new();
        let cq = rig.cq(4);
        let _sq = rig.sq(4, &cq);
        let rq = rig.rq(4, 4, &cq);
        rig.all_to(rig.direct_tir(&rq));
        for _ in 0..400 {
            let (opcode, _) = op::NAMES[dice.roll(op::NAMES.len())];
            // Not the end of the function, or there is little left to try.
            if matches!(opcode, op::TEARDOWN_HCA | op::DISABLE_HCA) {
                continue;
            }
            let bytes = [16, 64, 272, 288, 1024, 1500][dice.roll(6)];
            let mut input = vec![0; bytes];
            if dice.roll(4) == 0 {
                input = dice.bytes(bytes);
            } else {
                for _ in 0..dice.roll(30) {
                    let at = dice.roll(bytes);
                    input[at] = dice.roll(256) as u8;
                }
                // Numbers of objects that are there.
                let numbers = [cq.number, rq.number, rig.pd, rig.tis, rig.uar, 1, 0x40, 0x100, 0x200];
                let at = 8 + 4 * dice.roll(8);
                if at + 4 <= bytes {
                    input[at..at + 4].copy_from_slice(&numbers[dice.roll(numbers.len())].to_be_bytes());
                }
            }
            command::start(&mut input, opcode, [0, 0, 0, 1][dice.roll(4)], dice.roll(3) as u16);
            let mut output = vec![0; [0, 4, 16, 272, 4112][dice.roll(5)]];
            rig.device.execute(&input, &mut output).expect("there");
            rig.wire.ends().incoming.push_back(frame(64, 0));
            rig.device.step(4);
        }
    });
}

#[test]
fn any_send_entry_is_carried_out_or_fails() {
    let frames = AtomicUsize::new(0);
    for_seeds(0..60, |dice| {
        let strict = dice.roll(2) == 0;
        let rig = Rig::with(DeviceConfig { strict, ..DeviceConfig::default() });
        let cq = rig.cq(8);
        let mut sq = rig.sq(5, &cq);
        let body = plain(&rig, &frame(200, 1));
        for _ in 0..300 {
            let opcode =
                [send::SEND, send::TSO, send::ENHANCED_MPSW, send::NOP, dice.roll(256) as u8][dice.roll(5)];
            let random = 16 * (1 + dice.roll(12));
            let mut body = if dice.roll(3) == 0 { dice.bytes(random) } else { body.clone() };
            if dice.roll(2) == 0 {
                dice.spoil(&mut body);
            }
            let segments = if dice.roll(8) == 0 { dice.roll(64) } else { 1 + body.len() / 16 };
            let flags =
                [Completion::Always, Completion::OnError][dice.roll(2)] as u8 | (dice.roll(256) as u8 & 0xe2);
            let control = Control::new(opcode, 0, sq.next, sq.number, segments as u8, flags, 0);
            sq.write_raw(&rig, &control, &body);
            if dice.roll(10) == 0 {
                sq.next = sq.next.wrapping_add(dice.roll(100) as u16);
            }
            sq.write_record(&rig);
            let mut head = sq.last();
            if dice.roll(10) == 0 {
                dice.spoil(&mut head);
            }
            if dice.roll(2) == 0 {
                rig.store(uar::BLUE_FLAME, &head);
            } else {
                rig.store_quietly(uar::BLUE_FLAME, head);
            }
            rig.device.step(16);
            rig.write(cq.record, &dice.bytes(8));
            if dice.roll(4) == 0 {
                // Back to work, if it failed; now and then with what the record said last.
                if dice.roll(10) > 0 {
                    rig.write(sq.record + 4, &[0; 4]);
                }
                let reset = rig.sq_state(&sq, 1, 0).or_else(|_| rig.sq_state(&sq, 3, 0));
                if reset.is_ok() && rig.sq_state(&sq, 0, 1).is_ok() {
                    sq.next = 0;
                }
            }
        }
        let ends = rig.wire.ends();
        assert!(ends.sent.iter().all(|frame| (14..=1526).contains(&frame.len())));
        frames.fetch_add(ends.sent.len(), Ordering::Relaxed);
    });
    let frames = frames.into_inner();
    assert!(frames > 300, "{frames} frames went out: hardly any entry was carried out");
}

#[test]
fn any_frame_and_any_buffer_is_borne() {
    for_seeds(0..60, |dice| {
        let rig = Rig::new();
        let cq = rig.cq_with(6, |context| {
            use pollux_mlx5_abi::command::cq::CqContext;
            CqContext::CQE_COMP_EN.set(context, 1);
            CqContext::OI.set(context, 1);
        });
        // Cyclic, linked, and both with strides; the last two of 8 strides of 64 bytes.
        let kind = [kind::CYCLIC, kind::LINKED_LIST, kind::CYCLIC_STRIDING_RQ, kind::LINKED_LIST_STRIDING_RQ]
            [dice.roll(4)];
        let mut rq = rig.rq_with(5, 6, &cq, |context| {
            use pollux_mlx5_abi::command::rq::RqContext;
            let wq = RqContext::WQ.of_mut(context);
            WorkQueue::WQ_TYPE.set(wq, kind);
            WorkQueue::LOG_WQE_NUM_OF_STRIDES.set(wq, 0xa);
            WorkQueue::END_PADDING_MODE.set(wq, 1);
        });
        rig.all_to(rig.tir(|context| {
            use pollux_mlx5_abi::command::tir::TirContext;
            TirContext::INLINE_RQN.set(context, rq.number);
            TirContext::TUNNELED_OFFLOAD_EN.set(context, 1);
        }));
        let good = buffer(&rig, 2048).1;
        for _ in 0..400 {
            use zerocopy::IntoBytes;
            let mut entry = good.as_bytes().to_vec();
            if kind != kind::CYCLIC {
                entry.splice(0..0, [0, 0, 0, dice.roll(256) as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            entry.resize(64, 0);
            if dice.roll(10) == 0 {
                dice.spoil(&mut entry);
            }
            if dice.roll(50) == 0 {
                entry = dice.bytes(64);
            }
            rq.post_raw(&rig, &entry);
            if dice.roll(50) == 0 {
                rig.write(rq.record, &dice.bytes(4));
            }
            let bytes = dice.roll(300);
            let mut incoming = if dice.roll(2) == 0 { dice.bytes(bytes) } else { frame(bytes.max(60), 0) };
            if incoming.len() > 50 {
                // Something that looks like a packet, its lengths any.
                let types = [[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8]];
                incoming[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
                incoming[12..14].copy_from_slice(&types[dice.roll(4)]);
                incoming[14] = [0x45, 0x46, 0x60, 0x4f][dice.roll(4)];
                incoming[23] = [6, 17, 1, 0, 44][dice.roll(5)];
                if dice.roll(3) == 0 {
                    incoming[36..38].copy_from_slice(&4789_u16.to_be_bytes());
                }
            }
            rig.wire.ends().incoming.push_back(incoming);
            rig.device.step(4);
            if dice.roll(8) == 0 {
                let (from, to) = [(3, 0), (0, 1), (1, 3)][dice.roll(3)];
                let moved = rig.rq_state(&rq, from, to);
                if to == 0 && moved.is_ok() {
                    rq.posted = 0;
                    rig.write(rq.record, &[0; 4]);
                }
            }
        }
    });
}

#[test]
fn any_store_to_any_register_is_borne() {
    for_seeds(0..20, |dice| {
        let rig = Rig::new();
        let cq = rig.cq(4);
        let sq = rig.sq(4, &cq);
        for _ in 0..500 {
            let offset = dice.roll(512) * 8;
            let mut value = dice.bytes(8);
            let number = [cq.number, sq.number, rig.eq.number][dice.roll(3)];
            match dice.roll(3) {
                0 => value[4..].copy_from_slice(&(number << 8 | 1).to_be_bytes()),
                1 => value[4..].copy_from_slice(&number.to_be_bytes()),
                _ => {}
            }
            rig.store(offset, &value);
            rig.device.doorbell_store(dice.roll(0x400) as u32, dice.roll(8192), &value[..dice.roll(9)]);
            rig.device.step(4);
        }
    });
}
