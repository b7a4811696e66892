//! The connection manager's file, `/dev/infiniband/rdma_cm`, of this process's devices: what programs write to it is carried out by
//! [`pollux_cm`] over queue pair 1 of each.
//!
//! A file is one end of a pair of sockets, as a device's is. As long as events wait, there is a byte to be read from it, by which poll(2)
//! sees them; a thread of this library's looks for them. Children of a process that forks, and programs attached to a daemon, have no
//! connection manager.

use std::cell::RefCell;
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

use super::descriptor::{self, FILES_MAX, Kept};
use super::errno::fail;
use super::{client, host, inode, opened, thread};
use crate::plan::{Plan, device_name};
use pollux_preload::real::Real;

/// Where programs look for it.
pub(super) const PATH: &str = "/dev/infiniband/rdma_cm";
/// Major and minor number of the file: one of the kernel's miscellaneous devices.
pub(super) const NUMBERS: (c_uint, c_uint) = (10, 58);
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
    manager: Option<Arc<Served>>,
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
/// Held by whoever makes the manager: queue pair 1 is there once. Not [`ALL`], since what is made closes descriptors, which takes the locks of
/// a fork.
static MAKING: Mutex<()> = Mutex::new(());
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
    let manager = manager(&devices)?;
    // Whatever closes a descriptor comes before the lock, or after it: a thread that forks has the locks that close(2) takes, and waits for
    // this one.
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(flags & libc::O_NONBLOCK != 0)?;
    let other_end = Kept::new(ours.into())?;
    let file = OwnedFd::from(theirs);
    let inode = inode::of(file.as_raw_fd()).ok_or(Errno::EIO)?;
    let opened = Open { file: manager.open(), other_end, is_told: Mutex::new(false) };
    let mut all = hold();
    let place = INODES.iter().position(|place| place.load(Ordering::Acquire) == 0).ok_or(Errno::EMFILE)?;
    if !all.is_looked_for {
        thread::start("rdma_cm", look)?;
        all.is_looked_for = true;
    }
    all.files.push((place, Some(Arc::new(opened))));
    INODES[place].store(inode, Ordering::Release);
    USED.fetch_max(place + 1, Ordering::AcqRel);
    COUNT.store(all.files.len(), Ordering::Release);
    drop(all);
    if flags & libc::O_CLOEXEC == 0 {
        // SAFETY: a descriptor that is ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    }
    Ok(file.into_raw_fd())
}

/// The manager of these devices, made when it is asked for first.
fn manager(devices: &[Arc<pollux_mlx5_model::Model>]) -> Result<Arc<Served>, Errno> {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let there = hold().manager.clone();
    if let Some(manager) = there {
        return Ok(manager);
    }
    let open = |(number, model): (usize, &Arc<pollux_mlx5_model::Model>)| {
        let context = Context::open(model.open_for_management(), Provider::Mlx5, Options::default());
        context.and_then(|context| ManagementPort::open(&context, 1)).map_err(|why| {
            eprintln!("mlx5-run: {PATH}: {}: {}", device_name(number), with_causes(&why));
            why.errno().unwrap_or(Errno::EIO)
        })
    };
    let ports =
        descriptor::high_inside(|| devices.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>())?;
    let made = Arc::new(Served::over(ports));
    hold().manager = Some(Arc::clone(&made));
    Ok(made)
}

/// Looks for events as long as there is a manager. Without files there are still peers, to whom it says that nobody listens, and that
/// connections have ended.
fn look() {
    let mut idle = 0;
    loop {
        // Gone at the program's end, and in a child.
        let manager = hold().manager.clone();
        let Some(manager) = manager else { return };
        let is_busy = manager.work() | COMMANDED.swap(false, Ordering::Relaxed);
        if is_busy {
            tell(&manager.take_eventful());
        }
        drop(manager);
        idle = if is_busy { 0 } else { IDLE_AFTER.min(idle + 1) };
        std::thread::sleep(if idle < IDLE_AFTER { LOOK } else { IDLE_LOOK });
    }
}

