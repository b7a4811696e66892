//! Sniffers: rules that get a copy of all that a port receives and sends, whoever takes or sends it.

use pollux_mlx5_model::Model;
use pollux_verbs::{Errno, FlowType, Mr, QpKind, QpOptions, QpState, Rule, RuleId, WcStatus};

use crate::rig::{End, Rig, Side, all_rights};

fn sniffing(on: bool) -> Rig {
    Rig::on(true, |builder| builder.traits(|traits| traits.sniffer = on))
}

fn rule(end: &mut End) -> Result<RuleId, pollux_verbs::VerbsError> {
    end.qp.steer(&Rule { port: 1, priority: 0, kind: FlowType::SNIFFER, specs: &[] })
}

/// A raw queue pair of the near card, with so many receives.
fn raw(rig: &Rig, receives: usize) -> End {
    let mut end = rig.near.end(&QpOptions::new(QpKind::Raw).depth(4, 32).inline(100));
    end.qp.ready_frames().expect("RTS");
    post(rig, &mut end, receives);
    end
}

fn post(rig: &Rig, end: &mut End, receives: usize) {
    let mut list = end.qp.receives().expect("its own");
    for id in 0..receives {
        list.piece(id as u64, rig.near.buffers.take().expect("a buffer"));
    }
    list.ring().expect("posted");
}

/// What the sniffer has seen: of frames of RoCE the BTH's opcode.
fn seen(rig: &Rig, sniffer: &mut End, count: usize) -> Vec<u8> {
    let done = rig.completions(&mut sniffer.cq, count);
    done.iter()
        .map(|wc| {
            assert_eq!((wc.status, wc.qpn), (WcStatus::SUCCESS, sniffer.qp.qpn()));
            let frame = wc.data();
            // Ethernet, IPv4 or IPv6 and UDP.
            let udp = if frame[12..14] == [8, 0] { 34 } else { 54 };
            assert_eq!(frame[udp + 2..udp + 4], 4791_u16.to_be_bytes(), "{frame:02x?}");
            frame[udp + 8]
        })
        .collect()
}

fn write(rig: &Rig, near: &mut End, mr: &Mr) {
    let mut batch = near.qp.batch();
    batch.write(1, mr.address(), mr.rkey()).inline(b"sniffed").signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
}

/// BTH opcodes of RC: a write that is one packet, and its acknowledgement.
const WRITE_ONLY: u8 = 0x0a;
const ACKNOWLEDGE: u8 = 0x11;

#[test]
fn a_sniffer_sees_what_the_card_sends_and_receives_by_itself() {
    let rig = sniffing(true);
    let (mut near, far) = rig.pair(&QpOptions::new(QpKind::Rc).inline(16));
    let mr = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let mut sniffer = raw(&rig, 16);
    write(&rig, &mut near, &mr);
    let by = rule(&mut sniffer).expect("a rule");
    for _ in 0..3 {
        write(&rig, &mut near, &mr);
        assert_eq!(seen(&rig, &mut sniffer, 2), [WRITE_ONLY, ACKNOWLEDGE]);
    }
    // Two sniffers each get a copy.
    let mut second = raw(&rig, 4);
    let another = rule(&mut second).expect("a rule");
    write(&rig, &mut near, &mr);
    for sniffer in [&mut sniffer, &mut second] {
        assert_eq!(seen(&rig, sniffer, 2), [WRITE_ONLY, ACKNOWLEDGE]);
    }
    second.qp.unsteer(another).expect("it was there");
    write(&rig, &mut near, &mr);
    assert_eq!(seen(&rig, &mut sniffer, 2), [WRITE_ONLY, ACKNOWLEDGE]);
    assert_eq!(second.cq.poll(8, |wc| panic!("{wc:?}")), 0);
    // It holds up nobody where it has no buffer, and sees the next ones.
    for _ in 0..8 {
        write(&rig, &mut near, &mr);
    }
    let left = 16 - 5 * 2;
    assert_eq!(seen(&rig, &mut sniffer, left).len(), left);
    post(&rig, &mut sniffer, 2);
    write(&rig, &mut near, &mr);
    assert_eq!(seen(&rig, &mut sniffer, 2), [WRITE_ONLY, ACKNOWLEDGE]);
    sniffer.qp.unsteer(by).expect("it was there");
    post(&rig, &mut sniffer, 2);
    write(&rig, &mut near, &mr);
    assert_eq!(sniffer.cq.poll(8, |wc| panic!("{wc:?}")), 0);
    assert_eq!(far.qp.state(), QpState::RTS);
}

