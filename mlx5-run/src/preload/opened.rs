//! The devices of this process, and the files of theirs that it has open.
//!
//! A file is one end of a pair of sockets, so that it can be duplicated, handed to children and waited for as any descriptor; the other
//! end, which is kept here, tells when the last copy is closed, in whichever process. Which file a descriptor is of is told by its inode.
//!
//! In a forked child the files that it has from its parent are answered there ([`parent`]).

use std::error::Error;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use crate::plan::{Plan, Summary, device_name};
use pollux_mlx5_model::Model;
use pollux_uverbs::{Channel, Errno};

use super::descriptor::{self, Kept};
use super::inode;
use super::parent::{self, Role};
use super::summary;

/// An open file of a device.
pub(crate) struct Opened {
    inode: u64,
    pub(crate) device: usize,
    behind: Behind,
}

/// Who answers a file's calls.
enum Behind {
    /// A device of this process's.
    Own { channel: Arc<dyn Channel>, other_end: Arc<Kept> },
    /// The process that has the device, of which this one is a child.
    Parent,
}

/// A device of this process: its number, and the model of it.
type Device = (usize, Arc<Model>);

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());
static FILES: Mutex<Vec<Opened>> = Mutex::new(Vec::new());
/// How many files there are: most programs have none, and most calls are not about one.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static REGISTERED: Once = Once::new();

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
            libc::atexit(at_exit);
        }
    });
    let (file, inode) = match parent::open(number) {
        Some(opened) => {
            let (file, inode) = opened?;
            add(Opened { inode, device: number, behind: Behind::Parent });
            (file, inode)
        }
        None => {
            parent::lock().settle()?;
            make(plan, number)?
        }
    };
    debug_assert_eq!(inode::of(file.as_raw_fd()), Some(inode), "the file that was made");
    if !close_on_exec {
        // SAFETY: a descriptor that is ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    }
    Ok(file.into_raw_fd())
}

/// Makes a file of a device of this process's, and the device if there is none yet; and the file's inode.
pub(super) fn make(plan: &Plan, number: usize) -> Result<(OwnedFd, u64), Errno> {
    let model = device(plan, number)?;
    let (ours, theirs) = UnixStream::pair()?;
    let other_end = Arc::new(Kept::new(ours.into())?);
    let theirs = OwnedFd::from(theirs);
    let inode = inode::of(theirs.as_raw_fd()).ok_or(Errno::EIO)?;
    let behind = Behind::Own { channel: model.open(), other_end };
    add(Opened { inode, device: number, behind });
    Ok((theirs, inode))
}

fn add(file: Opened) {
    let mut files = locked(&FILES);
    files.push(file);
    COUNT.store(files.len(), Ordering::Release);
}

/// A device, which is made if it is not there yet.
pub(crate) fn device(plan: &Plan, number: usize) -> Result<Arc<Model>, Errno> {
    if matches!(*parent::lock(), Role::Child { .. }) {
        // They are its parent's, and so are their wires.
        return Err(Errno::EIO);
    }
    let mut devices = locked(&DEVICES);
    if let Some((_, model)) = devices.iter().find(|(device, _)| *device == number) {
        return Ok(Arc::clone(model));
    }
    let described = plan.devices.get(number).ok_or(Errno::ENODEV)?;
    let model = descriptor::high_inside(|| described.build(number, plan.stepped)).map_err(|why| {
        let causes = std::iter::successors(Some(&why as &dyn Error), |&why| why.source());
        let words: Vec<String> = causes.map(ToString::to_string).collect();
        eprintln!("mlx5-run: {}: {}", device_name(number), words.join(": "));
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

/// Devices and files, held by the thread that forks, so that both processes find them whole.
pub(super) struct Held {
    devices: MutexGuard<'static, Vec<Device>>,
    files: MutexGuard<'static, Vec<Opened>>,
}

pub(super) fn hold() -> Held {
    Held { devices: locked(&DEVICES), files: locked(&FILES) }
}

impl Held {
    /// In a child, where there are no threads but the one that forked: devices are stepped, and files answered, where they were. The
    /// answer is what it closes once nothing is held: this library looks at what is closed.
    pub(super) fn leave_to_parent(&mut self) -> Vec<Arc<Kept>> {
        let mut closed = Vec::new();
        for file in self.files.iter_mut() {
            if let Behind::Own { channel, other_end } = std::mem::replace(&mut file.behind, Behind::Parent) {
                // What was made through it is not this process's to end.
                std::mem::forget(channel);
                closed.push(other_end);
            }
        }
        self.devices.drain(..).for_each(std::mem::forget);
        closed
    }
}

/// Who answers a file's calls.
pub(crate) enum Answers {
    /// A device of this process's.
    Channel(Arc<dyn Channel>),
    /// The process that has the device, which knows the file by its inode.
    Parent(u64),
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
        Behind::Own { channel, .. } => Answers::Channel(Arc::clone(channel)),
        Behind::Parent => Answers::Parent(inode),
    };
    Some((file.device, answers))
}

/// The channel of a file of this process's devices.
pub(super) fn by_inode(inode: u64) -> Option<Arc<dyn Channel>> {
    let files = locked(&FILES);
    files.iter().find(|file| file.inode == inode).and_then(|file| match &file.behind {
        Behind::Own { channel, .. } => Some(Arc::clone(channel)),
        Behind::Parent => None,
    })
}

/// What tells that files of this process's devices are closed.
pub(super) fn other_ends() -> Vec<Arc<Kept>> {
    let files = locked(&FILES);
    let ends = files.iter().filter_map(|file| match &file.behind {
        Behind::Own { other_end, .. } => Some(Arc::clone(other_end)),
        Behind::Parent => None,
    });
    ends.collect()
}

/// A process whose calls were answered here has ended: devices reach its memory no more.
pub(super) fn forget_process(process: i32) {
    locked(&DEVICES).iter().for_each(|(_, model)| model.forget_process(process));
}

/// Ends the files whose last descriptor is closed.
pub(crate) fn end_closed() {
    let mut files = locked(&FILES);
    let is_closed = |file: &mut Opened| match &file.behind {
        Behind::Own { other_end, .. } => is_closed(other_end),
        Behind::Parent => false,
    };
    let ended: Vec<Opened> = files.extract_if(.., is_closed).collect();
    COUNT.store(files.len(), Ordering::Release);
    drop(files);
    // What was made through them goes with their channels.
    drop(ended);
}

fn is_closed(end: &Kept) -> bool {
    let mut poll = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is ours.
    let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
    found == 1 && poll.revents & libc::POLLHUP != 0
}

/// Tells what the devices saw.
extern "C" fn at_exit() {
    let form = plan().map_or(Summary::Rules, |plan| plan.summary);
    for (number, model) in locked(&DEVICES).iter() {
        summary::tell(*number, model, form);
    }
}
