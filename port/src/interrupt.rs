//! Sleeping until a packet comes.
//!
//! ```text
//!   loop {
//!       rx_burst until it brings nothing for a while
//!       RxQueue::enable_interrupt        from now on an arrival is told
//!       rx_burst once more               what came before that was not told
//!       wait for RxQueue::interrupt_fd   poll, epoll
//!       RxQueue::disable_interrupt       also takes the event off the descriptor
//!   }
//! ```
//!
//! Both calls belong to the queue's owner, as bursts do: arming a queue is a store next to its ring. The port must have been
//! configured with [`PortConfig::rx_interrupts`](crate::PortConfig::rx_interrupts).

use crate::{PortError, PowerMonitor, RxQueue};
use std::os::fd::BorrowedFd;

impl RxQueue {
    /// Enables the rx interrupt: the next packet makes [`RxQueue::interrupt_fd`] readable.
    ///
    /// # Errors
    /// [`PortError::Unsupported`], also when the port was not configured for interrupts; what the device said.
    #[doc(alias = "rte_eth_dev_rx_intr_enable")]
    pub fn enable_interrupt(&mut self) -> Result<(), PortError> {
        self.driver_mut().set_interrupt(true).map_err(|error| error.named(self.port_name()))
    }

    /// Disables the rx interrupt and clears a pending one.
    ///
    /// # Errors
    /// As [`RxQueue::enable_interrupt`].
    #[doc(alias = "rte_eth_dev_rx_intr_disable")]
    pub fn disable_interrupt(&mut self) -> Result<(), PortError> {
        self.driver_mut().set_interrupt(false).map_err(|error| error.named(self.port_name()))
    }

    /// The descriptor that becomes readable; it stays the queue's, and nobody but the queue reads it.
    ///
    /// # Errors
    /// As [`RxQueue::enable_interrupt`].
    #[doc(alias = "rte_eth_dev_rx_intr_ctl_q")]
    pub fn interrupt_fd(&self) -> Result<BorrowedFd<'_>, PortError> {
        self.driver().interrupt_fd().map_err(|error| error.named(self.port_name()))
    }

    /// The word that the next arrival changes.
    ///
    /// # Errors
    /// [`PortError::Unsupported`].
    pub fn power_monitor(&self) -> Result<PowerMonitor, PortError> {
        self.driver().power_monitor().map_err(|error| error.named(self.port_name()))
    }
}
