//! Ways to a process that has the devices of this one: the socket of a daemon, and the first words with whoever answers.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pollux_uverbs::Errno;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::descriptor::Kept;
use super::letter::{self, ask};
use super::{client, thread};
use crate::plan::Plan;

/// Whether the program has files of devices open, as far as it ever had one.
static STILL_OPEN: OnceLock<fn() -> bool> = OnceLock::new();

/// How long a program has, whose daemon has ended, to find that by itself.
const GRACE: Duration = Duration::from_secs(2);
/// Most bytes of a plan: some hundred for each device.
const PLAN_BYTES: usize = 1 << 16;

/// Why a process has no devices of another one.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nobody listens there.
    Nobody,
    /// The socket cannot be used.
    Socket(io::Error),
    /// It belongs to another user.
    User,
    /// The memory of this process cannot be reached.
    Memory,
    /// Another version of this library answers.
    Version,
    /// Whoever answers is no such daemon, or has ended.
    Silent,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("no daemon listens there: start one with `mlx5-run --serve`"),
            Self::Socket(why) => write!(f, "{why}"),
            Self::User => f.write_str("the daemon is another user's: run both as one user"),
            Self::Memory => f.write_str(
                "it may not reach this program's memory (process_vm_readv): run both as one user and in one container, where \
                 /proc/sys/kernel/yama/ptrace_scope is 0 or 1 and no seccomp profile takes that call",
            ),
            Self::Version => f.write_str("it is of another version of mlx5-run: start it again"),
            Self::Silent => f.write_str("it gives no answer that mlx5-run knows"),
        }
    }
}

impl Refusal {
    /// Tells the user, once, and gives what the program's call fails with.
    pub(super) fn told(&self, who: &str) -> Errno {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            eprintln!("mlx5-run: no devices of {who}: {self}");
        }
        match self {
            Self::User | Self::Memory => Errno(libc::EACCES),
            _ => Errno::ENODEV,
        }
    }
}

/// The first request of a connection: the host says whether it can do what it is for.
pub(super) fn greet(socket: &Kept, host: i32) -> Result<(), Refusal> {
    // Where processes may look only into their children's memory, this one lets its host. Source: Linux
    // `Documentation/admin-guide/LSM/Yama.rst`; refused where that is not there.
    // SAFETY: numbers alone.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, host, 0, 0, 0) };
    let mark = Box::new(std::hint::black_box(0x6d6c_7835_7275_6e21_u64 ^ u64::from(std::process::id())));
    let place = std::ptr::from_ref(&*mark).expose_provenance() as u64;
    match letter::answered(socket, [ask::GREET, letter::VERSION, place, *mark, 0, 0]) {
        Ok(_) => Ok(()),
        Err(Errno(libc::EACCES)) => Err(Refusal::User),
        Err(Errno(libc::EPERM)) => Err(Refusal::Memory),
        Err(Errno(libc::EPROTO)) => Err(Refusal::Version),
        Err(_) => Err(Refusal::Silent),
    }
}

/// Connects to a daemon.
fn reach(path: &Path) -> Result<Kept, Refusal> {
    let refused = |error: rustix::io::Errno| match error {
        rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED => Refusal::Nobody,
        rustix::io::Errno::ACCESS => Refusal::User,
        rustix::io::Errno::PROTOTYPE => Refusal::Silent,
        error => Refusal::Socket(error.into()),
    };
    let address = SocketAddrUnix::new(path).map_err(refused)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.map_err(refused)?;
    connect(&socket, &address).map_err(refused)?;
    let socket = Kept::new(socket).map_err(|errno| Refusal::Socket(errno.into()))?;
    let (daemon, _) = client::peer(&socket).ok_or(Refusal::Silent)?;
    greet(&socket, daemon)?;
    Ok(socket)
}

/// A connection of this program to its daemon, whose end it hears of.
pub(super) fn connected(path: &Path) -> Result<Kept, Errno> {
    let socket = reach(path).map_err(|refusal| refusal.told(&path.display().to_string()))?;
    // SAFETY: the connection of a process is closed by none but its forked children, for themselves.
    let watched = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    let path = path.to_owned();
    thread::start("mlx5-run-daemon", move || watch(watched, &path))?;
    Ok(socket)
}

/// What is looked at when a daemon has ended: whether the program has files of its devices open.
pub(super) fn at_daemons_end(still_open: fn() -> bool) {
    STILL_OPEN.get_or_init(|| still_open);
}

/// Waits for the end of the daemon. A program that polls its queues would never hear of it.
fn watch(connection: BorrowedFd<'_>, path: &Path) {
    loop {
        let mut waits = [PollFd::new(&connection, PollFlags::empty())];
        if poll(&mut waits, None).is_ok() && !waits[0].revents().is_empty() {
            break;
        }
    }
    eprintln!("mlx5-run: the daemon at {} has ended, and its devices with it", path.display());
    std::thread::sleep(GRACE);
    if STILL_OPEN.get().is_some_and(|still_open| still_open()) {
        eprintln!("mlx5-run: this program still has them open: it is terminated");
        // SAFETY: a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
    }
}

/// What a daemon serves.
///
/// # Errors
/// A line that says why it cannot be had.
pub fn plan_of(path: &Path) -> Result<Plan, String> {
    let refused = |refusal: Refusal| format!("{}: {refusal}", path.display());
    let socket = reach(path).map_err(refused)?;
    let mut room = vec![0_u8; PLAN_BYTES];
    let place = room.as_mut_ptr().expose_provenance() as u64;
    let answer = letter::answered(&socket, [ask::PLAN, place, PLAN_BYTES as u64, 0, 0, 0]);
    let bytes = answer.ok().and_then(|answer| usize::try_from(answer.numbers[1]).ok());
    let bytes = bytes.filter(|bytes| *bytes <= PLAN_BYTES).ok_or_else(|| refused(Refusal::Silent))?;
    let mut text = vec![0; bytes];
    client::read(place, &mut text).map_err(|_| refused(Refusal::Silent))?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|_| refused(Refusal::Version))?;
    Ok(Plan { daemon: Some(PathBuf::from(path)), ..plan })
}
