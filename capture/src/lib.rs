//! What a running program and a capture of its packets share: a ring of frames in shared memory, filters, and messages.
//!
//! ```text
//!   application                                               pollux-dumpcap
//!   lcore, in a burst: Program::run, Writer::reserve ──► ring ──► Reader::next ──► pcapng
//!   control-capture:   CaptureRequest ◄── pollux_capture (SOCK_SEQPACKET) ──► CaptureReply + the ring's file
//! ```
//!
//! The application trusts nothing that comes from there: programs are [verified](Program::verify) before they run, run for a bounded time
//! and read inside the frame; of the shared memory it reads the reader's position alone, which at worst makes it drop frames or
//! overwrite some that were not read yet.
//!
//! Called by `port` (lcores), `bringup` (the control thread) and `dumpcap`; calls `eal`.

#![forbid(unsafe_code)]

pub mod bpf;
mod message;
mod order;
mod ring;

pub use bpf::Program;
pub use message::{
    Asked, CaptureReply, CaptureRequest, InterfaceRequest, MESSAGE_BYTES_MAX, Port, REVISION, Request,
    Response, SOCKET,
};
pub use ring::{
    BURST_MAX, Counts, Damaged, INTERFACES_MAX, Interface, Layout, Passage, Reader, Record, Reserved, Writer,
};

/// Longest part of a frame that is kept, as in libpcap (`MAXIMUM_SNAPLEN`).
pub const SNAPLEN_MAX: u32 = 256 * 1024;

/// Captures of one program at a time.
pub const CLIENTS_MAX: usize = 4;

/// A frame as its pieces: what a filter reads and a capture copies.
pub trait Frame {
    /// Returns its length, the bytes of all pieces.
    fn bytes(&self) -> usize;

    /// Returns its pieces, in order.
    fn pieces(&self) -> impl Iterator<Item = &[u8]>;
}

impl Frame for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(*self)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
