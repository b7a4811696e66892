//! Frames spread over receive work queues by hash, and what their completions tell.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_mlx5_model::Model;
use pollux_verbs::{
    Access, Buffers, Context, Cq, CqOptions, Errno, EthFilter, FlowSpec, FlowType, HashFields, HashQp,
    Options, Pd, Piece, Provider, Qp, QpKind, QpOptions, Rule, Wq, WqOptions, WqState, WqTable,
};

use crate::channel::{Refusals, Refusing};
use crate::rig::{End, Rig};

/// The key of the verification suite below.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Source and destination of TCP over IPv4, and the hash over both.
type Flow = ([u8; 4], u16, [u8; 4], u16, u32);

/// Flows with the hash over addresses and ports. Source: Microsoft, "Verifying the RSS Hash
/// Calculation".
const FLOWS: [Flow; 5] = [
    ([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, 0x51cc_c178),
    ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xc626_b0ea),
    ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0x5c2b_394a),
    ([38, 27, 205, 30], 48228, [209, 142, 163, 6], 2217, 0xafc7_327f),
    ([153, 39, 163, 191], 44251, [202, 188, 127, 2], 1303, 0x10e8_28a2),
];

const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn frame(flow: &Flow, tag: Option<u16>) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(TO);
    frame.extend([2, 0, 0, 0, 0, 1]);
    if let Some(tag) = tag {
        frame.extend([0x81, 0]);
        frame.extend(tag.to_be_bytes());
    }
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend(flow.0);
    frame.extend(flow.2);
    frame.extend(flow.1.to_be_bytes());
    frame.extend(flow.3.to_be_bytes());
    // Numbers, header length, ACK, window, no checksum yet, six bytes of data.
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 2, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
    frame
}

/// The Toeplitz hash, bit by bit.
fn toeplitz(input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let window = |at: usize| (at..at + 32).fold(0_u32, |window, at| window << 1 | u32::from(bit(&KEY, at)));
    (0..input.len() * 8).filter(|at| bit(input, *at) == 1).fold(0, |hash, at| hash ^ window(at))
}

/// What the device hashes: addresses, then ports, each as it stands in the frame.
fn hash(flow: &Flow) -> u32 {
    let there = [&flow.0[..], &flow.2, &flow.1.to_be_bytes(), &flow.3.to_be_bytes()].concat();
    assert_eq!(toeplitz(&there), flow.4, "Microsoft's own value");
    flow.4
}

fn tcp_over_ipv4() -> HashFields {
    HashFields::SRC_IPV4 | HashFields::DST_IPV4 | HashFields::SRC_PORT_TCP | HashFields::DST_PORT_TCP
}

fn steer(qp: &mut HashQp, more: &[FlowSpec]) {
    let value = EthFilter { dst_mac: TO, ..EthFilter::default() };
    let mut specs = vec![FlowSpec::Eth {
        value,
        mask: EthFilter { dst_mac: [0xff; 6], ..EthFilter::default() },
        inner: false,
    }];
    specs.extend_from_slice(more);
    qp.steer(&Rule { port: 1, priority: 0, kind: FlowType::NORMAL, specs: &specs }).expect("a rule");
}

fn fill(rig: &Rig, wq: &mut Wq, count: u64) {
    let mut receives = wq.receives();
    for id in 0..count {
        receives.piece(id, rig.far.buffers.take().expect("a buffer"));
    }
    assert_eq!(receives.ring(), Ok(count as u32));
}

fn sender(rig: &Rig) -> End {
    let mut end = rig.near.end(&QpOptions::new(QpKind::Raw).depth(16, 0));
    end.qp.ready_frames().expect("ready");
    end
}

/// Sends a frame whose checksums the device fills in.
fn send(rig: &Rig, end: &mut End, frame: &[u8]) {
    let mut batch = end.qp.batch();
    batch.send(7).checksums().piece(rig.near.buffers.filled(frame).expect("a buffer")).signalled();
    batch.ring().expect("posted");
    rig.completions(&mut end.cq, 1);
}

