//! Barriers between this processor and a device, named for their use, one pair between threads, and prefetches.
//!
//! The former order what the processor does against what a device sees on its bus. Between threads, atomics are the tool,
//! but for [`light`] and [`heavy`], which are a full barrier of which one side pays for both.
//!
//! ```text
//!   fill descriptors          read completion: it is ours
//!   to_device()               from_device()
//!   store doorbell record     read what the device wrote before it
//!   to_device()
//!   store doorbell register, or copy to a write-combining page and wc_flush()
//! ```
//!
//! With the feature `mmio-trace` a test is told of them: see [`mmio`](crate::mmio).
//!
//! Source of each contract and instruction: rdma-core `util/udma_barrier.h`; for x86-64 also Intel SDM volume 3, "Memory
//! Ordering" (stores to ordinary memory are seen in order, loads from it are made in order, write-combining memory keeps no
//! order).
#![expect(unsafe_code, reason = "barriers and prefetches are instructions")]

use std::arch::asm;
use std::sync::atomic::{Ordering, compiler_fence, fence};
use std::time::Duration;

/// All stores to ordinary memory before this are seen by the device before any store after it.
///
/// It goes before a store that makes a device look: a doorbell, a doorbell record, an ownership bit. Free on x86-64, where
/// it only holds back the compiler; `dmb oshst` on aarch64.
#[inline(always)]
pub fn to_device() {
    // SAFETY: an empty instruction, or a barrier; either only restrains order.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        asm!("dmb oshst", options(nostack, preserves_flags));
        #[cfg(not(target_arch = "aarch64"))]
        asm!("", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
    #[cfg(any(test, feature = "mmio-trace"))]
    crate::mmio::trace::to_device();
}

/// All loads after this see what the device wrote before the store that has just been observed.
///
/// It goes after the test of an ownership bit or a valid flag. Free on x86-64, which makes loads from ordinary memory in
/// order (rdma-core spends an `lfence`, for memory of other kinds, where devices do not write for us); `dmb oshld` on
/// aarch64.
#[inline(always)]
pub fn from_device() {
    // SAFETY: an empty instruction, or a barrier; either only restrains order.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        asm!("dmb oshld", options(nostack, preserves_flags));
        #[cfg(not(target_arch = "aarch64"))]
        asm!("", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
    #[cfg(any(test, feature = "mmio-trace"))]
    crate::mmio::trace::from_device();
}

/// Stores to write-combining memory before this leave the processor now, and are not combined with or overtaken by any
/// after it. Some 20 to 100 cycles: `sfence` on x86-64, `dsb st` on aarch64.
///
/// It goes after a copy to a BlueFlame register. Before such a copy it orders the copy after earlier stores of other kinds;
/// it implies [`to_device`].
#[inline(always)]
pub fn wc_flush() {
    // SAFETY: a barrier only restrains order.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("sfence", options(nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
    #[cfg(any(test, feature = "mmio-trace"))]
    crate::mmio::trace::flushed();
}

/// The side of a full barrier that costs nothing: it only holds back the compiler. Its other side is [`heavy`].
///
/// Where one thread stores to A, calls `light` and loads from B, and another stores to B, calls `heavy` and loads from A,
/// at least one of the loads sees the other thread's store.
#[inline(always)]
pub fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// The side of a full barrier that pays for both, by making every thread of this process pass one: some microseconds, and
/// an interrupt to each running thread. See [`light`].
///
/// Source: membarrier(2). Where a sandbox forbids that call, this waits 10 ms instead: a processor keeps a store to
/// itself for well under a microsecond, and a thread that is taken off its processor not at all.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        // A process registers once; to do it again is no error.
        let registered = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        if !(registered && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
            std::thread::sleep(DRAINED);
        }
    }
    fence(Ordering::SeqCst);
}

/// How long [`heavy`] waits where there is no membarrier(2).
const DRAINED: Duration = Duration::from_millis(10);

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers alone and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Asks for the line at `address` in all caches, to be read soon. Any address will do: a bad one is ignored.
#[inline(always)]
pub fn prefetch_read<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that never faults, and that SSE, part of x86-64, has.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint that never faults.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Asks for the line at `address`, to be written soon. Any address will do: a bad one is ignored.
///
/// `prefetchw` on x86-64: it makes the line ours, which spares the second trip at the store. Processors without it take it
/// for a no-op (Intel since Broadwell and all of AMD's 64-bit ones have it; the earlier 64-bit ones decode it as none).
#[inline(always)]
pub fn prefetch_write<T>(address: *const T) {
    // SAFETY: a hint that never faults.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Asks for the line at `address` to be read once and soon forgotten, so that it drives little out of the caches.
#[inline(always)]
pub fn prefetch_once<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that never faults, and that SSE, part of x86-64, has.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_NTA }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    prefetch_read(address);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_addresses_are_ignored() {
        for address in [0_usize, 1, 0xffff_8000_0000_0000, usize::MAX] {
            let address = std::ptr::without_provenance::<u8>(address);
            prefetch_read(address);
            prefetch_write(address);
            prefetch_once(address);
        }
    }

    /// Store here, load there, on two threads: without a barrier both loads may miss the other's store, and do.
    #[test]
    fn stress_one_of_two_sides_sees_the_other() {
        use std::sync::atomic::{AtomicU32, AtomicUsize};
        const ROUNDS: usize = 20_000;
        let (ours, theirs) = (AtomicU32::new(0), AtomicU32::new(0));
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let seen = AtomicU32::new(0);
        let wait = |count: &AtomicUsize, round: usize| {
            let mut tries = 0_u32;
            while count.load(Ordering::Acquire) < round {
                tries += 1;
                if tries.is_multiple_of(1000) { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait(&begun, round);
                    ours.store(1, Ordering::Relaxed);
                    light();
                    seen.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
                    ended.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                ours.store(0, Ordering::Relaxed);
                theirs.store(0, Ordering::Relaxed);
                begun.store(round, Ordering::Release);
                // Somewhere near the other thread's store, a little earlier or later each time.
                for _ in 0..round % 64 {
                    std::hint::spin_loop();
                }
                theirs.store(1, Ordering::Relaxed);
                heavy();
                let here = ours.load(Ordering::Relaxed);
                wait(&ended, round);
                assert!(
                    here == 1 || seen.load(Ordering::Relaxed) == 1,
                    "round {round}: neither saw the other"
                );
            }
        });
    }

    /// The compiler must neither join nor drop what stands on both sides of a barrier, even where the processor needs none.
    #[test]
    fn what_is_behind_a_barrier_is_read_again() {
        let value = std::sync::atomic::AtomicU32::new(1);
        let first = value.load(std::sync::atomic::Ordering::Relaxed);
        value.store(2, std::sync::atomic::Ordering::Relaxed);
        to_device();
        wc_flush();
        from_device();
        assert_eq!((first, value.load(std::sync::atomic::Ordering::Relaxed)), (1, 2));
    }
}
