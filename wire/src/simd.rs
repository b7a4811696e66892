//! How wide the vectors may be that sums are made with.

use std::sync::atomic::{AtomicU32, Ordering};

static BITS_MAX: AtomicU32 = AtomicU32::new(u32::MAX);

/// Has no vectors wider than `bits` used from now on, in the whole process; 0: as wide as the processor has. The option is DPDK's
/// `--force-max-simd-bitwidth`.
pub fn limit(bits: u32) {
    BITS_MAX.store(if bits == 0 { u32::MAX } else { bits }, Ordering::Relaxed);
}

/// Whether vectors of `bits` may be used. One load.
#[inline]
#[must_use]
pub fn allows(bits: u32) -> bool {
    bits <= BITS_MAX.load(Ordering::Relaxed)
}
