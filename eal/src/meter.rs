//! Meters that colour packets by the rate of their flow, for whoever polices or marks traffic.
//! Sources: RFC 2697, a single rate three colour marker, and RFC 2698, a two rate three colour marker; DPDK's `lib/meter` has both.
//!
//! ```text
//!   single rate:  committed rate ──► committed bucket ─ green        two rates:  committed rate ──► committed bucket ─ green
//!                                       └ overflow ──► excess bucket ─ yellow    peak rate ───────► peak bucket ────── yellow
//!                                                     neither ─ red                                 neither ────────── red
//! ```
//!
//! A meter belongs to one thread, and a packet costs a few multiplications; the moment is the caller's, one for a burst. Buckets begin full.
//!
//! ```
//! use pollux_eal::clock::{Clock, Cycles};
//! use pollux_eal::meter::{Colour, SingleRate};
//!
//! let clock = Clock::get();
//! // 1 MB a second, 1500 bytes at once, and 3000 more after a pause.
//! let mut meter = SingleRate::new(&clock, 1_000_000, 1500, 3000)?;
//! let now = clock.now();
//! assert_eq!(meter.colour_blind(now, 1500), Colour::Green);
//! assert_eq!(meter.colour_blind(now, 1500), Colour::Yellow);
//! assert_eq!(meter.colour_blind(now, 1500), Colour::Yellow);
//! assert_eq!(meter.colour_blind(now, 1500), Colour::Red);
//! assert_eq!(meter.colour_blind(now + clock.cycles(1_500_100), 1500), Colour::Green);
//! # Ok::<(), pollux_eal::pacer::RateError>(())
//! ```

use crate::bucket::{Bucket, RateError, passed};
use crate::clock::{Clock, Cycles};

/// What a meter makes of a packet; the later is the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Colour {
    /// Within the committed rate and burst.
    Green,
    /// Above these, within the excess burst or the peak rate.
    Yellow,
    /// Above all.
    Red,
}

/// A single rate three colour marker (RFC 2697).
#[derive(Clone, Debug)]
pub struct SingleRate {
    committed: Bucket,
    excess: Bucket,
    last: Option<Cycles>,
}

impl SingleRate {
    /// `rate` in bytes of IP packets a second; bursts in bytes. A packet larger than both bursts is always red.
    ///
    /// # Errors
    /// A rate of 0 or above 1024 bytes a tick of the clock; both bursts 0, or one of more than the clock counts in some 20 minutes.
    #[doc(alias = "rte_meter_srtcm_config")]
    pub fn new(clock: &Clock, rate: u64, committed_burst: u64, excess_burst: u64) -> Result<Self, RateError> {
        let least = u64::from(excess_burst == 0);
        Ok(Self {
            committed: Bucket::new(clock, rate, committed_burst, least)?.full(),
            excess: Bucket::new(clock, rate, excess_burst, 0)?.full(),
            last: None,
        })
    }

    /// The colour of a packet of so many bytes. Hot: three multiplications at most.
    #[inline]
    #[doc(alias = "rte_meter_srtcm_color_blind_check")]
    pub fn colour_blind(&mut self, now: Cycles, bytes: u64) -> Colour {
        self.colour_aware(now, bytes, Colour::Green)
    }

    /// The same of a packet that somebody has given a colour before: never a better one.
    #[inline]
    #[doc(alias = "rte_meter_srtcm_color_aware_check")]
    pub fn colour_aware(&mut self, now: Cycles, bytes: u64, before: Colour) -> Colour {
        if let Some(passed) = passed(&mut self.last, now) {
            let over = self.committed.fill(passed);
            self.excess.fill(over);
        }
        if before == Colour::Green && self.committed.pay(bytes) {
            Colour::Green
        } else if before != Colour::Red && self.excess.pay(bytes) {
            Colour::Yellow
        } else {
            Colour::Red
        }
    }
}

