//! Our compiler beside libpcap's: on frames of many kinds, both programs decide alike.

use std::net::Ipv6Addr;

use pollux_capture::{Frame, Program};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;

/// Long enough that no load of a filter here goes past the end: there the order of checks would decide.
const BYTES: usize = 200;
const SHORT: usize = 96;

/// The filters of `golden/filters.txt` and libpcap's programs.
fn golden() -> Vec<(String, Vec<Instruction>)> {
    let text = include_str!("../../golden/filters.txt");
    let parts = text.split("filter ").skip(1);
    let pair = |part: &str| {
        let (filter, numbers) = part.split_once('\n').expect("a line");
        (filter.to_owned(), from_numbers(numbers).expect("numbers"))
    };
    let all: Vec<_> = parts.map(pair).collect();
    assert_eq!(all.len(), 72);
    all
}

fn ours(filter: &str) -> Program {
    let program = compile(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    Program::verify(&program.expect("a filter")).unwrap_or_else(|error| panic!("{filter}: {error}"))
}

/// What a frame is made of.
#[derive(Clone, Copy, Debug)]
struct Kind {
    macs: u8,
    tags: u8,
    layer: u8,
    protocol: u8,
    addresses: u8,
    ports: u8,
    fragment: bool,
    header_words: u8,
    bytes: u8,
}

const MACS: [[u8; 6]; 4] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]];
/// The last but one begins with the type of an ICMP echo request.
const PORTS: [u16; 8] = [53, 80, 443, 55, 1000, 2000, 0x0801, 49];
const PROTOCOLS: [u8; 8] = [6, 17, 132, 1, 2, 58, 44, 50];
const ADDRESSES: [[u8; 4]; 6] =
    [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 9], [10, 1, 2, 3], [224, 0, 0, 1], [192, 168, 0, 1]];

fn frame(kind: Kind) -> Vec<u8> {
    let pick = |from: u8, count: usize| usize::from(from) % count;
    let mut frame = Vec::new();
    frame.extend(MACS[pick(kind.macs, 4)]);
    frame.extend(MACS[pick(kind.macs / 4, 4)]);
    for tag in 0..kind.tags % 3 {
        frame.extend([[0x81, 0x00], [0x88, 0xa8]][pick(kind.tags / 3, 2)]);
        frame.extend([0x20, [5, 7, 9][pick(kind.tags / 6 + tag, 3)]]);
    }
    let ports = [PORTS[pick(kind.ports, 8)], PORTS[pick(kind.ports / 8, 8)]].map(u16::to_be_bytes).concat();
    let protocol = PROTOCOLS[pick(kind.protocol, 8)];
    let (source, destination) = (pick(kind.addresses, 6), pick(kind.addresses / 6, 6));
    match kind.layer % 6 {
        0 | 1 => {
            frame.extend([0x08, 0x00]);
            let words = 5 + kind.header_words % 4;
            let fragment: [u8; 2] = if kind.fragment { [0x00, 0xb9] } else { [0x40, 0] };
            frame.extend([0x40 | words, 0, 0, kind.bytes, 0, 0]);
            frame.extend(fragment);
            frame.extend([kind.header_words, protocol, 0, 0]);
            frame.extend(ADDRESSES[source]);
            frame.extend(ADDRESSES[destination]);
            frame.extend(vec![0; usize::from(words - 5) * 4]);
            frame.extend(ports);
            frame.extend([kind.bytes, 0, 0, kind.macs, 0, 1, 2, 3, 0x50, kind.ports]);
        }
        2 | 3 => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, protocol, 64]);
            for place in [source, destination] {
                let text =
                    ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:8000::", "ff02::1", "::1", "2001:db9::1"]
                        [place];
                frame.extend(text.parse::<Ipv6Addr>().expect("an address").octets());
            }
            if protocol == 44 {
                frame.extend([PROTOCOLS[pick(kind.ports, 8)], 0, 0, 0, 0, 0, 0, 0]);
            }
            frame.extend(ports);
            frame.extend([kind.bytes; 12]);
        }
        4 => {
            frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
            frame.extend(MACS[0]);
            frame.extend(ADDRESSES[source]);
            frame.extend(MACS[1]);
            frame.extend(ADDRESSES[destination]);
        }
        _ => frame.extend([[0x88, 0xcc], [0x80, 0x35], [0x00, 0x40]][pick(kind.protocol, 3)]),
    }
    let bytes = if kind.bytes.is_multiple_of(3) { SHORT } else { BYTES };
    frame.resize(bytes, kind.bytes);
    frame
}

prop_compose! {
    fn kinds()(
        (macs, tags, layer, protocol) in any::<(u8, u8, u8, u8)>(),
        (addresses, ports, fragment, header_words, bytes) in any::<(u8, u8, bool, u8, u8)>(),
    ) -> Kind {
        let fragment = fragment && ports % 4 == 0;
        // Half of the frames have no tag.
        let tags = if layer >= 128 { 0 } else { tags };
        Kind { macs, tags, layer, protocol, addresses, ports, fragment, header_words, bytes }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_decide_alike(kinds in proptest::collection::vec(kinds(), 100)) {
        let frames: Vec<Vec<u8>> = kinds.iter().map(|kind| frame(*kind)).collect();
        for (filter, theirs) in golden() {
            let theirs = Program::verify(&theirs).expect("libpcap's");
            let ours = ours(&filter);
            for (kind, frame) in kinds.iter().zip(&frames) {
                let frame = &frame[..];
                prop_assert_eq!(ours.run(&frame), theirs.run(&frame), "{}: {:?} {:02x?}", filter, kind, frame);
            }
        }
    }

    #[test]
    fn no_text_panics(text in "[a-z0-9 ./:()&|!=<>\\[\\]\\\\-]{0,60}") {
        let _any = compile(&text);
    }

    #[test]
    fn words_in_any_order_make_a_program_or_an_error(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "ip", "tcp", "port", "53", "host", "10.0.0.1", "net", "10", "and", "or", "not", "(", ")", "vlan", "[0]",
                "=", "&", "5", "src", "dst", "ether", "proto", "portrange", "1-2", "len", "less", "broadcast", "mask",
            ]),
            0..14,
        ),
    ) {
        if let Ok(Some(program)) = compile(&words.join(" ")) {
            Program::verify(&program).expect("what is compiled is a program");
        }
    }
}

