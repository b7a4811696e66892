//! The device's clock: its page, and the page that tells how its ticks become time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pollux_eal::region::{Region, Zone};
use pollux_mlx5_abi::kernel::context::{ClockInfo, clock};
use pollux_uverbs::{Page, Protection, Registers};
use zerocopy::IntoBytes;

use crate::error::KernelError;
use crate::umem::PAGE;

/// Bits of the clock that count. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/lib/clock.c`, `MLX5_TIMECOUNTER_MASK`
/// (41 bits there before 6.9, which is what users of the page must bear with).
const MASK: u64 = (1 << 41) - 1;

/// Shift of the multiplier. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/lib/clock.c`, `MLX5_CYCLES_SHIFT`.
const SHIFT: u32 = 31;

/// Time between two updates of the page, well below half a turn of the clock.
const PERIOD: Duration = Duration::from_secs(60);

/// The page of the clock and the page about it.
#[derive(Debug)]
pub(crate) struct Clock {
    info: Arc<Zone>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ticks: Page,
    registers: Registers,
    khz: u32,
    sign: u32,
    updated: Option<Instant>,
}

impl Clock {
    /// Over the device's page of ticks, which run at `khz`.
    pub(crate) fn new(ticks: Page, khz: u32) -> Result<Self, KernelError> {
        let region = Region::shared("mlx5 clock info", PAGE as usize)
            .map_err(|source| KernelError::Memory { what: "the page about the clock", source })?;
        let info = Arc::new(region.into_zone());
        let page = Page::of_zone(Arc::clone(&info), 0, PAGE as usize, Protection::ReadWrite);
        let registers = Arc::new(page).registers(0..64)?;
        let state = State { ticks, registers, khz: khz.max(1), sign: 0, updated: None };
        let clock = Self { info, state: Mutex::new(state) };
        clock.update();
        Ok(clock)
    }

    /// The page about the clock, to be read.
    pub(crate) fn info(&self) -> Page {
        self.update();
        Page::of_zone(Arc::clone(&self.info), 0, PAGE as usize, Protection::Read)
    }

    /// Writes the page anew if it is time to.
    pub(crate) fn refresh(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let late = state.updated.is_none_or(|updated| updated.elapsed() > PERIOD);
        drop(state);
        if late {
            self.update();
        }
    }

    fn update(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ticks) = state.ticks.read64(0).map(u64::from_be) else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Nanoseconds a tick, shifted: 10^6 / kHz.
        let mult = (1_000_000_u64 << SHIFT) / u64::from(state.khz);
        let info = ClockInfo {
            sign: 0,
            reserved: 0,
            nsec: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            cycles: ticks & MASK,
            frac: 0,
            mult: u32::try_from(mult).unwrap_or(u32::MAX),
            shift: SHIFT,
            mask: MASK,
            overflow_period: u64::try_from(PERIOD.as_nanos()).unwrap_or(u64::MAX),
        };
        // A sequence lock: odd while the rest is written. Stores to the window are not reordered.
        let sign = state.sign;
        state.registers.store32(0, sign | clock::KERNEL_UPDATING);
        let (words, _) = info.as_bytes().as_chunks::<8>();
        for (index, word) in words.iter().enumerate().skip(1) {
            state.registers.store64(index * 8, u64::from_ne_bytes(*word));
        }
        state.sign = sign.wrapping_add(2) & !clock::KERNEL_UPDATING;
        let sign = state.sign;
        state.registers.store32(0, sign);
        state.updated = Some(Instant::now());
    }
}
