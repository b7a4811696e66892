//! TCP segments that become one packet, and what their completion says.

use std::time::Duration;

use pollux_mlx5_abi::command::flow::{criteria, destination};
use pollux_mlx5_abi::command::matching::{MatchHeaders, MatchParameters};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::tir::{CreateTirIn, TirContext, merge};
use pollux_mlx5_abi::cqe::{Cqe64, lro};
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::wire::{Cable, Sent, Wire};
use pollux_mlx5_model::{DeviceConfig, Traits};

use super::receive::{arrive, buffer};
use super::rig::{Cq, Hand, Rig, Rq};

/// The sum of RFC 1071.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for pair in parts.concat().chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A segment.
#[derive(Clone, Copy)]
struct Segment {
    source: u8,
    sequence: u32,
    bytes: usize,
    flags: u8,
    ttl: u8,
}

const ACK: u8 = 0x10;
const PUSH: u8 = 0x08;
const FIN: u8 = 0x01;
const HEADERS: usize = 54;

impl Segment {
    fn next(sequence: u32, bytes: usize) -> Self {
        Self { source: 1, sequence, bytes, flags: ACK, ttl: 64 }
    }

    fn payload(&self) -> Vec<u8> {
        (0..self.bytes).map(|at| (self.sequence as usize + at) as u8).collect()
    }

    fn frame(&self) -> Vec<u8> {
        let payload = self.payload();
        let tcp_bytes = (20 + self.bytes) as u16;
        let mut ip =
            [&[0x45, 0][..], &(20 + tcp_bytes).to_be_bytes(), &[0, 1, 0, 0, self.ttl, 6, 0, 0]].concat();
        ip.extend([10, 0, 0, self.source, 10, 0, 0, 99]);
        let checksum = !sum(&[&ip]);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        let mut tcp = [&[4, 0, 0, 80][..], &self.sequence.to_be_bytes()].concat();
        tcp.extend((self.sequence + 7).to_be_bytes());
        tcp.extend([0x50, self.flags]);
        tcp.extend((self.sequence as u16 ^ 0x55).to_be_bytes());
        tcp.extend([0; 4]);
        let checksum = !sum(&[&ip[12..], &[0, 6], &tcp_bytes.to_be_bytes(), &tcp, &payload]);
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        [&[0xff; 6][..], &[2; 6], &[8, 0], &ip, &tcp, &payload].concat()
    }
}

/// A TIR that joins for a queue, for 32 microseconds, up to 4 KiB.
fn joining(rig: &Rig, rq: &Rq) -> u32 {
    rig.tir(|context| {
        TirContext::INLINE_RQN.set(context, rq.number);
        TirContext::PACKET_MERGE_MASK.set(context, merge::IPV4_LRO);
        TirContext::LRO_TIMEOUT_PERIOD_USECS.set(context, 32);
        TirContext::LRO_MAX_IP_PAYLOAD_SIZE.set(context, 16);
    })
}

/// A queue that joins for 32 microseconds, up to 4 KiB, with buffers posted; their addresses.
fn rig() -> (Rig, Clock, Cq, Vec<u64>) {
    let clock = Clock::stepped();
    let rig = Rig::with(DeviceConfig { clock: clock.clone(), ..DeviceConfig::default() });
    let cq = rig.cq(6);
    let mut rq: Rq = rig.rq(6, 4, &cq);
    rig.all_to(joining(&rig, &rq));
    let buffers: Vec<_> = (0..40).map(|_| buffer(&rig, 8192)).collect();
    buffers.iter().for_each(|(_, data)| rq.post(&rig, &[*data]));
    (rig, clock, cq, buffers.into_iter().map(|(at, _)| at).collect())
}

/// All completions: segments, bytes, and the entry.
fn told(rig: &Rig, cq: &mut Cq) -> Vec<(u8, usize, Cqe64)> {
    let entries = std::iter::from_fn(|| cq.poll(rig));
    entries
        .map(|entry| (lro::segments(entry.srqn_uidx.get()), entry.byte_cnt.get() as usize, entry))
        .collect()
}

fn counts(told: &[(u8, usize, Cqe64)]) -> Vec<(u8, usize)> {
    told.iter().map(|(segments, bytes, _)| (*segments, *bytes)).collect()
}

