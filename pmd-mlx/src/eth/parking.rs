//! Who may touch the inside of a queue: its lcore while it runs, the control thread while it does not.
//!
//! ```text
//!            trouble (the lcore, in a burst)
//!   RUNS ──────────────────────────────► PARKED ◄── Parked dropped
//!    ▲ │                                  │ take()      ▲
//!    │ └── halt(), no burst under way ──► TAKEN ────────┘
//!    │                                    │ ▲ halt(), take_any()
//!    ├───── Parked::resume(), run() ──────┤ │
//!    │                                    ▼ │
//!    │                                   STOPPED ◄── Parked::stop()
//! ```
//!
//! The lcore leaves RUNS by itself when something is wrong. The control side takes a queue out of RUNS as well, without
//! waiting for the lcore to poll: it waits for the burst under way alone, as a port that stops does, by
//! [`BurstWatch`]. A burst pays two loads and two comparisons: that the burst is one of this queue
//! is what [`InBurst`] proves. A call of the lcore outside of bursts takes the inside as the control side does, and gives it
//! back (LENT): it counts as running.
//!
//! What one side did is handed over by a Release that the other's Acquire sees.
#![expect(unsafe_code, reason = "the inside of a queue moves between the lcore and the control thread")]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_port::driver::{BurstWatch, InBurst};

use super::parts::Hold;

const RUNS: u32 = 0;
const PARKED: u32 = 1;
const STOPPED: u32 = 2;
const TAKEN: u32 = 3;
/// It runs, and its lcore has the inside outside of a burst.
const LENT: u32 = 4;
const STATE: u32 = 7;
/// The lcore's half is gone.
const LEFT: u32 = 8;

/// Why a queue is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A completion said that work failed.
    Failed(Syndrome),
    /// A malformed CQE: what of it.
    Malformed(MalformedCqe),
    /// Nothing came back of what was sent, for too long.
    Silent,
}

/// What of a CQE is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedCqe {
    /// An opcode that this queue never gets: which.
    Opcode(u8),
    /// A format that this queue does not have.
    Format,
    /// It is for an entry that was not posted, or not the next one.
    Counter,
    /// More bytes than the buffers have room for, or none.
    Length,
    /// Strides outside the buffer.
    Stride,
    /// More compressed packets than there are entries.
    Minis,
    /// Compressed packets with nothing before them that says what they have in common.
    Untitled,
}

impl MalformedCqe {
    const PLAIN: [Self; 6] =
        [Self::Format, Self::Counter, Self::Length, Self::Stride, Self::Minis, Self::Untitled];

    /// What of it, in 16 bits: an opcode above the number of its kind.
    fn pack(self) -> u32 {
        match self {
            Self::Opcode(opcode) => u32::from(opcode) << 8,
            other => Self::PLAIN.iter().position(|plain| *plain == other).map_or(0xff, |at| at as u32 + 1),
        }
    }

    fn unpack(bits: u32) -> Option<Self> {
        match bits as u8 {
            0 => Some(Self::Opcode((bits >> 8) as u8)),
            kind => Self::PLAIN.get(usize::from(kind) - 1).copied(),
        }
    }
}

impl fmt::Display for MalformedCqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opcode(opcode) => {
                let name = completion::name(*opcode).unwrap_or("unknown");
                return write!(f, "opcode {opcode:#x} ({name}), which this queue never gets");
            }
            Self::Format => "a format that this queue does not have",
            Self::Counter => "an index of no entry that is posted",
            Self::Length => "a length that the buffers cannot have",
            Self::Stride => "strides outside the buffer",
            Self::Minis => "more compressed packets than there are entries",
            Self::Untitled => "compressed packets and no title before them",
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(syndrome) => write!(f, "error completion: {syndrome}"),
            Self::Malformed(what) => write!(f, "completion with {what}"),
            Self::Silent => f.write_str("no completion comes of what was sent"),
        }
    }
}

impl Trouble {
    /// What to try about it, beside the reset that follows.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Failed(_) => {
                "if it goes on, see what the program sends, or whether its memory stays registered"
            }
            // Compression is the youngest part of the layout, and the one that options turn off.
            Self::Malformed(_) => "if it goes on, update the firmware, or try rxq_cqe_comp_en=0",
            Self::Silent => "if it goes on, `devlink health show` tells how the firmware is",
        }
    }

    fn pack(self) -> u32 {
        match self {
            Self::Failed(syndrome) => 1 << 16 | u32::from(syndrome.vendor) << 8 | u32::from(syndrome.code),
            Self::Malformed(what) => 2 << 16 | what.pack(),
            Self::Silent => 3 << 16,
        }
    }

    fn unpack(bits: u32) -> Option<Self> {
        match bits >> 16 {
            1 => Some(Self::Failed(Syndrome { code: bits as u8, vendor: (bits >> 8) as u8 })),
            2 => MalformedCqe::unpack(bits & 0xffff).map(Self::Malformed),
            3 => Some(Self::Silent),
            _ => None,
        }
    }
}

