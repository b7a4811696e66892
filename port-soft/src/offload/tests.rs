use super::*;
use pollux_mempool::MbufPool;
use pollux_port::finish::Finisher;
use proptest::prelude::*;

fn pool() -> MbufPool {
    MbufPool::builder("offload", 256).build_anonymous().expect("memory")
}

/// Ethernet (tagged or not), IPv4, TCP with an open checksum as the kernel leaves it, and payload.
fn tcp4(tag: bool, payload: usize) -> (Vec<u8>, VnetHeader) {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if tag {
        frame.extend([0x81, 0, 0, 7]);
    }
    frame.extend([8, 0]);
    let l3 = frame.len();
    frame.extend([0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let upper = (20 + payload) as u16;
    frame[l3 + 2..l3 + 4].copy_from_slice(&(20 + upper).to_be_bytes());
    let sum = checksum::of(&frame[l3..l3 + 20]);
    frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    let l4 = frame.len();
    frame.extend([0, 80, 0x30, 0x39, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x98, 0xff, 0xff, 0, 0, 0, 0]);
    let pseudo = checksum::Sum::of(&frame[l3 + 12..l3 + 20]).add_word(6).add_word(upper);
    // Folded, not complemented.
    frame[l4 + 16..l4 + 18].copy_from_slice(&(!pseudo.checksum()).to_be_bytes());
    frame.extend((0..payload).map(|at| (at * 7) as u8));
    let header = VnetHeader {
        checksum: Some(PartialChecksum { start: l4 as u16, offset: 16 }),
        header_bytes: (l4 + 20) as u16,
        ..VnetHeader::default()
    };
    (frame, header)
}

fn mbuf(pool: &MbufPool, frame: &[u8]) -> Mbuf {
    let mut mbuf = pool.alloc().expect("the pool is full");
    crate::chain::fill(pool, true, &mut mbuf, frame.chunks(997)).expect("the pool has enough");
    mbuf
}

/// A TCP segment's checksum is right when all of it sums to zero.
fn check_tcp4(frame: &[u8]) {
    let l3 = vlan::skip_tags(frame).expect("Ethernet").offset;
    let total = usize::from(u16::from_be_bytes([frame[l3 + 2], frame[l3 + 3]]));
    assert_eq!(l3 + total, frame.len());
    assert_eq!(checksum::of(&frame[l3..l3 + 20]), 0, "IPv4 header");
    let sum = checksum::Sum::of(&frame[l3 + 12..l3 + 20]).add_word(6).add_word(total as u16 - 20);
    assert_eq!(sum.add_bytes(&frame[l3 + 20..]).checksum(), 0, "TCP");
}

#[test]
fn an_open_checksum_is_passed_on_or_completed() {
    let pool = pool();
    for tag in [false, true] {
        let (frame, header) = tcp4(tag, 100);
        let mut packet = mbuf(&pool, &frame);
        describe(&mut packet, &header, 0).expect("sound");
        assert_eq!(packet.tx_flags(), TxFlags::IPV4 | TxFlags::TCP_CHECKSUM);
        assert_eq!(packet.rx_flags(), RxFlags::L4_CHECKSUM_NONE);
        let l2_len = if tag { 18 } else { 14 };
        assert_eq!(packet.tx_offload(), TxOffload { l2_len, l3_len: 20, l4_len: 20, ..TxOffload::default() });
        assert_eq!(header_of(&mut packet).expect("sound").header, header, "as it came");
        let mut out = Vec::new();
        Finisher::default().plain(&packet, |frame| out.push(frame.to_vec())).expect("sound");
        assert_eq!(out.len(), 1);
        check_tcp4(&out[0]);
        assert!(out[0][l2_len as usize + 40..] == frame[l2_len as usize + 40..]);
    }
}

#[test]
fn a_large_frame_is_passed_on_or_cut() {
    let pool = pool();
    let (frame, header) = tcp4(false, 10_000);
    let header = VnetHeader {
        segmentation: Segmentation::Tcp4,
        segment_bytes: 1448,
        // The frame's flags have CWR, which the kernel notes here.
        ecn: true,
        ..header
    };
    let mut packet = mbuf(&pool, &frame);
    assert!(packet.segment_count() > 1);
    describe(&mut packet, &header, 0).expect("sound");
    assert!(packet.tx_flags().contains(TxFlags::TCP_SEGMENTATION | TxFlags::IP_CHECKSUM));
    assert!(packet.rx_flags().contains(RxFlags::LRO));
    assert_eq!(packet.tx_offload().tso_segment_bytes, 1448);
    assert_eq!(header_of(&mut packet).expect("sound").header, header, "as it came");
    let (mut lengths, mut payload) = (Vec::new(), Vec::new());
    let cut = Finisher::default().plain(&packet, |frame| {
        check_tcp4(frame);
        lengths.push(frame.len());
        payload.extend_from_slice(&frame[54..]);
    });
    cut.expect("sound");
    assert_eq!(lengths, [1502, 1502, 1502, 1502, 1502, 1502, 54 + 10_000 - 6 * 1448]);
    assert!(payload == frame[54..]);
}

#[test]
fn tags_asked_for_are_put_in() {
    let pool = pool();
    let (frame, header) = tcp4(false, 30);
    let mut packet = mbuf(&pool, &frame);
    // The kernel counted from a frame without the tag that stands in it again.
    let (tagged, _) = tcp4(true, 30);
    let mut put_back = mbuf(&pool, &tagged);
    describe(&mut put_back, &header, 4).expect("sound");
    assert_eq!(put_back.tx_offload().l2_len, 18);

    describe(&mut packet, &header, 0).expect("sound");
    packet.set_tx_flags(packet.tx_flags() | TxFlags::QINQ);
    packet.set_vlan_tci(7);
    packet.set_vlan_tci_outer(0x6005);
    let asked = header_of(&mut packet).expect("sound");
    assert_eq!(asked.header.checksum, Some(PartialChecksum { start: 34 + 8, offset: 16 }));
    assert_eq!(asked.tag_bytes(), 8);
    let mut out = Vec::new();
    Finisher::default().plain(&packet, |frame| out.extend_from_slice(frame)).expect("sound");
    assert_eq!(out[12..22], [0x88, 0xa8, 0x60, 5, 0x81, 0, 0, 7, 8, 0]);
    check_tcp4(&out);
}

#[test]
fn a_sum_inside_something_else_is_completed_at_once() {
    let pool = pool();
    // UDP inside GRE: nothing that the mbuf's flags have words for.
    let (mut frame, _) = tcp4(false, 3001);
    frame[23] = 47;
    let header =
        VnetHeader { checksum: Some(PartialChecksum { start: 61, offset: 6 }), ..VnetHeader::default() };
    let mut packet = mbuf(&pool, &frame);
    describe(&mut packet, &header, 0).expect("sound");
    assert!(is_plain(&packet));
    let mut expected = frame.clone();
    checksum::complete(&mut expected, 61, 6).expect("inside");
    let mut got = vec![0; frame.len()];
    packet.read(0, &mut got);
    assert!(got == expected);
    // Cutting it is another matter.
    let cut = VnetHeader { segmentation: Segmentation::Tcp4, segment_bytes: 1000, ..header };
    assert_eq!(describe(&mut mbuf(&pool, &frame), &cut, 0), Err(Malformed));
}

#[test]
fn sctp_gets_its_crc() {
    // Bit by bit; the check value is that of CRC-32C.
    let crc32c = |bytes: &[u8]| {
        !bytes.iter().fold(!0, |crc: u32, byte| {
            (0..8)
                .fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
        })
    };
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let pool = pool();
    let (mut frame, _) = tcp4(false, 2000);
    frame[23] = 132;
    let header =
        VnetHeader { checksum: Some(PartialChecksum { start: 34, offset: 8 }), ..VnetHeader::default() };
    let mut packet = mbuf(&pool, &frame);
    describe(&mut packet, &header, 0).expect("sound");
    assert!(is_plain(&packet));
    frame[42..46].fill(0);
    assert_eq!(packet.data()[42..46], crc32c(&frame[34..]).to_le_bytes());
}

#[test]
fn what_cannot_be_done_is_refused() {
    let pool = pool();
    let (frame, header) = tcp4(false, 100);
    let refused = |change: &dyn Fn(&mut Mbuf)| {
        let mut packet = mbuf(&pool, &frame);
        describe(&mut packet, &header, 0).expect("sound");
        change(&mut packet);
        header_of(&mut packet).is_err()
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|packet| packet.set_tx_flags(TxFlags::SCTP_CHECKSUM)));
    let tunnel = TxFlags::TUNNEL_VXLAN | TxFlags::TCP_CHECKSUM;
    assert!(refused(&|packet| packet.set_tx_flags(tunnel | TxFlags::TCP_SEGMENTATION)));
    assert!(refused(&|packet| packet.set_tx_flags(tunnel | TxFlags::OUTER_UDP_CHECKSUM)));
    assert!(refused(&|packet| packet.set_tx_flags(packet.tx_flags() | TxFlags::TCP_SEGMENTATION)), "no size");
    assert!(refused(&|packet| packet.set_tx_offload(TxOffload::default())), "no lengths");
    let far = TxOffload { l2_len: 14, l3_len: 400, l4_len: 20, ..TxOffload::default() };
    assert!(refused(&|packet| packet.set_tx_offload(far)), "beyond the frame");
    let udp = VnetHeader { segmentation: Segmentation::Udp, segment_bytes: 10, ..header };
    assert_eq!(describe(&mut mbuf(&pool, &frame), &udp, 0), Err(Malformed), "TCP is not cut as UDP");
}

proptest! {
    /// Whatever the kernel, or whoever, says of whatever frame: refused, or done without harm.
    #[test]
    fn any_words_about_any_frame(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        sound: bool,
        words: [u8; 10],
        plausible: bool,
        shift in prop_oneof![Just(0u16), Just(4)],
        change in any::<prop::sample::Index>(),
        value: u8,
    ) {
        let pool = pool();
        let (mut frame, mut header) = if sound { tcp4(value & 1 == 0, bytes.len() * 20) } else { (bytes, VnetHeader::default()) };
        if !plausible {
            header = VnetHeader::decode(words);
        } else if value & 2 == 0 {
            (header.segmentation, header.segment_bytes) = (Segmentation::Tcp4, 1 + u16::from(value));
        }
        if !frame.is_empty() {
            let at = change.index(frame.len().min(80));
            frame[at] ^= value;
        }
        let mut packet = mbuf(&pool, &frame);
        if describe(&mut packet, &header, shift).is_ok() {
            let mut count = 0;
            let _ = Finisher::default().plain(&packet, |frame| count += frame.len());
            let _ = header_of(&mut packet);
            prop_assert!(count <= 200 * frame.len() * 100);
        }
    }
}

/// The outer IPv4 header in front of what it carries.
fn outer(protocol: u8, carried: &[u8]) -> Vec<u8> {
    let mut frame = vec![6; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + carried.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend(carried);
    frame
}

/// The same behind an outer IPv6 header.
fn over_v6(frame: &[u8]) -> Vec<u8> {
    let carried = &frame[34..];
    let mut out = frame[..12].to_vec();
    out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    out.extend((carried.len() as u16).to_be_bytes());
    out.extend([frame[23], 64]);
    out.extend([0xfd; 32]);
    out.extend(carried);
    out
}

/// Of a small frame in a tunnel the sum is completed at once: what is behind an outer IPv6 header is no extension header of it.
#[test]
fn an_open_sum_in_a_tunnel_is_the_inner_one() {
    let pool = pool();
    let (inner, _) = tcp4(false, 100);
    let head = [&[0xc0, 1, 0x12, 0xb5][..], &(16 + inner.len() as u16).to_be_bytes(), &[0x12, 0x34]].concat();
    let carried = [&head[..], &[8, 0, 0, 0, 0, 0, 5, 0], &inner].concat();
    let v4 = outer(17, &carried);
    for frame in [over_v6(&v4), v4] {
        let (l3, start) = (frame.len() - inner.len() + 14, frame.len() - 100 - 20);
        let header = VnetHeader {
            checksum: Some(PartialChecksum { start: start as u16, offset: 16 }),
            ..VnetHeader::default()
        };
        let mut packet = mbuf(&pool, &frame);
        describe(&mut packet, &header, 0).expect("sound");
        assert!(is_plain(&packet), "{:?}", packet.tx_flags());
        let mut got = vec![0; frame.len()];
        packet.read(0, &mut got);
        assert_eq!(got[..start], frame[..start], "the outer sum is as it was");
        check_tcp4(&[&inner[..14], &got[l3..]].concat());
    }
}

/// What is an extension header is passed over.
#[test]
fn tcp_behind_options_of_ipv6_is_tcp() {
    let pool = pool();
    let (inner, _) = tcp4(false, 100);
    let options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &inner[34..]].concat();
    let mut frame = over_v6(&outer(60, &options));
    let start = 14 + 40 + 8;
    let header =
        VnetHeader { checksum: Some(PartialChecksum { start, offset: 16 }), ..VnetHeader::default() };
    let mut packet = mbuf(&pool, &frame);
    describe(&mut packet, &header, 0).expect("sound");
    assert_eq!(packet.tx_flags(), TxFlags::IPV6 | TxFlags::TCP_CHECKSUM);
    assert_eq!(packet.tx_offload().l3_len, 48);
    // A header that nobody knows is none.
    frame[20] = 253;
    let mut packet = mbuf(&pool, &frame);
    describe(&mut packet, &header, 0).expect("sound");
    assert!(is_plain(&packet));
}

/// The kernel says of a large frame in a tunnel no more than where its TCP begins; the headers in front tell the rest.
#[test]
fn a_large_frame_in_a_tunnel_is_described_and_cut() {
    let pool = pool();
    let (inner, header) = tcp4(false, 9000);
    let udp = |port: u16, sum: u8, own: &[u8]| {
        let bytes = (8 + own.len() + inner.len()) as u16;
        let head = [&[0xc0, 1][..], &port.to_be_bytes(), &bytes.to_be_bytes(), &[0, sum], own].concat();
        outer(17, &[&head[..], &inner].concat())
    };
    let gre = |head: &[u8], ethernet: bool| {
        outer(47, &[head, if ethernet { &inner[..] } else { &inner[14..] }].concat())
    };
    let table = [
        (TxFlags::TUNNEL_VXLAN, udp(4789, 0, &[8, 0, 0, 0, 0, 0, 5, 0]), 8 + 8 + 14),
        (TxFlags::TUNNEL_VXLAN | TxFlags::OUTER_UDP_CHECKSUM, udp(4789, 9, &[8, 0, 0, 0, 0, 0, 5, 0]), 30),
        (TxFlags::TUNNEL_UDP, udp(8472, 0, &[8, 0, 0, 0, 0, 0, 5, 0]), 30),
        (
            TxFlags::TUNNEL_GENEVE,
            udp(6081, 0, &[2, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 1, 1, 1, 0x45, 0, 0, 0]),
            38,
        ),
        (TxFlags::TUNNEL_GRE, gre(&[0, 0, 0x65, 0x58], true), 4 + 14),
        (TxFlags::TUNNEL_GRE, gre(&[0x20, 0, 8, 0, 0, 0, 0, 5], false), 8),
        (TxFlags::TUNNEL_IP | TxFlags::OUTER_UDP_CHECKSUM, gre(&[0x80, 0, 8, 0, 0, 0, 0, 0], false), 8),
        (TxFlags::TUNNEL_IPIP, outer(4, &inner[14..]), 0),
    ];
    let all = TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::TCP_CHECKSUM | TxFlags::TCP_SEGMENTATION;
    let both = |(flags, frame, between): (TxFlags, Vec<u8>, u8)| {
        let v6 = (flags | TxFlags::OUTER_IPV6, over_v6(&frame), between, 40);
        [(flags | TxFlags::OUTER_IPV4 | TxFlags::OUTER_IP_CHECKSUM, frame, between, 20), v6]
    };
    for (flags, frame, between, outer_l3) in table.into_iter().flat_map(both) {
        let start = frame.len() - 9000 - 20;
        let header = VnetHeader {
            checksum: Some(PartialChecksum { start: start as u16, offset: 16 }),
            segmentation: Segmentation::Tcp4,
            segment_bytes: 1400,
            ..header
        };
        let mut packet = mbuf(&pool, &frame);
        describe(&mut packet, &header, 0).unwrap_or_else(|_| panic!("{flags:?}"));
        assert_eq!(packet.tx_flags(), flags | all);
        let offload = TxOffload {
            outer_l2_len: 14,
            outer_l3_len: outer_l3,
            l2_len: between,
            l3_len: 20,
            l4_len: 20,
            tso_segment_bytes: 1400,
        };
        assert_eq!(packet.tx_offload(), offload, "{flags:?}");
        assert!(header_of(&mut packet).is_err(), "the kernel's header has no words for it");
        let (mut count, mut payload) = (0, Vec::new());
        let cut = Finisher::default().plain(&packet, |frame| {
            if outer_l3 == 20 {
                assert_eq!(checksum::of(&frame[14..34]), 0, "outer IPv4 header");
            }
            // A frame of its own, from the inner IP header on.
            let l3 = 14 + usize::from(outer_l3) + usize::from(between);
            check_tcp4(&[&inner[..14], &frame[l3..]].concat());
            payload.extend_from_slice(&frame[l3 + 40..]);
            count += 1;
        });
        cut.unwrap_or_else(|_| panic!("{flags:?}"));
        assert_eq!(count, 7);
        assert!(payload == inner[54..], "{flags:?}");
    }
    // Options that push the inner header further away than the mbuf can say.
    let far = udp(6081, 0, &[[2 | 25, 0, 0x65, 0x58, 0, 0, 5, 0].as_slice(), &[0; 100]].concat());
    let start = (far.len() - 9020) as u16;
    let header = VnetHeader {
        checksum: Some(PartialChecksum { start, offset: 16 }),
        segmentation: Segmentation::Tcp4,
        segment_bytes: 1400,
        ..header
    };
    assert_eq!(describe(&mut mbuf(&pool, &far), &header, 0), Err(Malformed));
}
