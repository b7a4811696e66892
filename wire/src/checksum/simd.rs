//! The sum of long data in vector registers.
#![expect(
    unsafe_code,
    reason = "calls a function compiled for AVX2 after asking the processor for it; vectors from bytes and back"
)]

use super::add_carry;

const BLOCK: usize = 128;

/// Sums all whole blocks of 128 bytes; gives back the rest, under one block.
#[inline]
pub(super) fn sum_blocks(bytes: &[u8]) -> (u64, &[u8]) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    #[cfg(target_arch = "x86_64")]
    if crate::simd::allows(256) && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the function needs AVX2 and nothing else, and the line above has just seen that the processor has it.
        return (unsafe { sum_avx2(blocks) }, rest);
    }
    (sum_portable(blocks), rest)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(blocks: &[[u8; BLOCK]]) -> u64 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_set1_epi64x, _mm256_setzero_si256,
        _mm256_srli_epi64,
    };
    let mask = _mm256_set1_epi64x(0xffff_ffff);
    // Halves of words in lanes of 64 bits: no carry is lost before four thousand million blocks.
    let (mut low, mut high) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
    for block in blocks {
        // SAFETY: both types have 128 bytes and any bytes are valid in both.
        let vectors: [__m256i; 4] = unsafe { std::mem::transmute(*block) };
        for lane in 0..4 {
            low[lane] = _mm256_add_epi64(low[lane], _mm256_and_si256(vectors[lane], mask));
            high[lane] = _mm256_add_epi64(high[lane], _mm256_srli_epi64::<32>(vectors[lane]));
        }
    }
    let mut sum = _mm256_setzero_si256();
    for lane in 0..4 {
        // The high half weighs 2^32, which ones'-complement arithmetic in 16 bits counts as 1.
        sum = _mm256_add_epi64(sum, _mm256_add_epi64(low[lane], high[lane]));
    }
    // SAFETY: both types have 32 bytes and any bytes are valid in both.
    let lanes: [u64; 4] = unsafe { std::mem::transmute(sum) };
    lanes.into_iter().fold(0, add_carry)
}

/// The same, one word at a time.
fn sum_portable(blocks: &[[u8; BLOCK]]) -> u64 {
    let mut lanes = [0u128; 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (at, word) in words.iter().enumerate() {
            lanes[at % 4] += u128::from(u64::from_ne_bytes(*word));
        }
    }
    let sum: u128 = lanes.into_iter().sum();
    add_carry(sum as u64, (sum >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatched_equals_portable() {
        let bytes: Vec<u8> = (0..3000u32).map(|i| ((i * i) >> 3) as u8 | 0x80).collect();
        for len in (0..3000).step_by(37) {
            let (blocks, rest) = bytes[..len].as_chunks::<BLOCK>();
            let (sum, behind) = sum_blocks(&bytes[..len]);
            assert_eq!(
                (super::super::Sum(sum).fold(), behind),
                (super::super::Sum(sum_portable(blocks)).fold(), rest)
            );
        }
    }
}
