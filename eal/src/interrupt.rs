//! Interrupts: files that become readable, and who is called then, on the thread `control-intr`.
//!
//! A source is armed when it is registered. An event disarms it and calls its callback, which answers with what comes next:
//! armed again ([`After::Rearm`]; the file must have been drained, or it fires again at once), left disarmed until
//! [`Interrupt::enable`] ([`After::Mask`], the hand-over to polling), or gone. Callbacks run one at a time. The thread is made
//! with the first source.
//!
//! A thread that wants to sleep on queues itself uses an [`EventSet`](crate::event::EventSet) instead.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::control::{Controls, join_other};
use crate::event::{EventFd, failed};
use crate::panic::Reporter;
use crate::{EalError, Panicked};

/// What becomes of a source after its callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It is armed again, unless it was disabled meanwhile.
    Rearm,
    /// It stays disarmed until [`Interrupt::enable`].
    Mask,
    /// It is no longer registered.
    Unregister,
}

type Callback = Box<dyn FnMut(BorrowedFd<'_>) -> After + Send>;
type File = Arc<dyn AsFd + Send + Sync>;

struct Source {
    file: File,
    /// Away while it is called.
    callback: Option<Callback>,
    enabled: bool,
}

impl Source {
    /// Drops it on a thread of the `Eal`.
    fn let_go(self, reporter: &Reporter) {
        reporter.let_go(self.callback);
        reporter.let_go(self.file);
    }
}

#[derive(Default)]
struct State {
    sources: HashMap<u64, Source>,
    number: u64,
    running: Option<u64>,
    down: bool,
    thread: Option<JoinHandle<Result<(), Panicked>>>,
    thread_id: Option<ThreadId>,
}

struct Shared {
    state: Mutex<State>,
    /// A callback has returned.
    returned: Condvar,
    epoll: OwnedFd,
    quit: EventFd,
    controls: Controls,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms or disarms. One-shot: the kernel disarms it with each event.
    fn arm(&self, file: &File, number: u64, armed: bool) -> Result<(), EalError> {
        let flags = if armed {
            epoll::EventFlags::IN | epoll::EventFlags::ONESHOT
        } else {
            epoll::EventFlags::ONESHOT
        };
        epoll::modify(&self.epoll, &**file, epoll::EventData::new_u64(number), flags)
            .map_err(failed("arm an interrupt"))
    }
}

/// The token of the file that ends the thread; sources count from 1.
const QUIT: u64 = 0;

/// At most this many events are taken at once; the rest stay for the next turn.
const EVENTS_MAX: usize = 32;

/// The interrupts of one `Eal`. Clones are the same interrupts.
#[derive(Clone)]
pub struct Interrupts(Arc<Shared>);

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupts").field("sources", &self.0.state().sources.len()).finish()
    }
}

/// A registered source. Dropping it unregisters the source.
#[derive(Debug)]
pub struct Interrupt {
    interrupts: Interrupts,
    number: u64,
}

