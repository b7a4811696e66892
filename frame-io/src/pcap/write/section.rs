//! What a capture file says besides its frames. A pcap file says none of it but the snap length.

use crate::pcap::{FRAME_BYTES_MAX, Timestamp};

/// The header of a pcapng file. Empty texts are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapSection {
    /// A comment on the whole capture.
    pub comment: String,
    /// The operating system that it was made on.
    pub os: String,
    /// The program that made it.
    pub application: String,
    /// Where frames come from; at least one.
    pub interfaces: Vec<PcapInterface>,
}

impl Default for PcapSection {
    /// One interface without a name.
    fn default() -> Self {
        let interfaces = vec![PcapInterface::default()];
        Self { comment: String::new(), os: String::new(), application: String::new(), interfaces }
    }
}

/// Where frames come from. Empty texts are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapInterface {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Its address.
    pub mac: Option<[u8; 6]>,
    /// Its speed.
    pub bits_per_second: Option<u64>,
    /// The filter of its frames, in tcpdump's syntax.
    pub filter: String,
    /// Longest part of a frame that is kept.
    pub snaplen: u32,
}

impl Default for PcapInterface {
    /// Without a name, and frames whole.
    fn default() -> Self {
        let (name, description, filter) = Default::default();
        Self { name, description, mac: None, bits_per_second: None, filter, snaplen: FRAME_BYTES_MAX as u32 }
    }
}

/// Where a frame passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapPlace {
    /// The interface, by its place in the section.
    pub interface: u32,
    /// Whether it was sent or received, where that is known.
    pub sent: Option<bool>,
}

/// What became of an interface's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapStatistics {
    /// When the capture began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Frames that passed the interface.
    pub received: u64,
    /// Of those that the filter accepted, how many were dropped for want of room.
    pub dropped: u64,
    /// How many the filter accepted.
    pub accepted: u64,
    /// How many are in the file.
    pub delivered: u64,
}
