//! Cache lines that a device has written, as far as the processor knows: in no cache.
#![expect(unsafe_code, reason = "flushes cache lines")]

use std::sync::atomic::{Ordering, fence};

use pollux_eal::memory::Memory;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Ranges of mapped memory whose cache lines are taken out of all caches before something is timed.
#[derive(Debug, Default)]
pub struct Cold(Vec<(usize, usize)>);

impl Cold {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All that is allotted of a memory now: rings, records, buffers.
    ///
    /// # Safety
    /// Those zones stay for as long as [`chill`](Self::chill) is called.
    pub unsafe fn zones(&mut self, memory: &Memory) {
        memory.walk(|zone| self.0.push((zone.address, zone.bytes)));
    }

    /// The lines of a slice that stays.
    pub fn slice<T>(&mut self, slice: &'static [T]) {
        self.0.push((slice.as_ptr().expose_provenance(), size_of_val(slice)));
    }

    /// Any other range of memory.
    ///
    /// # Safety
    /// The bytes are mapped for as long as [`chill`](Self::chill) is called.
    pub unsafe fn range(&mut self, address: usize, bytes: usize) {
        self.0.push((address, bytes));
    }

    /// Takes the lines out of all caches, and waits until they are.
    pub fn chill(&self) {
        for &(address, bytes) in &self.0 {
            for line in (address & !(LINE - 1)..address + bytes).step_by(LINE) {
                flush(line);
            }
        }
        // What is still being flushed is not for the timed code to wait for.
        fence(Ordering::SeqCst);
    }
}

fn flush(line: usize) {
    // SAFETY: the line is mapped, as its owner says; a flush changes no byte.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_clflush(std::ptr::with_exposed_provenance(line));
    }
    // SAFETY: as above; the instruction is one that user space may execute under Linux.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags));
    }
}
