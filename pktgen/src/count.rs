//! What is counted: of each stream on each lcore, and of each lcore.

use crossbeam_utils::CachePadded;
use pollux_eal::counter::Counter;
use pollux_kit::StreamCounters;

/// Of a stream on one lcore, which writes them.
pub(crate) type SenderCounters = CachePadded<SenderCounts>;

#[derive(Debug, Default)]
pub(crate) struct SenderCounts {
    /// Packets that the port took.
    pub(crate) sent: Counter,
    /// Bytes of them, check sequences counted, where packets of a file are sent; else they follow from the number.
    pub(crate) bytes: Counter,
    /// Packets that were due by the rate, sent or not.
    pub(crate) offered: Counter,
}

/// Of one lcore's part in one port.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters(CachePadded<LaneCounts>);

#[derive(Debug, Default)]
pub(crate) struct LaneCounts {
    /// Packets sent, of all streams.
    pub(crate) sent: Counter,
}

impl std::ops::Deref for LaneCounters {
    type Target = LaneCounts;

    fn deref(&self) -> &LaneCounts {
        &self.0
    }
}

/// Of one task of a lane.
pub(crate) type TaskCounters = CachePadded<TaskCounts>;

#[derive(Debug, Default)]
pub(crate) struct TaskCounts {
    /// When it began.
    pub(crate) begun: Counter,
    /// Ticks in which packets were sent; 0 until they are.
    pub(crate) sending: Counter,
    /// 1 once all is sent.
    pub(crate) ended: Counter,
}

/// Nothing is let go: what the port does not take is sent later, and what was due and not sent is told by the stream.
impl StreamCounters for LaneCounters {
    fn lost(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn packets(&self) -> Option<u64> {
        Some(self.sent.get())
    }
}
