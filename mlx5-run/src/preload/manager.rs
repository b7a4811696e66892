//! The connection manager's file, `/dev/infiniband/rdma_cm`, of this process's devices: what programs write to it is carried out by
//! [`pollux_cm`] over queue pair 1 of each.
//!
//! A file is one end of a pair of sockets, as a device's is. As long as events wait, there is a byte to be read from it, by which poll(2)
//! sees them; a thread of this library's looks for them. Children of a process that forks, and programs attached to a daemon, have no
//! connection manager.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use libc::{c_int, c_uint, c_void, size_t, ssize_t};
use pollux_cm::{ClientMemory, ManagementPort, Served, ServedFile};
use pollux_eal::with_causes;
use pollux_uverbs::Errno;
use pollux_uverbs::abi::connection::command::GET_EVENT;
use pollux_verbs::{Context, Options, Provider};

use super::descriptor::{self, Kept};
use super::errno::fail;
use super::real::real;
use super::{client, host, inode, opened, thread};
use crate::plan::{Plan, device_name};

/// Where programs look for it.
pub(super) const PATH: &str = "/dev/infiniband/rdma_cm";
/// Major and minor number of the file: one of the kernel's miscellaneous devices.
pub(super) const NUMBERS: (c_uint, c_uint) = (10, 58);
/// Most files at a time: an ID that waits for its events by itself has one of its own.
const FILES_MAX: usize = 4096;
/// Most bytes of a command.
const COMMAND_MAX: usize = 4096;
/// How often the thread looks for events while there are some, and how often when nothing was to be done for so many looks.
const LOOK: Duration = Duration::from_micros(200);
const IDLE_LOOK: Duration = Duration::from_millis(2);
const IDLE_AFTER: u32 = 500;
/// How long a program that ends waits for the thread to let go.
const PATIENCE: Duration = Duration::from_millis(100);

/// An open file.
struct Open {
    file: ServedFile,
    other_end: Kept,
    /// A byte says that events wait.
    is_told: Mutex<bool>,
}

/// What there is: files by their places in [`INODES`], and the manager of them all.
pub(super) struct All {
    files: Vec<(usize, Option<Arc<Open>>)>,
    manager: Option<Served>,
    is_looked_for: bool,
    /// The program ends.
    is_over: bool,
}

pub(super) type Files = MutexGuard<'static, All>;

static ALL: Mutex<All> =
    Mutex::new(All { files: Vec::new(), manager: None, is_looked_for: false, is_over: false });
/// Inodes of the files; 0 where there is none. No lock: every write of the program's looks here, those of this library's threads too.
static INODES: [AtomicU64; FILES_MAX] = [const { AtomicU64::new(0) }; FILES_MAX];
/// Places that were ever taken.
static USED: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// A command was carried out since the thread looked.
static COMMANDED: AtomicBool = AtomicBool::new(false);
static REGISTERED: Once = Once::new();

