//! Sockets of NETLINK_ROUTE: requests that name an interface of ours are answered here, and who listens for changes hears of them.
//!
//! Lists of all interfaces are the kernel's alone: DPDK asks for one, by its number. Source of what it asks: DPDK
//! `drivers/common/mlx5/linux/mlx5_nl.c`.

use std::mem::size_of;
use std::os::fd::RawFd;

use libc::{c_int, iovec, msghdr, sockaddr, sockaddr_nl, socklen_t, ssize_t};
use pollux_uverbs::Errno;

use super::super::errno::fail;
use super::super::{client, inode, planned};
use super::{message, news, waiting};
use pollux_preload::real;

/// Longest request that is looked at.
const REQUEST_MAX: usize = 4096;
/// Parts of a message that are looked at.
const PARTS_MAX: usize = 16;

/// Forgets what waits for a socket that is closed.
pub(crate) fn closed(fd: RawFd) {
    if (news::is_on() || waiting::any())
        && let Some(inode) = inode::of(fd)
    {
        news::closed(inode);
        waiting::forget(inode);
    }
}

fn option(fd: c_int, name: c_int) -> Option<c_int> {
    let (mut value, mut bytes) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: room for a number, which is as long as it is said.
    let status =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut bytes) };
    (status == 0).then_some(value)
}

fn is_route(fd: c_int) -> bool {
    option(fd, libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
        && option(fd, libc::SO_PROTOCOL) == Some(libc::NETLINK_ROUTE)
}

/// Number of the socket among those of netlink, which answers carry.
fn port(fd: c_int) -> u32 {
    // SAFETY: an address of numbers alone, for which zero is a value.
    let mut address: sockaddr_nl = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<sockaddr_nl>() as libc::socklen_t;
    // SAFETY: room for an address, which is as long as it is said.
    let status = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut bytes) };
    if status == 0 { address.nl_pid } else { 0 }
}

/// The parts that a message is made of.
fn parts(message: &msghdr) -> Result<Vec<iovec>, Errno> {
    let count = message.msg_iovlen.min(PARTS_MAX);
    let mut parts = Vec::with_capacity(count);
    for index in 0..count {
        let mut words = [0; size_of::<iovec>()];
        client::read((message.msg_iov.expose_provenance() + index * words.len()) as u64, &mut words)?;
        let word = |at: usize| {
            let mut bytes = [0; size_of::<usize>()];
            bytes.copy_from_slice(&words[at..at + size_of::<usize>()]);
            usize::from_ne_bytes(bytes)
        };
        let base = std::ptr::with_exposed_provenance_mut(word(0));
        parts.push(iovec { iov_base: base, iov_len: word(size_of::<usize>()) });
    }
    Ok(parts)
}

fn gather(message: &msghdr) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in parts(message).ok()? {
        let at = bytes.len();
        if at + part.iov_len > REQUEST_MAX {
            return None;
        }
        bytes.resize(at + part.iov_len, 0);
        client::read(part.iov_base.expose_provenance() as u64, &mut bytes[at..]).ok()?;
    }
    Some(bytes)
}

/// Takes a request that is ours to answer: how long it is.
fn take(fd: c_int, message: &msghdr) -> Option<Result<usize, Errno>> {
    let plan = planned::plan()?;
    if !is_route(fd) {
        return None;
    }
    let bytes = gather(message)?;
    let answers = message::answer(plan, &bytes, port(fd))?;
    let inode = inode::of(fd)?;
    let told = answers.into_iter().try_for_each(|answer| waiting::put(fd, inode, answer));
    Some(told.map(|()| bytes.len()))
}

/// As bind(2): who joins the group of links hears of ours too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: the program's arguments.
    let status =
        unsafe { real!(c"bind": fn(c_int, *const sockaddr, socklen_t) -> c_int, fd, address, bytes) };
    if status == 0 && planned::plan().is_some() && is_route(fd) {
        let mut own = [0; size_of::<sockaddr_nl>()];
        let whole =
            bytes as usize >= own.len() && client::read(address.expose_provenance() as u64, &mut own).is_ok();
        let groups = u32::from_ne_bytes([own[8], own[9], own[10], own[11]]);
        if whole && groups & libc::RTMGRP_LINK as u32 != 0 {
            let _panicked = std::panic::catch_unwind(|| news::listen(fd));
        }
    }
    status
}

/// As sendmsg(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if planned::plan().is_some() && !message.is_null() {
        // SAFETY: the program's message, which the C library would read too.
        let header = unsafe { &*message };
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| take(fd, header)));
        match taken {
            Ok(Some(Ok(bytes))) => return bytes.cast_signed(),
            Ok(Some(Err(errno))) => return fail(errno) as ssize_t,
            Ok(None) | Err(_) => {}
        }
    }
    // SAFETY: the program's arguments.
    unsafe { real!(c"sendmsg": fn(c_int, *const msghdr, c_int) -> ssize_t, fd, message, flags) }
}

/// Writes an answer where a program wants it: how many bytes it is told.
fn deliver(answer: &[u8], message: &mut msghdr, flags: c_int) -> Result<usize, Errno> {
    let mut rest = answer;
    for part in parts(message)? {
        let (now, later) = rest.split_at(part.iov_len.min(rest.len()));
        client::write(part.iov_base.expose_provenance() as u64, now)?;
        rest = later;
    }
    let bytes = size_of::<sockaddr_nl>();
    if !message.msg_name.is_null() && message.msg_namelen as usize >= bytes {
        // From the kernel, which is number zero.
        let mut from = vec![0; bytes];
        from[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
        client::write(message.msg_name.expose_provenance() as u64, &from)?;
        message.msg_namelen = bytes as libc::socklen_t;
    }
    message.msg_controllen = 0;
    message.msg_flags = if rest.is_empty() { 0 } else { libc::MSG_TRUNC };
    let whole = flags & libc::MSG_TRUNC != 0;
    Ok(if whole { answer.len() } else { answer.len() - rest.len() })
}

/// As recvmsg(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if !message.is_null()
        && let Some(answer) = waiting::next(fd, flags & libc::MSG_PEEK != 0, flags)
    {
        // SAFETY: the program's message, which the C library would read and write too.
        let header = unsafe { &mut *message };
        return match deliver(&answer, header, flags) {
            Ok(bytes) => bytes.cast_signed(),
            Err(errno) => fail(errno) as ssize_t,
        };
    }
    // SAFETY: the program's arguments.
    unsafe { real!(c"recvmsg": fn(c_int, *mut msghdr, c_int) -> ssize_t, fd, message, flags) }
}
