//! One stream: from an rx queue to a tx queue, with what is counted on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pollux_eal::clock::cycles;
use pollux_eal::histogram::{self, Counts, Histogram, Recorder};
use pollux_kit::Console;
use pollux_mempool::{BURST_MAX, Burst, Mbuf};
use pollux_port::{PortId, QueueId, RxQueue, TxQueue};

use crate::verbose;

/// Ends the loops of all lcores.
pub const STOP: u32 = 1 << 31;
/// `set record-burst-stats on`.
pub const RECORD_BURSTS: u32 = 1 << 30;
/// `set verbose`: the level, 0 to 3.
pub const VERBOSE: u32 = 0x3;
/// Level 1 and 3 print what is received, 2 and 3 what is sent.
const VERBOSE_RX: u32 = 1;
const VERBOSE_TX: u32 = 2;

/// What the prompt tells the loops while they run: one word that each reads once a round.
pub type Switches = Arc<AtomicU32>;

/// What one stream counted. Its lcore alone writes, others read.
#[derive(Debug)]
pub struct LaneCounters {
    /// Packets received.
    pub rx_packets: AtomicU64,
    /// Packets sent.
    pub tx_packets: AtomicU64,
    /// Packets that the tx queue did not take.
    pub dropped: AtomicU64,
    /// Received with a wrong IP header checksum; the engine `csum` counts them.
    pub bad_ip: AtomicU64,
    /// Received with a wrong TCP or UDP checksum.
    pub bad_l4: AtomicU64,
    /// Received with a wrong outer IP header checksum.
    pub bad_outer_ip: AtomicU64,
    /// Received with a wrong outer UDP checksum.
    pub bad_outer_l4: AtomicU64,
    /// Packets joined by GRO or received as LRO packets.
    pub joined: AtomicU64,
    /// Cycles of rounds with packets.
    pub cycles: AtomicU64,
    /// Rx bursts by their number of packets.
    pub rx_bursts: Box<[AtomicU64]>,
    /// Tx bursts by their number of packets.
    pub tx_bursts: Box<[AtomicU64]>,
}

impl Default for LaneCounters {
    fn default() -> Self {
        let bursts = || (0..=BURST_MAX).map(|_| AtomicU64::new(0)).collect();
        let zero = || AtomicU64::new(0);
        Self {
            rx_packets: zero(),
            tx_packets: zero(),
            dropped: zero(),
            bad_ip: zero(),
            bad_l4: zero(),
            bad_outer_ip: zero(),
            bad_outer_l4: zero(),
            joined: zero(),
            cycles: zero(),
            rx_bursts: bursts(),
            tx_bursts: bursts(),
        }
    }
}

/// Adds to a counter that this thread alone writes.
#[inline(always)]
pub fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// A full tx queue is tried again (`set fwd MODE retry`): the number of tries, and TSC cycles between them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxRetry {
    /// Tries; 0: what does not fit is dropped at once.
    pub tries: u32,
    /// Cycles before each.
    pub delay: u64,
}

/// One stream.
#[derive(Debug)]
pub struct Lane {
    /// Receives.
    pub rx: RxQueue,
    /// Sends.
    pub tx: TxQueue,
    /// What is under way.
    pub burst: Burst,
    /// Packets received at once.
    pub size: usize,
    /// What it counted.
    pub counters: Arc<LaneCounters>,
    switches: Switches,
    seen: u32,
    retry: TxRetry,
    console: Console,
    received_at: u64,
    residence: Recorder,
}

/// What the prompt keeps of a stream that runs.
#[derive(Clone, Debug)]
pub struct LaneView {
    /// Where it receives.
    pub from: (PortId, QueueId),
    /// Where it sends.
    pub to: (PortId, QueueId),
    counters: Arc<LaneCounters>,
    residence: Histogram,
    /// What it had counted when it was cleared.
    cleared: LaneCounts,
    residence_cleared: Counts,
}

/// What a stream counted, at one moment.
#[derive(Clone, Debug, Default)]
pub struct LaneCounts {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets that the tx queue did not take.
    pub dropped: u64,
    /// Received with a wrong IP header checksum.
    pub bad_ip: u64,
    /// Received with a wrong TCP or UDP checksum.
    pub bad_l4: u64,
    /// Received with a wrong outer IP header checksum.
    pub bad_outer_ip: u64,
    /// Received with a wrong outer UDP checksum.
    pub bad_outer_l4: u64,
    /// Cycles of rounds with packets.
    pub cycles: u64,
    /// Rx bursts by their number of packets.
    pub rx_bursts: Vec<u64>,
    /// Tx bursts by their number of packets.
    pub tx_bursts: Vec<u64>,
}

impl LaneCounters {
    /// All of them now.
    #[must_use]
    pub fn read(&self) -> LaneCounts {
        let at = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LaneCounts {
            rx_packets: at(&self.rx_packets),
            tx_packets: at(&self.tx_packets),
            dropped: at(&self.dropped),
            bad_ip: at(&self.bad_ip),
            bad_l4: at(&self.bad_l4),
            bad_outer_ip: at(&self.bad_outer_ip),
            bad_outer_l4: at(&self.bad_outer_l4),
            cycles: at(&self.cycles),
            rx_bursts: self.rx_bursts.iter().map(at).collect(),
            tx_bursts: self.tx_bursts.iter().map(at).collect(),
        }
    }
}

