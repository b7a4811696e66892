//! What the context of a ring says: where its memory is, how large it is.

use pollux_mlx5_abi::command::pages;
use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::wq::{self, WorkQueue};

use super::{Call, No, caps, need};
use crate::device::core::Core;
use crate::device::ring::Ring;
use crate::receive::{Kind, Strides, WorkRing};

/// Largest page that a ring or key is made of, as logarithm.
pub(super) const LOG_PAGE_MAX: u32 = 31 + 12;

/// A ring and its doorbell record.
pub(super) struct Memory {
    pub(super) ring: Ring,
    pub(super) record: u64,
}

/// Where a ring's pages are named.
pub(super) struct Place<'p> {
    /// By umem: number and offset.
    pub(super) umem: Option<(u32, u64)>,
    /// By list: addresses, base-2 logarithm of their size, bytes to the ring's beginning.
    pub(super) list: &'p [u8],
    pub(super) log_page: u32,
    pub(super) offset: u64,
}

/// Where in its first page a ring begins, in bytes: contexts count in 64ths of a page. Source: Linux
/// `drivers/infiniband/hw/mlx5/mem.c`, `__mlx5_umem_find_best_quantized_pgoff`.
pub(super) fn quantized(page_offset: u32, log_page_size: u32) -> u64 {
    // Larger pages than there are get refused, whatever this says.
    if log_page_size + 12 > LOG_PAGE_MAX { 0 } else { u64::from(page_offset) << (log_page_size + 6) }
}

impl Core {
    /// The address of a doorbell record: as given, or inside a umem.
    pub(super) fn record_at(
        &self,
        call: &Call<'_>,
        address: u64,
        umem: Option<u32>,
        align: u64,
    ) -> Result<u64, No> {
        let address = match umem {
            None => address,
            Some(number) => {
                need!(call.may_name(self.umems.owner(number)), BAD_RES_ERR, 32);
                let Some(address) = self.umems.get(number).and_then(|umem| umem.address(address, 8)) else {
                    return Err(super::no(pollux_mlx5_abi::command::status::BAD_PARAM_ERR, 33));
                };
                address
            }
        };
        need!(address.is_multiple_of(align), BAD_PARAM_ERR, 34);
        Ok(address)
    }

    /// A ring of `bytes` bytes.
    pub(super) fn ring_at(&self, call: &Call<'_>, place: &Place<'_>, bytes: u64) -> Result<Ring, No> {
        let ring = match place.umem {
            Some((number, offset)) => {
                need!(call.may_name(self.umems.owner(number)), BAD_RES_ERR, 35);
                need!(offset.is_multiple_of(64), BAD_PARAM_ERR, 36);
                self.umems.get(number).and_then(|umem| umem.ring(offset, bytes))
            }
            None => {
                need!(place.log_page <= LOG_PAGE_MAX, BAD_PARAM_ERR, 37);
                let count = (place.offset + bytes).div_ceil(1 << place.log_page);
                need!(place.list.len() as u64 / 8 >= count, BAD_INP_LEN_ERR, 38);
                let list: Vec<u64> = pages(place.list).take(count as usize).collect();
                need!(
                    list.iter().all(|page| page.trailing_zeros() >= place.log_page.min(12)),
                    BAD_PARAM_ERR,
                    39
                );
                Ring::new(list, place.log_page as u8, place.offset, bytes)
            }
        };
        ring.ok_or(super::no(pollux_mlx5_abi::command::status::BAD_PARAM_ERR, 40))
    }

    fn work_memory(&self, call: &Call<'_>, queue: &[u8; 192], list: &[u8], bytes: u64) -> Result<Memory, No> {
        let by_umem = WorkQueue::WQ_UMEM_VALID.is_set(queue);
        let record_umem = WorkQueue::DBR_UMEM_VALID.is_set(queue).then(|| place::WQ_RECORD_UMEM.get(queue));
        let place = Place {
            umem: by_umem.then(|| (place::WQ_UMEM.get(queue), place::WQ_OFFSET.get(queue))),
            list,
            log_page: WorkQueue::LOG_WQ_PG_SZ.get(queue) + 12,
            offset: quantized(WorkQueue::PAGE_OFFSET.get(queue), WorkQueue::LOG_WQ_PG_SZ.get(queue)),
        };
        Ok(Memory {
            ring: self.ring_at(call, &place, bytes)?,
            record: self.record_at(call, WorkQueue::DBR_ADDR.get(queue), record_umem, 8)?,
        })
    }

