//! Who may touch the inside of a queue: its lcore while it runs, the control thread while it is parked.
//!
//! ```text
//!             ask()                       trouble, or asked
//!   RUNS ───────────────► ASKED ─┐    (the lcore, in a burst)
//!    ▲ └────────────────────────►├──────────► PARKED ◄────┐ Parked dropped
//!    │                                          │ take()  │
//!    └────────── Parked::resume() ──────────── TAKEN ─────┘
//! ```
//!
//! Only the lcore leaves RUNS and ASKED, only the control side leaves PARKED and TAKEN, so each hands the inside over by a
//! Release that the other's Acquire sees. A burst pays one load.
#![expect(unsafe_code, reason = "the inside of a queue moves between the lcore and the control thread")]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pollux_mlx5_abi::syndrome::Syndrome;

use super::parts::Hold;

const RUNS: u32 = 0;
const ASKED: u32 = 1;
const PARKED: u32 = 2;
const TAKEN: u32 = 3;
const STATE: u32 = 3;
/// The lcore's half is gone.
const LEFT: u32 = 4;

/// Why a queue is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A completion said that work failed.
    Failed(Syndrome),
    /// A completion made no sense; what of it.
    Nonsense(Nonsense),
    /// The control half asked for it.
    Asked,
}

/// What of a completion made no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    /// An opcode that this queue never gets.
    Opcode,
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
}

impl Nonsense {
    const ALL: [Self; 6] =
        [Self::Opcode, Self::Format, Self::Counter, Self::Length, Self::Stride, Self::Minis];

    fn text(self) -> &'static str {
        match self {
            Self::Opcode => "an opcode that this queue never gets",
            Self::Format => "a format that this queue does not have",
            Self::Counter => "an index of no entry that is posted",
            Self::Length => "a length that the buffers cannot have",
            Self::Stride => "strides outside the buffer",
            Self::Minis => "more compressed packets than there are entries",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(syndrome) => write!(f, "error completion: {syndrome}"),
            Self::Nonsense(what) => write!(f, "completion with {}", what.text()),
            Self::Asked => f.write_str("parked by the control half"),
        }
    }
}

impl Trouble {
    fn pack(self) -> u32 {
        match self {
            Self::Failed(syndrome) => 1 << 16 | u32::from(syndrome.vendor) << 8 | u32::from(syndrome.code),
            Self::Nonsense(what) => 2 << 16 | what as u32,
            Self::Asked => 3 << 16,
        }
    }

    fn unpack(bits: u32) -> Option<Self> {
        match bits >> 16 {
            1 => Some(Self::Failed(Syndrome { code: bits as u8, vendor: (bits >> 8) as u8 })),
            2 => Nonsense::ALL.get((bits & 0xff) as usize).copied().map(Self::Nonsense),
            3 => Some(Self::Asked),
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
    nonsense: AtomicU64,
    recovered: AtomicU64,
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
        self.state.load(Ordering::Acquire) & STATE == RUNS
    }

    /// Error completions that parked it. Those that are flushed after it do not count.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Completions that made no sense.
    #[must_use]
    pub fn nonsense(&self) -> u64 {
        self.nonsense.load(Ordering::Relaxed)
    }

    /// How often it was resumed.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        self.recovered.load(Ordering::Relaxed)
    }

    fn note(&self, trouble: Trouble) {
        self.trouble.store(trouble.pack(), Ordering::Relaxed);
        match trouble {
            Trouble::Failed(_) => self.failed.fetch_add(1, Ordering::Relaxed),
            Trouble::Nonsense(_) => self.nonsense.fetch_add(1, Ordering::Relaxed),
            Trouble::Asked => 0,
        };
    }
}

struct Shared<T> {
    health: QueueHealth,
    inside: UnsafeCell<Option<(T, Box<dyn Hold>)>>,
}

// SAFETY: the inside is reached by whoever the state says, one at a time, and handed over by Release and Acquire.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Send + 'static> Shared<T> {
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

