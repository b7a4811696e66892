//! A rate that is kept: a token bucket.
//!
//! ```
//! use pollux_eal::clock::{Clock, Cycles};
//! use pollux_eal::pacer::Pacer;
//!
//! let clock = Clock::get();
//! // A million packets a second; what was missed is made up for by at most 64 at a time.
//! let mut pacer = Pacer::new(&clock, 1_000_000, 64)?;
//! let start = clock.now();
//! assert_eq!(pacer.take(start, 32), 0); // it begins with nothing
//! assert_eq!(pacer.take(start + clock.cycles(10_500), 32), 10);
//! assert_eq!(pacer.take(start + clock.cycles(1_000_000_000), 100), 64);
//! # Ok::<(), pollux_eal::pacer::RateError>(())
//! ```

use crate::bucket::Bucket;
pub use crate::bucket::RateError;
use crate::clock::{Clock, Cycles};

/// Tokens that come at a rate; packets, bytes or whatever is paid with them. It holds at most so many as its burst, and begins
/// empty, at the first look.
#[derive(Clone, Debug)]
pub struct Pacer {
    bucket: Bucket,
    last: Option<Cycles>,
}

impl Pacer {
    /// `rate` tokens a second, of which at most `burst` are held.
    ///
    /// # Errors
    /// A rate of 0 or above 1024 tokens a tick of the clock (3 TB/s, of bytes at 3 GHz); a burst of 0, or of more than the clock
    /// counts in some 20 minutes.
    pub fn new(clock: &Clock, rate: u64, burst: u64) -> Result<Self, RateError> {
        Ok(Self { bucket: Bucket::new(clock, rate, burst, 1)?, last: None })
    }

    /// Takes as many tokens as there are at `now`, up to `wanted`. Hot: a division.
    #[inline]
    pub fn take(&mut self, now: Cycles, wanted: u64) -> u64 {
        self.fill(now);
        self.bucket.take(wanted)
    }

    /// Takes `price` tokens if there are so many at `now`, else none. Never, where `price` is above the burst. Hot: a
    /// multiplication.
    #[inline]
    pub fn pay(&mut self, now: Cycles, price: u64) -> bool {
        self.fill(now);
        self.bucket.pay(price)
    }

    /// How long from the last look until there is a token: 0 if there is one.
    #[must_use]
    pub fn until_next(&self) -> Cycles {
        self.bucket.until_next()
    }

    /// A moment before the last look adds nothing.
    #[inline]
    fn fill(&mut self, now: Cycles) {
        if let Some(passed) = crate::bucket::passed(&mut self.last, now) {
            self.bucket.fill(passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bucket::POINT;

    fn clock() -> Clock {
        Clock::get()
    }

    #[test]
    fn a_rate_is_kept_however_often_it_is_asked() {
        let clock = clock();
        for (rate, step) in [
            (1, 77_777),
            (999, 12_345),
            (1_000_003, 4_999),
            (14_880_952, 523),
            (clock.hz() / 3, 97),
            (12_500_000_000, 523),
            (clock.hz() << 10, 7),
        ] {
            let mut pacer = Pacer::new(&clock, rate, rate + 2).expect("a rate that can be");
            let (mut now, mut taken) = (Cycles(5), pacer.take(Cycles(5), 1));
            assert_eq!(taken, 0, "it begins empty");
            // Ten seconds of the slow ones, fewer of the fast ones.
            let steps = (clock.hz() * 10 / step).min(3_000_000);
            for _ in 0..steps {
                now += Cycles(step);
                taken += pacer.take(now, u64::MAX);
            }
            let right = u128::from(steps * step) * u128::from(rate) / u128::from(clock.hz());
            let off = (taken as f64 - right as f64).abs();
            // What a token costs is a whole number of 2^-20 ticks, rounded: half of one is what may be off.
            let most = (rate as f64 / clock.hz() as f64 / f64::from(2 << POINT)).max(1e-6);
            assert!(off <= 1.0 + right as f64 * most, "{rate} a second: {taken}, not {right}");
        }
    }

    #[test]
    fn what_is_missed_beyond_the_burst_is_gone() {
        let clock = clock();
        let mut pacer = Pacer::new(&clock, 1000, 8).expect("a rate that can be");
        assert_eq!(pacer.take(Cycles(0), 100), 0);
        assert_eq!(pacer.take(Cycles(u64::MAX / 4), 100), 8);
        assert_eq!(pacer.take(Cycles(u64::MAX / 4), 100), 0);
    }

    #[test]
    fn clocks_that_step_back_add_nothing_and_take_nothing() {
        let clock = clock();
        let mut pacer = Pacer::new(&clock, 1000, 8).expect("a rate that can be");
        let second = Cycles(clock.hz());
        assert_eq!(pacer.take(second, 1), 0);
        assert_eq!(pacer.take(Cycles(0), 8), 0);
        assert_eq!(pacer.take(second, 8), 0);
        assert_eq!(pacer.take(second + second, 8), 8);
    }

    #[test]
    fn a_price_is_paid_whole_or_not_at_all() {
        let clock = clock();
        let mut pacer = Pacer::new(&clock, 1_000_000_000, 3000).expect("a rate that can be");
        let at = |us: u64| clock.cycles(us * 1000) + Cycles(1);
        assert!(!pacer.pay(Cycles(0), 1500) && pacer.pay(Cycles(0), 0));
        assert!(!pacer.pay(at(1), 1500));
        assert!(pacer.pay(at(2), 1500) && !pacer.pay(at(2), 1500));
        assert!(!pacer.pay(at(1_000_000), 3001) && pacer.pay(at(1_000_000), 3000));
        assert!(!pacer.pay(at(1_000_000), u64::MAX));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let clock = clock();
        let hz = clock.hz();
        assert_eq!(Pacer::new(&clock, 0, 1).unwrap_err(), RateError::Rate { rate: 0, hz });
        let rate = (hz << 10) + 1;
        let error = Pacer::new(&clock, rate, 1).unwrap_err();
        assert_eq!(error, RateError::Rate { rate, hz });
        assert!(error.to_string().ends_with(&format!("must be from 1 to {}", hz << 10)), "{error}");
        assert!(matches!(Pacer::new(&clock, 1, 0).unwrap_err(), RateError::Burst { burst: 0, .. }));
        let Err(RateError::Burst { most, .. }) = Pacer::new(&clock, 1, u64::MAX) else {
            panic!("it was taken")
        };
        assert!(Pacer::new(&clock, 1, most).is_ok() && Pacer::new(&clock, 1, most + 1).is_err());
    }

    proptest! {
        /// Whoever waits as long as it says has a token then, and not a tick before.
        #[test]
        fn the_next_token_comes_when_it_says(rate in 1u64..1_000_000_000, passed in 0u64..10_000_000_000) {
            let clock = clock();
            let mut pacer = Pacer::new(&clock, rate.min(clock.hz()), 4).expect("a rate that can be");
            prop_assert_eq!(pacer.take(Cycles(0), 1), 0);
            pacer.take(Cycles(passed), 3);
            let wait = pacer.until_next();
            if wait.0 > 0 {
                prop_assert_eq!(pacer.clone().take(Cycles(passed) + wait - Cycles(1), 1), 0);
            }
            prop_assert_eq!(pacer.take(Cycles(passed) + wait, 1), 1);
        }
    }
}
