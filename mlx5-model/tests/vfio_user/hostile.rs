//! A machine that means harm. It gets errors or no connection; the process, its other devices and its memory are as they were.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::queue::{Entry, OWNER, PCI, init_segment as segment};
use pollux_mlx5_model::random::Random;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use zerocopy::IntoBytes;

use crate::machine::{
    BAR, CONFIG, DMA_MAP, DMA_UNMAP, ERROR, GET_INFO, GET_IRQ_INFO, GET_REGION_INFO, MSIX, Machine, NO_REPLY,
    REGION_READ, REGION_WRITE, REPLY, RESET, SET_IRQS, VERSION, access, dma_map, message, version, words,
};
use crate::program::Devices;

const EINVAL: u32 = libc::EINVAL as u32;
/// Messages of the machine that sends anything; `POLLUX_HOSTILE_ROUNDS` asks for another number.
const ROUNDS: u64 = 12_000;

fn memory(pages: u64, sealed: bool) -> File {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    let file = File::from(file);
    file.set_len(pages * 4096).expect("its length");
    if sealed {
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
    }
    file
}

/// The device still serves: the one that was harmed, and the one beside it.
fn assert_well(devices: &mut Devices, when: &str) {
    devices.assert_alive(when);
    for name in ["one", "two"] {
        let mut machine = Machine::meet(&devices.socket(name));
        assert_eq!(machine.identity(), 0x101d_15b3, "{when}: device {name}");
        // So that the device waits for another machine.
        machine.send(&[0xff; 16], &[]).expect("sent");
        let mut rest = Vec::new();
        machine.stream.read_to_end(&mut rest).expect("it is closed");
    }
}

#[test]
fn a_version_that_is_none_is_refused() {
    let mut devices = Devices::start();
    let deep = "[".repeat(60_000);
    for (what, body) in [
        ("nothing", vec![]),
        ("half a version", vec![0, 0]),
        ("no zero at the end", b"\0\0\0\0{}".to_vec()),
        ("a zero in the middle", b"\0\0\0\0{\0}\0".to_vec()),
        ("no JSON", version("hello")),
        ("no text", [&words(&[0])[..], &[0xff, 0xfe, 0]].concat()),
        ("deep JSON", version(&deep)),
        ("long JSON", version(&format!("[{}0]", "0,".repeat(300_000)))),
        ("another major", [&words(&[7])[..], b"{}\0"].concat()),
    ] {
        let mut machine = Machine::connect(&devices.socket("one"));
        let reply = machine.ask(VERSION, &body, &[]);
        assert_eq!((reply.flags, reply.errno), (REPLY | ERROR, EINVAL), "{what}");
        machine.receive().expect_err("it is closed");
        devices.assert_alive(what);
    }
    // Nothing at all as capabilities is allowed.
    let mut machine = Machine::connect(&devices.socket("one"));
    let reply = machine.ask(VERSION, &words(&[0]), &[]);
    assert_eq!((reply.flags, &reply.body[4..]), (REPLY, &b"{\"capabilities\":{}}\0"[..]));
    assert_eq!(machine.identity(), 0x101d_15b3);
    machine.send(&[0xff; 16], &[]).expect("sent");
    assert_well(&mut devices, "after versions");
}

#[test]
fn what_is_no_message_ends_the_connection_alone() {
    let mut devices = Devices::start();
    let before = devices.memory_peak();
    for met in [false, true] {
        for (what, bytes) in [
            ("shorter than a header", message(VERSION, 15, 0, &[])),
            ("of no bytes", message(REGION_READ, 0, 0, &[])),
            ("of 4 GiB", message(VERSION, u32::MAX, 0, &[])),
            ("longer than any", message(REGION_WRITE, (1 << 20) + 64, 0, &[])),
            ("a reply", message(VERSION, 16, 1, &[])),
            ("another kind", message(VERSION, 16, 7, &[])),
        ] {
            let path = devices.socket("one");
            let mut machine = if met { Machine::meet(&path) } else { Machine::connect(&path) };
            machine.send(&bytes, &[]).expect("sent");
            machine.receive().expect_err(what);
            devices.assert_alive(what);
        }
    }
    // Commands before the version.
    for command in [DMA_MAP, GET_INFO, REGION_READ, RESET, 0, 999] {
        let mut machine = Machine::connect(&devices.socket("one"));
        machine.send(&message(command, 16, 0, &[]), &[]).expect("sent");
        machine.receive().expect_err("it is closed");
    }
    let null = File::open("/dev/null").expect("a device");
    let mut machine = Machine::meet(&devices.socket("one"));
    machine.send(&message(DMA_MAP, 48, 0, &dma_map(3, 0, 0, 4096)), &[null.as_fd(); 20]).expect("sent");
    machine.receive().expect_err("too many descriptors");
    assert_well(&mut devices, "after what is no message");
    let grown = devices.memory_peak() - before;
    assert!(grown < 32 << 10, "{grown} KiB more");
}

