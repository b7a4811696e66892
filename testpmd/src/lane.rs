//! One stream: from an rx queue to a tx queue, with what is counted on the way.

mod counters;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pollux_eal::clock::cycles;
use pollux_eal::histogram::{self, Counts, Histogram, Recorder};
use pollux_kit::{Console, StreamCounters};
use pollux_mempool::{Burst, Mbuf};
use pollux_port::{PortId, QueueId, RxQueue, TxQueue};

use crate::verbose;

pub use counters::{Count, LaneCounters, LaneCounts};

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

impl LaneView {
    /// What it counted since it began, or was cleared.
    #[must_use]
    pub fn counts(&self) -> LaneCounts {
        self.counters.read().since(&self.cleared)
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

/// From the beginning, whatever was cleared since.
impl StreamCounters for LaneView {
    fn lost(&self) -> Vec<(&'static str, u64)> {
        vec![("tx full", self.counters.read().of(Count::Dropped))]
    }

    fn packets(&self) -> Option<u64> {
        let counts = self.counters.read();
        Some(counts.of(Count::RxPackets).max(counts.of(Count::TxPackets)))
    }

    fn latency(&self) -> Option<Counts> {
        Some(self.residence.counts())
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
            self.counters.add(Count::RxPackets, received as u64);
        }
        received
    }

    #[cold]
    fn received(&self, count: usize) {
        if self.seen & RECORD_BURSTS != 0 {
            self.counters.rx_burst(count);
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

    /// A round of an engine that edits packets where they are: a burst in, `edit`, a burst out; the packets that moved.
    #[inline(always)]
    pub fn forward(&mut self, edit: impl FnOnce(&mut [Mbuf])) -> usize {
        let received = self.receive();
        if received != 0 {
            edit(&mut self.burst);
            self.send();
        }
        received
    }

    /// Marks now as the time at which packets that it makes itself begin.
    #[inline(always)]
    pub fn made(&mut self) {
        self.received_at = cycles::now();
    }

    /// When the last burst was received, in cycles: for who keeps packets and sends them later.
    #[must_use]
    pub fn received_at(&self) -> u64 {
        self.received_at
    }

    /// Sends the burst; what the queue does not take is tried again if that is wanted, and then dropped and counted. The number sent.
    #[inline(always)]
    pub fn send(&mut self) -> usize {
        let sent = self.transmit();
        self.residence.record_many(cycles::now().wrapping_sub(self.received_at), sent as u64);
        sent
    }

    /// The same for packets that were kept: `arrived` says when each was received.
    pub fn send_kept(&mut self, arrived: &[u64]) -> usize {
        let sent = self.transmit();
        let now = cycles::now();
        for at in arrived.iter().take(sent) {
            self.residence.record_many(now.wrapping_sub(*at), 1);
        }
        sent
    }

    #[inline(always)]
    fn transmit(&mut self) -> usize {
        let wanted = self.burst.len();
        if self.seen != 0 {
            self.sending();
        }
        let mut sent = self.tx.tx_burst(&mut self.burst);
        if sent != wanted {
            sent += self.full();
        }
        if self.seen & RECORD_BURSTS != 0 {
            self.counters.tx_burst(sent);
        }
        self.counters.add(Count::TxPackets, sent as u64);
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
        self.counters.add(Count::Dropped, self.burst.len() as u64);
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
