use pollux_mlx5_kernel::{DmaMemory, Rights};
use pollux_uverbs::Errno;

use super::{Host, ProcessMemory, Unreachable, for_process};

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

#[test]
fn only_what_is_pinned_is_reached() {
    let memory = ProcessMemory::new(None);
    let mut buffer = vec![0_u8; 8192];
    buffer.iter_mut().enumerate().for_each(|(index, byte)| *byte = index as u8);
    let at = buffer.as_mut_ptr().expose_provenance() as u64;
    let pin = memory.pin(at + 100, 1000, Rights::ReadWrite).expect("mapped");
    let session = memory.session();
    let mut seen = [0; 13];
    session.read(at + 101, &mut seen).expect("pinned");
    assert_eq!(seen, std::array::from_fn(|index| 101 + index as u8));
    session.write(at + 1095, b"01234").expect("pinned");
    session.read(at + 1090, &mut seen[..10]).expect("pinned");
    assert_eq!(&seen[5..10], b"01234");
    assert_eq!(session.read(at + 99, &mut seen), Err(Unreachable));
    assert_eq!(session.read(at + 1099, &mut seen[..2]), Err(Unreachable));
    assert_eq!(session.write(at + 1098, b"abc"), Err(Unreachable));
    assert_eq!(session.read(u64::MAX - 3, &mut seen), Err(Unreachable));
    drop(session);
    drop(pin);
    assert_eq!(memory.session().read(at + 101, &mut seen), Err(Unreachable));
}

#[test]
fn pins_overlap_and_end_one_by_one() {
    let memory = ProcessMemory::new(None);
    let mut buffer = vec![1_u8; 4096];
    let at = buffer.as_mut_ptr().expose_provenance() as u64;
    let outer = memory.pin(at, 4096, Rights::Read).expect("mapped");
    let inner = memory.pin(at + 1024, 1024, Rights::ReadWrite).expect("mapped");
    let mut seen = [0; 4096];
    memory.session().read(at, &mut seen).expect("all of it can be read");
    assert_eq!(seen, [1; 4096]);
    memory.session().write(at + 1024, &[2; 1024]).expect("writable inside");
    assert_eq!(memory.session().write(at + 1023, &[2; 2]), Err(Unreachable));
    assert_eq!(memory.session().write(at + 2047, &[2; 2]), Err(Unreachable));
    drop(outer);
    memory.session().read(at + 1024, &mut seen[..1024]).expect("still pinned");
    assert_eq!(memory.session().read(at, &mut seen[..1]), Err(Unreachable));
    drop(inner);
    assert_eq!(memory.session().read(at + 1024, &mut seen[..1]), Err(Unreachable));
    assert_eq!(memory.pinned_bytes(), 0);
}

#[test]
fn the_limit_counts_pages() {
    let memory = ProcessMemory::new(Some(8192));
    let buffer = vec![0_u8; 3 * 4096];
    let page = address(&buffer).next_multiple_of(4096);
    let across = memory.pin(page + 4095, 2, Rights::Read).expect("two pages");
    assert_eq!(memory.pinned_bytes(), 8192);
    assert_eq!(memory.pin(page, 1, Rights::Read).map(|_| ()), Err(Errno::ENOMEM));
    drop(across);
    memory.pin(page, 1, Rights::Read).expect("free again");
    assert_eq!(memory.pin(page, 0, Rights::Read).map(|_| ()), Err(Errno::EINVAL));
    assert_eq!(memory.pin(0, 4096, Rights::Read).map(|_| ()), Err(Errno::EFAULT));
    assert_eq!(memory.pin(u64::MAX, 2, Rights::Read).map(|_| ()), Err(Errno::EFAULT));
}

#[test]
fn the_last_word_is_published_whole() {
    let memory = ProcessMemory::new(None);
    let mut ring = vec![0_u64; 16];
    let at = ring.as_mut_ptr().expose_provenance() as u64;
    let _pin = memory.pin(at, 128, Rights::ReadWrite).expect("mapped");
    let session = memory.session();
    session.publish(at + 64, &[7; 64]).expect("aligned");
    assert_eq!(session.load32(at + 124), Ok(0x0707_0707));
    assert_eq!(session.publish(at + 60, &[7; 64]), Err(Unreachable));
    assert_eq!(session.publish(at + 72, &[7; 64]), Err(Unreachable));
    assert_eq!(session.publish(at, &[7; 4]), Err(Unreachable));
    assert_eq!(session.load32(at + 2), Err(Unreachable));
    assert_eq!(session.load32(at + 128), Err(Unreachable));
}

#[test]
fn another_process_s_memory_is_reached_until_that_ends() {
    // What it has that this one knows of: where its program, and its stack, stand.
    let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
    let process = other.id().cast_signed();
    let maps = loop {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("a map");
        if maps.contains("libc.so") {
            break maps;
        }
        std::thread::yield_now();
    };
    let start = |of: &str, mode: &str| {
        let line = maps.lines().find(|line| line.contains(of) && line.contains(mode)).expect("mapped");
        u64::from_str_radix(line.split('-').next().expect("a start"), 16).expect("an address")
    };
    let memory = ProcessMemory::new(None);
    let (code, stack) = (start("libc.so", "r--p"), start("[stack]", "rw-p"));
    for_process(process, || {
        assert_eq!(memory.caller(), Some(other.id()));
        assert_eq!(memory.pin_of_caller(8, 8, Rights::Read).expect_err("not there"), Errno::EFAULT);
        assert_eq!(
            memory.pin_of_caller(code, 64, Rights::ReadWrite).expect_err("not writable"),
            Errno::EFAULT
        );
    });
    let (code, pin) = for_process(process, || {
        let pin = |at, rights| memory.pin_of_caller(at, 64, rights).expect("there");
        (pin(code, Rights::Read), pin(stack, Rights::ReadWrite))
    });
    assert_eq!(memory.caller(), None);
    assert_ne!(pin.dma, pin.address, "it is not this process's");
    let session = memory.session();
    let mut head = [0; 4];
    session.read(code.dma, &mut head).expect("pinned");
    assert_eq!(&head, b"\x7fELF");
    assert_eq!(session.load32(code.dma), Ok(0x7f45_4c46));
    assert_eq!(session.write(code.dma, &head), Err(Unreachable));
    session.write(pin.dma + 8, b"abcdefgh").expect("writable");
    session.publish(pin.dma + 16, b"ijklmnop").expect("writable");
    let mut seen = [0; 16];
    session.read(pin.dma + 8, &mut seen).expect("pinned");
    assert_eq!(&seen, b"abcdefghijklmnop");
    assert_eq!(session.read(pin.dma + 56, &mut seen), Err(Unreachable), "past its end");
    drop(session);
    other.kill().expect("it runs");
    other.wait().expect("it has ended");
    assert_eq!(memory.session().read(pin.dma, &mut seen), Err(Unreachable));
    memory.forget_process(process);
    assert_eq!(memory.session().load32(code.dma), Err(Unreachable));
}
