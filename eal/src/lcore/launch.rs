//! Launching on lcores, and getting back what they return.
#![expect(unsafe_code, reason = "a scoped job is handed to a thread that outlives the scope")]

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::worker::Job;
use super::{LcoreContext, LcoreId, LcoreRole, LcoreState, Lcores, Worker};
use crate::panic::{Panicked, Reporter};
use crate::stop::StopReason;
use crate::{EalError, StopFlag};

/// Whether a launch on all lcores includes the main lcore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Main {
    /// Include it (DPDK: `CALL_MAIN`).
    Call,
    /// Skip it (DPDK: `SKIP_MAIN`).
    Skip,
}

type Outcome<R> = Arc<Mutex<Option<Result<R, Panicked>>>>;

/// A function launched on an lcore. Dropping the handle detaches it and discards its result.
pub struct Launched<R> {
    worker: Arc<Worker>,
    number: u64,
    outcome: Outcome<R>,
}

impl<R> Launched<R> {
    /// Returns the lcore it runs on.
    #[must_use]
    pub fn lcore(&self) -> LcoreId {
        self.worker.member.id
    }

    /// Returns whether it has returned or panicked.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.worker.is_done(self.number)
    }

    /// Waits until it returns; the lcore can then be launched on again.
    ///
    /// # Errors
    /// [`Panicked`] when it panicked instead.
    #[doc(alias = "rte_eal_wait_lcore")]
    pub fn wait(self) -> Result<R, Panicked> {
        self.worker.wait_done(self.number, None);
        self.take()
    }

    /// Like [`wait`](Self::wait), for at most `timeout`.
    ///
    /// # Errors
    /// Itself, when it still runs.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<R, Panicked>, Self> {
        let done = self.worker.wait_done(self.number, Instant::now().checked_add(timeout));
        if done { Ok(self.take()) } else { Err(self) }
    }

    fn take(&self) -> Result<R, Panicked> {
        self.worker.collect(self.number);
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.expect("a result is stored before the run counts as done, and taken once")
    }
}

impl<R> Drop for Launched<R> {
    fn drop(&mut self) {
        self.worker.collect(self.number);
    }
}

impl<R> fmt::Debug for Launched<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launched")
            .field("lcore", &self.lcore())
            .field("finished", &self.is_finished())
            .finish()
    }
}

type ScopedJob<'scope> = Box<dyn FnOnce(&LcoreContext) + Send + 'scope>;

/// Wraps `work` so that its end, good or bad, lands in the outcome and a panic stops the whole `Eal`.
fn job<'scope, F, R>(reporter: &Reporter, work: F) -> (ScopedJob<'scope>, Outcome<R>)
where
    F: FnOnce(&LcoreContext) -> R + Send + 'scope,
    R: Send + 'scope,
{
    let outcome: Outcome<R> = Arc::default();
    let (slot, reporter) = (Arc::clone(&outcome), reporter.clone());
    let run = move |context: &LcoreContext| {
        let result = reporter.guard(|| work(context));
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    };
    (Box::new(run), outcome)
}

impl Lcores {
    /// Runs `work` on an lcore.
    ///
    /// # Errors
    /// [`EalError::UnknownLcore`], [`EalError::LcoreBusy`], [`EalError::WrongRole`] for a service core,
    /// [`EalError::ShutDown`].
    pub fn launch<F, R>(&self, lcore: LcoreId, work: F) -> Result<Launched<R>, EalError>
    where
        F: FnOnce(&LcoreContext) -> R + Send + 'static,
        R: Send + 'static,
    {
        let worker = Arc::clone(self.worker(lcore)?);
        let (job, outcome) = job(&self.0.reporter, work);
        let number = worker.vacancy()?.take(job);
        Ok(Launched { worker, number, outcome })
    }

    /// Runs `work` on all dataplane lcores.
    ///
    /// # Errors
    /// As for [`Lcores::launch`]; what was launched before the one that failed runs on.
    pub fn launch_all<F, R>(&self, main: Main, work: F) -> Result<Vec<Launched<R>>, EalError>
    where
        F: Fn(&LcoreContext) -> R + Send + Sync + 'static,
        R: Send + 'static,
    {
        let work = Arc::new(work);
        let wanted = |lcore: &LcoreId| main == Main::Call || *lcore != self.main();
        let launch = |lcore| {
            let work = Arc::clone(&work);
            self.launch(lcore, move |context| work(context))
        };
        self.dataplane().into_iter().filter(wanted).map(launch).collect()
    }

