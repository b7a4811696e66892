//! The few system calls that the standard library does not have, with their types.
#![expect(unsafe_code, reason = "ioctl, setsockopt and getsockopt take untyped pointers")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::interface::{BLOCKS_MAX, STATISTICS_MAX};

/// Plain numbers that the kernel may read and write as it likes: any bytes are a value.
///
/// # Safety
/// No padding matters, no pointer that the kernel follows, no invalid bit pattern.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers have no padding and no invalid values.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: an array of integers.
unsafe impl<const N: usize> Plain for [u32; N] {}
// SAFETY: integers and an integer array only.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: integers; the address in it is one of memory that the kernel pins, for which `xdp::XdpSocket::open` answers.
unsafe impl Plain for libc::xdp_umem_reg {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: one integer.
unsafe impl Plain for libc::xdp_options {}

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor returned is new and owned by nobody else.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol))?)) }
}

pub(crate) fn set_option<T: Plain>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes at `value`, which is a live `T`; `Plain` holds nothing it would follow.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), bytes) })?;
    Ok(())
}

pub(crate) fn get_option<T: Plain>(fd: BorrowedFd<'_>, level: i32, name: i32, mut value: T) -> io::Result<T> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes at `value`; any bytes are a valid `Plain`.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(&mut value).cast(), &mut bytes)
    })?;
    Ok(value)
}

/// Puts a filter of one instruction on a socket, "take nothing", or removes it.
pub(crate) fn refuse_all(fd: BorrowedFd<'_>, refuse: bool) -> io::Result<()> {
    if !refuse {
        return match set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        };
    }
    // BPF_RET | BPF_K with 0: no byte of the frame is taken.
    let mut program = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 }];
    let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    let bytes = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: `filter` points at `program`, one instruction, and both outlive the call; the kernel only reads them.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&filter).cast(),
            bytes,
        )
    })?;
    Ok(())
}

/// `ioctl` whose argument is a number passed by value, or none.
pub(crate) fn ioctl_value(fd: BorrowedFd<'_>, request: u64, value: u64) -> io::Result<i32> {
    debug_assert!(VALUE_REQUESTS.contains(&request), "{request:#x} takes a pointer");
    // SAFETY: the requests of `VALUE_REQUESTS` take no pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, value) })
}
const VALUE_REQUESTS: [u64; 2] = [libc::TUNSETOFFLOAD, libc::TUNGETDEVNETNS];

/// `ioctl` whose argument is an `int`.
pub(crate) fn ioctl_int(fd: BorrowedFd<'_>, request: u64, value: &mut i32) -> io::Result<i32> {
    debug_assert!(INT_REQUESTS.contains(&request), "{request:#x} does not take an int");
    // SAFETY: the requests of `INT_REQUESTS` read or write one `int` at the pointer, which is live.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(value)) })
}
const INT_REQUESTS: [u64; 2] = [libc::TUNSETVNETHDRSZ, libc::TUNSETCARRIER];

/// What an interface request carries beside the name.
#[derive(Clone, Copy)]
pub(crate) enum Carried {
    Nothing,
    Number(i32),
    Flags(i16),
    Address([u8; 6]),
}

/// `struct ifreq`, with its union read and written safely.
#[derive(Clone, Copy)]
pub(crate) struct InterfaceRequest(libc::ifreq);

