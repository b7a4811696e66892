//! The device's side of PCIe: memory, counted, with the faults of the plan and the time of the step.

use std::cell::RefCell;

use super::fast_path::FastPath;
use super::late::Late;
use super::violation::Violation;
use crate::fault::Faults;
use crate::ledger::{Crossing, Ledger};
use crate::memory::{Host, Unreachable};

/// What every part of the core works with during a step.
pub(crate) struct Bus<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) ledger: &'a Ledger,
    pub(crate) faults: &'a mut Faults,
    /// What was received and is not visible yet.
    pub(crate) late: &'a Late,
    /// Rules found broken in the course of this.
    pub(crate) broken: &'a RefCell<Vec<Violation>>,
    /// Ticks of the device's clock.
    pub(crate) now: u64,
    /// How many steps were made.
    pub(crate) step: u64,
    /// Completions are stamped with the time of day.
    pub(crate) real_time: bool,
    /// Where what passes without a call is written down.
    pub(crate) fast_path: Option<&'a FastPath>,
}

impl Bus<'_> {
    /// A rule was broken that silicon need not notice.
    #[cold]
    pub(crate) fn note(&self, violation: Violation) {
        self.broken.borrow_mut().push(violation);
    }

    /// What a completion is stamped with: ticks, or seconds above and nanoseconds below. Source: DPDK
    /// `drivers/net/mlx5/mlx5_rxtx.h`, `mlx5_txpp_convert_rx_ts`.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        if self.real_time { ((self.now / SECOND) << 32) + self.now % SECOND } else { self.now }
    }

    /// The device reads.
    #[inline]
    pub(crate) fn read(&self, what: Crossing, at: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        self.ledger.add(what, into.len());
        self.late.settle_at(self.host, at, into.len());
        self.host.read(at, into)
    }

    /// The device reads work entries.
    #[inline]
    pub(crate) fn read_entries(&self, what: Crossing, at: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        self.ledger.add_entries(what, at, into.len());
        self.host.read(at, into)
    }

    /// The device writes.
    #[inline]
    pub(crate) fn write(&self, what: Crossing, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        self.ledger.add(what, from.len());
        self.late.settle_at(self.host, at, from.len());
        self.host.write(at, from)
    }

    /// The device writes a part of a received frame, of which a completion tells. The caller counts.
    #[inline]
    pub(crate) fn write_frame(&self, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        self.late.write(self.host, at, from)
    }

    /// The device writes an entry that software polls.
    #[inline]
    pub(crate) fn publish(&self, what: Crossing, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        self.ledger.add(what, from.len());
        self.host.publish(at, from)
    }

    /// The device reads a doorbell record.
    #[inline]
    pub(crate) fn record(&self, at: u64) -> Result<u32, Unreachable> {
        self.ledger.add(Crossing::DoorbellRecord, 4);
        self.host.load32(at)
    }
}