/// Says of these files that events wait.
fn tell(numbers: &[u64]) {
    if numbers.is_empty() {
        return;
    }
    let files: Vec<Arc<Open>> = {
        let all = hold();
        let files = all.files.iter().filter_map(|(_, file)| file.as_ref());
        files.filter(|open| numbers.contains(&open.file.number())).cloned().collect()
    };
    files.iter().for_each(|file| file.tell());
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
            *is_told = !take(fd);
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

/// What comes of a command.
enum Step {
    Done,
    /// It is to be carried out again when this thread's copy of the file can be read.
    Wait(RawFd),
}

/// A file that a thread waits for. As with a kernel, whoever waits keeps the file: other threads may close it meanwhile, and the program
/// may end.
struct Waited {
    place: usize,
    own: Option<Kept>,
}

impl Drop for Waited {
    fn drop(&mut self) {
        drop(self.own.take());
        end_if_closed(self.place);
    }
}

thread_local! {
    /// What this thread waits for; a handler of a signal may wait for more. Not in a frame of the stack: a thread that is cancelled while it
    /// waits is unwound without its destructors.
    static WAITED: RefCell<Vec<Waited>> = const { RefCell::new(Vec::new()) };
}

/// Carries out a command. `copy` is this thread's of the file, if it waits already.
fn command(place: usize, fd: RawFd, copy: Option<RawFd>, address: u64, bytes: usize) -> Result<Step, Errno> {
    if bytes > COMMAND_MAX {
        return Err(Errno::EINVAL);
    }
    let mut command = vec![0; bytes];
    client::read(address, &mut command)?;
    let at = copy.unwrap_or(fd);
    // SAFETY: numbers alone.
    let flags = unsafe { libc::fcntl(at, libc::F_GETFL) };
    let waits = flags & libc::O_NONBLOCK == 0 && command.starts_with(&GET_EVENT.to_ne_bytes());
    let (file, is_over) = {
        let all = hold();
        let file = all.files.iter().find(|(other, _)| *other == place).and_then(|(_, file)| file.clone());
        (file, all.is_over)
    };
    let done = match &file {
        Some(file) => {
            let done = file.file.command(&Own, &command);
            COMMANDED.store(true, Ordering::Relaxed);
            file.take_back(at);
            done
        }
        // Nothing happens any more. What was told is taken back by nobody else.
        None if is_over && waits => {
            take(at);
            std::thread::sleep(IDLE_LOOK);
            Err(Errno::EAGAIN)
        }
        // Of a parent's.
        None => Err(Errno::EIO),
    };
    drop(file);
    match done {
        Err(Errno::EAGAIN) if waits => copy.map_or_else(|| keep_for_waiting(place, fd), Ok).map(Step::Wait),
        done => done.map(|()| Step::Done),
    }
}

/// Takes the byte that says that events wait, if it is there.
fn take(fd: RawFd) -> bool {
    let mut one = [0_u8];
    // SAFETY: room for a byte.
    unsafe { libc::recv(fd, one.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT) == 1 }
}

/// A copy of the file for this thread, until [`stop_waiting`].
fn keep_for_waiting(place: usize, fd: RawFd) -> Result<RawFd, Errno> {
    let own = Kept::copy_of(fd)?;
    let number = own.as_raw_fd();
    WAITED.with_borrow_mut(|waited| waited.push(Waited { place, own: Some(own) }));
    Ok(number)
}

fn stop_waiting() {
    // Not while it is borrowed: its end closes.
    let last = WAITED.with_borrow_mut(Vec::pop);
    drop(last);
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Does something during which this thread is not cancelled: what this library does cannot be left half done.
fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    /// Source: glibc `sysdeps/nptl/pthread.h`.
    const PTHREAD_CANCEL_DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: room for a number.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    let done = work();
    // SAFETY: what it was.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    done
}

type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
type Recv = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;

/// As write(2). A command that waits for an event waits in recv(2), outside of everything else: a signal whose handler has `SA_RESTART` does
/// not end it, as it does not end a kernel's, and a thread can be cancelled there, since no frame between has anything to destroy.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    static WRITE: Real = Real::new(c"write");
    static RECV: Real = Real::new(c"recv");
    let Some(place) = find(fd) else {
        // SAFETY: the type of write(2).
        let write: Write = unsafe { WRITE.get() };
        // SAFETY: the program's arguments.
        return unsafe { write(fd, from, bytes) };
    };
    let address = from.expose_provenance() as u64;
    let mut copy = None;
    let done = loop {
        let step = uncancelled(|| std::panic::catch_unwind(|| command(place, fd, copy, address, bytes)));
        let waited = match step {
            Ok(Ok(Step::Wait(waited))) => waited,
            Ok(Ok(Step::Done)) => break 0,
            Ok(Err(errno)) => break errno.0,
            Err(panic) => {
                std::mem::forget(panic);
                break Errno::EIO.0;
            }
        };
        copy = Some(waited);
        let mut one = [0_u8];
        // SAFETY: the type of recv(2).
        let recv: Recv = unsafe { RECV.get() };
        // SAFETY: room for a byte.
        if unsafe { recv(waited, one.as_mut_ptr().cast(), 1, libc::MSG_PEEK) } < 0 {
            break std::io::Error::last_os_error().raw_os_error().unwrap_or(Errno::EIO.0);
        }
    };
    if copy.is_some() {
        let _panicked = uncancelled(|| std::panic::catch_unwind(stop_waiting));
    }
    if done == 0 { bytes.cast_signed() } else { fail(Errno(done)) as ssize_t }
}

/// Ends a file, if its last descriptor is closed: of one that a thread waited for that may be that thread's own.
fn end_if_closed(place: usize) {
    let mut all = hold();
    let is_closed = |(other, file): &mut (usize, Option<Arc<Open>>)| {
        *other == place && file.as_ref().is_some_and(|file| opened::is_closed(&file.other_end))
    };
    let ended = take_files(&mut all, is_closed);
    drop(all);
    drop(ended);
}

/// Takes files out of those that are there.
fn take_files(
    all: &mut Files,
    which: impl FnMut(&mut (usize, Option<Arc<Open>>)) -> bool,
) -> Vec<(usize, Option<Arc<Open>>)> {
    let ended: Vec<_> = all.files.extract_if(.., which).collect();
    for (place, _) in &ended {
        INODES[*place].store(0, Ordering::Release);
    }
    COUNT.store(all.files.len(), Ordering::Release);
    ended
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
    let ended = take_files(&mut all, is_closed);
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
        wait_for_alone(&mut file, begin);
        if let Some(Open { file, other_end, .. }) = Arc::into_inner(file) {
            drop(file);
            std::mem::forget(other_end);
        }
    }
    if let Some(mut manager) = manager {
        // Its last words leave here, and not on that thread while the devices go.
        wait_for_alone(&mut manager, begin);
    }
}

/// Waits until the thread that looks for events has let go of something, which is in a moment.
fn wait_for_alone<T>(shared: &mut Arc<T>, begin: Instant) {
    while Arc::get_mut(shared).is_none() && begin.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
}
