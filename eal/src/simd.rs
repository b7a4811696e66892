//! How wide the vectors may be that a loop uses: what the processor has, capped as the user says.
//!
//! Ours is built for the plain target, so a wider path is chosen when a queue is set up, never per packet. Source of the
//! cap: DPDK `lib/eal/include/rte_vect.h` and its option `--force-max-simd-bitwidth`.

use std::sync::atomic::{AtomicU32, Ordering};

/// What [`limit`] was told, in bits; 0: nothing.
static LIMIT: AtomicU32 = AtomicU32::new(0);

/// Has [`SimdWidth::usable`] give no wider vectors than `bits`, as [`SimdWidth::capped`] reads it. It is for the whole process,
/// as the processor is, and for what is set up from now on.
pub fn limit(bits: u32) {
    LIMIT.store(bits, Ordering::Relaxed);
}

/// Whether [`limit`] allows vectors of `bits`, whatever the processor has.
#[must_use]
pub fn allows(bits: u32) -> bool {
    let limit = LIMIT.load(Ordering::Relaxed);
    limit == 0 || bits <= limit
}

/// The widest vectors that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimdWidth {
    /// None; the scalar path.
    Scalar,
    /// 128 bits: SSE4.2 or NEON.
    Bits128,
    /// 256 bits: AVX2.
    Bits256,
    /// 512 bits: AVX-512 F, BW, VL and DQ.
    Bits512,
}

impl SimdWidth {
    /// What this processor and kernel have.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq") {
                Self::Bits512
            } else if has!("avx2") {
                Self::Bits256
            } else if has!("sse4.2") {
                Self::Bits128
            } else {
                Self::Scalar
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            Self::Bits128
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            Self::Scalar
        }
    }

    /// What this processor has, capped by [`limit`].
    #[must_use]
    pub fn usable() -> Self {
        Self::detect().capped(LIMIT.load(Ordering::Relaxed))
    }

    /// No wider than `bits`; 0 is no cap, and what is between two widths means the lower.
    #[must_use]
    pub fn capped(self, bits: u32) -> Self {
        let cap = match bits {
            0 | 512.. => Self::Bits512,
            256.. => Self::Bits256,
            128.. => Self::Bits128,
            _ => Self::Scalar,
        };
        self.min(cap)
    }

    /// The number of bits; 64 for the scalar path, as DPDK counts it.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Scalar => 64,
            Self::Bits128 => 128,
            Self::Bits256 => 256,
            Self::Bits512 => 512,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_only_lowers() {
        let all = [SimdWidth::Scalar, SimdWidth::Bits128, SimdWidth::Bits256, SimdWidth::Bits512];
        for width in all {
            assert_eq!(width.capped(0), width);
            assert_eq!(width.capped(64), SimdWidth::Scalar);
            for cap in all {
                assert_eq!(width.capped(cap.bits()), width.min(cap));
            }
        }
        assert_eq!(SimdWidth::Bits512.capped(511), SimdWidth::Bits256);
        assert_eq!(SimdWidth::Bits128.capped(32_768), SimdWidth::Bits128);
        assert!(SimdWidth::detect() <= SimdWidth::Bits512);
    }
}