/// A two rate three colour marker (RFC 2698).
#[derive(Clone, Debug)]
pub struct TwoRate {
    committed: Bucket,
    peak: Bucket,
    last: Option<Cycles>,
}

impl TwoRate {
    /// Rates in bytes of IP packets a second, bursts in bytes. A packet larger than the peak burst is always red.
    ///
    /// # Errors
    /// A rate of 0, above 1024 bytes a tick of the clock, or a peak rate below the committed one; a burst of 0, or of more than the clock counts
    /// in some 20 minutes.
    #[doc(alias = "rte_meter_trtcm_config")]
    pub fn new(
        clock: &Clock,
        committed_rate: u64,
        committed_burst: u64,
        peak_rate: u64,
        peak_burst: u64,
    ) -> Result<Self, RateError> {
        if peak_rate < committed_rate {
            return Err(RateError::Peak { peak: peak_rate, committed: committed_rate });
        }
        Ok(Self {
            committed: Bucket::new(clock, committed_rate, committed_burst, 1)?.full(),
            peak: Bucket::new(clock, peak_rate, peak_burst, 1)?.full(),
            last: None,
        })
    }

    /// The colour of a packet of so many bytes. Hot: four multiplications at most.
    #[inline]
    #[doc(alias = "rte_meter_trtcm_color_blind_check")]
    pub fn colour_blind(&mut self, now: Cycles, bytes: u64) -> Colour {
        self.colour_aware(now, bytes, Colour::Green)
    }