pub(super) fn hold() -> Files {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there are files.
pub(super) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// The place of a descriptor's file, if it is one of these.
pub(super) fn find(fd: RawFd) -> Option<usize> {
    if !any() {
        return None;
    }
    let inode = inode::of(fd)?;
    let used = &INODES[..USED.load(Ordering::Acquire)];
    used.iter().position(|place| place.load(Ordering::Acquire) == inode)
}

/// Opens it.
pub(super) fn open(plan: &Plan, flags: c_int) -> Result<RawFd, Errno> {
    host::lock().settle()?;
    if host::is_elsewhere() {
        eprintln!("mlx5-run: {PATH}: devices of a daemon's, or of a parent's, have no connection manager");
        return Err(Errno::ENODEV);
    }
    // The devices before the lock: they are made in a moment of their own.
    let devices: Vec<_> =
        (0..plan.devices.len()).map(|number| opened::device(plan, number)).collect::<Result<_, _>>()?;
    // Before that is told, what the manager has goes.
    opened::tell_at_exit();
    REGISTERED.call_once(|| {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe {
            libc::atexit(at_exit);
        }
    });
    let mut all = hold();
    let manager = match &all.manager {
        Some(manager) => manager.clone(),
        None => {
            let open = |(number, model): (usize, &Arc<pollux_mlx5_model::Model>)| {
                let context = Context::open(model.open_for_management(), Provider::Mlx5, Options::default());
                context.and_then(|context| ManagementPort::open(&context, 1)).map_err(|why| {
                    eprintln!("mlx5-run: {PATH}: {}: {}", device_name(number), with_causes(&why));
                    why.errno().unwrap_or(Errno::EIO)
                })
            };
            let ports = descriptor::high_inside(|| {
                devices.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()
            })?;
            all.manager.insert(Served::over(ports)).clone()
        }
    };
    let place = INODES.iter().position(|place| place.load(Ordering::Acquire) == 0).ok_or(Errno::EMFILE)?;
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(flags & libc::O_NONBLOCK != 0)?;
    let other_end = Kept::new(ours.into())?;
    let file = OwnedFd::from(theirs);
    let inode = inode::of(file.as_raw_fd()).ok_or(Errno::EIO)?;
    let opened = Open { file: manager.open(), other_end, is_told: Mutex::new(false) };
    all.files.push((place, Some(Arc::new(opened))));
    INODES[place].store(inode, Ordering::Release);
    USED.fetch_max(place + 1, Ordering::AcqRel);
    COUNT.store(all.files.len(), Ordering::Release);
    if !all.is_looked_for {
        all.is_looked_for = true;
        thread::start("rdma_cm", look);
    }
    if flags & libc::O_CLOEXEC == 0 {
        // SAFETY: a descriptor that is ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    }
    Ok(file.into_raw_fd())
}

/// Looks for events as long as there are files.
fn look() {
    let mut idle = 0;
    loop {
        let (manager, files): (_, Vec<Arc<Open>>) = {
            let mut all = hold();
            let files: Vec<_> = all.files.iter().filter_map(|(_, file)| file.clone()).collect();
            let Some(manager) = all.manager.clone().filter(|_| !files.is_empty()) else {
                all.is_looked_for = false;
                return;
            };
            (manager, files)
        };
        let is_busy = manager.work() | COMMANDED.swap(false, Ordering::Relaxed);
        files.iter().for_each(|file| file.tell());
        drop((manager, files));
        idle = if is_busy { 0 } else { IDLE_AFTER.min(idle + 1) };
        std::thread::sleep(if idle < IDLE_AFTER { LOOK } else { IDLE_LOOK });
    }
}

impl Open {
    fn told(&self) -> MutexGuard<'_, bool> {
        self.is_told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that events wait, if there are any and it was not said.
    fn tell(&self) {
        let mut is_told = self.told();
        if self.file.has_events() && !*is_told {
            let one = [1_u8];
            // SAFETY: a byte of ours.
            let sent = unsafe {
                libc::send(
                    self.other_end.as_raw_fd(),
                    one.as_ptr().cast(),
                    1,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            *is_told = sent == 1;
        }
    }

    /// Takes that back, if there is none any more.
    fn take_back(&self, fd: RawFd) {
        let mut is_told = self.told();
        if *is_told && !self.file.has_events() {
            let mut one = [0_u8];
            // SAFETY: room for a byte.
            let taken = unsafe { libc::recv(fd, one.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT) };
            *is_told = taken != 1;
        }
    }
}

/// The memory of this process.
struct Own;

impl ClientMemory for Own {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        client::read(address, into)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        client::write(address, from)
    }
}

/// Carries out a command, which waits for an event where the program's file waits. As with a kernel, whoever waits keeps the file: other
/// threads may close it meanwhile, and the program may end.
fn command(place: usize, fd: RawFd, address: u64, bytes: usize) -> Result<(), Errno> {
    if bytes > COMMAND_MAX {
        return Err(Errno::EINVAL);
    }
    let mut command = vec![0; bytes];
    client::read(address, &mut command)?;
    // SAFETY: numbers alone.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let waits = flags & libc::O_NONBLOCK == 0 && command.starts_with(&GET_EVENT.to_ne_bytes());
    let own = if waits { Some(Kept::copy_of(fd)?) } else { None };
    let fd = own.as_ref().map_or(fd, |own| own.as_raw_fd());
    loop {
        let (file, is_over) = {
            let all = hold();
            let file = all.files.iter().find(|(other, _)| *other == place).and_then(|(_, file)| file.clone());
            (file, all.is_over)
        };
        let done = match &file {
            Some(file) => {
                let done = file.file.command(&Own, &command);
                COMMANDED.store(true, Ordering::Relaxed);
                file.take_back(fd);
                done
            }
            // Nothing happens any more.
            None if is_over && waits => Err(Errno::EAGAIN),
            // Of a parent's.
            None => Err(Errno::EIO),
        };
        drop(file);
        if done != Err(Errno::EAGAIN) || !waits {
            return done;
        }
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // What was told is taken back at the end of the program by nobody: then nothing is looked at.
        // SAFETY: one entry, which is ours, or none.
        if unsafe { libc::poll(&raw mut poll, (!is_over).into(), -1) } < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
}

/// As write(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    let Some(place) = find(fd) else {
        // SAFETY: the program's arguments.
        return unsafe { real!(c"write": fn(c_int, *const c_void, size_t) -> ssize_t, fd, from, bytes) };
    };
    let address = from.expose_provenance() as u64;
    match std::panic::catch_unwind(|| command(place, fd, address, bytes)) {
        Ok(Ok(())) => bytes.cast_signed(),
        Ok(Err(errno)) => ssize_t::try_from(fail(errno)).unwrap_or(-1),
        Err(_) => ssize_t::try_from(fail(Errno::EIO)).unwrap_or(-1),
    }
}

/// Ends the files whose last descriptor is closed.
pub(super) fn end_closed() {
    if !any() {
        return;
    }
    let mut all = hold();
    let is_closed = |(_, file): &mut (usize, Option<Arc<Open>>)| {
        file.as_ref().is_some_and(|file| opened::is_closed(&file.other_end))
    };
    let ended: Vec<_> = all.files.extract_if(.., is_closed).collect();
    for (place, _) in &ended {
        INODES[*place].store(0, Ordering::Release);
    }
    COUNT.store(all.files.len(), Ordering::Release);
    drop(all);
    // Their IDs go with them.
    drop(ended);
}

/// In a child: the connections are its parent's.
pub(super) fn leave(all: &mut Files) {
    for (_, file) in &mut all.files {
        std::mem::forget(file.take());
    }
    std::mem::forget(all.manager.take());
    all.is_looked_for = false;
}

/// Peers are told that connections end, and hear it before the devices go. Threads of the program's may have files still: who waits for
/// an event waits on, other commands fail, and nothing hangs up.
extern "C" fn at_exit() {
    let mut all = hold();
    let files: Vec<_> = all.files.iter_mut().filter_map(|(_, file)| file.take()).collect();
    let manager = all.manager.take();
    all.is_over = true;
    drop(all);
    let begin = Instant::now();
    for mut file in files {
        // The thread that looks for events lets go in a moment.
        while Arc::get_mut(&mut file).is_none() && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        if let Some(Open { file, other_end, .. }) = Arc::into_inner(file) {
            drop(file);
            std::mem::forget(other_end);
        }
    }
    drop(manager);
}
