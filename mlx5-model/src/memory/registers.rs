//! The device's registers, where software stores: UAR pages, and the page with the clock.
#![expect(unsafe_code, reason = "registers that a driver stores to while the device looks at them")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pollux_eal::region::{MemoryError, Region, Zone};
use pollux_mlx5_abi::doorbell::uar::PAGE_BYTES;
use pollux_uverbs::{Page, Protection};

/// A number of register pages. Page 0 holds the clock. Clones are handles.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    zone: Arc<Zone>,
}

impl Bar {
    pub(crate) fn new(name: &str, pages: usize) -> Result<Self, MemoryError> {
        let zone = Region::shared(&format!("{name} registers"), pages * PAGE_BYTES)?.into_zone();
        Ok(Self { zone: Arc::new(zone) })
    }

    /// A page, to be mapped. `None` if it is not there.
    pub(crate) fn page(&self, page: usize, protection: Protection) -> Option<Page> {
        let offset = page.checked_mul(PAGE_BYTES)?;
        let inside = offset.checked_add(PAGE_BYTES)? <= self.zone.bytes();
        inside.then(|| Page::of_zone(Arc::clone(&self.zone), offset, PAGE_BYTES, protection))
    }

    /// Where page `page` begins, and all behind it, for the device itself.
    pub(crate) fn address(&self, page: usize) -> u64 {
        (self.zone.base().as_ptr().expose_provenance() + page * PAGE_BYTES) as u64
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.zone.bytes() as u64
    }

    /// `bytes` bytes from `offset` on, to be mapped; both whole pages.
    pub(crate) fn stretch(&self, offset: usize, bytes: usize) -> Option<Page> {
        let whole = offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES) && bytes > 0;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.zone.bytes());
        (whole && inside).then(|| Page::of_zone(Arc::clone(&self.zone), offset, bytes, Protection::ReadWrite))
    }

    /// Takes what was stored to an 8-byte register: nothing, or not zero.
    #[inline]
    pub(crate) fn take64(&self, page: usize, offset: usize) -> Option<[u8; 8]> {
        let at = self.register(page, offset, 8)?;
        // SAFETY: `register` found it inside the zone and aligned; who has the page stores whole words only.
        let register = unsafe { AtomicU64::from_ptr(at.cast()) };
        if register.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(register.swap(0, Ordering::Acquire).to_ne_bytes()).filter(|value| *value != [0; 8])
    }

    /// Takes what was stored to a 4-byte register.
    #[inline]
    pub(crate) fn take32(&self, page: usize, offset: usize) -> Option<[u8; 4]> {
        let at = self.register(page, offset, 4)?;
        // SAFETY: as in `take64`.
        let register = unsafe { AtomicU32::from_ptr(at.cast()) };
        if register.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(register.swap(0, Ordering::Acquire).to_ne_bytes()).filter(|value| *value != [0; 4])
    }

    /// Shows the clock, big-endian.
    pub(crate) fn show_clock(&self, ticks: u64) {
        if let Some(at) = self.register(0, 0, 8) {
            // SAFETY: as in `take64`; users of that page can only read it.
            unsafe { AtomicU64::from_ptr(at.cast()) }.store(ticks.to_be(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn register(&self, page: usize, offset: usize, bytes: usize) -> Option<*mut u8> {
        let at = page.checked_mul(PAGE_BYTES)?.checked_add(offset)?;
        if !at.is_multiple_of(bytes) || at.checked_add(bytes)? > self.zone.bytes() {
            return None;
        }
        // SAFETY: inside the zone, as just checked.
        Some(unsafe { self.zone.base().as_ptr().add(at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_taken_once() {
        let bar = Bar::new("bar", 3).expect("memory");
        let page = Arc::new(bar.page(2, Protection::Write).expect("page"));
        let mut registers = page.registers(0x800..0x900).expect("registers");
        assert_eq!(bar.take64(2, 0x800), None);
        registers.store64(0, 7_u64.to_be());
        assert_eq!(bar.take64(2, 0x800), Some([0, 0, 0, 0, 0, 0, 0, 7]));
        assert_eq!(bar.take64(2, 0x800), None);
        registers.store32(4, 7);
        assert_eq!(bar.take32(2, 0x804), Some(7_u32.to_ne_bytes()));
        for (page, offset) in [(3, 0), (usize::MAX, 0), (2, 4096), (2, 1), (0, usize::MAX - 7)] {
            assert_eq!(bar.take64(page, offset), None);
        }
        bar.show_clock(0x0102_0304_0506_0708);
        let clock = bar.page(0, Protection::Read).expect("page");
        assert_eq!(clock.read64(0), Some(0x0102_0304_0506_0708_u64.to_be()));
        assert!(bar.page(3, Protection::Read).is_none());
    }
}
