//! Copies between a buffer and the pieces of memory that a walk comes upon.

use super::KeyError;
use crate::device::bus::Bus;
use crate::ledger::Crossing;

/// Fills a buffer, piece by piece as a walk comes upon them.
pub(super) fn reader(
    bus: &Bus<'_>,
    into: &mut [u8],
) -> impl FnMut(Option<u64>, usize) -> Result<(), KeyError> {
    let mut done = 0;
    move |address, run| {
        let piece = &mut into[done..done + run];
        match address {
            Some(address) => {
                bus.read(Crossing::SendPayload, address, piece).map_err(|_| KeyError::Unpinned)?;
            }
            None => piece.fill(0),
        }
        done += run;
        Ok(())
    }
}

/// Writes data, piece by piece likewise.
pub(super) fn writer(bus: &Bus<'_>, data: &[u8]) -> impl FnMut(Option<u64>, usize) -> Result<(), KeyError> {
    let mut done = 0;
    move |address, run| {
        if let Some(address) = address {
            bus.write(Crossing::ReceivePayload, address, &data[done..done + run])
                .map_err(|_| KeyError::Unpinned)?;
        }
        done += run;
        Ok(())
    }
}
