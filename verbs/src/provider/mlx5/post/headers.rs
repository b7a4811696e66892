//! The first bytes of a frame in its entry, where the card wants them there: those before ConnectX-5.
//!
//! ```text
//!   control │ Ethernet: flags, count, bytes 0..2 │ bytes 2..18 │ .. │ pieces, less what was copied
//! ```
//!
//! Source: rdma-core `providers/mlx5/qp.c`, `set_eth_seg`, `copy_eth_inline_headers`.
#![expect(unsafe_code, reason = "writes entries that a device reads")]

use std::mem::offset_of;

use pollux_mlx5_abi::wqe::{Ethernet, SEGMENT_BYTES};
use pollux_mlx5_common::send_ring::SendRing;

use super::{Poster, Span};

/// Most bytes that a card wants: up to a TCP header.
pub(super) const HEADERS_MAX: usize = 78;

/// No frame has fewer: an Ethernet header and a VLAN tag.
pub(super) const HEADERS_MIN: u32 = 18;

/// Of them, those in the Ethernet segment.
const FIRST: u32 = 2;

/// Segments up to the end of so many bytes of header, the control segment included.
pub(in crate::provider::mlx5) fn segments(headers: u32) -> u32 {
    2 + headers.saturating_sub(FIRST).div_ceil(SEGMENT_BYTES as u32)
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
