//! What is on the wire, as others read it.

use std::io::Write;
use std::process::Command;

use pollux_mlx5_abi::command::qp::context::service;
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::Atomic;
use pollux_tests::require::{Need, PYTHON, require};
use zerocopy::IntoBytes;

use super::node::{Ends, Plan, data, remote, vector};

/// One of each, over IPv4 and IPv6, with and without a tag, of all transports: the frames.
fn frames() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (six, vlan) in [(false, None), (true, None), (false, Some(5))] {
        let (mut ends, frames) = Ends::watched();
        for (node, last) in [(&mut ends.a, 1), (&mut ends.b, 2)] {
            if six {
                node.gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
            }
            node.address(0, node.gid, vlan);
        }
        let (here, there) = (ends.a.rig.room(0x4000), ends.b.rig.room(0x4000));
        let key = ends.b.key(there, 0x4000, |_| {});
        for service in [service::RC, service::UC, service::UD] {
            let (mut a, mut b) = ends.connected(Plan { service, ..Plan::default() });
            for _ in 0..4 {
                b.receive(&ends.b, ends.b.rig.lkey, there, 0x4000);
            }
            let local = |bytes| data(ends.a.rig.lkey, here, bytes);
            let joined = |mut head: Vec<u8>, tail: Vec<u8>| {
                head.extend(tail);
                head
            };
            let far = || remote(key, there);
            let mut work = Vec::new();
            if service == service::UD {
                work.push((send::SEND, joined(vector(&ends.b, b.number, 0x1122), local(77))));
                work.push((send::SEND_IMM, joined(vector(&ends.b, b.number, 0x1122), local(78))));
            } else {
                work.push((send::SEND, local(2050)));
                work.push((send::SEND_IMM, local(3)));
                work.push((send::RDMA_WRITE, joined(far(), local(3001))));
                work.push((send::RDMA_WRITE_IMM, joined(far(), local(9))));
            }
            if service == service::RC {
                work.push((send::RDMA_READ, joined(far(), local(5001))));
                let operands = Atomic { swap_add: 1.into(), compare: 0.into() }.as_bytes().to_vec();
                work.push((send::ATOMIC_FA, joined(joined(far(), operands.clone()), local(8))));
                work.push((send::ATOMIC_CS, joined(joined(far(), operands), local(8))));
                // The last one is refused.
                work.push((send::RDMA_READ, joined(remote(key ^ 1, there), local(8))));
            }
            for (opcode, body) in work {
                a.send(&ends.a, opcode, &body);
                ends.steps(10);
                assert!(a.send_cq.poll(&ends.a.rig).is_some());
            }
        }
        all.append(&mut frames.lock().expect("whole"));
    }
    all
}

/// The CRC bit by bit, and what it leaves out by the specification's words: nothing here is shared with the device.
fn sum(frame: &[u8]) -> [u8; 4] {
    let l3 = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let four = frame[l3] >> 4 == 4;
    let udp = l3 + if four { 20 } else { 40 };
    let end = udp + usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]])) - 4;
    let mut bytes = frame[l3..end].to_vec();
    let changing: &[usize] = if four { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    changing.iter().for_each(|at| bytes[*at] = 0xff);
    if !four {
        bytes[0] |= 0xf;
    }
    for at in [6, 7, 12] {
        bytes[udp - l3 + at] = 0xff;
    }
    let mut register = 0xffff_ffff_u32;
    for byte in std::iter::repeat_n(0xff, 8).chain(bytes) {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = register >> 1 ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    let sum = (!register).to_le_bytes();
    assert_eq!(frame[end..end + 4], sum);
    sum
}

#[test]
fn every_packet_has_its_crc() {
    let frames = frames();
    assert!(frames.len() > 100, "{}", frames.len());
    for frame in &frames {
        sum(frame);
    }
}

/// A capture of them.
fn capture(frames: &[Vec<u8>]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let mut bytes = Vec::new();
    // Little-endian, version 2.4, link type Ethernet.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (index, frame) in frames.iter().enumerate() {
        for word in [0, index as u32, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    file.write_all(&bytes).expect("written");
    file
}

/// Scapy's layer knows the sum over IPv4 alone.
const SCAPY: &str = "
import sys
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.utils import PcapReader
for packet in PcapReader(sys.argv[1]):
    roce = packet[BTH]
    told, sum = roce.pack_icrc(roce.icrc)[::-1].hex(), roce.compute_icrc(b'').hex()
    print(4 if IP in packet else 6, roce.opcode, told, sum)
";

#[test]
fn scapy_agrees_on_every_crc() {
    if !require(&[Need::Scapy]) {
        return;
    }
    let frames = frames();
    let file = capture(&frames);
    let out = Command::new(PYTHON).args(["-c", SCAPY]).arg(file.path()).output().expect("python runs");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(text.lines().count(), frames.len());
    let mut agreed = 0;
    for (line, frame) in text.lines().zip(&frames) {
        let words: Vec<&str> = line.split(' ').collect();
        let [version, _, told, computed] = words[..] else { panic!("{line}") };
        let last: String = frame[frame.len() - 4..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(told, last, "{line}");
        if version == "4" {
            assert_eq!(computed, told, "{line}");
            agreed += 1;
        }
    }
    // Two of three rounds are over IPv4.
    assert!(agreed * 3 >= frames.len() * 2, "{agreed} of {}", frames.len());
}

#[test]
fn tshark_reads_every_packet() {
    if !require(&[Need::Tshark]) {
        return;
    }
    let frames = frames();
    let file = capture(&frames);
    let out = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(file.path())
        .args(["-T", "fields", "-E", "separator=;", "-e", "_ws.malformed", "-e", "infiniband.bth.opcode"])
        .args(["-e", "infiniband.invariant.crc"])
        .output()
        .expect("tshark runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let mut opcodes = std::collections::BTreeSet::new();
    for (index, (line, frame)) in text.lines().zip(&frames).enumerate() {
        let mut fields = line.split(';');
        assert_eq!(fields.next(), Some(""), "packet {index} is malformed: {line}");
        let opcode = fields.next().unwrap_or_default();
        assert!(!opcode.is_empty(), "packet {index} is not RoCE: {line}");
        opcodes.insert(opcode.to_owned());
        let crc = format!("0x{:08x}", u32::from_be_bytes(sum(frame)));
        assert_eq!(fields.next(), Some(crc.as_str()), "packet {index}");
    }
    assert_eq!(text.lines().count(), frames.len());
    // Of RC and UC all of sends and writes with and without immediate data, reads, atomics and answers; two of UD.
    assert!(opcodes.len() >= 26, "{opcodes:?}");
}
