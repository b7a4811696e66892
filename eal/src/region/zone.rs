//! A piece of a region, and the right to its bytes.
#![expect(unsafe_code, reason = "copies in and out of memory that a device may write")]

use std::ptr::NonNull;

use super::Region;

/// A contiguous piece of a region, and the right to use those bytes.
///
/// No two living zones overlap, so it is not `Clone`. It keeps its region mapped, and its bytes go back to the region
/// when it is dropped. It begins on a 64-byte line that no other zone touches, and its bytes are zero at first.
///
/// A device may write the bytes at any time, so there is no way to a reference: [`copy_in`](Self::copy_in) and
/// [`copy_out`](Self::copy_out) copy, and whoever goes through [`base`](Self::base) answers for what they do.
#[derive(Debug)]
pub struct Zone {
    region: Region,
    offset: usize,
    bytes: usize,
}

impl Zone {
    /// The right to bytes that the region's free list has just marked as taken.
    pub(super) fn new(region: Region, offset: usize, bytes: usize) -> Self {
        Self { region, offset, bytes }
    }

    /// The region it is part of.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Address of the first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        // SAFETY: `offset` is inside the region, by the free list that it came from.
        unsafe { self.region.base().add(self.offset) }
    }

    /// Length in bytes, as asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Distance in bytes from the region's base.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The name it was reserved under.
    #[must_use]
    pub fn name(&self) -> String {
        self.region.name_at(self.offset)
    }

    /// Copies `source` to `offset`, in words of 8 bytes where both ends allow it.
    ///
    /// # Panics
    /// When it would not fit.
    pub fn copy_in(&mut self, offset: usize, source: &[u8]) {
        let to = self.inside(offset, source.len());
        let mut at = 0;
        while at < source.len() {
            // SAFETY: `inside` checked the range, which is mapped as long as the zone lives; `&mut self` keeps other
            // users of the zone's methods away, and volatile stores bear a device that looks on. The 8-byte store is made
            // only at an aligned address.
            unsafe {
                let to = to.add(at);
                if let Some(word) = source[at..].first_chunk::<8>()
                    && to.cast::<u64>().is_aligned()
                {
                    to.cast::<u64>().write_volatile(u64::from_ne_bytes(*word));
                    at += 8;
                } else {
                    to.write_volatile(source[at]);
                    at += 1;
                }
            }
        }
    }

    /// Copies what is at `offset` into `target`, in words of 8 bytes where both ends allow it. What a device writes at
    /// the same time may be seen in part.
    ///
    /// # Panics
    /// When there are fewer bytes.
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) {
        let from = self.inside(offset, target.len());
        let mut at = 0;
        while at < target.len() {
            // SAFETY: as in `copy_in`; a shared borrow keeps the writing methods away.
            unsafe {
                let from = from.add(at);
                if let Some(word) = target[at..].first_chunk_mut::<8>()
                    && from.cast::<u64>().is_aligned()
                {
                    *word = from.cast::<u64>().read_volatile().to_ne_bytes();
                    at += 8;
                } else {
                    target[at] = from.read_volatile();
                    at += 1;
                }
            }
        }
    }

    /// Makes every byte zero.
    pub fn clear(&mut self) {
        // SAFETY: the zone's bytes are mapped as long as it lives, and `&mut self` keeps other users of its methods away.
        unsafe { self.base().write_bytes(0, self.bytes) };
    }

    fn inside(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {offset} are not inside a zone of {} bytes",
            self.bytes
        );
        // SAFETY: `offset` is at most the zone's length, as just checked.
        unsafe { self.base().add(offset) }
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        self.region.give_back(self.offset);
    }
}
