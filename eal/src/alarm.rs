//! Alarms: one call each, at a time, on the thread `control-alarm`.
//!
//! An alarm is never early. Two alarms are called in the order of their times, and in the order they were set when the
//! times are equal; one call at a time. A callback may set and cancel alarms, itself included. The thread is made with
//! the first alarm.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use crate::control::{Controls, join_other};
use crate::{EalError, Panicked};

type Callback = Box<dyn FnOnce() + Send>;

/// When it is due, and a number that is never used twice.
type Key = (Instant, u64);

/// An alarm set for later than this is as good as never.
const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);

#[derive(Default)]
struct State {
    pending: BTreeMap<Key, Callback>,
    number: u64,
    running: Option<Key>,
    down: bool,
    thread: Option<JoinHandle<Result<(), Panicked>>>,
    thread_id: Option<ThreadId>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    controls: Controls,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The alarms of one `Eal`. Clones are the same alarms.
#[derive(Clone)]
pub struct Alarms(Arc<Shared>);

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarms").field("pending", &self.0.state().pending.len()).finish()
    }
}

/// An alarm that was set. Dropping it leaves the alarm set.
#[derive(Clone, Debug)]
pub struct Alarm {
    alarms: Alarms,
    key: Key,
}

/// Result of [`Alarm::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The callback will not run.
    Cancelled,
    /// The callback has finished, or the alarm was cancelled before.
    TooLate,
    /// The caller is the running callback itself.
    InCallback,
}

impl Alarms {
    pub(crate) fn new(controls: Controls) -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), controls }))
    }

    /// Has `callback` called once, `delay` from now or as soon after as the thread gets to it. A panic in it stops the
    /// `Eal`, as that of an lcore does.
    ///
    /// # Errors
    /// [`EalError::ShutDown`]; [`EalError::Thread`] when the first alarm cannot have its thread.
    #[doc(alias = "rte_eal_alarm_set")]
    pub fn set(&self, delay: Duration, callback: impl FnOnce() + Send + 'static) -> Result<Alarm, EalError> {
        // The time is read before the lock is waited for, which can only make the alarm later.
        let due = Instant::now() + delay.min(FAR);
        let mut state = self.0.state();
        if state.down {
            return Err(EalError::ShutDown { subject: "an alarm" });
        }
        if state.thread.is_none() {
            let alarms = self.clone();
            let thread = self.0.controls.spawn("alarm", move || alarms.run())?;
            state.thread_id = Some(thread.thread().id());
            state.thread = Some(thread);
        }
        state.number += 1;
        let key = (due, state.number);
        let is_next = state.pending.first_key_value().is_none_or(|(first, _)| key < *first);
        state.pending.insert(key, Box::new(callback));
        drop(state);
        if is_next {
            self.0.changed.notify_all();
        }
        Ok(Alarm { alarms: self.clone(), key })
    }

    /// Returns the number of pending alarms.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.0.state().pending.len()
    }

    fn run(&self) {
        let shared = &*self.0;
        let mut state = shared.state();
        while !state.down {
            let Some(next) = state.pending.first_entry() else {
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = next.key().0.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let (key, callback) = next.remove_entry();
            state.running = Some(key);
            drop(state);
            // Reported there; the other alarms go on until the stop has reached them.
            let _reported = shared.controls.reporter.guard(callback);
            state = shared.state();
            state.running = None;
            shared.changed.notify_all();
        }
    }

    /// Calls no more, and waits for the call under way.
    pub(crate) fn end(&self) {
        let mut state = self.0.state();
        state.down = true;
        let thread = state.thread.take();
        // A callback that is never called may hold the last handle of anything: it goes outside the lock.
        let never_called = std::mem::take(&mut state.pending);
        drop(state);
        self.0.changed.notify_all();
        never_called.into_values().for_each(|callback| self.0.controls.reporter.let_go(callback));
        // Called by one of its callbacks, this is that thread: it ends when the callback has returned.
        if let Some(thread) = thread {
            join_other(thread);
        }
    }
}

