//! The thread of one lcore: sleeps, runs a job, sleeps again.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::{CURRENT, LcoreContext, LcoreRole, LcoreState, Member};
use crate::{EalError, StopFlag};

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

    /// Gives the thread a job and returns the job's number.
    pub(crate) fn submit(&self, job: Job) -> Result<u64, EalError> {
        let lcore = self.member.id;
        if self.member.role != LcoreRole::Dataplane {
            return Err(EalError::WrongRole { lcore, role: self.member.role, action: "be launched on" });
        }
        self.submit_any_role(job)
    }

    /// The same for the EAL's own jobs.
    pub(crate) fn submit_any_role(&self, job: Job) -> Result<u64, EalError> {
        let mut inbox = self.inbox();
        if inbox.quit {
            return Err(EalError::ShutDown { subject: "a launch" });
        }
        if inbox.running {
            return Err(EalError::LcoreBusy { lcore: self.member.id });
        }
        inbox.job = Some(job);
        inbox.running = true;
        inbox.accepted += 1;
        self.changed.notify_all();
        Ok(inbox.accepted)
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

    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Jobs catch their own panics, so the thread has nothing to tell.
            let _ended = thread.join();
        }
    }

    fn run(&self, stop: StopFlag, logs: &tracing::Dispatch, started: Sender<Result<(), EalError>>) {
        let thread = format!("lcore-{}", self.member.id);
        if let Err(source) = self.member.cpus.pin_this_thread() {
            let _nobody_waits =
                started.send(Err(EalError::Pin { thread, cpus: self.member.cpus.clone(), source }));
            return;
        }
        // Its maker is a control thread, which has another.
        super::slice::usual();
        let slot = crate::slot::lease();
        CURRENT.set(Some(self.member.id));
        let context = LcoreContext::new(Arc::clone(&self.member), stop);
        let _nobody_waits = started.send(Ok(()));
        drop(started);
        tracing::dispatcher::with_default(logs, || {
            if slot.is_none() {
                tracing::warn!(
                    target: "lib.eal",
                    "lcore {}: all {} cache slots are taken, its pools work uncached",
                    self.member.id,
                    crate::slot::SLOTS
                );
            }
            while let Some(job) = self.next_job() {
                // Jobs catch panics to report them; this guards the thread against a panic while doing so.
                let _reported = catch_unwind(AssertUnwindSafe(|| job(&context)));
                let mut inbox = self.inbox();
                inbox.running = false;
                inbox.done += 1;
                self.changed.notify_all();
            }
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
    stop: &StopFlag,
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
            let (worker, stop, logs, started) =
                (Arc::clone(&worker), stop.clone(), logs.clone(), started.clone());
            move || worker.run(stop, &logs, started)
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
