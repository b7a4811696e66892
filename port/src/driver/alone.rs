//! A driver's half of a queue without a port around it, for the driver's own tests.

use super::{Moved, QueueOwner, RxBurst, TxBurst};
use crate::PortError;
use pollux_mempool::Burst;
use std::ops::{Deref, DerefMut};

/// Calls a driver's half as a port would: each call that moves packets is a burst of the queue's owner.
#[derive(Debug)]
pub struct Alone<D> {
    driver: D,
    owner: QueueOwner,
}

impl<D> Alone<D> {
    /// `owner` is of the counters that the half was set up with.
    #[must_use]
    pub fn new(driver: D, owner: QueueOwner) -> Self {
        Self { driver, owner }
    }
}

#[expect(missing_docs, reason = "as the driver's method of the name")]
#[expect(clippy::missing_errors_doc, reason = "as the driver's method of the name")]
impl<D: RxBurst> Alone<D> {
    pub fn rx_burst(&mut self, burst: &mut Burst, max: usize) -> Moved {
        self.driver.rx_burst(&self.owner.enter(), burst, max)
    }

    pub fn refill(&mut self, spare: &mut Burst) -> Result<usize, PortError> {
        self.driver.refill(&self.owner.enter(), spare)
    }
}

#[expect(missing_docs, reason = "as the driver's method of the name")]
#[expect(clippy::missing_errors_doc, reason = "as the driver's method of the name")]
impl<D: TxBurst> Alone<D> {
    pub fn tx_burst(&mut self, burst: &mut Burst) -> Moved {
        self.driver.tx_burst(&self.owner.enter(), burst)
    }

    pub fn recycle(&mut self, spare: &mut Burst) -> Result<usize, PortError> {
        self.driver.recycle(&self.owner.enter(), spare)
    }
}

impl<D> Deref for Alone<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.driver
    }
}

impl<D> DerefMut for Alone<D> {
    fn deref_mut(&mut self) -> &mut D {
        &mut self.driver
    }
}
