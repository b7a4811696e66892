use pollux_mlx5_abi::command::rq::{ModifyRqIn, RqContext, modify};
use pollux_mlx5_abi::command::{opcode as op, tir::TirContext};
use pollux_mlx5_abi::cqe::{Cqe64, Layer3, Layer4, packet, status};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Completion, Data, INSERT_SVLAN, INSERT_VLAN, checksum};
use zerocopy::IntoBytes;

use super::receive::{arrive, buffer};
use super::rig::{Cq, HCA_DELTA, Rig, Rq, frame};
use super::send::ethernet;

/// The ones' complement sum, word by word: not the device's code.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub(super) fn l2(ether_type: u16, tags: &[u16]) -> Vec<u8> {
    let mut bytes = frame(14, 0)[..12].to_vec();
    for tag in tags {
        bytes.extend(0x8100_u16.to_be_bytes());
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend(ether_type.to_be_bytes());
    bytes
}

/// An IPv4 header and a transport packet behind it; checksums right.
pub(super) fn ipv4(protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    bytes[2..4].copy_from_slice(&(20 + transport.len() as u16).to_be_bytes());
    let header = !sum(&bytes);
    bytes[10..12].copy_from_slice(&header.to_be_bytes());
    let pseudo = [&bytes[12..20], &[0, protocol], &(transport.len() as u16).to_be_bytes()].concat();
    bytes.extend(filled(protocol, transport, &pseudo));
    bytes
}

