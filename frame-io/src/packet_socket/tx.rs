//! Sending.
#![expect(unsafe_code, reason = "sendto and sendmsg take untyped pointers")]

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Socket;
use super::ring::SlotCursor;
use crate::Trouble;
use crate::vnet::{VNET_BYTES, VnetHeader};

/// Where the kernel expects a frame in a transmit slot: `TPACKET2_HDRLEN - sizeof(struct sockaddr_ll)`
/// (`tpacket_parse_header`, net/packet/af_packet.c).
const DATA_OFFSET: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();

/// A frame is copied into one piece of kernel memory up to here; longer ones go by `send`, which need not find so many pages
/// in a row.
const RING_BYTES_MAX: usize = 16 * 1024;

/// The sending end of a queue pair.
#[derive(Debug)]
pub struct PacketTx {
    // Before the socket: dropped while the mapping stands.
    cursor: SlotCursor,
    socket: Arc<Socket>,
    /// Frames pushed since the last kick.
    pushed: usize,
}

impl PacketTx {
    pub(super) fn new(socket: Arc<Socket>, cursor: SlotCursor) -> Self {
        Self { cursor, socket, pushed: 0 }
    }

    /// The longest frame that [`push`](Self::push) takes; longer ones go by [`send`](Self::send).
    #[must_use]
    pub fn slot_room(&self) -> usize {
        (self.cursor.frame_bytes() - DATA_OFFSET - VNET_BYTES).min(RING_BYTES_MAX)
    }

    /// Slots in the ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.cursor.slots()
    }

    /// Whether the next slot is free.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.cursor.status() == libc::TP_STATUS_AVAILABLE
    }

    /// Copies a frame into the next slot; nothing is sent before [`kick`](Self::kick). False when no slot is free or the frame is
    /// longer than [`slot_room`](Self::slot_room): nothing has happened then.
    #[inline]
    pub fn push<'a>(&mut self, header: &VnetHeader, frame: impl Iterator<Item = &'a [u8]>) -> bool {
        if !self.has_room() {
            return false;
        }
        let limit = self.slot_room();
        let slot = self.cursor.bytes_mut(DATA_OFFSET);
        let mut bytes = 0;
        for piece in frame {
            if bytes + piece.len() > limit {
                return false;
            }
            slot[VNET_BYTES + bytes..][..piece.len()].copy_from_slice(piece);
            bytes += piece.len();
        }
        // All of it counts as header: the kernel copies that much and borrows no page of the ring (see the module's text).
        let header = VnetHeader { header_bytes: bytes as u16, ..*header };
        slot[..VNET_BYTES].copy_from_slice(&header.encode());
        self.cursor.set_lengths((VNET_BYTES + bytes) as u32);
        self.cursor.set_status(libc::TP_STATUS_SEND_REQUEST);
        self.cursor.advance();
        self.pushed += 1;
        true
    }

    /// Makes the kernel send what was pushed. What it has no room for stays in the ring and goes with a later kick.
    ///
    /// Cost: one system call, none when there is nothing to do.
    ///
    /// # Errors
    /// [`Trouble::Down`] and [`Trouble::Gone`]; frames stay in the ring.
    #[inline]
    pub fn kick(&mut self) -> Result<(), Trouble> {
        if std::mem::take(&mut self.pushed) == 0 && !self.socket.waiting.load(Ordering::Relaxed) {
            return Ok(());
        }
        let result = self.socket.kick();
        // The kernel goes in order: when the last slot was taken, all were.
        let left = self.cursor.status_before(1) & libc::TP_STATUS_SEND_REQUEST != 0;
        self.socket.waiting.store(left, Ordering::Relaxed);
        match result {
            Err(Trouble::Busy | Trouble::Refused) => Ok(()),
            other => other,
        }
    }

    /// Slots whose frames the kernel has not let go of yet, counted from the newest back to the first free one.
    #[must_use]
    pub fn pending(&self) -> usize {
        (1..=self.cursor.slots())
            .take_while(|&back| self.cursor.status_before(back) != libc::TP_STATUS_AVAILABLE)
            .count()
    }

    /// Sends one frame of any length at once, behind what was pushed.
    ///
    /// Cost: one system call, two when frames were pushed.
    ///
    /// # Errors
    /// [`Trouble::Busy`] when the kernel has no room, or pushed frames must go first; [`Trouble::Dropped`] when the device takes no
    /// frame now, or, past queueing disciplines, a frame that is to be cut and that the interface does not cut itself;
    /// [`Trouble::Refused`] for a frame that the interface does not take; [`Trouble::Down`], [`Trouble::Gone`].
    pub fn send(&mut self, header: &VnetHeader, frame: &[IoSlice<'_>]) -> Result<(), Trouble> {
        self.kick()?;
        if self.socket.waiting.load(Ordering::Relaxed) {
            return Err(Trouble::Busy);
        }
        let header = header.encode();
        let mut pieces = Vec::with_capacity(frame.len() + 1);
        pieces.push(IoSlice::new(&header));
        pieces.extend_from_slice(frame);
        // SAFETY: `msghdr` is integers and pointers; null and zero are valid in every field.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr().cast();
        message.msg_iovlen = pieces.len() as _;
        // SAFETY: `IoSlice` has the layout of `iovec` (std's promise); the memory is borrowed for the call and only read.
        let sent = unsafe { libc::sendmsg(self.socket.long.as_raw_fd(), &message, libc::MSG_DONTWAIT) };
        if sent >= 0 {
            return Ok(());
        }
        // A full socket says EAGAIN. This is `net_xmit_errno` of what the device or `validate_xmit_skb` answered: with a queueing
        // discipline the kernel cuts by itself, but `packet_direct_xmit` drops what it would have to cut (net/packet/af_packet.c,
        // net/core/dev.c).
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOBUFS) => Err(Trouble::Dropped),
            other => Err(Trouble::from_errno(other.unwrap_or(0))),
        }
    }
}

pub(super) fn kick(fd: BorrowedFd<'_>) -> Result<(), Trouble> {
    // SAFETY: no buffer and no address: the frames are in the ring.
    let sent =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent < 0 { Err(Trouble::last()) } else { Ok(()) }
}
