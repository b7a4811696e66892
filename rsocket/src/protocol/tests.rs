//! Two ends over a wire that keeps order, each with memory of its own, in any interleaving; and one end against a peer that lies.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::message::{MAP_BYTES, NotRsocket};

/// Where each end's memory is: receive buffer, target SGL and table of maps behind it, what it mapped.
const RING: u64 = 0x1000_0000;
const TABLE: u64 = 0x2000_0000;
const MAPPED: u64 = 0x3000_0000;
const KEY: u32 = 7;
const MAPS: u16 = 3;

/// What is on the way to a peer.
struct Posted {
    id: u64,
    bytes: Vec<u8>,
    address: u64,
    message: Option<Message>,
}

/// An end, its memory, and what it has on the way.
struct End {
    protocol: Protocol,
    ring: Vec<u8>,
    sends: Vec<u8>,
    table: Vec<u8>,
    mapped: Vec<u8>,
    posted: VecDeque<Posted>,
    /// What is there, for the peer to complete.
    arrived: VecDeque<u64>,
}

fn connect_data(sizes: &Sizes, order: Order) -> ConnectData {
    ConnectData {
        order,
        credits: sizes.receives,
        maps: MAPS,
        targets: Sge { address: TABLE, key: KEY, length: TARGETS as u32 },
        buffer: Sge { address: RING, key: KEY, length: sizes.receive_bytes / 2 },
    }
}

impl End {
    fn new(sizes: Sizes, peer: &ConnectData) -> Self {
        let ring = Sge { address: RING, key: KEY, length: sizes.receive_bytes };
        Self {
            protocol: Protocol::new(sizes, ring, MAPS, peer),
            ring: vec![0; sizes.receive_bytes as usize],
            sends: vec![0; sizes.send_bytes as usize],
            table: vec![0; TARGETS * SGE_BYTES + usize::from(MAPS) * MAP_BYTES],
            mapped: vec![0; 64],
            posted: VecDeque::new(),
            arrived: VecDeque::new(),
        }
    }

    fn pair(sizes: [Sizes; 2]) -> [Self; 2] {
        let said = sizes.map(|sizes| connect_data(&sizes, Order::HERE));
        [Self::new(sizes[0], &said[1]), Self::new(sizes[1], &said[0])]
    }

    /// Posts as the transport does: from the send buffer, or along.
    fn post(&mut self, write: &Write, data: &[u8]) {
        let data = &data[..write.bytes];
        if let Place::Ring([first, second]) = &write.place {
            self.sends[first.clone()].copy_from_slice(&data[..first.len()]);
            self.sends[second.clone()].copy_from_slice(&data[first.len()..]);
        }
        self.posted.push_back(Posted {
            id: write.id,
            bytes: match &write.place {
                Place::Inline => data.to_vec(),
                // Read when it leaves: what is overwritten early is seen.
                Place::Ring(_) => Vec::new(),
            },
            address: write.address,
            message: write.message,
        });
        if let Place::Ring(ranges) = &write.place {
            let bytes = ranges.iter().flat_map(|range| self.sends[range.clone()].to_vec()).collect();
            self.posted.back_mut().expect("just posted").bytes = bytes;
        }
    }

    fn send(&mut self, data: &[u8], most: usize) -> usize {
        let Some(write) = self.protocol.data(data.len(), most) else { return 0 };
        assert!(write.bytes > 0 && write.bytes <= data.len().min(most));
        self.post(&write, data);
        write.bytes
    }

    /// What is due beside data.
    fn pump(&mut self) {
        while let Some(update) = self.protocol.credits() {
            let (bytes, address) =
                update.offer.map_or((Vec::new(), 0), |offer| (offer.entry.to_vec(), offer.address));
            self.posted.push_back(Posted {
                id: update.message.0.into(),
                bytes,
                address,
                message: Some(update.message),
            });
        }
        while let Some(message) = self.protocol.control() {
            self.posted.push_back(Posted {
                id: message.0.into(),
                bytes: Vec::new(),
                address: 0,
                message: Some(message),
            });
        }
    }

    /// The memory that a peer names, which has to be one that it may write.
    fn memory(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        let (base, memory) = match address {
            MAPPED.. => (MAPPED, &mut self.mapped),
            TABLE.. => (TABLE, &mut self.table),
            _ => (RING, &mut self.ring),
        };
        let at = (address - base) as usize;
        &mut memory[at..at + bytes]
    }

