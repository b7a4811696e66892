//! `net_pcap` on files: what goes in comes out, and damage is told.

use std::error::Error;
use std::io::Read;
use std::path::Path;

use pollux_frame_io::pcap::{PcapFormat, PcapReader, PcapWriter, Timestamp};
use pollux_mempool::{Burst, MbufPool, TxFlags, TxOffload};
use pollux_port::conformance::{Feed, Fixture, Subject, run};
use pollux_port::{Port, PortConfig, PortId, Queues, TxDrop};
use pollux_port_soft::pcap::{PcapOptions, PcapPort, PcapSink, PcapSource};

fn frame(number: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.extend((0..46 + number * 13 % 5000).map(|at| (at * number) as u8));
    frame
}

fn capture(path: &Path, numbers: std::ops::Range<usize>) {
    let writer = PcapWriter::create(path, PcapFormat::of(path)).expect("a new file");
    for number in numbers {
        let frame = frame(number);
        writer.write(&[&frame], frame.len(), Timestamp::from_nanos(number as u64)).expect("written");
    }
    writer.close().expect("closes");
}

fn frames_of(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::open(path).expect("a capture");
    let mut frames = Vec::new();
    while let Some(frame) = reader.next().expect("sound") {
        frames.push(frame.data.to_vec());
    }
    frames
}

fn pool() -> MbufPool {
    MbufPool::builder("pcap", 512).build_anonymous().expect("memory")
}

fn open(options: &PcapOptions, queues: usize, pool: &MbufPool) -> (Port, Queues) {
    let driver = PcapPort::new("net_pcap0", options).unwrap_or_else(|error| panic!("{error}"));
    let mut port = Port::new(PortId(3), "net_pcap0", Box::new(driver));
    let queues = port.bring_up(PortConfig::queues(queues, queues, pool)).expect("starts");
    (port, queues)
}

fn files(rx: &[&Path], tx: &[&Path]) -> PcapOptions {
    PcapOptions {
        rx: rx.iter().map(|path| PcapSource::File(path.into())).collect(),
        tx: tx.iter().map(|path| PcapSink::File(path.into())).collect(),
        ..PcapOptions::default()
    }
}

#[test]
fn two_files_in_and_two_out() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name);
    let (in_a, in_b) = (path("a.pcap"), path("b.pcapng"));
    capture(&in_a, 0..300);
    capture(&in_b, 300..500);
    let (out_a, out_b) = (path("a.out.pcapng"), path("b.out.pcap"));
    let pool = pool();
    let (mut port, mut queues) = open(&files(&[&in_a, &in_b], &[&out_a, &out_b]), 2, &pool);
    let mut burst = Burst::new();
    for round in 0..2 {
        for queue in 0..2 {
            let mut count = 0;
            while queues.rx[queue].rx_burst(&mut burst, 32) > 0 {
                assert!(burst.iter().all(|mbuf| mbuf.port() == 3));
                let received = burst.len();
                count += received;
                assert_eq!(queues.tx[queue].tx_burst(&mut burst), received);
                assert!(burst.is_empty());
            }
            assert_eq!(count, [300, 200][queue], "round {round}");
        }
        // Started again, the files are read again; what was written stays.
        port.stop().expect("stops");
        assert_eq!(frames_of(&out_a).len(), 300 * (round + 1), "stopping writes all out");
        port.start().expect("starts");
    }
    let expected: Vec<_> = (0..300).chain(0..300).map(frame).collect();
    assert!(frames_of(&out_a) == expected);
    let expected: Vec<_> = (300..500).chain(300..500).map(frame).collect();
    assert!(frames_of(&out_b) == expected);
    let statistics = port.stats();
    assert_eq!((statistics.ipackets, statistics.opackets), (1000, 1000));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn replayed_for_ever() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.pcap");
    capture(&path, 0..7);
    let pool = pool();
    let options = PcapOptions { infinite_rx: true, ..files(&[&path], &[]) };
    let (_port, mut queues) = open(&options, 1, &pool);
    let mut burst = Burst::new();
    let mut number = 0;
    for _ in 0..100 {
        assert_eq!(queues.rx[0].rx_burst(&mut burst, 32), 32);
        for mbuf in &burst {
            let mut data = vec![0; mbuf.pkt_len() as usize];
            mbuf.read(0, &mut data);
            assert!(data == frame(number % 7));
            number += 1;
        }
        // Without a tx file, what is sent is dropped.
        assert_eq!(queues.tx[0].tx_burst(&mut burst), 32);
    }
    assert_eq!(pool.in_use(), 0);

    let empty = dir.path().join("empty.pcap");
    capture(&empty, 0..0);
    let refused = PcapPort::new("net_pcap0", &PcapOptions { infinite_rx: true, ..files(&[&empty], &[]) });
    let why = refused.err().expect("nothing to repeat").to_string();
    assert!(why.contains("empty.pcap holds none"), "{why}");
}

