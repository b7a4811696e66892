//! Layers around a looped ring: what went in is compared with what comes out.

use pollux_frame_io::pcap::PcapReader;
use pollux_mempool::{Burst, MbufPool};
use pollux_port::driver::PortDriver;
use pollux_port::layer::fault::{FaultPlan, Faults};
use pollux_port::layer::tee::{FrameSink, SeenFrame, Tee};
use pollux_port::layer::tracer::{TraceMode, Tracer};
use pollux_port::layer::{LayerSpec, around, wrap};
use pollux_port::{Direction, Port, PortConfig, PortId, Queues};
use pollux_port_soft::ring;
use pollux_tests::log::logged;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FRAMES: u16 = 1000;

fn open(layer: impl FnOnce(Box<dyn PortDriver>) -> Box<dyn PortDriver>, pool: &MbufPool) -> (Port, Queues) {
    let driver = layer(Box::new(ring::looped("net_ring0")));
    let mut port = Port::new(PortId(0), "net_ring0", driver);
    let queues = port.bring_up(PortConfig::queues(1, 1, pool)).expect("comes up");
    (port, queues)
}

fn frame(number: u16) -> [u8; 60] {
    let mut bytes = [0x11; 60];
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..16].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Sends numbered frames ten at a time and gives what comes back, with the packets counted on the way.
fn pass(plan: &FaultPlan) -> (Vec<Vec<u8>>, u64, u64) {
    let pool = MbufPool::builder("layer", 4096).build_anonymous().expect("memory");
    let (port, Queues { mut rx, mut tx }) = open(|driver| around(driver, Faults::new(plan.clone())), &pool);
    let (mut out, mut got, mut came) = (Burst::new(), Burst::new(), Vec::new());
    for number in 0..FRAMES {
        let mut mbuf = pool.alloc().expect("enough mbufs");
        assert!(mbuf.append_slice(&frame(number)));
        out.push(mbuf);
        if out.len() == 10 {
            assert_eq!(tx[0].tx_burst(&mut out), 10);
            rx[0].rx_burst(&mut got, 32);
            came.extend(got.drain(..).map(|mbuf| mbuf.data().to_vec()));
        }
    }
    // What was held back follows.
    for _ in 0..200 {
        tx[0].tx_burst(&mut out);
        rx[0].rx_burst(&mut got, 32);
        came.extend(got.drain(..).map(|mbuf| mbuf.data().to_vec()));
    }
    let received = port.stats().ipackets;
    assert_eq!(received, came.len() as u64);
    let injected = port.dropped().iter().map(|dropped| dropped.packets).sum();
    drop((rx, tx, port, out, got));
    assert_eq!(pool.in_use(), 0, "mbufs that did not come home");
    (came, received, injected)
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u16> {
    frames.iter().map(|bytes| u16::from_be_bytes([bytes[14], bytes[15]])).collect()
}

fn plan(text: &str) -> FaultPlan {
    FaultPlan::parse(text).expect("a good plan")
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_a_different_one() {
    let text =
        |seed: u64| format!("drop:0.1,duplicate:0.1,reorder:0.2,corrupt:0.1,delay:0.2,bursts:3,seed:{seed}");
    let first = pass(&plan(&text(7)));
    assert_eq!(first, pass(&plan(&text(7))));
    assert_ne!(first.0, pass(&plan(&text(8))).0);
}

#[test]
fn drops_are_counted_to_the_packet() {
    for on in ["rx", "tx", "both"] {
        let (came, received, injected) = pass(&plan(&format!("drop:0.1,seed:3,on:{on}")));
        assert_eq!(received + injected, u64::from(FRAMES), "{on}");
        assert!((50..300).contains(&injected), "{on}: {injected}");
        assert!(numbers(&came).is_sorted(), "{on}");
    }
    assert_eq!(pass(&plan("drop:1")).1, 0);
}

#[test]
fn duplicates_are_copies_behind_the_original() {
    let (came, ..) = pass(&plan("duplicate:0.1,seed:5,on:rx"));
    let numbers = numbers(&came);
    assert!(numbers.is_sorted() && came.len() > FRAMES.into());
    let mut once = numbers.clone();
    once.dedup();
    assert_eq!(once, (0..FRAMES).collect::<Vec<_>>());
    assert_eq!(numbers.len(), pass(&plan("duplicate:0.1,seed:5,on:rx")).0.len());
}

#[test]
fn reordered_and_delayed_packets_all_arrive() {
    for text in ["reorder:0.3,seed:5", "delay:0.3,bursts:4,seed:5", "reorder:1,delay:0.5,bursts:2"] {
        let (came, ..) = pass(&plan(text));
        let mut numbers = numbers(&came);
        assert!(!numbers.is_sorted(), "{text}");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..FRAMES).collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn corruption_turns_one_bit() {
    let (came, ..) = pass(&plan("corrupt:1,on:tx"));
    for (number, bytes) in (0..FRAMES).zip(&came) {
        let turned: u32 = frame(number).iter().zip(bytes).map(|(sent, got)| (sent ^ got).count_ones()).sum();
        assert_eq!(turned, 1, "frame {number}");
    }
}

#[derive(Default)]
struct Kept {
    frames: Vec<(Direction, Duration, Vec<u8>)>,
    flushes: usize,
    refuse: bool,
}

impl FrameSink for Kept {
    fn frame(&mut self, frame: SeenFrame<'_>) -> std::io::Result<()> {
        if self.refuse {
            return Err(std::io::Error::other("no room"));
        }
        self.frames.push((frame.direction, frame.time, frame.data.to_vec()));
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.flushes += 1;
        Ok(())
    }
}

#[test]
fn a_tee_sees_what_was_taken_and_what_came() {
    let pool = MbufPool::builder("tee", 64).build_anonymous().expect("memory");
    let kept = Arc::new(Mutex::new(Kept::default()));
    let tee = Tee::with_clock("net_ring0", kept.clone(), || Duration::from_secs(5));
    let (port, Queues { mut rx, mut tx }) = open(|driver| around(driver, tee), &pool);
    let mut burst = Burst::new();
    for number in 0..3 {
        let mut mbuf = pool.alloc().expect("enough mbufs");
        assert!(mbuf.append_slice(&frame(number)[..20]));
        // The rest in a second segment: a tee writes whole frames.
        let mut tail = pool.alloc().expect("enough mbufs");
        assert!(tail.append_slice(&frame(number)[20..]));
        mbuf.chain(tail).expect("room for a segment");
        burst.push(mbuf);
    }
    assert_eq!(tx[0].tx_burst(&mut burst), 3);
    assert_eq!(rx[0].rx_burst(&mut burst, 2), 2);
    let wanted: Vec<_> =
        [(Direction::Tx, 0), (Direction::Tx, 1), (Direction::Tx, 2), (Direction::Rx, 0), (Direction::Rx, 1)]
            .map(|(direction, number)| (direction, Duration::from_secs(5), frame(number).to_vec()))
            .into();
    assert_eq!(kept.lock().expect("nobody panics with it").frames, wanted);
    assert_eq!(port.xstat("tee_frames").map(|xstat| xstat.value), Some(5));

    // A full disk costs the copy, not the packet.
    kept.lock().expect("nobody panics with it").refuse = true;
    assert_eq!(rx[0].rx_burst(&mut burst, 2), 1);
    assert_eq!(port.xstat("tee_errors").map(|xstat| xstat.value), Some(1));
    drop((rx, tx));
    assert_eq!(kept.lock().expect("nobody panics with it").flushes, 2);
}

#[test]
fn a_tee_leaves_a_capture_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("seen.pcapng");
    let device: pollux_config::DeviceArg =
        format!("net_ring0,tee={}", path.display()).parse().expect("well formed");
    let (spec, rest) = LayerSpec::take(&device).expect("good values");
    assert!(rest.args.is_empty());
    let pool = MbufPool::builder("file", 64).build_anonymous().expect("memory");
    let layer =
        |driver| wrap("net_ring0", driver, &spec, pollux_port_soft::tee::open).expect("the file opens");
    let (port, Queues { mut rx, mut tx }) = open(layer, &pool);
    let mut burst = Burst::new();
    let mut mbuf = pool.alloc().expect("enough mbufs");
    assert!(mbuf.append_slice(&frame(9)));
    burst.push(mbuf);
    tx[0].tx_burst(&mut burst);
    rx[0].rx_burst(&mut burst, 32);
    drop((rx, tx, port));
    let mut reader = PcapReader::open(&path).expect("a capture file");
    for _ in 0..2 {
        let seen = reader.next().expect("well formed").expect("sent and received");
        assert_eq!(seen.data, frame(9));
    }
    assert!(reader.next().expect("well formed").is_none());

    let nowhere = LayerSpec { tee: Some(folder.path().join("no/such/file")), ..LayerSpec::default() };
    let driver = Box::new(ring::looped("net_ring0"));
    assert!(wrap("net_ring0", driver, &nowhere, pollux_port_soft::tee::open).is_err());
}

fn traced(mode: TraceMode) -> Vec<String> {
    logged(|| {
        let pool = MbufPool::builder("trace", 64).build_anonymous().expect("memory");
        let (port, Queues { mut rx, mut tx }) =
            open(|driver| around(driver, Tracer::new("net_ring0", mode)), &pool);
        let mut burst = Burst::new();
        for number in 0..2 {
            let mut mbuf = pool.alloc().expect("enough mbufs");
            assert!(mbuf.append_slice(&frame(number)));
            burst.push(mbuf);
        }
        tx[0].tx_burst(&mut burst);
        rx[0].rx_burst(&mut burst, 32);
        drop((rx, tx, port));
    })
}

#[test]
fn a_tracer_tells_each_packet_or_the_sum() {
    let lines = traced(TraceMode::Packets);
    assert_eq!(lines.len(), 4, "{lines:?}");
    let line = "net_ring0 tx 0: 60 bytes, 11:11:11:11:11:11 > 11:11:11:11:11:11, type 0x88b5";
    assert!(lines[0].ends_with(line), "{}", lines[0]);
    let lines = traced(TraceMode::Summary);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with("net_ring0 rx 0: 2 packets, 120 bytes in 1 bursts, the longest of 2"))
    );
}