/// Frames that a rule of another takes, and such that nobody does; each comes to both, once, also where the taker has no buffer yet.
#[test]
fn a_sniffer_takes_nothing_from_others() {
    let rig = sniffing(true);
    let options = QpOptions::new(QpKind::Raw).depth(16, 16).inline(100);
    let mut far = rig.far.end(&options);
    far.qp.ready_frames().expect("RTS");
    let mut taker = raw(&rig, 0);
    taker.qp.steer(&Rule { port: 1, priority: 0, kind: FlowType::ALL_DEFAULT, specs: &[] }).expect("a rule");
    let mut sniffer = raw(&rig, 16);
    rule(&mut sniffer).expect("a rule");
    let frame = [[2; 12].as_slice(), &[0x88, 0xb5], &[7; 50]].concat();
    let mut batch = far.qp.batch();
    batch.send(1).inline(&frame).signalled();
    batch.ring().expect("posted");
    rig.completions(&mut far.cq, 1);
    for _ in 0..50 {
        rig.turn();
    }
    post(&rig, &mut taker, 2);
    assert_eq!(rig.completions(&mut taker.cq, 1)[0].data(), frame);
    assert_eq!(rig.completions(&mut sniffer.cq, 1)[0].data(), frame);
    // What it sends itself it sees too.
    let mut batch = sniffer.qp.batch();
    batch.send(2).inline(&frame).signalled();
    batch.ring().expect("posted");
    let done = rig.completions(&mut sniffer.cq, 2);
    assert!(done.iter().any(|wc| wc.id == 2) && done.iter().any(|wc| !wc.pieces.is_empty()), "{done:?}");
    for _ in 0..50 {
        rig.turn();
    }
    assert_eq!(sniffer.cq.poll(8, |wc| panic!("{wc:?}")), 0);
}

/// On wires that have a frame whenever it is asked for, and on such that have a few from the beginning.
#[test]
fn a_sniffer_alone_gets_what_nobody_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let stored = folder.path().join("in.pcap");
    // Two frames of 60 bytes, in the oldest form of a capture. Source: draft-ietf-opsawg-pcap.
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut capture = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1]);
    for fill in [1, 2] {
        capture.extend(words(&[0, 0, 60, 60]));
        capture.extend([fill; 60]);
    }
    std::fs::write(&stored, capture).expect("written");
    let out = folder.path().join("out.pcap");
    for (wire, count) in
        [("source:64".to_owned(), 32), (format!("pcap:{}:{}", stored.display(), out.display()), 2)]
    {
        let builder = Model::builder("alone").wire(wire.parse().expect("a wire")).stepped();
        let model = builder.traits(|traits| traits.sniffer = true).build().expect("a model");
        let side = Side::new(model);
        let mut sniffer = side.end(&QpOptions::new(QpKind::Raw).depth(4, 32));
        sniffer.qp.ready_frames().expect("RTS");
        let mut list = sniffer.qp.receives().expect("its own");
        for id in 0..32 {
            list.piece(id, side.buffers.take().expect("a buffer"));
        }
        list.ring().expect("posted");
        rule(&mut sniffer).expect("a rule");
        let mut seen = 0;
        for _ in 0..100_000 {
            side.model.step();
            seen += sniffer.cq.poll(64, |wc| assert_eq!(wc.status(), WcStatus::SUCCESS));
            if seen >= count {
                break;
            }
        }
        assert_eq!(seen, count, "{wire}");
    }
}

#[test]
fn a_card_without_sniffers_refuses_the_rule() {
    let rig = sniffing(false);
    let mut sniffer = raw(&rig, 0);
    assert_eq!(rule(&mut sniffer).expect_err("no such table").errno(), Some(Errno::EOPNOTSUPP));
}
