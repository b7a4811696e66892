use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{Frame, Program, bpf};

const ALL: Interface = Interface { number: 0, snaplen: 1 << 18, filter: None };
const NOW: Passage = Passage { ticks: 7, queue: 3, sent: true };
/// Blocks of a ring of one MiB.
const BLOCKS: usize = (1 << 20) / 64;

#[derive(Clone)]
struct Pieces<'a>(&'a [&'a [u8]]);

impl Frame for Pieces<'_> {
    fn bytes(&self) -> usize {
        self.0.iter().map(|piece| piece.len()).sum()
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().copied()
    }
}

fn file(writer: &Writer) -> OwnedFd {
    writer.file().expect("a file").try_clone_to_owned().expect("a descriptor")
}

fn ring() -> (Writer, Reader) {
    let layout = Layout::of_bytes(1 << 20).expect("a size");
    let writer = Writer::new(layout).expect("memory");
    let reader = Reader::of_file(file(&writer), layout).expect("mapped");
    (writer, reader)
}

fn put(writer: &Writer, frames: &[&[u8]]) {
    writer.reserve(&ALL, NOW, frames.iter().copied()).commit(frames.len());
}

fn next(reader: &mut Reader) -> Option<(Record, Vec<u8>)> {
    let mut frame = vec![9; 5];
    let record = reader.next(&mut frame).expect("not damaged");
    record.map(|record| (record, frame))
}

