//! Frames that the card cuts into packets: what is on the wire, byte by byte, and what is not posted.

use pollux_verbs::{
    Access, EthFilter, FlowSpec, FlowType, Mr, PostError, QpKind, QpOptions, Rule, VerbsError, WcOpcode,
    WcStatus,
};

use crate::rig::{End, Rig, pattern};

const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Where the sequence numbers begin: they soon wrap.
const SEQUENCE: u32 = 0xffff_fa00;
/// Identification of the first packet of IPv4; it soon wraps.
const ID: u16 = 0xfffe;

const CWR: u8 = 0x80;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;

/// The headers of a frame of TCP.
#[derive(Clone, Copy, Debug)]
struct Shape {
    tagged: bool,
    v6: bool,
    /// Bytes of TCP options: a multiple of 4, 40 at most.
    options: usize,
}

impl Shape {
    fn ip_at(self) -> usize {
        if self.tagged { 18 } else { 14 }
    }

    fn tcp_at(self) -> usize {
        self.ip_at() + if self.v6 { 40 } else { 20 }
    }

    fn bytes(self) -> usize {
        self.tcp_at() + 20 + self.options
    }

    /// With lengths and checksums that only the card can know left out, as Linux' and DPDK's drivers leave them.
    fn header(self) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend(FAR);
        header.extend(NEAR);
        if self.tagged {
            header.extend([0x81, 0, 0, 5]);
        }
        if self.v6 {
            header.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64]);
            header.extend((1..=32).map(|byte| byte ^ 0x20));
        } else {
            header.extend([8, 0, 0x45, 0, 0, 0]);
            header.extend(ID.to_be_bytes());
            header.extend([0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        header.extend(1000_u16.to_be_bytes());
        header.extend(2000_u16.to_be_bytes());
        header.extend(SEQUENCE.to_be_bytes());
        header.extend(0x0102_0304_u32.to_be_bytes());
        // The offset of the data counts words, in the upper half of its byte.
        header.extend([((20 + self.options) * 4) as u8, CWR | ACK | PSH | FIN, 0x20, 0, 0, 0, 0, 0]);
        header.extend(std::iter::repeat_n(1, self.options));
        assert_eq!(header.len(), self.bytes());
        header
    }

    /// What is on the wire: each packet as its sender would have made it. RFC 9293, section 3.1; RFC 8200, section 8.1; RFC 3168,
    /// section 6.1.2, of CWR.
    fn packets(self, payload: &[u8], mss: usize) -> Vec<Vec<u8>> {
        let (ip, tcp) = (self.ip_at(), self.tcp_at());
        let count = payload.len().div_ceil(mss);
        let packet = |(index, data): (usize, &[u8])| {
            let mut packet = self.header();
            packet.extend(data);
            let length = packet.len();
            if self.v6 {
                packet[ip + 4..ip + 6].copy_from_slice(&((length - tcp) as u16).to_be_bytes());
            } else {
                packet[ip + 2..ip + 4].copy_from_slice(&((length - ip) as u16).to_be_bytes());
                packet[ip + 4..ip + 6].copy_from_slice(&ID.wrapping_add(index as u16).to_be_bytes());
                let sum = checksum(&packet[ip..tcp], 0);
                packet[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
            }
            let sequence = SEQUENCE.wrapping_add((index * mss) as u32);
            packet[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut packet[tcp + 13];
            *flags &= if index == 0 { !0 } else { !CWR };
            *flags &= if index + 1 == count { !0 } else { !(PSH | FIN) };
            let addresses = if self.v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
            let pseudo = words(&packet[addresses]) + 6 + (length - tcp) as u64;
            let sum = checksum(&packet[tcp..], pseudo);
            packet[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
            // No frame is shorter on the wire (IEEE 802.3, section 3.2.8).
            packet.resize(length.max(60), 0);
            packet
        };
        payload.chunks(mss).enumerate().map(packet).collect()
    }
}

fn words(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum()
}

/// The Internet checksum, RFC 1071.
fn checksum(bytes: &[u8], more: u64) -> u16 {
    let mut sum = words(bytes) + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn options(tso_header: u32) -> QpOptions {
    QpOptions::new(QpKind::Raw).depth(4, 64).pieces(4, 1).inline(60).tso_header(tso_header)
}

/// Both ends of frames: one sends, the other has all that comes.
fn ends(rig: &Rig, near: &QpOptions) -> (End, End) {
    let (mut near, mut far) = (rig.near.end(near), rig.far.end(&options(0)));
    let value = EthFilter { dst_mac: FAR, ..EthFilter::default() };
    let mask = EthFilter { dst_mac: [0xff; 6], ..EthFilter::default() };
    let specs = &[FlowSpec::Eth { value, mask, inner: false }];
    far.qp.steer(&Rule { port: 1, priority: 0, kind: FlowType::NORMAL, specs }).expect("a rule");
    near.qp.ready_frames().expect("RTS");
    far.qp.ready_frames().expect("RTS");
    (near, far)
}

fn receive(rig: &Rig, far: &mut End, count: usize) {
    let mut receives = far.qp.receives().expect("its own");
    for id in 0..count {
        receives.piece(id as u64, rig.far.buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
}

fn arrived(rig: &Rig, far: &mut End, count: usize) -> Vec<Vec<u8>> {
    rig.completions(&mut far.cq, count).iter().map(|done| done.data()).collect()
}

/// Sends one and compares what came of it.
fn cut(rig: &Rig, near: &mut End, far: &mut End, shape: Shape, pieces: &[usize], mss: u16, mr: &Mr) {
    let bytes = pieces.iter().sum::<usize>();
    let payload = pattern(bytes, (bytes + shape.bytes()) as u64);
    let expected = shape.packets(&payload, mss.into());
    receive(rig, far, expected.len());
    let (mut batch, mut rest) = (near.qp.batch(), &payload[..]);
    batch.send_tso(7, &shape.header(), mss);
    for (turn, length) in pieces.iter().enumerate() {
        let (piece, behind) = rest.split_at(*length);
        // A region and buffers in turn.
        if turn % 2 == 0 {
            let at = bytes - rest.len();
            mr.write(at, piece);
            batch.mr(mr, at..at + length);
        } else {
            batch.piece(rig.near.buffers.filled(piece).expect("a buffer"));
        }
        rest = behind;
    }
    batch.signalled();
    assert_eq!(batch.ring(), Ok(1));
    let done = rig.completions(&mut near.cq, 1).remove(0);
    assert_eq!((done.id, done.status, done.opcode), (7, WcStatus::SUCCESS, WcOpcode::TSO), "{shape:?}");
    let got = arrived(rig, far, expected.len());
    for (index, (got, expected)) in got.iter().zip(&expected).enumerate() {
        assert_eq!(got, expected, "{shape:?}, {pieces:?} by {mss}, packet {index}");
    }
}

/// Sends a frame as it is.
fn send_plain(rig: &Rig, near: &mut End, frame: &[u8]) {
    let mut batch = near.qp.batch();
    batch.send(1).piece(rig.near.buffers.filled(frame).expect("a buffer")).signalled();
    assert_eq!(batch.ring(), Ok(1));
    assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
}

fn shapes() -> impl Iterator<Item = Shape> {
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    // Headers of 54 to 118 bytes: among them 66, 82, 98 and 114, which end with a segment of the entry, and their neighbours.
    kinds
        .into_iter()
        .flat_map(|(tagged, v6)| (0..=40).step_by(4).map(move |options| Shape { tagged, v6, options }))
}

#[test]
fn a_frame_is_on_the_wire_as_packets_that_are_right_in_every_byte() {
    let rig = Rig::stepped();
    let (mut near, mut far) = ends(&rig, &options(118));
    let mr = Mr::allocate(&rig.near.pd, 20_000, Access::LOCAL_WRITE).expect("memory");
    // One packet, shorter or as long as may be; the last one short, or by a byte; many, from pieces of any length, some without bytes.
    let ways: [(&[usize], u16); 9] = [
        (&[1], 1400),
        (&[1399], 1400),
        (&[1400], 1400),
        (&[1400, 1], 1400),
        (&[700, 700, 1400], 1400),
        (&[3, 0, 4997, 1], 1000),
        (&[8001, 33, 5000, 7], 1337),
        (&[17, 40, 1], 1),
        (&[0, 40, 33], 8),
    ];
    // The ring has room for 4 of the longest, so that entries of one to four blocks go over its end at every place.
    for (turn, shape) in shapes().enumerate() {
        for (pieces, mss) in ways.iter().cycle().skip(turn).take(4) {
            // No more packets than receives.
            let total: usize = pieces.iter().sum();
            assert!(total.div_ceil((*mss).into()) <= 64);
            cut(&rig, &mut near, &mut far, shape, pieces, *mss, &mr);
        }
    }
    rig.is_clean();
}

#[test]
fn a_ring_full_of_the_longest_frames_holds_them_all() {
    let rig = Rig::stepped();
    let (mut near, mut far) = ends(&rig, &options(114));
    let shape = Shape { tagged: false, v6: true, options: 40 };
    let payload = pattern(400, 5);
    // Nothing happens in between, so that all of them are in the ring at once; from another place of it each time.
    for round in 0..7 {
        let sends = near.qp.sizes().sends;
        assert!(sends >= 4, "{sends}");
        receive(&rig, &mut far, sends as usize * 2);
        let mut batch = near.qp.batch();
        for id in 0..sends {
            batch.send_tso(id.into(), &shape.header(), 200);
            for piece in payload.chunks(100) {
                batch.piece(rig.near.buffers.filled(piece).expect("a buffer"));
            }
        }
        batch.signalled();
        assert_eq!(batch.ring(), Ok(sends));
        let mut batch = near.qp.batch();
        batch.send_tso(9, &shape.header(), 200).piece(rig.near.buffers.filled(&payload).expect("a buffer"));
        assert_eq!(batch.ring(), Err(PostError::Full));
        assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
        let expected = shape.packets(&payload, 200);
        for got in arrived(&rig, &mut far, sends as usize * 2).chunks(2) {
            assert_eq!(got, expected);
        }
        for _ in 0..round {
            receive(&rig, &mut far, 1);
            let mut plain = shape.header();
            plain.extend([7; 10]);
            send_plain(&rig, &mut near, &plain);
            assert_eq!(arrived(&rig, &mut far, 1)[0], plain);
        }
    }
    rig.is_clean();
}

#[test]
fn frames_that_are_cut_and_others_share_a_batch_and_a_ring() {
    let rig = Rig::stepped();
    let (mut near, mut far) = ends(&rig, &options(114));
    for turn in 0..60_u8 {
        let shape = Shape { tagged: turn % 2 == 0, v6: turn % 3 == 0, options: usize::from(turn % 10) * 4 };
        let payload = pattern(2500, turn.into());
        let mut plain = shape.header();
        plain.extend(&payload[..100]);
        let cut = shape.packets(&payload, 1200);
        receive(&rig, &mut far, 5);
        let mut batch = near.qp.batch();
        batch.send(1).inline(&plain[..60]);
        batch.send_tso(2, &shape.header(), 1200).checksums();
        batch.piece(rig.near.buffers.filled(&payload).expect("a buffer"));
        batch.send(3).piece(rig.near.buffers.filled(&plain).expect("a buffer")).signalled();
        assert_eq!(batch.ring(), Ok(3));
        let done = rig.completions(&mut near.cq, 1).remove(0);
        assert_eq!((done.id, done.status, done.opcode), (3, WcStatus::SUCCESS, WcOpcode::SEND));
        let got = arrived(&rig, &mut far, 5);
        assert_eq!(got[0], plain[..60]);
        assert_eq!(got[1..4], cut);
        assert_eq!(got[4], plain);
    }
    rig.is_clean();
}

#[test]
fn a_card_that_wants_headers_in_entries_cuts_frames_too() {
    let old = |traits: &mut pollux_mlx5_model::Traits| {
        (traits.needs_inline_l2, traits.enhanced_multi_packet) = (true, false);
    };
    let rig = Rig::on(true, |builder| builder.traits(old));
    let (mut near, mut far) = ends(&rig, &options(98));
    let mr = Mr::allocate(&rig.near.pd, 20_000, Access::LOCAL_WRITE).expect("memory");
    for shape in shapes().filter(|shape| shape.bytes() <= 98) {
        cut(&rig, &mut near, &mut far, shape, &[1, 2999, 500], 1000, &mr);
        // A plain one in between still has its own 18 bytes there.
        let mut plain = shape.header();
        plain.resize(200, 3);
        receive(&rig, &mut far, 1);
        send_plain(&rig, &mut near, &plain);
        assert_eq!(arrived(&rig, &mut far, 1)[0], plain);
    }
    let mut batch = near.qp.batch();
    batch.send_tso(1, &[0; 17], 1000).mr(&mr, 0..100);
    assert_eq!(batch.ring(), Err(PostError::Header { bytes: 17, least: 18, limit: 98 }));
    rig.is_clean();
}

#[test]
fn what_cannot_be_cut_is_not_posted() {
    let rig = Rig::stepped();
    let (mut near, mut far) = ends(&rig, &options(90));
    receive(&rig, &mut far, 8);
    let limit = rig.near.context.frame_limits().max_tso;
    assert_eq!(limit, 65536);
    let mr = Mr::allocate(&rig.near.pd, limit as usize + 4096, Access::LOCAL_WRITE).expect("memory");
    let all = rig.near.buffers.available();
    let shape = Shape { tagged: false, v6: false, options: 0 };
    let header = |bytes: usize| {
        let mut header = shape.header();
        header.resize(bytes, 1);
        header
    };
    let text = |error: PostError| error.to_string();
    let mut refused = |header: &[u8], mss: u16, payload: &[usize]| {
        let mut batch = near.qp.batch();
        // One that is right goes before and one behind; neither is posted.
        batch.send(1).piece(rig.near.buffers.filled(&[1; 64]).expect("a buffer"));
        batch.send_tso(2, header, mss);
        for length in payload {
            batch.mr(&mr, 0..*length);
        }
        batch.piece(rig.near.buffers.filled(&[]).expect("a buffer"));
        batch.send(3).inline(&[2; 60]).signalled();
        let error = batch.ring().expect_err("it is wrong");
        assert_eq!(rig.near.buffers.available(), all, "buffers come home");
        error
    };
    let of = |bytes| PostError::Header { bytes, least: 14, limit: 90 };
    assert_eq!(refused(&header(91), 1000, &[100]), of(91));
    assert_eq!(refused(&header(13), 1000, &[100]), of(13));
    assert_eq!(refused(&[], 1000, &[100]), of(0));
    assert_eq!(refused(&header(70_000), 1000, &[100]), of(70_000));
    assert!(text(of(91)).contains("91 bytes: this queue takes 14 to 90"), "{}", of(91));
    assert!(text(refused(&header(54), 0, &[100])).contains("mss is 0"));
    assert!(text(refused(&header(54), 1000, &[])).contains("no payload"));
    assert!(text(refused(&header(54), 1000, &[0])).contains("no payload"));
    let over = limit as usize + 1;
    assert_eq!(refused(&header(54), 1000, &[over]), PostError::Payload { bytes: over as u64, limit });
    assert_eq!(
        refused(&header(54), 1000, &[40_000, 30_000]),
        PostError::Payload { bytes: 70_000, limit },
        "all pieces count"
    );
    assert_eq!(refused(&header(54), 1000, &[1, 1, 1, 1]), PostError::Pieces { limit: 4 });

    let mut batch = near.qp.batch();
    batch.send_tso(1, &shape.header(), 1000).inline(&[1; 30]);
    assert!(text(batch.ring().expect_err("inline")).contains("inline data in a TSO request"));
    let mut batch = near.qp.batch();
    batch.send_tso(1, &shape.header(), 1000).imm(1).mr(&mr, 0..100);
    assert!(text(batch.ring().expect_err("immediate data")).contains("immediate data"));
    for _ in 0..50 {
        rig.turn();
    }
    assert_eq!(near.cq.poll(8, |wc| panic!("{wc:?}")), 0);
    assert_eq!(far.cq.poll(8, |wc| panic!("{wc:?}")), 0);
    // What is right afterwards goes out as if nothing had been, with the shortest and the longest header of this queue.
    for options in [0, 36] {
        let shape = Shape { options, ..shape };
        let payload = pattern(1500, 3);
        mr.write(0, &payload);
        let mut batch = near.qp.batch();
        batch.send_tso(9, &shape.header(), 1000).mr(&mr, 0..1500).signalled();
        assert_eq!(batch.ring(), Ok(1));
        assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
        assert_eq!(arrived(&rig, &mut far, 2), shape.packets(&payload, 1000));
    }
    rig.is_clean();
}

#[test]
fn the_longest_payload_of_the_device_is_cut() {
    let rig = Rig::stepped();
    let (mut near, mut far) = ends(&rig, &options(54));
    let limit = rig.near.context.frame_limits().max_tso as usize;
    let mr = Mr::allocate(&rig.near.pd, limit, Access::LOCAL_WRITE).expect("memory");
    let shape = Shape { tagged: false, v6: false, options: 0 };
    let expected = shape.packets(&pattern(limit, (limit + 54) as u64), 1448);
    assert_eq!(expected.len(), 46);
    cut(&rig, &mut near, &mut far, shape, &[limit], 1448, &mr);
}

#[test]
fn queue_pairs_that_send_no_such_frames_say_so() {
    let rig = Rig::stepped();
    for kind in [QpKind::Ud, QpKind::Rc, QpKind::Uc, QpKind::XrcSend] {
        let plain = QpOptions::new(kind).depth(8, 8);
        let cq = rig.near.cq(16);
        let error = pollux_verbs::Qp::new(&rig.near.pd, &cq, &cq, &plain.tso_header(54)).expect_err("no TSO");
        assert!(matches!(error, VerbsError::Unsupported { what: "TSO", .. }), "{error}");
        assert!(error.to_string().contains("RAW_PACKET"), "{error}");
        let mut end = rig.near.end(&plain);
        let mut batch = end.qp.batch();
        batch.send_tso(1, &[0; 54], 1000).piece(rig.near.buffers.filled(&[1; 100]).expect("a buffer"));
        let error = batch.ring().expect_err("no TSO");
        assert_eq!(error, PostError::Operation { kind, operation: "segment a frame (TSO)" });
    }
    let mut raw = rig.near.end(&options(0));
    let mut batch = raw.qp.batch();
    batch.send_tso(1, &[0; 54], 1000).piece(rig.near.buffers.filled(&[1; 100]).expect("a buffer"));
    let error = batch.ring().expect_err("no room").to_string();
    assert!(error.contains("QpOptions::tso_header"), "{error}");
    // More than an entry has room for.
    let cq = rig.near.cq(16);
    let error =
        pollux_verbs::Qp::new(&rig.near.pd, &cq, &cq, &options(1500)).expect_err("too long").to_string();
    assert!(error.contains("TSO header of 1500 bytes"), "{error}");
    rig.is_clean();
}
