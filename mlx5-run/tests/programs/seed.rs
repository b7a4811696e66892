//! Impaired wires: the same seed gives the same packets.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_uverbs::KernelFile;
use pollux_verbs::{Ah, Context, Cq, CqOptions, Options, Path as To, Pd, Provider, Qp, QpKind, QpOptions};

use super::bed::Bed;
use super::client::{FILE, is_client_with};

const TEST: &str = "seed::the_same_seed_gives_the_same_packets";
/// Packets that are sent; each carries its number.
const COUNT: u32 = 300;
const QKEY: u32 = 0x1111_1111;
/// A group, which needs no neighbour that answers.
const GROUP: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];

/// Sends datagrams, one after the other.
fn send() {
    let file = KernelFile::open(Path::new(FILE), None).expect("a device");
    let context = Context::open(Arc::new(file), Provider::Mlx5, Options::default()).expect("a context");
    let pd = Pd::new(&context).expect("a domain");
    let mut cq = Cq::new(&context, CqOptions::new(16)).expect("a completion queue");
    let options = QpOptions::new(QpKind::Ud).depth(16, 16).inline(16);
    let mut qp = Qp::new(&pd, &cq, &cq, &options).expect("a queue pair");
    qp.ready_datagram(1, QKEY, 0).expect("RTS");
    let index = (0..16_u8)
        .find(|index| context.gid(1, u32::from(*index)).is_ok_and(|gid| is_v4(gid.map(|gid| gid.gid))));
    let ah = Ah::new(&pd, &To::new(GROUP, index.expect("a GID of IPv4"))).expect("a group");
    for number in 0..COUNT {
        let mut batch = qp.batch();
        batch.send(number.into()).to(&ah, 0xff_ffff, QKEY).inline(&number.to_be_bytes()).signalled();
        batch.ring().expect("posted");
        let end = Instant::now() + Duration::from_secs(20);
        while cq.poll(1, |wc| assert!(wc.is_ok(), "{wc:?}")) == 0 {
            assert!(Instant::now() < end, "nothing completes");
        }
    }
    // The file is written when nothing more comes.
    std::thread::sleep(Duration::from_millis(200));
}

fn is_v4(gid: Option<[u8; 16]>) -> bool {
    gid.is_some_and(|gid| gid[..12] == GROUP[..12])
}

/// The numbers that are on the wire in a run with these options, in order. Source of the file's form: tcpdump.org's
/// `pcap-savefile`.
fn sent(options: &[&str]) -> Vec<u32> {
    let bed = Bed::new();
    let path = bed.path().join("wire.pcap");
    let wire = format!("pcap::{}", path.display());
    assert!(!is_client_with(&[&["--wire", &wire], options].concat(), TEST));
    let file = std::fs::read(&path).expect("a capture");
    let (mut at, mut numbers) = (24, Vec::new());
    while let Some(head) = file.get(at..at + 16) {
        let bytes = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let frame = &file[at + 16..at + 16 + bytes];
        // RoCE, and not what finds neighbours; behind the payload are 4 bytes of checksum.
        if let Some((front, _)) = frame.split_last_chunk::<4>()
            && frame.get(36..38) == Some(&[0x12, 0xb7])
        {
            numbers.push(u32::from_be_bytes(*front.last_chunk().expect("a payload")));
        }
        at += 16 + bytes;
    }
    numbers
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    if std::env::var_os("POLLUX_CLIENT").is_some() {
        send();
        return;
    }
    assert_eq!(sent(&[]), (0..COUNT).collect::<Vec<_>>());
    let run = |seed| {
        sent(&["--loss", "0.2", "--reorder", "0.1", "--duplicate", "0.1", "--delay", "1ms", "--seed", seed])
    };
    let (one, again, other) = (run("7"), run("7"), run("8"));
    assert_eq!(one, again);
    assert_ne!(one, other);
    let mut sorted = one.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert!(sorted.len() < COUNT as usize * 9 / 10, "some are lost: {}", sorted.len());
    assert!(sorted.len() < one.len(), "some come twice");
    assert!(!one.is_sorted(), "some are overtaken");
}