    /// The ring of a send queue: blocks of 64 bytes.
    pub(super) fn send_ring(
        &self,
        call: &Call<'_>,
        queue: &[u8; 192],
        list: &[u8],
    ) -> Result<(Memory, u8), No> {
        let log = WorkQueue::LOG_WQ_SZ.get(queue);
        need!(WorkQueue::WQ_TYPE.get(queue) == wq::kind::CYCLIC, BAD_PARAM_ERR, 41);
        need!(WorkQueue::LOG_WQ_STRIDE.get(queue) == 6, BAD_PARAM_ERR, 42);
        need!(log <= caps::LOG_WQ, BAD_PARAM_ERR, 43);
        need!(!WorkQueue::WQ_SIGNATURE.is_set(queue), BAD_PARAM_ERR, 44);
        Ok((self.work_memory(call, queue, list, 64 << log)?, log as u8))
    }

    /// The ring of a pool. Cyclic ones have a next segment in front of their entries as linked ones have, unless the pool
    /// says `basic`. Source: DPDK `drivers/common/mlx5/mlx5_common_devx.c`, `mlx5_devx_rmp_create`, which says so of all
    /// rings that begin with a data segment.
    pub(super) fn pool_ring(
        &self,
        call: &Call<'_>,
        queue: &[u8; 192],
        list: &[u8],
        basic: bool,
    ) -> Result<WorkRing, No> {
        let ring = self.receive_ring(call, queue, list)?;
        need!(!basic || ring.kind == Kind::Cyclic && ring.strides.is_none(), BAD_PARAM_ERR, 52);
        need!(basic || ring.log_entry_bytes >= 5, BAD_PARAM_ERR, 47);
        Ok(if basic { ring } else { ring.with_heads() })
    }

    /// The ring of a receive queue.
    pub(super) fn receive_ring(
        &self,
        call: &Call<'_>,
        queue: &[u8; 192],
        list: &[u8],
    ) -> Result<WorkRing, No> {
        let (log, log_bytes) = (WorkQueue::LOG_WQ_SZ.get(queue), WorkQueue::LOG_WQ_STRIDE.get(queue));
        let domain = WorkQueue::PD.get(queue);
        need!(log <= caps::LOG_WQ, BAD_PARAM_ERR, 43);
        need!(!WorkQueue::WQ_SIGNATURE.is_set(queue), BAD_PARAM_ERR, 44);
        // Domain 0 is nobody's and holds no key: a queue that drops what it gets needs none.
        need!(domain == 0 || call.may_work_in(self.domains.owner(domain)), BAD_RES_ERR, 45);
        let (kind, striding) = match WorkQueue::WQ_TYPE.get(queue) {
            wq::kind::CYCLIC => (Kind::Cyclic, false),
            wq::kind::LINKED_LIST => (Kind::Linked, false),
            wq::kind::CYCLIC_STRIDING_RQ => (Kind::Cyclic, true),
            _ => (Kind::Linked, true),
        };
        need!((4..=9).contains(&log_bytes), BAD_PARAM_ERR, 46);
        let headed = striding || kind == Kind::Linked;
        need!(!headed || log_bytes >= 5, BAD_PARAM_ERR, 47);
        let strides = if striding { Some(self.strides(queue)?) } else { None };
        let memory = self.work_memory(call, queue, list, 1 << (log + log_bytes))?;
        let padding = WorkQueue::END_PADDING_MODE.get(queue);
        need!(padding <= wq::end_padding::ALIGN, BAD_PARAM_ERR, 48);
        let pad = padding == wq::end_padding::ALIGN;
        Ok(WorkRing::new(kind, strides, memory.ring, log as u8, log_bytes as u8, memory.record, domain, pad))
    }

    /// How packets share an entry. Counts are relative to 512 strides, below it as negative numbers of 4 bits. Source: Linux
    /// `drivers/infiniband/hw/mlx5/qp.c`, where a striding queue's context is filled; sizes to 64 bytes.
    fn strides(&self, queue: &[u8; 192]) -> Result<Strides, No> {
        need!(self.traits.striding_rq, BAD_PARAM_ERR, 49);
        let count = WorkQueue::LOG_WQE_NUM_OF_STRIDES.get(queue);
        let log_count =
            if count < 8 { wq::LOG_STRIDES_BASE + count } else { wq::LOG_STRIDES_BASE + count - 16 };
        need!(count < 8 || self.traits.short_striding && log_count >= 3, BAD_PARAM_ERR, 50);
        let log_bytes = WorkQueue::LOG_WQE_STRIDE_SIZE.get(queue) + wq::LOG_STRIDE_BYTES_BASE;
        need!(log_count + log_bytes <= 30, BAD_PARAM_ERR, 51);
        Ok(Strides { log_bytes, log_count, shift: WorkQueue::TWO_BYTE_SHIFT_EN.is_set(queue) })
    }
}