/// The corpus is no good if a filter takes all of it or nothing.
#[test]
fn each_filter_takes_some_frames_and_refuses_others() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let frames: Vec<Vec<u8>> =
        (0..4000).map(|_| frame(kinds().new_tree(&mut runner).expect("a kind").current())).collect();
    for (filter, _) in golden() {
        let program = ours(&filter);
        let taken = frames.iter().filter(|frame| program.run(&&frame[..]) > 0).count();
        assert!(taken > 0 && taken < frames.len(), "{filter}: {taken} of {}", frames.len());
    }
}

#[test]
fn a_filter_reads_across_pieces() {
    struct Pieces(Vec<Vec<u8>>);
    impl Frame for Pieces {
        fn bytes(&self) -> usize {
            self.0.iter().map(Vec::len).sum()
        }
        fn pieces(&self) -> impl Iterator<Item = &[u8]> {
            self.0.iter().map(Vec::as_slice)
        }
    }
    let whole = frame(Kind {
        macs: 0,
        tags: 0,
        layer: 0,
        protocol: 1,
        addresses: 1,
        ports: 0,
        fragment: false,
        header_words: 2,
        bytes: 1,
    });
    let program = ours("udp port 53 and host 10.0.0.1 and ip[2:2] < 2000");
    assert_ne!(program.run(&&whole[..]), 0);
    for size in 1..40 {
        let pieces = Pieces(whole.chunks(size).map(<[u8]>::to_vec).collect());
        assert_ne!(program.run(&pieces), 0, "pieces of {size}");
    }
}

#[test]
fn a_long_filter_jumps_far() {
    let many: Vec<String> =
        (0..200).map(|host| format!("src host 10.9.{}.{}", host / 100, host % 100)).collect();
    let program = ours(&many.join(" or "));
    let mut frame = [0; 60];
    frame[12] = 8;
    frame[26..30].copy_from_slice(&[10, 9, 1, 99]);
    assert_ne!(program.run(&&frame[..]), 0, "the last of them");
    frame[29] = 100;
    assert_eq!(program.run(&&frame[..]), 0);
    let error = compile(&many.iter().cycle().take(900).cloned().collect::<Vec<_>>().join(" or "));
    assert!(error.expect_err("too long").to_string().contains("there may be 4096"));
}

#[test]
fn mistakes_say_what_is_expected() {
    for (filter, message) in [
        ("host", "it ends where an address is expected"),
        (
            "host example.org",
            "'example.org' is not an IPv4 or IPv6 address (names of hosts are not looked up)",
        ),
        ("ip and", "it ends where a primitive, as 'host 10.0.0.1', 'udp port 53' or 'vlan', is expected"),
        ("(ip", "it ends where ')' is expected"),
        ("ip ip", "'ip' is not an IPv4 or IPv6 address (names of hosts are not looked up)"),
        ("port 65536", "port '65536' must be from 0 to 65535"),
        ("port nosuchservice", "port 'nosuchservice' is no number and not in /etc/services"),
        ("portrange 5", "portrange '5' must be two ports, as 1000-2000"),
        ("net 10.0.0.1/24", "net '10.0.0.1/24' has bits behind its prefix"),
        ("net 10.0.0.0/33", "net '10.0.0.0/33' is an IPv4 network: its prefix length must be 0 to 32"),
        ("ether host 1", "'1' is not a MAC address, as 02:00:00:00:00:01"),
        ("ether proto 5", "ether proto 5 must be an EtherType, 0x600 to 0xffff"),
        ("arp port 5", "'arp' does not go with 'port'"),
        ("tcp host 10.0.0.1", "'tcp' does not go with the address 10.0.0.1"),
        ("vlan 4096", "vlan 4096 must be from 0 to 4095"),
        ("tcp[13", "a '[' without its ']'"),
        ("tcp[13:3] = 1", "'[13:3]' has 3 bytes; it must be 1, 2 or 4"),
        ("tcp[13] 5", "'5' stands where '=', '!=', '<', '<=', '>' or '>=' is expected"),
        ("ip = 5", "'=' stands where 'and', 'or' or the end of the filter is expected"),
        ("ip ; arp", "';' is not part of a filter"),
    ] {
        assert_eq!(compile(filter).expect_err(filter).to_string(), message, "{filter}");
    }
    assert_eq!(compile("  "), Ok(None));
    let deep = "(".repeat(100_000);
    assert!(compile(&deep).expect_err("deep").to_string().contains("more than 100"));
}

#[test]
fn numbers_of_tcpdump_are_read() {
    let (_, program) = golden().swap_remove(0);
    assert_eq!(from_numbers(&to_numbers(&program)), Ok(program));
    for (text, part) in [
        ("", "must be the number of instructions"),
        ("2\n6 0 0 1\n", "announces 2 instructions and has 1"),
        ("1\n6 0 0\n", "is not an instruction"),
        ("1\n6 0 0 1 1\n", "is not an instruction"),
        ("1\n6 256 0 1\n", "is not an instruction"),
    ] {
        assert!(from_numbers(text).expect_err(text).to_string().contains(part), "{text}");
    }
}
