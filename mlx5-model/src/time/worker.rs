//! The threads of threaded models.
//!
//! All models of a process that name no core share the thread `model-any`; those that name core *n* share `model-N`. A thread
//! steps its models in turn. When none of them has work, it looks again a few microseconds long, then sleeps between looks,
//! longer each time up to a millisecond: a doorbell is a plain store that wakes nobody, and on two cores a thread that spins
//! takes the time of the application that it waits for.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use std::sync::atomic::{AtomicU64, Ordering};

use pollux_eal::lcore::CpuSet;

use crate::ModelError;

/// Looks without a pause before the first sleep.
const LOOKS: u32 = 32;
/// The first sleep, and the longest.
const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// What a thread steps.
pub(crate) trait Steps: Send + Sync {
    /// One step; whether there was anything to do.
    fn step(&self) -> bool;

    /// What it is, for messages.
    fn name(&self) -> String;
}

/// Process and core of a thread: a forked child has none of its parent's.
type Place = (u32, Option<u16>);

/// The threads.
static WORKERS: Mutex<Option<HashMap<Place, Arc<Worker>>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread and those who come and go share.
struct Worker {
    list: Mutex<List>,
    /// The thread has taken over a new list.
    taken: Condvar,
    /// Equal to the list's `version`; read by the thread in each round.
    version: AtomicU64,
}

#[derive(Default)]
struct List {
    models: Vec<(u64, Arc<dyn Steps>)>,
    version: u64,
    /// The version that the thread goes by.
    seen: u64,
    next_id: u64,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl Worker {
    fn change(&self, list: &mut List) {
        list.version += 1;
        self.version.store(list.version, Ordering::Release);
    }
}

/// Keeps a model running; dropping it waits until the thread has let go of the model, and ends the thread with its last one.
pub(crate) struct Running {
    core: Option<u16>,
    id: u64,
    worker: Arc<Worker>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("thread", &thread_name(self.core)).finish_non_exhaustive()
    }
}

fn thread_name(core: Option<u16>) -> String {
    core.map_or_else(|| "model-any".into(), |core| format!("model-{core}"))
}

/// Has `model` stepped from now on.
pub(crate) fn run(model: Arc<dyn Steps>, core: Option<u16>) -> Result<Running, ModelError> {
    // Held to the end, so that a thread that ends and one that begins do not meet.
    let mut guard = locked(&WORKERS);
    let workers = guard.get_or_insert_default();
    let key = (std::process::id(), core);
    let worker = match workers.get(&key) {
        Some(worker) => Arc::clone(worker),
        None => {
            let worker = Arc::new(Worker {
                list: Mutex::default(),
                taken: Condvar::new(),
                version: AtomicU64::new(0),
            });
            let thread = start(&worker, core)?;
            locked(&worker.list).thread = Some(thread);
            workers.insert(key, Arc::clone(&worker));
            worker
        }
    };
    let mut list = locked(&worker.list);
    let id = list.next_id;
    list.next_id += 1;
    list.models.push((id, model));
    worker.change(&mut list);
    drop(list);
    Ok(Running { core, id, worker })
}

fn start(worker: &Arc<Worker>, core: Option<u16>) -> Result<JoinHandle<()>, ModelError> {
    let name = thread_name(core);
    let failed = |operation, mend| {
        let thread = name.clone();
        move |source| ModelError::Thread { thread, operation, source, mend }
    };
    // The thread reports in this once it is where it shall be.
    let (tell, placed) = std::sync::mpsc::channel();
    let worker = Arc::clone(worker);
    let logs = tracing::dispatcher::get_default(Clone::clone);
    let thread = std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            let ready = place(core);
            let fine = ready.is_ok();
            // The other end waits for it.
            let _told = tell.send(ready);
            if fine {
                tracing::dispatcher::with_default(&logs, || body(&worker));
            }
        })
        .map_err(failed("start", ""))?;
    match placed.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(source)) => {
            let _ended = thread.join();
            Err(failed("run on that core", "; give core= a CPU that this process may use, or leave it out")(
                source,
            ))
        }
        Err(_) => Err(failed("start", "")(std::io::ErrorKind::Interrupted.into())),
    }
}

fn place(core: Option<u16>) -> std::io::Result<()> {
    pollux_eal::signal::keep_off_this_thread()?;
    // Without it the kernel adds up to 50 us to each sleep. Refused by nobody, and no harm if it were.
    let _slack = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
    match core {
        Some(core) => std::iter::once(core).collect::<CpuSet>().pin_this_thread(),
        None => Ok(()),
    }
}

fn body(worker: &Worker) {
    let mut models = Vec::new();
    let mut seen = 0;
    let mut idle = Idle::default();
    loop {
        if worker.version.load(Ordering::Acquire) != seen {
            // Let go before saying so.
            models.clear();
            let mut list = locked(&worker.list);
            models.extend(list.models.iter().cloned());
            seen = list.version;
            list.seen = seen;
            worker.taken.notify_all();
            if list.ended {
                return;
            }
        }
        let mut worked = false;
        for (id, model) in &models {
            match catch_unwind(AssertUnwindSafe(|| model.step())) {
                Ok(one) => worked |= one,
                Err(_) => {
                    tracing::error!(
                        target: "model.worker", "{}: a step of this device panicked; the device stands still",
                        model.name()
                    );
                    let mut list = locked(&worker.list);
                    list.models.retain(|(other, _)| other != id);
                    worker.change(&mut list);
                }
            }
        }
        idle.after(worked);
    }
}

