//! Positions that another process wrote: whatever they are, no call reaches past the slots.
//!
//! A ring is laid in the middle of memory that is otherwise of one known byte, which must stay as it is and must not come out as
//! an element. What a hostile peer can do is give elements that nobody put, and keep a call waiting.

use super::regions::Memory;
use crate::header::Kind;
use crate::{Sink, Source, hts, mpmc, region_bytes, rts, spsc};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CAPACITY: usize = 5;
/// What the slots hold at first, and what is put.
const INSIDE: u64 = 0x5151_5151_5151_5151;
/// What stands around the ring.
const AROUND: u8 = 0xA7;
/// How far a call may go astray and is still seen: more than any call here asks for.
const MARGIN: usize = 4096;
const ASKED: usize = 64;

struct Bed {
    memory: Arc<Memory>,
    bytes: usize,
}

/// Where a side's words are: `head`, `tail` and what it noted of its peer, from the start of the header.
#[derive(Clone, Copy)]
struct Words([usize; 3]);

impl Words {
    fn of(side: usize) -> Words {
        use crate::header::Side;
        Words([offset_of!(Side, head), offset_of!(Side, tail), offset_of!(Side, seen)].map(|at| side + at))
    }
}

impl Bed {
    fn new() -> Bed {
        let bytes = region_bytes::<u64>(CAPACITY).unwrap();
        let memory = Memory::new(bytes + 2 * MARGIN);
        // SAFETY: all of the memory, which nobody else knows yet.
        unsafe { memory.base.write_bytes(AROUND, bytes + 2 * MARGIN) };
        Bed { memory, bytes }
    }

    fn span(&self) -> crate::RegionSpan {
        // SAFETY: the slots, before a ring is laid over them.
        unsafe { self.memory.base.add(MARGIN).cast::<u64>().write_bytes(0x51, self.bytes / 8) };
        self.memory.part(MARGIN, self.bytes)
    }

    fn write(&self, at: usize, value: u64) {
        // SAFETY: a word of the header, which ends access as an atomic, too.
        unsafe { self.memory.base.add(MARGIN + at).cast::<AtomicU64>().as_ref() }
            .store(value, Ordering::Release);
    }

    fn untouched(&self, what: &str) {
        for (from, to) in [(0, MARGIN), (MARGIN + self.bytes, self.bytes + 2 * MARGIN)] {
            // SAFETY: inside the memory, outside the ring.
            let around =
                unsafe { std::slice::from_raw_parts(self.memory.base.as_ptr().add(from), to - from) };
            assert!(around.iter().all(|byte| *byte == AROUND), "{what}: written past the ring");
        }
    }
}

/// Positions that are wrong, beside `at`, where the other side is.
fn wrong(at: u32) -> impl Iterator<Item = u64> {
    let far = [6_u32, 7, 8, 9, 64, 1 << 16, 1 << 31, u32::MAX - 7, u32::MAX];
    far.into_iter().flat_map(move |by| [at.wrapping_add(by), at.wrapping_sub(by)]).flat_map(|position| {
        [0, u64::from(position), u64::from(u32::MAX)].map(|high| high << 32 | u64::from(position))
    })
}