    /// Returns the state of an lcore.
    ///
    /// # Errors
    /// [`EalError::UnknownLcore`].
    pub fn state(&self, lcore: LcoreId) -> Result<LcoreState, EalError> {
        Ok(self.worker(lcore)?.state())
    }

    /// Waits until an lcore is idle. Results stay with their [`Launched`].
    ///
    /// # Errors
    /// [`EalError::UnknownLcore`]; [`EalError::LcoreBusy`] when the caller is that lcore.
    pub fn wait(&self, lcore: LcoreId) -> Result<(), EalError> {
        let worker = self.worker(lcore)?;
        if worker.is_this_thread() {
            return Err(EalError::LcoreBusy { lcore });
        }
        worker.wait_idle();
        Ok(())
    }

    /// Waits until all dataplane lcores, except the calling one, are idle.
    pub fn wait_all(&self) {
        let dataplane = self.0.workers.iter().filter(|worker| worker.member.role == LcoreRole::Dataplane);
        dataplane.filter(|worker| !worker.is_this_thread()).for_each(|worker| worker.wait_idle());
    }

    /// Launches work that borrows from the caller: all of it has returned when `scope` returns, also what was launched on the
    /// scope by work that was.
    ///
    /// If `body` panics, the stop flag is set, so that what it launched comes to an end, and the panic goes on.
    pub fn scope<'env, F, T>(&'env self, body: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        let scope = Scope { lcores: self, jobs: Mutex::default(), _scope: PhantomData, _env: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        if result.is_err() {
            self.0.reporter.stop.set_because(StopReason::Panic);
        }
        // A job may launch more, as its last act too. Each launch is in the list before its launcher counts as done, so once
        // all that were in the list are done and it is empty, nobody is left who could launch.
        while let Some((worker, number)) = scope.next_job() {
            worker.wait_done(number, None);
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Where borrowing work is launched, see [`Lcores::scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    lcores: &'env Lcores,
    jobs: Mutex<Vec<(Arc<Worker>, u64)>>,
    // Invariant in both, as in `std::thread::scope`.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Runs `work` on an lcore.
    ///
    /// # Errors
    /// As for [`Lcores::launch`].
    pub fn launch<F, R>(&'scope self, lcore: LcoreId, work: F) -> Result<Launched<R>, EalError>
    where
        F: FnOnce(&LcoreContext) -> R + Send + 'scope,
        R: Send + 'scope,
    {
        let worker = Arc::clone(self.lcores.worker(lcore)?);
        // Refused, the job goes after the locks below are given back: what it captured may launch here when it is dropped.
        let (job, outcome) = job(&self.lcores.0.reporter, work);
        let known = Arc::clone(&worker);
        let mut jobs = self.jobs();
        jobs.reserve(1);
        let vacancy = worker.vacancy()?;
        // SAFETY: only the lifetime changes. `Lcores::scope` returns after the worker has counted this job as done, and
        // the worker counts it after the call has consumed the box and everything in it (`Worker::run`); so nothing of
        // 'scope is reached after 'scope. The job is in `jobs` whatever happens after it was accepted, and its launcher,
        // the scope's body or a job of it, has yet to end, so `scope` will look there again.
        let job = unsafe { std::mem::transmute::<ScopedJob<'scope>, Job>(job) };
        let number = vacancy.take(job);
        jobs.push((known, number));
        drop(jobs);
        Ok(Launched { worker, number, outcome })
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<(Arc<Worker>, u64)>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job that has to be waited for.
    fn next_job(&self) -> Option<(Arc<Worker>, u64)> {
        self.jobs().pop()
    }

    /// Returns the stop flag, which launched functions should check.
    #[must_use]
    pub fn stop_flag(&self) -> &StopFlag {
        &self.lcores.0.reporter.stop
    }
}
