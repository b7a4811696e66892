//! What a program may ask of its devices beyond what a kernel answers: `include/mlx5_run.h`, which says what each function does.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use libc::{c_char, c_int, c_uint, c_void, size_t, ssize_t};
use pollux_mlx5_model::wire::{Cable, Sent, Wire};
use pollux_mlx5_model::{MTU_MAX, ModelError};
use pollux_uverbs::Errno;

use super::errno::{fail, status};
use super::{client, opened};

/// Ends of cables that the program has, by their numbers.
static ENDS: Mutex<Vec<Cable>> = Mutex::new(Vec::new());

/// Ethernet's header with two tags, and the longest packet.
const FRAME_MAX: usize = MTU_MAX as usize + 22;

/// -1 with what went wrong, and nothing that unwinds into C.
fn guarded<T: From<i8>>(asked: impl FnOnce() -> Result<T, Errno>) -> T {
    let answer = catch_unwind(AssertUnwindSafe(asked)).unwrap_or(Err(Errno(libc::EDEADLK)));
    answer.unwrap_or_else(|errno| {
        fail(errno);
        T::from(-1)
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_run_step() -> c_int {
    guarded(|| {
        if !opened::plan().is_some_and(|plan| plan.stepped) {
            return Err(Errno::EPERM);
        }
        let models = opened::all_made();
        let mut steps = 0_usize;
        // What one sends another receives.
        loop {
            let worked: usize = models.iter().map(|model| model.settle()).sum();
            if worked == 0 {
                return Ok(c_int::try_from(steps).unwrap_or(c_int::MAX));
            }
            steps += worked;
        }
    })
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
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Errno::EINVAL)?;
        let end = Cable::join(name).map_err(|why| match why {
            ModelError::CableTaken { .. } => Errno::EBUSY,
            _ => Errno::EINVAL,
        })?;
        let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
        ends.push(end);
        Ok(c_int::try_from(ends.len() - 1).unwrap_or(c_int::MAX))
    })
}

/// What an end does.
fn at_end<T>(end: c_int, act: impl FnOnce(&mut Cable) -> Result<T, Errno>) -> Result<T, Errno> {
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    let end = usize::try_from(end).ok().and_then(|end| ends.get_mut(end));
    act(end.ok_or(Errno::EBADF)?)
}

/// As the header says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_run_send(end: c_int, frame: *const c_void, bytes: size_t) -> c_int {
    guarded(|| {
        if !(1..=FRAME_MAX).contains(&bytes) {
            return Err(Errno::EINVAL);
        }
        let mut copy = vec![0; bytes];
        client::read(frame.expose_provenance() as u64, &mut copy)?;
        at_end(end, |cable| match cable.send(&copy) {
            Sent::Yes => Ok(0),
            Sent::Busy => Err(Errno::EAGAIN),
            Sent::Lost => Err(Errno(libc::ENETDOWN)),
        })
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_run_receive(end: c_int, room: *mut c_void, bytes: size_t) -> ssize_t {
    guarded(|| {
        let mut frame = vec![0; bytes.min(FRAME_MAX)];
        let length = at_end(end, |cable| cable.receive(&mut frame).ok_or(Errno::EAGAIN))?;
        let taken = &frame[..length.min(frame.len())];
        client::write(room.expose_provenance() as u64, taken)?;
        ssize_t::try_from(taken.len()).map_err(|_| Errno::EINVAL)
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_run_bus_bytes(device: c_uint, bytes: *mut u64) -> c_int {
    let told = || {
        let total = opened::made(device as usize).ok_or(Errno::ENODEV)?.ledger();
        let both = [total.bytes_to_device().to_ne_bytes(), total.bytes_from_device().to_ne_bytes()];
        client::write(bytes.expose_provenance() as u64, both.as_flattened())
    };
    status(told())
}
