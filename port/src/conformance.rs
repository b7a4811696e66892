//! What every port must do: one list of checks, run by each driver's tests.
//!
//! A driver's test gives a [`Fixture`], which opens fresh ports and says what stands outside of them, and calls [`run`],
//! or single checks by name. A check that a port cannot be put to (a second queue where there is only one) holds
//! vacuously; an operation that a port lacks must answer [`PortError::Unsupported`] with a reason.
//!
//! ```text
//!   feed: frames arrive  --->  port under test  --->  sent: frames that left
//! ```
#![expect(clippy::missing_panics_doc, reason = "a check that fails panics")]

mod control;
mod feature;
mod offload;
mod receive;
mod traffic;

pub use control::{
    addresses, close_ends_everything, descriptor_counts, filters, information, life_cycle, link, mtu,
    own_cache_lines, queue_limits, reset, xstats,
};
pub use feature::{clock, events, flow_rules, queue_start_and_stop, rss, rx_interrupts, tx_prepare, vlan};
pub use offload::offloads;
pub use receive::{buffer_split, joining};
pub use traffic::{
    callbacks, close_with_mbufs_out, descriptor_status, empty_pool, frame_sizes, mbufs_come_home, partial_tx,
    recycle, scatter, stats_add_up, stop_and_start, two_lcores, tx_buffer,
};

use crate::driver::PortDriver;
use crate::{Port, PortConfig, PortError, PortId, QueueId, Queues, RxQueue, TxQueue};
use pollux_mempool::{Burst, Mbuf, MbufPool};
use std::time::{Duration, Instant};

/// Makes a frame arrive at a port.
pub type Give = Box<dyn FnMut(&[u8]) + Send>;

/// How packets get into a port under test.
pub enum Feed {
    /// The port receives without end, frames of this length.
    Endless(usize),
    /// What is sent comes back, on the queue of the same number.
    Loop,
    /// Calling it with a frame makes that frame arrive, on whichever queue.
    Given(Give),
    /// The port never receives.
    Nothing,
}

/// Gives the frames that left since it was last called.
pub type Sent = Box<dyn FnMut() -> Vec<Vec<u8>> + Send>;

/// A port to be tested and what stands outside of it.
pub struct Subject {
    /// The port's name.
    pub name: String,
    /// Its driver, fresh.
    pub driver: Box<dyn PortDriver>,
    /// How packets get in.
    pub feed: Feed,
    /// What left, where that can be seen.
    pub sent: Option<Sent>,
}

/// Opens ports to be tested.
pub trait Fixture {
    /// A fresh one. Others opened before it may still be alive.
    fn open(&self) -> Subject;

    /// Lengths of the shortest and the longest frame that passes with the usual MTU.
    fn frame_lengths(&self) -> (usize, usize) {
        (60, 1514)
    }

    /// How long a frame may take from one side to the other.
    fn patience(&self) -> Duration {
        Duration::from_secs(2)
    }
}

/// A check.
pub type Check = fn(&dyn Fixture);

/// All checks, by name.
pub const ALL: &[(&str, Check)] = &[
    ("information", information),
    ("life_cycle", life_cycle),
    ("close_ends_everything", close_ends_everything),
    ("queue_limits", queue_limits),
    ("own_cache_lines", own_cache_lines),
    ("descriptor_counts", descriptor_counts),
    ("link", link),
    ("mtu", mtu),
    ("filters", filters),
    ("addresses", addresses),
    ("xstats", xstats),
    ("reset", reset),
    ("stats_add_up", stats_add_up),
    ("mbufs_come_home", mbufs_come_home),
    ("partial_tx", partial_tx),
    ("stop_and_start", stop_and_start),
    ("close_with_mbufs_out", close_with_mbufs_out),
    ("empty_pool", empty_pool),
    ("frame_sizes", frame_sizes),
    ("descriptor_status", descriptor_status),
    ("two_lcores", two_lcores),
    ("callbacks", callbacks),
    ("tx_buffer", tx_buffer),
    ("offloads", offloads),
    ("recycle", recycle),
    ("scatter", scatter),
    ("rss", rss),
    ("flow_rules", flow_rules),
    ("vlan", vlan),
    ("queue_start_and_stop", queue_start_and_stop),
    ("rx_interrupts", rx_interrupts),
    ("events", events),
    ("tx_prepare", tx_prepare),
    ("clock", clock),
    ("buffer_split", buffer_split),
    ("joining", joining),
];

/// Runs all checks, naming each on standard output before it runs.
pub fn run(fixture: &dyn Fixture) {
    for (name, check) in ALL {
        println!("conformance: {name}");
        check(fixture);
    }
}

/// EtherType for local experiments (IEEE 802, 0x88b5): a kernel on the other side leaves such frames alone.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// A broadcast frame of that length that carries `tag`, and whose other bytes follow from it.
fn frame(length: usize, tag: u32) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend_from_slice(&[0x02, 0, 0, 0, 0, 0x77]);
    bytes.extend_from_slice(&ETHER_TYPE);
    bytes.extend_from_slice(&tag.to_be_bytes());
    let filler = (0..).map(|at: u32| (at.wrapping_mul(31) ^ tag) as u8);
    let missing = length.saturating_sub(bytes.len());
    bytes.extend(filler.take(missing));
    bytes.truncate(length);
    bytes
}

/// The tag of a frame made by [`frame`]; `None` for one that somebody else sent.
fn tag(bytes: &[u8]) -> Option<u32> {
    if bytes.get(12..14)? != ETHER_TYPE.as_slice() {
        return None;
    }
    Some(u32::from_be_bytes(bytes.get(14..18)?.try_into().ok()?))
}

fn whole(mbuf: &Mbuf) -> Vec<u8> {
    mbuf.segments().flatten().copied().collect()
}

