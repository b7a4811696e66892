//! The function as a driver finds it, and as one that means harm does.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pollux_mlx5_abi::command::queue::{Entry, Mailbox, OWNER, PCI, delivery, init_segment as segment};
use pollux_mlx5_abi::command::start::InitHcaIn;
use pollux_mlx5_abi::command::{opcode, status};
use zerocopy::{FromZeros, IntoBytes};

use super::Function;
use crate::device::{Device, DeviceConfig};
use crate::firmware::FIRST_UAR;
use crate::memory::GuestMemory;
use crate::random::Random;
use crate::wire::Null;

/// Where the guest has its command queue, and mailboxes.
const QUEUE: u64 = 0x10_0000;
const MAILBOXES: u64 = 0x10_1000;
const MEMORY: u64 = 1 << 20;

struct Guest {
    function: Function,
    memory: File,
}

impl Guest {
    fn new() -> Self {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(MEMORY).expect("its length");
        let memory = Arc::new(GuestMemory::default());
        memory.map(QUEUE, MEMORY, &file, 0, true).expect("a piece");
        let config = DeviceConfig { strict: false, ..DeviceConfig::default() };
        let device = Device::in_guest(config, Box::<Null>::default(), memory).expect("a device");
        let mut function = Function::new(device, 0x101d);
        function.bar_write(segment::CMDQ_ADDR_H as u64, &0_u32.to_be_bytes());
        function.bar_write(segment::CMDQ_ADDR_L_SZ as u64, &(QUEUE as u32).to_be_bytes());
        Self { function, memory: file }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at - QUEUE).expect("memory");
    }

    /// Rings entry 0 and reads it back.
    fn ring(&mut self, entry: &Entry) -> Entry {
        self.put(QUEUE, entry.as_bytes());
        self.function.bar_write(segment::CMD_DBELL as u64, &1_u32.to_be_bytes());
        let mut after = Entry::new_zeroed();
        self.memory.read_exact_at(after.as_mut_bytes(), 0).expect("memory");
        after
    }
}

fn entry(code: u16, op_mod: u16, output_bytes: u32) -> Entry {
    let mut entry = Entry { transport: PCI, status_own: OWNER, token: 7, ..Entry::default() };
    entry.input_bytes.set(16);
    entry.output_bytes.set(output_bytes);
    entry.input[..2].copy_from_slice(&code.to_be_bytes());
    entry.input[6..8].copy_from_slice(&op_mod.to_be_bytes());
    entry
}

#[test]
fn the_initialization_segment_says_what_it_is() {
    let guest = Guest::new();
    let mut register = [0; 4];
    guest.function.bar_read(segment::CMDIF_REV_FW_SUB as u64, &mut register);
    assert_eq!(u32::from_be_bytes(register) >> 16, 5);
    guest.function.bar_read(segment::CMDQ_ADDR_L_SZ as u64, &mut register);
    assert_eq!(register[3], 0x56);
    guest.function.bar_read(segment::INITIALIZING as u64, &mut register);
    assert_eq!(register[0] >> 7, 0);
    guest.function.device().remove();
    guest.function.bar_read(segment::HEALTH_COUNTER as u64, &mut register);
    assert_eq!(register, [0xff; 4]);
}

#[test]
fn commands_come_through_entries_and_mailboxes() {
    let mut guest = Guest::new();
    let done = guest.ring(&entry(opcode::ENABLE_HCA, 0, 16));
    assert_eq!((done.status_own, done.output[0]), (0, status::OK));
    // Capabilities fill several mailboxes.
    let mut ask = entry(opcode::QUERY_HCA_CAP, 1, 16 + 1024);
    ask.output_mailbox.set(MAILBOXES);
    let mut mailbox = Mailbox::new_zeroed();
    mailbox.token = 7;
    mailbox.next.set(MAILBOXES + 1024);
    guest.put(MAILBOXES, mailbox.as_bytes());
    mailbox.block_num.set(1);
    mailbox.next.set(0);
    guest.put(MAILBOXES + 1024, mailbox.as_bytes());
    let done = guest.ring(&ask);
    assert_eq!((done.status_own, done.output[0]), (0, status::OK));
    let mut first = Mailbox::new_zeroed();
    guest.memory.read_exact_at(first.as_mut_bytes(), MAILBOXES - QUEUE).expect("memory");
    assert!(first.data.iter().any(|byte| *byte != 0));
    assert_eq!(guest.function.commands(), 2);
    // After a reset the function is as at power-on.
    guest.function.reset();
    assert_eq!(guest.function.commands(), 0);
}

