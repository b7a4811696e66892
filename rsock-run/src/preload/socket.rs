//! Functions by which a program says where a socket stands and whom it is for.

use std::net::SocketAddr;

use libc::{c_int, sockaddr, socklen_t};

use super::address::{self, Raw};
use super::ask::{Launcher, TcpSocket, ask};
use crate::control::{Answer, Request, canonical};
use pollux_preload::{errno, real};

/// # Safety
/// As bind(2).
unsafe fn real_bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: as the caller says.
    unsafe { real!(c"bind": fn(c_int, *const sockaddr, socklen_t) -> c_int, fd, address, bytes) }
}

/// # Safety
/// As connect(2).
unsafe fn real_connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: as the caller says.
    unsafe { real!(c"connect": fn(c_int, *const sockaddr, socklen_t) -> c_int, fd, address, bytes) }
}

/// As bind(2). An address of an RDMA device that the kernel does not have is bound to in the launcher, and the socket to one of loopback.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    let before = errno::get();
    // SAFETY: the program's own arguments.
    let status = unsafe { real_bind(fd, address, bytes) };
    let why = errno::get();
    if status == 0 {
        // SAFETY: the program's descriptor, during its call.
        let local = unsafe { TcpSocket::of(fd) }.and_then(|socket| socket.local()).map(canonical);
        // What the launcher knows of that address is of a socket before this one.
        if let Some(local) = local.filter(|local| local.ip().is_loopback()) {
            ask(&Request::Bind(local));
        }
        return status;
    }
    if why != libc::EADDRNOTAVAIL {
        return status;
    }
    // SAFETY: the program's own arguments, which the kernel has read.
    let Some(meant) = (unsafe { address::read(address, bytes) }) else { return status };
    // SAFETY: the program's descriptor, during its call.
    let Some(socket) = (unsafe { TcpSocket::of(fd) }) else { return status };
    let stand = || -> Option<c_int> {
        let launcher = Launcher::find()?;
        let Answer::Stand(stand) = launcher.ask(&Request::Bind(canonical(meant)))? else { return None };
        let (raw, bytes) = Raw::new(stand, socket.is_v6)?;
        // SAFETY: an address of ours, with its length.
        let status = unsafe { real_bind(fd, raw.as_ptr(), bytes) };
        if status == 0 {
            let local = canonical(socket.local()?);
            let meant = SocketAddr::new(meant.ip().to_canonical(), local.port());
            launcher.ask(&Request::Bound(local, meant));
            errno::set(before);
        }
        Some(status)
    };
    stand().unwrap_or_else(|| {
        errno::set(why);
        status
    })
}

/// As listen(2). The launcher listens for the socket by RDMA.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the program's own arguments; the descriptor is its, during its call.
    let (status, socket) = unsafe {
        let status = real!(c"listen": fn(c_int, c_int) -> c_int, fd, backlog);
        (status, if status == 0 { TcpSocket::of(fd) } else { None })
    };
    if let Some(socket) = socket
        && let Some(local) = socket.local()
    {
        ask(&Request::Listen(canonical(local), local.ip().is_unspecified() && socket.takes_both()));
    }
    status
}

/// Whether a socket has no connection and none under way: anything else is the kernel's to say.
fn is_idle(fd: c_int) -> bool {
    /// `TCP_CLOSE`. Source: Linux `include/net/tcp_states.h`.
    const CLOSED: u8 = 7;
    let (before, mut state, mut bytes) = (errno::get(), 0_u8, 1);
    // SAFETY: room for one byte, the first of the answer, as it is said.
    let status = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut bytes)
    };
    errno::set(before);
    status == 0 && state == CLOSED
}

/// As connect(2). The launcher connects by RDMA, and the socket to the launcher; where that cannot be, the kernel connects the socket.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    bytes: socklen_t,
) -> c_int {
    // SAFETY: the program's own arguments.
    let by_kernel = || unsafe { real_connect(fd, address, bytes) };
    // SAFETY: the program's descriptor, during its call.
    let Some(socket) = (unsafe { TcpSocket::of(fd) }) else { return by_kernel() };
    // SAFETY: the program's own arguments.
    let peer = unsafe { address::read(address, bytes) };
    // An address of another family is an error, which the kernel knows.
    let Some(peer) = peer.filter(|peer| peer.is_ipv6() == socket.is_v6).map(canonical) else {
        return by_kernel();
    };
    if peer.ip().is_loopback() || peer.ip().is_unspecified() || peer.ip().is_multicast() || !is_idle(fd) {
        return by_kernel();
    }
    let Some(launcher) = Launcher::find() else { return by_kernel() };
    let stand = match launcher.ask(&Request::Connect(socket.local().map(canonical), peer)) {
        Some(Answer::Stand(stand)) => stand,
        Some(Answer::Refused(errno)) => {
            errno::set(errno);
            return -1;
        }
        _ => return by_kernel(),
    };
    let Some((raw, bytes)) = Raw::new(stand, socket.is_v6) else { return by_kernel() };
    // SAFETY: an address of ours, with its length.
    let status = unsafe { real_connect(fd, raw.as_ptr(), bytes) };
    let is_begun = status == 0 || matches!(errno::get(), libc::EINPROGRESS | libc::EINTR);
    if is_begun && let Some(local) = socket.local() {
        launcher.ask(&Request::Connected(canonical(local)));
    }
    status
}