#[test]
fn segments_in_sequence_become_one_packet_when_their_time_is_over() {
    let (rig, clock, mut cq, buffers) = rig();
    let segments =
        [Segment::next(1000, 500), Segment { ttl: 9, ..Segment::next(1500, 100) }, Segment::next(1600, 301)];
    segments.iter().for_each(|segment| arrive(&rig, &segment.frame()));
    assert!(told(&rig, &mut cq).is_empty(), "kept");
    clock.advance(Duration::from_micros(31));
    rig.settle();
    assert!(told(&rig, &mut cq).is_empty(), "kept still");
    clock.advance(Duration::from_micros(2));
    rig.settle();
    let told = told(&rig, &mut cq);
    assert_eq!(counts(&told), [(3, HEADERS + 901)]);
    let entry = &told[0].2;
    let payload: Vec<u8> = segments.iter().flat_map(Segment::payload).collect();
    assert_eq!(
        (entry.lro_min_ttl, entry.lro_ack_seq_num.get(), entry.lro_tcp_win.get()),
        (9, 1607, 1600 ^ 0x55)
    );
    assert_eq!((entry.lro_tcppsh_abort_dupack & lro::PUSH, entry.check_sum.get()), (0, sum(&[&payload])));
    // The first segment's headers, as they came.
    let whole = [&segments[0].frame()[..HEADERS], &payload].concat();
    assert_eq!(rig.read(buffers[0], whole.len()), whole);
}

#[test]
fn what_ends_a_packet_and_what_is_none() {
    let (rig, clock, mut cq, _) = rig();
    let late = |rig: &Rig| {
        clock.advance(Duration::from_micros(33));
        rig.settle();
    };
    let mut check = |segments: &[Segment], want: &[(u8, usize)], wait: bool| {
        segments.iter().for_each(|segment| arrive(&rig, &segment.frame()));
        if wait {
            late(&rig);
        }
        let want: Vec<_> = want.iter().map(|(segments, bytes)| (*segments, HEADERS + bytes)).collect();
        assert_eq!(counts(&told(&rig, &mut cq)), want);
    };
    let (a, b) = (Segment::next(0, 100), Segment::next(100, 100));
    // A push, at once; alone it need not wait.
    check(&[a, Segment { flags: ACK | PUSH, ..b }], &[(2, 200)], false);
    check(&[Segment { flags: ACK | PUSH, ..a }], &[(0, 100)], false);
    // A gap, a repetition, an end: what came before goes first.
    check(&[a, b, Segment::next(300, 100)], &[(2, 200), (0, 100)], true);
    check(&[a, b, b], &[(2, 200), (0, 100)], true);
    check(&[a, b, Segment { flags: ACK | FIN, ..Segment::next(200, 100) }], &[(2, 200), (0, 100)], false);
    // Too little payload, or none.
    check(&[Segment::next(0, 63), Segment::next(63, 0)], &[(0, 63), (0, 0)], false);
    // Flows are apart, and neither waits for the other.
    let of = |source, segment: Segment| Segment { source, ..segment };
    check(&[of(1, a), of(2, a), of(1, b), of(2, b)], &[(2, 200), (2, 200)], true);
    // As long as the TIR says, counted from the TCP header.
    let long: Vec<_> = (0..5).map(|at| Segment::next(at * 1000, 1000)).collect();
    check(&long, &[(4, 4000), (0, 1000)], true);
}