/// A started port with its queues, pool and surroundings.
struct Rig {
    // Queues before the port, mbufs' pool last: fields drop in order.
    rx: Vec<RxQueue>,
    tx: Vec<TxQueue>,
    port: Port,
    feed: Feed,
    sent: Option<Sent>,
    pool: MbufPool,
    patience: Duration,
    next_tag: u32,
}

const POOL: usize = 8192;

fn new_pool(count: usize) -> MbufPool {
    MbufPool::builder("conformance", count).build_anonymous().expect("there is memory for a small pool")
}

fn opened(subject: Subject) -> (Port, Feed, Option<Sent>) {
    (Port::new(PortId(7), &subject.name, subject.driver), subject.feed, subject.sent)
}

/// As many queues as wanted, as far as the port has them.
fn config(port: &Port, queues: u16, pool: &MbufPool) -> PortConfig {
    let info = port.info();
    PortConfig::queues(info.max_rx_queues.min(queues).into(), info.max_tx_queues.min(queues).into(), pool)
}

impl Rig {
    fn new(fixture: &dyn Fixture, queues: u16) -> Self {
        Self::with_pool(fixture, queues, new_pool(POOL))
    }

    fn with_pool(fixture: &dyn Fixture, queues: u16, pool: MbufPool) -> Self {
        Self::with_config(fixture, queues, pool, &|_| ())
    }

    fn with_config(
        fixture: &dyn Fixture,
        queues: u16,
        pool: MbufPool,
        change: &dyn Fn(&mut PortConfig),
    ) -> Self {
        let (mut port, feed, sent) = opened(fixture.open());
        let mut config = config(&port, queues, &pool);
        change(&mut config);
        let Queues { rx, tx } = port.bring_up(config).expect("a fresh port comes up");
        Self { rx, tx, port, feed, sent, pool, patience: fixture.patience(), next_tag: 1 }
    }

    fn mbuf(&mut self, length: usize) -> Mbuf {
        let mut mbuf = self.pool.alloc().expect("the pool has some left");
        assert!(mbuf.append_slice(&frame(length, self.next_tag)), "a frame of {length} bytes fits an mbuf");
        self.next_tag += 1;
        mbuf
    }

    fn burst(&mut self, count: usize, length: usize) -> Burst {
        let mut burst = Burst::new();
        (0..count).for_each(|_| burst.push(self.mbuf(length)));
        burst
    }

    /// Makes `count` frames arrive on queue 0 where the feed can; how many were sent through the port for that.
    fn feed(&mut self, count: usize, length: usize) -> usize {
        match &mut self.feed {
            Feed::Endless(_) | Feed::Nothing => 0,
            Feed::Given(give) => {
                for _ in 0..count {
                    give(&frame(length, self.next_tag));
                    self.next_tag += 1;
                }
                0
            }
            Feed::Loop => {
                let mut burst = self.burst(count, length);
                let moved = send(&mut self.tx[0], &mut burst, self.patience);
                assert_eq!(moved, count, "a looped port takes a few packets");
                moved
            }
        }
    }

    /// Polls all rx queues until `count` mbufs of ours are there or patience ends. Strangers' frames come beside them.
    fn receive(&mut self, count: usize) -> Received {
        let mut received = Received::default();
        let end = Instant::now() + self.patience;
        let endless = matches!(self.feed, Feed::Endless(_));
        if matches!(self.feed, Feed::Nothing) {
            return received;
        }
        while received.ours.len() < count && Instant::now() < end {
            for queue in &mut self.rx {
                let mut burst = Burst::new();
                let got = queue.rx_burst(&mut burst, 32.min(count - received.ours.len().min(count)));
                assert_eq!(got, burst.len(), "rx_burst tells how many it appended");
                received.packets += got as u64;
                received.bytes += burst.iter().map(|mbuf| u64::from(mbuf.pkt_len())).sum::<u64>();
                for mbuf in burst.drain(..) {
                    if endless || tag(mbuf.data()).is_some() {
                        received.ours.push(mbuf);
                    }
                }
            }
        }
        received
    }

    /// Sends on queue 0 until all are taken or patience ends; how many were taken.
    fn send(&mut self, burst: &mut Burst) -> usize {
        send(&mut self.tx[0], burst, self.patience)
    }

    /// Drops queues and port; every mbuf must be home then.
    fn end(self) {
        let Self { rx, tx, mut port, pool, .. } = self;
        drop((rx, tx));
        port.stop().expect("a started port stops");
        port.close().expect("a stopped port closes");
        drop(port);
        assert_eq!(pool.in_use(), 0, "mbufs that did not come home");
    }
}

#[derive(Default)]
struct Received {
    ours: Vec<Mbuf>,
    packets: u64,
    bytes: u64,
}

fn send(queue: &mut TxQueue, burst: &mut Burst, patience: Duration) -> usize {
    let end = Instant::now() + patience;
    let mut sent = 0;
    while !burst.is_empty() && Instant::now() < end {
        sent += queue.tx_burst(burst);
    }
    sent
}

fn refused_for_state<T: std::fmt::Debug>(what: &str, result: Result<T, PortError>) {
    assert!(
        matches!(result, Err(PortError::State { .. })),
        "{what} must be refused for the port's state: {result:?}"
    );
}

/// An operation works, or says why the port lacks it.
fn works<T>(port: &str, what: &str, result: Result<T, PortError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(PortError::Unsupported { port: named, reason, .. }) => {
            assert_eq!(named, port, "{what}: the refusal names the port");
            assert!(!reason.is_empty(), "{what}: the refusal gives a reason");
            None
        }
        Err(error) => panic!("{what} failed: {error}"),
    }
}

fn first() -> QueueId {
    QueueId(0)
}
