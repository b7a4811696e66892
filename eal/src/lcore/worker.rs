//! The thread of one lcore: sleeps, runs a job, sleeps again.

use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::id::CURRENT;
use super::{LcoreContext, LcoreRole, LcoreState, Member};
use crate::EalError;
use crate::panic::Reporter;

/// Something to run. Whatever it captured is gone when the call returns.
pub(crate) type Job = Box<dyn FnOnce(&LcoreContext) + Send>;

#[derive(Default)]
struct Inbox {
    job: Option<Job>,
    quit: bool,
    running: bool,
    /// How many jobs were taken in; the newest job's number.
    accepted: u64,
    /// How many have returned.
    done: u64,
    /// The newest job whose result was taken, or that nobody waits for.
    collected: u64,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("running", &self.running)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

/// Room for one job on a worker, which takes no other meanwhile. The job is given after that is known, so that one that is
/// refused stays with its owner and is dropped without a lock held.
pub(crate) struct Vacancy<'a> {
    inbox: MutexGuard<'a, Inbox>,
    changed: &'a Condvar,
}

impl Vacancy<'_> {
    /// Gives the thread a job and returns the job's number.
    pub(crate) fn take(mut self, job: Job) -> u64 {
        self.inbox.job = Some(job);
        self.inbox.running = true;
        self.inbox.accepted += 1;
        self.changed.notify_all();
        self.inbox.accepted
    }
}

/// An lcore that the EAL made.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) member: Arc<Member>,
    inbox: Mutex<Inbox>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a job of the application.
    pub(crate) fn vacancy(&self) -> Result<Vacancy<'_>, EalError> {
        let lcore = self.member.id;
        if self.member.role != LcoreRole::Dataplane {
            return Err(EalError::WrongRole { lcore, role: self.member.role, action: "be launched on" });
        }
        self.vacancy_any_role()
    }

    /// The same for the EAL's own jobs.
    pub(crate) fn vacancy_any_role(&self) -> Result<Vacancy<'_>, EalError> {
        let inbox = self.inbox();
        if inbox.quit {
            return Err(EalError::ShutDown { subject: "a launch" });
        }
        if inbox.running {
            return Err(EalError::LcoreBusy { lcore: self.member.id });
        }
        Ok(Vacancy { inbox, changed: &self.changed })
    }

    pub(crate) fn state(&self) -> LcoreState {
        let inbox = self.inbox();
        match (inbox.running, inbox.collected == inbox.done) {
            (true, _) => LcoreState::Running,
            (false, false) => LcoreState::Finished,
            (false, true) => LcoreState::Wait,
        }
    }

    /// Whether job `number` has returned.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.inbox().done >= number
    }

    /// Sleeps until job `number` has returned or the deadline has passed; whether it has returned.
    pub(crate) fn wait_done(&self, number: u64, deadline: Option<Instant>) -> bool {
        let mut inbox = self.inbox();
        while inbox.done < number {
            inbox = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return false,
                Some(left) => {
                    self.changed.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    pub(crate) fn is_this_thread(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// Sleeps until nothing runs here.
    pub(crate) fn wait_idle(&self) {
        let newest = self.inbox().accepted;
        self.wait_done(newest, None);
    }

    /// Nobody will ask for the result of job `number` any more.
    pub(crate) fn collect(&self, number: u64) {
        let mut inbox = self.inbox();
        inbox.collected = inbox.collected.max(number);
    }

    pub(crate) fn quit(&self) {
        self.inbox().quit = true;
        self.changed.notify_all();
    }

    /// Waits for the thread's end, unless this is the thread.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            crate::control::join_other(thread);
        }
    }

    fn run(&self, reporter: &Reporter, logs: &tracing::Dispatch, started: Sender<Result<(), EalError>>) {
        let thread = format!("lcore-{}", self.member.id);
        if let Err(source) = self.member.cpus.pin_this_thread() {
            let _nobody_waits =
                started.send(Err(EalError::Pin { thread, cpus: self.member.cpus.clone(), source }));
            return;
        }
        // Its maker is a control thread, which has another.
        super::slice::usual();
        CURRENT.set(Some(self.member.id));
        tracing::dispatcher::with_default(logs, || {
            let _slot = super::lease_slot(self.member.id);
            let context = LcoreContext::new(Arc::clone(&self.member), reporter.stop.clone());
            let _nobody_waits = started.send(Ok(()));
            drop(started);
            while let Some(job) = self.next_job() {
                // Jobs catch the panics of what they run; here are those of what goes with a job, such as a result that
                // nobody takes.
                let _reported = reporter.guard(|| job(&context));
                let mut inbox = self.inbox();
                inbox.running = false;
                inbox.done += 1;
                self.changed.notify_all();
            }
            // Timers that never came due go with it, and what they captured.
            let _reported = reporter.guard(|| drop(context));
        });
    }

    /// A job that was taken in is run even when the end has come: it finds the stop flag set.
    fn next_job(&self) -> Option<Job> {
        let mut inbox = self.inbox();
        loop {
            if let Some(job) = inbox.job.take() {
                return Some(job);
            }
            if inbox.quit {
                return None;
            }
            inbox = self.changed.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Makes all threads at once, then waits for each to be pinned. On an error none is left.
pub(crate) fn start_all(
    members: impl Iterator<Item = Member>,
    reporter: &Reporter,
    logs: &tracing::Dispatch,
) -> Result<Vec<Arc<Worker>>, EalError> {
    let mut workers = Vec::new();
    let (started, answers) = channel();
    let mut outcome = Ok(());
    for member in members {
        let name = format!("lcore-{}", member.id);
        let worker = Arc::new(Worker {
            member: Arc::new(member),
            inbox: Mutex::default(),
            changed: Condvar::new(),
            thread: Mutex::default(),
        });
        let body = {
            let (worker, reporter, logs, started) =
                (Arc::clone(&worker), reporter.clone(), logs.clone(), started.clone());
            move || worker.run(&reporter, &logs, started)
        };
        match std::thread::Builder::new().name(name.clone()).spawn(body) {
            Ok(thread) => *worker.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread),
            Err(source) => {
                outcome = Err(EalError::Thread { thread: name, source });
                break;
            }
        }
        workers.push(worker);
    }
    drop(started);
    let outcome = answers.iter().fold(outcome, Result::and);
    if outcome.is_err() {
        workers.iter().for_each(|worker| worker.quit());
        workers.iter().for_each(|worker| worker.join());
    }
    outcome.map(|()| workers)
}
