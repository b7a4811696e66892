//! The processor's own counter, read without a system call.
#![expect(unsafe_code, reason = "reads the time stamp counter")]

/// The counter now. Hot: one instruction on x86-64 (some 20 cycles), which others may overtake; a vDSO call elsewhere.
///
/// It measures cost. For time, ask a [`Clock`](super::Clock), which knows whether the counter keeps a steady pace.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and Linux leaves it open to programs.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        monotonic_ns()
    }
}

/// The counter, read after all earlier instructions have ended and before any later one begins.
///
/// Source: Intel SDM volume 2, RDTSC: `LFENCE` before orders it after earlier instructions, one after it holds back the
/// later ones; AMD's processors do the same where Linux has made `LFENCE` serialising, which it does at boot.
#[inline(always)]
#[must_use]
#[doc(alias = "rte_rdtsc_precise")]
pub fn now_precise() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has these instructions, and Linux leaves them open to programs.
    unsafe {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        _mm_lfence();
        let cycles = _rdtsc();
        _mm_lfence();
        cycles
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        monotonic_ns()
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_MONOTONIC_RAW` in nanoseconds: not bent by NTP, so what a counter is calibrated against.
pub(super) fn monotonic_raw_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_RAW)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours and outlives the call. Both clocks exist on every Linux since 2.6.28, so it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Neither is negative: these clocks begin at boot.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