    /// The same of a packet that somebody has given a colour before: never a better one.
    #[inline]
    #[doc(alias = "rte_meter_trtcm_color_aware_check")]
    pub fn colour_aware(&mut self, now: Cycles, bytes: u64, before: Colour) -> Colour {
        if let Some(passed) = passed(&mut self.last, now) {
            self.committed.fill(passed);
            self.peak.fill(passed);
        }
        if before == Colour::Red || !self.peak.pay(bytes) {
            Colour::Red
        } else if before == Colour::Green && self.committed.pay(bytes) {
            Colour::Green
        } else {
            Colour::Yellow
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The buckets of the standards, in bytes with a fraction.
    struct Oracle {
        /// Tokens, rate, burst.
        buckets: [(f64, f64, f64); 2],
        spills: bool,
    }

    impl Oracle {
        /// What each bucket lacks of a packet's bytes, the least that may be a rounding apart; and the colour.
        fn colour(&mut self, seconds: f64, bytes: f64, before: Colour) -> (Colour, f64) {
            let [first, second] = &mut self.buckets;
            let sum = first.0 + first.1 * seconds;
            first.0 = sum.min(first.2);
            let comes = if self.spills { sum - first.0 } else { second.1 * seconds };
            second.0 = (second.0 + comes).min(second.2);
            let close = (first.0 - bytes).abs().min((second.0 - bytes).abs());
            let (green, other) = (first.0 >= bytes, second.0 >= bytes);
            let colour = match (self.spills, before) {
                (true, Colour::Green) if green => Colour::Green,
                (true, Colour::Green | Colour::Yellow) if other => Colour::Yellow,
                (true, _) | (false, Colour::Red) => Colour::Red,
                (false, _) if !other => Colour::Red,
                (false, Colour::Green) if green => Colour::Green,
                (false, _) => Colour::Yellow,
            };
            let (pays_first, pays_second) = match (self.spills, colour) {
                (true, Colour::Green) => (true, false),
                (false, Colour::Green) => (true, true),
                (_, Colour::Yellow) => (false, true),
                (_, Colour::Red) => (false, false),
            };
            first.0 -= if pays_first { bytes } else { 0.0 };
            second.0 -= if pays_second { bytes } else { 0.0 };
            (colour, close)
        }
    }

    fn colours() -> impl Strategy<Value = Colour> {
        prop_oneof![4 => Just(Colour::Green), 1 => Just(Colour::Yellow), 1 => Just(Colour::Red)]
    }

    proptest! {
        #[test]
        fn colours_are_those_of_the_standards(
            packets in prop::collection::vec((0u64..3000, 0u64..4000, colours()), 1..200),
            rate in 1_000_000u64..2_000_000, more in 0u64..1_000_000, burst in 1u64..5000, other in 1u64..5000,
        ) {
            let clock = Clock::get();
            let bucket = |rate: u64, burst: u64| (burst as f64, rate as f64, burst as f64);
            let mut single = SingleRate::new(&clock, rate, burst, other).unwrap();
            let mut two = TwoRate::new(&clock, rate, burst, rate + more, other).unwrap();
            let mut oracles = [
                Oracle { buckets: [bucket(rate, burst), bucket(rate, other)], spills: true },
                Oracle { buckets: [bucket(rate, burst), bucket(rate + more, other)], spills: false },
            ];
            let mut now = Cycles(1);
            for (us, bytes, before) in packets {
                let passed = clock.cycles(us * 1000);
                now += passed;
                let seconds = passed.0 as f64 / clock.hz() as f64;
                let got = [single.colour_aware(now, bytes, before), two.colour_aware(now, bytes, before)];
                for (oracle, got) in oracles.iter_mut().zip(got) {
                    let (right, close) = oracle.colour(seconds, bytes as f64, before);
                    if right != got {
                        // A token's cost is rounded; where it decides, the two go apart for good.
                        prop_assert!(close < 0.01, "{got:?}, not {right:?}");
                        return Ok(());
                    }
                }
            }
        }
    }

    #[test]
    fn a_packet_gets_no_better_colour_than_it_had() {
        let clock = Clock::get();
        let mut single = SingleRate::new(&clock, 1000, 100, 100).unwrap();
        let mut two = TwoRate::new(&clock, 1000, 100, 1000, 100).unwrap();
        assert_eq!(single.colour_aware(Cycles(1), 10, Colour::Yellow), Colour::Yellow);
        assert_eq!(single.colour_aware(Cycles(1), 10, Colour::Red), Colour::Red);
        assert_eq!(two.colour_aware(Cycles(1), 10, Colour::Yellow), Colour::Yellow);
        assert_eq!(two.colour_aware(Cycles(1), 10, Colour::Red), Colour::Red);
        // Yellow took nothing of the committed burst, red nothing at all.
        assert_eq!(
            (single.colour_blind(Cycles(1), 100), single.colour_blind(Cycles(1), 90)),
            (Colour::Green, Colour::Yellow)
        );
        assert_eq!(
            (two.colour_blind(Cycles(1), 91), two.colour_blind(Cycles(1), 90)),
            (Colour::Red, Colour::Green)
        );
        assert_eq!(single.colour_blind(Cycles(1), u64::MAX), Colour::Red);
        assert_eq!(two.colour_blind(Cycles(1), u64::MAX), Colour::Red);
    }

    #[test]
    fn what_is_no_meter_is_refused_in_words() {
        let clock = Clock::get();
        let why = TwoRate::new(&clock, 2000, 1, 1999, 1).unwrap_err().to_string();
        assert_eq!(
            why,
            "peak rate of 1999 tokens per second is below the committed rate of 2000: must be at least that"
        );
        assert!(SingleRate::new(&clock, 0, 1, 1).is_err() && TwoRate::new(&clock, 1, 0, 1, 1).is_err());
        assert!(
            TwoRate::new(&clock, 1, 1, 1, 0).is_err() && TwoRate::new(&clock, 1, u64::MAX, 1, 1).is_err()
        );
        let why = SingleRate::new(&clock, 1000, 0, 0).unwrap_err().to_string();
        assert!(
            why.starts_with("burst of 0 tokens is out of range at this rate: must be from 1 to "),
            "{why}"
        );
        assert!(SingleRate::new(&clock, 1000, 0, 5).is_ok() && SingleRate::new(&clock, 1000, 5, 0).is_ok());
    }
}