    /// Takes what the peer posted first.
    fn deliver_from(&mut self, peer: &mut Self) -> bool {
        let Some(posted) = peer.posted.pop_front() else { return false };
        if !posted.bytes.is_empty() {
            self.memory(posted.address, posted.bytes.len()).copy_from_slice(&posted.bytes);
        }
        if let Some(message) = posted.message {
            let heard = self.protocol.heard(message).expect("an honest peer");
            self.look(heard);
        }
        peer.arrived.push_back(posted.id);
        true
    }

    fn look(&mut self, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Targets => {
                let Some(index) = self.protocol.awaited_target() else { return };
                let bytes = &mut self.table[index * SGE_BYTES..][..SGE_BYTES];
                let entry = Sge::decode(bytes.first_chunk().expect("16 bytes"), Order::HERE);
                bytes.fill(0);
                self.protocol.target(entry);
            }
            Heard::Map(index) => {
                let at = TARGETS * SGE_BYTES + usize::from(index) * MAP_BYTES;
                let entry = MapEntry::decode(self.table[at..].first_chunk().expect("24 bytes"), Order::HERE);
                self.protocol.mapped(index, entry);
            }
        }
    }

    fn complete(&mut self) -> bool {
        let Some(id) = self.arrived.pop_front() else { return false };
        self.protocol.completed(id, true);
        true
    }

    fn read(&mut self, bytes: usize) -> Vec<u8> {
        let peeked = self.protocol.read(bytes, true);
        let ranges = self.protocol.read(bytes, false);
        assert_eq!(peeked, ranges);
        ranges.into_iter().flat_map(|range| self.ring[range].to_vec()).collect()
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (5_u16..12, 2_u16..9, 1_u32..200, 1_u32..100, 0_u32..20).prop_map(
        |(sends, receives, send_bytes, half, inline)| {
            // Any sizes go, but a map entry has to fit.
            Sizes { sends, receives, send_bytes: send_bytes.max(24), receive_bytes: 2 * half, inline }
        },
    )
}

/// One step of one end.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize, usize),
    Read(usize),
    Deliver,
    Complete,
    Pump,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        (0_usize..300, 1_usize..300).prop_map(|(bytes, most)| Step::Send(bytes, most)),
        (0_usize..300).prop_map(Step::Read),
        Just(Step::Deliver),
        Just(Step::Complete),
        Just(Step::Pump),
    ];
    (0_usize..2, step)
}

/// The byte of a stream at a place.
fn byte(end: usize, at: usize) -> u8 {
    (at * 31 + at / 251 + end * 101) as u8
}

/// A pair, and how far each stream is: sent and read.
struct Run {
    ends: [End; 2],
    sent: [usize; 2],
    read: [usize; 2],
}

impl Run {
    fn step(&mut self, end: usize, step: Step) -> bool {
        let [one, other] = &mut self.ends;
        let (own, peer) = if end == 0 { (one, other) } else { (other, one) };
        match step {
            Step::Send(bytes, most) => {
                let at = self.sent[end];
                let data: Vec<u8> = (at..at + bytes).map(|at| byte(end, at)).collect();
                let sent = own.send(&data, most);
                self.sent[end] += sent;
                sent > 0
            }
            Step::Read(bytes) => {
                let data = own.read(bytes);
                for (at, found) in (self.read[1 - end]..).zip(&data) {
                    assert_eq!(*found, byte(1 - end, at), "byte {at} from end {}", 1 - end);
                }
                self.read[1 - end] += data.len();
                !data.is_empty()
            }
            Step::Deliver => own.deliver_from(peer),
            Step::Complete => own.complete(),
            Step::Pump => {
                let before = own.posted.len();
                own.pump();
                own.posted.len() > before
            }
        }
    }

