//! Time: a steady counter and what its ticks are in nanoseconds.
//!
//! On x86-64 the counter is the TSC where it is steady, and its frequency is told by the processor or the hypervisor; where
//! nobody tells, it is measured for at most 3 ms. Elsewhere, and where the TSC is not steady, the clock is
//! `CLOCK_MONOTONIC`, counted in nanoseconds.
//!
//! ```
//! use pollux_eal::clock::{Clock, Nanos};
//! let clock = Clock::get();
//! let start = clock.now();
//! clock.delay(Nanos(2_000));
//! assert!(clock.nanos(clock.now() - start) >= Nanos(2_000));
//! ```

pub mod cycles;
mod date;
mod source;

use std::ops::{Add, AddAssign, Sub};
use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use date::Date;
pub use source::Source;

/// A count of the clock's ticks, or a moment in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cycles(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nanos(pub u64);

macro_rules! count {
    ($unit:ident) => {
        impl From<u64> for $unit {
            fn from(count: u64) -> Self {
                Self(count)
            }
        }
        impl Add for $unit {
            type Output = Self;
            /// Wraps, as counters do.
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                Self(self.0.wrapping_add(other.0))
            }
        }
        impl AddAssign for $unit {
            #[inline(always)]
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl Sub for $unit {
            type Output = Self;
            /// Wraps, as counters do.
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                Self(self.0.wrapping_sub(other.0))
            }
        }
    };
}
count!(Cycles);
count!(Nanos);

impl From<std::time::Duration> for Nanos {
    /// Longer than 584 years becomes 584 years.
    fn from(time: std::time::Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(time: Nanos) -> Self {
        Self::from_nanos(time.0)
    }
}

/// Bits after the binary point of the two ratios. With 56 of them a ratio may be up to 255, so the counter may run at 4 MHz
/// to 255 GHz, and the product is one 64 by 64 multiplication and one double shift.
const POINT: u32 = 56;
const HZ_MIN: u64 = 4_000_000;
const HZ_MAX: u64 = 255_000_000_000;

/// How long a calibration takes.
const CALIBRATION: Nanos = Nanos(3_000_000);

/// A clock: reads a counter and converts its ticks. Small and `Copy`; every thread may have its own.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    hz: u64,
    nanos_per_cycle: u64,
    cycles_per_nano: u64,
    tsc: bool,
    source: Source,
    start: Sample,
}

/// The counter and the kernel's clock at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    cycles: u64,
    raw_ns: u64,
}

/// A calibration under way: begin it, do what has to be done anyway, and finish it when the time has passed.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    start: Sample,
    /// What is known without measuring.
    told: Option<(u64, Source)>,
}

impl Calibration {
    /// Asks processor, hypervisor and kernel, and marks the start for the case that none of them tells. Takes some 50 us.
    #[must_use]
    pub fn begin() -> Self {
        Self::begin_under(Path::new("/"))
    }

    fn begin_under(root: &Path) -> Self {
        let told = if source::tsc_is_steady(root) {
            source::told_hz(source::cpuid).filter(|(hz, _)| (HZ_MIN..=HZ_MAX).contains(hz))
        } else {
            Some((1_000_000_000, Source::Monotonic))
        };
        Self { start: Sample::take(), told }
    }

    /// The clock. Waits until 3 ms have passed since the beginning if the frequency has to be measured, else not at all.
    #[must_use]
    pub fn finish(self) -> Clock {
        if let Some((hz, source)) = self.told {
            return Clock::new(hz, source, self.start);
        }
        let passed = cycles::monotonic_raw_ns() - self.start.raw_ns;
        std::thread::sleep(Nanos(CALIBRATION.0.saturating_sub(passed)).into());
        match self.start.hz_until(Sample::take()) {
            Some(hz) => Clock::new(hz, Source::Calibrated, self.start),
            // A counter that stood still or jumped is none.
            None => Clock::new(1_000_000_000, Source::Monotonic, self.start),
        }
    }
}

/// The clock of one `Eal`, whose frequency may be under measurement. Clones are the same clock.
#[derive(Clone, Debug)]
pub(crate) struct PendingClock(Arc<(Calibration, OnceLock<Clock>)>);

impl PendingClock {
    pub(crate) fn begin() -> Self {
        Self(Arc::new((Calibration::begin(), OnceLock::new())))
    }

    /// The first call waits as [`Calibration::finish`] does.
    pub(crate) fn get(&self) -> Clock {
        let (calibration, clock) = &*self.0;
        *clock.get_or_init(|| calibration.finish())
    }
}