impl Interrupts {
    pub(crate) fn new(controls: Controls) -> Result<Self, EalError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(failed("create an event set for interrupts"))?;
        let quit = EventFd::new()?;
        let data = epoll::EventData::new_u64(QUIT);
        epoll::add(&epoll, &quit, data, epoll::EventFlags::IN)
            .map_err(failed("watch for the end of interrupts"))?;
        Ok(Self(Arc::new(Shared {
            state: Mutex::default(),
            returned: Condvar::new(),
            epoll,
            quit,
            controls,
        })))
    }

    /// Has `callback` called when `file` is readable, or its other side is gone. The file stays open at least until the
    /// source is unregistered. A panic in the callback unregisters the source and stops the `Eal`, as that of an lcore does;
    /// a panic of what the callback captured, when that is dropped on the thread, stops the `Eal`.
    ///
    /// # Errors
    /// [`EalError::Event`] when the file cannot be waited for, as an ordinary file cannot; [`EalError::ShutDown`];
    /// [`EalError::Thread`] when the first source cannot have its thread.
    pub fn register<F, C>(&self, file: F, callback: C) -> Result<Interrupt, EalError>
    where
        F: AsFd + Send + Sync + 'static,
        C: FnMut(BorrowedFd<'_>) -> After + Send + 'static,
    {
        let file: File = Arc::new(file);
        let mut state = self.0.state();
        if state.down {
            return Err(EalError::ShutDown { subject: "an interrupt" });
        }
        if state.thread.is_none() {
            let interrupts = self.clone();
            let thread = self.0.controls.spawn("intr", move || interrupts.run())?;
            state.thread_id = Some(thread.thread().id());
            state.thread = Some(thread);
        }
        state.number += 1;
        let number = state.number;
        let data = epoll::EventData::new_u64(number);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&self.0.epoll, &*file, data, flags).map_err(failed("register an interrupt"))?;
        // The lock is held: an event that is here already waits for the source to be in the table.
        state.sources.insert(number, Source { file, callback: Some(Box::new(callback)), enabled: true });
        Ok(Interrupt { interrupts: self.clone(), number })
    }

    fn run(&self) {
        let shared = &*self.0;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            match epoll::wait(&shared.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    tracing::error!(target: "lib.eal", "waiting for interrupts failed: {errno}; no more interrupts will be delivered");
                    return;
                }
            }
            for event in &events {
                let number = event.data.u64();
                if number == QUIT {
                    return;
                }
                self.call(number);
            }
        }
    }

    fn call(&self, number: u64) {
        let shared = &*self.0;
        let mut state = shared.state();
        // An event may be on its way while its source is disabled or unregistered.
        let Some(source) = state.sources.get_mut(&number).filter(|source| source.enabled) else { return };
        let Some(mut callback) = source.callback.take() else { return };
        let file = Arc::clone(&source.file);
        state.running = Some(number);
        drop(state);
        // A callback that panicked is not called again.
        let after = shared.controls.reporter.guard(|| callback(file.as_fd())).unwrap_or(After::Unregister);
        let mut state = shared.state();
        let (mut gone, mut callback) = (None, Some(callback));
        if let Some(source) = state.sources.get_mut(&number) {
            source.callback = callback.take();
            match after {
                After::Rearm if source.enabled => {
                    if let Err(error) = shared.arm(&source.file, number, true) {
                        tracing::error!(target: "lib.eal", "{error}");
                    }
                }
                After::Rearm => {}
                After::Mask => source.enabled = false,
                After::Unregister => gone = self.remove(&mut state, number),
            }
        }
        // What the callback holds goes before the waiters are told that the call is over; and without the lock, as it may
        // hold handles of interrupts.
        drop(state);
        let reporter = &shared.controls.reporter;
        reporter.let_go(callback);
        reporter.let_go(file);
        if let Some(source) = gone {
            source.let_go(reporter);
        }
        shared.state().running = None;
        shared.returned.notify_all();
    }

    /// Takes a source out; what is returned is best dropped without the lock.
    fn remove(&self, state: &mut State, number: u64) -> Option<Source> {
        let source = state.sources.remove(&number)?;
        // It fails only if the file went out of the set before, which is as good.
        let _gone = epoll::delete(&self.0.epoll, &*source.file);
        Some(source)
    }

    /// Calls no more, and waits for the call under way.
    pub(crate) fn end(&self) {
        let mut state = self.0.state();
        state.down = true;
        let thread = state.thread.take();
        drop(state);
        self.0.quit.signal();
        // Called by one of its callbacks, this is that thread: it ends when the callback has returned.
        if let Some(thread) = thread {
            join_other(thread);
        }
        let sources = std::mem::take(&mut self.0.state().sources);
        sources.into_values().for_each(|source| source.let_go(&self.0.controls.reporter));
    }
}

