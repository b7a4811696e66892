//! What a program may ask of its devices beyond what a kernel answers: `include/mlx5_run.h`, which says what each function does.
//!
//! It is carried out in the process that has the devices, as the calls of their files are.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_char, c_int, c_uint, c_void, size_t, ssize_t};
use pollux_mlx5_model::wire::{Cable, Sent, Wire};
use pollux_mlx5_model::{MTU_MAX, ModelError};
use pollux_uverbs::Errno;

use super::client::{self, Client};
use super::errno::{fail, status};
use super::letter::ask;
use super::{host, opened, planned};

/// Ends of cables, and who took each, by their numbers. Those of processes that have ended are no more.
static ENDS: Mutex<Vec<Option<(Client, Cable)>>> = Mutex::new(Vec::new());

/// Ethernet's header with two tags, and the longest packet.
const FRAME_MAX: usize = MTU_MAX as usize + 22;
/// Longest name of a cable that is looked at.
const NAME_MAX: usize = 4096;

fn ends() -> MutexGuard<'static, Vec<Option<(Client, Cable)>>> {
    ENDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// -1 with what went wrong, and nothing that unwinds into C.
fn guarded<T: From<i8>>(asked: impl FnOnce() -> Result<T, Errno>) -> T {
    let answer = catch_unwind(AssertUnwindSafe(asked)).unwrap_or(Err(Errno(libc::EDEADLK)));
    answer.unwrap_or_else(|errno| {
        fail(errno);
        T::from(-1)
    })
}

/// What the host answers, by a number of its own; here if it is this process.
fn asked(kind: u64, of: &[u64], here: impl FnOnce() -> Result<u64, Errno>) -> Result<u64, Errno> {
    host::ask(kind, of).map_or_else(here, |answer| answer.map(|numbers| numbers[1]))
}

/// As the header says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_run_step() -> c_int {
    guarded(|| asked(ask::STEP, &[], step).map(|steps| c_int::try_from(steps).unwrap_or(c_int::MAX)))
}

/// Lets the devices of this process work: how many steps had something to do.
pub(super) fn step() -> Result<u64, Errno> {
    if !planned::plan().is_some_and(|plan| plan.stepped) {
        return Err(Errno::EPERM);
    }
    let settle = || {
        let models = opened::all_made();
        let mut steps = 0_u64;
        // What one sends another receives.
        loop {
            let worked: usize = models.iter().map(|model| model.settle()).sum();
            if worked == 0 {
                return steps;
            }
            steps += worked as u64;
        }
    };
    // Work without end.
    catch_unwind(AssertUnwindSafe(settle)).map_err(|_| Errno(libc::EDEADLK))
}

/// As the header says.
///
/// # Safety
/// The name ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_run_plug(name: *const c_char) -> c_int {
    guarded(|| {
        if name.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as the caller says.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let (at, bytes) = (name.as_ptr().expose_provenance() as u64, name.len() as u64);
        let end = asked(ask::PLUG, &[at, bytes], || plug(Client::own(), at, bytes))?;
        Ok(c_int::try_from(end).unwrap_or(c_int::MAX))
    })
}

/// Takes an end of the cable whose name is at an address of the client's: the end's number.
pub(super) fn plug(client: Client, at: u64, bytes: u64) -> Result<u64, Errno> {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= NAME_MAX).ok_or(Errno::EINVAL)?;
    let mut name = vec![0; bytes];
    client.read(at, &mut name)?;
    let name = std::str::from_utf8(&name).map_err(|_| Errno::EINVAL)?;
    let end = Cable::join(name).map_err(|why| match why {
        ModelError::CableTaken { .. } => Errno::EBUSY,
        _ => Errno::EINVAL,
    })?;
    let mut ends = ends();
    let free = ends.iter().position(Option::is_none).unwrap_or(ends.len());
    if free == ends.len() {
        ends.push(None);
    }
    ends[free] = Some((client, end));
    Ok(free as u64)
}

/// A process has ended: the ends that it took are free.
pub(super) fn forget_process(client: Client) {
    for end in ends().iter_mut().filter(|end| end.as_ref().is_some_and(|(owner, _)| *owner == client)) {
        *end = None;
    }
}

/// What an end does.
fn at_end<T>(end: u64, act: impl FnOnce(&mut Cable) -> Result<T, Errno>) -> Result<T, Errno> {
    let mut ends = ends();
    let end = usize::try_from(end).ok().and_then(|end| ends.get_mut(end)?.as_mut());
    act(&mut end.ok_or(Errno::EBADF)?.1)
}

/// As the header says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_run_send(end: c_int, frame: *const c_void, bytes: size_t) -> c_int {
    guarded(|| {
        let end = u64::try_from(end).map_err(|_| Errno::EBADF)?;
        let (at, bytes) = (frame.expose_provenance() as u64, bytes as u64);
        asked(ask::SEND, &[end, at, bytes], || send(Client::own(), end, at, bytes)).map(|_| 0)
    })
}

/// Sends a frame that is at an address of the client's.
pub(super) fn send(client: Client, end: u64, at: u64, bytes: u64) -> Result<u64, Errno> {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| (1..=FRAME_MAX).contains(bytes));
    let mut copy = vec![0; bytes.ok_or(Errno::EINVAL)?];
    client.read(at, &mut copy)?;
    at_end(end, |cable| match cable.send(&copy) {
        Sent::Yes => Ok(0),
        Sent::Busy => Err(Errno::EAGAIN),
        Sent::Lost => Err(Errno(libc::ENETDOWN)),
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_run_receive(end: c_int, room: *mut c_void, bytes: size_t) -> ssize_t {
    guarded(|| {
        let end = u64::try_from(end).map_err(|_| Errno::EBADF)?;
        let (at, bytes) = (room.expose_provenance() as u64, bytes as u64);
        let taken = asked(ask::RECEIVE, &[end, at, bytes], || receive(Client::own(), end, at, bytes))?;
        ssize_t::try_from(taken).map_err(|_| Errno::EINVAL)
    })
}

/// Receives a frame into room at an address of the client's: how many bytes.
pub(super) fn receive(client: Client, end: u64, at: u64, bytes: u64) -> Result<u64, Errno> {
    let mut frame = vec![0; usize::try_from(bytes).map_or(FRAME_MAX, |bytes| bytes.min(FRAME_MAX))];
    let length = at_end(end, |cable| cable.receive(&mut frame).ok_or(Errno::EAGAIN))?;
    let taken = &frame[..length.min(frame.len())];
    client.write(at, taken)?;
    Ok(taken.len() as u64)
}

/// As the header says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_run_bus_bytes(device: c_uint, bytes: *mut u64) -> c_int {
    let told = || {
        let both = match host::ask(ask::BUS, &[device.into()]) {
            Some(answer) => answer.map(|numbers| [numbers[1], numbers[2]])?,
            None => bus(device as usize)?,
        };
        client::write(bytes.expose_provenance() as u64, both.map(u64::to_ne_bytes).as_flattened())
    };
    status(told())
}

/// Bytes on the bus of a device of this process: to the device, and from it.
pub(super) fn bus(device: usize) -> Result<[u64; 2], Errno> {
    let total = opened::made(device).ok_or(Errno::ENODEV)?.ledger();
    Ok([total.bytes_to_device(), total.bytes_from_device()])
}
