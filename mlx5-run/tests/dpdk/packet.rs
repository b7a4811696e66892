//! Packets that a wire brings, in files.

use std::path::Path;

const TARGET: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const SOURCE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x09];
const ADDRESSES: [u8; 8] = [10, 0, 0, 1, 10, 0, 0, 2];
const DATA_BYTES: u8 = 64;
/// Where IPv4's checksum stands in a frame, and UDP's.
const HEADER_SUM: usize = 14 + 10;
const DATA_SUM: usize = 14 + 20 + 6;

fn ethernet(kind: &[u8]) -> Vec<u8> {
    [&TARGET[..], &SOURCE[..], kind].concat()
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

fn ipv4_udp() -> Vec<u8> {
    let data: Vec<u8> = (0..DATA_BYTES).collect();
    let length = u16::try_from(8 + data.len()).expect("short").to_be_bytes();
    let ports = [0x03, 0xe8, 0x07, 0xd0];
    let check = sum(&[&ADDRESSES, &[0, 17], &length, &ports, &length, &data]);
    let udp = [&ports[..], &length[..], &check[..], &data[..]].concat();
    let total = u16::try_from(20 + udp.len()).expect("short").to_be_bytes();
    let head = [&[0x45, 0][..], &total[..], &[0, 1, 0, 0, 64, 17][..]].concat();
    let check = sum(&[&head, &ADDRESSES]);
    [&head[..], &check[..], &ADDRESSES[..], &udp[..]].concat()
}

/// UDP over IPv4.
pub(crate) fn udp() -> Vec<u8> {
    [ethernet(&[0x08, 0x00]), ipv4_udp()].concat()
}

/// The same behind a tag of VLAN 5, of priority 1.
pub(crate) fn tagged() -> Vec<u8> {
    [ethernet(&[0x81, 0x00, 0x20, 0x05, 0x08, 0x00]), ipv4_udp()].concat()
}

/// Not of IP.
pub(crate) fn other() -> Vec<u8> {
    [ethernet(&[0x08, 0x06]), vec![0; 46]].concat()
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

/// Writes a file of frames. Source: the format of libpcap, pcap-savefile(5).
pub(crate) fn write(path: &Path, frames: &[Vec<u8>]) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, 1]);
    for frame in frames {
        let bytes = u32::try_from(frame.len()).expect("short");
        file.extend(words(&[0, 0, bytes, bytes]));
        file.extend(frame);
    }
    std::fs::write(path, file).expect("a file");
}

/// The frames of a file.
pub(crate) fn read(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).expect("a file");
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((head, behind)) = rest.split_at_checked(16) {
        let bytes = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let (frame, behind) = behind.split_at(bytes);
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}