/// What came to a queue: its number, the hash, the tag of the rule, the VLAN, whether checksums are right, the bytes.
type Came = (u32, u32, u32, Option<u16>, bool, Vec<u8>);

fn came(rig: &Rig, cq: &mut Cq) -> Came {
    let mut all = Vec::new();
    rig.until("frame", || {
        cq.poll(8, |wc| {
            let about = (wc.qpn(), wc.rss_hash(), wc.flow_tag(), wc.vlan(), wc.are_checksums_ok());
            let data = wc.take().map(|piece: Piece| piece.bytes().to_vec()).unwrap_or_default();
            all.push((about.0, about.1, about.2, about.3, about.4, data));
        });
        !all.is_empty()
    });
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// How many buffers are in their pool.
fn home(rig: &Rig) -> usize {
    let all: Vec<_> = std::iter::from_fn(|| rig.far.buffers.take()).collect();
    all.len()
}

/// The ones' complement sum of 16-bit words: all ones where a checksum is right.
fn sum(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    (sum + (sum >> 16)) as u16
}

#[test]
fn frames_go_to_the_queue_that_their_hash_says() {
    let rig = Rig::stepped();
    let mut near = sender(&rig);
    let mut cq = rig.far.cq(64);
    let mut queues: Vec<Wq> =
        (0..4).map(|_| Wq::new(&rig.far.pd, &cq, &WqOptions::new(8)).expect("a queue")).collect();
    for wq in &mut queues {
        wq.modify(WqState::RDY).expect("it receives");
        fill(&rig, wq, 8);
    }
    let table = WqTable::new(&rig.far.pd, &queues.iter().collect::<Vec<_>>()).expect("a table");
    let mut qp = HashQp::new(&table, tcp_over_ipv4(), &KEY).expect("a queue pair");
    steer(&mut qp, &[FlowSpec::Tag(0x1234)]);
    let mut met = [false; 4];
    for flow in &FLOWS {
        let sent = frame(flow, None);
        send(&rig, &mut near, &sent);
        let (number, told, tag, vlan, good, data) = came(&rig, &mut cq);
        let expected = hash(flow);
        let place = expected as usize % 4;
        met[place] = true;
        assert_eq!((number, told), (queues[place].number(), expected), "{flow:?}");
        assert_eq!((tag, vlan, good), (0x1234, None, true));
        // What the device filled in: the header adds up, and the rest is as it was.
        assert_eq!(sum(&data[14..34]), 0xffff);
        assert_eq!((&data[..24], &data[26..50], &data[52..]), (&sent[..24], &sent[26..50], &sent[52..]));
        let pseudo = [&data[26..34], &[0, 6, 0, 26], &data[34..]].concat();
        assert_eq!(sum(&pseudo), 0xffff);
    }
    assert!(met.iter().filter(|met| **met).count() >= 3, "the flows differ: {met:?}");
    rig.is_clean();
}

/// As rdma-core has it, whose flag is of IPv4.
#[test]
fn of_ipv6_nobody_says_that_checksums_are_right() {
    let rig = Rig::stepped();
    let mut near = sender(&rig);
    let mut cq = rig.far.cq(16);
    let mut wq = Wq::new(&rig.far.pd, &cq, &WqOptions::new(8)).expect("a queue");
    wq.modify(WqState::RDY).expect("it receives");
    fill(&rig, &mut wq, 2);
    let table = WqTable::new(&rig.far.pd, &[&wq]).expect("a table");
    let mut qp = HashQp::new(&table, HashFields::empty(), &KEY).expect("a queue pair");
    steer(&mut qp, &[]);
    let (source, to) = ([0xfd; 16], [0xfe; 16]);
    let tcp = frame(&FLOWS[0], None).split_off(34);
    let mut sent = frame(&FLOWS[0], None)[..12].to_vec();
    sent.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, tcp.len() as u8, 6, 64]);
    sent.extend(source);
    sent.extend(to);
    sent.extend(tcp);
    send(&rig, &mut near, &sent);
    let (_, _, _, _, good, data) = came(&rig, &mut cq);
    let pseudo = [&data[22..54], &[0, 6, 0, (data.len() - 54) as u8], &data[54..]].concat();
    assert_eq!((sum(&pseudo), good), (0xffff, false));
}

