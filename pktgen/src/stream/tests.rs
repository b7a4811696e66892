//! Every packet of bursts, byte by byte: against frames that are laid out one by one, and against a parser that knows nothing of either.

use pollux_mempool::{Burst, MbufPool};
use pollux_wire::checksum::Sum;
use pollux_wire::{EtherType, Icmp, Icmpv6, Ipv4, Ipv6, MacAddress, Tcp, Udp, vlan};

use super::{Marking, Replica, Stream, turn_bytes};
use crate::spec::StreamSpec;
use crate::stamp::Mark;

const SOURCE: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);
const COOKIE: u32 = 0xc00c_1e05;

fn spec(packets: &[&str], sizes: &str) -> StreamSpec {
    StreamSpec {
        packets: packets
            .iter()
            .map(|text| text.parse().unwrap_or_else(|why| panic!("{text} {why}")))
            .collect(),
        sizes: sizes.parse().expect("sizes"),
        ..StreamSpec::default()
    }
}

fn pool() -> MbufPool {
    MbufPool::builder("packets", 512).build_anonymous().expect("a pool")
}

/// `count` packets, in bursts of all lengths.
fn packets(spec: &StreamSpec, count: usize) -> Vec<Vec<u8>> {
    let marking = spec.latency.then_some(Marking { cookie: COOKIE, stream: 3 });
    let copy = Replica { number: 0, of: 1, seed: 1 };
    let mut stream = Stream::new(spec, SOURCE, copy, marking).unwrap_or_else(|why| panic!("{why}"));
    let (pool, mut burst, mut all) = (pool(), Burst::new(), Vec::new());
    // What stands in mbufs does not show.
    for _ in 0..8 {
        pool.alloc_received(&mut burst, 64, 1600, 0);
        burst.iter_mut().for_each(|mbuf| mbuf.data_mut().expect("sole").fill(0xa5));
        burst.clear();
    }
    while all.len() < count {
        let wanted = (all.len() % 64 + 1).min(count - all.len());
        assert_eq!(stream.make(&pool, &mut burst, wanted, 0x1234_5678_9abc), wanted);
        all.extend(burst.iter().map(|mbuf| mbuf.data().to_vec()));
        burst.clear();
    }
    let bytes: u64 = all.iter().map(|frame| frame.len() as u64 + 4).sum();
    assert_eq!(turn_bytes(&stream.bytes_until(), count as u64), bytes);
    all
}

/// Follows the headers of a frame; panics where a checksum is wrong. The number of checksums that are right.
fn verified(frame: &[u8]) -> usize {
    let behind = vlan::skip_tags(frame).expect("Ethernet");
    network(behind.ether_type, &frame[behind.offset..])
}

fn network(kind: EtherType, bytes: &[u8]) -> usize {
    match kind {
        EtherType::IPV4 => {
            let ip = Ipv4::new(bytes).expect("IPv4");
            assert!(ip.checksum_ok(), "of {bytes:x?}");
            1 + transport(ip.protocol, ip.payload(), &|protocol, bytes| {
                pollux_wire::checksum::pseudo_v4(
                    ip.src(),
                    ip.dst(),
                    pollux_wire::IpProtocol(protocol),
                    bytes as u16,
                )
            })
        }
        EtherType::IPV6 => {
            let ip = Ipv6::new(bytes).expect("IPv6");
            transport(bytes[6], ip.payload(), &|protocol, bytes| {
                pollux_wire::checksum::pseudo_v6(
                    ip.src(),
                    ip.dst(),
                    pollux_wire::IpProtocol(protocol),
                    bytes as u32,
                )
            })
        }
        EtherType(0x8847) => {
            let labels = bytes.chunks(4).position(|label| label[2] & 1 == 1).expect("a bottom") + 1;
            match bytes[4 * labels] >> 4 {
                4 => network(EtherType::IPV4, &bytes[4 * labels..]),
                6 => network(EtherType::IPV6, &bytes[4 * labels..]),
                _ => verified(&bytes[4 * labels..]),
            }
        }
        _ => 0,
    }
}