/// On a wire that waits, a queue without a buffer holds up its own segments and no other queue's.
#[test]
fn a_queue_without_a_buffer_holds_up_its_own_segments_alone() {
    let (cable, mut peer) = Cable::pair();
    let clock = Clock::stepped();
    let config = DeviceConfig { clock: clock.clone(), ..DeviceConfig::default() };
    let rig = Rig::on(config, Box::new(cable), Hand::default());
    let (mut dry_cq, mut cq) = (rig.cq(6), rig.cq(7));
    let (mut dry, mut rq) = (rig.rq(6, 4, &dry_cq), rig.rq(7, 4, &cq));
    (0..100).for_each(|_| rq.post(&rig, &[buffer(&rig, 8192).1]));
    // One group address each.
    const ADDRESS: u64 = 0x0100_0000_0000;
    let to = |address: u64| {
        let mut all = MatchParameters::ZERO;
        MatchHeaders::DMAC.set(MatchParameters::OUTER_HEADERS.of_mut(&mut all), address);
        all
    };
    let table = rig.table(0, 4);
    let group = rig.group(table, 0, 1, criteria::OUTER_HEADERS, to(0xffff_ffff_ffff));
    for (index, queue) in [&dry, &rq].into_iter().enumerate() {
        let tir = [(destination::TIR, joining(&rig, queue))];
        rig.entry(table, group, index as u32, to(ADDRESS | index as u64), 0, &tir, &[]).expect("an entry");
    }
    rig.root(table);
    let mut arrive = |queue: u8, segment: Segment| {
        let mut frame = segment.frame();
        frame[..6].copy_from_slice(&(ADDRESS | u64::from(queue)).to_be_bytes()[2..]);
        assert_eq!(peer.send(&frame), Sent::Yes);
        rig.settle();
    };
    let of = |source, segment: Segment| Segment { source, ..segment };
    let (first, second) = (Segment::next(0, 100), Segment::next(100, 100));
    let pushed = Segment { flags: ACK | PUSH, ..second };
    // The oldest session waits for a buffer.
    arrive(0, of(1, first));
    arrive(0, of(1, second));
    clock.advance(Duration::from_micros(33));
    rig.settle();
    assert!(told(&rig, &mut dry_cq).is_empty());
    // Behind it, one that is pushed and one whose time is over.
    arrive(1, of(2, first));
    arrive(1, of(2, pushed));
    assert_eq!(counts(&told(&rig, &mut cq)), [(2, HEADERS + 200)]);
    arrive(1, of(3, first));
    arrive(1, of(3, second));
    clock.advance(Duration::from_micros(33));
    rig.settle();
    assert_eq!(counts(&told(&rig, &mut cq)), [(2, HEADERS + 200)]);
    // More flows than are joined at a time: the oldest gives way that does not wait.
    (4..=67).for_each(|source| arrive(1, of(source, first)));
    assert_eq!(counts(&told(&rig, &mut cq)), [(0, HEADERS + 100)]);
    // It has waited for nothing else but a buffer.
    dry.post(&rig, &[buffer(&rig, 8192).1]);
    rig.settle();
    let told = told(&rig, &mut dry_cq);
    assert_eq!(counts(&told), [(2, HEADERS + 200)]);
    assert_eq!(told[0].2.check_sum.get(), sum(&[&first.payload(), &second.payload()]));
}

#[test]
fn a_wrong_checksum_is_seen_and_passes_alone() {
    let (rig, _, mut cq, _) = rig();
    arrive(&rig, &Segment::next(0, 100).frame());
    let mut spoilt = Segment::next(100, 100).frame();
    spoilt[80] ^= 1;
    arrive(&rig, &spoilt);
    assert_eq!(counts(&told(&rig, &mut cq)), [(0, HEADERS + 100); 2]);
}

#[test]
fn joining_is_refused_where_the_card_lacks_it_or_size_and_time_are_none() {
    let refused = |lro: bool, mask: u32, size: u32, time: u32| {
        let traits = Traits { lro, ..Traits::default() };
        let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
        let rq = rig.rq(4, 4, &rig.cq(4));
        let mut input = CreateTirIn::ZERO;
        let context = CreateTirIn::CTX.of_mut(&mut input);
        TirContext::TRANSPORT_DOMAIN.set(context, rig.td);
        TirContext::INLINE_RQN.set(context, rq.number);
        TirContext::PACKET_MERGE_MASK.set(context, mask);
        TirContext::LRO_MAX_IP_PAYLOAD_SIZE.set(context, size);
        TirContext::LRO_TIMEOUT_PERIOD_USECS.set(context, time);
        rig.command(op::CREATE_TIR, 0, &mut input, 16).err().map(|refused| refused.status)
    };
    let both = merge::IPV4_LRO | merge::IPV6_LRO;
    assert_eq!([8, 16, 32, 1024].map(|time| refused(true, both, 16, time)), [None; 4]);
    assert_eq!(refused(true, 0, 0, 33), None, "of a TIR that joins nothing the time does not count");
    let wrong = [
        (false, both, 16, 32),
        (true, both, 0, 32),
        (true, 4, 16, 32),
        (true, both, 16, 0),
        (true, both, 16, 33),
    ];
    assert_eq!(wrong.map(|(lro, mask, size, time)| refused(lro, mask, size, time)), [Some(3); 5]);
}
