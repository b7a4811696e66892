//! The first bytes of a frame in its entry: where the card wants them there, those before ConnectX-5; and the headers of a frame
//! that the card segments (TSO).
//!
//! ```text
//!   control │ Ethernet: flags, count, bytes 0..2 │ bytes 2..18 │ .. │ pieces, less what was copied
//! ```
//!
//! Source: rdma-core `providers/mlx5/qp.c`, `set_eth_seg`, `copy_eth_inline_headers`, `set_tso_eth_seg`.
#![expect(unsafe_code, reason = "writes entries that a device reads")]

use std::mem::offset_of;

use pollux_mlx5_abi::wqe::{Data, Ethernet, SEGMENT_BYTES, checksum};
use pollux_mlx5_common::send_ring::SendRing;

use super::{PostError, Poster, Span};

/// Most bytes that a card wants: up to a TCP header.
pub(super) const HEADERS_MAX: usize = 78;

/// No frame has fewer: an Ethernet header and a VLAN tag.
pub(super) const HEADERS_MIN: u32 = 18;

/// No header of a frame to be segmented has fewer. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_ETH_L2_MIN_HEADER_SIZE`.
const TSO_HEADER_MIN: u32 = 14;

/// Of them, those in the Ethernet segment.
const FIRST: u32 = 2;

/// Segments up to the end of so many bytes of header, the control segment included.
pub(in crate::provider::mlx5) fn segments(headers: u32) -> u32 {
    SendRing::header_segments(headers)
}

impl Span {
    /// Without its first bytes.
    pub(super) fn behind(self, bytes: u32) -> Self {
        Self { address: self.address.wrapping_add(bytes.into()), bytes: self.bytes - bytes, ..self }
    }
}

impl Poster {
    /// Copies on into the header of the entry at block `at` as long as it lacks bytes. How many of these went there, and how many
    /// there are.
    #[cold]
    #[inline(never)]
    pub(super) fn copy_headers(&mut self, at: u32, bytes: &[u8]) -> (u32, u32) {
        let before = self.headers(at);
        let taken = bytes.len().min((self.limits.headers - before) as usize) as u32;
        for (place, byte) in (before..).zip(&bytes[..taken as usize]) {
            let (segment, offset) = match place.checked_sub(FIRST) {
                None => (1, offset_of!(Ethernet, inline_hdr_start) + place as usize),
                Some(place) => (2 + place / SEGMENT_BYTES as u32, place as usize % SEGMENT_BYTES),
            };
            let to = self.ring.segment(SendRing::first_segment(at).wrapping_add(segment));
            // SAFETY: inside the segment, which is of an entry that was found free and is not posted.
            unsafe { to.add(offset).write(*byte) };
        }
        let count = (before + taken) as u16;
        // SAFETY: as above; the entry's Ethernet segment.
        unsafe {
            self.ethernet(at)
                .add(offset_of!(Ethernet, inline_hdr_sz))
                .cast::<[u8; 2]>()
                .write(count.to_be_bytes())
        };
        (taken, before + taken)
    }

    /// Begins a frame to be segmented in the entry at block `at`, which was opened: its Ethernet segment and its header. How many segments
    /// that makes with the control segment.
    ///
    /// # Errors
    /// A header or a size that the queue or the device does not take.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_cut(&mut self, at: u32, header: &[u8], mss: u16) -> Result<u32, PostError> {
        let limit = self.limits.tso_header;
        if limit == 0 {
            return Err(PostError::Incomplete(
                "TSO on a queue pair that was made without room for headers; QpOptions::tso_header makes it",
            ));
        }
        let least = TSO_HEADER_MIN.max(self.limits.headers);
        if header.len() < least as usize || header.len() > limit as usize {
            return Err(PostError::Header { bytes: header.len(), least, limit });
        }
        if mss == 0 {
            return Err(PostError::Incomplete("TSO into packets of no payload: mss is 0"));
        }
        // Each packet has checksums of its own, so they are always asked for.
        if !self.limits.checksums {
            return Err(PostError::Incomplete("TSO, whose checksums this device does not fill in"));
        }
        let sums = checksum::L3 | checksum::L4;
        // SAFETY: the header's bytes, which are within the limit by which the room of the entry was found free (`Limits::blocks`).
        let first = unsafe { self.ring.copy_header(at, header.as_ptr(), header.len()) };
        let words = Ethernet::words([0; 4], sums, 0, mss, header.len() as u16, first);
        self.ring.write(SendRing::first_segment(at).wrapping_add(1), words);
        Ok(segments(header.len() as u32))
    }

    /// Whether the frame to be segmented in the entry at block `at`, of so many segments, has a payload that the card takes.
    ///
    /// # Errors
    /// It is not.
    #[cold]
    #[inline(never)]
    pub(super) fn check_payload(&self, at: u32, end: u32) -> Result<(), PostError> {
        let pieces = segments(self.headers(at))..end;
        let bytes = pieces.map(|index| self.piece_bytes(at, index)).sum();
        let limit = self.limits.max_tso;
        if bytes == 0 {
            return Err(PostError::Incomplete("TSO of a frame that has a header and no payload"));
        }
        if bytes > limit.into() { Err(PostError::Payload { bytes, limit }) } else { Ok(()) }
    }

    /// Bytes of the piece of memory that a segment of the entry at block `at` names.
    fn piece_bytes(&self, at: u32, index: u32) -> u64 {
        let segment = self.ring.segment(SendRing::first_segment(at).wrapping_add(index));
        // SAFETY: a segment of the ring, which was written as a data segment and is not posted.
        let count = unsafe { segment.add(offset_of!(Data, byte_count)).cast::<[u8; 4]>().read() };
        u32::from_be_bytes(count).into()
    }

    /// What of inline data is behind the header.
    #[cold]
    #[inline(never)]
    pub(super) fn write_rest(&mut self, index: u32, bytes: &[u8]) {
        self.write_inline(index, bytes);
    }

    /// Bytes of header that the entry at block `at` has.
    #[cold]
    #[inline(never)]
    pub(super) fn headers(&self, at: u32) -> u32 {
        // SAFETY: the entry's Ethernet segment, which was written when it was opened.
        let count =
            unsafe { self.ethernet(at).add(offset_of!(Ethernet, inline_hdr_sz)).cast::<[u8; 2]>().read() };
        u16::from_be_bytes(count).into()
    }

    /// Asks for checksums, and leaves the header that is there.
    #[cold]
    #[inline(never)]
    pub(super) fn set_checksums(&mut self, at: u32, flags: u8) {
        // SAFETY: as in `copy_headers`.
        unsafe { self.ethernet(at).add(offset_of!(Ethernet, cs_flags)).write(flags) };
    }

    fn ethernet(&self, at: u32) -> *mut u8 {
        self.ring.segment(SendRing::first_segment(at).wrapping_add(1))
    }
}