fn transport(protocol: u8, bytes: &[u8], pseudo: &dyn Fn(u8, usize) -> Sum) -> usize {
    let sum = pseudo(protocol, bytes.len());
    match protocol {
        17 => {
            let udp = Udp::new(bytes).expect("UDP");
            assert!(udp.checksum_ok(sum), "of {bytes:x?}");
            usize::from(udp.checksum.get() != 0)
                + match udp.dst_port.get() {
                    4789 => verified(&udp.payload()[8..]),
                    2152 if udp.payload()[8] >> 4 == 4 => network(EtherType::IPV4, &udp.payload()[8..]),
                    2152 => network(EtherType::IPV6, &udp.payload()[8..]),
                    _ => 0,
                }
        }
        6 => {
            assert!(Tcp::new(bytes).expect("TCP").checksum_ok(sum), "of {bytes:x?}");
            1
        }
        1 => {
            assert!(Icmp::new(bytes).expect("ICMP").checksum_ok(), "of {bytes:x?}");
            1
        }
        58 => {
            assert!(Icmpv6::new(bytes).expect("ICMPv6").checksum_ok(sum), "of {bytes:x?}");
            1
        }
        47 => {
            let behind = if bytes[0] & 0x20 == 0 { 4 } else { 8 };
            match u16::from_be_bytes([bytes[2], bytes[3]]) {
                0x6558 => verified(&bytes[behind..]),
                kind => network(EtherType(kind), &bytes[behind..]),
            }
        }
        4 => network(EtherType::IPV4, bytes),
        41 => network(EtherType::IPV6, bytes),
        _ => 0,
    }
}

/// Stacks with a field of each kind that varies, and how many checksums they have.
const STACKS: &[(&str, usize)] = &[
    ("ether(dst=02:00:00:00:00:00..02:00:00:00:ff:ff+77,src=random)/ipv4/udp", 2),
    ("ether/vlan(id=1..4094,pcp=random)/ipv4(tos=0..255,ttl=1|64|255)/udp", 2),
    ("ether/qinq(id=random)/vlan(id=9..7,dei=random)/ipv6(tc=random,flow=random,hop=1..255)/tcp", 1),
    (
        "ether/mpls(label=random,tc=0..7)/mpls(label=16..1048575+999,ttl=random)/ipv4(src=10.0.0.1..10.0.255.0)/tcp",
        2,
    ),
    ("ether/mpls/ipv6(dst=::1|2001:db8::7|ff02::1)/icmpv6(id=random,seq=0..65535)", 1),
    ("ether/ipv4(src=10.0.0.0~0.255.255.255,dst=random,id=random)/udp(src=random,dst=random)", 2),
    (
        "ether/ipv4(dst=10.0.0.9..10.0.0.1)/tcp(src=1024..65535,seq=random,ack=random,flags=0..255,window=random)/payload(c0ffee)",
        2,
    ),
    ("ether/ipv4(ttl=random,tos=random)/icmp(id=0..9,seq=65535..0,type=random)", 2),
    ("ether/ipv6(src=random,dst=2001:2::5~::ffff:ffff:ffff)/udp(src=random)", 1),
    ("ether/ipv4(src=random)/udp(sum=0,src=random)", 1),
    (
        "ether/ipv4(src=random)/udp(src=random)/vxlan(vni=random)/ether(src=random)/ipv4(src=random)/udp(dst=7|9)",
        3,
    ),
    (
        "ether/ipv6(src=random)/udp(src=random)/vxlan(vni=1..16777215+5)/ether/ipv4(src=random,ttl=random)/tcp(src=random)",
        3,
    ),
    ("ether/ipv4/udp(sum=1,src=random)/gtpu(teid=random)/ipv6(dst=random)/udp(src=random)", 3),
    ("ether/ipv4/udp/gtpu(teid=1..4294967295+65537)/ipv4(dst=random)/icmp(seq=random)", 3),
    ("ether/ipv4/gre(key=random)/ether/ipv4(src=random)/udp(src=random)", 3),
    ("ether/ipv4(src=random)/gre/ipv6(src=random)/tcp(seq=random)", 2),
    ("ether/ipv4/ipv4(src=1.0.0.0|2.0.0.0)/udp", 3),
    ("ether/ipv6/ipv4(src=random)/udp(sum=1,src=random)/vxlan/ether/ipv6(src=random)/udp(dst=0..65535)", 3),
    ("ether(type=random)/payload(00)", 0),
    ("ether/arp(op=1|2,spa=random,sha=random,tpa=10.0.0.1..10.0.0.9)", 0),
];

