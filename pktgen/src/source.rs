//! What a window holds in one packet after the other.

use crate::value::Values;
use crate::window::Window;

/// Values, one for each packet.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// From the first on in steps, and from the first again: `left` more steps until then.
    Range {
        value: u64,
        first: u64,
        step: u64,
        left: u64,
        count: u64,
    },
    List {
        values: Box<[u64]>,
        at: usize,
    },
    Random {
        base: u64,
        mask: u64,
        state: u64,
    },
}

impl Source {
    /// What `window` holds of the values of a field called `name`; `None`: always the same.
    pub(crate) fn new(
        values: &Values,
        window: &Window,
        name: &str,
        seed: u64,
    ) -> Result<Option<Self>, String> {
        let part = |value: u128| window.part(value);
        if part(values.varying()) == 0 {
            return Ok(None);
        }
        Ok(Some(match values {
            Values::Fixed(_) => return Ok(None),
            Values::Range { first, last, step } => {
                if window.behind > 0 {
                    let bits = window.behind;
                    return Err(format!(
                        "field '{name}': a range may change the last {bits} bits; use a list or random bits"
                    ));
                }
                let (first, last) = (part(*first), part(*last));
                let step = u64::try_from(*step).unwrap_or(u64::MAX);
                let count = first.abs_diff(last) / step;
                // Downwards is upwards by the complement.
                let step = if last < first { step.wrapping_neg() } else { step };
                Self::Range { value: first, first, step, left: count, count }
            }
            Values::List(list) => {
                let values = list.iter().map(|value| part(*value)).collect();
                Self::List { values, at: 0 }
            }
            Values::Random { base, mask } => {
                Self::Random { base: part(*base), mask: part(*mask), state: seed | 1 }
            }
        }))
    }

    /// How many different values there are before the first comes again; `None`: random ones.
    pub(crate) fn period(&self) -> Option<u64> {
        match self {
            Self::Range { count, .. } => Some(count.saturating_add(1)),
            Self::List { values, .. } => Some(values.len() as u64),
            Self::Random { .. } => None,
        }
    }

    /// Begins with another value than the first: that of packet `number`.
    pub(crate) fn skip(&mut self, number: u64) {
        let Some(period) = self.period() else { return };
        let skipped = number % period;
        match self {
            Self::Range { value, step, left, .. } => {
                *value = value.wrapping_add(step.wrapping_mul(skipped));
                *left -= skipped;
            }
            Self::List { at, .. } => *at = skipped as usize,
            Self::Random { .. } => {}
        }
    }
}

/// The next number of a sequence: xorshift64*.
#[inline(always)]
pub(crate) fn draw(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Spreads numbers that lie close together: a seed of one's own for each of them (splitmix64).
pub(crate) fn spread(seed: u64, number: u64) -> u64 {
    let mut mixed = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
