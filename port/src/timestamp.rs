//! Times of arrival, and the clock that they are taken from.

use pollux_mempool::dynamic::{Field, Flag};
use pollux_mempool::{Mbuf, PoolError};
use std::time::Duration;

/// The place in an mbuf where a port with [`RxOffloads::TIMESTAMP`](crate::RxOffloads::TIMESTAMP) notes when a packet
/// arrived, in ticks of its clock ([`DeviceClock`]). The names are DPDK's (`lib/mbuf/rte_mbuf_dyn.h`).
#[derive(Clone, Copy, Debug)]
pub struct RxTimestamp {
    field: Field<u64>,
    flag: Flag,
}

impl RxTimestamp {
    /// The place, which is found room for when it is asked for first. Drivers and applications get the same.
    ///
    /// # Errors
    /// When an mbuf has no room left.
    pub fn register() -> Result<Self, PoolError> {
        Ok(Self {
            field: Field::register("rte_dynfield_timestamp")?,
            flag: Flag::register("rte_dynflag_rx_timestamp")?,
        })
    }

    /// When the packet arrived, if its port noted that.
    #[inline]
    #[must_use]
    pub fn of(self, mbuf: &Mbuf) -> Option<u64> {
        mbuf.flag(self.flag).then(|| mbuf.field(self.field))
    }

    /// For drivers: notes it.
    #[inline]
    pub fn set(self, mbuf: &mut Mbuf, ticks: u64) {
        mbuf.set_field(self.field, ticks);
        mbuf.set_flag(self.flag, true);
    }
}

/// A reading of a port's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceClock {
    /// Free-running; wraps where the device's counter does.
    pub ticks: u64,
    /// Ticks in a second.
    pub hz: u64,
}

impl DeviceClock {
    /// The time between an earlier count of ticks and a later one. `None` when the clock's frequency is not known (0).
    #[must_use]
    pub fn between(&self, earlier: u64, later: u64) -> Option<Duration> {
        let ticks = u128::from(later.wrapping_sub(earlier));
        let nanos = (ticks * 1_000_000_000).checked_div(self.hz.into())?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_mempool::MbufPool;

    #[test]
    fn a_time_goes_with_its_packet_and_only_where_it_was_noted() {
        let pool = MbufPool::builder("timestamp", 8).build_anonymous().expect("small");
        let place = RxTimestamp::register().expect("room");
        let mut mbuf = pool.alloc().expect("fresh");
        assert_eq!(place.of(&mbuf), None);
        place.set(&mut mbuf, u64::MAX - 1);
        assert_eq!(RxTimestamp::register().expect("there").of(&mbuf), Some(u64::MAX - 1));
    }

    #[test]
    fn ticks_become_time_over_the_wrap() {
        let clock = DeviceClock { ticks: 0, hz: 1_000_000_000 / 4 };
        assert_eq!(clock.between(u64::MAX, 2), Some(Duration::from_nanos(12)));
        assert_eq!(DeviceClock { ticks: 0, hz: 0 }.between(0, 1), None);
    }
}