    /// Goes on until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for end in 0..2 {
                for step in [Step::Pump, Step::Deliver, Step::Complete, Step::Read(1000)] {
                    moved |= self.step(end, step);
                }
            }
            if !moved {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every byte comes once and in order, whoever is slow; and the streams never get stuck.
    #[test]
    fn streams_arrive(near in sizes(), far in sizes(), steps in prop::collection::vec(step(), 0..600)) {
        let mut run = Run { ends: End::pair([near, far]), sent: [0; 2], read: [0; 2] };
        for (end, step) in steps {
            run.step(end, step);
            for end in &run.ends {
                prop_assert_eq!(end.protocol.state(), State::Open);
                let queued = end.posted.len() + end.arrived.len();
                prop_assert!(queued <= usize::from(near.sends.max(far.sends)), "{} requests", queued);
            }
        }
        run.settle();
        prop_assert_eq!(run.sent, run.read);
        // After that both can send what they like.
        for end in 0..2 {
            let goal = run.sent[end] + 5000;
            let mut rounds = 0;
            while run.sent[end] < goal {
                run.step(end, Step::Send(goal - run.sent[end], 100));
                run.settle();
                rounds += 1;
                prop_assert!(rounds < 6000, "stuck at {} of {}", run.sent[end], goal);
            }
            run.settle();
        }
        prop_assert_eq!(run.sent, run.read);
        prop_assert!(run.ends.iter().all(|end| end.protocol.is_quiet()));
    }

    /// Whatever a peer says: no panic, nothing outside, and what can be read is what it was offered.
    #[test]
    fn lies_do_no_harm(
        own in sizes(),
        private in prop::collection::vec(any::<u8>(), 0..60),
        said in prop::collection::vec((0_u32..8, prop_oneof![0_u32..40, any::<u32>()], any::<[u8; 24]>(), 0_usize..200), 0..200),
    ) {
        let mut private = private;
        if let Some(version) = private.first_mut() {
            *version = 1;
        }
        let peer = match ConnectData::decode(&private) {
            Ok(peer) => peer,
            Err(NotRsocket::Short(bytes)) => { prop_assert!(bytes < ConnectData::BYTES); connect_data(&own, Order::Big) }
            Err(_) => connect_data(&own, Order::Big),
        };
        let mut end = End::new(own, &peer);
        let data = vec![0xaa; 300];
        for (operation, value, bytes, count) in said {
            let room = end.table.len();
            end.table[..MAP_BYTES.min(room)].copy_from_slice(&bytes);
            let before = end.protocol.unread();
            match end.protocol.heard(Message::new(operation, value)) {
                Ok(heard) => end.look(heard),
                Err(_) => prop_assert_eq!(end.protocol.state(), State::Failed),
            }
            prop_assert!(end.protocol.unread() <= own.receive_bytes as usize);
            prop_assert!(end.protocol.unread() >= before);
            end.send(&data, count.max(1));
            if let Some(write) = end.protocol.data_at(value.into(), count, 300) {
                prop_assert!(write.bytes <= count);
                end.post(&write, &data);
            }
            if let Some((write, entry)) = end.protocol.map(value as u16, MapEntry { offset: 0, memory: Sge::default() }) {
                prop_assert_eq!(write.bytes, entry.len());
                end.post(&write, &entry);
            }
            // Each request goes to the peer, whatever it names there.
            end.pump();
            end.read(count);
            while let Some(posted) = end.posted.pop_front() {
                end.protocol.completed(posted.id, value % 50 != 0);
            }
        }
    }

    /// Maps are told, found by offset, and written in their bounds.
    #[test]
    fn maps_are_written_by_offset(near in sizes(), far in sizes(), index in 0_u16..MAPS, offset in any::<u32>(), at in 0_u64..64, bytes in 1_usize..200) {
        let mut ends = End::pair([near, far]);
        let entry = MapEntry { offset: offset.into(), memory: Sge { address: MAPPED, key: KEY, length: 64 } };
        let (write, encoded) = ends[0].protocol.map(index, entry).expect("free requests and credits");
        ends[0].post(&write, &encoded);
        let [near, far] = &mut ends;
        prop_assert!(!far.protocol.is_mapped(offset.into()));
        prop_assert!(far.deliver_from(near) && near.complete());
        let goal = bytes.min(64 - at as usize);
        let data: Vec<u8> = (0..goal).map(|at| byte(0, at)).collect();
        let mut done = 0;
        while done < goal {
            let write = far.protocol.data_at(u64::from(offset) + at + done as u64, goal - done, 50).expect("free requests");
            far.post(&write, &data[done..]);
            prop_assert!(near.deliver_from(far) && far.complete());
            done += write.bytes;
        }
        prop_assert_eq!(&near.mapped[at as usize..][..goal], &data[..]);
        prop_assert!(far.protocol.data_at(u64::from(offset) + 64, 1, 50).is_none());
        prop_assert!(near.protocol.map(MAPS, entry).is_none());
    }
}

const SMALL: Sizes = Sizes { sends: 8, receives: 4, send_bytes: 64, receive_bytes: 32, inline: 8 };

fn run() -> Run {
    Run { ends: End::pair([SMALL; 2]), sent: [0; 2], read: [0; 2] }
}

