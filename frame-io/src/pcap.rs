//! Capture files: pcap (microseconds and nanoseconds, both byte orders) and pcapng.
//!
//! Headers and interface descriptions are taken apart by `pcap-parser`; packet records, reading ahead, limits, time stamps and
//! the place of an error are here. Only Ethernet is accepted.

mod read;
mod write;

pub use read::{PcapFrame, PcapReader, Truncation};
pub use write::{
    LostFrames, PcapBatch, PcapFormat, PcapInterface, PcapPlace, PcapSection, PcapStatistics, PcapWriter,
};

/// The longest frame in a capture, as in libpcap (`MAXIMUM_SNAPLEN`).
pub const FRAME_BYTES_MAX: usize = 256 * 1024;

/// `LINKTYPE_ETHERNET` of the registry at tcpdump.org.
const ETHERNET: u16 = 1;

/// When a frame was seen: nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time that many nanoseconds after the start of 1970.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The system's clock now.
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