/// How a queue is: its state and what went wrong on it. Anybody may look.
#[derive(Debug, Default)]
pub struct QueueHealth {
    state: AtomicU32,
    trouble: AtomicU32,
    failed: AtomicU64,
    malformed: AtomicU64,
    silent: AtomicU64,
    recovered: AtomicU64,
    /// Of a send queue, how many packets it took in all (above) and has given back: written by whoever has the inside.
    progress: AtomicU64,
}

impl QueueHealth {
    /// Why the queue was parked last; `None`: it never was.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        Trouble::unpack(self.trouble.load(Ordering::Relaxed))
    }

    /// Whether it is parked and nobody has begun to mend it.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.state.load(Ordering::Acquire) & STATE == PARKED
    }

    /// Whether bursts move packets.
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire) & STATE, RUNS | LENT)
    }

    /// Whether it was stopped, or was never started.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state.load(Ordering::Acquire) & STATE == STOPPED
    }

    /// Error completions that parked it. Those that are flushed after it do not count.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Malformed CQEs.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// How often nothing came back of what was sent.
    #[must_use]
    pub fn silent(&self) -> u64 {
        self.silent.load(Ordering::Relaxed)
    }

    /// How often it was set to work again after trouble.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        self.recovered.load(Ordering::Relaxed)
    }

    /// Packets that a send queue took, and gave back, in all, as it said after its last burst.
    pub(crate) fn progress(&self) -> (u32, u32) {
        let both = self.progress.load(Ordering::Relaxed);
        ((both >> 32) as u32, both as u32)
    }

    #[inline(always)]
    fn tell(&self, taken: u32, given: u32) {
        self.progress.store(u64::from(taken) << 32 | u64::from(given), Ordering::Relaxed);
    }

    fn note(&self, trouble: Trouble) {
        self.trouble.store(trouble.pack(), Ordering::Relaxed);
        match trouble {
            Trouble::Failed(_) => self.failed.fetch_add(1, Ordering::Relaxed),
            Trouble::Malformed(_) => self.malformed.fetch_add(1, Ordering::Relaxed),
            Trouble::Silent => self.silent.fetch_add(1, Ordering::Relaxed),
        };
    }
}

/// On cache lines of its own, and the next ones that x86 fetches along: each burst writes to it, and the heap may put another
/// lcore's queue beside it.
#[repr(align(128))]
struct Shared<T> {
    health: QueueHealth,
    /// Tells of the lcore's bursts.
    watch: BurstWatch,
    inside: UnsafeCell<Option<(T, Box<dyn Hold>)>>,
}

const _: () = assert!(align_of::<Shared<()>>() >= 128, "queues of two lcores would share cache lines");

// SAFETY: the inside is reached by whoever the state says, one at a time, and handed over by Release and Acquire.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Send + 'static> Shared<T> {
    fn take(&self, from: u32, to: u32) -> Option<Parked<'_, T>> {
        // AcqRel: what whoever had it did is seen.
        let taken = self.health.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
        taken.then(|| Parked { shared: self, back: from })
    }

    /// Gives the inside to what ends the device's objects.
    ///
    /// # Safety
    /// Nobody else touches the inside any more.
    unsafe fn end(&self) {
        // SAFETY: the caller's promise.
        if let Some((inside, hold)) = unsafe { (*self.inside.get()).take() } {
            hold.end(Box::new(inside));
        }
    }
}

/// The lcore's half.
pub(crate) struct Running<T: Send + 'static>(Arc<Shared<T>>);

/// The inside of a queue that runs, in its lcore's hands.
pub(crate) struct Entered<'a, T: Send + 'static>(&'a Shared<T>);

impl<T: Send + 'static> Entered<'_, T> {
    /// Says how far a send queue is, for the control half.
    #[inline(always)]
    pub(crate) fn tell(&self, taken: u32, given: u32) {
        self.0.health.tell(taken, given);
    }
}

impl<T: Send + 'static> Deref for Entered<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: it was RUNS in a burst of this queue (`enter`), and the burst is borrowed: who takes the inside out of RUNS
        // waits for the burst's end (`halt`), or needs the lcore's half (`take`), which is borrowed too.
        unsafe { &(*self.0.inside.get()).as_ref().unwrap_unchecked().0 }
    }
}

