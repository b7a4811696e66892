//! The devices of this process, and the files of theirs that it has open.
//!
//! A file is one end of a pair of sockets, so that it can be duplicated, handed to children and waited for as any descriptor; the other
//! end, which is kept here, tells when the last copy is closed. Which file a descriptor is of is told by its inode.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use crate::plan::{Plan, device_name};
use pollux_mlx5_model::Model;
use pollux_uverbs::{Channel, Errno};

use super::inode;

/// An open file of a device.
pub(crate) struct Opened {
    inode: u64,
    pub(crate) device: usize,
    pub(crate) channel: Arc<dyn Channel>,
    /// Whether this process had it open before a fork that made it.
    inherited: bool,
    other_end: OwnedFd,
}

/// A device of this process: its number, and the model of it.
type Device = (usize, Arc<Model>);

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());
static FILES: Mutex<Vec<Opened>> = Mutex::new(Vec::new());
/// How many files there are: most programs have none, and most calls are not about one.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static REGISTERED: Once = Once::new();

thread_local! {
    /// What the thread that forks holds meanwhile, so that both processes find it whole.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Devices and files, by the one thread that forks.
type Held = (MutexGuard<'static, Vec<Device>>, MutexGuard<'static, Vec<Opened>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the launcher said; nothing in a program that it did not start.
pub(crate) fn plan() -> Option<&'static Plan> {
    PLAN.get_or_init(Plan::of_environment).as_ref()
}

/// Whether there are any.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Opens the file of a device, and makes the device if it is the first.
pub(crate) fn open(plan: &Plan, number: usize, close_on_exec: bool) -> Result<RawFd, Errno> {
    REGISTERED.call_once(|| {
        // SAFETY: functions of this library, which is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            libc::atexit(at_exit);
        }
    });
    let model = device(plan, number)?;
    let (ours, theirs) = UnixStream::pair()?;
    let (ours, theirs) = (OwnedFd::from(ours), OwnedFd::from(theirs));
    let ours = high(ours.as_raw_fd())?;
    if !close_on_exec {
        // SAFETY: a descriptor that is ours.
        unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFD, 0) };
    }
    let inode = inode::of(theirs.as_raw_fd()).ok_or(Errno::EIO)?;
    let channel = model.open();
    let mut files = locked(&FILES);
    files.push(Opened { inode, device: number, channel, inherited: false, other_end: ours });
    COUNT.store(files.len(), Ordering::Release);
    Ok(std::os::fd::IntoRawFd::into_raw_fd(theirs))
}

/// The same descriptor where programs that count on small numbers are not disturbed.
pub(crate) fn high(fd: RawFd) -> Result<OwnedFd, Errno> {
    const FIRST: libc::c_int = 900;
    for first in [FIRST, 0] {
        // SAFETY: a number of a descriptor, which the kernel looks up.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, first) };
        if copy >= 0 {
            // SAFETY: a new descriptor, which nobody else knows.
            return Ok(unsafe { OwnedFd::from_raw_fd(copy) });
        }
    }
    Err(io::Error::last_os_error().into())
}

/// A device, which is made if it is not there yet.
pub(crate) fn device(plan: &Plan, number: usize) -> Result<Arc<Model>, Errno> {
    let mut devices = locked(&DEVICES);
    if let Some((_, model)) = devices.iter().find(|(device, _)| *device == number) {
        return Ok(Arc::clone(model));
    }
    let described = plan.devices.get(number).ok_or(Errno::ENODEV)?;
    let model = described.build(number, plan.stepped).map_err(|why| {
        eprintln!("mlx5-run: {}: {why}", device_name(number));
        Errno::EIO
    })?;
    let model = Arc::new(model);
    devices.push((number, Arc::clone(&model)));
    Ok(model)
}

/// A device that is there in this process already.
pub(crate) fn made(number: usize) -> Option<Arc<Model>> {
    locked(&DEVICES).iter().find(|(device, _)| *device == number).map(|(_, model)| Arc::clone(model))
}

/// All of them.
pub(crate) fn all_made() -> Vec<Arc<Model>> {
    locked(&DEVICES).iter().map(|(_, model)| Arc::clone(model)).collect()
}

/// Who answers a file's calls, if anybody does here.
pub(crate) type Answers = Result<Arc<dyn Channel>, Errno>;

/// The device whose file a descriptor is, and its channel unless the file came over a fork.
pub(crate) fn find(fd: RawFd) -> Option<(usize, Answers)> {
    if !any() {
        return None;
    }
    let inode = inode::of(fd)?;
    let files = locked(&FILES);
    let file = files.iter().find(|file| file.inode == inode)?;
    let channel = if file.inherited { Err(Errno::EIO) } else { Ok(Arc::clone(&file.channel)) };
    Some((file.device, channel))
}

/// Ends the files whose last descriptor is closed.
pub(crate) fn end_closed() {
    let mut ended = Vec::new();
    let mut files = locked(&FILES);
    let mut index = 0;
    while index < files.len() {
        if is_closed(&files[index].other_end) {
            ended.push(files.swap_remove(index));
        } else {
            index += 1;
        }
    }
    COUNT.store(files.len(), Ordering::Release);
    drop(files);
    for file in ended {
        if file.inherited {
            // What it made is in another process.
            std::mem::forget(file);
        }
    }
}

fn is_closed(end: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is ours.
    let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
    found == 1 && poll.revents & libc::POLLHUP != 0
}

extern "C" fn before_fork() {
    HELD.with_borrow_mut(|held| *held = Some((locked(&DEVICES), locked(&FILES))));
}

extern "C" fn in_parent() {
    drop(HELD.take());
}

/// In the child there are no threads but the one that forked: its parent's devices are not stepped here, and what was made on them is
/// not the child's to end.
extern "C" fn in_child() {
    if let Some((mut devices, mut files)) = HELD.take() {
        files.iter_mut().for_each(|file| file.inherited = true);
        devices.drain(..).for_each(std::mem::forget);
    }
}

/// Tells what the program did that a real device would not have borne, or not always.
extern "C" fn at_exit() {
    for (number, model) in locked(&DEVICES).iter() {
        let (first, count) = model.device().violations();
        for violation in first.iter().take(3) {
            eprintln!("mlx5-run: {}: the program broke a rule: {violation}", device_name(*number));
        }
        if count > 3 {
            eprintln!("mlx5-run: {}: {count} broken rules in all", device_name(*number));
        }
    }
}