#[test]
fn what_does_not_arrive_whole_is_not_executed() {
    for (why, change) in [
        (delivery::CMD_DESCR_ERR, (|entry| entry.transport = 1) as fn(&mut Entry)),
        (delivery::IN_LENGTH_ERR, |entry| entry.input_bytes.set(15)),
        (delivery::IN_LENGTH_ERR, |entry| entry.input_bytes.set(u32::MAX)),
        (delivery::OUT_LENGTH_ERR, |entry| entry.output_bytes.set(u32::MAX)),
        (delivery::IN_PTR_ALIGN_ERR, |entry| entry.input_bytes.set(17)),
        (delivery::TOKEN_ERR, |entry| {
            entry.input_bytes.set(17);
            entry.input_mailbox.set(MAILBOXES);
        }),
        (delivery::OUT_PTR_ALIGN_ERR, |entry| {
            entry.output_bytes.set(32);
            entry.output_mailbox.set(0x1234);
        }),
    ] {
        let mut guest = Guest::new();
        let mut ask = entry(opcode::ENABLE_HCA, 0, 16);
        change(&mut ask);
        let done = guest.ring(&ask);
        assert_eq!(done.status_own, why << 1);
    }
    let mut guest = Guest::new();
    let not_ours = Entry { status_own: 0, ..entry(opcode::ENABLE_HCA, 0, 16) };
    assert_eq!(guest.ring(&not_ours).output, [0; 16]);
    assert_eq!(guest.function.commands(), 0);
}

#[test]
fn a_hostile_driver_is_borne() {
    let mut random = Random::new(0x5eed);
    let mut guest = Guest::new();
    let (mut done, mut refused) = (0, 0);
    for round in 0..20_000_u32 {
        // A reset, which comes by chance too, leaves a function that takes no other command than these.
        if round % 64 == 0 {
            guest.function.reset();
            guest.function.bar_write(segment::CMDQ_ADDR_H as u64, &[0; 4]);
            guest.function.bar_write(segment::CMDQ_ADDR_L_SZ as u64, &(QUEUE as u32).to_be_bytes());
            let mut mailbox = Mailbox::new_zeroed();
            mailbox.token = 7;
            guest.put(MAILBOXES, mailbox.as_bytes());
            for (code, bytes) in [(opcode::ENABLE_HCA, 16), (opcode::INIT_HCA, InitHcaIn::BYTES)] {
                let mut ask = entry(code, 0, 16);
                ask.input_bytes.set(bytes as u32);
                ask.input_mailbox.set(MAILBOXES);
                assert_eq!(guest.ring(&ask).output[0], status::OK);
            }
        }
        let mut bytes = [0; 64];
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        match random.next() % 5 {
            0 => {
                let uar = FIRST_UAR as u64 * 4096 + random.next() % (64 * 4096);
                guest.function.bar_write(uar, &bytes[..1 << (random.next() % 7)]);
            }
            1 => {
                guest.function.bar_write(random.next(), &bytes[..4]);
                guest.function.bar_write(segment::CMDQ_ADDR_H as u64, &[0; 4]);
                guest.function.bar_write(segment::CMDQ_ADDR_L_SZ as u64, &(QUEUE as u32).to_be_bytes());
            }
            2 => guest.put(MAILBOXES + random.next() % 0x8000, &bytes),
            3 => guest.function.config_write(random.next() % 4200, &bytes[..4]),
            _ => {
                // An entry that is delivered, of a command that exists more often than not.
                let mut ask = entry(0x100 + (random.next() % 0x900) as u16, random.next() as u16 & 3, 64);
                ask.input[8..].copy_from_slice(&bytes[..8]);
                ask.input_bytes.set(16 + (random.next() % 600) as u32);
                ask.input_mailbox.set(MAILBOXES + random.next() % 32 * 1024);
                ask.output_mailbox.set(MAILBOXES);
                match guest.ring(&ask).output[0] {
                    status::OK => done += 1,
                    _ => refused += 1,
                }
            }
        }
        if round % 16 == 0 {
            guest.function.device().step(8);
        }
    }
    // Chance reached commands of both kinds.
    assert!(done > 100 && refused > 100, "{done} done, {refused} refused");
}
