//! Packets that a wire brings, in files, and what becomes of them.

use std::path::Path;

const TARGET: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const SOURCE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x09];
const ADDRESSES: [u8; 8] = [10, 0, 0, 1, 10, 0, 0, 2];
const DATA_BYTES: u8 = 64;
/// Where the type of an untagged frame stands, and its IPv4 header.
const KIND: usize = 12;
const IPV4: usize = 14;
/// Bytes of a header of IPv4 and of TCP, without options.
const IPV4_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
/// Where IPv4's checksum stands in a frame, and UDP's.
const HEADER_SUM: usize = IPV4 + 10;
const DATA_SUM: usize = IPV4 + IPV4_BYTES + 6;
/// Protocols of IPv4.
const UDP: u8 = 17;
const TCP: u8 = 6;
const GRE: u8 = 47;
/// Flags of TCP: FIN, PSH, ACK.
const LAST_ONLY: u8 = 0x09;
const LAST: u8 = 0x10 | LAST_ONLY;

fn ethernet(target: [u8; 6], kind: &[u8]) -> Vec<u8> {
    [&target[..], &SOURCE[..], kind].concat()
}

fn sum(parts: &[&[u8]]) -> [u8; 2] {
    // By hand, and not by the model's own: RFC 1071.
    let bytes = parts.concat();
    let words = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | two.get(1).copied().map_or(0, u32::from));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("short").to_be_bytes()
}

fn ipv4(number: u16, protocol: u8, data: &[u8]) -> Vec<u8> {
    let total = short(IPV4_BYTES + data.len());
    let head = [&[0x45, 0][..], &total[..], &number.to_be_bytes(), &[0, 0, 64, protocol][..]].concat();
    let check = sum(&[&head, &ADDRESSES]);
    [&head[..], &check[..], &ADDRESSES[..], data].concat()
}

fn ipv4_udp(from: u16, data: &[u8]) -> Vec<u8> {
    let length = short(8 + data.len());
    let ports = [from.to_be_bytes(), 2000_u16.to_be_bytes()].concat();
    let check = sum(&[&ADDRESSES, &[0, UDP], &length, &ports, &length, data]);
    ipv4(1, UDP, &[&ports[..], &length[..], &check[..], data].concat())
}

fn ipv4_tcp(number: u16, sequence: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let ports = [1000_u16.to_be_bytes(), 2000_u16.to_be_bytes()].concat();
    let head = [&ports[..], &sequence.to_be_bytes(), &[0, 0, 0, 7, 5 << 4, flags, 0x20, 0]].concat();
    let check = sum(&[&ADDRESSES, &[0, TCP], &short(TCP_BYTES + data.len()), &head, &[0; 4], data]);
    ipv4(number, TCP, &[&head[..], &check[..], &[0; 2], data].concat())
}

fn data() -> Vec<u8> {
    (0..DATA_BYTES).collect()
}

/// UDP over IPv4.
pub(crate) fn udp() -> Vec<u8> {
    [ethernet(TARGET, &[0x08, 0x00]), ipv4_udp(1000, &data())].concat()
}

/// UDP over IPv4 in GRE with a key, which is said to carry that type, and with so much data.
pub(crate) fn gre(kind: u16, key: u32, bytes: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
    let inner = ipv4_udp(1000, &data);
    let tunnel = [&[0x20, 0][..], &kind.to_be_bytes(), &key.to_be_bytes(), &inner].concat();
    [ethernet(TARGET, &[0x08, 0x00]), ipv4(1, GRE, &tunnel)].concat()
}

/// The same to somebody else.
pub(crate) fn udp_to(target: [u8; 6]) -> Vec<u8> {
    [&target[..], &udp()[6..]].concat()
}

/// The same from another port, and with so much data.
pub(crate) fn udp_from(port: u16, bytes: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..bytes).map(|at| (at + usize::from(port)) as u8).collect();
    [ethernet(TARGET, &[0x08, 0x00]), ipv4_udp(port, &data)].concat()
}

/// The same behind a tag of VLAN 5, of priority 1.
pub(crate) fn tagged() -> Vec<u8> {
    tag(&udp(), 0x2005)
}

/// A frame behind a tag.
pub(crate) fn tag(frame: &[u8], tag: u16) -> Vec<u8> {
    [&frame[..KIND], &[0x81, 0x00], &tag.to_be_bytes(), &frame[KIND..]].concat()
}