impl Sample {
    /// Reads both, and keeps the closest of a few readings: the counter is known to half the time the kernel's took, some
    /// 15 ns.
    fn take() -> Self {
        let mut best = (u64::MAX, Self { cycles: 0, raw_ns: 0 });
        for _ in 0..8 {
            let before = cycles::now_precise();
            let raw_ns = cycles::monotonic_raw_ns();
            let width = cycles::now_precise().wrapping_sub(before);
            if width < best.0 {
                best = (width, Self { cycles: before.wrapping_add(width / 2), raw_ns });
            }
        }
        best.1
    }

    fn hz_until(self, end: Self) -> Option<u64> {
        let cycles = u128::from(end.cycles.wrapping_sub(self.cycles));
        let nanos = u128::from(end.raw_ns.wrapping_sub(self.raw_ns));
        let hz = u64::try_from((cycles * 1_000_000_000).checked_div(nanos)?).ok()?;
        (HZ_MIN..=HZ_MAX).contains(&hz).then_some(hz)
    }
}

impl Clock {
    /// The clock of this machine. Takes up to 3 ms where the frequency has to be measured; [`Calibration`] hides that wait.
    #[must_use]
    pub fn get() -> Self {
        Calibration::begin().finish()
    }

    fn new(hz: u64, source: Source, start: Sample) -> Self {
        let ratio = |of: u64, to: u64| ((u128::from(of) << POINT) + u128::from(to / 2)) / u128::from(to);
        let fits = |ratio: u128| u64::try_from(ratio).expect("the frequency was checked to be within bounds");
        Self {
            hz,
            nanos_per_cycle: fits(ratio(1_000_000_000, hz)),
            cycles_per_nano: fits(ratio(hz, 1_000_000_000)),
            tsc: source != Source::Monotonic,
            source,
            start,
        }
    }

    /// Ticks a second.
    #[must_use]
    #[doc(alias = "rte_get_timer_hz")]
    #[doc(alias = "rte_get_tsc_hz")]
    pub fn hz(&self) -> u64 {
        self.hz
    }

    /// How the frequency became known.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The moment in ticks. Hot: the counter and a branch that never changes.
    #[inline(always)]
    #[must_use]
    #[doc(alias = "rte_get_timer_cycles")]
    #[doc(alias = "rte_rdtsc")]
    pub fn now(&self) -> Cycles {
        Cycles(if self.tsc { cycles::now() } else { cycles::monotonic_ns() })
    }

    /// What `cycles` are in nanoseconds, rounded down; up to 584 years. Hot: a multiplication and a shift.
    #[inline(always)]
    #[must_use]
    pub fn nanos(&self, cycles: impl Into<Cycles>) -> Nanos {
        Nanos(scale(cycles.into().0, self.nanos_per_cycle))
    }

    /// What `nanos` are in ticks, rounded down. Hot: a multiplication and a shift.
    #[inline(always)]
    #[must_use]
    pub fn cycles(&self, nanos: impl Into<Nanos>) -> Cycles {
        Cycles(scale(nanos.into().0, self.cycles_per_nano))
    }

    /// Time since the clock was made.
    #[must_use]
    pub fn elapsed(&self) -> Nanos {
        if self.tsc {
            self.nanos(cycles::now().wrapping_sub(self.start.cycles))
        } else {
            Nanos(cycles::monotonic_raw_ns() - self.start.raw_ns)
        }
    }

    /// The same clock with a better frequency, measured from when this one was made until now: after a second the error is
    /// some 0.05 millionths. A clock that was told its frequency, or that is no counter, comes back as it is.
    #[must_use]
    pub fn refined(&self) -> Self {
        match self.start.hz_until(Sample::take()) {
            Some(hz) if self.source == Source::Calibrated => Self::new(hz, self.source, self.start),
            _ => *self,
        }
    }

    /// Waits, spinning, for at least this long.
    pub fn delay(&self, nanos: Nanos) {
        let start = self.now();
        // Rounded up, so that it is never short.
        let wait = self.cycles(nanos) + Cycles(1);
        while self.now() - start < wait {
            std::hint::spin_loop();
        }
    }

    /// Waits, spinning, for at least this many microseconds.
    #[doc(alias = "rte_delay_us_block")]
    pub fn delay_us(&self, us: u64) {
        self.delay(Nanos(us.saturating_mul(1000)));
    }
}

#[inline(always)]
fn scale(count: u64, ratio: u64) -> u64 {
    ((u128::from(count) * u128::from(ratio)) >> POINT) as u64
}

#[cfg(test)]
mod tests;