#[test]
fn an_empty_pool_loses_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.pcap");
    capture(&path, 0..100);
    let pool = MbufPool::builder("small", 8).cache(0).build_anonymous().expect("memory");
    let (port, mut queues) = open(&files(&[&path], &[]), 1, &pool);
    let mut got = 0;
    let mut burst = Burst::new();
    while queues.rx[0].rx_burst(&mut burst, 32) > 0 {
        got += burst.len();
        burst.clear();
    }
    assert_eq!(got, 100, "frames wait in the file");
    assert!(port.stats().rx_nombuf > 0);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn large_frames_are_cut_and_open_checksums_completed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("out.pcap");
    let pool = pool();
    let (port, mut queues) = open(&files(&[], &[&path]), 1, &pool);
    let mut mbuf = pool.alloc().expect("full");
    let mut udp = vec![2; 12];
    udp.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    udp.extend([0, 1, 0, 2, 0, 0, 0, 0]);
    let total = (20 + 8 + 1000u16).to_be_bytes();
    udp[16..18].copy_from_slice(&total);
    udp.extend([7; 1000]);
    assert!(mbuf.append_slice(&udp));
    mbuf.set_tx_flags(TxFlags::UDP_SEGMENTATION | TxFlags::IPV4 | TxFlags::UDP_CHECKSUM | TxFlags::VLAN);
    mbuf.set_vlan_tci(5);
    mbuf.set_tx_offload(TxOffload {
        l2_len: 14,
        l3_len: 20,
        l4_len: 8,
        tso_segment_bytes: 300,
        ..TxOffload::default()
    });
    let mut burst = Burst::new();
    burst.push(mbuf);
    let mut senseless = pool.alloc().expect("full");
    assert!(senseless.append_slice(&[0; 60]));
    senseless.set_tx_flags(TxFlags::SCTP_CHECKSUM);
    burst.push(senseless);
    queues.tx[0].tx_burst(&mut burst);
    assert!(burst.is_empty());
    assert_eq!(queues.tx[0].counters().packets(), 1);
    assert_eq!(queues.tx[0].counters().dropped(TxDrop::Malformed), 1);
    drop((queues, port));
    let frames = frames_of(&path);
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [346, 346, 346, 146]);
    for frame in frames {
        assert_eq!(frame[12..18], [0x81, 0, 0, 5, 8, 0]);
        let upper = u16::from_be_bytes([frame[42], frame[43]]);
        assert_eq!(usize::from(upper), frame.len() - 38);
        let sum = pollux_wire::checksum::Sum::of(&frame[30..38]).add_word(17).add_word(upper);
        assert_eq!(sum.add_bytes(&frame[38..]).checksum(), 0);
    }
}

fn said(options: &PcapOptions) -> String {
    let error = PcapPort::new("net_pcap0", options).err().expect("refused").named("net_pcap0");
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    assert!(!text.contains('\n'), "one line");
    text
}

#[test]
fn damage_and_absence_are_told_when_the_port_is_opened() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.pcap");
    capture(&path, 0..3);
    let mut bytes = std::fs::read(&path).expect("written");
    // The second record's captured length.
    bytes[24 + 16 + 60 + 11] = 0xff;
    std::fs::write(&path, &bytes).expect("written");
    for infinite_rx in [false, true] {
        let text = said(&PcapOptions { infinite_rx, ..files(&[&path], &[]) });
        assert!(text.starts_with("port net_pcap0: cannot use a capture file: "), "{text}");
        let end = "a.pcap is damaged at byte 100: a frame of 4278190153 bytes (at most 262144 are possible)";
        assert!(text.ends_with(end), "{text}");
    }
    let missing = files(&[Path::new("/nonexistent.pcap")], &[]);
    assert_eq!(
        said(&missing),
        "port net_pcap0: cannot use a capture file: cannot open /nonexistent.pcap: No such file or directory (os error 2)"
    );
    let unwritable = files(&[], &[Path::new("/nonexistent/a.pcap")]);
    assert!(said(&unwritable).contains("cannot create /nonexistent/a.pcap"));
    let interface = PcapOptions { interface: Some("no-such-if".into()), ..PcapOptions::default() };
    assert!(said(&interface).contains("interface \"no-such-if\" does not exist"), "{}", said(&interface));
    assert!(said(&PcapOptions { phy_mac: true, ..PcapOptions::default() }).contains("phy_mac=1"));
}

#[test]
fn a_file_that_takes_no_more_costs_frames_not_the_program() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    // Reads the file header and goes away.
    let reader = std::thread::spawn({
        let path = path.clone();
        move || std::fs::File::open(path).and_then(|mut pipe| pipe.read_exact(&mut [0; 24]))
    });
    let pool = pool();
    let (_port, mut queues) = open(&files(&[], &[&path]), 1, &pool);
    reader.join().expect("reads").expect("a header");
    let mut burst = Burst::new();
    for _ in 0..100 {
        assert!(pool.alloc_burst(&mut burst, 32));
        for mbuf in &mut burst {
            assert!(mbuf.append_slice(&[0; 1000]));
        }
        queues.tx[0].tx_burst(&mut burst);
        assert!(burst.is_empty());
    }
    let counters = queues.tx[0].counters();
    assert!(counters.dropped(TxDrop::Refused) > 2000);
    assert_eq!(counters.dropped(TxDrop::Refused) + counters.packets(), 3200);
}

struct Replay(tempfile::TempDir);

impl Fixture for Replay {
    fn open(&self) -> Subject {
        let (rx, tx) = (self.0.path().join("rx.pcap"), self.0.path().join("tx.pcap"));
        let writer = PcapWriter::create(&rx, PcapFormat::Pcap).expect("a new file");
        writer.write(&[&[0x22; 64]], 64, Timestamp::default()).expect("written");
        writer.close().expect("closes");
        let options = PcapOptions { infinite_rx: true, ..files(&[&rx], &[&tx]) };
        Subject {
            name: "net_pcap0".into(),
            driver: Box::new(PcapPort::new("net_pcap0", &options).expect("opens")),
            feed: Feed::Endless(64),
            sent: None,
        }
    }
}

#[test]
fn conforms() {
    run(&Replay(tempfile::tempdir().expect("a temporary directory")));
}
