//! What a datagram socket counts.

/// Datagrams of a socket since it was bound, and messages that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RsDatagramCounts {
    /// Datagrams sent by a queue pair.
    pub sent: u64,
    /// Datagrams sent by UDP, to peers whose queue pair is not known yet.
    pub sent_by_udp: u64,
    /// Datagrams received by a queue pair.
    pub received: u64,
    /// Datagrams received by UDP.
    pub received_by_udp: u64,
    /// Dropped: datagrams and control messages that are cut or no such message.
    pub malformed: u64,
    /// Dropped: datagrams of others than the peer to which the socket is connected.
    pub foreign: u64,
    /// Dropped: datagrams by UDP for which there was no room.
    pub overrun: u64,
    /// Attempts to find the path to a peer that failed; its datagrams go by UDP until the next one.
    pub unresolved: u64,
    /// Queue pairs that failed and were made anew.
    pub restarts: u64,
}
