//! Messages that wait for sockets of ours which are the kernel's too.
//!
//! A message that nobody but this library has cannot be put into a socket of the kernel's. So the kernel is asked, through the same
//! socket, for an acknowledgement that nobody else asks for: it lies among the kernel's own messages, poll(2) sees it, and whoever comes
//! to it is given the message instead. Source: netlink(7); Linux `net/netlink/af_netlink.c`, `netlink_rcv_skb`: what is no request is
//! acknowledged if that is asked for.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_int;
use pollux_uverbs::Errno;

use super::super::inode;

/// Number of the requests for acknowledgements.
const SEQUENCE: u32 = 0x6d6c_7835;
/// Bytes of a header, and of one whose kind and number can be told.
const HEADER: usize = 16;
/// `NLMSG_NOOP`, `NLMSG_ERROR`.
const NOTHING: u16 = libc::NLMSG_NOOP as u16;
const ACKNOWLEDGEMENT: u16 = libc::NLMSG_ERROR as u16;

pub(super) type Messages = VecDeque<(u64, Vec<u8>)>;

/// Each for the socket of that inode.
static WAITING: Mutex<Messages> = Mutex::new(VecDeque::new());
/// How many: none, at nearly all times.
static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) fn lock() -> MutexGuard<'static, Messages> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a message behind what the kernel has for a socket.
pub(super) fn put(fd: RawFd, inode: u64, message: Vec<u8>) -> Result<(), Errno> {
    let mut waiting = lock();
    waiting.push_back((inode, message));
    COUNT.store(waiting.len(), Ordering::Release);
    let mut request = [0; HEADER];
    request[..4].copy_from_slice(&(HEADER as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&NOTHING.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_ACK as u16).to_ne_bytes());
    request[8..12].copy_from_slice(&SEQUENCE.to_ne_bytes());
    // SAFETY: bytes of ours, to the kernel.
    let sent = unsafe { libc::send(fd, request.as_ptr().cast(), HEADER, libc::MSG_DONTWAIT) };
    if sent == HEADER.cast_signed() {
        return Ok(());
    }
    let why = Errno::from(std::io::Error::last_os_error());
    waiting.pop_back();
    COUNT.store(waiting.len(), Ordering::Release);
    Err(why)
}

/// The message that a socket has next, if it is one of these. It stays if it is only looked at. Waits for one, as recv(2) would.
pub(super) fn next(fd: RawFd, stays: bool, flags: c_int) -> Option<Vec<u8>> {
    if !any() {
        return None;
    }
    let inode = inode::of(fd)?;
    if !lock().iter().any(|(socket, _)| *socket == inode) || !is_marked(fd, flags & libc::MSG_DONTWAIT) {
        return None;
    }
    let mut waiting = lock();
    let at = waiting.iter().position(|(socket, _)| *socket == inode)?;
    if stays {
        return waiting.get(at).map(|(_, message)| message.clone());
    }
    let (_, message) = waiting.remove(at)?;
    COUNT.store(waiting.len(), Ordering::Release);
    // SAFETY: the acknowledgement, which is let go.
    let _gone = unsafe { libc::recv(fd, [0_u8; HEADER].as_mut_ptr().cast(), HEADER, libc::MSG_DONTWAIT) };
    Some(message)
}

/// Whether the next message of a socket stands for one of these.
fn is_marked(fd: RawFd, flags: c_int) -> bool {
    let mut head = [0_u8; HEADER];
    // SAFETY: room of ours.
    let bytes = unsafe { libc::recv(fd, head.as_mut_ptr().cast(), HEADER, libc::MSG_PEEK | flags) };
    bytes == HEADER.cast_signed()
        && head[4..6] == ACKNOWLEDGEMENT.to_ne_bytes()
        && head[8..12] == SEQUENCE.to_ne_bytes()
}

/// Whether anything waits.
pub(super) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Nothing waits any more: a child has what it had from its parent cleared.
pub(super) fn forget_all() {
    COUNT.store(0, Ordering::Release);
}

/// Forgets what waits for a socket.
pub(super) fn forget(inode: u64) {
    let mut waiting = lock();
    waiting.retain(|(socket, _)| *socket != inode);
    COUNT.store(waiting.len(), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use super::*;

    #[test]
    fn a_message_comes_through_the_kernels_socket_in_its_turn() {
        // SAFETY: a new socket, which nobody else knows.
        let socket = unsafe {
            OwnedFd::from_raw_fd(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE))
        };
        let fd = socket.as_raw_fd();
        let inode = inode::of(fd).expect("a socket");
        let ready = || {
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which is ours.
            unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
        };
        assert!(!ready() && next(fd, false, libc::MSG_DONTWAIT).is_none());
        put(fd, inode, vec![1, 2]).expect("put");
        put(fd, inode, vec![3]).expect("put");
        assert!(ready());
        assert_eq!(next(fd, true, 0), Some(vec![1, 2]));
        assert_eq!(next(fd, false, 0), Some(vec![1, 2]));
        assert_eq!(next(fd, false, 0), Some(vec![3]));
        assert!(!ready(), "the kernel has nothing for it");
        put(fd, inode, vec![4]).expect("put");
        forget(inode);
        assert_eq!(next(fd, false, libc::MSG_DONTWAIT), None);
    }
}