#[test]
fn checksums_are_right_in_every_packet_of_every_stack() {
    for (text, checksums) in STACKS {
        for (size, latency) in
            [("200", false), ("200", true), ("201", true), ("200..230", true), ("200x7,594x4,1518", false)]
        {
            let spec = StreamSpec { latency, ..spec(&[text], size) };
            for frame in packets(&spec, 200) {
                // What varies in the type is followed nowhere.
                let seen = if text.starts_with("ether(type") { 0 } else { verified(&frame) };
                assert_eq!(seen, *checksums, "{text} {size}");
            }
        }
    }
}

#[test]
fn checksums_are_right_where_numbers_begin_anew() {
    let spec = StreamSpec { latency: true, ..spec(&["ether/ipv4/udp"], "64") };
    let (marking, pool) = (Marking { cookie: COOKIE, stream: 3 }, pool());
    for first in [u64::from(u16::MAX) - 9, u64::from(u32::MAX) - 9, (1 << 33) - 1] {
        let mut stream = Stream::new(&spec, SOURCE, Replica { number: 0, of: 1, seed: 1 }, Some(marking))
            .expect("a stream");
        stream.number = first;
        let mut burst = Burst::new();
        assert_eq!(stream.make(&pool, &mut burst, 32, 77), 32);
        for (mbuf, number) in burst.iter().zip(first..) {
            let frame = mbuf.data();
            assert_eq!(verified(frame), 2);
            assert_eq!(frame[56..], (number as u32).to_be_bytes());
        }
    }
}

#[test]
fn edited_packets_are_those_that_are_laid_out_one_by_one() {
    // The same with each value written out.
    let laid = |text: &str| packets(&spec(&[text], "90"), 1).remove(0);
    let ranges = "ether/vlan(id=4093..4095)/ipv4(src=10.0.0.254..10.0.1.2+2)/udp(src=9..5+2,dst=1|2|3|4)";
    for (number, frame) in packets(&spec(&[ranges], "90"), 100).into_iter().enumerate() {
        let vlan = [4093, 4094, 4095][number % 3];
        let src = ["10.0.0.254", "10.0.1.0", "10.0.1.2"][number % 3];
        let (sport, dport) = ([9, 7, 5][number % 3], number % 4 + 1);
        let text = format!("ether/vlan(id={vlan})/ipv4(src={src})/udp(src={sport},dst={dport})");
        assert_eq!(frame, laid(&text), "packet {number}");
    }
    let inner =
        "ether/ipv6/udp/vxlan(vni=5..7)/ether/ipv4(dst=1.2.3.4|5.6.7.8)/tcp(seq=4294967295..4294967290)";
    for (number, frame) in packets(&spec(&[inner], "150"), 100).into_iter().enumerate() {
        let (vni, dst) = (5 + number % 3, ["1.2.3.4", "5.6.7.8"][number % 2]);
        let seq = 4_294_967_295 - (number % 6) as u64;
        let text = format!("ether/ipv6/udp/vxlan(vni={vni})/ether/ipv4(dst={dst})/tcp(seq={seq})");
        assert_eq!(frame, packets(&spec(&[&text], "150"), 1).remove(0), "packet {number}");
    }
}

#[test]
fn a_tuple_goes_on_when_the_field_before_has_come_round() {
    let text = "ether/ipv4(src=10.0.0.1..10.0.0.3,ttl=5|6)/udp(src=100..101)";
    let tuple = ["udp.src", "ipv4.src", "ipv4.ttl"].map(str::to_owned).to_vec();
    let frames = packets(&StreamSpec { tuple, ..spec(&[text], "64") }, 30);
    for (number, frame) in frames.iter().enumerate() {
        let seen = (frame[22], frame[29], frame[35]);
        let right = (5 + number / 6 % 2, 1 + number / 2 % 3, 100 + number % 2);
        assert_eq!(seen, (right.0 as u8, right.1 as u8, right.2 as u8), "packet {number}");
        verified(frame);
    }
}

#[test]
fn sequences_and_sizes_take_turns() {
    let texts = ["ether/ipv4(src=10.0.0.1..10.0.0.9)/udp", "ether/ipv6(hop=7..9)/tcp", "ether/arp"];
    let frames = packets(&spec(&texts, "100,200"), 60);
    for (number, frame) in frames.iter().enumerate() {
        assert_eq!(frame.len(), [96, 196][number % 2]);
        let round = number / 3;
        match number % 3 {
            0 => assert_eq!((frame[12], frame[29]), (8, (round % 9 + 1) as u8)),
            1 => assert_eq!((frame[12], frame[21]), (0x86, (round % 3 + 7) as u8)),
            _ => assert_eq!(frame[12..14], [8, 6]),
        }
        verified(frame);
    }
}