#[test]
fn what_is_not_there_is_answered_with_an_error() {
    let mut devices = Devices::start();
    let before = devices.memory_peak();
    let mut machine = Machine::meet(&devices.socket("one"));
    let (file, event) = (memory(4, true), eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
    let (file, event) = (file.as_fd(), event.as_fd());
    let far = access(BAR, u64::MAX - 3, 8);
    let begin = Instant::now();
    for (what, command, body, descriptors) in [
        ("a long read", REGION_READ, access(BAR, 0, 1 << 31), &[][..]),
        ("the longest read", REGION_READ, access(BAR, 0, u32::MAX), &[]),
        ("a read longer than the space", REGION_READ, access(CONFIG, 0, 4097), &[]),
        ("a read behind the end", REGION_READ, access(BAR, 32 << 20, 4), &[]),
        ("a read that wraps", REGION_READ, far, &[]),
        ("no such region", REGION_READ, access(9, 0, 0), &[]),
        ("a write with no data", REGION_WRITE, access(BAR, 0, 4), &[]),
        ("a write of too much", REGION_WRITE, [&access(BAR, 0, 2)[..], &[0; 4]].concat(), &[]),
        ("a write of 4 GiB", REGION_WRITE, access(BAR, 0, u32::MAX), &[]),
        ("half a read", REGION_READ, vec![0; 15], &[]),
        ("half a map", DMA_MAP, vec![0; 31], &[]),
        ("a map of nothing", DMA_MAP, dma_map(3, 0, 0, 0), &[file]),
        ("a map behind the end", DMA_MAP, dma_map(3, 4 * 4096, 0, 4096), &[file]),
        ("a map that wraps", DMA_MAP, dma_map(3, 0, u64::MAX, 4096), &[file]),
        ("a map of wrapping bytes", DMA_MAP, dma_map(3, u64::MAX - 4095, 0, 4096), &[file]),
        ("a map of everything", DMA_MAP, dma_map(3, 0, 0, u64::MAX), &[file]),
        ("two files", DMA_MAP, dma_map(3, 0, 0, 4096), &[file, file]),
        ("no memory", DMA_MAP, dma_map(3, 0, 0, 4096), &[event]),
        ("half an unmap", DMA_UNMAP, vec![0; 23], &[]),
        ("no such region's facts", GET_REGION_INFO, [words(&[32, 0, 9]), vec![0; 20]].concat(), &[]),
        ("half a question", GET_INFO, vec![0; 3], &[]),
        ("no such interrupt", GET_IRQ_INFO, words(&[16, 0, 5, 0]), &[]),
        ("half of interrupts", SET_IRQS, vec![0; 19], &[]),
        ("interrupts of no kind", SET_IRQS, words(&[20, 0x24, 5, 0, 1]), &[event]),
        ("interrupts that wrap", SET_IRQS, words(&[20, 0x24, MSIX, u32::MAX, u32::MAX]), &[event]),
        ("another number", SET_IRQS, words(&[20, 0x24, MSIX, 0, 3]), &[event]),
        ("no eventfd", SET_IRQS, words(&[20, 0x24, MSIX, 0, 1]), &[file]),
        ("interrupts in bytes", SET_IRQS, words(&[20, 0x22, MSIX, 0, 1]), &[]),
        ("the version again", VERSION, version("{}"), &[]),
    ] {
        let reply = machine.ask(command, &body, descriptors);
        assert_eq!((reply.flags, reply.errno), (REPLY | ERROR, EINVAL), "{what}");
    }
    for command in [0, 6, 11, 12, 14, 15, 16, 17, 18, 999, u16::MAX] {
        let reply = machine.ask(command, &[], &[]);
        assert_eq!((reply.flags, reply.errno), (REPLY | ERROR, libc::EOPNOTSUPP as u32), "{command}");
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "it answers at once");
    // The longest read that is allowed; and what wants no reply gets none.
    assert_eq!(machine.ask(REGION_READ, &access(BAR, 0, 1 << 20), &[]).body.len(), 16 + (1 << 20));
    for command in [GET_INFO, REGION_READ, DMA_MAP, 999] {
        machine.send(&message(command, 16, NO_REPLY, &[]), &[]).expect("sent");
    }
    assert_eq!(machine.identity(), 0x101d_15b3);
    machine.send(&[0xff; 16], &[]).expect("sent");
    assert_well(&mut devices, "after errors");
    let grown = devices.memory_peak() - before;
    assert!(grown < 32 << 10, "{grown} KiB more");
}

/// Sets up a command queue in `file` and has the device fetch from it.
fn ring(machine: &mut Machine, file: BorrowedFd<'_>, harm: impl FnOnce()) -> u32 {
    const QUEUE: u64 = 0x10_0000;
    let reply = machine.ask(DMA_MAP, &dma_map(3, 0, QUEUE, 4 * 4096), &[file]);
    assert_eq!(reply.flags, REPLY);
    let mut write = |at: usize, value: u32| {
        let body = [&access(BAR, at as u64, 4)[..], &value.to_be_bytes()].concat();
        machine.ask(REGION_WRITE, &body, &[]).flags
    };
    assert_eq!(write(segment::CMDQ_ADDR_H, 0), REPLY);
    assert_eq!(write(segment::CMDQ_ADDR_L_SZ, QUEUE as u32), REPLY);
    harm();
    write(segment::CMD_DBELL, 1)
}

#[test]
fn memory_that_goes_away_is_no_signal() {
    use std::os::unix::fs::FileExt;
    let mut devices = Devices::start();
    for sealed in [true, false] {
        let file = memory(4, sealed);
        let mut entry = Entry { transport: PCI, status_own: OWNER, token: 7, ..Entry::default() };
        entry.input_bytes.set(16);
        entry.output_bytes.set(16);
        entry.input[..2].copy_from_slice(&opcode::ENABLE_HCA.to_be_bytes());
        file.write_all_at(entry.as_bytes(), 0).expect("memory");
        let mut machine = Machine::meet(&devices.socket("one"));
        assert_eq!(ring(&mut machine, file.as_fd(), || {}), REPLY);
        let mut done = [0; size_of::<Entry>()];
        file.read_exact_at(&mut done, 0).expect("memory");
        assert_eq!(done[63], 0, "the command was executed, whether the memory is sealed or not ({sealed})");
        machine.send(&[0xff; 16], &[]).expect("sent");
        // And now with the memory taken away before the device fetches.
        let file = memory(4, sealed);
        file.write_all_at(entry.as_bytes(), 0).expect("memory");
        let mut machine = Machine::meet(&devices.socket("one"));
        let harm = || assert_eq!(file.set_len(0).is_ok(), !sealed);
        assert_eq!(ring(&mut machine, file.as_fd(), harm), REPLY);
        assert_eq!(machine.identity(), 0x101d_15b3);
        machine.send(&[0xff; 16], &[]).expect("sent");
    }
    assert_well(&mut devices, "after memory that went away");
}

/// Anything: commands that exist more often than not, bodies that are right in part, descriptors of all kinds.
fn anything(random: &mut Random, files: &[OwnedFd]) -> (Vec<u8>, Vec<usize>) {
    let mut next = |limit: u64| random.below(limit);
    let command = [VERSION, DMA_MAP, DMA_MAP, DMA_UNMAP, GET_INFO, GET_REGION_INFO, GET_IRQ_INFO, SET_IRQS]
        .into_iter()
        .chain([SET_IRQS, REGION_READ, REGION_READ, REGION_WRITE, REGION_WRITE, RESET])
        .nth(next(14) as usize)
        .unwrap_or(RESET);
    let command = if next(16) == 0 { next(0x1_0000) as u16 } else { command };
    let word = [0, 1, 3, 4096, 1 << 20, 0x10_0000, u32::MAX, 0x8000_0000];
    let mut body = match command {
        VERSION => version(["{}", "{\"capabilities\":7}", "{", "null"][next(4) as usize]),
        DMA_MAP => dma_map(next(8) as u32, next(6) * 4096, next(64) * 4096, next(5) * 4096),
        REGION_READ | REGION_WRITE => {
            let region = [BAR, BAR, CONFIG, next(12) as u32][next(4) as usize];
            let offset = [next(0x2000), next(33 << 20), next(4200), next(u64::MAX)][next(4) as usize];
            let count = [4, 8, 64, next(5000) as u32, next(1 << 32) as u32][next(5) as usize];
            let data = if command == REGION_WRITE { count.min(6000) as usize } else { 0 };
            let data = (0..data).map(|_| next(256) as u8).collect();
            [access(region, offset, count), data].concat()
        }
        SET_IRQS => {
            let flags = [0x21, 0x24, 0x24, 0x22, 0x0c, next(256) as u32][next(6) as usize];
            words(&[20, flags, [MSIX, next(7) as u32][next(2) as usize], next(40) as u32, next(10) as u32])
        }
        _ => (0..next(12)).flat_map(|_| word[next(8) as usize].to_ne_bytes()).collect(),
    };
    // Half of them are disturbed.
    for _ in 0..[0, 0, 1, 4][next(4) as usize] {
        let at = next(body.len().max(1) as u64) as usize;
        if let Some(byte) = body.get_mut(at) {
            *byte = next(256) as u8;
        }
    }
    if next(8) == 0 {
        body.truncate(next(40) as usize);
    }
    let bytes = match next(64) {
        0 => next(20) as u32,
        1 => next(1 << 32) as u32,
        2 => 16 + body.len() as u32 + next(9) as u32,
        _ => 16 + body.len() as u32,
    };
    let flags = [0, 0, 0, 0, 0, 0, NO_REPLY, NO_REPLY, 0, 0, 0, next(1 << 32) as u32][next(12) as usize];
    let count = [0, 1, 1, 1, 2, next(12)][next(6) as usize];
    let descriptors = (0..count).map(|_| next(files.len() as u64) as usize).collect();
    (message(command, bytes, flags, &body), descriptors)
}

#[test]
fn a_machine_that_says_anything_is_borne() {
    let rounds: u64 = pollux_tests::amount::amount("POLLUX_HOSTILE_ROUNDS", ROUNDS);
    let seed = 0x5eed;
    let mut random = Random::new(seed);
    let mut devices = Devices::start();
    let before = devices.memory_peak();
    let (mut done, mut refused, mut closed) = (0_u64, 0_u64, 0_u64);
    let mut files: Vec<OwnedFd> =
        vec![memory(4, true).into(), memory(4, true).into(), memory(4, false).into()];
    for _ in 0..3 {
        files.push(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"));
    }
    files.push(File::open("/dev/null").expect("a device").into());
    files.push(File::open("/").expect("a folder").into());
    files.push(rustix::pipe::pipe().expect("a pipe").1);
    let mut beside = Machine::meet(&devices.socket("two"));
    let mut machine = Machine::meet(&devices.socket("one"));
    for round in 0..rounds {
        let (bytes, descriptors) = anything(&mut random, &files);
        let descriptors: Vec<_> = descriptors.into_iter().map(|index| files[index].as_fd()).collect();
        // A question that is always answered marks the end of what came of it.
        let question = message(GET_INFO, 32, 0, &words(&[16, 0, 0, 0]));
        let said = machine.send(&bytes, &descriptors).and_then(|_| machine.send(&question, &[]));
        let declared = u32::from_ne_bytes(*bytes[4..].first_chunk().expect("4 bytes")) as usize;
        // Else the question may be taken for the rest of the message.
        let whole = declared == bytes.len();
        let mut over = said.is_err() || !whole;
        while !over {
            match machine.receive() {
                Ok(reply) if reply.command == GET_INFO && reply.flags == REPLY && reply.body.len() == 16 => {
                    over = true;
                    done += 1;
                }
                Ok(reply) => refused += u64::from(reply.flags & ERROR != 0),
                Err(_) => break,
            }
        }
        if !over || !whole || said.is_err() {
            closed += 1;
            // The rest of whatever message is awaited, and then no header: a clean end would end the device too.
            let more = [0xff; 1 << 16];
            (0..40).find(|_| machine.stream.write_all(&more).is_err()).expect("it is closed");
            let mut rest = Vec::new();
            drop(machine.stream.read_to_end(&mut rest));
            devices.assert_alive(&format!("seed {seed:#x}, round {round}"));
            machine = Machine::meet(&devices.socket("one"));
        }
        if round % 64 == 0 {
            assert_eq!(beside.identity(), 0x101d_15b3, "seed {seed:#x}, round {round}");
        }
    }
    machine.send(&[0xff; 16], &[]).expect("sent");
    beside.send(&[0xff; 16], &[]).expect("sent");
    assert_well(&mut devices, "after anything");
    // All kinds were met.
    let counts = [done, refused, closed];
    assert!(counts.iter().all(|count| *count > rounds / 100), "done, refused, closed: {counts:?}");
    let grown = devices.memory_peak() - before;
    assert!(grown < 64 << 10, "{grown} KiB more");
    // No descriptor of ours is kept but what is mapped to interrupts, which is gone with its machine.
    let open = std::fs::read_dir(format!("/proc/{}/fd", devices.child.id())).expect("it runs").count();
    assert!(open < 40, "{open} descriptors");
}