#[test]
fn tags_of_vlans_are_taken_out_where_that_was_asked_for() {
    for vlan_strip in [false, true] {
        let rig = Rig::stepped();
        let mut near = sender(&rig);
        let mut cq = rig.far.cq(16);
        let options = WqOptions { vlan_strip, ..WqOptions::new(8) };
        let mut wq = Wq::new(&rig.far.pd, &cq, &options).expect("a queue");
        wq.modify(WqState::RDY).expect("it receives");
        fill(&rig, &mut wq, 2);
        let table = WqTable::new(&rig.far.pd, &[&wq]).expect("a table");
        let mut qp = HashQp::new(&table, HashFields::empty(), &KEY).expect("a queue pair");
        steer(&mut qp, &[]);
        send(&rig, &mut near, &frame(&FLOWS[0], Some(0x2005)));
        let (_, _, tag, vlan, _, data) = came(&rig, &mut cq);
        let bare = frame(&FLOWS[0], None).len();
        assert_eq!(
            (tag, vlan, data.len()),
            if vlan_strip { (0, Some(0x2005), bare) } else { (0, None, bare + 4) }
        );
    }
}

#[test]
fn whatever_is_dropped_first_the_table_keeps_its_queues() {
    let rig = Rig::stepped();
    let mut near = sender(&rig);
    let mut cq = rig.far.cq(16);
    let mut wq = Wq::new(&rig.far.pd, &cq, &WqOptions::new(8)).expect("a queue");
    let number = wq.number();
    wq.modify(WqState::RDY).expect("it receives");
    fill(&rig, &mut wq, 8);
    let table = WqTable::new(&rig.far.pd, &[&wq, &wq]).expect("one queue, two places");
    let mut qp = HashQp::new(&table, tcp_over_ipv4(), &KEY).expect("a queue pair");
    steer(&mut qp, &[]);
    drop((wq, table));
    send(&rig, &mut near, &frame(&FLOWS[0], None));
    assert_eq!(came(&rig, &mut cq).0, number);
    let before = home(&rig);
    drop(qp);
    cq.poll(1, |wc| panic!("{wc:?}"));
    // Seven were still posted; they went home with the queue.
    assert_eq!(home(&rig), before + 7);
    rig.is_clean();
}

#[test]
fn a_domain_goes_after_the_queues_that_are_of_it() {
    for table_is_anothers in [false, true] {
        let rig = Rig::stepped();
        let side = &rig.far;
        let before = side.next_handles();
        let cq = side.cq(16);
        let pd = Pd::new(&side.context).expect("a domain");
        let queue = || Wq::new(&pd, &cq, &WqOptions::new(8)).expect("a queue");
        let (wq, alone) = (queue(), queue());
        let of_table = if table_is_anothers { &side.pd } else { &pd };
        let table = WqTable::new(of_table, &[&wq]).expect("a table");
        let qp = HashQp::new(&table, HashFields::empty(), &KEY).expect("a queue pair");
        drop((pd, cq));
        drop((alone, wq, table));
        assert_ne!(side.next_handles(), before, "the queue pair is still there");
        drop(qp);
        assert_eq!(side.next_handles(), before, "the kernel refused to destroy none");
        rig.is_clean();
    }
}

