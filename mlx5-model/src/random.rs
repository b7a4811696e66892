//! Chance from a seed: the same seed, the same run.

/// SplitMix64. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014, figure 17. A crate for
/// this would be a dependency for six lines whose sequence has to stay the same for ever: seeds are printed in reports.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of a product: evenly spread up to a bias of limit / 2^64.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True in that share of all calls. A share of 0 draws nothing, so that what is off changes no other draw.
    pub fn chance(&mut self, share: f64) -> bool {
        // 53 bits are what a double holds exactly.
        share > 0.0 && ((self.next() >> 11) as f64) < share * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // First outputs for seed 1234567, as in the reference implementation's usual test.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn shares_are_kept() {
        let mut random = Random::new(7);
        let hits = (0..100_000).filter(|_| random.chance(0.25)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| random.chance(1.0)) && !(0..1000).any(|_| random.chance(0.0)));
        assert!((0..1000).all(|_| random.below(10) < 10));
    }
}