#[test]
fn random_bits_are_repeated_by_the_seed_and_stay_in_their_mask() {
    let spec = spec(&["ether/ipv4(src=10.1.2.3~0.0.255.255)/udp(src=random)"], "64");
    let (first, again) = (packets(&spec, 500), packets(&spec, 500));
    assert_eq!(first, again);
    let sources: std::collections::BTreeSet<&[u8]> = first.iter().map(|frame| &frame[26..30]).collect();
    assert!(sources.len() > 480 && sources.iter().all(|source| source[..2] == [10, 1]), "{}", sources.len());
}

#[test]
fn copies_of_a_stream_begin_with_other_values() {
    let spec = spec(&["ether/ipv4(src=10.0.0.0..10.0.0.99)/udp"], "64");
    let first = |number| {
        let copy = Replica { number, of: 4, seed: number };
        let mut stream = Stream::new(&spec, SOURCE, copy, None).expect("a stream");
        let mut burst = Burst::new();
        stream.make(&pool(), &mut burst, 1, 0);
        burst[0].data()[29]
    };
    assert_eq!([0, 1, 2, 3].map(first), [0, 25, 50, 75]);
}

#[test]
fn marks_stand_at_the_end_and_count() {
    let spec = StreamSpec { latency: true, ..spec(&["ether/ipv4/udp", "ether/ipv6/udp"], "96,97") };
    for (number, frame) in packets(&spec, 150).iter().enumerate() {
        let mark = Mark::of(frame.last_chunk().expect("16 bytes")).read(COOKIE).expect("a mark");
        assert_eq!((mark.stream, mark.number, mark.time), (3, number as u32, 0x1234_5678_9abc));
        verified(frame);
    }
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let refused = |spec: &StreamSpec| {
        let copy = Replica { number: 0, of: 1, seed: 1 };
        Stream::new(spec, SOURCE, copy, None).map(|_| ()).expect_err("it was taken")
    };
    let tuple = |text, names: &[&str]| StreamSpec {
        tuple: names.iter().map(|name| (*name).to_owned()).collect(),
        ..spec(&[text], "64")
    };
    let varies = "ether/ipv4(src=1.0.0.0..1.0.0.9)/udp(src=random)";
    for (spec, why) in [
        (
            spec(&["ether/ipv6/tcp"], "64"),
            "size 64 is too small: headers and payload of 74 bytes and the FCS need 78 bytes",
        ),
        (
            StreamSpec { latency: true, ..spec(&["ether/ipv4/tcp"], "64") },
            "size 64 is too small for latency: headers and payload of 54 bytes, a stamp of 16 and the FCS need 74 bytes",
        ),
        (
            spec(&["ether/ipv6(src=2001:2::1..2001:3::1)"], "64"),
            "field 'ipv6.src': a range may change the last 64 bits; use a list or random bits",
        ),
        (
            spec(&["ether(dst=02:00:00:00:00:00..02:01:00:00:00:00)"], "64"),
            "field 'ether.dst': a range may change the last 32 bits; use a list or random bits",
        ),
        (
            tuple(varies, &["udp.dst"]),
            "tuple names 'udp.dst', which is no field that varies: ipv4.src, udp.src",
        ),
        (tuple(varies, &["udp.src"]), "tuple names 'udp.src', which is random: it takes ranges and lists"),
        (
            tuple(varies, &["ipv4.src", "ipv4.src"]),
            "tuple names 'ipv4.src', which is no field that varies: udp.src",
        ),
        (spec(&["ether"; 1000], "64..4159"), "has "),
    ] {
        let refusal = refused(&spec);
        assert!(refusal.starts_with(why), "{refusal}");
    }
}

#[test]
fn the_second_header_of_a_kind_has_a_name() {
    let text = "ether/ipv4(src=1.0.0.1..1.0.0.2)/ipv4(src=2.0.0.1..2.0.0.2)";
    let tuple = ["ipv4:2.src", "ipv4.src"].map(str::to_owned).to_vec();
    let frames = packets(&StreamSpec { tuple, ..spec(&[text], "64") }, 4);
    let seen: Vec<_> = frames.iter().map(|frame| (frame[29], frame[49])).collect();
    assert_eq!(seen, [(1, 1), (1, 2), (2, 1), (2, 2)]);
}