impl<T: Send + 'static> DerefMut for Entered<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut (*self.0.inside.get()).as_mut().unwrap_unchecked().0 }
    }
}

impl<T: Send + 'static> Running<T> {
    /// The half of a queue whose bursts `watch` tells of.
    pub(crate) fn new(inside: T, hold: Box<dyn Hold>, watch: BurstWatch) -> Self {
        let inside = UnsafeCell::new(Some((inside, hold)));
        Self(Arc::new(Shared { health: QueueHealth::default(), watch, inside }))
    }

    /// The inside, if the queue runs. Hot: two loads, two comparisons.
    ///
    /// # Panics
    /// When `burst` is one of another queue, whose end nobody would wait for.
    #[inline(always)]
    pub(crate) fn enter<'a>(&'a mut self, burst: &'a InBurst<'_>) -> Option<Entered<'a, T>> {
        assert!(self.0.watch.is_of(burst), "a queue is polled in bursts of its own");
        (self.0.health.state.load(Ordering::Acquire) == RUNS).then_some(Entered(&self.0))
    }

    /// The inside, if the queue runs, for a call that is no burst: bursts need the half that is borrowed here, and the control
    /// side finds it taken. Dropping it lets the queue run on.
    pub(crate) fn take(&self) -> Option<Parked<'_, T>> {
        self.0.take(RUNS, LENT)
    }

    /// Hands the inside over to the control side, which may have taken it already.
    #[cold]
    pub(crate) fn park(&mut self, trouble: Trouble) {
        self.0.health.note(trouble);
        // Release pairs with the Acquire in `take`.
        let _taken = self.0.health.state.compare_exchange(RUNS, PARKED, Ordering::Release, Ordering::Relaxed);
    }

    pub(crate) fn control(&self) -> Control<T> {
        Control(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> Drop for Running<T> {
    fn drop(&mut self) {
        // AcqRel: what the other side did is seen, or what this side did is.
        let state = self.0.health.state.fetch_or(LEFT, Ordering::AcqRel);
        if state & STATE != TAKEN {
            // SAFETY: the other side takes nothing once LEFT is set.
            unsafe { self.0.end() };
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.0.health).finish()
    }
}

/// The control side of a queue. Clones are handles of the same queue.
pub struct Control<T>(Arc<Shared<T>>);

impl<T> Clone for Control<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Control<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.0.health).finish()
    }
}

impl<T: Send + 'static> Control<T> {
    /// How the queue is.
    #[must_use]
    pub fn health(&self) -> &QueueHealth {
        &self.0.health
    }

    /// Whether the queue was dropped.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.0.health.state.load(Ordering::Acquire) & LEFT != 0
    }

    /// Takes the inside of a parked queue. `None` when it is not parked, or somebody else has it.
    #[must_use]
    pub fn take(&self) -> Option<Parked<'_, T>> {
        self.0.take(PARKED, TAKEN)
    }

    /// Takes the inside of a queue that is parked or stopped.
    #[must_use]
    pub fn take_any(&self) -> Option<Parked<'_, T>> {
        self.take().or_else(|| self.0.take(STOPPED, TAKEN))
    }

    /// Takes the inside whatever the queue does; bursts move nothing from then on. One that is under way is waited for, and
    /// somebody else who has it, `longest` at most. Dropped, what is given leaves the queue parked.
    ///
    /// `None` when that was not enough, and the queue does what it did before; or when it was dropped.
    #[must_use]
    pub fn halt(&self, longest: Duration) -> Option<Parked<'_, T>> {
        let begun = Instant::now();
        while !self.is_left() {
            if let Some(mut parked) = self.take_any() {
                parked.back = PARKED;
                return Some(parked);
            }
            if let Some(mut running) = self.0.take(RUNS, TAKEN) {
                if !self.0.watch.wait(longest.saturating_sub(begun.elapsed())) {
                    running.run();
                    return None;
                }
                running.back = PARKED;
                return Some(running);
            }
            if begun.elapsed() >= longest {
                return None;
            }
            std::thread::yield_now();
        }
        None
    }
}

/// The inside of a queue, taken from whoever else may have it. Dropping it leaves the queue as it was found.
pub struct Parked<'a, T: Send + 'static> {
    shared: &'a Shared<T>,
    /// The state that it is given back in.
    back: u32,
}

