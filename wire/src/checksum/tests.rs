use proptest::prelude::*;

use super::*;

/// The checksum as RFC 1071 writes it: words one by one, in network order.
fn plain(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn rfc_1071_example() {
    let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(sum.fold(), 0xddf2);
    assert_eq!(sum.checksum(), 0x220d);
}

#[test]
fn rfc_1624_example() {
    // Section 4: the case in which RFC 1141's formula gave ffff instead of 0000.
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn extremes() {
    for len in 0..300 {
        let ones = vec![0xff; len];
        assert_eq!(of(&ones), plain(&ones), "{len} bytes of ff");
        assert_eq!(of(&vec![0; len]), 0xffff, "{len} zeros");
    }
    assert_eq!(Sum::of(&[0xff, 0xff]).checksum_udp(), 0xffff);
}

#[test]
fn every_length_from_every_offset() {
    // Large words, so that nearly every addition carries; the last byte alone tells an odd length from an even one.
    let bytes: Vec<u8> = (0..400u32).map(|at| 0xff - (at * at % 7) as u8).collect();
    for skip in 0..9 {
        for len in 0..=390 {
            let part = &bytes[skip..skip + len];
            assert_eq!(of(part), plain(part), "{len} bytes from {skip}");
        }
    }
}

#[test]
fn folding_brings_every_carry_round() {
    for (sum, folded) in [
        (0, 0),
        (u64::MAX, 0xffff),
        (u64::MAX - 1, 0xfffe),
        (1 << 63, 0x8000),
        (0xffff_ffff_0000_0001, 1),
        (0x0001_ffff_ffff_ffff, 1),
        (0xffff_0000_0000_0001, 1),
    ] {
        assert_eq!(Sum(sum).fold_raw(), folded, "{sum:x}");
        // A number modulo 0xffff, with 0xffff for those that are not 0 themselves.
        let modulo = if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 };
        assert_eq!(u64::from(folded), modulo, "{sum:x}");
    }
}

#[test]
fn completion_refuses_a_field_outside_the_frame() {
    let mut frame = [0u8; 40];
    assert!(complete(&mut frame, 20, 18).is_ok());
    assert_eq!(
        complete(&mut frame, 20, 19),
        Err(WireError::Truncated { layer: Layer::Frame, needed: 41, given: 40 })
    );
    assert!(complete(&mut frame, usize::MAX, 19).is_err());
}

proptest! {
    #[test]
    fn agrees_with_the_plain_sum(bytes in prop::collection::vec(any::<u8>(), 0..3000), skip in 0usize..8) {
        let bytes = &bytes[skip.min(bytes.len())..];
        prop_assert_eq!(of(bytes), plain(bytes));
    }

    #[test]
    fn pieces_of_any_length_add_up(
        bytes in prop::collection::vec(any::<u8>(), 0..500),
        cuts in prop::collection::vec(0usize..500, 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let (mut sum, mut at) = (Sum::ZERO, 0);
        for cut in cuts {
            sum = sum.add_bytes_at(at, &bytes[at..cut]);
            at = cut;
        }
        prop_assert_eq!(sum.checksum(), plain(&bytes));
    }

    #[test]
    fn incremental_equals_recomputed(
        mut bytes in prop::collection::vec(any::<u8>(), 2..200),
        at in any::<prop::sample::Index>(),
        new in any::<[u8; 8]>(),
    ) {
        // A sum of all zeros has two forms; the first byte keeps it away from them, as an IP version does.
        bytes[0] = 0x45;
        let at = at.index(bytes.len() / 2) * 2;
        let end = (at + 8).min(bytes.len());
        let before = plain(&bytes);
        let old = bytes[at..end].to_vec();
        bytes[at..end].copy_from_slice(&new[..end - at]);
        bytes[0] = 0x45;
        let new = bytes[at..end].to_vec();
        prop_assert_eq!(update_bytes(before, &old, &new), plain(&bytes));
        if end - at == 8 {
            let stepwise = old.chunks(2).zip(new.chunks(2)).fold(before, |sum, (old, new)| {
                update(sum, u16::from_be_bytes([old[0], old[1]]), u16::from_be_bytes([new[0], new[1]]))
            });
            prop_assert_eq!(stepwise, plain(&bytes));
        }
    }

    #[test]
    fn pseudo_headers_equal_their_bytes(
        v4 in any::<[u8; 8]>(), v6 in any::<[u8; 32]>(), protocol in any::<u8>(), len in any::<u32>(),
    ) {
        let short = len as u16;
        let mut bytes = v4.to_vec();
        bytes.extend([0, protocol]);
        bytes.extend(short.to_be_bytes());
        let src: [u8; 4] = v4[..4].try_into().unwrap();
        let dst: [u8; 4] = v4[4..].try_into().unwrap();
        let sum = pseudo_v4(src.into(), dst.into(), IpProtocol(protocol), short);
        prop_assert_eq!(sum.checksum(), plain(&bytes));

        let mut bytes = v6.to_vec();
        bytes.extend(len.to_be_bytes());
        bytes.extend([0, 0, 0, protocol]);
        let src: [u8; 16] = v6[..16].try_into().unwrap();
        let dst: [u8; 16] = v6[16..].try_into().unwrap();
        let sum = pseudo_v6(src.into(), dst.into(), IpProtocol(protocol), len);
        prop_assert_eq!(sum.checksum(), plain(&bytes));
    }

    #[test]
    fn completion_gives_a_valid_datagram(payload in prop::collection::vec(any::<u8>(), 0..200), start in 0usize..60) {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let len = 8 + payload.len();
        let pseudo = pseudo_v4(src, dst, IpProtocol::UDP, len as u16);
        let mut frame = vec![0xa5; start];
        frame.extend([0, 7, 0, 9]);
        frame.extend((len as u16).to_be_bytes());
        frame.extend(pseudo.fold().to_be_bytes());
        frame.extend(&payload);
        complete(&mut frame, start, 6).unwrap();
        prop_assert!((pseudo.add_bytes(&frame[start..])).is_valid());
        prop_assert!(frame[start + 6..start + 8] != [0, 0]);
    }
}

/// What a translator does to a header, in each of the states that its checksum can be in: afterwards the field is what it would be
/// had the packet been made with the new addresses and ports at once.
#[test]
fn a_translated_packet_has_the_sum_of_one_made_anew() {
    let flows: [(&[u8], &[u8]); 3] = [
        (&[10, 0, 0, 1, 192, 0, 2, 9], &[198, 51, 100, 77, 192, 0, 2, 9]),
        (&[10, 0, 0, 1, 192, 0, 2, 9], &[10, 0, 0, 1, 255, 255, 255, 254]),
        (&[0x20; 32], &[0xfd; 32]),
    ];
    let mut seen_zero = false;
    for (old, new) in flows {
        for protocol in [IpProtocol::TCP, IpProtocol::UDP] {
            let at = if protocol == IpProtocol::TCP { 16 } else { 6 };
            for word in 0..=u16::MAX {
                let segment = |ports: [u8; 4]| {
                    let mut bytes = [0x5a; 31];
                    bytes[..4].copy_from_slice(&ports);
                    bytes[20..22].copy_from_slice(&word.to_be_bytes());
                    bytes[at..at + 2].fill(0);
                    bytes
                };
                let (ports, new_ports) = ([0x9c, 0x40, 0, 53], [0xc0, 1, 0, 53]);
                let (before, after) = (segment(ports), segment(new_ports));
                // Sums by words alone, as RFC 1071 has it, shared with nothing above.
                let pseudo = |addresses: &[u8]| {
                    [addresses, &[0, protocol.0], &(before.len() as u16).to_be_bytes()].concat()
                };
                let whole =
                    |addresses: &[u8], bytes: &[u8]| match plain(&[&pseudo(addresses), bytes].concat()) {
                        0 => 0xffff,
                        sum => sum,
                    };
                let translate = |state: TransportSum, field| {
                    let field = state.address_changed(field, old, new);
                    state.data_changed(field, &ports, &new_ports)
                };
                let field = whole(old, &before);
                let state = TransportSum::of(protocol, field, false);
                assert_eq!(state, TransportSum::Whole);
                let expected = whole(new, &after);
                seen_zero |= expected == 0xffff;
                assert_eq!(translate(state, field), expected, "{protocol:?} {word:#x}, whole");

                let field = !plain(&pseudo(old));
                let state = TransportSum::of(protocol, field, true);
                assert_eq!(translate(state, field), !plain(&pseudo(new)), "{protocol:?} {word:#x}, open");

                let state = TransportSum::of(protocol, 0, false);
                if protocol == IpProtocol::UDP {
                    assert_eq!(translate(state, 0), 0, "absent");
                }
            }
        }
    }
    assert!(seen_zero, "a sum of 0, which UDP writes as 0xffff, was among them");
}