/// How long nothing has been done.
#[derive(Debug, Default)]
struct Idle {
    looks: u32,
}

impl Idle {
    fn after(&mut self, worked: bool) {
        self.looks = if worked { 0 } else { self.looks.saturating_add(1) };
        match self.pause() {
            None => std::hint::spin_loop(),
            Some(pause) => std::thread::sleep(pause),
        }
    }

    fn pause(&self) -> Option<Duration> {
        let sleeps = self.looks.checked_sub(LOOKS)?;
        // Several sleeps of each length: traffic that comes every 100 us does not wait for longer than that.
        Some((SLEEP_MIN * (1 << (sleeps / 8).min(6))).min(SLEEP_MAX))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut guard = locked(&WORKERS);
        let mut list = locked(&self.worker.list);
        list.models.retain(|(id, _)| *id != self.id);
        list.ended = list.models.is_empty();
        self.worker.change(&mut list);
        let own =
            list.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id());
        let ended = if list.ended { list.thread.take() } else { None };
        if ended.is_some() {
            guard.as_mut().and_then(|workers| workers.remove(&(std::process::id(), self.core)));
        }
        drop(guard);
        if own {
            // Dropped by the model's own step: the thread cannot wait for itself.
            return;
        }
        while list.seen != list.version {
            list = self.worker.taken.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        drop(list);
        if let Some(thread) = ended {
            // A panic of a step is caught, one elsewhere in the thread has been printed.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    #[derive(Default)]
    struct Counting {
        steps: AtomicU64,
        busy: AtomicBool,
        bad: AtomicBool,
        name: Mutex<String>,
    }

    impl Steps for Counting {
        fn step(&self) -> bool {
            *locked(&self.name) = std::thread::current().name().unwrap_or_default().into();
            self.steps.fetch_add(1, Ordering::Relaxed);
            assert!(!self.bad.load(Ordering::Relaxed), "a step that panics (on purpose)");
            self.busy.load(Ordering::Relaxed)
        }

        fn name(&self) -> String {
            "counting".into()
        }
    }

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn models_are_stepped_until_they_are_dropped() {
        let (first, second) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
        let one = run(first.clone(), None).expect("a thread");
        let two = run(second.clone(), None).expect("the same");
        until("both are stepped", || {
            first.steps.load(Ordering::Relaxed) > 3 && second.steps.load(Ordering::Relaxed) > 3
        });
        assert_eq!(*locked(&first.name), "model-any");
        drop(one);
        let count = first.steps.load(Ordering::Relaxed);
        assert_eq!(Arc::strong_count(&first), 1, "the thread has let go");
        let other = second.steps.load(Ordering::Relaxed);
        until("the other goes on", || second.steps.load(Ordering::Relaxed) > other);
        assert_eq!(first.steps.load(Ordering::Relaxed), count);
        drop(two);
        assert_eq!(Arc::strong_count(&second), 1);
    }

    #[test]
    fn a_core_has_a_thread_of_its_own() {
        let core = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
        let model = Arc::new(Counting::default());
        let running = run(model.clone(), Some(core)).expect("a thread");
        until("it is stepped", || model.steps.load(Ordering::Relaxed) > 0);
        assert_eq!(*locked(&model.name), format!("model-{core}"));
        drop(running);
        let error = run(model, Some(4000)).expect_err("no such core").to_string();
        let mend = "give core= a CPU that this process may use, or leave it out";
        assert!(error.starts_with(&format!("model-4000: cannot run on that core; {mend}: ")), "{error}");
    }

    #[test]
    fn a_step_that_panics_stops_its_own_device_alone() {
        // A core of its own: the thread is shared with no other test.
        let core = CpuSet::of_this_thread().expect("an affinity").as_slice().last().copied();
        let (good, bad) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
        bad.bad.store(true, Ordering::Relaxed);
        let running = (run(bad.clone(), core).expect("a thread"), run(good.clone(), core).expect("a thread"));
        until("the good one goes on", || good.steps.load(Ordering::Relaxed) > 10);
        assert_eq!(bad.steps.load(Ordering::Relaxed), 1);
        drop(running);
    }

    #[test]
    fn pauses_grow_and_work_ends_them() {
        let mut idle = Idle::default();
        assert_eq!(idle.pause(), None);
        idle.looks = LOOKS;
        assert_eq!(idle.pause(), Some(SLEEP_MIN));
        idle.looks = LOOKS + 8;
        assert_eq!(idle.pause(), Some(2 * SLEEP_MIN));
        idle.looks = u32::MAX;
        assert_eq!(idle.pause(), Some(SLEEP_MAX));
        idle.after(true);
        assert_eq!(idle.pause(), None);
    }

    #[test]
    fn an_idle_thread_sleeps() {
        let model = Arc::new(Counting::default());
        let core = CpuSet::of_this_thread().expect("an affinity").as_slice()[0];
        // Shared with another test at most, whose models are idle as well.
        let _running = run(model.clone(), Some(core)).expect("a thread");
        std::thread::sleep(Duration::from_millis(100));
        let before = model.steps.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(100));
        let steps = model.steps.load(Ordering::Relaxed) - before;
        assert!(steps < 2000, "{steps} looks in 0.1 s are no sleep");
    }
}