impl Alarm {
    /// Takes the alarm back. If it is being called at this moment, waits until the call is over, so that what the callback
    /// uses may go when this returns; only inside that very call it does not wait.
    #[doc(alias = "rte_eal_alarm_cancel")]
    pub fn cancel(&self) -> Cancel {
        let shared = &*self.alarms.0;
        let mut state = shared.state();
        if let Some(callback) = state.pending.remove(&self.key) {
            drop(state);
            drop(callback);
            return Cancel::Cancelled;
        }
        if state.running == Some(self.key) && state.thread_id == Some(std::thread::current().id()) {
            return Cancel::InCallback;
        }
        while state.running == Some(self.key) {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Cancel::TooLate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StopFlag;
    use crate::lcore::CpuSet;
    use crate::panic::Reporter;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    const LONG: Duration = Duration::from_secs(60);

    fn alarms() -> Alarms {
        let cpus = CpuSet::of_this_thread().expect("an affinity");
        let reporter = Reporter::new(StopFlag::new().expect("an event file"));
        Alarms::new(Controls::new(cpus, tracing::Dispatch::none(), reporter))
    }

    fn tell<T: Send + 'static>(sender: &Sender<T>, value: T) -> impl FnOnce() + Send + 'static {
        let sender = sender.clone();
        move || sender.send(value).expect("the test waits")
    }

    #[test]
    fn never_early_and_in_order() {
        let alarms = alarms();
        let (sender, called) = channel();
        for us in [5_000, 1, 20_000, 300, 1, 10_000] {
            let due = Instant::now() + Duration::from_micros(us);
            let sender = sender.clone();
            let callback = move || {
                let name = std::thread::current().name().map(str::to_owned);
                sender.send((us, Instant::now().checked_duration_since(due), name)).expect("the test waits");
            };
            alarms.set(Duration::from_micros(us), callback).expect("set");
        }
        let mut order = Vec::new();
        for _ in 0..6 {
            let (us, late, name) = called.recv_timeout(LONG).expect("called");
            assert!(late.is_some(), "{us} us was early");
            assert_eq!(name.as_deref(), Some("control-alarm"));
            order.push(us);
        }
        assert_eq!(order[3..], [5_000, 10_000, 20_000]);
        alarms.end();
    }

    #[test]
    fn equal_times_keep_the_order_of_setting() {
        let alarms = alarms();
        let (sender, called) = channel();
        let due = Instant::now() + Duration::from_millis(20);
        // `set` reads the time itself, so the table is filled by hand to have one time for all.
        alarms.set(LONG, || ()).expect("the thread is made");
        let mut state = alarms.0.state();
        for number in (100..200).rev() {
            state.pending.insert((due, number), Box::new(tell(&sender, number)));
        }
        drop(state);
        alarms.set(Duration::ZERO, || ()).expect("wakes the thread");
        let order: Vec<u64> = (0..100).map(|_| called.recv_timeout(LONG).expect("called")).collect();
        assert!(order.is_sorted());
        assert_eq!(alarms.pending(), 1);
        alarms.end();
        assert_eq!(alarms.pending(), 0);
        assert!(matches!(alarms.set(LONG, || ()), Err(EalError::ShutDown { .. })));
    }

    #[test]
    fn cancelled_before_its_time_it_is_not_called() {
        let alarms = alarms();
        let (sender, called) = channel();
        let never = alarms.set(Duration::from_millis(30), tell(&sender, "cancelled")).expect("set");
        let far = alarms.set(Duration::MAX, tell(&sender, "far")).expect("set");
        alarms.set(Duration::from_millis(60), tell(&sender, "kept")).expect("set");
        assert_eq!(never.cancel(), Cancel::Cancelled);
        assert_eq!(never.cancel(), Cancel::TooLate);
        assert_eq!(called.recv_timeout(LONG), Ok("kept"));
        assert_eq!(far.cancel(), Cancel::Cancelled);
        alarms.end();
        assert!(called.try_recv().is_err());
    }

    #[test]
    fn a_callback_may_cancel_and_set() {
        let alarms = alarms();
        let (sender, called) = channel();
        let (own, handle) = channel::<Alarm>();
        let inside = alarms.clone();
        let later = alarms.set(LONG, || ()).expect("set");
        let answer = sender.clone();
        let callback = move || {
            let me = handle.recv().expect("its own handle");
            answer.send(me.cancel()).expect("the test waits");
            answer.send(later.cancel()).expect("the test waits");
            inside.set(Duration::from_micros(10), tell(&answer, Cancel::TooLate)).expect("set again");
        };
        let alarm = alarms.set(Duration::from_millis(1), callback).expect("set");
        own.send(alarm).expect("it listens");
        let seen: Vec<_> = (0..3).map(|_| called.recv_timeout(LONG).expect("called")).collect();
        assert_eq!(seen, [Cancel::InCallback, Cancel::Cancelled, Cancel::TooLate]);
        alarms.end();
    }

    #[test]
    fn cancelling_a_call_under_way_waits_for_its_end() {
        let alarms = alarms();
        let over = Arc::new(AtomicBool::new(false));
        let (sender, begun) = channel();
        let mark = Arc::clone(&over);
        let callback = move || {
            sender.send(()).expect("the test waits");
            std::thread::sleep(Duration::from_millis(30));
            mark.store(true, Ordering::Release);
        };
        let alarm = alarms.set(Duration::ZERO, callback).expect("set");
        begun.recv_timeout(LONG).expect("called");
        assert_eq!(alarm.cancel(), Cancel::TooLate);
        assert!(over.load(Ordering::Acquire), "the call was over when cancel returned");
        alarms.end();
    }

    #[test]
    fn each_is_called_or_cancelled_and_never_both() {
        let alarms = alarms();
        let called = Arc::new(AtomicUsize::new(0));
        let mut cancelled = 0;
        for round in 0..2_000u64 {
            let count = Arc::clone(&called);
            let callback = move || {
                count.fetch_add(1, Ordering::Relaxed);
            };
            let alarm = alarms.set(Duration::from_micros(round % 60), callback).expect("set");
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(round % 37) {
                std::hint::spin_loop();
            }
            match alarm.cancel() {
                Cancel::Cancelled => cancelled += 1,
                Cancel::TooLate => {}
                Cancel::InCallback => unreachable!("this is not the alarm thread"),
            }
            assert_eq!(called.load(Ordering::Relaxed) + cancelled, round as usize + 1);
        }
        println!("{cancelled} of 2000 cancelled in time");
        alarms.end();
    }

    #[test]
    fn a_panic_is_reported_and_the_next_alarm_still_comes() {
        let alarms = alarms();
        let (sender, called) = channel();
        alarms.set(Duration::ZERO, || panic!("an alarm that fails")).expect("set");
        alarms.set(Duration::from_millis(5), tell(&sender, ())).expect("set");
        called.recv_timeout(LONG).expect("called");
        assert!(alarms.0.controls.reporter.stop.is_set());
        let seen = alarms.0.controls.reporter.seen();
        assert_eq!(seen[0].to_string(), "control-alarm panicked: an alarm that fails");
        alarms.end();
    }
}
