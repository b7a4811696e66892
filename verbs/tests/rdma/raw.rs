//! Frames through raw queue pairs: steered to by rules, sent as they are.

use pollux_verbs::{
    Access, Buf, EthFilter, FlowSpec, FlowType, Mr, QpKind, QpOptions, QpState, Rule, RuleId, TcpUdpFilter,
    WcOpcode, WcStatus,
};

use crate::rig::{End, Rig};

const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A frame of UDP over IPv4 to a port; no checksum is looked at on the way.
fn frame(to: [u8; 6], port: u16, fill: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(to);
    frame.extend(NEAR);
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(1000_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.resize(60, fill);
    frame
}

fn to_mac(mac: [u8; 6]) -> FlowSpec {
    let value = EthFilter { dst_mac: mac, ..EthFilter::default() };
    FlowSpec::Eth { value, mask: EthFilter { dst_mac: [0xff; 6], ..EthFilter::default() }, inner: false }
}

fn to_port(port: u16) -> FlowSpec {
    let value = TcpUdpFilter { dst_port: port.into(), ..TcpUdpFilter::default() };
    let mask = TcpUdpFilter { dst_port: 0xffff.into(), ..TcpUdpFilter::default() };
    FlowSpec::Udp { value, mask, inner: false }
}

fn steer(end: &mut End, kind: FlowType, specs: &[FlowSpec]) -> RuleId {
    end.qp.steer(&Rule { port: 1, priority: 0, kind, specs }).expect("a rule")
}

fn buffers(rig: &Rig, count: usize) -> Vec<Buf> {
    (0..count).map(|_| rig.far.buffers.take().expect("a buffer")).collect()
}

fn ready(rig: &Rig, end: &mut End, receives: usize) {
    end.qp.ready_frames().expect("RTS");
    let mut list = end.qp.receives().expect("its own");
    for (id, buf) in buffers(rig, receives).into_iter().enumerate() {
        list.piece(id as u64, buf);
    }
    list.ring().expect("posted");
}

fn send(rig: &Rig, end: &mut End, frame: &[u8], inline: bool) {
    let mut batch = end.qp.batch();
    if inline {
        batch.send(7).inline(frame).signalled();
    } else {
        batch.send(7).piece(rig.near.buffers.filled(frame).expect("a buffer")).signalled();
    }
    batch.ring().expect("posted");
    let done = rig.completions(&mut end.cq, 1);
    assert!(done[0].status.to_string().contains("success"), "{done:?}");
}

fn nothing(rig: &Rig, end: &mut End) {
    for _ in 0..50 {
        rig.turn();
    }
    assert_eq!(end.cq.poll(8, |wc| panic!("{wc:?}")), 0);
}

#[test]
fn frames_go_to_the_queue_pair_whose_rule_they_match() {
    let rig = Rig::stepped();
    let options = QpOptions::new(QpKind::Raw).depth(16, 16).inline(100);
    let mut near = rig.near.end(&options);
    ready(&rig, &mut near, 0);
    let (mut one, mut two) = (rig.far.end(&options), rig.far.end(&options));
    let by_mac = steer(&mut one, FlowType::NORMAL, &[to_mac(FAR)]);
    ready(&rig, &mut one, 8);
    ready(&rig, &mut two, 8);

    for inline in [false, true] {
        let sent = frame(FAR, 5000, 0xa5);
        send(&rig, &mut near, &sent, inline);
        let got = rig.completions(&mut one.cq, 1);
        assert_eq!(got[0].data(), sent);
        // The completion names the queue pair, though its receive queue has a number of its own.
        assert_eq!((got[0].qpn, got[0].opcode), (one.qp.qpn(), WcOpcode::RECV));
    }
    // Nobody asked for these.
    send(&rig, &mut near, &frame([2, 0, 0, 0, 0, 9], 5000, 1), false);
    nothing(&rig, &mut one);
    nothing(&rig, &mut two);

    // A rule that says more goes before one that says less, by priority as given.
    one.qp.unsteer(by_mac).expect("it was there");
    assert!(
        one.qp.unsteer(by_mac).expect_err("it is gone").to_string().contains("none of this queue pair's")
    );
    steer(&mut one, FlowType::NORMAL, &[to_mac(FAR), to_port(5000)]);
    steer(&mut two, FlowType::NORMAL, &[to_mac(FAR), to_port(5001)]);
    for (port, end) in [(5001, &mut two), (5000, &mut one)] {
        let sent = frame(FAR, port, 3);
        send(&rig, &mut near, &sent, false);
        assert_eq!(rig.completions(&mut end.cq, 1)[0].data(), sent, "{port}");
    }
    nothing(&rig, &mut one);

    // What no rule takes.
    steer(&mut two, FlowType::ALL_DEFAULT, &[]);
    let stray = frame([2, 0, 0, 0, 0, 9], 1, 4);
    send(&rig, &mut near, &stray, false);
    assert_eq!(rig.completions(&mut two.cq, 1)[0].data(), stray);
    nothing(&rig, &mut one);
    rig.is_clean();
}

#[test]
fn rules_go_with_their_queue_pair() {
    let rig = Rig::stepped();
    let options = QpOptions::new(QpKind::Raw).depth(16, 16);
    let mut near = rig.near.end(&options);
    ready(&rig, &mut near, 0);
    for _ in 0..3 {
        // With the same match each time: one that was left behind would take the frames.
        let mut far = rig.far.end(&options);
        steer(&mut far, FlowType::NORMAL, &[to_mac(FAR)]);
        ready(&rig, &mut far, 2);
        let sent = frame(FAR, 1, 9);
        send(&rig, &mut near, &sent, false);
        assert_eq!(rig.completions(&mut far.cq, 1)[0].data(), sent);
        assert_eq!(far.qp.state(), QpState::RTS);
    }
    let mut sniffer = rig.far.end(&options);
    let rule = Rule { port: 1, priority: 0, kind: FlowType::SNIFFER, specs: &[] };
    assert_eq!(
        sniffer.qp.steer(&rule).expect_err("no such table").errno(),
        Some(pollux_verbs::Errno::EOPNOTSUPP)
    );
    let mut datagram = rig.far.end(&QpOptions::new(QpKind::Ud));
    let rule = Rule { port: 1, priority: 0, kind: FlowType::NORMAL, specs: &[to_mac(FAR)] };
    assert_eq!(datagram.qp.steer(&rule).expect_err("no frames").errno(), Some(pollux_verbs::Errno::EINVAL));
    rig.is_clean();
}

/// How a frame is handed over.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In buffers of these lengths, and a last one.
    Buffers(&'static [usize]),
    /// In a region.
    Region,
    /// In the entry.
    Inline,
}

#[test]
fn a_card_that_wants_headers_in_entries_gets_them() {
    let old = |traits: &mut pollux_mlx5_model::Traits| {
        (traits.needs_inline_l2, traits.enhanced_multi_packet) = (true, false);
    };
    let rig = Rig::on(true, |builder| builder.traits(old));
    let options = QpOptions::new(QpKind::Raw).depth(16, 16).pieces(4, 1).inline(100);
    let (mut near, mut far) = (rig.near.end(&options), rig.far.end(&options));
    steer(&mut far, FlowType::NORMAL, &[to_mac(FAR)]);
    ready(&rig, &mut near, 0);
    ready(&rig, &mut far, 0);
    let mr = Mr::allocate(&rig.near.pd, 4096, Access::LOCAL_WRITE).expect("memory");
    let ways = [
        Way::Buffers(&[]),
        Way::Buffers(&[18]),
        Way::Buffers(&[1, 1, 17]),
        Way::Buffers(&[5, 12]),
        Way::Region,
        Way::Inline,
    ];
    // Often enough to go round the ring, an entry of two blocks over its end too.
    for (turn, way) in ways.iter().cycle().enumerate().take(120) {
        let checksums = turn / ways.len() % 3;
        let sent = frame(FAR, 5000, turn as u8);
        let mut receives = far.qp.receives().expect("its own");
        receives.piece(1, rig.far.buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
        let mut batch = near.qp.batch();
        batch.send(7);
        if checksums == 1 {
            batch.checksums();
        }
        match way {
            Way::Buffers(lengths) => {
                let mut rest = &sent[..];
                for length in lengths.iter().copied().chain([usize::MAX]) {
                    let (piece, behind) = rest.split_at(length.min(rest.len()));
                    batch.piece(rig.near.buffers.filled(piece).expect("a buffer"));
                    rest = behind;
                }
            }
            Way::Region => {
                mr.write(77, &sent);
                batch.mr(&mr, 77..77 + sent.len());
            }
            Way::Inline => {
                batch.inline(&sent);
            }
        }
        if checksums == 2 {
            batch.checksums();
        }
        batch.signalled();
        batch.ring().expect("posted");
        let done = rig.completions(&mut near.cq, 1);
        assert_eq!(done[0].status, WcStatus::SUCCESS, "{way:?}");
        let got = rig.completions(&mut far.cq, 1)[0].data();
        let mut expected = sent;
        if checksums > 0 {
            // Those of IPv4 and UDP, which were zeros.
            assert!(got[24..26] != [0, 0] && got[40..42] != [0, 0], "{way:?}");
            expected[24..26].copy_from_slice(&got[24..26]);
            expected[40..42].copy_from_slice(&got[40..42]);
        }
        assert_eq!(got, expected, "{way:?}");
    }
    for inline in [false, true] {
        let mut batch = near.qp.batch();
        batch.send(1);
        if inline {
            batch.inline(&[1; 17]);
        } else {
            batch.piece(rig.near.buffers.filled(&[1; 17]).expect("a buffer"));
        }
        batch.send(2).inline(&frame(FAR, 5000, 0)).signalled();
        let error = batch.ring().expect_err("too short").to_string();
        assert!(error.contains("less than 18 bytes"), "{error}");
    }
    rig.is_clean();
}
