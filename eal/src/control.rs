//! Control threads: all that an `Eal` runs beside its lcores, kept off the lcores' CPUs, and prompt where they cannot be.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};

use crate::lcore::{CpuSet, slice};
use crate::panic::Reporter;
use crate::{EalError, Panicked, StopFlag};

/// Where one living `Eal` put the thread that made it.
struct Narrowed {
    thread: ThreadId,
    control: CpuSet,
    allowed: CpuSet,
}

// A fact about the process, not about one `Eal`: without it a second `Eal` would take the CPUs that the first left to
// its maker for all that the process has.
static NARROWED: Mutex<Vec<Narrowed>> = Mutex::new(Vec::new());

fn narrowed() -> MutexGuard<'static, Vec<Narrowed>> {
    NARROWED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPUs that the process may use: the calling thread's, unless a living `Eal` narrowed those.
pub(crate) fn process_affinity() -> Result<CpuSet, EalError> {
    let mine = CpuSet::of_this_thread().map_err(|source| EalError::Affinity { source })?;
    let known = narrowed().iter().find(|eal| eal.control == mine).map(|eal| eal.allowed.clone());
    Ok(known.unwrap_or(mine))
}

/// Holds the thread that made an `Eal` off its lcores.
#[derive(Debug)]
pub(crate) struct OffLcores {
    thread: ThreadId,
    control: CpuSet,
}

impl OffLcores {
    /// Moves the calling thread.
    pub(crate) fn this_thread(control: &CpuSet, allowed: &CpuSet) -> Result<Self, EalError> {
        let thread = std::thread::current().id();
        let pin =
            |source| EalError::Pin { thread: "the control thread".into(), cpus: control.clone(), source };
        control.pin_this_thread().map_err(pin)?;
        slice::short();
        narrowed().push(Narrowed { thread, control: control.clone(), allowed: allowed.clone() });
        Ok(Self { thread, control: control.clone() })
    }
}

impl Drop for OffLcores {
    fn drop(&mut self) {
        let mut all = narrowed();
        let Some(index) = all.iter().position(|eal| eal.thread == self.thread && eal.control == self.control)
        else {
            return;
        };
        let gone = all.remove(index);
        if self.thread == std::thread::current().id() {
            let last = all.iter().rev().find(|eal| eal.thread == self.thread);
            // Not worth an error on the way out: the thread keeps running where it is.
            let _kept = last.map_or(&gone.allowed, |eal| &eal.control).pin_this_thread();
            if last.is_none() {
                slice::usual();
            }
        }
    }
}

/// Waits for a thread's end, unless it is the calling one: that goes on to its end by itself.
pub(crate) fn join_other<R>(thread: JoinHandle<R>) {
    if thread.thread().id() != std::thread::current().id() {
        // Threads of an `Eal` catch and report their panics, so there is nothing to tell.
        let _ended = thread.join();
    }
}

/// Makes the control threads of one `Eal`. Clones make threads of the same `Eal`.
#[derive(Clone, Debug)]
pub(crate) struct Controls {
    cpus: CpuSet,
    logs: tracing::Dispatch,
    pub(crate) reporter: Reporter,
    living: Arc<Living>,
}

#[derive(Debug, Default)]
struct Living {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// Counts a thread for as long as it runs.
struct Counted(Arc<Living>);

thread_local! {
    /// Where the calling thread is counted, if it is a control thread of the application.
    static COUNTED_IN: Cell<*const Living> = const { Cell::new(std::ptr::null()) };
}

/// The calling thread is the counted one.
struct Running {
    _counted: Counted,
}

impl Running {
    fn here(counted: Counted) -> Self {
        COUNTED_IN.set(Arc::as_ptr(&counted.0));
        Self { _counted: counted }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        COUNTED_IN.set(std::ptr::null());
    }
}

impl Counted {
    fn new(living: &Arc<Living>) -> Self {
        *living.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(Arc::clone(living))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.fewer.notify_all();
    }
}

impl Controls {
    pub(crate) fn new(cpus: CpuSet, logs: tracing::Dispatch, reporter: Reporter) -> Self {
        Self { cpus, logs, reporter, living: Arc::default() }
    }

    /// A thread `control-NAME` with this `Eal`'s CPUs and log; its panic stops the `Eal`. `Eal`'s own: it is not waited
    /// for by [`Controls::wait_all`].
    pub(crate) fn spawn<R: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<JoinHandle<Result<R, Panicked>>, EalError> {
        let thread = format!("control-{name}");
        let (cpus, logs, reporter) = (self.cpus.clone(), self.logs.clone(), self.reporter.clone());
        let body = move || {
            slice::short();
            tracing::dispatcher::with_default(&logs, || {
                // Its maker may be an lcore, whose CPUs it would inherit.
                if let Err(error) = cpus.pin_this_thread() {
                    tracing::warn!(target: "lib.eal", "cannot keep this control thread on CPUs {cpus}: {error}");
                }
                reporter.guard(work)
            })
        };
        std::thread::Builder::new()
            .name(thread.clone())
            .spawn(body)
            .map_err(|source| EalError::Thread { thread, source })
    }

    /// The same for the application.
    pub(crate) fn spawn_counted<R: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(&StopFlag) -> R + Send + 'static,
    ) -> Result<ControlThread<R>, EalError> {
        let counted = Counted::new(&self.living);
        let stop = self.reporter.stop.clone();
        let thread = self.spawn(name, move || {
            let _counted = Running::here(counted);
            work(&stop)
        })?;
        Ok(ControlThread(thread))
    }

    /// Sleeps until the application's control threads have ended, but for the calling one.
    pub(crate) fn wait_all(&self) {
        let own = usize::from(std::ptr::eq(COUNTED_IN.get(), Arc::as_ptr(&self.living)));
        let mut count = self.living.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > own {
            count = self.living.fewer.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A control thread of the application. Dropping it lets the thread run on; the `Eal` waits for it at its end.
#[derive(Debug)]
pub struct ControlThread<R>(JoinHandle<Result<R, Panicked>>);

impl<R> ControlThread<R> {
    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Sleeps until it has ended.
    ///
    /// # Errors
    /// [`Panicked`] when it panicked.
    pub fn wait(self) -> Result<R, Panicked> {
        self.0.join().unwrap_or_else(|_| unreachable!("panics are caught inside the thread"))
    }
}
