//! What a forked child and the process that has its device tell each other: a few numbers and descriptors, in one packet.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pollux_uverbs::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zerocopy::IntoBytes;

/// Most numbers.
pub(super) const NUMBERS: usize = 6;
/// Most descriptors: no method makes as many.
pub(super) const DESCRIPTORS: usize = 4;

/// What is asked for, by the first number.
pub(super) mod ask {
    /// Nothing: look at what there is to wait for.
    pub(crate) const LOOK: u64 = 0;
    /// To answer what comes by the descriptor.
    pub(crate) const CONNECT: u64 = 1;
    /// Open a device: its number, whether it is closed by exec.
    pub(crate) const OPEN: u64 = 2;
    /// An ioctl: the file, the address of the frame.
    pub(crate) const IOCTL: u64 = 3;
    /// Pages: the file, the offset, bytes, rights.
    pub(crate) const MAP: u64 = 4;
}

/// Numbers, and descriptors beside them.
#[derive(Debug, Default)]
pub(super) struct Letter {
    pub(super) numbers: [u64; NUMBERS],
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Sends a letter; the descriptors are lent.
pub(super) fn send(
    socket: impl AsFd,
    numbers: [u64; NUMBERS],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno(libc::ETOOMANYREFS));
    }
    let sent = sendmsg(socket, &[IoSlice::new(numbers.as_bytes())], &mut beside, SendFlags::NOSIGNAL);
    sent.map(drop).map_err(|error| Errno(error.raw_os_error()))
}

/// Receives one; none when nobody can send one any more.
pub(super) fn receive(socket: impl AsFd) -> Option<Letter> {
    let mut letter = Letter::default();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut room);
    let into = &mut [IoSliceMut::new(letter.numbers.as_mut_bytes())];
    let received = loop {
        match recvmsg(&socket, into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            letter.descriptors.extend(descriptors);
        }
    }
    let whole =
        received.bytes == size_of_val(&letter.numbers) && !received.flags.contains(ReturnFlags::TRUNC);
    whole.then_some(letter)
}
