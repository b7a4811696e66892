//! A driver that means harm: random registers, commands, mailboxes, entries and doorbells, millions of them from a seed. The device
//! never panics, and touches no memory that was not mapped.

mod rdma;

use std::os::unix::fs::FileExt;

use pollux_mlx5_abi::command::cq::{CqContext, CreateCqIn};
use pollux_mlx5_abi::command::eq::{CreateEqIn, EqContext};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::queue::Mailbox;
use pollux_mlx5_abi::command::queue::init_segment as segment;
use pollux_mlx5_abi::command::sq::{CreateSqIn, ModifySqIn, SqContext};
use pollux_mlx5_abi::command::start::InitHcaIn;
use pollux_mlx5_abi::command::status;
use pollux_mlx5_abi::command::tir::{CreateTisIn, TisContext};
use pollux_mlx5_abi::command::wq::{WorkQueue, kind};
use zerocopy::{FromZeros, IntoBytes};

use self::rdma::Rdma;
use super::{Guest, MAILBOXES, MARGIN, MEMORY, QUEUE, entry};
use crate::device::uar::FIRST_UAR;
use crate::random::Random;

/// Rounds of the hostile driver; `POLLUX_HOSTILE_ROUNDS` asks for another number.
const HOSTILE_ROUNDS: u64 = 200_000;
/// A driver that begins as it should: event, completion and send queue, queue pairs of every service, whose rings, records and
/// registers chance has then.
struct Hostile {
    guest: Guest,
    random: Random,
    uar: u32,
    sq: u32,
    rdma: Rdma,
}

const EQ_RING: u64 = QUEUE + 0x2_0000;
const CQ_RING: u64 = QUEUE + 0x2_1000;
const SQ_RING: u64 = QUEUE + 0x2_2000;
const RECORDS: u64 = QUEUE + 0x2_3000;
const INPUT: u64 = QUEUE + 0x3_0000;
const OUTPUT: u64 = QUEUE + 0x4_0000;
/// Memory that a key is for, and the rings of queue pairs and pools.
const DATA: u64 = QUEUE + 0x6_0000;
const DATA_BYTES: u64 = 0x4000;
const RINGS: u64 = QUEUE + 0x7_0000;

impl Hostile {
    /// A command of any length.
    fn command(&mut self, code: u16, input: &mut [u8], output_bytes: usize) -> Vec<u8> {
        input[..2].copy_from_slice(&code.to_be_bytes());
        let mut ask = entry(code, 0, output_bytes as u32);
        let head = input.len().min(16);
        ask.input[..head].copy_from_slice(&input[..head]);
        ask.input_bytes.set(input.len() as u32);
        ask.input_mailbox.set(INPUT);
        ask.output_mailbox.set(OUTPUT);
        for (base, bytes) in [(INPUT, &input[head..]), (OUTPUT, &vec![0; output_bytes.saturating_sub(16)])] {
            for (number, part) in bytes.chunks(512).enumerate() {
                let mut mailbox = Mailbox::new_zeroed();
                mailbox.data[..part.len()].copy_from_slice(part);
                mailbox.token = 7;
                mailbox.block_num.set(number as u32);
                mailbox.next.set(base + 1024 * (number as u64 + 1));
                self.guest.put(base + 1024 * number as u64, mailbox.as_bytes());
            }
        }
        let done = self.guest.ring(&ask);
        assert_eq!((done.status_own, done.output[0]), (0, status::OK), "command {code:#x}");
        done.output.to_vec()
    }

    fn number(&mut self, code: u16, input: &mut [u8]) -> u32 {
        let output = self.command(code, input, 16);
        u32::from_be_bytes([0, output[9], output[10], output[11]])
    }