impl Interrupt {
    /// Arms the source: after [`After::Mask`] or [`Interrupt::disable`]. If the file is readable, it fires at once.
    ///
    /// # Errors
    /// [`EalError::Event`] when the kernel refuses; [`EalError::ShutDown`] when the source is no longer registered.
    pub fn enable(&self) -> Result<(), EalError> {
        self.set_enabled(true)
    }

    /// Disarms the source. A call that is under way goes on.
    ///
    /// # Errors
    /// As for [`Interrupt::enable`].
    pub fn disable(&self) -> Result<(), EalError> {
        self.set_enabled(false)
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), EalError> {
        let shared = &*self.interrupts.0;
        let mut state = shared.state();
        let running = state.running == Some(self.number);
        let Some(source) = state.sources.get_mut(&self.number) else {
            return Err(EalError::ShutDown {
                subject: "a change of an interrupt that is no longer registered",
            });
        };
        source.enabled = enabled;
        // While it is called it is disarmed anyway, and the callback's answer decides.
        if running { Ok(()) } else { shared.arm(&source.file, self.number, enabled) }
    }

    /// Whether it is still registered.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.interrupts.0.state().sources.contains_key(&self.number)
    }
}

impl Drop for Interrupt {
    /// Unregisters. Waits for a call under way, unless this is that call.
    fn drop(&mut self) {
        let shared = &*self.interrupts.0;
        let mut state = shared.state();
        let source = self.interrupts.remove(&mut state, self.number);
        if state.thread_id != Some(std::thread::current().id()) {
            while state.running == Some(self.number) {
                state = shared.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        drop(state);
        drop(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StopFlag;
    use crate::event::EventSet;
    use crate::lcore::CpuSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(30);

    fn interrupts() -> Interrupts {
        let cpus = CpuSet::of_this_thread().expect("an affinity");
        let reporter = Reporter::new(StopFlag::new().expect("an event file"));
        Interrupts::new(Controls::new(cpus, tracing::Dispatch::none(), reporter)).expect("an event set")
    }

    fn event() -> Arc<EventFd> {
        Arc::new(EventFd::new().expect("an event file"))
    }

    #[test]
    fn a_callback_drains_and_is_called_for_the_next_event() {
        let interrupts = interrupts();
        let file = event();
        let (sender, called) = channel();
        let own = Arc::clone(&file);
        let callback = move |_: BorrowedFd<'_>| {
            let name = std::thread::current().name().map(str::to_owned);
            sender.send((own.drain(), name)).expect("the test waits");
            After::Rearm
        };
        let _source = interrupts.register(Arc::clone(&file), callback).expect("registered");
        for _ in 0..3 {
            file.signal();
            assert_eq!(called.recv_timeout(LONG), Ok((1, Some("control-intr".into()))));
        }
        assert!(called.recv_timeout(SHORT).is_err(), "no event, no call");
        interrupts.end();
        assert!(interrupts.register(file, |_| After::Mask).is_err());
    }

    #[test]
    fn masked_it_is_silent_until_enabled() {
        let interrupts = interrupts();
        let file = event();
        let (sender, called) = channel();
        let callback = move |_: BorrowedFd<'_>| {
            sender.send(()).expect("the test waits");
            After::Mask
        };
        let source = interrupts.register(Arc::clone(&file), callback).expect("registered");
        file.signal();
        called.recv_timeout(LONG).expect("called once");
        assert!(called.recv_timeout(SHORT).is_err(), "undrained, but masked");
        source.enable().expect("enabled");
        called.recv_timeout(LONG).expect("called as it was not drained");
        assert_eq!(file.drain(), 1);
        source.enable().expect("enabled");
        source.disable().expect("disabled");
        file.signal();
        assert!(called.recv_timeout(SHORT).is_err(), "disabled");
        source.enable().expect("enabled");
        called.recv_timeout(LONG).expect("called");
        interrupts.end();
    }

    #[test]
    fn unregistering_waits_for_the_call_under_way() {
        let interrupts = interrupts();
        let file = event();
        let (sender, begun) = channel();
        let over = Arc::new(AtomicUsize::new(0));
        let mark = Arc::clone(&over);
        let callback = move |_: BorrowedFd<'_>| {
            sender.send(()).expect("the test waits");
            std::thread::sleep(SHORT);
            mark.fetch_add(1, Ordering::Release);
            After::Rearm
        };
        let source = interrupts.register(Arc::clone(&file), callback).expect("registered");
        file.signal();
        begun.recv_timeout(LONG).expect("called");
        drop(source);
        assert_eq!(over.load(Ordering::Acquire), 1);
        assert!(begun.recv_timeout(SHORT).is_err(), "never called again");
        interrupts.end();
    }

    #[test]
    fn a_callback_can_end_itself_or_panic() {
        let interrupts = interrupts();
        let (file, bad) = (event(), event());
        let (sender, called) = channel();
        let callback = move |_: BorrowedFd<'_>| {
            sender.send(()).expect("the test waits");
            After::Unregister
        };
        let source = interrupts.register(Arc::clone(&file), callback).expect("registered");
        let panics =
            interrupts.register(Arc::clone(&bad), |_| panic!("an interrupt that fails")).expect("registered");
        file.signal();
        called.recv_timeout(LONG).expect("called");
        assert!(called.recv_timeout(SHORT).is_err(), "called once");
        assert!(!source.is_registered());
        assert!(source.enable().is_err());
        bad.signal();
        assert!(interrupts.0.controls.reporter.stop.wait(LONG));
        while panics.is_registered() {
            std::thread::yield_now();
        }
        interrupts.end();
    }