impl InterfaceRequest {
    /// A name that does not fit gives none.
    pub(crate) fn new(name: &str, carried: Carried) -> Option<Self> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.bytes().any(|byte| byte == 0) {
            return None;
        }
        // SAFETY: `ifreq` is integers and a pointer that is never followed; all zero is a value of it.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        match carried {
            Carried::Nothing => {}
            Carried::Number(number) => request.ifr_ifru.ifru_ifindex = number,
            Carried::Flags(flags) => request.ifr_ifru.ifru_flags = flags,
            Carried::Address(address) => {
                let mut data = [0; 14];
                for (to, from) in data.iter_mut().zip(address) {
                    *to = from as libc::c_char;
                }
                request.ifr_ifru.ifru_hwaddr =
                    libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: data };
            }
        }
        Some(Self(request))
    }

    /// An empty name: for requests that answer with the name.
    pub(crate) fn unnamed(carried: Carried) -> Self {
        let mut request = Self::new("x", carried).expect("a name of one letter fits");
        request.0.ifr_name = [0; libc::IFNAMSIZ];
        request
    }

    /// Any request of the `SIOC?IF*` and `TUN?ETIFF` families: each reads and writes one `ifreq`.
    pub(crate) fn call(&mut self, fd: BorrowedFd<'_>, request: u64) -> io::Result<()> {
        debug_assert!(
            (0x8910..0x8970).contains(&request) || request == libc::TUNSETIFF || request == libc::TUNGETIFF,
            "{request:#x} does not take an ifreq"
        );
        // SAFETY: these requests read and write one `ifreq` at the pointer. None of them follows a pointer in its union
        // (SIOCGIFCONF and SIOCETHTOOL, which do, are outside what the callers use).
        check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &mut self.0) })?;
        Ok(())
    }

    pub(crate) fn name(&self) -> String {
        self.0.ifr_name.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte as u8)).collect()
    }

    pub(crate) fn number(&self) -> i32 {
        // SAFETY: the union was zeroed or written by the kernel; any bytes are an integer.
        unsafe { self.0.ifr_ifru.ifru_ifindex }
    }

    pub(crate) fn flags(&self) -> i16 {
        // SAFETY: as in `number`.
        unsafe { self.0.ifr_ifru.ifru_flags }
    }

    pub(crate) fn address(&self) -> (u16, [u8; 6]) {
        // SAFETY: as in `number`.
        let address = unsafe { self.0.ifr_ifru.ifru_hwaddr };
        let mut bytes = [0; 6];
        for (to, from) in bytes.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        (address.sa_family, bytes)
    }
}

/// `SIOCETHTOOL`: `words` is the structure of the command in its first word, as long as that command may write.
pub(crate) fn ethtool(fd: BorrowedFd<'_>, name: &str, words: &mut [u32]) -> io::Result<()> {
    // include/uapi/linux/ethtool.h: ETHTOOL_GLINKSETTINGS (48 bytes and three masks of up to 127 words), ETHTOOL_GFECPARAM
    // and ETHTOOL_SFECPARAM (16 bytes), ETHTOOL_GSSET_INFO (16 bytes and a word a set), ETHTOOL_GSTRINGS (12 bytes and 32 a
    // name) and ETHTOOL_GSTATS (8 bytes and 8 a value), of which the kernel writes as many as there are; ETHTOOL_GFEATURES (8 bytes
    // and 16 a block), of which it writes no more blocks than the second word asks for.
    let needed = match words.first() {
        Some(0x4c) => 12 + 3 * 127,
        Some(0x50 | 0x51) => 4,
        Some(0x37) => 5,
        Some(0x1b) => 3 + 8 * STATISTICS_MAX,
        Some(0x1d) => 2 + 2 * STATISTICS_MAX,
        Some(0x3a) => 2 + 4 * words.get(1).map_or(BLOCKS_MAX, |blocks| (*blocks as usize).max(BLOCKS_MAX)),
        _ => usize::MAX,
    };
    if words.len() < needed {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut request = InterfaceRequest::new(name, Carried::Nothing).ok_or(io::ErrorKind::InvalidInput)?;
    request.0.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the kernel reads and writes one `ifreq`, and behind its pointer no more than the command's structure, for which
    // `words` is long enough (checked above) and outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request.0) })?;
    Ok(())
}

/// Enters the network namespace behind a descriptor, with the calling thread alone.
pub(crate) fn enter_network_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers; only the calling thread changes.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
    Ok(())
}

/// Sleeps until a descriptor is readable or has ended, at most `timeout`.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let mut wanted = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one `pollfd`, which is live and borrowed mutably for the call.
    match check(unsafe { libc::poll(&mut wanted, 1, millis) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Takes over a descriptor that a call has just returned.
pub(crate) fn own(fd: i32) -> OwnedFd {
    // SAFETY: callers pass what the kernel has just returned to them, owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