    fn start(&mut self) {
        self.guest.function.reset();
        self.home();
        self.command(opcode::ENABLE_HCA, &mut [0; 16], 16);
        self.command(opcode::INIT_HCA, &mut [0; InitHcaIn::BYTES], 16);
        let domain = self.number(opcode::ALLOC_PD, &mut [0; 16]);
        let transport = self.number(opcode::ALLOC_TRANSPORT_DOMAIN, &mut [0; 16]);
        self.uar = self.number(opcode::ALLOC_UAR, &mut [0; 16]);
        let mut input = CreateTisIn::ZERO;
        TisContext::TRANSPORT_DOMAIN.set(CreateTisIn::CTX.of_mut(&mut input), transport);
        let tis = self.number(opcode::CREATE_TIS, &mut input);
        let mut input = CreateEqIn::ZERO;
        let context = CreateEqIn::EQ_CONTEXT_ENTRY.of_mut(&mut input);
        EqContext::LOG_EQ_SIZE.set(context, 5);
        EqContext::UAR_PAGE.set(context, self.uar);
        let eq = self.number(opcode::CREATE_EQ, &mut [&input[..], &EQ_RING.to_be_bytes()].concat());
        let mut input = CreateCqIn::ZERO;
        let context = CreateCqIn::CQ_CONTEXT.of_mut(&mut input);
        CqContext::LOG_CQ_SIZE.set(context, 4);
        CqContext::UAR_PAGE.set(context, self.uar);
        CqContext::C_EQN_OR_APU_ELEMENT.set(context, eq);
        CqContext::DBR_ADDR.set(context, RECORDS);
        let cq = self.number(opcode::CREATE_CQ, &mut [&input[..], &CQ_RING.to_be_bytes()].concat());
        let mut input = CreateSqIn::ZERO;
        let context = CreateSqIn::CTX.of_mut(&mut input);
        SqContext::CQN.set(context, cq);
        SqContext::TIS_LST_SZ.set(context, 1);
        SqContext::TIS_NUM_0.set(context, tis);
        SqContext::FLUSH_IN_ERROR_EN.set(context, 1);
        let wq = SqContext::WQ.of_mut(context);
        WorkQueue::WQ_TYPE.set(wq, kind::CYCLIC);
        WorkQueue::PD.set(wq, domain);
        WorkQueue::UAR_PAGE.set(wq, self.uar);
        WorkQueue::DBR_ADDR.set(wq, RECORDS + 64);
        WorkQueue::LOG_WQ_STRIDE.set(wq, 6);
        WorkQueue::LOG_WQ_SZ.set(wq, 6);
        self.sq = self.number(opcode::CREATE_SQ, &mut [&input[..], &SQ_RING.to_be_bytes()].concat());
        let mut input = ModifySqIn::ZERO;
        ModifySqIn::SQN.set(&mut input, self.sq);
        SqContext::STATE.set(ModifySqIn::CTX.of_mut(&mut input), 1);
        self.command(opcode::MODIFY_SQ, &mut input, 16);
        self.rdma = self.start_rdma(domain, cq);
    }

    /// The command queue where it was.
    fn home(&mut self) {
        self.guest.function.bar_write(segment::CMDQ_ADDR_H as u64, &[0; 4]);
        self.guest.function.bar_write(segment::CMDQ_ADDR_L_SZ as u64, &(QUEUE as u32).to_be_bytes());
    }

    fn bytes(&mut self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.random.next().to_be_bytes());
        }
        bytes
    }

    /// A send entry that is right in part, with its record and its doorbell, or the whole of it in a BlueFlame buffer.
    fn post(&mut self) {
        let mut bytes = self.bytes();
        let index = self.random.next() as u16 & 0x3f;
        if self.random.next().is_multiple_of(2) {
            bytes[0] = 0;
        }
        bytes[1..3].copy_from_slice(&index.to_be_bytes());
        bytes[3] = [0, 0x0a, 0x0e, 0x29, bytes[3]][self.random.next() as usize % 5];
        bytes[4..7].copy_from_slice(&self.sq.to_be_bytes()[1..]);
        bytes[7] &= 0x0f;
        let at = SQ_RING + u64::from(index) * 64;
        self.guest.put(at, &bytes);
        self.guest.put(RECORDS + 68, &u32::from(index + 1).to_be_bytes());
        let register = u64::from(self.uar) * 4096 + 0x800 + (self.random.next() % 4) * 0x100;
        let length = [8, 8, 64][self.random.next() as usize % 3];
        for part in 0..if length == 64 && self.random.next().is_multiple_of(2) { 8 } else { 1 } {
            let (from, to) = if length == 64 { (part * 8, 64) } else { (0, 8) };
            self.guest.function.bar_write(register + from as u64, &bytes[from..to]);
        }
    }

    /// A command that exists more often than not, in mailboxes that are in order more often than not. Whether it was carried
    /// out, if it was delivered.
    fn any_command(&mut self) -> Option<bool> {
        let bytes = self.bytes();
        let ends = [opcode::TEARDOWN_HCA, opcode::DISABLE_HCA];
        let codes = std::iter::repeat_with(|| 0x100 + (self.random.next() % 0x900) as u16).take(64);
        // What ends everything comes last in a life.
        let code = codes.filter(|code| !ends.contains(code)).find(|code| opcode::name(*code).is_some());
        let code = code.unwrap_or(ends[0]);
        let mut ask = entry(code, self.random.next() as u16 & 3, 16 + (self.random.next() % 600) as u32);
        let few = self.random.next().is_multiple_of(2);
        // Small numbers name something more often.
        ask.input[8..].copy_from_slice(&if few {
            [0, 0, 0, bytes[3] & 0x1f, 0, 0, 0, bytes[7]]
        } else {
            [bytes[0]; 8]
        });
        ask.input_bytes.set(16 + (self.random.next() % 600) as u32);
        ask.input_mailbox.set(INPUT + self.random.next() % 2 * 1024);
        ask.output_mailbox.set(OUTPUT);
        let kept = !self.random.next().is_multiple_of(8);
        for base in [INPUT, OUTPUT] {
            for number in 0..if kept { 2 } else { 0 } {
                let mut mailbox = Mailbox::new_zeroed();
                for part in mailbox.data.chunks_mut(64) {
                    part.copy_from_slice(&if few { [0; 64] } else { bytes });
                }
                mailbox.token = 7;
                mailbox.block_num.set(number);
                mailbox.next.set(base + 1024);
                self.guest.put(base + 1024 * u64::from(number), mailbox.as_bytes());
            }
        }
        let done = self.guest.ring(&ask);
        (done.status_own == 0).then_some(done.output[0] == status::OK)
    }
}

