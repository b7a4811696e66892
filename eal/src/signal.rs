//! SIGINT, SIGTERM and SIGHUP: an ordinary end.
//!
//! Handlers belong to the process, so each subscribed `Eal` adds itself to one handler and all are told. The first signal
//! sets the stop flag; also when the parent had the signal ignored, as a shell has for what it starts in the background. SIGHUP
//! stays ignored where the parent has it so: that is what `nohup` is for. One more, at least [`GRACE`] later, ends the process at
//! once with status 130, 143 or 129, for when the orderly way hangs; an earlier one is taken for a copy of the first, since
//! `timeout(1)` signals both its child and the group. When the last subscriber is gone, a signal does what it did before the
//! first one came.
//!
//! A program that starts up cannot look at a flag: it may sleep in the kernel, which opens a pipe when somebody writes to it, or
//! populate memory. While a [`StartUp`] lives the first signal ends the process with a line and status 130, 143 or 129.
#![expect(unsafe_code, reason = "signal handlers")]

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::clock::cycles::monotonic_ns;
use crate::stop::StopReason;
use crate::{EalError, StopFlag};

/// How long after the first signal a second one is believed.
pub const GRACE: Duration = Duration::from_millis(500);

const GRACE_NS: u64 = GRACE.as_nanos() as u64;
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

static SUBSCRIBERS: AtomicUsize = AtomicUsize::new(0);
static INSTALLED: Mutex<bool> = Mutex::new(false);

