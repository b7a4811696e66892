use zerocopy::IntoBytes;

use super::*;

/// A send of 5 bytes over IPv4, from the IP header on, with its CRC. Made with scapy 2.5.0, layer `scapy.contrib.roce`:
/// `IP(src="10.0.0.1", dst="10.0.0.2", tos=0x6a, ttl=63, id=0, flags="DF") / UDP(sport=0xc123, dport=4791, chksum=0) /
/// BTH(opcode="RC_SEND_ONLY", pkey=0xffff, dqpn=0x10001, psn=0xabcd, ackreq=1, migreq=1, padcount=3) / b"hello\0\0\0"`.
const GOLDEN: [u8; 52] = [
    0x45, 0x6a, 0x00, 0x34, 0x00, 0x00, 0x40, 0x00, 0x3f, 0x11, 0x27, 0x4d, 10, 0, 0, 1, 10, 0, 0, 2, 0xc1,
    0x23, 0x12, 0xb7, 0x00, 0x20, 0x00, 0x00, 0x04, 0x70, 0xff, 0xff, 0x00, 0x01, 0x00, 0x01, 0x80, 0x00,
    0xab, 0xcd, b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 0x51, 0x47, 0x1a, 0x20,
];

#[test]
fn golden_packet() {
    let (packet, sum) = GOLDEN.split_last_chunk::<4>().expect("a CRC");
    assert_eq!(icrc(packet, 20), Some(*sum));
    let (bth, rest) = Bth::new(&packet[28..]).expect("a header");
    let repr = BthRepr {
        opcode: operation::RC | operation::SEND_ONLY,
        migrated: true,
        padding: 3,
        partition: 0xffff,
        qp: 0x1_0001,
        ack: true,
        psn: 0xabcd,
        ..BthRepr::default()
    };
    assert_eq!((bth.repr(), rest), (repr, &b"hello\0\0\0"[..]));
    let mut out = [0; 12];
    assert!(repr.emit(&mut out).expect("room").is_empty());
    assert_eq!(out, packet[28..40]);
    assert!(repr.emit(&mut out[..11]).is_err());
}

#[test]
fn what_changes_on_the_way_does_not_count() {
    let (packet, sum) = GOLDEN.split_last_chunk::<4>().expect("a CRC");
    for (at, may) in
        [(1, true), (8, true), (10, true), (26, true), (32, true), (12, false), (35, false), (41, false)]
    {
        let mut changed = packet.to_vec();
        changed[at] ^= 0x10;
        assert_eq!(icrc(&changed, 20) == Some(*sum), may, "byte {at}");
    }
    for udp in [0, 19, 41, 61, usize::MAX] {
        assert_eq!(icrc(packet, udp), None, "{udp}");
    }
    for end in 0..40 {
        assert_eq!(icrc(&packet[..end], 20), None);
    }
}

const GOLDEN_V6: [u8; 4] = [0x6b, 0x58, 0x83, 0xea];

/// IPv6, whose sum was computed with Python's `zlib.crc32` over the bytes with those that may change set by hand.
#[test]
fn ipv6_counts_without_class_and_label() {
    let mut packet = vec![0x66, 0xa1, 0x23, 0x45, 0x00, 0x1c, 0x11, 0x07];
    for last in [1, 2] {
        packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend([0xc1, 0x23, 0x12, 0xb7, 0x00, 0x1c, 0, 0]);
    packet.extend([0x11, 0x40, 0xff, 0xff, 0, 1, 0, 1, 0, 0, 0xab, 0xcd, 0x1f, 0, 0, 5]);
    assert_eq!(icrc(&packet, 40), Some(GOLDEN_V6));
    packet[0] = 0x60;
    packet[1..4].fill(0);
    assert_eq!(icrc(&packet, 40), Some(GOLDEN_V6));
}

#[test]
fn syndromes_come_back() {
    for code in 0..=u8::MAX {
        assert_eq!(Syndrome::of(code).code(), code, "{code:#x}");
    }
    let aeth = Aeth::make(Syndrome::Nak(Nak::Access), 0x12_3456);
    assert_eq!(aeth.as_bytes(), [0x62, 0x12, 0x34, 0x56]);
    assert_eq!((aeth.syndrome(), aeth.messages()), (Syndrome::Nak(Nak::Access), 0x12_3456));
}

#[test]
fn opcodes_have_shapes() {
    use operation::{Class, RC, UC, UD, XRC, has, shape};
    assert_eq!((0..=0x1f).filter(|opcode| shape(*opcode).is_some()).count(), 23);
    assert!(shape(operation::SEND_FIRST).is_some_and(|shape| shape.first && !shape.last));
    assert!(shape(XRC | operation::WRITE_LAST_IMM).is_some_and(|shape| shape.immediate && shape.last));
    assert!(shape(operation::READ_RESPONSE_LAST).is_some_and(|shape| shape.class == Class::ReadResponse));
    assert!(has(RC, operation::FETCH_ADD) && !has(UC, operation::FETCH_ADD));
    assert!(has(UD, operation::SEND_ONLY_IMM) && !has(UD, operation::SEND_FIRST));
}
