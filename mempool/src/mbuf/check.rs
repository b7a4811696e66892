//! Looking at an mbuf: is it sound, and what is in it.
#![expect(unsafe_code, reason = "walks segments in pinned memory")]

use std::fmt;
use std::sync::atomic::Ordering;

use super::chain::next_of;
use super::header::{CHAINED, COOKIE, EXTERNAL, INDIRECT, REFERENCES};
use super::{Mbuf, cold, home, pool_number};

/// What is wrong with an mbuf; see [`Mbuf::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// A segment's header was written over.
    Header,
    /// A segment has no owner: it was freed.
    Freed,
    /// A segment's data goes past its room.
    Room,
    /// The segments are not as many as the first one says.
    Segments,
    /// The segments' data is not as long as the first one says.
    Length,
}

impl Mbuf {
    /// Looks at all segments for what no packet may be: for tests and for finding whoever writes where it must not.
    ///
    /// # Errors
    /// The first flaw found.
    pub fn check(&self) -> Result<(), Flaw> {
        let (mut segments, mut bytes) = (0, 0_u64);
        let mut next = Some(self.0);
        while let Some(header) = next {
            let word = home(header).load(Ordering::Relaxed);
            // SAFETY: the segments of a packet that is borrowed.
            let (cookie, lengths, room) =
                unsafe { ((*cold(header)).cookie, (*header.as_ptr()).lengths, (*header.as_ptr()).room) };
            if cookie != COOKIE || pool_number(word) as u64 != word >> 32 {
                return Err(Flaw::Header);
            }
            if word & REFERENCES == 0 {
                return Err(Flaw::Freed);
            }
            if u64::from(lengths.data_off) + u64::from(lengths.data_len) > u64::from(room) {
                return Err(Flaw::Room);
            }
            segments += 1;
            if segments > self.segment_count() {
                return Err(Flaw::Segments);
            }
            bytes += u64::from(lengths.data_len);
            next = next_of(header);
        }
        if segments != self.segment_count() {
            return Err(Flaw::Segments);
        }
        if bytes != u64::from(self.pkt_len()) {
            return Err(Flaw::Length);
        }
        Ok(())
    }

    /// All that is known of the packet and its first `bytes` bytes, to be printed.
    #[must_use]
    pub fn dump(&self, bytes: usize) -> impl fmt::Display + '_ {
        Dump { mbuf: self, bytes }
    }
}

struct Dump<'a> {
    mbuf: &'a Mbuf,
    bytes: usize,
}

impl fmt::Display for Dump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbuf = self.mbuf;
        writeln!(
            f,
            "mbuf {:p} pool {} port {} pkt_len {} segments {} rx {:?} tx {:?} packet type {:#x}",
            mbuf.0,
            mbuf.pool_id(),
            mbuf.port(),
            mbuf.pkt_len(),
            mbuf.segment_count(),
            mbuf.rx_flags(),
            mbuf.tx_flags(),
            mbuf.packet_type().0,
        )?;
        let mut left = self.bytes;
        let mut next = Some(mbuf.0);
        for data in mbuf.segments() {
            let Some(header) = next else { break };
            let word = home(header).load(Ordering::Relaxed);
            // SAFETY: a segment of a packet that is borrowed.
            let (lengths, room) = unsafe { ((*header.as_ptr()).lengths, (*header.as_ptr()).room) };
            write!(
                f,
                "  segment {header:p} at {} of {room}, {} bytes, {} references",
                lengths.data_off,
                lengths.data_len,
                word & REFERENCES
            )?;
            for (kind, name) in [(CHAINED, "chained"), (INDIRECT, "indirect"), (EXTERNAL, "external")] {
                if word & kind != 0 {
                    write!(f, ", {name}")?;
                }
            }
            writeln!(f)?;
            for (row, line) in data[..left.min(data.len())].chunks(16).enumerate() {
                write!(f, "    {:05x}", row * 16)?;
                for byte in line {
                    write!(f, " {byte:02x}")?;
                }
                writeln!(f)?;
            }
            left = left.saturating_sub(data.len());
            next = next_of(header);
        }
        Ok(())
    }
}
