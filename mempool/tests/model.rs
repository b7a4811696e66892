//! Mbufs against a model: a packet is a list of byte strings, whatever its mbufs do.

use pollux_mempool::{Mbuf, MbufPool};
use proptest::prelude::*;

const ROOM: usize = 256;
const HEADROOM: usize = 32;
const COUNT: usize = 64;

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Prepend(usize),
    Adj(usize),
    Trim(usize),
    /// Hangs a new packet of so many bytes behind.
    Chain(usize),
    SplitRest,
    Linearize,
    Clone,
    Copy,
    /// Goes on with another packet, by number.
    Switch(usize),
    Free,
    /// Changes a byte.
    Write(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..200_usize).prop_map(Step::Append),
        (0..40_usize).prop_map(Step::Prepend),
        (0..60_usize).prop_map(Step::Adj),
        (0..60_usize).prop_map(Step::Trim),
        (0..150_usize).prop_map(Step::Chain),
        Just(Step::SplitRest),
        Just(Step::Linearize),
        Just(Step::Clone),
        Just(Step::Copy),
        (0..8_usize).prop_map(Step::Switch),
        Just(Step::Free),
        (0..300_usize).prop_map(Step::Write),
    ]
}

/// A packet and the bytes that it must hold.
struct Packet {
    mbuf: Mbuf,
    bytes: Vec<u8>,
}

impl Packet {
    fn verify(&self) {
        assert_eq!(self.mbuf.check(), Ok(()), "{}", self.mbuf.dump(64));
        assert_eq!(self.mbuf.pkt_len() as usize, self.bytes.len());
        let found: Vec<u8> = self.mbuf.segments().flatten().copied().collect();
        assert_eq!(found, self.bytes);
        assert_eq!(self.mbuf.segments().count(), self.mbuf.segment_count());
        for offset in [0, 1, self.bytes.len() / 2, self.bytes.len()] {
            let mut part = vec![0; 50];
            let count = self.mbuf.read(offset, &mut part);
            let expected = &self.bytes[offset.min(self.bytes.len())..];
            assert_eq!(&part[..count], &expected[..expected.len().min(50)]);
        }
    }
}

fn run(steps: Vec<Step>, debug: bool) {
    let pool = MbufPool::builder("model", COUNT)
        .data_room(ROOM)
        .headroom(HEADROOM)
        .debug(debug)
        .build_anonymous()
        .expect("a small pool");
    let mut packets: Vec<Packet> = Vec::new();
    let mut at = 0;
    let mut next = 0_u8;
    let mut fresh = |count: usize| -> Vec<u8> {
        (0..count)
            .map(|_| {
                next = next.wrapping_add(1);
                next
            })
            .collect()
    };
    for step in steps {
        if packets.is_empty() {
            let Some(mbuf) = pool.alloc() else { panic!("all packets are gone, and the pool is empty") };
            packets.push(Packet { mbuf, bytes: Vec::new() });
        }
        at %= packets.len();
        let packet = &mut packets[at];
        match step {
            Step::Append(count) => {
                let bytes = fresh(count);
                if packet.mbuf.append_slice(&bytes) {
                    packet.bytes.extend(bytes);
                }
            }
            Step::Prepend(count) => {
                let bytes = fresh(count);
                if let Some(front) = packet.mbuf.prepend(count) {
                    front.copy_from_slice(&bytes);
                    packet.bytes.splice(0..0, bytes);
                }
            }
            Step::Adj(count) => {
                let fits = count <= packet.mbuf.data_len();
                assert_eq!(packet.mbuf.adj(count), fits);
                if fits {
                    packet.bytes.drain(..count);
                }
            }
            Step::Trim(count) => {
                if packet.mbuf.trim(count) {
                    packet.bytes.truncate(packet.bytes.len() - count);
                }
            }
            Step::Chain(count) => {
                let Some(mut tail) = pool.alloc() else { continue };
                let bytes = fresh(count);
                assert!(tail.append_slice(&bytes));
                packet.mbuf.chain(tail).expect("few segments");
                packet.bytes.extend(bytes);
            }
            Step::SplitRest => {
                let first = packet.mbuf.data_len();
                let rest = packet.mbuf.split_rest();
                let bytes = packet.bytes.split_off(first);
                match rest {
                    Some(mbuf) => packets.push(Packet { mbuf, bytes }),
                    None => assert!(bytes.is_empty()),
                }
            }
            Step::Linearize => {
                let room = packet.mbuf.room_bytes() - packet.mbuf.headroom();
                let one = packet.mbuf.is_contiguous();
                let may = one || (packet.mbuf.is_sole() && packet.bytes.len() <= room);
                assert_eq!(packet.mbuf.linearize(), may);
                assert!(!may || packet.mbuf.data() == packet.bytes);
            }
            Step::Clone => {
                let before = pool.available();
                if let Some(mbuf) = packet.mbuf.clone_indirect(&pool) {
                    assert!(packet.mbuf.data_mut().is_none());
                    let bytes = packet.bytes.clone();
                    packets.push(Packet { mbuf, bytes });
                } else {
                    assert!(before < packet.mbuf.segment_count());
                    assert_eq!(pool.available(), before, "what a failed clone took came home");
                }
            }
            Step::Copy => {
                let before = pool.available();
                if let Some(mut mbuf) = packet.mbuf.copy(&pool) {
                    assert!(mbuf.data_mut().is_some());
                    let bytes = packet.bytes.clone();
                    packets.push(Packet { mbuf, bytes });
                } else {
                    assert_eq!(pool.available(), before, "what a failed copy took came home");
                }
            }
            Step::Switch(to) => at = to,
            Step::Free => drop(packets.swap_remove(at)),
            Step::Write(offset) => {
                if let Some(byte) = packet.mbuf.data_mut().and_then(|data| data.get_mut(offset)) {
                    *byte = !*byte;
                    packet.bytes[offset] = !packet.bytes[offset];
                }
            }
        }
        // A write that reached a clone would show here.
        packets.iter().for_each(Packet::verify);
    }
    drop(packets);
    assert_eq!(pool.available(), COUNT);
    assert_eq!(pool.audit(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn mbufs_do_as_byte_strings_do(steps in prop::collection::vec(step(), 1..120), debug: bool) {
        run(steps, debug);
    }
}

#[test]
fn a_clone_of_a_clone_shares_the_same_data() {
    let pool = MbufPool::builder("clones", 8).build_anonymous().expect("a small pool");
    let mut first = pool.alloc().expect("a fresh pool");
    assert!(first.append_slice(b"once"));
    let second = first.clone_indirect(&pool).expect("a second");
    let mut third = second.clone_indirect(&pool).expect("a third");
    drop(second);
    assert_eq!(pool.in_use(), 2);
    drop(first);
    assert_eq!(third.data(), b"once");
    third.data_mut().expect("the others are gone")[0] = b'O';
    assert_eq!(third.data(), b"Once");
    drop(third);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn more_clones_than_can_be_counted_are_refused() {
    let pool =
        MbufPool::builder("clones", 70_000).data_room(64).headroom(0).build_anonymous().expect("a pool");
    let mbuf = pool.alloc().expect("a fresh pool");
    let mut clones = Vec::new();
    while let Some(clone) = mbuf.clone_indirect(&pool) {
        clones.push(clone);
    }
    assert_eq!(clones.len(), 65_534);
    assert_eq!(pool.in_use(), 65_535);
    drop(clones);
    assert!(mbuf.is_sole());
}