impl LaneView {
    /// What it counted since it began, or was cleared.
    #[must_use]
    pub fn counts(&self) -> LaneCounts {
        let (mut now, base) = (self.counters.read(), &self.cleared);
        for (count, base) in [
            (&mut now.rx_packets, base.rx_packets),
            (&mut now.tx_packets, base.tx_packets),
            (&mut now.dropped, base.dropped),
            (&mut now.bad_ip, base.bad_ip),
            (&mut now.bad_l4, base.bad_l4),
            (&mut now.bad_outer_ip, base.bad_outer_ip),
            (&mut now.bad_outer_l4, base.bad_outer_l4),
            (&mut now.cycles, base.cycles),
        ] {
            *count = count.wrapping_sub(base);
        }
        let bursts = now.rx_bursts.iter_mut().zip(&base.rx_bursts);
        for (count, base) in bursts.chain(now.tx_bursts.iter_mut().zip(&base.tx_bursts)) {
            *count = count.wrapping_sub(*base);
        }
        now
    }

    /// Cycles from the end of the rx burst to the end of the tx burst, of each packet.
    #[must_use]
    pub fn residence(&self) -> Counts {
        self.residence.counts().since(&self.residence_cleared)
    }

    /// Counts from now on.
    pub fn clear(&mut self) {
        self.cleared = self.counters.read();
        self.residence_cleared = self.residence.counts();
    }
}

impl Lane {
    /// A stream between two queues.
    #[must_use]
    pub fn new(
        rx: RxQueue,
        tx: TxQueue,
        size: usize,
        retry: TxRetry,
        console: Console,
        switches: Switches,
    ) -> (Self, LaneView) {
        let counters = Arc::new(LaneCounters::default());
        let (residence, histogram) = histogram::new();
        let view = LaneView {
            from: (rx.port(), rx.queue()),
            to: (tx.port(), tx.queue()),
            counters: Arc::clone(&counters),
            residence: histogram,
            cleared: LaneCounts::default(),
            residence_cleared: Counts::default(),
        };
        let burst = Burst::new();
        let lane = Self {
            rx,
            tx,
            burst,
            size,
            counters,
            switches,
            seen: 0,
            retry,
            console,
            received_at: 0,
            residence,
        };
        (lane, view)
    }

    /// Reads the switches, once a round; whether the loop is to end.
    #[inline(always)]
    pub fn look(&mut self) -> bool {
        self.seen = self.switches.load(Ordering::Relaxed);
        self.seen & STOP != 0
    }

    /// Receives a burst; the number of packets.
    #[inline(always)]
    pub fn receive(&mut self) -> usize {
        let received = self.rx.rx_burst(&mut self.burst, self.size);
        if self.seen != 0 {
            self.received(received);
        }
        if received != 0 {
            self.received_at = cycles::now();
            add(&self.counters.rx_packets, received as u64);
        }
        received
    }

    #[cold]
    fn received(&self, count: usize) {
        if self.seen & RECORD_BURSTS != 0 {
            add(&self.counters.rx_bursts[count], 1);
        }
        if self.seen & VERBOSE & VERBOSE_RX != 0 && count > 0 {
            self.console.print(&verbose::text(
                &self.burst,
                self.rx.port(),
                self.rx.queue(),
                verbose::Way::Received,
            ));
        }
    }

    /// Marks now as the time at which packets that it makes itself begin.
    #[inline(always)]
    pub fn made(&mut self) {
        self.received_at = cycles::now();
    }

    /// Sends the burst; what the queue does not take is tried again if that is wanted, and then dropped and counted. The number sent.
    #[inline(always)]
    pub fn send(&mut self) -> usize {
        let wanted = self.burst.len();
        if self.seen != 0 {
            self.sending();
        }
        let mut sent = self.tx.tx_burst(&mut self.burst);
        if sent != wanted {
            sent += self.full();
        }
        if self.seen & RECORD_BURSTS != 0 {
            add(&self.counters.tx_bursts[sent], 1);
        }
        self.residence.record_many(cycles::now().wrapping_sub(self.received_at), sent as u64);
        add(&self.counters.tx_packets, sent as u64);
        sent
    }

    #[cold]
    fn sending(&self) {
        if self.seen & VERBOSE & VERBOSE_TX != 0 && !self.burst.is_empty() {
            self.console.print(&verbose::text(
                &self.burst,
                self.tx.port(),
                self.tx.queue(),
                verbose::Way::Sent,
            ));
        }
    }

    #[cold]
    fn full(&mut self) -> usize {
        let mut sent = 0;
        for _ in 0..self.retry.tries {
            let begin = cycles::now();
            while cycles::now().wrapping_sub(begin) < self.retry.delay {
                std::hint::spin_loop();
            }
            sent += self.tx.tx_burst(&mut self.burst);
            if self.burst.is_empty() || self.look() {
                break;
            }
        }
        add(&self.counters.dropped, self.burst.len() as u64);
        self.burst.clear();
        sent
    }

    /// The burst's packets.
    #[inline(always)]
    pub fn packets(&mut self) -> &mut [Mbuf] {
        &mut self.burst
    }

    /// Gives the queues back.
    #[must_use]
    pub fn into_queues(self) -> (RxQueue, TxQueue) {
        (self.rx, self.tx)
    }
}
