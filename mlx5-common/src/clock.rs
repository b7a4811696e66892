//! The adapter's free-running clock, read from a page that the kernel maps.
//!
//! Source: rdma-core `providers/mlx5/verbs.c`, `mlx5_read_clock`; the offset in the page comes with the context.

use pollux_eal::region::PAGE_BYTES;
use pollux_mlx5_abi::kernel::{context, mmap};
use pollux_uverbs::{Page, Protection};

use crate::MlxError;
use crate::context::Device;

/// Tries until the two halves belong together: the upper one changes every four seconds.
const TRIES: usize = 8;

/// What the clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Ticks since some moment.
    pub ticks: u64,
    /// Ticks a second.
    pub hz: u64,
}

/// The clock of an open device.
#[derive(Debug)]
pub struct AdapterClock {
    page: Page,
    at: usize,
    hz: u64,
    /// For messages.
    device: String,
}

impl AdapterClock {
    /// Maps the clock; `None` where the kernel does not tell where it is.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(device: &Device) -> Result<Option<Self>, MlxError> {
        if device.answer.comp_mask & context::answer::CORE_CLOCK_OFFSET == 0 {
            return Ok(None);
        }
        let offset = mmap::offset(mmap::CORE_CLOCK, 0, PAGE_BYTES as u64);
        let page = device
            .context()
            .map(offset, PAGE_BYTES, Protection::Read)
            .map_err(MlxError::verbs("map the device's clock"))?;
        let at = (device.answer.hca_core_clock_offset % PAGE_BYTES as u64) as usize;
        // Told in kHz.
        Ok(Some(Self {
            page,
            at,
            hz: device.attributes.hca_core_clock * 1000,
            device: device.name().to_owned(),
        }))
    }

    /// Reads it: two or three reads across the bus, some microseconds.
    ///
    /// # Errors
    /// When the page has no such register, or its halves never belong together.
    pub fn read(&self) -> Result<Reading, MlxError> {
        let unfit = |problem: &str| MlxError::Device { device: self.device.clone(), problem: problem.into() };
        let half = |at: usize| {
            let raw = self.page.read32(at).map(u32::from_be);
            raw.ok_or_else(|| unfit("its clock is not where the kernel says"))
        };
        for _ in 0..TRIES {
            let (high, low, again) = (half(self.at)?, half(self.at + 4)?, half(self.at)?);
            if high == again {
                return Ok(Reading { ticks: u64::from(high) << 32 | u64::from(low), hz: self.hz });
            }
        }
        Err(unfit("its clock changes faster than it can be read"))
    }
}