impl<T: Send + 'static> Parked<'_, T> {
    /// Lets bursts move packets again after trouble, and counts it.
    pub fn resume(self) {
        self.shared.health.recovered.fetch_add(1, Ordering::Relaxed);
        self.run();
    }

    /// Lets bursts move packets.
    pub fn run(mut self) {
        self.back = RUNS;
    }

    /// Leaves the queue stopped: nobody mends it, until somebody takes it and lets it run.
    pub fn stop(mut self) {
        self.back = STOPPED;
    }

    /// Notes trouble and leaves the queue parked.
    pub(crate) fn park(mut self, trouble: Trouble) {
        self.note(trouble);
        self.back = PARKED;
    }

    /// Notes trouble that the control side found.
    pub(crate) fn note(&self, trouble: Trouble) {
        self.shared.health.note(trouble);
    }

    /// As [`Entered::tell`].
    pub(crate) fn tell(&self, taken: u32, given: u32) {
        self.shared.health.tell(taken, given);
    }

    /// What it was found to be.
    pub(crate) fn state(&self) -> &'static str {
        if self.back == STOPPED { "stopped" } else { "parked" }
    }
}

impl<T: Send + 'static> Deref for Parked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while it is TAKEN or LENT, this value is the only way to the inside, which is there until `end`; of bursts that found
        // it RUNS none is left (`halt`), or none can be (`take`).
        unsafe { &(*self.shared.inside.get()).as_ref().unwrap_unchecked().0 }
    }
}

impl<T: Send + 'static> DerefMut for Parked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut (*self.shared.inside.get()).as_mut().unwrap_unchecked().0 }
    }
}

