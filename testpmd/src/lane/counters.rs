//! What a stream counts: one array of counters on cache lines of its own, written by its lcore alone and read by others.

use crossbeam_utils::CachePadded;
use pollux_eal::counter::Counter;
use pollux_mempool::BURST_MAX;

/// What is counted, beside the sizes of bursts. All of them are one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Packets received.
    RxPackets,
    /// Packets sent.
    TxPackets,
    /// Packets that the tx queue did not take.
    Dropped,
    /// Received with a wrong IP header checksum; the engine `csum` counts these four.
    BadIp,
    /// Received with a wrong TCP or UDP checksum.
    BadL4,
    /// Received with a wrong outer IP header checksum.
    BadOuterIp,
    /// Received with a wrong outer UDP checksum.
    BadOuterL4,
    /// Cycles of rounds with packets.
    Cycles,
}

/// Where the counts of rx bursts by their number of packets begin.
const RX_BURSTS: usize = Count::Cycles as usize + 1;
const SIZES: usize = BURST_MAX + 1;
const TX_BURSTS: usize = RX_BURSTS + SIZES;
const ALL: usize = TX_BURSTS + SIZES;

/// The counters of one stream.
#[derive(Debug)]
pub struct LaneCounters(CachePadded<[Counter; ALL]>);

/// What a stream counted, at one moment or between two.
#[derive(Clone, Debug)]
pub struct LaneCounts([u64; ALL]);

impl Default for LaneCounters {
    fn default() -> Self {
        Self(CachePadded::new([const { Counter::new() }; ALL]))
    }
}

impl LaneCounters {
    /// Adds; for the stream's own lcore.
    #[inline(always)]
    pub fn add(&self, what: Count, count: u64) {
        self.0[what as usize].add(count);
    }

    /// Counts an rx burst of so many packets, at most [`BURST_MAX`].
    #[inline]
    pub fn rx_burst(&self, packets: usize) {
        self.0[RX_BURSTS + packets.min(BURST_MAX)].add(1);
    }

    /// Counts a tx burst of so many packets, at most [`BURST_MAX`].
    #[inline]
    pub fn tx_burst(&self, packets: usize) {
        self.0[TX_BURSTS + packets.min(BURST_MAX)].add(1);
    }

    /// All of them now.
    #[must_use]
    pub fn read(&self) -> LaneCounts {
        LaneCounts(std::array::from_fn(|at| self.0[at].get()))
    }
}

impl Default for LaneCounts {
    fn default() -> Self {
        Self([0; ALL])
    }
}

impl LaneCounts {
    /// One of them.
    #[must_use]
    pub fn of(&self, what: Count) -> u64 {
        self.0[what as usize]
    }

    /// Rx bursts by their number of packets, 0 to [`BURST_MAX`].
    #[must_use]
    pub fn rx_bursts(&self) -> &[u64] {
        &self.0[RX_BURSTS..TX_BURSTS]
    }

    /// Tx bursts by their number of packets, 0 to [`BURST_MAX`].
    #[must_use]
    pub fn tx_bursts(&self) -> &[u64] {
        &self.0[TX_BURSTS..]
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].wrapping_sub(earlier.0[at])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_its_place_and_starts_again_when_cleared() {
        let counters = LaneCounters::default();
        counters.add(Count::RxPackets, 32);
        counters.add(Count::Cycles, 7);
        counters.rx_burst(32);
        counters.tx_burst(0);
        counters.tx_burst(BURST_MAX);
        let first = counters.read();
        assert_eq!(
            (first.of(Count::RxPackets), first.of(Count::TxPackets), first.of(Count::Cycles)),
            (32, 0, 7)
        );
        assert_eq!((first.rx_bursts()[32], first.rx_bursts().iter().sum::<u64>()), (1, 1));
        assert_eq!(
            (first.tx_bursts()[0], first.tx_bursts()[BURST_MAX], first.tx_bursts().len()),
            (1, 1, SIZES)
        );
        counters.add(Count::RxPackets, 3);
        let since = counters.read().since(&first);
        assert_eq!((since.of(Count::RxPackets), since.of(Count::Cycles)), (3, 0));
        assert!(since.rx_bursts().iter().chain(since.tx_bursts()).all(|count| *count == 0));
    }
}
