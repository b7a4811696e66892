//! The process that has the devices of a forked child, as the child asks it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void, off_t};
use pollux_uverbs::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt::socket_peercred};

use super::client::Client;
use super::descriptor::Kept;
use super::letter::{self, Letter, NUMBERS, ask};
use super::real::real;

/// How this process and those that it forks stand to the devices.
pub(super) enum Role {
    /// No device was opened.
    None,
    /// The devices are in this process. Children ask by `ask`; who answers has `asked` until it starts.
    Host { ask: Kept, asked: Option<Kept> },
    /// They are in the process that answers; the second is this process's own way to it.
    Child { ask: Kept, connection: Option<Kept> },
}

static ROLE: Mutex<Role> = Mutex::new(Role::None);

pub(super) fn lock() -> MutexGuard<'static, Role> {
    ROLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pair() -> Result<(Kept, Kept), Errno> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (one, two) = pair.map_err(|error| Errno(error.raw_os_error()))?;
    Ok((Kept::new(one)?, Kept::new(two)?))
}

impl Role {
    /// Makes this process the host of its devices, unless it or another one is.
    pub(super) fn settle(&mut self) -> Result<(), Errno> {
        if matches!(self, Self::None) {
            let (ask, asked) = pair()?;
            *self = Self::Host { ask, asked: Some(asked) };
        }
        Ok(())
    }

    /// After a fork, in the parent. The answer is by what children ask, unless somebody answers that already.
    pub(super) fn forked(&mut self) -> Option<Kept> {
        let Self::Host { ask, asked } = self else { return None };
        if asked.is_none() {
            // There are other files to wait for, perhaps.
            let _ended = letter::send(ask, [ask::LOOK; NUMBERS], &[]);
        }
        asked.take()
    }

    /// After a fork, in the child. The answer is what it closes.
    pub(super) fn inherit(&mut self) -> Option<Kept> {
        match std::mem::replace(self, Self::None) {
            Self::None => None,
            Self::Host { ask, asked } => {
                *self = Self::Child { ask, connection: None };
                asked
            }
            Self::Child { ask, connection } => {
                *self = Self::Child { ask, connection: None };
                connection
            }
        }
    }

    /// Asks the host; none where the devices are this process's own.
    fn ask(&mut self, numbers: [u64; NUMBERS]) -> Option<Result<Letter, Errno>> {
        let Self::Child { ask, connection } = self else { return None };
        Some(exchange(ask, connection, numbers))
    }
}

fn exchange(ask: &Kept, connection: &mut Option<Kept>, numbers: [u64; NUMBERS]) -> Result<Letter, Errno> {
    let socket = match connection {
        Some(socket) => socket,
        None => {
            let (ours, theirs) = pair()?;
            if let Ok(host) = socket_peercred(ask) {
                // Where processes may look only into their children's memory, a child whose parent has gone lets its host. Source: Linux
                // `Documentation/admin-guide/LSM/Yama.rst`; refused where that is not there.
                // SAFETY: numbers alone.
                unsafe { libc::prctl(libc::PR_SET_PTRACER, host.pid.as_raw_pid(), 0, 0, 0) };
            }
            letter::send(ask, [ask::CONNECT, 0, 0, 0, 0, 0], &[theirs.as_fd()])?;
            connection.insert(ours)
        }
    };
    letter::send(&*socket, numbers, &[])?;
    let answer = letter::receive(&*socket).ok_or(Errno::EIO)?;
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

/// Has the host open a device: the file, and its inode. None where the devices are this process's own, or the host is gone: then they
/// will be.
pub(super) fn open(device: usize) -> Option<Result<(OwnedFd, u64), Errno>> {
    let mut role = lock();
    let answer = role.ask([ask::OPEN, device as u64, 0, 0, 0, 0])?;
    if matches!(answer, Err(Errno::EIO | Errno(libc::EPIPE | libc::ECONNRESET))) {
        *role = Role::None;
        return None;
    }
    Some(answer.and_then(|mut answer| {
        let file = answer.descriptors.pop().ok_or(Errno::EIO)?;
        Ok((file, answer.numbers[1]))
    }))
}

/// An ioctl whose frame is at an address of this process.
pub(super) fn ioctl(inode: u64, address: u64) -> Result<(), Errno> {
    let answer = lock().ask([ask::IOCTL, inode, address, 0, 0, 0]).unwrap_or(Err(Errno::EIO))?;
    for (fd, place) in answer.descriptors.into_iter().zip(&answer.numbers[2..]) {
        Client::hand_over(*place, fd)?;
    }
    Ok(())
}

/// Pages of a device's, which this process maps as it asks.
pub(super) fn map(
    inode: u64,
    hint: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    offset: u64,
) -> Result<*mut c_void, Errno> {
    let numbers = [ask::MAP, inode, offset, bytes as u64, rights.cast_unsigned().into(), 0];
    let answer = lock().ask(numbers).unwrap_or(Err(Errno::EIO))?;
    let file: &OwnedFd = answer.descriptors.first().ok_or(Errno::EIO)?;
    let (file, offset): (RawFd, off_t) = (file.as_raw_fd(), answer.numbers[1].cast_signed());
    // SAFETY: as the program asked; the file is memory of the device's.
    let base = unsafe {
        real!(c"mmap": fn(*mut c_void, usize, c_int, c_int, c_int, off_t) -> *mut c_void, hint, bytes, rights, flags, file, offset)
    };
    if base == libc::MAP_FAILED { Err(std::io::Error::last_os_error().into()) } else { Ok(base) }
}
