//! `--rate_limit`: when a burst of messages may go.
//!
//! Source of the units: linux-rdma/perftest `src/perftest_resources.c`, `run_iter_bw`, `run_iter_lat_burst`.

use pollux_eal::clock::{Clock, cycles};

use super::options::RateUnit;
use super::settings::Settings;

/// Sends no faster than a rate, in bursts.
#[derive(Debug)]
pub struct Pace {
    burst: u64,
    gap: f64,
    left: u64,
    next: f64,
}

impl Pace {
    /// The rate that was asked for, of messages of `size` bytes; none when there is no limit, or the device keeps it.
    #[must_use]
    pub fn new(settings: &Settings, size: u64, clock: Clock) -> Option<Self> {
        let options = &settings.options;
        let rate = options.rate_limit.filter(|_| settings.device_rate().is_none())?;
        let messages = match options.rate_units.unwrap_or_default() {
            RateUnit::Megabytes => rate * 1_048_576.0 / size as f64,
            RateUnit::Gigabits => rate * 1e9 / 8.0 / size as f64,
            RateUnit::Messages => rate,
        };
        let burst = settings.burst();
        Some(Self {
            burst,
            gap: burst as f64 * clock.hz() as f64 / messages,
            left: 0,
            next: cycles::now() as f64,
        })
    }

    /// Whether `count` more messages may be sent now, which are then taken as sent.
    #[inline]
    pub fn allows(&mut self, count: u64) -> bool {
        if self.left < count {
            let now = cycles::now() as f64;
            if now < self.next {
                return false;
            }
            self.left = self.burst;
            self.next += self.gap;
        }
        self.left -= count;
        true
    }
}
