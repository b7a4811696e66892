//! Memory on the device. Source: rdma-core `providers/mlx5/verbs.c`, `mlx5dv_alloc_dm`, `alloc_dm_memic`.

use std::sync::Arc;

use pollux_eal::barrier;
use pollux_eal::region::PAGE_BYTES;
use pollux_mlx5_abi::kernel::{attribute, mmap};
use pollux_uverbs::{DmHandle, Page, Protection, Registers};

use super::hca::Hca;
use pollux_mlx5_common::MlxError;

/// Registers begin at a multiple of this.
const REGISTER_BYTES: usize = 64;

/// Memory of the device, mapped.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    handle: DmHandle,
    /// Where the device's file maps it.
    offset: u64,
    page: Arc<Page>,
    registers: Registers,
    /// Where it begins in the mapping.
    start: usize,
    bytes: usize,
}

impl Hca {
    /// Allocates memory of the device and maps it.
    ///
    /// # Errors
    /// None of that size is left, or what the kernel says.
    pub(crate) fn device_memory(&self, bytes: usize, log_align: u32) -> Result<DeviceMemory, MlxError> {
        use attribute::alloc_dm as a;
        let device = &self.device;
        let what = "allocate device memory";
        let failed = |error| device.failed(what, error);
        let (handle, call) = device
            .context()
            .alloc_dm(bytes as u64, log_align, |call| {
                call.answer(a::RESP_START_OFFSET, 8).answer(a::RESP_PAGE_INDEX, 2);
            })
            .map_err(failed)?;
        let mapped = (|| {
            let start: u64 = call.get(a::RESP_START_OFFSET)?;
            let index: u16 = call.get(a::RESP_PAGE_INDEX)?;
            let start = (start % PAGE_BYTES as u64) as usize;
            let length = (start + bytes).next_multiple_of(PAGE_BYTES);
            let offset = mmap::offset(mmap::DEVICE_MEM, index, PAGE_BYTES as u64);
            let page = Arc::new(device.context().map(offset, length, Protection::ReadWrite)?);
            let first = start / REGISTER_BYTES * REGISTER_BYTES;
            let end = (start + bytes).next_multiple_of(REGISTER_BYTES).min(length);
            let registers = page.registers(first..end)?;
            Ok((start, offset, page, registers))
        })();
        match mapped {
            Ok((start, offset, page, registers)) => {
                Ok(DeviceMemory { handle, offset, page, registers, start, bytes })
            }
            Err(error) => {
                // What failed before is told; that this fails too changes nothing.
                let _ = device.context().free_dm(handle);
                Err(failed(error))
            }
        }
    }
}

impl DeviceMemory {
    /// The kernel's handle. Whoever has the memory frees it.
    #[must_use]
    pub(crate) fn handle(&self) -> DmHandle {
        self.handle
    }

    /// Where the device's file maps its pages, in bytes: what a dma-buf of it is made of.
    #[must_use]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a copy of `bytes` bytes at `at` is inside, in whole words of 4 bytes as the device wants them.
    #[must_use]
    pub(crate) fn allows(&self, at: usize, bytes: usize) -> bool {
        at.is_multiple_of(4)
            && bytes.is_multiple_of(4)
            && at.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Copies in. `false`, and nothing is copied, where it is not [allowed](Self::allows).
    pub(crate) fn write(&mut self, at: usize, source: &[u8]) -> bool {
        if !self.allows(at, source.len()) {
            return false;
        }
        let first = self.start / REGISTER_BYTES * REGISTER_BYTES;
        for (index, word) in source.as_chunks::<4>().0.iter().enumerate() {
            self.registers.store32(self.start - first + at + 4 * index, u32::from_ne_bytes(*word));
        }
        barrier::wc_flush();
        true
    }

    /// Copies out. `false`, and nothing is copied, where it is not [allowed](Self::allows).
    pub(crate) fn read(&self, at: usize, target: &mut [u8]) -> bool {
        if !self.allows(at, target.len()) {
            return false;
        }
        for (index, word) in target.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let Some(value) = self.page.read32(self.start + at + 4 * index) else { return false };
            *word = value.to_ne_bytes();
        }
        true
    }
}
