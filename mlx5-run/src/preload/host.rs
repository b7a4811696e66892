//! The process that has the devices of this one, as this one asks it: the parent of a forked child, or a daemon.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void, off_t};
use pollux_uverbs::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::attach::Refusal;
use super::client::{self, Client};
use super::descriptor::Kept;
use super::letter::{self, Letter, NUMBERS, ask};
use super::{attach, planned};
use pollux_preload::real;

/// Most bytes of what is answered in this process's memory, other than by ioctl.
const ROOM: usize = 1 << 16;

/// How this process and those that it forks stand to the devices.
pub(super) enum Role {
    /// No device was opened.
    None,
    /// The devices are in this process. Children ask by `ask`; who answers has `asked` until it starts.
    Host { ask: Kept, asked: Option<Kept> },
    /// They are in another process; `connection` is this process's own to it.
    Client { way: Way, connection: Option<Kept> },
}

/// How a process comes to a connection.
pub(super) enum Way {
    /// By a socket that the parent answers, or one of its parents.
    Parent(Kept),
    /// By the path of a daemon's socket.
    Daemon(PathBuf),
}

static ROLE: Mutex<Role> = Mutex::new(Role::None);

pub(super) fn lock() -> MutexGuard<'static, Role> {
    let mut role = ROLE.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*role, Role::None)
        && let Some(path) = planned::plan().and_then(|plan| plan.daemon.as_ref())
    {
        *role = Role::Client { way: Way::Daemon(path.clone()), connection: None };
    }
    role
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
                *self = Self::Client { way: Way::Parent(ask), connection: None };
                asked
            }
            Self::Client { way, connection } => {
                *self = Self::Client { way, connection: None };
                connection
            }
        }
    }

    /// Asks the host; none where the devices are this process's own.
    fn ask(&mut self, numbers: [u64; NUMBERS]) -> Option<Result<Letter, Errno>> {
        let Self::Client { way, connection } = self else { return None };
        Some(exchange(way, connection, numbers))
    }
}

/// Makes a connection, by which the host answers.
fn connect(way: &Way) -> Result<Kept, Errno> {
    match way {
        Way::Parent(ask) => {
            let (ours, theirs) = pair()?;
            let sent = letter::send(ask, [ask::CONNECT, 0, 0, 0, 0, 0], &[theirs.as_fd()]);
            sent.map_err(|_| Errno::EIO)?;
            drop(theirs);
            let (host, _) = client::peer(ask).ok_or(Errno::EIO)?;
            match attach::greet(&ours, host) {
                Ok(()) => {}
                // It has ended.
                Err(Refusal::Silent) => return Err(Errno::EIO),
                Err(refusal) => return Err(refusal.told("its parent")),
            }
            Ok(ours)
        }
        Way::Daemon(path) => attach::connected(path),
    }
}

fn exchange(way: &Way, connection: &mut Option<Kept>, numbers: [u64; NUMBERS]) -> Result<Letter, Errno> {
    let socket = match connection {
        Some(socket) => socket,
        None => connection.insert(connect(way)?),
    };
    letter::answered(&*socket, numbers)
}

/// Asks the host for something that is answered in numbers; none where the devices are this process's own.
pub(super) fn ask(kind: u64, of: &[u64]) -> Option<Result<[u64; NUMBERS], Errno>> {
    let mut numbers = [0; NUMBERS];
    numbers[0] = kind;
    numbers[1..=of.len()].copy_from_slice(of);
    Some(lock().ask(numbers)?.map(|answer| answer.numbers))
}

/// Asks for something that is answered in memory, by numbers that the room follows.
pub(super) fn ask_for_bytes(kind: u64, of: &[u64]) -> Option<Result<Vec<u8>, Errno>> {
    if !is_elsewhere() {
        return None;
    }
    let mut room = vec![0_u8; ROOM];
    let place = [room.as_mut_ptr().expose_provenance() as u64, ROOM as u64];
    let answer = ask(kind, &[of, &place].concat())?;
    Some(answer.and_then(|numbers| {
        let bytes = usize::try_from(numbers[1]).ok().filter(|bytes| *bytes <= ROOM).ok_or(Errno::EIO)?;
        // Written by the host: not what the compiler saw here.
        let mut told = vec![0; bytes];
        client::read(room.as_ptr().expose_provenance() as u64, &mut told)?;
        Ok(told)
    }))
}

/// Whether the devices are in another process.
pub(super) fn is_elsewhere() -> bool {
    matches!(*lock(), Role::Client { .. })
}

/// Has the host open a device: the file, what tells that it is closed, and its inode. None where the devices are this process's own, or
/// its parent is gone: then they will be.
pub(super) fn open(device: usize) -> Option<Result<(OwnedFd, Kept, u64), Errno>> {
    let mut role = lock();
    let answer = role.ask([ask::OPEN, device as u64, 0, 0, 0, 0])?;
    if matches!(answer, Err(Errno::EIO)) && matches!(*role, Role::Client { way: Way::Parent(_), .. }) {
        *role = Role::None;
        return None;
    }
    Some(answer.and_then(|mut answer| {
        let (Some(other_end), Some(file)) = (answer.descriptors.pop(), answer.descriptors.pop()) else {
            return Err(Errno::EIO);
        };
        Ok((file, Kept::new(other_end)?, answer.numbers[1]))
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
