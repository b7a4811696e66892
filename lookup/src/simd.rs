//! What only instructions of the processor do: to have a cache line fetched before it is read.
#![expect(unsafe_code, reason = "the instruction takes a pointer")]

/// Has the processor fetch the line of `word` into its caches. Where there is no such instruction it does nothing.
#[inline(always)]
pub(crate) fn prefetch<T>(word: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads nothing that the program would see, and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}
