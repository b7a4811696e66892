//! What the model counts on PCIe is what was counted by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_mempool::{Burst, MbufPool};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::ledger::{Crossing, Total};
use pollux_mlx5_model::wire::{Sent, Wire};
use pollux_pmd_mlx::Arguments;
use pollux_pmd_mlx::devargs::Compression;
use pollux_pmd_mlx::eth::bytes::{self, BURST, Bytes, PACKET};
use pollux_port::{PortConfig, RxOffloads};

use crate::harness::{A, B, Station, frame};

/// Descriptors of each ring.
const DESCRIPTORS: u16 = 128;
/// Bursts that are counted: whole rounds of every ring.
const BURSTS: u64 = 512;

/// Gives as many frames as it is told to, and swallows what is sent.
#[derive(Debug)]
struct Feed {
    allowed: Arc<AtomicUsize>,
    frame: Vec<u8>,
}

impl Wire for Feed {
    fn send(&mut self, _frame: &[u8]) -> Sent {
        Sent::Yes
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        let allowed = self.allowed.load(Ordering::Relaxed).checked_sub(1)?;
        self.allowed.store(allowed, Ordering::Relaxed);
        room[..self.frame.len()].copy_from_slice(&self.frame);
        Some(self.frame.len())
    }

    fn is_up(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "feed".into()
    }
}

/// A way: its count by hand, what makes it, its modes, and the places of its rings.
struct Way {
    bytes: Bytes,
    arguments: Arguments,
    /// Data room of mbufs.
    room: usize,
    mode: &'static str,
    /// Packets of a round of the receive ring, and places of the completion ring.
    rounds: (u64, u64),
}

fn base() -> Arguments {
    Arguments { compression: Compression::Off, multi_packet: Some(true), ..Arguments::default() }
}

fn sending() -> Vec<Way> {
    let way = |bytes, arguments, mode, blocks: u64| Way {
        bytes,
        arguments,
        room: 2176,
        mode,
        rounds: (0, blocks * u64::from(DESCRIPTORS)),
    };
    let plain = Arguments { multi_packet: Some(false), ..base() };
    let inline = |arguments| Arguments { inline_queues_min: 1, inline_max: Some(128), ..arguments };
    vec![
        way(bytes::PLAIN, plain.clone(), "plain", 1),
        // Entries of up to (128 + 32) / 64 blocks, rounded to a power of two.
        way(bytes::PLAIN_INLINE, inline(plain), "plain, full", 4),
        way(bytes::HEADER_INLINE, Arguments { inline_min: Some(18), ..base() }, "plain", 1),
        way(bytes::MPW, base(), "empw", 1),
        way(
            bytes::MPW_INLINE,
            Arguments { inline_queues_min: 1, inline_multi_max: Some(128), ..base() },
            "empw, inline",
            4,
        ),
    ]
}

fn receiving() -> Vec<Way> {
    let all = u64::from(DESCRIPTORS);
    let way = |bytes, arguments, room, mode, rounds| Way { bytes, arguments, room, mode, rounds };
    let striding = Arguments {
        striding: true,
        striding_queues_min: 1,
        strides_log2: 6,
        stride_bytes_log2: Some(11),
        ..base()
    };
    vec![
        way(bytes::SINGLE, Arguments { rx_vector: false, ..base() }, 2176, "scalar", (all, all)),
        way(bytes::SINGLE, base(), 2176, "", (all, all)),
        // Sessions need twice the places.
        way(
            bytes::COMPRESSED,
            Arguments { compression: Compression::Hash, ..base() },
            2176,
            "",
            (all, 2 * all),
        ),
        // Entries of four segments: a quarter as many.
        way(bytes::SCATTERED, base(), 640, "scatter", (all / 4, all / 4)),
        way(bytes::STRIDING, striding, 2176, "striding", (all, all)),
    ]
}

/// What crossed for all bursts.
fn expected(bytes: &Bytes, way: &Way) -> [(Crossing, Option<u64>, u64); 9] {
    let sends = bytes.mmio_writes > 0;
    let (ring, places) = way.rounds;
    let rounds = if sends { 0 } else { BURSTS * BURST / ring } + BURSTS * bytes.completion_places / places;
    let records = BURSTS * bytes.doorbell_records + rounds;
    let only = |here: bool, value: u64| if here { BURSTS * value } else { 0 };
    [
        (Crossing::Doorbell, Some(BURSTS * bytes.mmio_writes), BURSTS * bytes.mmio_bytes),
        (Crossing::BlueFlame, Some(0), 0),
        (Crossing::Arm, Some(0), 0),
        (Crossing::DoorbellRecord, Some(records), 4 * records),
        (Crossing::SendEntry, None, only(sends, bytes.entries)),
        (Crossing::ReceiveEntry, None, only(!sends, bytes.entries)),
        (Crossing::SendPayload, None, only(sends, bytes.payload)),
        (Crossing::ReceivePayload, None, only(!sends, bytes.payload)),
        (Crossing::Completion, None, BURSTS * bytes.completions),
    ]
}