#[test]
fn a_queue_that_is_reset_gives_back_what_was_posted_and_receives_again() {
    let rig = Rig::stepped();
    let mut near = sender(&rig);
    let mut cq = rig.far.cq(16);
    let mut wq = Wq::new(&rig.far.pd, &cq, &WqOptions::new(8)).expect("a queue");
    let count = home(&rig);
    wq.modify(WqState::RDY).expect("it receives");
    fill(&rig, &mut wq, 8);
    wq.modify(WqState::ERR).expect("it fails");
    let error = wq.modify(WqState::RDY).expect_err("not from there");
    assert_eq!(error.errno(), Some(Errno::EINVAL), "{error}");
    wq.modify(WqState::RESET).expect("it is empty");
    // Receives that the device gave back with an error, and those it did not.
    cq.poll(16, |wc| assert!(!wc.is_ok()));
    cq.poll(16, |wc| panic!("{wc:?}"));
    assert_eq!(home(&rig), count);
    wq.modify(WqState::RDY).expect("it receives");
    fill(&rig, &mut wq, 8);
    let table = WqTable::new(&rig.far.pd, &[&wq]).expect("a table");
    let mut qp = HashQp::new(&table, tcp_over_ipv4(), &KEY).expect("a queue pair");
    steer(&mut qp, &[]);
    for flow in &FLOWS {
        send(&rig, &mut near, &frame(flow, None));
        assert_eq!(came(&rig, &mut cq).1, hash(flow));
    }
    rig.is_clean();
}

#[test]
fn what_cannot_be_is_said() {
    let rig = Rig::stepped();
    let cq = rig.far.cq(16);
    let wq = Wq::new(&rig.far.pd, &cq, &WqOptions::new(8)).expect("a queue");
    let error = WqTable::new(&rig.far.pd, &[&wq, &wq, &wq]).expect_err("three").to_string();
    assert!(error.contains("3 places; a power of two"), "{error}");
    let error = Wq::new(&rig.far.pd, &cq, &WqOptions::new(1 << 20)).expect_err("too deep").to_string();
    assert!(error.contains("receive queue depth 1048576; the device allows"), "{error}");
    let table = WqTable::new(&rig.far.pd, &[&wq]).expect("a table");
    let mixed = tcp_over_ipv4() | HashFields::SRC_IPV6;
    assert!(HashQp::new(&table, mixed, &KEY).is_err());
    let mut rc = rig.near.end(&QpOptions::new(QpKind::Rc));
    let mut batch = rc.qp.batch();
    batch.send(1).checksums().signalled();
    assert!(batch.ring().expect_err("no frame").to_string().contains("which frames alone have"));

    let model = Model::builder("plain").stepped().build().expect("a model");
    let refusals = Arc::new(Refusals::default());
    refusals.checksums.store(true, Ordering::Relaxed);
    let channel = Refusing { inner: model.open(), refusals };
    let context = Context::open(Arc::new(channel), Provider::Mlx5, Options::default()).expect("a context");
    let pd = Pd::new(&context).expect("a domain");
    let buffers = Buffers::new(&pd, 8, 2048).expect("buffers");
    let cq = Cq::new(&context, CqOptions::new(16)).expect("a queue");
    let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Raw)).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    qp.ready_frames().expect("ready");
    for fills in [false, true] {
        let mut batch = qp.batch();
        batch.send(1);
        if fills {
            batch.checksums();
        }
        batch.piece(buffers.filled(&frame(&FLOWS[0], None)).expect("a buffer")).signalled();
        match (fills, batch.ring()) {
            (false, done) => done.map(drop).expect("posted"),
            (true, done) => {
                let error = done.expect_err("the device does not").to_string();
                assert!(error.contains("which this device does not do"), "{error}");
            }
        }
    }

    let old = Rig::on(true, |builder| builder.traits(|traits| traits.cqe_version = 0));
    let cq = Cq::new(&old.far.context, CqOptions::new(16)).expect("a queue");
    let error = Wq::new(&old.far.pd, &cq, &WqOptions::new(8)).expect_err("old completions").to_string();
    assert!(error.contains("cqe_version 0"), "{error}");
}
