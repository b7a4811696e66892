//! What memory is filled with, and how much of it was as it should be.

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Bytes.
    pub bytes: u64,
    /// Those that were not what they should be.
    pub wrong: u64,
}

/// Bytes that differ from place to place and from seed to seed.
#[must_use]
pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ() {
        assert_eq!(pattern(20, 1).len(), 20);
        assert_ne!(pattern(20, 1), pattern(20, 2));
        assert_eq!(pattern(20, 1)[..7], pattern(7, 1));
    }
}
