//! Functions that tell a program the addresses of a connection.

use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::{c_int, sockaddr, socklen_t};

use super::address;
use super::ask::{TcpSocket, ask, is_launchers};
use crate::control::{Answer, Request, canonical};
use pollux_preload::{errno, real};

/// Which of a socket's addresses is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Own,
    Peer,
}

/// The launcher connected it and cannot be asked for whom: told as it stands, a peer elsewhere would have the rights of one on this host.
struct Unknown;

/// Puts the address that is meant in the place of the kernel's, of a peer the one that the kernel told.
///
/// # Safety
/// `into` has room for `room` bytes, the C library has just written to it and to `bytes`; the descriptor stays open.
unsafe fn rename(
    fd: c_int,
    end: End,
    into: *mut sockaddr,
    room: socklen_t,
    bytes: *mut socklen_t,
) -> Result<(), Unknown> {
    if into.is_null() || bytes.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller says.
    let Some(socket) = (unsafe { TcpSocket::of(fd) }) else { return Ok(()) };
    let peer = match end {
        End::Own => None,
        // The kernel has none any more of a connection that was reset before it was accepted.
        // SAFETY: as the caller says; no more was written than there was room for.
        End::Peer => unsafe { address::read(into, room.min(*bytes)) },
    };
    let peer = peer.or_else(|| socket.peer());
    let names = socket.local().and_then(|local| names(local, peer));
    let told = match end {
        End::Own => names.map(|(own, _)| own),
        End::Peer => names.and_then(|(_, peer)| peer),
    };
    if let Some(told) = told {
        // SAFETY: as the caller says.
        unsafe { address::write(told, socket.is_v6, into, room, bytes) };
    } else if end == End::Peer && peer.is_some_and(|peer| is_launchers(peer.ip())) {
        return Err(Unknown);
    }
    Ok(())
}

/// A function that failed.
fn failed(errno: c_int) -> c_int {
    errno::set(errno);
    -1
}

/// The same of the peer of a socket that was accepted, which is closed if it is unknown.
///
/// # Safety
/// As of [`rename`]; nobody else has the descriptor.
unsafe fn rename_accepted(fd: c_int, into: *mut sockaddr, room: socklen_t, bytes: *mut socklen_t) -> c_int {
    // SAFETY: as the caller says.
    if unsafe { rename(fd, End::Peer, into, room, bytes) }.is_ok() {
        return fd;
    }
    // SAFETY: the program does not know it yet.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    failed(libc::ECONNABORTED)
}

/// The addresses that are meant by those that the kernel has.
fn names(local: SocketAddr, peer: Option<SocketAddr>) -> Option<(SocketAddr, Option<SocketAddr>)> {
    let (local, peer) = (canonical(local), peer.map(canonical));
    // Another peer on this host may be a program under the same launcher; one elsewhere is the kernel's.
    let is_here = |peer: SocketAddr| is_launchers(peer.ip()) || peer.ip() == local.ip();
    let is_here = peer.map_or(local.ip().is_loopback(), is_here);
    if !is_here {
        return None;
    }
    match ask(&Request::Names(local, peer))? {
        Answer::Names(local, peer) => Some((local, peer)),
        _ => None,
    }
}

/// As getsockname(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    into: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own arguments, and its place for a length.
    unsafe {
        let room = if bytes.is_null() { 0 } else { *bytes };
        let status =
            real!(c"getsockname": fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int, fd, into, bytes);
        if status == 0 {
            // That of its own is the kernel's where nobody says otherwise.
            rename(fd, End::Own, into, room, bytes).ok();
        }
        status
    }
}

/// As getpeername(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    into: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own arguments, and its place for a length.
    unsafe {
        let room = if bytes.is_null() { 0 } else { *bytes };
        let status =
            real!(c"getpeername": fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int, fd, into, bytes);
        if status == 0 && rename(fd, End::Peer, into, room, bytes).is_err() {
            return failed(libc::ENOBUFS);
        }
        status
    }
}

/// As accept(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept(
    fd: c_int,
    into: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own arguments, and its place for a length.
    unsafe {
        let room = if bytes.is_null() { 0 } else { *bytes };
        let accepted = real!(c"accept": fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int, fd, into, bytes);
        if accepted < 0 { accepted } else { rename_accepted(accepted, into, room, bytes) }
    }
}

/// As accept4(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    into: *mut sockaddr,
    bytes: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments, and its place for a length.
    unsafe {
        let room = if bytes.is_null() { 0 } else { *bytes };
        let accepted = real!(c"accept4": fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int, fd, into, bytes, flags);
        if accepted < 0 { accepted } else { rename_accepted(accepted, into, room, bytes) }
    }
}
