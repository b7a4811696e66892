//! A request to the launcher and its answer.
//!
//! The system calls here leave `errno` alone: a function of the C library that succeeds does not change it.

use std::ffi::{CStr, CString};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{ipv6_v6only, socket_domain, socket_protocol, socket_type};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, connect,
    getpeername, getsockname, ipproto, recv, send, socket_with,
};

use crate::control::{Answer, BYTES, Request, VARIABLE};
use crate::loopback::{self, Network};

/// How long an answer may take: longer than the launcher tries to connect.
const PATIENCE: Duration = Duration::from_secs(10);

/// A TCP socket of a program that has a launcher.
pub(super) struct TcpSocket<'a> {
    fd: BorrowedFd<'a>,
    pub(super) is_v6: bool,
}

/// What the environment says of the launcher.
struct Told {
    place: CString,
    network: Option<Network>,
}

static TOLD: OnceLock<Told> = OnceLock::new();

/// Run when the library is loaded: a program may write over its environment, or change it while another thread reads it.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = read_environment;

extern "C" fn read_environment() {
    let Some(place) = std::env::var_os(VARIABLE).and_then(|path| CString::new(path.into_vec()).ok()) else {
        return;
    };
    let network = std::env::var_os(loopback::VARIABLE).and_then(|text| Network::read(&text));
    TOLD.set(Told { place, network }).ok();
}

/// Where the launcher is; none without one.
fn place() -> Option<&'static CStr> {
    TOLD.get().map(|told| told.place.as_c_str())
}

/// Whether an address is one that the launcher alone connects from, and listens at.
pub(super) fn is_launchers(ip: IpAddr) -> bool {
    TOLD.get().and_then(|told| told.network).is_some_and(|network| network.has(ip))
}

impl<'a> TcpSocket<'a> {
    /// The socket of a descriptor, if it is one of TCP and there is a launcher.
    ///
    /// # Safety
    /// The descriptor is not closed meanwhile, as the program owes to the function that it calls.
    pub(super) unsafe fn of(fd: libc::c_int) -> Option<Self> {
        place()?;
        if fd < 0 {
            return None;
        }
        // SAFETY: a number that the kernel looks up; it is not -1.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let domain = socket_domain(fd).ok()?;
        let is_v6 = domain == AddressFamily::INET6;
        let is_tcp = (is_v6 || domain == AddressFamily::INET)
            && socket_type(fd).ok()? == SocketType::STREAM
            && socket_protocol(fd).ok()? == Some(ipproto::TCP);
        is_tcp.then_some(Self { fd, is_v6 })
    }

    /// The address that the kernel has for it. `None`: it is not bound.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        ip(getsockname(self.fd).ok()?).filter(|address| address.port() != 0)
    }

    /// Whether it is one of IPv6 that takes connections of IPv4 as well.
    pub(super) fn takes_both(&self) -> bool {
        self.is_v6 && ipv6_v6only(self.fd).is_ok_and(|only| !only)
    }

    /// The address that the kernel has for its peer.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        ip(getpeername(self.fd).ok()??)
    }
}

fn ip(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}

/// A connection with the launcher, for the requests of one call.
pub(super) struct Launcher(OwnedFd);

impl Launcher {
    /// Finds it. `None`: there is none, or it is gone.
    pub(super) fn find() -> Option<Self> {
        let address = SocketAddrUnix::new(place()?).ok()?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => return Some(Self(socket)),
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Asks. `None`: it is gone, or does not answer in time.
    pub(super) fn ask(&self, request: &Request) -> Option<Answer> {
        loop {
            match send(&self.0, &request.encode(), SendFlags::NOSIGNAL) {
                Ok(BYTES) => break,
                Err(Errno::INTR) => {}
                _ => return None,
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.0.as_fd(), PollFlags::IN)], Some(&left)) {
                Ok(1..) => break,
                Err(Errno::INTR) => {}
                _ => return None,
            }
        }
        let mut answer = [0; BYTES + 1];
        let (_, bytes) = recv(&self.0, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
        Answer::decode(answer.get(..bytes)?).ok()
    }
}

/// One request to the launcher.
pub(super) fn ask(request: &Request) -> Option<Answer> {
    Launcher::find()?.ask(request)
}
