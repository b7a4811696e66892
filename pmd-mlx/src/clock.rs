//! The adapter's free-running clock, read from a page that the kernel maps; and the machine's, by which a port is patient.
//!
//! Source: rdma-core `providers/mlx5/verbs.c`, `mlx5_read_clock`; the offset in the page comes with the context.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_eal::region::PAGE_BYTES;
use pollux_mlx5_abi::kernel::{context, mmap};
use pollux_port::{DeviceClock, PortError};
use pollux_uverbs::{Page, Protection};

use crate::context::Device;

/// Tries until the two halves belong together: the upper one changes every four seconds.
const TRIES: usize = 8;

/// The time by which a port is patient, from some moment on. Clones show the same.
#[derive(Clone)]
pub struct PortClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl PortClock {
    /// The machine's.
    #[must_use]
    pub fn machine() -> Self {
        let start = Instant::now();
        Self::of(move || start.elapsed())
    }

    /// Whatever `now` says, which never goes back: of tests that make time pass by themselves.
    #[must_use]
    pub fn of(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Time since its start.
    #[must_use]
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for PortClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PortClock({:?})", self.now())
    }
}

/// The clock of an open device.
#[derive(Debug)]
pub struct AdapterClock {
    page: Page,
    at: usize,
    hz: u64,
}

impl AdapterClock {
    /// Maps the clock.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where the kernel or the device tells none, or what the kernel says.
    pub fn open(device: &Device) -> Result<Self, PortError> {
        if device.answer.comp_mask & context::answer::CORE_CLOCK_OFFSET == 0 {
            return Err(PortError::unsupported("device clock", "the kernel does not tell where it is"));
        }
        let offset = mmap::offset(mmap::CORE_CLOCK, 0, PAGE_BYTES as u64);
        let page = device
            .context()
            .map(offset, PAGE_BYTES, Protection::Read)
            .map_err(|error| PortError::device("map the device's clock", error))?;
        let at = (device.answer.hca_core_clock_offset % PAGE_BYTES as u64) as usize;
        // Told in kHz.
        Ok(Self { page, at, hz: device.attributes.hca_core_clock * 1000 })
    }

    /// Reads it: two or three reads across the bus, some microseconds.
    ///
    /// # Errors
    /// When the page has no such register, or its halves never belong together.
    pub fn read(&self) -> Result<DeviceClock, PortError> {
        let half = |at: usize| {
            let raw = self.page.read32(at).map(u32::from_be);
            raw.ok_or_else(|| PortError::unsupported("device clock", "it is not where the kernel says"))
        };
        for _ in 0..TRIES {
            let (high, low, again) = (half(self.at)?, half(self.at + 4)?, half(self.at)?);
            if high == again {
                return Ok(DeviceClock { ticks: u64::from(high) << 32 | u64::from(low), hz: self.hz });
            }
        }
        Err(PortError::unsupported("device clock", "it changes faster than it can be read"))
    }
}