#[test]
fn one_direction_ends_then_the_other() {
    let mut run = run();
    run.step(0, Step::Send(5, 100));
    run.ends[0].protocol.shut_down(false, true);
    assert!(run.ends[0].protocol.data(1, 1).is_none());
    assert!(!run.ends[0].protocol.is_quiet());
    let [near, far] = &mut run.ends;
    near.pump();
    while far.deliver_from(near) {}
    // What was sent before is read, and no more comes.
    assert!(!far.protocol.is_reading() && far.protocol.is_writing());
    assert_eq!(far.protocol.unread(), 5);
    // The other direction goes on, until it ends too; then both hear it.
    run.step(1, Step::Send(7, 100));
    run.settle();
    assert_eq!((run.sent, run.read), ([5, 7], [5, 7]));
    run.ends[1].protocol.shut_down(false, true);
    run.settle();
    assert_eq!(run.ends.map(|end| end.protocol.state()), [State::Ended; 2]);
}

/// What was sent last has not arrived when the peer ends its direction: it may be lost on the wire, and has to be sent again.
#[test]
fn an_end_of_both_waits_for_what_is_under_way() {
    let mut run = run();
    run.step(0, Step::Send(5, 100));
    for end in &mut run.ends {
        end.protocol.shut_down(false, true);
    }
    let [near, far] = &mut run.ends;
    far.pump();
    near.pump();
    while near.deliver_from(far) {}
    assert_eq!(near.protocol.state(), State::Open);
    assert!(!near.protocol.is_reading() && !near.protocol.is_writing() && !near.protocol.is_quiet());
    while far.deliver_from(near) {}
    while near.complete() {}
    assert_eq!((near.protocol.state(), far.protocol.unread()), (State::Ended, 5));
    // The word itself is owed as well, where no request is free for it.
    let mut run = self::run();
    let [near, far] = &mut run.ends;
    while near.protocol.keepalive().is_some() {}
    near.protocol.shut_down(false, true);
    far.protocol.shut_down(false, true);
    far.pump();
    while near.deliver_from(far) {}
    assert_eq!((near.protocol.state(), near.protocol.is_quiet()), (State::Open, false));
}

#[test]
fn both_directions_end_at_once_and_what_came_is_read() {
    let mut run = run();
    run.step(0, Step::Send(9, 100));
    run.ends[0].protocol.shut_down(true, true);
    let [near, far] = &mut run.ends;
    near.pump();
    while far.deliver_from(near) {}
    assert_eq!((far.protocol.state(), far.protocol.unread()), (State::Ended, 9));
    assert!(far.protocol.data(1, 1).is_none() && far.protocol.credits().is_none());
    assert_eq!(far.read(100).len(), 9);
    while near.complete() {}
    assert!(near.protocol.is_quiet());
    assert_eq!(near.protocol.state(), State::Ended);
}

/// Messages are counted: one of a byte takes a credit as one of many does.
#[test]
fn credits_run_out_and_come_back() {
    let mut run = run();
    let sent = std::iter::from_fn(|| run.step(0, Step::Send(1, 1)).then_some(())).count();
    assert_eq!(sent, 4, "four receives, four requests");
    let [near, far] = &mut run.ends;
    while far.deliver_from(near) {}
    while near.complete() {}
    assert!(!near.protocol.can_send(), "the peer has not read");
    // Credits come when half of them are read.
    far.pump();
    while near.deliver_from(far) {}
    assert!(!near.protocol.can_send());
    assert_eq!(far.read(2).len(), 2);
    far.pump();
    while near.deliver_from(far) {}
    assert!(near.protocol.can_send());
}

#[test]
fn what_is_against_the_protocol_is_told() {
    let mut end = End::pair([SMALL; 2]).into_iter().next().expect("two");
    let mut heard = |operation, value| {
        let end = &mut end.protocol;
        end.state = State::Open;
        end.heard(Message::new(operation, value)).expect_err("a violation").to_string()
    };
    assert_eq!(heard(operation::DATA, 17), "17 bytes of data where 16 were offered");
    assert_eq!(heard(operation::MAP, 3), "map 3 of 3");
    assert_eq!(heard(operation::CONTROL, 3), "message 0xe0000003, whose operation is reserved");
    assert_eq!(heard(1, 0), "message 0x20000000, whose operation is reserved");
    end.protocol.state = State::Open;
    for _ in 0..4 {
        end.protocol.heard(Message::new(operation::DATA, 1)).expect("there is a credit");
    }
    let line = end.protocol.heard(Message::new(operation::DATA, 1)).expect_err("none is left").to_string();
    assert_eq!(line, "more than 4 data messages without credits");
    assert_eq!(end.protocol.state(), State::Failed);
}
