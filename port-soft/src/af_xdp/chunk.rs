//! Where the data rooms of a pool lie in the memory that the kernel is told of: each is a chunk.

use std::ops::Range;
use std::ptr::NonNull;

use pollux_frame_io::xdp::{CHUNK_MAX, CHUNK_MIN, Umem};
use pollux_mempool::MbufPool;

/// Bytes of the pages that the kernel counts in.
const PAGE: usize = 4096;

/// The data rooms of a pool, in its order, one stride apart; addresses are distances from the memory's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    pub(super) memory: Umem,
    /// Bytes of each that the kernel uses.
    pub(super) bytes: u32,
    first: u64,
    stride: u64,
    count: usize,
    /// 2^64 divided by the stride, rounded up: one multiplication divides.
    reciprocal: u64,
    /// Bytes of the pages behind the memory, which are contiguous to a device.
    page: u64,
}

impl Chunks {
    /// Lays chunks over a pool, or says why that cannot be.
    pub(super) fn of(pool: &MbufPool) -> Result<Self, &'static str> {
        let room = pool.data_room();
        if room < CHUNK_MIN {
            return Err("its mbufs have room for less than 2048 bytes, headroom included");
        }
        let mut data = pool.regions().into_iter().filter(|region| region.data);
        let (Some(region), None) = (data.next(), data.next()) else {
            return Err("its data lies in several pieces of memory");
        };
        let rooms = || pool.addresses().map(|(_, room)| room.as_ptr().addr());
        let (Some(first), Some(last)) = (rooms().next(), rooms().last()) else { return Err("it is empty") };
        let stride = rooms().nth(1).map_or(room, |second| second.wrapping_sub(first));
        if stride < room || !rooms().enumerate().all(|(at, room)| room == first + at * stride) {
            return Err("its data rooms do not lie one after another");
        }
        let whole = first & !(PAGE - 1)..(last + room).next_multiple_of(PAGE);
        let start = region.base.as_ptr().addr();
        let own: Range<usize> = start..start + region.bytes;
        // A region of the EAL's is mapped in whole pages, of which a pool may have a part.
        if region.region.is_none() && !(own.start <= whole.start && whole.end <= own.end) {
            return Err("its memory does not begin and end with a page");
        }
        let base = region.base.as_ptr().wrapping_byte_offset(whole.start as isize - start as isize);
        let base = NonNull::new(base).ok_or("it lies at address 0")?;
        let span = (pool.capacity() as u64).checked_mul(stride as u64);
        // As far as the multiplication in `find` is exact, and addresses have 48 bits.
        if span.is_none_or(|span| span >= 1 << 40) || stride >= 1 << 23 {
            return Err("it is larger than 1 TiB");
        }
        Ok(Self {
            memory: Umem { base, bytes: whole.len() },
            bytes: room.min(CHUNK_MAX) as u32,
            first: (first - whole.start) as u64,
            stride: stride as u64,
            count: pool.capacity(),
            reciprocal: u64::MAX / stride as u64 + 1,
            page: region.page_size as u64,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether a device that reaches the memory itself finds most chunks in one piece.
    pub(super) fn suits_devices(&self) -> bool {
        self.page >= 1 << 21
    }

    /// Where a byte at `address` lies; what it lies in is not checked.
    #[inline]
    pub(super) fn distance(&self, address: *const u8) -> u64 {
        address.addr().wrapping_sub(self.memory.base.as_ptr().addr()) as u64
    }

    /// Which chunk a byte lies in, be the number whatever it is, and how far in it.
    #[inline]
    pub(super) fn find(&self, at: u64) -> Option<(usize, usize)> {
        let within = at.checked_sub(self.first)?;
        if within >= self.count as u64 * self.stride {
            return None;
        }
        let index = ((u128::from(within) * u128::from(self.reciprocal)) >> 64) as u64;
        let offset = within.checked_sub(index * self.stride)?;
        (offset < self.stride).then_some((index as usize, offset as usize))
    }

    /// Whether bytes lie on two pages, of which a device may not find the second behind the first.
    pub(super) fn crosses(&self, at: u64, bytes: u32) -> bool {
        let address = self.memory.base.as_ptr().addr() as u64 + at;
        (address & (self.page - 1)) + u64::from(bytes) > self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_room_of_a_pool_is_found_and_nothing_else() {
        for (count, room, debug) in
            [(1, 2048, false), (63, 2176, false), (1000, 2176, true), (257, 9000, false)]
        {
            let pool = MbufPool::builder("chunks", count).data_room(room).debug(debug);
            let pool = pool.build_anonymous().expect("memory");
            let chunks = Chunks::of(&pool).expect("one piece of memory");
            assert_eq!(chunks.count(), count);
            assert_eq!(chunks.bytes as usize, room.min(4096));
            let memory = chunks.memory;
            assert!(memory.base.as_ptr().addr().is_multiple_of(PAGE) && memory.bytes.is_multiple_of(PAGE));
            let mut end = 0;
            for (index, (header, place)) in pool.addresses().enumerate() {
                let at = chunks.distance(place.as_ptr());
                assert_eq!(chunks.find(at), Some((index, 0)));
                assert_eq!(chunks.find(at + room as u64 - 1), Some((index, room - 1)));
                // A header is never a part of a chunk that begins with it.
                let header = chunks.find(chunks.distance(header.as_ptr()));
                assert!(
                    header.is_none_or(|(other, offset)| other + 1 == index && offset >= room),
                    "{header:?}"
                );
                end = at + room as u64;
            }
            assert!(end <= memory.bytes as u64);
            for wild in [
                u64::MAX,
                1 << 48,
                memory.bytes as u64 + PAGE as u64,
                chunks.first + chunks.stride * count as u64,
            ] {
                assert_eq!(chunks.find(wild), None, "{wild:#x}");
            }
            assert_eq!(chunks.first.checked_sub(1).and_then(|before| chunks.find(before)), None);
        }
    }

    #[test]
    fn a_pool_that_cannot_be_given_to_the_kernel_says_why() {
        let small = MbufPool::builder("small", 8).data_room(1024).build_anonymous().expect("memory");
        assert!(Chunks::of(&small).expect_err("too small").contains("2048"));
    }
}
