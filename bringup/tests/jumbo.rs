//! Frames longer than one mbuf, from every way of receiving to every way of sending: all of them leave, whole; or they are
//! dropped and counted by their reason.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, PortRequest, ReceiveRequest};
use pollux_config::CommandLine;
use pollux_mempool::Burst;
use pollux_port::{PortId, Queues};
use pollux_tests::capture::{capture, frames};

/// What a row forwards, and how.
#[derive(Clone, Debug)]
struct Row {
    from: &'static str,
    to: &'static str,
    frame_bytes: usize,
    mtu: Option<u32>,
    scatter: Option<bool>,
    receive: ReceiveRequest,
}

/// What became of the frames.
#[derive(Debug, PartialEq)]
struct Outcome {
    sent: u64,
    dropped: BTreeMap<String, u64>,
}

const FRAMES: u64 = 40;

/// Between two looks at the counters, which is a command each: a stored wire begins 20 ms after the last that sets something up.
const LOOK: Duration = Duration::from_millis(5);

fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..bytes).map(|at| (at as u64 ^ number) as u8));
    frame
}

impl Row {
    fn new(from: &'static str, to: &'static str, frame_bytes: usize) -> Self {
        Self { from, to, frame_bytes, mtu: Some(9000), scatter: None, receive: ReceiveRequest::default() }
    }

    /// Forwards all frames from port 0 to port 1.
    fn run(&self) -> Outcome {
        let folder = tempfile::tempdir().expect("a folder");
        let (source, sink) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
        let sent: Vec<Vec<u8>> = (0..FRAMES).map(|number| frame(number, self.frame_bytes)).collect();
        std::fs::write(&source, capture(&sent)).expect("written");
        let device = |text: &str| {
            let text = text.replace("IN", &source.display().to_string());
            text.replace("OUT", &sink.display().to_string())
        };
        let (from, to) = (device(self.from), device(self.to));
        let arguments = ["jumbo", "-l", "0", "--vdev", &from, "--vdev", &to];
        let mut line = CommandLine::parse(arguments).expect("a command line");
        for port in &mut line.ports {
            (port.mtu, port.scatter, port.promiscuous) = (self.mtu, self.scatter, Some(true));
        }
        let outcome = {
            let mut bringup =
                Bringup::new(&line).unwrap_or_else(|error| panic!("{self:?}: {}", error.line()));
            let request = PortRequest::new().lcores(1).receive(self.receive.clone());
            let ids = [PortId(0), PortId(1)];
            let started = bringup.start_ports(&ids, &request);
            let (mut queues, _pool) = started.unwrap_or_else(|error| panic!("{self:?}: {}", error.line()));
            forward(&mut bringup, &mut queues);
            counts(&mut bringup)
        };
        if self.to.contains("OUT") {
            let left = frames(&std::fs::read(&sink).expect("written"));
            assert_eq!(left.len() as u64, outcome.sent, "{self:?}");
            if outcome.sent == FRAMES {
                assert!(left == sent, "{self:?}: other bytes");
            }
        }
        outcome
    }
}

fn forward(bringup: &mut Bringup, queues: &mut [Queues]) {
    let end = Instant::now() + Duration::from_secs(20);
    let mut next_look = Instant::now() + LOOK;
    loop {
        let mut burst = Burst::new();
        queues[0].rx[0].rx_burst(&mut burst, 32);
        while !burst.is_empty() {
            queues[1].tx[0].tx_burst(&mut burst);
            assert!(Instant::now() < end, "nothing is taken");
        }
        let _of_those_sent = queues[1].tx[0].done_cleanup(0);
        // A ring gives back what it was sent.
        queues[1].rx[0].rx_burst(&mut Burst::new(), 32);
        std::thread::yield_now();
        if Instant::now() < next_look {
            continue;
        }
        next_look += LOOK;
        let Outcome { sent, dropped } = counts(bringup);
        // What is sent is on the wire when the device has given it back.
        let waits = queues[1].tx[0].queue_count().unwrap_or(0);
        if sent + dropped.values().sum::<u64>() >= FRAMES && waits == 0 {
            return;
        }
        assert!(Instant::now() < end, "of {FRAMES} frames {sent} were sent, dropped {dropped:?}");
    }
}

fn counts(bringup: &mut Bringup) -> Outcome {
    let mut dropped = BTreeMap::new();
    for port in bringup.ports.iter_mut() {
        let _up_to_date = port.stats();
        for drop in port.dropped() {
            *dropped.entry(format!("{} {}", drop.direction, drop.reason)).or_default() += drop.packets;
        }
    }
    let sent = bringup.ports.get_mut(PortId(1)).expect("a port").stats().opackets;
    Outcome { sent, dropped }
}

fn all_sent() -> Outcome {
    Outcome { sent: FRAMES, dropped: BTreeMap::new() }
}

fn all_dropped(reason: &str) -> Outcome {
    Outcome { sent: 0, dropped: [(reason.to_owned(), FRAMES)].into() }
}

const SCATTERING: &str = "mlx5_model0,wire=pcap:IN:";
const STRIDING: &str = "mlx5_model0,wire=pcap:IN:,mprq_en=1,rxqs_min_mprq=1";

