//! What a process and the one that has its device tell each other: a few numbers and descriptors, in one packet. What is longer stands in
//! the memory of the process that asks, where the other reads and writes it.

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
    /// Open a device: its number. The answer is the file's inode.
    pub(crate) const OPEN: u64 = 2;
    /// An ioctl: the file, the address of the frame.
    pub(crate) const IOCTL: u64 = 3;
    /// Pages: the file, the offset, bytes, rights.
    pub(crate) const MAP: u64 = 4;
    /// The first request of a connection: the version, an address and the 8 bytes that stand there.
    pub(crate) const GREET: u64 = 5;
    /// The plan of the devices as text, at an address with room for so many bytes. The answer is how many it has.
    pub(crate) const PLAN: u64 = 6;
    /// An ioctl of a network interface: the device, the request, the address of its structure.
    pub(crate) const NETDEV: u64 = 7;
    /// A request of NETLINK_ROUTE: address and bytes, the port; behind them the room for the answers.
    pub(crate) const NETLINK: u64 = 8;
    /// A file of `/sys` that changes: the device, address and bytes of its name, the room.
    pub(crate) const SYSFS: u64 = 9;
    /// What changes about a network interface: the device. The answer is whether it is there, its flags, MTU and address.
    pub(crate) const INTERFACE: u64 = 10;
    /// Let stepped devices work. The answer is how many steps had something to do.
    pub(crate) const STEP: u64 = 11;
    /// Bytes on the bus: the device. The answer is those to the device, and from it.
    pub(crate) const BUS: u64 = 12;
    /// Take an end of a cable: address and bytes of its name. The answer is the end's number.
    pub(crate) const PLUG: u64 = 13;
    /// Send a frame from an end: the end, address, bytes.
    pub(crate) const SEND: u64 = 14;
    /// Receive one: the end, address, bytes. The answer is how many bytes it has.
    pub(crate) const RECEIVE: u64 = 15;
}

/// What both ends must agree on: another number for other letters.
pub(super) const VERSION: u64 = 1;

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
    send_with(socket, numbers, descriptors, SendFlags::NOSIGNAL)
}

/// The same without waiting: who does not take answers gets none.
pub(super) fn answer(
    socket: impl AsFd,
    numbers: [u64; NUMBERS],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    send_with(socket, numbers, descriptors, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send_with(
    socket: impl AsFd,
    numbers: [u64; NUMBERS],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno(libc::ETOOMANYREFS));
    }
    let sent = sendmsg(socket, &[IoSlice::new(numbers.as_bytes())], &mut beside, flags);
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

/// Sends a request and waits for its answer; `EIO` where nobody answers any more.
pub(super) fn answered(socket: impl AsFd, numbers: [u64; NUMBERS]) -> Result<Letter, Errno> {
    send(&socket, numbers, &[]).map_err(|_| Errno::EIO)?;
    let answer = receive(&socket).ok_or(Errno::EIO)?;
    match i32::try_from(answer.numbers[0]) {
        Ok(0) => Ok(answer),
        Ok(errno) => {
            // What a call made before it failed is nobody's.
            drop(answer.descriptors);
            Err(Errno(errno))
        }
        Err(_) => Err(Errno::EIO),
    }
}