/// Keeps signals that are sent to the process off the calling thread: other threads get them. Those that a thread causes by
/// itself (SIGSEGV and its kin) are left as they are.
///
/// # Errors
/// The kernel's answer.
pub fn keep_off_this_thread() -> io::Result<()> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigfillset` initializes the set, which has room for it; `sigdelset` is given what it initialized.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
            libc::sigdelset(set.as_mut_ptr(), own);
        }
    }
    // SAFETY: the set is initialized; no old set is asked for. Only the calling thread's mask changes.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// SIGINT, SIGTERM and SIGHUP for a program without an `Eal`. From the moment that this is made they no longer end the process by
/// themselves, and those that come are kept until [`call`](Self::call).
#[derive(Debug)]
pub struct EndSignals(Signals);

impl EndSignals {
    /// Catches them. SIGHUP is left ignored where the parent has it so.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn catch() -> io::Result<Self> {
        let hung_up = if disposition(SIGHUP)? == libc::SIG_IGN { None } else { Some(SIGHUP) };
        Signals::new([SIGINT, SIGTERM].into_iter().chain(hung_up)).map(Self)
    }

    /// Has each of them call `stop`, on a thread that ends with the process. One that comes [`GRACE`] after the first ends the process at
    /// once with status 128 and the signal's number.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn call(mut self, stop: impl Fn() + Send + 'static) -> io::Result<()> {
        let wait = move || {
            let mut first: Option<Instant> = None;
            for signal in &mut self.0 {
                if first.is_some_and(|first| first.elapsed() >= GRACE) {
                    std::process::exit(128 + signal);
                }
                first.get_or_insert_with(Instant::now);
                stop();
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }
}

/// SIGINT, SIGTERM and SIGHUP for a program that passes them on to another one, and ends when that one does: they come as often as they
/// are sent, and none ends the process. The program's `Eal` is to [leave](crate::Eal::leave_signals) them to it.
#[derive(Debug)]
pub struct PassedOn(Signals);

impl PassedOn {
    /// Catches them. SIGHUP is left ignored where the parent has it so.
    ///
    /// # Errors
    /// [`EalError::Signal`].
    pub fn catch() -> Result<Self, EalError> {
        install_fallback()?;
        let refused = |source| EalError::Signal { signal: SIGHUP, source };
        let hung_up =
            if disposition(SIGHUP).map_err(refused)? == libc::SIG_IGN { None } else { Some(SIGHUP) };
        let refused = |source| EalError::Signal { signal: SIGTERM, source };
        let signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hung_up)).map_err(refused)?;
        SUBSCRIBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self(signals))
    }

    /// Those that came since the last call. It does not wait.
    pub fn pending(&mut self) -> impl Iterator<Item = i32> {
        self.0.pending()
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        SUBSCRIBERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A program is starting up. Nothing that it does by then outlasts a process that is killed, so no more is undone.
#[derive(Debug)]
pub struct StartUp(Vec<SigId>);

impl StartUp {
    /// From now on, and until it is dropped, a signal writes one line on standard error, which begins with the program's name, and
    /// ends the process with status 128 and the signal's number. SIGHUP is left ignored where the parent has it so.
    ///
    /// # Errors
    /// [`EalError::Signal`].
    pub fn new(program: &str) -> Result<Self, EalError> {
        install_fallback()?;
        let mut start_up = Self(Vec::new());
        SUBSCRIBERS.fetch_add(1, Ordering::Relaxed);
        for (signal, name) in SIGNALS.into_iter().zip(["SIGINT", "SIGTERM", "SIGHUP"]) {
            let refused = |source| EalError::Signal { signal, source };
            if signal == SIGHUP && disposition(signal).map_err(refused)? == libc::SIG_IGN {
                continue;
            }
            let line = format!("{program}: terminated by {name} during startup\n").into_bytes();
            let ended = move || {
                // SAFETY: the bytes are the closure's own, which lives as long as it is registered.
                unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
                low_level::exit(128 + signal);
            };
            // SAFETY: the action runs in a signal handler. It uses write(2) and _exit(2), which are async-signal-safe.
            start_up.0.push(unsafe { low_level::register(signal, ended) }.map_err(refused)?);
        }
        Ok(start_up)
    }
}

impl Drop for StartUp {
    fn drop(&mut self) {
        unregister(&mut self.0);
    }
}

fn unregister(ids: &mut Vec<SigId>) {
    for id in ids.drain(..) {
        low_level::unregister(id);
    }
    SUBSCRIBERS.fetch_sub(1, Ordering::Relaxed);
}

/// One `Eal` among those that are told of signals.
#[derive(Debug)]
pub(crate) struct Subscription(Vec<SigId>);

impl Subscription {
    pub(crate) fn new(stop: &StopFlag) -> Result<Self, EalError> {
        install_fallback()?;
        let mut subscription = Self(Vec::new());
        SUBSCRIBERS.fetch_add(1, Ordering::Relaxed);
        for signal in SIGNALS {
            let refused = |source| EalError::Signal { signal, source };
            if signal == SIGHUP && disposition(signal).map_err(refused)? == libc::SIG_IGN {
                continue;
            }
            let id = subscribe(signal, stop.clone()).map_err(refused)?;
            subscription.0.push(id);
        }
        Ok(subscription)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        unregister(&mut self.0);
    }
}

fn subscribe(signal: i32, stop: StopFlag) -> io::Result<SigId> {
    let first_ns = AtomicU64::new(0);
    let told = move || {
        let now = monotonic_ns();
        match first_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                stop.set_because(StopReason::Signal(signal));
            }
            Err(first) if now.saturating_sub(first) >= GRACE_NS => low_level::exit(128 + signal),
            Err(_copy) => {}
        }
    };
    // SAFETY: the action runs in a signal handler. It uses atomics, clock_gettime(2), write(2) and _exit(2), all of which
    // are async-signal-safe; it neither allocates nor locks nor panics.
    unsafe { low_level::register(signal, told) }
}

/// Once for the process: what a signal does while nobody subscribes.
///
/// The handler cannot be taken out again, so it does what was there before: the default is carried out here, an ignored
/// signal is let go, and a handler that was there is called by `signal_hook` in any case.
fn install_fallback() -> Result<(), EalError> {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    for signal in SIGNALS {
        let refused = |source| EalError::Signal { signal, source };
        if disposition(signal).map_err(refused)? != libc::SIG_DFL {
            continue;
        }
        let fallback = move || {
            if SUBSCRIBERS.load(Ordering::Relaxed) == 0 {
                // It does not return for these signals.
                let _ended = low_level::emulate_default_handler(signal);
            }
        };
        // SAFETY: the action runs in a signal handler: one atomic load, and a function documented as async-signal-safe.
        unsafe { low_level::register(signal, fallback) }.map_err(refused)?;
    }
    // A file at its size limit (RLIMIT_FSIZE) is an error of the write like a full disk, and no end of the process.
    if disposition(libc::SIGXFSZ).map_err(|source| EalError::Signal { signal: libc::SIGXFSZ, source })?
        == libc::SIG_DFL
    {
        // SAFETY: the action runs in a signal handler and does nothing.
        unsafe { low_level::register(libc::SIGXFSZ, || {}) }
            .map_err(|source| EalError::Signal { signal: libc::SIGXFSZ, source })?;
    }
    *installed = true;
    Ok(())
}

/// What the process does at a signal: `SIG_DFL`, `SIG_IGN`, or the address of a handler.
fn disposition(signal: i32) -> io::Result<libc::sighandler_t> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action given, the call only writes the present one to `action`, which has room for it.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed at first, and written by the call that succeeded.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction)
}
