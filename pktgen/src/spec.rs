//! A stream as it is asked for.

use crate::packet::Packet;
use crate::rate::Rate;
use crate::replay::ReplaySpec;
use crate::schedule::Pattern;
use crate::size::Sizes;

/// What a stream is, as plain data.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamSpec {
    /// For reports.
    pub(crate) name: String,
    /// The port that sends it; none: each port that sends.
    pub(crate) port: Option<u16>,
    /// A capture file that is sent in place of packets.
    pub(crate) replay: Option<ReplaySpec>,
    /// Its packets, in turn.
    pub(crate) packets: Vec<Packet>,
    /// Their sizes, in turn.
    pub(crate) sizes: Sizes,
    pub(crate) rate: Rate,
    pub(crate) pattern: Pattern,
    /// How many packets are sent; none: until the end.
    pub(crate) count: Option<u64>,
    /// Fields that vary one after the other, as `udp.src`: the second takes its next value when the first has taken its last one.
    pub(crate) tuple: Vec<String>,
    /// Whether its returns are measured.
    pub(crate) latency: bool,
}
