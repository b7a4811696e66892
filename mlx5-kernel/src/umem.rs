//! Memory of a program that the device reaches.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::Access;

use crate::device::{DmaMemory, Pinned, Rights};

/// Bytes of a page of the host.
pub(crate) const PAGE: u64 = 4096;

/// Bits of an entry of a translation list. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`, `MLX5_IB_MTT_*`.
pub(crate) mod entry {
    /// The device may read.
    pub(crate) const READ: u64 = 1 << 0;
    /// The device may write.
    pub(crate) const WRITE: u64 = 1 << 1;
}

/// Largest page of a translation list that is used, as a logarithm: huge pages, which is what memory is contiguous by on a
/// real host.
const LOG_PAGE_MAX: u32 = 21;

/// A pinned range.
#[derive(Debug)]
pub(crate) struct Umem {
    pinned: Pinned,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Umem {
    /// Pins a range. Source of the checks: Linux `drivers/infiniband/core/umem.c`, `ib_umem_get`.
    pub(crate) fn pin(
        memory: &dyn DmaMemory,
        address: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Self, Errno> {
        let end = address.checked_add(bytes).ok_or(Errno::EINVAL)?;
        if bytes == 0 || end.checked_next_multiple_of(PAGE).is_none() {
            return Err(Errno::EINVAL);
        }
        let pinned = memory.pin_of_caller(address, bytes, rights)?;
        Ok(Self { pinned, address, bytes })
    }

    /// What rights of a registration ask of the memory. Source: Linux `include/rdma/ib_verbs.h`, `ib_access_writable`.
    pub(crate) fn rights(access: Access) -> Rights {
        let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND;
        if access.intersects(writable) { Rights::ReadWrite } else { Rights::Read }
    }

    /// Where the device finds the first byte.
    pub(crate) fn dma(&self) -> u64 {
        self.pinned.dma
    }

    /// The largest page, as a logarithm, by which the range can be listed so that the byte at `iova` is the first one.
    pub(crate) fn log_page(&self, iova: u64) -> u32 {
        // Pages must end at the same places in both, and larger ones than the range gain nothing.
        let differ = (self.dma() ^ iova).trailing_zeros();
        let enough = 64 - (self.bytes - 1).leading_zeros();
        differ.min(enough.max(12)).clamp(12, LOG_PAGE_MAX)
    }

    /// Addresses of the pages, each with `bits`, as big-endian numbers.
    pub(crate) fn pages(&self, log_page: u32, bits: u64) -> Vec<u8> {
        let page = 1_u64 << log_page;
        let first = self.dma() & !(page - 1);
        let count = self.count(log_page);
        let mut list = Vec::with_capacity(usize::try_from(count).unwrap_or(0).saturating_mul(8));
        for index in 0..count {
            let address = first.wrapping_add(index.wrapping_mul(page));
            list.extend_from_slice(&(address | bits).to_be_bytes());
        }
        list
    }

    /// How many pages.
    pub(crate) fn count(&self, log_page: u32) -> u64 {
        let page = 1_u64 << log_page;
        let offset = self.dma() & (page - 1);
        // The range does not wrap, so this does not either but by its last page.
        offset.saturating_add(self.bytes).div_ceil(page)
    }

    /// The ring of a completion queue begins on a page: mlx5_ib takes none at another place in its page. Source: Linux
    /// `drivers/infiniband/hw/mlx5/mlx5_ib.h`, `mlx5_umem_find_best_cq_quantized_pgoff`, whose mask of offsets is 0.
    pub(crate) fn begins_on_page(&self) -> Result<(), Errno> {
        if self.address.is_multiple_of(PAGE) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Where a ring begins in its first page of 4 KiB, in 64ths of a page; the ring's context has `bits` for it. Source:
    /// Linux `drivers/infiniband/hw/mlx5/mem.c`, `__mlx5_umem_find_best_quantized_pgoff`.
    pub(crate) fn quantized_offset(&self, bits: u32) -> Result<u32, Errno> {
        let offset = self.dma() & (PAGE - 1);
        let quantum = PAGE / 64;
        if !offset.is_multiple_of(quantum) || offset / quantum >= 1 << bits {
            return Err(Errno::EINVAL);
        }
        Ok((offset / quantum) as u32)
    }
}

/// A doorbell record, in its page.
#[derive(Debug)]
pub(crate) struct Record {
    _page: Arc<Umem>,
    /// Where the device finds the record.
    pub(crate) dma: u64,
}

/// The pages of a context's doorbell records, by process and address: one that holds several is pinned once. The context's lock is around it; who pins
/// has borrowed other parts of the context.
#[derive(Debug, Default)]
pub(crate) struct RecordPages(RefCell<HashMap<Place, Weak<Umem>>>);

/// The process, if it is another one, and the address there.
type Place = (Option<u32>, u64);

impl RecordPages {
    /// Pins the page of the record at `address`, if it is not. Source: Linux `drivers/infiniband/hw/mlx5/doorbell.c`,
    /// `mlx5_ib_db_map_user`.
    pub(crate) fn pin(&self, memory: &dyn DmaMemory, address: u64) -> Result<Record, Errno> {
        let start = address & !(PAGE - 1);
        let place = (memory.caller(), start);
        let mut pages = self.0.borrow_mut();
        let page = match pages.get(&place).and_then(Weak::upgrade) {
            Some(page) => page,
            None => {
                let page = Arc::new(Umem::pin(memory, start, PAGE, Rights::Read)?);
                pages.retain(|_, page| page.strong_count() > 0);
                pages.insert(place, Arc::downgrade(&page));
                page
            }
        };
        let dma = page.dma().wrapping_add(address & (PAGE - 1));
        Ok(Record { _page: page, dma })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn umem(dma: u64, bytes: u64) -> Umem {
        let pinned = Pinned { dma, address: dma, bytes, hold: Box::new(()) };
        Umem { pinned, address: dma, bytes }
    }

    #[test]
    fn pages_cover_the_range() {
        let piece = umem(0x7000_1010, 0x2000);
        assert_eq!(piece.count(12), 3);
        let list: Vec<u64> = pollux_mlx5_abi::command::pages(&piece.pages(12, entry::READ)).collect();
        assert_eq!(list, [0x7000_1001, 0x7000_2001, 0x7000_3001]);
        assert_eq!(umem(0x7000_1000, 1).count(12), 1);
        assert_eq!(umem(0x7000_1fff, 2).count(12), 2);
    }

    #[test]
    fn pages_are_as_large_as_the_other_address_allows() {
        let piece = umem(0x4000_0000, 0x100_0000);
        assert_eq!(piece.log_page(0x4000_0000), 21);
        assert_eq!(piece.log_page(0x4000_1000), 12);
        assert_eq!(piece.log_page(0x4000_3000 - 0x1000), 13);
        assert_eq!(umem(0x4000_0000, 4096).log_page(0), 12);
        assert_eq!(umem(0x4000_0000, 0x5000).log_page(0), 15);
    }

    #[test]
    fn a_ring_begins_at_a_64th_of_a_page() {
        assert_eq!(umem(0x1000, 64).quantized_offset(5), Ok(0));
        assert_eq!(umem(0x17c0, 64).quantized_offset(5), Ok(31));
        assert_eq!(umem(0x1800, 64).quantized_offset(5), Err(Errno::EINVAL));
        assert_eq!(umem(0x1800, 64).quantized_offset(6), Ok(32));
        assert_eq!(umem(0x1020, 64).quantized_offset(6), Err(Errno::EINVAL));
    }
}