#[test]
fn frames_of_all_lengths_come_back_whatever_their_pieces() {
    let (writer, mut reader) = ring();
    let bytes: Vec<u8> = (0..2000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
    for length in (1..200).chain([1500, 1999]) {
        for cuts in [[0, 0], [1, 3], [7, 8], [12, 16], [8, 64]] {
            let [one, other] = cuts.map(|cut: usize| cut.min(length));
            let pieces = [&bytes[..one], &bytes[one..other], &bytes[other..length]];
            writer.reserve(&ALL, NOW, std::iter::once(Pieces(&pieces))).commit(1);
            let (record, frame) = next(&mut reader).expect("a frame");
            reader.release();
            assert_eq!(frame, bytes[..length], "{length} cut at {cuts:?}");
            let expected = Record { interface: 0, passage: NOW, wire_bytes: length as u32 };
            assert_eq!(record, expected);
        }
    }
    assert!(next(&mut reader).is_none());
}

#[test]
fn the_ring_goes_round() {
    let (writer, mut reader) = ring();
    let frame = [5; 1000];
    // Records of 16 blocks and of 3 blocks, so that one lies across the end.
    for round in 0..5000_u32 {
        let small = round.to_le_bytes().repeat(30);
        put(&writer, &[&frame, &small]);
        assert_eq!(next(&mut reader).expect("the first").1, frame);
        assert_eq!(next(&mut reader).expect("the second").1, small);
        reader.release();
    }
}

#[test]
fn what_has_no_room_is_dropped_and_counted() {
    let (writer, mut reader) = ring();
    let frame: &[u8] = &[5; 40];
    for _ in 0..BLOCKS / 4 {
        put(&writer, &[frame; 4]);
    }
    put(&writer, &[frame; 3]);
    assert_eq!(reader.counts(0), Counts { captured: BLOCKS as u64, filtered: 0, dropped: 3 });
    next(&mut reader).expect("the first");
    reader.release();
    put(&writer, &[frame; 2]);
    put(&writer, &[frame]);
    assert_eq!(reader.counts(0), Counts { captured: BLOCKS as u64 + 1, filtered: 0, dropped: 5 });
    let left = std::iter::from_fn(|| next(&mut reader)).count();
    assert_eq!(left, BLOCKS);
}

#[test]
fn what_was_not_sent_is_not_seen() {
    let (writer, mut reader) = ring();
    let frames: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
    writer.reserve(&ALL, NOW, frames.iter().copied()).commit(2);
    // As by a panic.
    drop(writer.reserve(&ALL, NOW, frames.iter().copied()));
    put(&writer, &[b"five"]);
    let seen: Vec<_> = std::iter::from_fn(|| next(&mut reader)).map(|(_, frame)| frame).collect();
    assert_eq!(seen, [&b"one"[..], b"two", b"five"]);
    assert_eq!(reader.counts(0), Counts { captured: 3, filtered: 0, dropped: 0 });
}

/// As at a tx queue that is full for a while: it is tried with the same burst again and again.
#[test]
fn what_is_never_sent_takes_no_room() {
    let (writer, mut reader) = ring();
    let frames = [[7_u8; 1000]; 32];
    let all = || frames.iter().map(|frame| &frame[..]);
    for _ in 0..10 * BLOCKS / (32 * 16) {
        writer.reserve(&ALL, NOW, all()).commit(0);
        // As by a panic.
        drop(writer.reserve(&ALL, NOW, all()));
    }
    writer.reserve(&ALL, NOW, all()).commit(5);
    assert_eq!(reader.counts(0), Counts { captured: 5, filtered: 0, dropped: 0 });
    // All of the ring but that is free.
    let frame: &[u8] = &[5; 40];
    (0..BLOCKS - 5 * 16).for_each(|_| put(&writer, &[frame]));
    put(&writer, &[frame]);
    assert_eq!(reader.counts(0).dropped, 1);
    let seen: Vec<usize> = std::iter::from_fn(|| next(&mut reader)).map(|(_, frame)| frame.len()).collect();
    assert_eq!(seen, [vec![1000; 5], vec![40; BLOCKS - 5 * 16]].concat());
}

/// Another lcore has taken room behind it: it is passed over, without a frame.
#[test]
fn what_is_not_the_last_is_void() {
    let (writer, mut reader) = ring();
    let frames: [&[u8]; 2] = [&[1; 300], &[2; 300]];
    let first = writer.reserve(&ALL, NOW, frames.iter().copied());
    let second = writer.reserve(&ALL, NOW, frames.iter().copied());
    let third = writer.reserve(&ALL, NOW, frames.iter().copied());
    first.commit(1);
    third.commit(0);
    second.commit(1);
    put(&writer, &[b"three"]);
    let seen: Vec<_> = std::iter::from_fn(|| next(&mut reader)).map(|(_, frame)| frame).collect();
    assert_eq!(seen, [&[1; 300][..], &[1; 300], b"three"]);
    // Two records of the first, one of the second, and the last one: the head went back twice.
    let used = 3 * 6 + 1;
    let frame: &[u8] = &[5; 40];
    (0..BLOCKS - used).for_each(|_| put(&writer, &[frame]));
    assert_eq!(reader.counts(0).dropped, 0);
    put(&writer, &[frame]);
    assert_eq!(reader.counts(0).dropped, 1);
}

#[test]
fn a_filter_and_a_snap_length_decide_what_is_kept() {
    let (writer, mut reader) = ring();
    // Frames that begin with 1; of them 5 bytes.
    let program =
        [(0x30, 0, 0, 0), (0x15, 0, 1, 1), (0x06, 0, 0, 5), (0x06, 0, 0, 0)].map(bpf::Instruction::from);
    let filter = Some(Program::verify(&program).expect("a program"));
    let interface = Interface { number: 2, snaplen: 1000, filter };
    let frames: [&[u8]; 4] = [&[1; 100], &[2; 100], &[1; 3], &[]];
    writer.reserve(&interface, NOW, frames.iter().copied()).commit(4);
    let seen: Vec<_> =
        std::iter::from_fn(|| next(&mut reader)).map(|(r, frame)| (r.wire_bytes, frame)).collect();
    assert_eq!(seen, [(100, vec![1; 5]), (3, vec![1; 3])]);
    assert_eq!(reader.counts(2), Counts { captured: 2, filtered: 2, dropped: 0 });
    let short = Interface { number: 1, snaplen: 64, filter: None };
    writer.reserve(&short, NOW, frames.iter().copied()).commit(1);
    assert_eq!(next(&mut reader).expect("a frame").1, [1; 64]);
}

/// What a reader may do to the memory that it has: the writer neither panics nor waits, and every word that it reads is a position.
#[test]
fn a_hostile_reader_harms_itself_alone() {
    let layout = Layout::of_bytes(1 << 20).expect("a size");
    let writer = Writer::new(layout).expect("memory");
    let words = pollux_eal::region::SharedWords::of_file(file(&writer), layout.words()).expect("mapped");
    for tail in [0, 1, u64::MAX, u64::MAX / 2, BLOCKS as u64 + 1, 1 << 63] {
        words.words()[0].store(tail, Ordering::Relaxed);
        for _ in 0..3000 {
            put(&writer, &[&[1; 1000], &[2; 64]]);
        }
    }
    // Everything, while it writes.
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let scribbler = std::thread::spawn(move || {
        let mut seed = 1_u64;
        while !seen.load(Ordering::Relaxed) {
            for word in words.words() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                word.store(seed, Ordering::Relaxed);
            }
        }
    });
    for _ in 0..50_000 {
        put(&writer, &[&[1; 1000], &[2; 64]]);
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().expect("no panic");
}

#[test]
fn a_damaged_ring_is_told_and_not_followed() {
    let (writer, mut reader) = ring();
    let layout = Layout::of_bytes(1 << 20).expect("a size");
    put(&writer, &[b"frame"]);
    let words = pollux_eal::region::SharedWords::of_file(file(&writer), layout.words()).expect("mapped");
    // The lengths of the first record.
    words.words()[layout.words() - BLOCKS * 8 + 1].store(u64::MAX, Ordering::Relaxed);
    let error = reader.next(&mut Vec::new()).expect_err("damaged");
    assert_eq!(error, Damaged { position: 0, bytes: u32::MAX.into() });
}

#[test]
fn a_record_that_its_dead_writer_did_not_finish_is_passed_over() {
    let (writer, mut reader) = ring();
    put(&writer, &[b"one"]);
    // As SIGKILL leaves it: reserved and not stamped.
    std::mem::forget(writer.reserve(&ALL, NOW, [&[2_u8; 500][..]].into_iter()));
    put(&writer, &[b"three"]);
    assert_eq!(next(&mut reader).expect("the first").1, b"one");
    assert!(next(&mut reader).is_none());
    assert!(reader.skip_unfinished());
    assert_eq!(next(&mut reader).expect("the third").1, b"three");
    assert!(next(&mut reader).is_none() && !reader.skip_unfinished());
}

#[test]
fn stress_many_lcores_and_a_slow_reader() {
    const EACH: u32 = 20_000;
    let (writer, mut reader) = ring();
    let writer = Arc::new(writer);
    let lcores: Vec<_> = (0..3_u16)
        .map(|queue| {
            let writer = Arc::clone(&writer);
            std::thread::spawn(move || {
                for number in 0..EACH {
                    let frame = number.to_le_bytes().repeat(1 + number as usize % 60);
                    let passage = Passage { ticks: number.into(), queue, sent: false };
                    let wrong: [&[u8]; 3] = [&[0xee; 700]; 3];
                    if number % 3 == 0 {
                        writer.reserve(&ALL, passage, wrong.iter().copied()).commit(0);
                    }
                    let burst = [&frame[..], wrong[0]];
                    let counts = if number % 2 == 0 { [2, 1] } else { [1, 1] };
                    writer.reserve(&ALL, passage, burst.into_iter().take(counts[0])).commit(counts[1]);
                }
            })
        })
        .collect();
    let mut last = [None; 3];
    let mut seen = 0;
    loop {
        let done = lcores.iter().all(std::thread::JoinHandle::is_finished);
        let before = seen;
        while let Some((record, frame)) = next(&mut reader) {
            let number = record.passage.ticks as u32;
            assert_eq!(frame, number.to_le_bytes().repeat(1 + number as usize % 60));
            let last = &mut last[usize::from(record.passage.queue)];
            assert!(last.is_none_or(|last| last < number), "order of a queue");
            *last = Some(number);
            seen += 1;
            if seen % 64 == 0 {
                reader.release();
            }
        }
        reader.release();
        if done && seen == before {
            break;
        }
    }
    for lcore in lcores {
        lcore.join().expect("no panic");
    }
    let counts = reader.counts(0);
    assert_eq!((counts.captured, counts.captured + counts.dropped), (seen, 3 * u64::from(EACH)));
}

#[test]
fn sizes_are_powers_of_two_within_limits() {
    assert!(
        [0, 1, 1 << 19, (1 << 20) + 1, 3 << 20, 1 << 29, usize::MAX]
            .iter()
            .all(|size| Layout::of_bytes(*size).is_none())
    );
    assert!([1 << 20, 16 << 20, 256 << 20].iter().all(|size| Layout::of_bytes(*size).is_some()));
}