pub(super) fn ipv6(protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((transport.len() as u16).to_be_bytes());
    bytes.extend([protocol, 64]);
    bytes.extend((1..=32).collect::<Vec<u8>>());
    let pseudo = [&bytes[8..40], &(transport.len() as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat();
    bytes.extend(filled(protocol, transport, &pseudo));
    bytes
}

fn filled(protocol: u8, transport: &[u8], pseudo: &[u8]) -> Vec<u8> {
    let mut bytes = transport.to_vec();
    let at = if protocol == 6 { 16 } else { 6 };
    bytes[at..at + 2].fill(0);
    let value = !sum(&[pseudo, &bytes[..]].concat());
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    bytes
}

pub(super) fn udp(payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x56, 0x78];
    bytes.extend((8 + payload as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend((0..payload).map(|index| index as u8));
    bytes
}

pub(super) fn tcp(flags: u8, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x56, 0x78, 0, 0, 1, 0, 0, 0, 2, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0];
    bytes.extend((0..payload).map(|index| index as u8));
    bytes
}

fn receiver() -> (Rig, Cq, Rq) {
    let rig = Rig::new();
    let cq = rig.cq(8);
    let rq = rig.rq(4, 4, &cq);
    rig.all_to(rig.direct_tir(&rq));
    (rig, cq, rq)
}

fn report(frame: &[u8]) -> Cqe64 {
    let (rig, mut cq, mut rq) = receiver();
    rq.post(&rig, &[buffer(&rig, 2048).1]);
    arrive(&rig, frame);
    cq.poll(&rig).expect("a completion")
}

#[test]
fn a_completion_tells_layers_and_checksums() {
    let all = status::L2_OK | status::L3_OK | status::L4_OK;
    let l3 = status::L2_OK | status::L3_OK;
    let eth4 = l2(0x800, &[]);
    let eth6 = l2(0x86dd, &[]);
    let join = |l2: &[u8], packet: Vec<u8>| [l2, &packet].concat();
    let mut bad_l3 = join(&eth4, ipv4(17, &udp(30)));
    bad_l3[24] ^= 1;
    let mut bad_l4 = join(&eth4, ipv4(6, &tcp(0x10, 9)));
    bad_l4[60] ^= 1;
    let mut no_udp_sum = join(&eth4, ipv4(17, &udp(30)));
    no_udp_sum[40..42].fill(0);
    let mut fragment = join(&eth4, ipv4(17, &udp(30)));
    fragment[20] = 0x20;
    fragment[24..26].fill(0);
    let header = !sum(&fragment[14..34]);
    fragment[24..26].copy_from_slice(&header.to_be_bytes());
    let cases = [
        (frame(64, 1), Layer3::None, Layer4::None, status::L2_OK, 0),
        (join(&eth4, ipv4(17, &udp(30))), Layer3::Ipv4, Layer4::Udp, all, 0),
        (join(&eth4, ipv4(17, &udp(31))), Layer3::Ipv4, Layer4::Udp, all, 0),
        (join(&l2(0x800, &[5]), ipv4(17, &udp(30))), Layer3::Ipv4, Layer4::Udp, all, 0),
        (join(&eth4, ipv4(6, &tcp(0x02, 0))), Layer3::Ipv4, Layer4::Tcp, all, 0),
        (join(&eth4, ipv4(6, &tcp(0x10, 0))), Layer3::Ipv4, Layer4::TcpAckNoData, all, 0),
        (join(&eth4, ipv4(6, &tcp(0x18, 9))), Layer3::Ipv4, Layer4::TcpAckAndData, all, 0),
        (join(&eth6, ipv6(17, &udp(13))), Layer3::Ipv6, Layer4::Udp, all, 0),
        (join(&eth6, ipv6(6, &tcp(0x10, 100))), Layer3::Ipv6, Layer4::TcpAckAndData, all, 0),
        (bad_l3, Layer3::Ipv4, Layer4::Udp, status::L2_OK | status::L4_OK, 0),
        (bad_l4, Layer3::Ipv4, Layer4::TcpAckAndData, l3, 0),
        (no_udp_sum, Layer3::Ipv4, Layer4::Udp, all, 0),
        (fragment, Layer3::Ipv4, Layer4::None, l3, packet::IP_FRAGMENT),
    ];
    for (index, (mut frame, layer3, layer4, found, fragment)) in cases.into_iter().enumerate() {
        // Padded, as the wire does to short frames.
        frame.resize(frame.len().max(60), 0);
        let entry = report(&frame);
        assert_eq!((entry.layer3(), entry.layer4()), (Some(layer3), Some(layer4)), "case {index}");
        assert_eq!(
            (entry.hds_ip_ext, entry.l4_l3_hdr_type & packet::IP_FRAGMENT),
            (found, fragment),
            "case {index}"
        );
        // A tag that stays is summed up too: Linux's driver goes by that (`MLX5E_RQ_STATE_CSUM_FULL`).
        assert_eq!(entry.check_sum.get(), sum(&frame[14..]), "case {index}");
        assert_eq!(entry.pkt_info & packet::TUNNELED, 0);
    }
}

/// Sends `frame` with flags and takes what goes out.
fn sent(frame: &[u8], flags: u8) -> Vec<u8> {
    let rig = Rig::new();
    let cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    let at = rig.room(frame.len());
    rig.write(at, frame);
    let mut body = ethernet(&[], |segment| segment.cs_flags = flags);
    body.extend(Data::new(frame.len() as u32, rig.lkey, at + HCA_DELTA).as_bytes());
    sq.write(&rig, send::SEND, &body, Completion::OnError);
    sq.ring(&rig);
    rig.settle();
    let sent = rig.wire.ends().sent.pop().expect("a frame");
    assert!(sent.len() >= frame.len());
    sent[..frame.len()].to_vec()
}

#[test]
fn checksums_are_filled_in() {
    for (l2, packet) in [
        (l2(0x800, &[]), ipv4(17, &udp(31))),
        (l2(0x800, &[7]), ipv4(6, &tcp(0x10, 44))),
        (l2(0x86dd, &[]), ipv6(6, &tcp(0x10, 3))),
        (l2(0x86dd, &[7]), ipv6(17, &udp(100))),
    ] {
        let right = [&l2[..], &packet].concat();
        let v4 = packet[0] == 0x45;
        let (l3_at, l4) = (l2.len() + 10, l2.len() + if v4 { 20 } else { 40 });
        let protocol = packet[if v4 { 9 } else { 6 }];
        let l4_at = l4 + if protocol == 6 { 16 } else { 6 };
        let mut raw = right.clone();
        if v4 {
            raw[l3_at..l3_at + 2].copy_from_slice(&[0xde, 0xad]);
        }
        raw[l4_at..l4_at + 2].copy_from_slice(&[0xbe, 0xef]);
        assert_eq!(sent(&raw, 0), raw);
        assert_eq!(sent(&raw, checksum::L3 | checksum::L4), right);
        let mut only_l3 = right.clone();
        only_l3[l4_at..l4_at + 2].copy_from_slice(&[0xbe, 0xef]);
        assert_eq!(sent(&raw, checksum::L3), only_l3);
    }
    // Nothing to fill in: left alone.
    assert_eq!(sent(&frame(64, 1), checksum::L3 | checksum::L4), frame(64, 1));
}

#[test]
fn a_tag_is_inserted() {
    let whole = frame(100, 1);
    for (flags, kind) in [(INSERT_VLAN, 0x8100_u16), (INSERT_VLAN | INSERT_SVLAN, 0x88a8)] {
        let rig = Rig::new();
        let cq = rig.cq(6);
        let mut sq = rig.sq(6, &cq);
        let at = rig.room(100);
        rig.write(at, &whole);
        for opcode in [send::SEND, send::ENHANCED_MPSW] {
            let mut body = ethernet(&[], |segment| {
                segment.inline_hdr_sz.set(flags);
                segment.inline_hdr_start = [0x2a, 0xbc];
            });
            body.extend(Data::new(100, rig.lkey, at + HCA_DELTA).as_bytes());
            sq.write(&rig, opcode, &body, Completion::OnError);
            sq.ring(&rig);
            rig.settle();
            let expected = [&whole[..12], &kind.to_be_bytes(), &[0x2a, 0xbc], &whole[12..]].concat();
            assert_eq!(rig.wire.ends().sent.pop(), Some(expected));
        }
    }
}

#[test]
fn a_tag_is_stripped_unless_the_queue_keeps_it() {
    let (rig, mut cq, mut rq) = receiver();
    let tagged = [l2(0x800, &[0x3123, 9]), ipv4(17, &udp(64))].concat();
    let (at, data) = buffer(&rig, 2048);
    rq.post(&rig, &[data]);
    arrive(&rig, &tagged);
    let kept = cq.poll(&rig).expect("a completion");
    assert_eq!((kept.vlan(), kept.byte_cnt.get() as usize), (None, tagged.len()));
    assert_eq!(rig.read(at, tagged.len()), tagged);
    let mut input = ModifyRqIn::ZERO;
    ModifyRqIn::RQN.set(&mut input, rq.number);
    ModifyRqIn::RQ_STATE.set(&mut input, 1);
    ModifyRqIn::MODIFY_BITMASK.set(&mut input, modify::VSD);
    RqContext::STATE.set(ModifyRqIn::CTX.of_mut(&mut input), 1);
    rig.must(op::MODIFY_RQ, 0, &mut input, 16);
    rq.post(&rig, &[data]);
    arrive(&rig, &tagged);
    let stripped = cq.poll(&rig).expect("a completion");
    assert_eq!((stripped.vlan(), stripped.byte_cnt.get() as usize), (Some(0x3123), tagged.len() - 4));
    assert_eq!(rig.read(at, tagged.len() - 4), [&tagged[..12], &tagged[16..]].concat());
    assert_eq!(stripped.hds_ip_ext, status::L2_OK | status::L3_OK | status::L4_OK);
    // No tag, nothing stripped.
    rq.post(&rig, &[data]);
    arrive(&rig, &frame(64, 1));
    assert_eq!(cq.poll(&rig).expect("a completion").vlan(), None);
}

#[test]
fn the_check_sequence_follows_the_frame_if_asked() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut rq = rig.rq_with(4, 4, &cq, |context| RqContext::SCATTER_FCS.set(context, 1));
    rig.all_to(rig.direct_tir(&rq));
    let (at, data) = buffer(&rig, 2048);
    rq.post(&rig, &[data]);
    arrive(&rig, &frame(64, 1));
    assert_eq!(cq.poll(&rig).expect("a completion").byte_cnt.get(), 68);
    // A frame with its check sequence leaves the residue of the polynomial. Source: IEEE 802.3, clause 3.2.9.
    let mut crc = u32::MAX;
    for byte in rig.read(at, 68) {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    assert_eq!(crc, 0xdebb_20e3);
}

#[test]
fn a_large_frame_is_cut_up() {
    for (l2, packet) in
        [(l2(0x800, &[]), ipv4(6, &tcp(0x19, 10_000))), (l2(0x86dd, &[3]), ipv6(6, &tcp(0x19, 7001)))]
    {
        let whole = [&l2[..], &packet].concat();
        let headers = l2.len() + if packet[0] == 0x45 { 20 } else { 40 } + 20;
        let payload = whole.len() - headers;
        let rig = Rig::new();
        let mut cq = rig.cq(6);
        let mut sq = rig.sq(6, &cq);
        let at = rig.room(payload);
        rig.write(at, &whole[headers..]);
        let mut body = ethernet(&whole[..headers], |segment| {
            segment.mss.set(1400);
            segment.cs_flags = checksum::L3 | checksum::L4;
        });
        for piece in (0..payload).step_by(3000) {
            let bytes = 3000.min(payload - piece) as u32;
            body.extend(Data::new(bytes, rig.lkey, at + piece as u64 + HCA_DELTA).as_bytes());
        }
        sq.write(&rig, send::TSO, &body, Completion::Always);
        rig.wire.ends().room = Some(3);
        sq.ring(&rig);
        rig.device.step(64);
        assert!(cq.poll(&rig).is_none());
        rig.wire.ends().room = None;
        rig.settle();
        assert_eq!(cq.poll(&rig).map(|entry| entry.send_opcode()), Some(send::TSO));
        let sent = std::mem::take(&mut rig.wire.ends().sent);
        assert_eq!(sent.len(), payload.div_ceil(1400));
        let joined: Vec<u8> = sent.iter().flat_map(|frame| frame[headers..].to_vec()).collect();
        assert_eq!(joined, whole[headers..]);
        for (index, frame) in sent.iter().enumerate() {
            let entry = report(frame);
            assert_eq!(entry.hds_ip_ext, status::L2_OK | status::L3_OK | status::L4_OK, "frame {index}");
            let flags = frame[headers - 20 + 13];
            assert_eq!(
                flags & 0x09,
                if index + 1 == sent.len() { 0x09 } else { 0 },
                "FIN and PSH on the last alone"
            );
            let sequence = u32::from_be_bytes(frame[headers - 16..headers - 12].try_into().expect("4 bytes"));
            assert_eq!(sequence, 0x100 + 1400 * index as u32);
        }
    }
}

fn vxlan(inner: &[u8]) -> Vec<u8> {
    let mut outer = vec![0x12, 0x34];
    outer.extend(4789_u16.to_be_bytes());
    outer.extend((16 + inner.len() as u16).to_be_bytes());
    outer.extend([0, 0, 8, 0, 0, 0, 0, 0x12, 0x34, 0]);
    outer.extend(inner);
    [l2(0x800, &[]), ipv4(17, &outer)].concat()
}

#[test]
fn a_tunnels_inside_is_looked_at_by_tirs_that_ask() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut rq = rig.rq(4, 4, &cq);
    rig.all_to(rig.tir(|context| {
        TirContext::INLINE_RQN.set(context, rq.number);
        TirContext::TUNNELED_OFFLOAD_EN.set(context, 1);
    }));
    let data = buffer(&rig, 2048).1;
    let mut bad = [l2(0x86dd, &[]), ipv6(6, &tcp(0x10, 10))].concat();
    bad[80] ^= 1;
    for (inner, layer4, found) in [
        ([l2(0x86dd, &[]), ipv6(6, &tcp(0x10, 10))].concat(), Layer4::TcpAckAndData, 7),
        (bad, Layer4::TcpAckAndData, 3),
    ] {
        rq.post(&rig, &[data]);
        arrive(&rig, &vxlan(&inner));
        let entry = cq.poll(&rig).expect("a completion");
        assert_eq!((entry.layer3(), entry.layer4()), (Some(Layer3::Ipv6), Some(layer4)));
        assert_eq!((entry.pkt_info, entry.hds_ip_ext), (packet::TUNNELED, found));
    }
    // Sent: the inner checksums are filled in on request.
    let right = vxlan(&[l2(0x800, &[]), ipv4(17, &udp(20))].concat());
    let mut raw = right.clone();
    let inner = 14 + 20 + 8 + 8;
    raw[inner + 14 + 10..][..2].fill(0xaa);
    raw[inner + 14 + 20 + 6..][..2].fill(0xaa);
    raw[24..26].fill(0xaa);
    raw[40..42].fill(0xaa);
    let flags = checksum::L3 | checksum::L4 | checksum::L3_INNER | checksum::L4_INNER;
    assert_eq!(sent(&raw, flags), right);
}
