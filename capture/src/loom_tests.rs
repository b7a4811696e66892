//! Every interleaving of lcores that put frames in and the reader, explored by loom: `cargo xtask loom`.

use std::sync::Arc;

use loom::thread;
use pollux_atomic::{AtomicU64, explore};

use crate::ring::{Interface, Layout, Passage, Reader, Words, Writer};

const ALL: Interface = Interface { number: 0, snaplen: 1000, filter: None };

/// A ring of `blocks` blocks; each of the frames here takes one.
fn ring(blocks: usize) -> (Arc<Writer>, Reader) {
    let layout = Layout::of_blocks(blocks);
    let memory = Arc::new(Words((0..layout.words()).map(|_| AtomicU64::new(0)).collect()));
    (Arc::new(Writer::over(memory.clone(), layout)), Reader::over(memory, layout))
}

/// A frame that says twice which it is, so that half of one is seen.
fn put(writer: &Writer, which: u8) {
    let frame = [which; 16];
    let passage = Passage { ticks: which.into(), queue: which.into(), sent: false };
    writer.reserve(&ALL, passage, std::iter::once(&frame[..])).commit(1);
}

/// Looks once; checks what it finds.
fn look(reader: &mut Reader) -> Option<u8> {
    let mut frame = Vec::new();
    let record = reader.next(&mut frame).expect("not damaged")?;
    reader.release();
    let which = frame[0];
    assert_eq!((&frame[..], record.passage.ticks), (&[which; 16][..], which.into()), "half of a frame");
    Some(which)
}

#[test]
fn records_are_whole_when_seen() {
    explore(3, || {
        let (writer, mut reader) = ring(2);
        let other = Arc::clone(&writer);
        let lcore = thread::spawn(move || put(&other, 1));
        let early = look(&mut reader);
        lcore.join().expect("no panic");
        assert_eq!(early.or_else(|| look(&mut reader)), Some(1));
    });
}

#[test]
fn records_are_not_overwritten_while_read() {
    explore(3, || {
        let (writer, mut reader) = ring(1);
        put(&writer, 1);
        let other = Arc::clone(&writer);
        let lcore = thread::spawn(move || put(&other, 2));
        assert_eq!(look(&mut reader), Some(1));
        lcore.join().expect("no panic");
        let second = look(&mut reader);
        let expected = if second.is_some() { (2, 0) } else { (1, 1) };
        let counts = reader.counts(0);
        assert_eq!((counts.captured, counts.dropped), expected);
    });
}

#[test]
fn two_lcores_have_records_of_their_own() {
    explore(3, || {
        let (writer, mut reader) = ring(2);
        let other = Arc::clone(&writer);
        let lcore = thread::spawn(move || put(&other, 1));
        put(&writer, 2);
        lcore.join().expect("no panic");
        let mut seen = [look(&mut reader), look(&mut reader)];
        seen.sort_unstable();
        assert_eq!(seen, [Some(1), Some(2)]);
    });
}

/// A queue that takes one of two frames, or none: what it gives back another lcore may take at once.
#[test]
fn room_that_is_given_back_is_anothers() {
    for taken in [0, 1] {
        explore(3, move || {
            let (writer, mut reader) = ring(4);
            let other = Arc::clone(&writer);
            let lcore = thread::spawn(move || {
                let frames = [[1_u8; 16], [3; 16]];
                let passage = Passage { ticks: 1, queue: 1, sent: true };
                other.reserve(&ALL, passage, frames.iter().map(|frame| &frame[..])).commit(taken);
            });
            let reads = thread::spawn(move || {
                let early = look(&mut reader);
                (reader, early)
            });
            put(&writer, 2);
            lcore.join().expect("no panic");
            let (mut reader, early) = reads.join().expect("no panic");
            let mut seen: Vec<u8> = early.into_iter().collect();
            seen.extend(std::iter::from_fn(|| look(&mut reader)));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2][1 - taken..], "of what one took, and the other's");
            assert_eq!(reader.counts(0).dropped, 0);
        });
    }
}

/// Not a test of its own: `cargo xtask relaxations` asks which relaxations there are.
#[test]
fn relaxations() {
    pollux_atomic::print(crate::order::RELAXATIONS);
}
