//! ioctl(2) on a device's file, and the sockets that would tell of the kernel's devices.

use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_int, c_ulong, c_void};
use pollux_uverbs::abi::frame::RDMA_VERBS_IOCTL;
use pollux_uverbs::{Channel, Errno};

use super::client::Client;
use super::errno::{fail, status};
use super::opened::Answers;
use super::{frame, host, netdev, opened, planned};
use pollux_preload::real;

/// As ioctl(2).
///
/// # Safety
/// As the C library's; what an RDMA program says of its memory must be true as it must be to a kernel.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if let Some((_, answers)) = opened::find(fd) {
        if request != c_ulong::from(RDMA_VERBS_IOCTL) {
            return fail(Errno::ENOTTY);
        }
        let address = argument.expose_provenance() as u64;
        let answer = || match answers {
            // SAFETY: as the caller says.
            Answers::Channel(channel) => unsafe { carry_out(&*channel, address) },
            Answers::Host(inode) => host::ioctl(inode, address),
        };
        return status(catch_unwind(AssertUnwindSafe(answer)).unwrap_or(Err(Errno::EIO)));
    }
    if let Some(answer) = netdev::request::answer(request, argument.expose_provenance() as u64) {
        return status(answer);
    }
    // SAFETY: the program's arguments.
    unsafe { real!(c"ioctl": fn(c_int, c_ulong, *mut c_void) -> c_int, fd, request, argument) }
}

/// Carries out an ioctl of this process's here.
///
/// # Safety
/// As [`frame::carry_out`].
unsafe fn carry_out(channel: &dyn Channel, address: u64) -> Result<(), Errno> {
    let mut made = Vec::new();
    // SAFETY: as the caller says.
    let done = unsafe { frame::carry_out(channel, Client::own(), address, &mut made) };
    for (place, fd) in made {
        Client::hand_over(place, fd)?;
    }
    done
}

/// As socket(2), but there is no RDMA netlink: a kernel that has it would say that it has no devices, and nobody would look further.
/// Source: rdma-core `libibverbs/init.c`, `ibverbs_get_device_list`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    const RDMA: c_int = 20;
    if domain == libc::AF_NETLINK && protocol == RDMA && planned::plan().is_some() {
        return fail(Errno::EPROTONOSUPPORT);
    }
    // SAFETY: the program's arguments.
    unsafe { real!(c"socket": fn(c_int, c_int, c_int) -> c_int, domain, kind, protocol) }
}
