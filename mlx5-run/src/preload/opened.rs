//! The devices of this process, and the files of theirs that it has open.
//!
//! A file is one end of a pair of sockets, so that it can be duplicated, handed to children and waited for as any descriptor; the other
//! end, which is kept here, tells when the last copy is closed, in whichever process. Which file a descriptor is of is told by its inode.
//!
//! Files of devices that another process has are answered there ([`host`]): those of a forked child by its parent, and all files of a
//! program that is attached to a daemon.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use crate::plan::{Plan, Summary, device_name};
use pollux_eal::with_causes;
use pollux_mlx5_model::Model;
use pollux_uverbs::{Channel, Errno};

use super::attach;
use super::descriptor::{self, Kept};
use super::host::{self, Role};
use super::inode;
use super::planned;
use super::summary;
use super::trace;

/// An open file of a device.
pub(crate) struct Opened {
    inode: u64,
    pub(crate) device: usize,
    behind: Behind,
    other_end: Arc<Kept>,
}

/// Who answers a file's calls.
enum Behind {
    /// A device of this process's.
    Own(Arc<dyn Channel>),
    /// The process that has the device.
    Host,
}

/// A device of this process: its number, and the model of it.
type Device = (usize, Arc<Model>);

static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());
static FILES: Mutex<Vec<Opened>> = Mutex::new(Vec::new());
/// How many files there are: most programs have none, and most calls are not about one.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static REGISTERED: Once = Once::new();

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there are any.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Opens the file of a device, and makes the device if it is the first.
pub(crate) fn open(plan: &Plan, number: usize, close_on_exec: bool) -> Result<RawFd, Errno> {
    tell_at_exit();
    attach::at_daemons_end(still_open);
    let (file, inode) = match host::open(number) {
        Some(opened) => {
            let (file, other_end, inode) = opened?;
            add(Opened { inode, device: number, behind: Behind::Host, other_end: Arc::new(other_end) });
            (file, inode)
        }
        None => {
            host::lock().settle()?;
            let made = make(plan, number)?;
            (made.file, made.inode)
        }
    };
    debug_assert_eq!(inode::of(file.as_raw_fd()), Some(inode), "the file that was made");
    if !close_on_exec {
        // SAFETY: a descriptor that is ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    }
    Ok(file.into_raw_fd())
}

/// From now on what the devices saw is told at the program's end.
pub(super) fn tell_at_exit() {
    REGISTERED.call_once(|| {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe {
            libc::atexit(at_exit);
        }
    });
}

/// A file that was made.
pub(super) struct Made {
    pub(super) file: OwnedFd,
    /// What tells when it is closed.
    pub(super) other_end: Arc<Kept>,
    pub(super) inode: u64,
}

/// Makes a file of a device of this process's, and the device if there is none yet.
pub(super) fn make(plan: &Plan, number: usize) -> Result<Made, Errno> {
    let model = device(plan, number)?;
    let (ours, theirs) = UnixStream::pair()?;
    let other_end = Arc::new(Kept::new(ours.into())?);
    let file = OwnedFd::from(theirs);
    let inode = inode::of(file.as_raw_fd()).ok_or(Errno::EIO)?;
    let behind = Behind::Own(trace::calls(plan, number, model.open()));
    add(Opened { inode, device: number, behind, other_end: Arc::clone(&other_end) });
    Ok(Made { file, other_end, inode })
}

fn add(file: Opened) {
    let mut files = locked(&FILES);
    files.push(file);
    COUNT.store(files.len(), Ordering::Release);
}

/// A device, which is made if it is not there yet.
pub(crate) fn device(plan: &Plan, number: usize) -> Result<Arc<Model>, Errno> {
    if matches!(*host::lock(), Role::Client { .. }) {
        // They are the host's, and so are their wires.
        return Err(Errno::EIO);
    }
    if plan.devices.len() <= number {
        return Err(Errno::ENODEV);
    }
    built(plan, number).map_err(|why| {
        eprintln!("mlx5-run: {why}");
        Errno::EIO
    })
}

/// The same, or a line that says why it cannot be made.
pub(super) fn built(plan: &Plan, number: usize) -> Result<Arc<Model>, String> {
    let mut devices = locked(&DEVICES);
    if let Some((_, model)) = devices.iter().find(|(device, _)| *device == number) {
        return Ok(Arc::clone(model));
    }
    let name = device_name(number);
    let described = plan.devices.get(number).ok_or_else(|| format!("{name}: there is none"))?;
    let model = descriptor::high_inside(|| described.build(number, plan.stepped))
        .map_err(|why| format!("{name}: {}", with_causes(&why)))?;
    let model = Arc::new(model);
    trace::fast_path(plan, number, &model);
    devices.push((number, Arc::clone(&model)));
    Ok(model)
}

/// Ends all files and devices of this process, and tells what those saw.
pub(super) fn end_all() {
    let files = std::mem::take(&mut *locked(&FILES));
    COUNT.store(0, Ordering::Release);
    drop(files);
    at_exit();
    let devices = std::mem::take(&mut *locked(&DEVICES));
    drop(devices);
}

/// A device that is there in this process already.
pub(crate) fn made(number: usize) -> Option<Arc<Model>> {
    locked(&DEVICES).iter().find(|(device, _)| *device == number).map(|(_, model)| Arc::clone(model))
}

/// All of them.
pub(crate) fn all_made() -> Vec<Arc<Model>> {
    locked(&DEVICES).iter().map(|(_, model)| Arc::clone(model)).collect()
}

/// Devices and files, held by the thread that forks, so that both processes find them whole.
pub(super) struct Held {
    devices: MutexGuard<'static, Vec<Device>>,
    files: MutexGuard<'static, Vec<Opened>>,
}

pub(super) fn hold() -> Held {
    Held { devices: locked(&DEVICES), files: locked(&FILES) }
}

impl Held {
    /// In a child, where there are no threads but the one that forked: devices are stepped, and files answered, where they were.
    pub(super) fn leave_to_host(&mut self) {
        for file in self.files.iter_mut() {
            // What was made through it is not this process's to end.
            std::mem::forget(std::mem::replace(&mut file.behind, Behind::Host));
        }
        self.devices.drain(..).for_each(std::mem::forget);
    }
}

/// Who answers a file's calls.
pub(crate) enum Answers {
    /// A device of this process's.
    Channel(Arc<dyn Channel>),
    /// The process that has the device, which knows the file by its inode.
    Host(u64),
}

/// The device whose file a descriptor is, and who answers.
pub(crate) fn find(fd: RawFd) -> Option<(usize, Answers)> {
    if !any() {
        return None;
    }
    let inode = inode::of(fd)?;
    let files = locked(&FILES);
    let file = files.iter().find(|file| file.inode == inode)?;
    let answers = match &file.behind {
        Behind::Own(channel) => Answers::Channel(Arc::clone(channel)),
        Behind::Host => Answers::Host(inode),
    };
    Some((file.device, answers))
}

/// The channel of a file of this process's devices.
pub(super) fn by_inode(inode: u64) -> Option<Arc<dyn Channel>> {
    let files = locked(&FILES);
    files.iter().find(|file| file.inode == inode).and_then(|file| match &file.behind {
        Behind::Own(channel) => Some(Arc::clone(channel)),
        Behind::Host => None,
    })
}

/// What tells that files of this process's devices are closed.
pub(super) fn other_ends() -> Vec<Arc<Kept>> {
    let files = locked(&FILES);
    let own = files.iter().filter(|file| matches!(file.behind, Behind::Own(_)));
    own.map(|file| Arc::clone(&file.other_end)).collect()
}

/// A process whose calls were answered here has ended: devices reach its memory no more.
pub(super) fn forget_process(process: i32) {
    locked(&DEVICES).iter().for_each(|(_, model)| model.forget_process(process));
}

/// Ends the files whose last descriptor is closed.
pub(crate) fn end_closed() {
    let mut files = locked(&FILES);
    let ended: Vec<Opened> = files.extract_if(.., |file| is_closed(&file.other_end)).collect();
    COUNT.store(files.len(), Ordering::Release);
    drop(files);
    // What was made through them goes with their channels.
    drop(ended);
}

/// Whether the program has any file open still.
fn still_open() -> bool {
    end_closed();
    any()
}

pub(super) fn is_closed(end: &Kept) -> bool {
    let mut poll = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is ours.
    let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
    found == 1 && poll.revents & libc::POLLHUP != 0
}

/// Tells what the devices saw.
extern "C" fn at_exit() {
    let form = planned::plan().map_or(Summary::Rules, |plan| plan.summary);
    for (number, model) in locked(&DEVICES).iter() {
        summary::tell(*number, model, form);
    }
}