impl<T: Send + 'static> Running<T> {
    pub(crate) fn new(inside: T, hold: Box<dyn Hold>) -> Self {
        let inside = UnsafeCell::new(Some((inside, hold)));
        Self(Arc::new(Shared { health: QueueHealth::default(), inside }))
    }

    /// The inside, if the queue runs. Hot: one load.
    #[inline(always)]
    pub(crate) fn enter(&mut self) -> Option<&mut T> {
        if self.0.health.state.load(Ordering::Acquire) != RUNS {
            self.stay_out();
            return None;
        }
        // SAFETY: only this half leaves RUNS, so nobody else touches the inside until it does, for which it needs `&mut
        // self`.
        unsafe { Some(&mut (*self.0.inside.get()).as_mut().unwrap_unchecked().0) }
    }

    #[cold]
    fn stay_out(&mut self) {
        if self.0.health.state.load(Ordering::Acquire) == ASKED {
            self.park(Trouble::Asked);
        }
    }

    /// The inside, to be looked at, if the queue runs.
    pub(crate) fn look(&self) -> Option<&T> {
        if !matches!(self.0.health.state.load(Ordering::Acquire) & STATE, RUNS | ASKED) {
            return None;
        }
        // SAFETY: as in `enter`; leaving RUNS and ASKED needs `&mut self`.
        unsafe { (*self.0.inside.get()).as_ref().map(|(inside, _)| inside) }
    }

    /// Hands the inside over to the control side.
    #[cold]
    pub(crate) fn park(&mut self, trouble: Trouble) {
        self.0.health.note(trouble);
        // Release pairs with the Acquire in `take`.
        self.0.health.state.store(PARKED, Ordering::Release);
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

    /// Asks the queue to park. It does at its next burst, so the lcore must go on polling.
    pub fn ask(&self) {
        let _ = self.0.health.state.compare_exchange(RUNS, ASKED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Takes the inside of a parked queue. `None` when it is not parked, or somebody else has it.
    #[must_use]
    pub fn take(&self) -> Option<Parked<'_, T>> {
        self.0
            .health
            .state
            .compare_exchange(PARKED, TAKEN, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
            .then(|| Parked(&self.0))
    }
}

/// The inside of a parked queue. Dropping it leaves the queue parked.
pub struct Parked<'a, T: Send + 'static>(&'a Shared<T>);

impl<T: Send + 'static> Parked<'_, T> {
    /// Lets bursts move packets again.
    pub fn resume(self) {
        self.0.health.recovered.fetch_add(1, Ordering::Relaxed);
        self.give(RUNS);
        std::mem::forget(self);
    }

    fn give(&self, state: u32) {
        // Release pairs with the Acquire in `enter`; Acquire, to drop what the lcore left behind.
        let before =
            self.0.health.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word & LEFT == 0).then_some(state)
            });
        if before.is_err() {
            // SAFETY: the lcore's half is gone and found the inside taken; it is this side's for good.
            unsafe { self.0.end() };
        }
    }
}

impl<T: Send + 'static> Deref for Parked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while it is TAKEN, this value is the only way to the inside, which is there until `give`.
        unsafe { &(*self.0.inside.get()).as_ref().unwrap_unchecked().0 }
    }
}

impl<T: Send + 'static> DerefMut for Parked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut (*self.0.inside.get()).as_mut().unwrap_unchecked().0 }
    }
}

impl<T: Send + 'static> Drop for Parked<'_, T> {
    fn drop(&mut self) {
        self.give(PARKED);
    }
}

impl<T: Send + 'static> fmt::Debug for Parked<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parked").field(&self.0.health).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts::NoDevice;
    use super::*;

    struct Noisy(Arc<AtomicU32>, u32);

    impl Drop for Noisy {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn queue() -> (Running<Noisy>, Arc<AtomicU32>) {
        let drops = Arc::new(AtomicU32::new(0));
        (Running::new(Noisy(Arc::clone(&drops), 0), Box::new(NoDevice)), drops)
    }

    #[test]
    fn one_side_at_a_time() {
        let (mut queue, _) = queue();
        let control = queue.control();
        assert!(control.take().is_none(), "it runs");
        queue.enter().expect("it runs").1 = 5;
        control.ask();
        assert!(queue.enter().is_none() && control.health().trouble() == Some(Trouble::Asked));
        let mut parked = control.take().expect("parked");
        assert!(control.take().is_none(), "taken once");
        parked.1 += 1;
        drop(parked);
        assert!(queue.enter().is_none() && control.health().is_parked());
        control.take().expect("parked").resume();
        assert_eq!((queue.enter().map(|inside| inside.1), control.health().recovered()), (Some(6), 1));
        let trouble = Trouble::Failed(Syndrome { code: 4, vendor: 0x51 });
        queue.park(trouble);
        assert!(queue.enter().is_none() && queue.look().is_none());
        assert_eq!((control.health().trouble(), control.health().failed()), (Some(trouble), 1));
    }

    #[test]
    fn the_inside_is_dropped_once_whoever_has_it() {
        let (running, drops) = queue();
        let control = running.control();
        drop(running);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        assert!(control.take().is_none() && control.is_left());

        for resume in [false, true] {
            let (mut running, drops) = queue();
            let control = running.control();
            running.park(Trouble::Asked);
            let parked = control.take().expect("parked");
            drop(running);
            assert_eq!(drops.load(Ordering::Relaxed), 0, "the control side is at work on it");
            if resume {
                parked.resume();
            } else {
                drop(parked);
            }
            assert_eq!(drops.load(Ordering::Relaxed), 1);
            assert!(control.take().is_none());
        }
    }

    #[test]
    fn every_trouble_is_told() {
        let all = Nonsense::ALL.map(Trouble::Nonsense);
        let failed = Trouble::Failed(Syndrome { code: 0x22, vendor: 0x99 });
        for trouble in all.into_iter().chain([failed, Trouble::Asked]) {
            assert_eq!(Trouble::unpack(trouble.pack()), Some(trouble), "{trouble}");
        }
        assert_eq!(Trouble::unpack(0), None);
    }
}