/// An end, as a list of its calls by name, each of which says how many elements it moved.
type Calls<'a, E> = &'a [(&'static str, fn(&mut E) -> usize)];

/// A sink that holds as many as it is asked for.
fn out() -> Vec<u64> {
    Vec::with_capacity(ASKED)
}

fn sound(got: &[u64]) -> usize {
    assert!(got.iter().all(|value| *value == INSIDE), "read past the slots: {got:x?}");
    got.len()
}

/// Runs each call of an end on a ring whose positions are wrong in each way.
///
/// Its own side is where it left it, or at the same strange place as a whole: what it waits for there would else never come. The
/// peer's words, and what is noted of them, are each wrong alone.
fn hold_out<E>(kind: Kind, bed: &Bed, mut make: impl FnMut() -> E, [own, peer]: [usize; 2], calls: Calls<E>) {
    let ([own_head, own_tail, own_seen], [peer_head, peer_tail, _]) = (Words::of(own).0, Words::of(peer).0);
    for (name, call) in calls {
        for place in [0, 3, u32::MAX - 2] {
            for word in wrong(place) {
                for field in [own_seen, peer_head, peer_tail] {
                    let mut end = make();
                    let side = u64::from(place) | if kind == Kind::Hts { u64::from(place) << 32 } else { 0 };
                    for at in [own_head, own_tail, own_seen, peer_head, peer_tail] {
                        bed.write(at, side);
                    }
                    bed.write(field, word);
                    let what = format!("{kind:?} {name}, own side at {place}, {word:#x} at {field}");
                    // Twice: the first may change what the end itself remembers.
                    for _ in 0..2 {
                        let moved = call(&mut end);
                        assert!(moved <= CAPACITY, "{what}: moved {moved} elements");
                        bed.untouched(&what);
                        if field == peer_head {
                            break;
                        }
                    }
                }
            }
        }
    }
}

const PRODUCER: usize = offset_of!(crate::header::Header, producer);
const CONSUMER: usize = offset_of!(crate::header::Header, consumer);

macro_rules! calls {
    (put $end:ty) => {
        &[
            ("enqueue", |end: &mut $end| usize::from(end.enqueue(INSIDE).is_ok())),
            ("enqueue_bulk", |end| end.enqueue_bulk(&[INSIDE; CAPACITY]).count),
            ("enqueue_bulk too large", |end| end.enqueue_bulk(&[INSIDE; ASKED]).count),
            ("enqueue_burst", |end| end.enqueue_burst(&[INSIDE; ASKED]).count),
        ]
    };
    (take $end:ty) => {
        &[
            ("dequeue", |end: &mut $end| sound(&end.dequeue().into_iter().collect::<Vec<_>>())),
            ("dequeue_bulk", |end| {
                let mut out = out();
                let done = end.dequeue_bulk(&mut out, CAPACITY);
                assert_eq!(done.count, out.len());
                sound(&out)
            }),
            ("dequeue_bulk too large", |end| {
                let mut out = out();
                let done = end.dequeue_bulk(&mut out, ASKED);
                assert_eq!(done.count, out.len());
                sound(&out)
            }),
            ("dequeue_burst", |end| {
                let mut out = out();
                let done = end.dequeue_burst(&mut out, ASKED);
                assert_eq!(done.count, out.len());
                sound(&out)
            }),
            ("clear", |end| end.clear()),
            ("count", |end| end.count().max(end.capacity() - end.free())),
        ]
    };
    (put_in_place $end:ty, $some:path) => {
        &[
            ("reserve_bulk", |end: &mut $end| {
                end.reserve_bulk(ASKED).map_or(0, |mut room| {
                    room.push_slice(&[INSIDE; ASKED]);
                    room.finish().count
                })
            }),
            ("reserve_burst", |end| {
                $some(end.reserve_burst(usize::MAX)).map_or(0, |mut room| {
                    room.push_slice(&[INSIDE; ASKED]);
                    assert!(room.finish().free <= CAPACITY);
                    0
                })
            }),
            ("reserve_burst, spans", |end| {
                $some(end.reserve_burst(ASKED)).map_or(0, |mut room| {
                    let (first, second) = room.spans();
                    first.len() + second.len()
                })
            }),
            ("enqueue_iter", |end| end.enqueue_iter([INSIDE; ASKED]).count),
        ]
    };
    (take_in_place $end:ty, $some:path) => {
        &[
            ("peek_bulk", |end: &mut $end| {
                end.peek_bulk(ASKED).map_or(0, |seen| sound(seen.spans().0) + sound(seen.spans().1))
            }),
            ("peek_burst", |end| {
                $some(end.peek_burst(usize::MAX)).map_or(0, |mut seen| {
                    let mut out = out();
                    seen.take_into(&mut out, usize::MAX);
                    assert!(seen.finish().used <= CAPACITY);
                    sound(&out)
                })
            }),
            ("peek_burst, discard", |end| {
                $some(end.peek_burst(ASKED)).map_or(0, |mut seen| seen.discard(ASKED))
            }),
        ]
    };
}

macro_rules! shared_kinds {
    ($($test:ident: $module:ident $kind:expr;)*) => { $(
        #[test]
        fn $test() {
            let bed = Bed::new();
            let make = || $module::in_region::<u64>(bed.span(), CAPACITY).unwrap();
            let put: Calls<$module::Producer<u64>> = calls!(put $module::Producer<u64>);
            hold_out($kind, &bed, || make().0, [PRODUCER, CONSUMER], put);
            let take: Calls<$module::Consumer<u64>> = calls!(take $module::Consumer<u64>);
            hold_out($kind, &bed, || make().1, [CONSUMER, PRODUCER], take);
        }
    )* };
}
shared_kinds! {
    mpmc_holds_out: mpmc Kind::Mpmc;
    rts_holds_out: rts Kind::Rts;
    hts_holds_out: hts Kind::Hts;
}

#[test]
fn hts_in_place_holds_out() {
    let bed = Bed::new();
    let make = || hts::in_region::<u64>(bed.span(), CAPACITY).unwrap();
    let put: Calls<hts::Producer<u64>> = calls!(put_in_place hts::Producer<u64>, std::convert::identity);
    hold_out(Kind::Hts, &bed, || make().0, [PRODUCER, CONSUMER], put);
    let take: Calls<hts::Consumer<u64>> = calls!(take_in_place hts::Consumer<u64>, std::convert::identity);
    hold_out(Kind::Hts, &bed, || make().1, [CONSUMER, PRODUCER], take);
}

/// An SP/SC end remembers where it is; one that attaches later begins where the region says.
#[test]
fn spsc_holds_out() {
    let bed = Bed::new();
    let make = || spsc::in_region::<u64>(bed.span(), CAPACITY).unwrap();
    let put: Calls<spsc::Producer<u64>> = calls!(put spsc::Producer<u64>);
    let put_in_place: Calls<spsc::Producer<u64>> = calls!(put_in_place spsc::Producer<u64>, Some);
    for calls in [put, put_in_place] {
        hold_out(Kind::Spsc, &bed, || make().0, [PRODUCER, CONSUMER], calls);
    }
    let take: Calls<spsc::Consumer<u64>> = calls!(take spsc::Consumer<u64>);
    let take_in_place: Calls<spsc::Consumer<u64>> = calls!(take_in_place spsc::Consumer<u64>, Some);
    for calls in [take, take_in_place] {
        hold_out(Kind::Spsc, &bed, || make().1, [CONSUMER, PRODUCER], calls);
    }
    for word in wrong(0) {
        drop(make());
        bed.write(Words::of(CONSUMER).0[1], word);
        // SAFETY: no other end is left.
        let mut producer =
            unsafe { spsc::attach_producer::<u64>(bed.memory.part(MARGIN, bed.bytes)) }.unwrap();
        assert!(producer.enqueue_burst(&[INSIDE; ASKED]).count <= CAPACITY);
        bed.untouched("attached producer");
        drop(producer);
        // SAFETY: as above.
        let mut consumer =
            unsafe { spsc::attach_consumer::<u64>(bed.memory.part(MARGIN, bed.bytes)) }.unwrap();
        let mut out = out();
        let done = consumer.dequeue_burst(&mut out, ASKED);
        assert_eq!(done.count, out.len());
        assert!(sound(&out) <= CAPACITY);
    }
}

/// So that a test that finds nothing wrong is not one that moves nothing.
#[test]
fn the_sources_and_sinks_here_hold_more_than_a_ring() {
    assert!(Source::<u64>::run(&&[INSIDE; ASKED]).len() > CAPACITY && (&mut out()).room().1 > CAPACITY);
}
