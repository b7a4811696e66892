//! A bucket of tokens, counted in what they cost of the clock's ticks. [`pacer`](crate::pacer) has one, [`meter`](crate::meter) two.

use crate::clock::{Clock, Cycles};

/// Bits behind the point of what a token costs in ticks: of 3 ticks a token they are right to 0.00003 %.
pub(crate) const POINT: u32 = 20;
/// Tokens a tick, at most: what one costs is right to 0.05 % then.
const TOKENS_PER_TICK: u64 = 1 << 10;
/// The most that a bucket may hold, in ticks behind the point; what passed between two looks is cut to it.
const MOST: u64 = 1 << 62;

/// A rate or a burst that a bucket cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// Too slow or too fast for the clock.
    #[error(
        "rate of {rate} tokens per second is out of range for a clock of {hz} Hz: must be from 1 to {}",
        hz.saturating_mul(TOKENS_PER_TICK)
    )]
    Rate {
        /// What was asked for.
        rate: u64,
        /// The clock's frequency.
        hz: u64,
    },
    /// A peak rate below the committed one.
    #[error(
        "peak rate of {peak} tokens per second is below the committed rate of {committed}: must be at least that"
    )]
    Peak {
        /// The peak rate.
        peak: u64,
        /// The committed rate.
        committed: u64,
    },
    /// None, or more than the arithmetic holds.
    #[error("burst of {burst} tokens is out of range at this rate: must be from {least} to {most}")]
    Burst {
        /// What was asked for.
        burst: u64,
        /// What must be.
        least: u64,
        /// What can be.
        most: u64,
    },
}

/// How many tokens there are.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// What a token costs, in ticks.
    cost: u64,
    /// What is in the bucket, and fits there, in ticks.
    credit: u64,
    burst: u64,
}

impl Bucket {
    /// Empty; `rate` tokens a second, of which at most `burst` are held, `least` or more.
    pub(crate) fn new(clock: &Clock, rate: u64, burst: u64, least: u64) -> Result<Self, RateError> {
        let hz = clock.hz();
        if rate == 0 || rate > hz.saturating_mul(TOKENS_PER_TICK) {
            return Err(RateError::Rate { rate, hz });
        }
        // At most 255 GHz: 58 bits.
        let cost = ((hz << POINT) + rate / 2) / rate;
        match cost.checked_mul(burst).filter(|ticks| burst >= least && *ticks <= MOST) {
            Some(burst) => Ok(Self { cost, credit: 0, burst }),
            None => Err(RateError::Burst { burst, least, most: MOST / cost }),
        }
    }

    /// The same with all tokens that fit.
    pub(crate) fn full(self) -> Self {
        Self { credit: self.burst, ..self }
    }

    /// Adds what comes in so many ticks behind the point: what did not fit is given back.
    #[inline]
    pub(crate) fn fill(&mut self, ticks: u64) -> u64 {
        let sum = self.credit + ticks;
        self.credit = sum.min(self.burst);
        sum - self.credit
    }

    /// Takes as many tokens as there are, up to `wanted`.
    #[inline]
    pub(crate) fn take(&mut self, wanted: u64) -> u64 {
        let taken = wanted.min(self.credit / self.cost);
        self.credit -= taken * self.cost;
        taken
    }

    /// Whether there are so many tokens.
    #[inline]
    pub(crate) fn has(&self, price: u64) -> bool {
        price.checked_mul(self.cost).is_some_and(|price| price <= self.credit)
    }

    /// Takes `price` tokens if there are so many, else none.
    #[inline]
    pub(crate) fn pay(&mut self, price: u64) -> bool {
        let has = self.has(price);
        if has {
            self.credit -= price * self.cost;
        }
        has
    }

    /// How long until there is a token.
    pub(crate) fn until_next(&self) -> Cycles {
        Cycles(self.cost.saturating_sub(self.credit).div_ceil(1 << POINT))
    }
}

/// Ticks since the last look, as [`Bucket::fill`] takes them; nothing for a moment before it.
#[inline]
pub(crate) fn passed(last: &mut Option<Cycles>, now: Cycles) -> Option<u64> {
    let passed = (now - last.unwrap_or(now)).0;
    if passed > u64::MAX / 2 {
        return None;
    }
    *last = Some(now);
    Some(passed.min(MOST >> POINT) << POINT)
}
