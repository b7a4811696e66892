//! Numbers that look random.

/// Pseudo-random numbers, xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016), for what is
/// to look random and be the same for the same seed.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// A sequence for that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