fn compare(way: &Way, spent: &Total) {
    let bytes = &way.bytes;
    for (crossing, transfers, total) in expected(bytes, way) {
        let tally = spent.of(crossing);
        assert_eq!(tally.bytes, total, "{}: {}\n{spent}", bytes.name, crossing.name());
        if let Some(transfers) = transfers {
            assert_eq!(tally.transfers, transfers, "{}: {}", bytes.name, crossing.name());
        }
    }
    assert!(bytes.entries <= bytes.entries_of_dpdk, "{}: DPDK's entries are shorter", bytes.name);
}

/// A station whose wire brings what it is told to.
fn station() -> (Station, Arc<AtomicUsize>) {
    let allowed = Arc::new(AtomicUsize::new(0));
    let feed = Feed { allowed: Arc::clone(&allowed), frame: frame(A, B, 7, PACKET as usize) };
    let config = DeviceConfig { name: "mlx5_model0".into(), mac: A, ..DeviceConfig::default() };
    (Station::new(config, feed, DoorProfile::default()), allowed)
}

fn settle(station: &Station) {
    while station.device.step(64) {}
}

#[test]
fn sending_crosses_as_counted_by_hand() {
    for devx in [false, true] {
        for way in sending() {
            let (station, _) = station();
            let pool = MbufPool::builder("ledger", 1024).cache(0).build_anonymous().expect("a pool");
            let mut port = station.open(Arguments { devx, ..way.arguments.clone() });
            let mut config = PortConfig::queues(0, 1, &pool);
            config.tx_queues[0].descriptors = DESCRIPTORS;
            let mut queues = port.bring_up(config).expect("up");
            assert!(queues.tx[0].burst_mode().starts_with(way.mode), "{}", queues.tx[0].burst_mode());
            let mut before = station.device.ledger().total();
            // The first round finds the completion ring empty; from the second on, each is like the other.
            for burst in 0..2 * BURSTS {
                if burst == BURSTS {
                    before = station.device.ledger().total();
                }
                let mut packets = Burst::new();
                assert!(pool.alloc_burst(&mut packets, BURST as usize));
                for mbuf in packets.iter_mut() {
                    mbuf.append(PACKET as usize).expect("room").copy_from_slice(&frame(
                        B,
                        A,
                        1,
                        PACKET as usize,
                    ));
                }
                assert_eq!(queues.tx[0].tx_burst(&mut packets), BURST as usize, "{}", way.bytes.name);
                settle(&station);
            }
            compare(&way, &(station.device.ledger().total() - before));
            station.assert_orderly();
        }
    }
}

#[test]
fn receiving_crosses_as_counted_by_hand() {
    for devx in [false, true] {
        for way in receiving() {
            let (station, allowed) = station();
            let pool = MbufPool::builder("ledger", 1024)
                .data_room(way.room)
                .cache(0)
                .build_anonymous()
                .expect("a pool");
            let mut port = station.open(Arguments { devx, ..way.arguments.clone() });
            let mut config = PortConfig::queues(1, 0, &pool);
            config.rx_queues[0].descriptors = DESCRIPTORS;
            if way.mode == "scatter" {
                config.rx_offloads = RxOffloads::SCATTER;
            }
            let mut queues = port.bring_up(config).expect("up");
            assert!(queues.rx[0].burst_mode().starts_with(way.mode), "{}", queues.rx[0].burst_mode());
            let mut before = station.device.ledger().total();
            for burst in 0..2 * BURSTS {
                if burst == BURSTS {
                    before = station.device.ledger().total();
                }
                allowed.store(BURST as usize, Ordering::Relaxed);
                settle(&station);
                let mut packets = Burst::new();
                assert_eq!(
                    queues.rx[0].rx_burst(&mut packets, BURST as usize),
                    BURST as usize,
                    "{}",
                    way.bytes.name
                );
            }
            compare(&way, &(station.device.ledger().total() - before));
            station.assert_orderly();
        }
    }
}