/// A frame without its tag.
pub(crate) fn untag(frame: &[u8]) -> Vec<u8> {
    if frame[KIND..].starts_with(&[0x81, 0x00]) {
        [&frame[..KIND], &frame[KIND + 4..]].concat()
    } else {
        frame.to_vec()
    }
}

/// A frame on the way back.
pub(crate) fn turned(frame: &[u8]) -> Vec<u8> {
    [&frame[6..KIND], &frame[..6], &frame[KIND..]].concat()
}

/// TCP over IPv4, with the flags of a last segment.
pub(crate) fn tcp(sequence: u32, bytes: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
    [ethernet(TARGET, &[0x08, 0x00]), ipv4_tcp(100, sequence, LAST, &data)].concat()
}

/// What [`tcp`] makes, cut up: each segment with its number, length and sums, and the last one alone with the flags of a last one.
///
/// Source: RFC 9293, section 3.1; Linux `net/ipv4/tcp_offload.c`, `tcp_gso_segment`.
pub(crate) fn tcp_segments(sequence: u32, bytes: usize, most: usize) -> Vec<Vec<u8>> {
    let whole = tcp(sequence, bytes);
    let pieces: Vec<&[u8]> = whole[IPV4 + IPV4_BYTES + TCP_BYTES..].chunks(most).collect();
    let last = pieces.len() - 1;
    let segment = |(at, data): (usize, &&[u8])| {
        let sequence = sequence.wrapping_add(u32::try_from(at * most).expect("short"));
        let flags = if at == last { LAST } else { LAST & !LAST_ONLY };
        let number = 100 + u16::try_from(at).expect("few");
        [ethernet(TARGET, &[0x08, 0x00]), ipv4_tcp(number, sequence, flags, data)].concat()
    };
    pieces.iter().enumerate().map(segment).collect()
}

/// Not of IP.
pub(crate) fn other() -> Vec<u8> {
    [ethernet(TARGET, &[0x08, 0x06]), vec![0; 46]].concat()
}

fn wrong(at: usize) -> Vec<u8> {
    let mut frame = udp();
    frame[at] ^= 0x55;
    frame
}

/// One of each, and two with a checksum that is wrong: IPv4's, and UDP's.
pub(crate) fn all() -> [Vec<u8>; 5] {
    [udp(), tagged(), wrong(HEADER_SUM), wrong(DATA_SUM), other()]
}

/// The hash of an IPv4 packet's addresses and UDP ports, by hand. Source: Microsoft, "RSS hashing functions"; DPDK
/// `lib/hash/rte_thash.h`.
pub(crate) fn toeplitz(key: &[u8], udp_frame: &[u8]) -> u32 {
    let addresses = &udp_frame[IPV4 + 12..IPV4 + IPV4_BYTES];
    let ports = &udp_frame[IPV4 + IPV4_BYTES..][..4];
    let bit_of = |bytes: &[u8], bit: usize| bytes[bit / 8] >> (7 - bit % 8) & 1;
    let input = [addresses, ports].concat();
    let set = (0..input.len() * 8).filter(|bit| bit_of(&input, *bit) == 1);
    set.fold(0, |hash, bit| {
        hash ^ (0..32).fold(0_u32, |window, at| window << 1 | u32::from(bit_of(key, bit + at)))
    })
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What a file of frames begins with. Source: the format of libpcap, pcap-savefile(5).
pub(crate) fn head() -> Vec<u8> {
    words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, 1])
}

/// A frame in such a file.
pub(crate) fn record(frame: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(frame.len()).expect("short");
    [&words(&[0, 0, bytes, bytes])[..], frame].concat()
}

/// Writes a file of frames.
pub(crate) fn write(path: &Path, frames: &[Vec<u8>]) {
    let records = frames.iter().flat_map(|frame| record(frame));
    std::fs::write(path, head().into_iter().chain(records).collect::<Vec<u8>>()).expect("a file");
}

/// The frames of a file.
pub(crate) fn read(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).expect("a file");
    let mut rest = file.get(24..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some((head, behind)) = rest.split_at_checked(16) {
        let bytes = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        // The last may not be written whole yet.
        let Some((frame, behind)) = behind.split_at_checked(bytes) else { break };
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}

#[test]
fn the_hash_is_the_published_one() {
    // Microsoft, "Verifying the RSS hash calculation": 66.9.149.187:2794 to 161.142.100.80:1766.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    let mut frame = udp();
    frame[IPV4 + 12..IPV4 + 24]
        .copy_from_slice(&[66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6]);
    assert_eq!(toeplitz(&KEY, &frame), 0x51cc_c178);
}