    #[test]
    fn what_cannot_be_waited_for_is_refused() {
        let interrupts = interrupts();
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        let refused = interrupts
            .register(file, |_| After::Mask)
            .map(|_| ())
            .expect_err("ordinary files are always ready");
        assert_eq!(refused.to_string(), "cannot register an interrupt");
        interrupts.end();
    }

    #[test]
    fn register_and_unregister_race_with_events() {
        let interrupts = interrupts();
        let file = event();
        let ringer = Arc::clone(&file);
        let stop = StopFlag::new().expect("an event file");
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.is_set() {
                ringer.signal();
                std::thread::yield_now();
            }
        });
        for _ in 0..500 {
            let gone = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&gone);
            let callback = move |_: BorrowedFd<'_>| {
                assert_eq!(seen.load(Ordering::Acquire), 0, "called after it was unregistered");
                After::Rearm
            };
            let source = interrupts.register(Arc::clone(&file), callback).expect("registered");
            std::thread::yield_now();
            drop(source);
            gone.store(1, Ordering::Release);
        }
        stop.set();
        thread.join().expect("the thread ends well");
        assert!(interrupts.0.controls.reporter.seen().is_empty());
        interrupts.end();
    }

    #[test]
    fn a_thread_may_sleep_on_its_own_set() {
        let mut set = EventSet::new().expect("an event set");
        let (one, two) = (event(), event());
        let stop = StopFlag::new().expect("an event file");
        set.add(&one, 1).expect("added");
        set.add(&two, 2).expect("added");
        set.add(&stop, 99).expect("added");
        assert!(set.add(&one, 3).is_err(), "it is in the set");
        assert_eq!(set.wait(Some(Duration::ZERO)).expect("a wait").count(), 0);
        two.signal();
        two.signal();
        let ready: Vec<_> = set.wait(None).expect("a wait").collect();
        assert_eq!(ready.len(), 1);
        assert_eq!((ready[0].token, ready[0].readable, ready[0].hangup), (2, true, false));
        assert_eq!(two.drain(), 2);
        assert_eq!(set.wait(Some(Duration::from_millis(5))).expect("a wait").count(), 0);
        stop.set();
        set.remove(&two).expect("removed");
        two.signal();
        let tokens: Vec<_> = set.wait(Some(LONG)).expect("a wait").map(|ready| ready.token).collect();
        assert_eq!(tokens, [99]);
    }
}
