//! The function as a driver finds it.

mod hostile;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pollux_mlx5_abi::command::queue::{Entry, Mailbox, OWNER, PCI, delivery, init_segment as segment};
use pollux_mlx5_abi::command::{opcode, status};
use pollux_mlx5_kernel::CommandQueue;
use zerocopy::{FromZeros, IntoBytes};

use super::{Function, Health};
use crate::device::lent::{BYTES as LENT_BYTES, OFFSET as LENT_OFFSET};
use crate::device::{Device, DeviceConfig};
use crate::memory::{GuestMemory, sealed};
use crate::wire::Null;

/// Where the guest has its command queue, and mailboxes.
const QUEUE: u64 = 0x10_0000;
const MAILBOXES: u64 = 0x10_1000;
const MEMORY: u64 = 1 << 20;
/// Bytes of the guest's file in front of and behind what is mapped.
const MARGIN: u64 = 1 << 16;

struct Guest {
    function: Function,
    memory: File,
}

impl Guest {
    fn new() -> Self {
        let file = sealed(MEMORY + 2 * MARGIN);
        let memory = Arc::new(GuestMemory::default());
        memory.map(QUEUE, MEMORY, &file, MARGIN, true).expect("a piece");
        let config = DeviceConfig { strict: false, ..DeviceConfig::default() };
        let device = Device::in_guest(config, Box::<Null>::default(), memory).expect("a device");
        let mut function = Function::new(device, 0x101d);
        function.bar_write(segment::CMDQ_ADDR_H as u64, &0_u32.to_be_bytes());
        function.bar_write(segment::CMDQ_ADDR_L_SZ as u64, &(QUEUE as u32).to_be_bytes());
        Self { function, memory: file }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at + MARGIN - QUEUE).expect("memory");
    }

    /// Rings entry 0 and reads it back.
    fn ring(&mut self, entry: &Entry) -> Entry {
        self.put(QUEUE, entry.as_bytes());
        self.function.bar_write(segment::CMD_DBELL as u64, &1_u32.to_be_bytes());
        let mut after = Entry::new_zeroed();
        self.memory.read_exact_at(after.as_mut_bytes(), MARGIN).expect("memory");
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
fn memory_that_the_device_lends_is_in_its_bar() {
    let mut guest = Guest::new();
    let last = LENT_OFFSET + LENT_BYTES - 8;
    for at in [LENT_OFFSET, last] {
        assert!(!guest.function.bar_write(at, b"eight by"), "no work for the device");
        let mut seen = [0; 8];
        guest.function.bar_read(at, &mut seen);
        assert_eq!(&seen, b"eight by");
    }
    let mut seen = [1; 8];
    guest.function.bar_read(last + 8, &mut seen);
    assert_eq!(seen, [0; 8], "nothing is behind it");
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
    // Minor and major, and with the command interface the sub-minor: as the identity and every query of the firmware say.
    let (major, minor, sub) = guest.function.device().identity().firmware;
    guest.function.bar_read(segment::FW_REV as u64, &mut register);
    assert_eq!(u32::from_be_bytes(register), u32::from(minor) << 16 | u32::from(major));
    guest.function.bar_read(segment::CMDIF_REV_FW_SUB as u64, &mut register);
    assert_eq!(u32::from_be_bytes(register) & 0xffff, u32::from(sub));
    assert!(major >= 16, "no ConnectX-5 or newer has firmware {major}.{minor}.{sub}");
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
    guest.memory.read_exact_at(first.as_mut_bytes(), MAILBOXES - QUEUE + MARGIN).expect("memory");
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

/// State of the interface: bits 10 to 8 of the register with the queue's address.
fn interface(guest: &Guest) -> u32 {
    let mut register = [0; 4];
    guest.function.bar_read(segment::CMDQ_ADDR_L_SZ as u64, &mut register);
    u32::from_be_bytes(register) >> 8 & 7
}

#[test]
fn firmware_that_fails_asks_for_a_reset_and_gets_it() {
    let mut guest = Guest::new();
    let health = Health::default();
    let function = std::mem::replace(&mut guest.function, Guest::new().function);
    guest.function = function.with_health(health.clone());
    assert_eq!(interface(&guest), 0, "a driver has it");
    assert_eq!(guest.ring(&entry(opcode::ENABLE_HCA, 0, 16)).status_own, 0);
    health.fail(8);
    let read = |guest: &Guest, at: usize| {
        let mut register = [0; 4];
        guest.function.bar_read(at as u64, &mut register);
        register
    };
    assert_eq!(read(&guest, segment::HEALTH_SEVERITY)[0] >> 7, 1, "a reset is asked for");
    assert_eq!(read(&guest, segment::HEALTH_SYNDROME & !3)[1], 8);
    // As the driver reads it: the byte alone; and two that lie in two registers.
    let mut bytes = [0; 2];
    guest.function.bar_read(segment::HEALTH_SYNDROME as u64, &mut bytes[..1]);
    assert_eq!(bytes[0], 8);
    guest.function.bar_read(segment::INITIALIZING as u64 + 3, &mut bytes);
    assert_eq!(bytes, [0, 0]);
    guest.function.bar_read(u64::MAX, &mut bytes);
    assert_eq!(bytes[0], 0);
    assert_eq!(read(&guest, segment::INITIALIZING)[0] >> 6, 1, "and can be had");
    let unanswered = guest.ring(&entry(opcode::QUERY_ADAPTER, 0, 16));
    assert_eq!(unanswered.status_own, OWNER, "nobody answers");
    // The state is written, and with it no address.
    guest.function.bar_write(segment::CMDQ_ADDR_L_SZ as u64, &(7_u32 << 8).to_be_bytes());
    assert_eq!((interface(&guest), health.syndrome()), (1, 0), "nobody has it, and it is well");
    assert_eq!(guest.ring(&entry(opcode::ENABLE_HCA, 0, 16)).status_own, OWNER);
    guest.function.bar_write(segment::CMDQ_ADDR_L_SZ as u64, &(QUEUE as u32).to_be_bytes());
    let done = guest.ring(&entry(opcode::ENABLE_HCA, 0, 16));
    assert_eq!((done.status_own, done.output[0], interface(&guest)), (0, status::OK, 0));
    guest.function.reset();
    assert_eq!(interface(&guest), 1, "after a function-level reset nobody has it");
}