#[test]
fn a_hostile_driver_is_borne() {
    let rounds: u64 = pollux_tests::amount::amount("POLLUX_HOSTILE_ROUNDS", HOSTILE_ROUNDS);
    let mut hostile =
        Hostile { guest: Guest::new(), random: Random::new(0x5eed), uar: 0, sq: 0, rdma: Rdma::default() };
    for margin in [QUEUE - MARGIN, QUEUE + MEMORY] {
        hostile.guest.put(margin, &[0xa5; MARGIN as usize]);
    }
    let (mut done, mut refused, mut undelivered, mut worked) = (0, 0, 0, 0_u64);
    for round in 0..rounds {
        // A reset, which comes by chance too, leaves a function that takes no other command than these.
        if round % 256 == 0 {
            hostile.start();
        }
        match hostile.random.next() % 8 {
            0 => {
                let (uar, length) = (hostile.random.next() % (64 * 4096), 1 << (hostile.random.next() % 7));
                let bytes = hostile.bytes();
                hostile.guest.function.bar_write(FIRST_UAR as u64 * 4096 + uar, &bytes[..length]);
            }
            1 => {
                let (at, bytes) = (hostile.random.next(), hostile.bytes());
                // Half of them inside the function.
                let at = if at.is_multiple_of(2) { at } else { at >> 39 };
                hostile.guest.function.bar_write(at, &bytes[..4]);
                hostile.home();
            }
            2 => {
                let (at, bytes) = (hostile.random.next() % 0x8000, hostile.bytes());
                hostile.guest.put(MAILBOXES + at, &bytes);
            }
            3 => {
                // Rings and records.
                let (at, bytes) = (hostile.random.next() % 0x4000, hostile.bytes());
                hostile.guest.put(EQ_RING + at.min(0x3fc0), &bytes);
            }
            4 if round % 64 == 0 => {
                let (at, bytes) = (hostile.random.next() % 4200, hostile.bytes());
                hostile.guest.function.config_write(at, &bytes[..4]);
            }
            4 => hostile.post(),
            5 => hostile.post_request(),
            _ => match hostile.any_command() {
                Some(true) => done += 1,
                Some(false) => refused += 1,
                None => undelivered += 1,
            },
        }
        if round % 8 == 0 {
            worked += u64::from(hostile.guest.function.device().step(8));
        }
    }
    // Chance reached commands of every kind, and entries were worked on.
    let counts = [done, refused, undelivered, worked];
    assert!(
        counts.iter().all(|count| *count > rounds / 200),
        "done, refused, not delivered, steps: {counts:?}"
    );
    // Queue pairs sent to themselves and to each other, and some of that was as it should be.
    let packets = hostile.guest.function.device().ledger().total().packets_received;
    assert!(packets > rounds / 200, "{packets} packets of RDMA arrived");
    // What was not mapped is as it was.
    let mut margin = vec![0; MARGIN as usize];
    for at in [QUEUE - MARGIN, QUEUE + MEMORY] {
        hostile.guest.memory.read_exact_at(&mut margin, at + MARGIN - QUEUE).expect("the file");
        assert!(margin.iter().all(|byte| *byte == 0xa5), "{at:#x} was touched");
    }
}
