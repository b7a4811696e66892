//! Receiving.
#![expect(unsafe_code, reason = "recvmsg, poll, bind and getsockname take untyped pointers")]

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Socket;
use super::ring::{SlotCursor, SlotHeader};
use crate::Trouble;
use crate::pcap::Timestamp;
use crate::sys::check;
use crate::vnet::{VNET_BYTES, VlanTag, VnetHeader};

/// The receiving end of a queue pair.
#[derive(Debug)]
pub struct PacketRx {
    // Before the socket: dropped while the mapping stands.
    cursor: SlotCursor,
    socket: Arc<Socket>,
}

/// One received frame in its slot, which goes back to the kernel on drop.
#[derive(Debug)]
pub struct RxFrame<'a> {
    rx: &'a mut PacketRx,
    status: u32,
    header: SlotHeader,
    /// The whole frame still waits on the socket.
    waiting: bool,
}

impl PacketRx {
    pub(super) fn new(socket: Arc<Socket>, cursor: SlotCursor) -> Self {
        Self { cursor, socket }
    }

    /// The next frame, if one is there. Cost when not: one load.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a frame borrows from the ring, which no Iterator can say"
    )]
    pub fn next(&mut self) -> Option<RxFrame<'_>> {
        let status = self.cursor.status();
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let header = self.cursor.header();
        Some(RxFrame { rx: self, status, header, waiting: status & libc::TP_STATUS_COPY != 0 })
    }

    /// Whether a frame is there. Cost: one load.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.cursor.status() & libc::TP_STATUS_USER != 0
    }

    /// How many frames stand in the ring, counted up to `max`.
    #[must_use]
    pub fn ready(&self, max: usize) -> usize {
        (0..max.min(self.cursor.slots()))
            .take_while(|ahead| {
                let back = self.cursor.slots() - ahead;
                self.cursor.status_before(back) & libc::TP_STATUS_USER != 0
            })
            .count()
    }

    /// Slots in the ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.cursor.slots()
    }

    /// To be called now and then while nothing arrives: whether the interface is down or gone, and a kick for frames that the
    /// sending end could not get rid of. One or two system calls.
    ///
    /// # Errors
    /// [`Trouble::Down`] once when it has gone down, [`Trouble::Gone`] always when it is gone.
    #[cold]
    pub fn check(&mut self) -> Result<(), Trouble> {
        if self.socket.waiting.swap(false, Ordering::Relaxed) && self.socket.kick().is_err() {
            self.socket.waiting.store(true, Ordering::Relaxed);
        }
        self.socket.health()
    }

    /// Whether the sending end waits for a kick: [`check`](Self::check) gives it.
    #[inline]
    #[must_use]
    pub fn kick_wanted(&self) -> bool {
        self.socket.waiting.load(Ordering::Relaxed)
    }
}

/// Readable while a frame stands in the ring, and in error when the interface went down or is gone, until [`PacketRx::check`] has looked.
///
/// Source: Linux `net/packet/af_packet.c`, `packet_poll`.
impl AsFd for PacketRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

impl RxFrame<'_> {
    /// The bytes in the slot: the whole frame, or its beginning.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.rx.cursor.bytes(self.header.offset.into(), self.header.slot_bytes as usize)
    }

    /// Length of the frame on the wire, without a tag that was taken out.
    #[inline]
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        self.header.wire_bytes as usize
    }

    /// Whether [`data`](Self::data) is all of it.
    #[inline]
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.header.slot_bytes >= self.header.wire_bytes
    }

    /// Whether [`receive`](Self::receive) can fetch all of it. A frame that is not whole and cannot be fetched is lost: the
    /// socket's queue was full.
    #[inline]
    #[must_use]
    pub fn can_receive(&self) -> bool {
        self.waiting
    }

    /// What travels beside it.
    #[inline]
    #[must_use]
    pub fn vnet(&self) -> VnetHeader {
        let at = usize::from(self.header.offset).saturating_sub(VNET_BYTES);
        match self.rx.cursor.bytes(at, VNET_BYTES).try_into() {
            Ok(bytes) => VnetHeader::decode(bytes),
            Err(_) => VnetHeader::default(),
        }
    }

    /// The VLAN tag that the kernel took out of the frame.
    #[inline]
    #[must_use]
    pub fn vlan(&self) -> Option<VlanTag> {
        (self.status & libc::TP_STATUS_VLAN_VALID != 0).then_some(VlanTag {
            tpid: if self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
                self.header.vlan_tpid
            } else {
                libc::ETH_P_8021Q as u16
            },
            tci: self.header.vlan_tci,
        })
    }

    /// When it arrived.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_nanos(u64::from(self.header.seconds) * 1_000_000_000 + u64::from(self.header.nanos))
    }

    /// Fetches the whole of a frame that was too long for its slot. Returns what travels beside it and the bytes written, which
    /// are fewer than [`wire_bytes`](Self::wire_bytes) if `places` has no room for all.
    ///
    /// Cost: one system call.
    ///
    /// # Errors
    /// The kernel's, or `NotFound` when there is nothing to fetch; the frame is lost then.
    pub fn receive(&mut self, places: &mut [IoSliceMut<'_>]) -> io::Result<(VnetHeader, usize)> {
        if !std::mem::take(&mut self.waiting) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut header = [0; VNET_BYTES];
        let mut pieces = Vec::with_capacity(places.len() + 1);
        pieces.push(IoSliceMut::new(&mut header));
        pieces.extend(places.iter_mut().map(|place| IoSliceMut::new(place)));
        // SAFETY: `msghdr` is integers and pointers; null and zero are valid in every field.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr().cast();
        message.msg_iovlen = pieces.len() as _;
        // SAFETY: `IoSliceMut` has the layout of `iovec` (std's promise); `pieces` borrows its memory mutably and outlives
        // the call. No name and no control data are asked for.
        let bytes = unsafe { libc::recvmsg(self.rx.socket.fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
        if bytes < 0 {
            return Err(io::Error::last_os_error());
        }
        let bytes = (bytes as usize).saturating_sub(VNET_BYTES);
        Ok((VnetHeader::decode(header), bytes))
    }
}

impl Drop for RxFrame<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.waiting {
            // Not fetched: it must leave the queue all the same, or the next one fetched would be this one.
            let _ = self.receive(&mut []);
        }
        self.rx.cursor.set_status(libc::TP_STATUS_KERNEL);
        self.rx.cursor.advance();
    }
}

pub(super) fn bind(fd: BorrowedFd<'_>, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: integers only; all zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes at `address`, which is that long.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), bytes) })?;
    Ok(())
}

/// Whether the socket still has its interface, and that has not gone down since the last call.
pub(super) fn health(fd: BorrowedFd<'_>) -> Result<(), Trouble> {
    // SAFETY: integers only; all zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes at `address`.
    let named =
        unsafe { libc::getsockname(fd.as_raw_fd(), std::ptr::from_mut(&mut address).cast(), &mut bytes) };
    // The kernel puts -1 here when the interface is unregistered (packet_notifier). It goes down before that, and only the
    // first of the two raises an error on the socket.
    if named == 0 && address.sll_ifindex < 0 {
        return Err(Trouble::Gone);
    }
    let mut wanted = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one live `pollfd`.
    let events = unsafe { libc::poll(&mut wanted, 1, 0) };
    if events <= 0 || wanted.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) == 0 {
        return Ok(());
    }
    // Reading the error clears it.
    match crate::sys::get_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, 0i32) {
        Ok(error) if error != 0 => Err(Trouble::from_errno(error)),
        _ => Ok(()),
    }
}
