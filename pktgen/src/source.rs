//! What a window holds in one packet after the other.

use pollux_kit::Noise;

use crate::value::Values;
use crate::window::{Value, Window};

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
        noise: Noise,
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
                Self::Random { base: part(*base), mask: part(*mask), noise: Noise::new(seed) }
            }
        }))
    }

    /// The values of the next packets. `again` says of each of them whether its value is the last before the first one. A field that is
    /// `chained` takes its next value only where that is said of the field before it.
    #[inline]
    pub(crate) fn draw<V: Value>(&mut self, values: &mut [V], chained: bool, again: &mut [bool]) {
        match self {
            Self::Range { value, first, step, left, count } if !chained => {
                again.fill(false);
                let mut at = 0;
                while at < values.len() {
                    // As many as there are up to the last one.
                    let run = (values.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX - 1) + 1);
                    let mut next = *value;
                    for value in &mut values[at..at + run] {
                        *value = V::of(next);
                        next = next.wrapping_add(*step);
                    }
                    at += run;
                    if run as u64 > *left {
                        again[at - 1] = true;
                        (*value, *left) = (*first, *count);
                    } else {
                        (*value, *left) = (next, *left - run as u64);
                    }
                }
            }
            Self::Range { value, first, step, left, count } => {
                for (out, again) in values.iter_mut().zip(again) {
                    *out = V::of(*value);
                    if *again {
                        *again = *left == 0;
                        (*value, *left) =
                            if *again { (*first, *count) } else { (value.wrapping_add(*step), *left - 1) };
                    }
                }
            }
            Self::List { values: list, at } => {
                for (out, again) in values.iter_mut().zip(again) {
                    *out = V::of(list.get(*at).copied().unwrap_or(0));
                    if !chained || *again {
                        *at += 1;
                        *again = *at >= list.len();
                        if *again {
                            *at = 0;
                        }
                    }
                }
            }
            Self::Random { base, mask, noise } => {
                for out in values {
                    *out = V::of(*base | noise.draw().rotate_left(23) & *mask);
                }
            }
        }
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

/// Spreads numbers that lie close together: a seed of one's own for each of them (splitmix64).
pub(crate) fn spread(seed: u64, number: u64) -> u64 {
    let mut mixed = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