#[test]
fn every_way_of_sending_takes_what_every_way_of_receiving_makes() {
    let sources = [
        SCATTERING,
        STRIDING,
        "mlx5_model0,wire=pcap:IN:,rx_vec_en=0",
        "mlx5_model0,wire=pcap:IN:,dv_flow_en=0",
        "mlx5_model0,wire=pcap:IN:,device=cx4lx",
        "net_pcap0,rx_pcap=IN",
    ];
    let sinks = [
        "mlx5_model1,wire=pcap::OUT",
        "mlx5_model1,wire=pcap::OUT,txq_mpw_en=0",
        "mlx5_model1,wire=pcap::OUT,txqs_min_inline=1",
        "mlx5_model1,wire=pcap::OUT,txq_mpw_en=0,txqs_min_inline=1",
        "mlx5_model1,wire=pcap::OUT,dv_flow_en=0",
        "mlx5_model1,wire=pcap::OUT,device=cx4lx",
        "net_pcap1,tx_pcap=OUT",
        "net_null1",
        "net_ring1",
    ];
    for from in sources {
        // The usual way of sending each, and each of receiving to the usual.
        let few = if from == SCATTERING || from.starts_with("net") { &sinks[..] } else { &sinks[..1] };
        for to in few {
            for frame_bytes in [1000, 4000, 9014] {
                let row = Row::new(from, to, frame_bytes);
                assert_eq!(row.run(), all_sent(), "{row:?}");
            }
        }
    }
}

#[test]
fn as_many_parts_as_an_entry_holds_leave_as_one_packet() {
    for keys in ["", ",txq_mpw_en=0,txqs_min_inline=1", ",dv_flow_en=0", ",device=cx4lx"] {
        let folder = tempfile::tempdir().expect("a folder");
        let sink = folder.path().join("out.pcap");
        let device = format!("mlx5_model0,wire=pcap::{}{keys}", sink.display());
        let mut line = CommandLine::parse(["jumbo", "-l", "0", "--vdev", &device]).expect("a command line");
        line.ports[0].mtu = Some(9000);
        let mut sent = Vec::new();
        {
            let mut bringup = Bringup::new(&line).expect("an environment");
            let request = PortRequest::new().lcores(1);
            let (mut queues, pool) = bringup.start_ports(&[PortId(0)], &request).expect("up");
            let most = bringup.ports.get_mut(PortId(0)).expect("a port").info().max_tx_segments;
            // 64 KiB in mbufs of 2 KiB.
            assert!(most >= 33, "{device}: {most}");
            for parts in [2, 33, most] {
                let bytes = frame(parts.into(), 100 * usize::from(parts));
                let mut burst = Burst::new();
                let mut whole = None;
                for piece in bytes.chunks(100).rev() {
                    let mut mbuf = pool.alloc().expect("enough");
                    assert!(mbuf.append_slice(piece));
                    if let Some(rest) = whole.take() {
                        mbuf.chain(rest).expect("room");
                    }
                    whole = Some(mbuf);
                }
                burst.push(whole.expect("a packet"));
                assert_eq!(queues[0].tx[0].tx_prepare(&mut burst), Ok(()), "{device}: {parts} parts");
                assert_eq!(queues[0].tx[0].tx_burst(&mut burst), 1, "{device}: {parts} parts");
                sent.push(bytes);
            }
            let end = Instant::now() + Duration::from_secs(10);
            while queues[0].tx[0].queue_count().unwrap_or(0) > 0 {
                let _of_those_sent = queues[0].tx[0].done_cleanup(0);
                assert!(Instant::now() < end, "{device}: not sent");
                std::thread::yield_now();
            }
        }
        assert!(frames(&std::fs::read(&sink).expect("written")) == sent, "{device}: other bytes");
    }
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let to = "mlx5_model1,wire=pcap::OUT";
    for from in [SCATTERING, STRIDING] {
        let row = Row::new(from, to, 4000);
        // Longer than the MTU: the port lets none in.
        let short = Row { mtu: None, ..row.clone() };
        assert_eq!(short.run(), all_dropped("rx too long"), "{short:?}");
        let fits = Row { mtu: None, ..Row::new(from, to, 1514) };
        assert_eq!(fits.run(), all_sent(), "{fits:?}");
    }
    let single = Row { scatter: Some(false), ..Row::new(SCATTERING, to, 4000) };
    assert_eq!(single.run(), all_dropped("rx too long"), "{single:?}");
    let single = Row { frame_bytes: 1514, ..single };
    assert_eq!(single.run(), all_sent(), "{single:?}");
}

#[test]
fn packets_in_parts_and_joined_ones_are_sent_on_whichever_port_sends_them() {
    let parts = ReceiveRequest { lengths: vec![64, 0], ..ReceiveRequest::default() };
    let tiny = ReceiveRequest { lengths: vec![64, 0], sizes: vec![512, 2176], ..ReceiveRequest::default() };
    let joined = ReceiveRequest { lro: true, ..ReceiveRequest::default() };
    for receive in [parts, tiny, joined] {
        for to in ["mlx5_model1,wire=pcap::OUT", "mlx5_model1,wire=pcap::OUT,txq_mpw_en=0"] {
            let row = Row { receive: receive.clone(), mtu: None, ..Row::new(SCATTERING, to, 1514) };
            assert_eq!(row.run(), all_sent(), "{row:?}");
        }
    }
}

#[test]
fn a_queue_that_makes_no_chains_leaves_its_neighbours_the_short_way() {
    let mode = |mtu| {
        let arguments =
            ["jumbo", "-l", "0", "--vdev", "mlx5_model0,wire=null", "--vdev", "mlx5_model1,wire=null"];
        let mut line = CommandLine::parse(arguments).expect("a command line");
        line.ports[0].mtu = mtu;
        let mut bringup = Bringup::new(&line).expect("an environment");
        let request = PortRequest::new().lcores(1);
        let (queues, _pool) = bringup.start_ports(&[PortId(0), PortId(1)], &request).expect("up");
        queues[1].tx[0].burst_mode()
    };
    assert_eq!(mode(None), "empw");
    assert!(mode(Some(9000)).contains("multi-segment"), "{}", mode(Some(9000)));
}