impl<T: Send + 'static> Drop for Parked<'_, T> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `enter`; Acquire, to drop what the lcore left behind.
        let before = self.shared.health.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            (word & LEFT == 0).then_some(self.back)
        });
        if before.is_err() {
            // SAFETY: the lcore's half is gone and found the inside taken; it is this side's for good.
            unsafe { self.shared.end() };
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Parked<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parked").field(&self.shared.health).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts::NoDevice;
    use super::*;
    use pollux_port::RxCounters;
    use pollux_port::driver::QueueOwner;
    use std::sync::atomic::AtomicBool;

    struct Noisy(Arc<AtomicU32>, u32);

    impl Drop for Noisy {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn queue() -> (Running<Noisy>, QueueOwner, Arc<AtomicU32>) {
        let (drops, counters) = (Arc::new(AtomicU32::new(0)), RxCounters::default());
        let queue = Running::new(Noisy(Arc::clone(&drops), 0), Box::new(NoDevice), counters.watch());
        (queue, counters.own().expect("nobody has it"), drops)
    }

    const LONG: Duration = Duration::from_secs(5);

    #[test]
    fn one_side_at_a_time() {
        let (mut queue, mut owner, _) = queue();
        let control = queue.control();
        assert!(control.take().is_none() && control.take_any().is_none(), "it runs");
        queue.enter(&owner.enter()).expect("it runs").1 = 5;
        let mut parked = control.halt(LONG).expect("nobody is inside");
        assert!(queue.enter(&owner.enter()).is_none() && queue.take().is_none());
        assert!(control.take_any().is_none() && control.halt(Duration::ZERO).is_none(), "taken once");
        parked.1 += 1;
        drop(parked);
        assert!(queue.enter(&owner.enter()).is_none() && control.health().is_parked());
        control.take().expect("parked").resume();
        assert_eq!((queue.take().map(|inside| inside.1), control.health().recovered()), (Some(6), 1));
        let trouble = Trouble::Failed(Syndrome { code: 4, vendor: 0x51 });
        queue.park(trouble);
        assert!(queue.enter(&owner.enter()).is_none() && queue.take().is_none());
        assert_eq!((control.health().trouble(), control.health().failed()), (Some(trouble), 1));
    }

    #[test]
    fn a_stopped_queue_is_mended_by_nobody_and_runs_again_when_it_is_let() {
        let (mut queue, mut owner, _) = queue();
        let control = queue.control();
        control.halt(LONG).expect("idle").stop();
        assert!(control.health().is_stopped() && !control.health().is_parked());
        assert!(control.take().is_none() && queue.enter(&owner.enter()).is_none());
        queue.park(Trouble::Silent);
        assert!(control.health().is_stopped(), "what does not run does not park");
        drop(control.take_any().expect("stopped"));
        assert!(control.health().is_stopped(), "a look changes nothing");
        control.take_any().expect("stopped").run();
        assert!(queue.enter(&owner.enter()).is_some() && control.health().recovered() == 0);
    }

    #[test]
    fn a_burst_under_way_is_waited_for() {
        let (mut queue, mut owner, _) = queue();
        let control = queue.control();
        let burst = owner.enter();
        assert!(queue.enter(&burst).is_some(), "it runs");
        assert!(control.halt(Duration::from_millis(1)).is_none(), "somebody is inside");
        assert!(control.health().runs() && queue.enter(&burst).is_some(), "and goes on");
        drop(burst);
        control.halt(LONG).expect("nobody is").stop();
    }

    #[test]
    fn a_call_outside_of_bursts_has_the_inside_to_itself() {
        let (mut queue, mut owner, _) = queue();
        let control = queue.control();
        let taken = queue.take().expect("it runs");
        assert!(queue.take().is_none() && control.take_any().is_none());
        assert!(control.halt(Duration::ZERO).is_none());
        assert!(control.health().runs(), "for whoever looks from outside");
        drop(taken);
        assert!(queue.enter(&owner.enter()).is_some(), "it runs on");
        queue.take().expect("it runs").park(Trouble::Silent);
        assert!(control.health().is_parked() && control.health().silent() == 1);
    }

    #[test]
    #[should_panic(expected = "in bursts of its own")]
    fn a_burst_of_another_queue_lets_nobody_in() {
        let ((mut queue, ..), (_, mut other, _)) = (queue(), queue());
        let _inside = queue.enter(&other.enter());
    }

    /// How often each side counts while it is inside.
    const TURNS: u32 = 100;

    /// The race that `halt` must win: once it has the inside, no burst touches it.
    #[test]
    fn stress_nobody_is_inside_while_it_is_taken() {
        let (mut queue, mut owner, _) = queue();
        let (control, done, begun) = (queue.control(), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (done, begun, lcore, owner) = (&done, &begun, &mut queue, &mut owner);
            // Not atomic on purpose: counts are lost where both are inside.
            let count = |inside: &mut Noisy| {
                for _ in 0..TURNS {
                    inside.1 = std::hint::black_box(inside.1).wrapping_add(1);
                }
            };
            let entries = scope.spawn(move || {
                let mut entries = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    if let Some(mut inside) = lcore.enter(&owner.enter()) {
                        count(&mut inside);
                        entries = entries.wrapping_add(1);
                        begun.store(true, Ordering::Relaxed);
                    }
                }
                entries
            });
            for _ in 0..2000 {
                // Each time the lcore is at work again.
                while !begun.swap(false, Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                let mut parked = control.halt(LONG).expect("bursts end");
                count(&mut parked);
                parked.run();
            }
            done.store(true, Ordering::Relaxed);
            let entries = entries.join().expect("no panic").wrapping_add(2000);
            let all = control.halt(LONG).expect("nobody is inside").1;
            assert_eq!(all, entries.wrapping_mul(TURNS), "both were inside");
        });
    }

    #[test]
    fn the_inside_is_dropped_once_whoever_has_it() {
        let (running, _, drops) = queue();
        let control = running.control();
        drop(running);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        assert!(control.take().is_none() && control.is_left());

        for resume in [false, true] {
            let (mut running, _, drops) = queue();
            let control = running.control();
            running.park(Trouble::Silent);
            let parked = control.take().expect("parked");
            drop(running);
            assert_eq!(drops.load(Ordering::Relaxed), 0, "the control side is at work on it");
            if resume {
                parked.run();
            } else {
                drop(parked);
            }
            assert_eq!(drops.load(Ordering::Relaxed), 1);
            assert!(control.take().is_none());
        }
    }

    #[test]
    fn every_trouble_is_told() {
        let opcodes = [0, 6, 0xf].map(MalformedCqe::Opcode);
        let all = MalformedCqe::PLAIN.into_iter().chain(opcodes).map(Trouble::Malformed);
        let failed = Trouble::Failed(Syndrome { code: 0x22, vendor: 0x99 });
        for trouble in all.chain([failed, Trouble::Silent]) {
            assert_eq!(Trouble::unpack(trouble.pack()), Some(trouble), "{trouble}");
        }
        assert_eq!(Trouble::unpack(0), None);
        let said = Trouble::Malformed(MalformedCqe::Opcode(7));
        assert_eq!(said.to_string(), "completion with opcode 0x7 (unknown), which this queue never gets");
        assert!(said.advice().contains("rxq_cqe_comp_en=0"));
    }
}
