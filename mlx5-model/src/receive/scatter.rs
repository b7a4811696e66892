//! Putting a packet into the buffers of an entry.

use pollux_mlx5_abi::wqe::{Data, INVALID_LKEY};
use zerocopy::FromBytes;

use super::Around;
use crate::ledger::Crossing;
use crate::memory_keys::{Access, KeyError};

/// Why a packet did not go into an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The buffers are too short.
    Length,
    /// A key refused.
    Key(KeyError),
}

/// A packet in pieces that follow each other in memory.
#[derive(Clone, Copy)]
pub(super) struct Pieces<'f> {
    pub(super) parts: [&'f [u8]; 3],
}

impl<'f> Pieces<'f> {
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Walks bytes `from..from + bytes`.
    #[inline]
    fn each(
        &self,
        from: usize,
        bytes: usize,
        mut act: impl FnMut(usize, &[u8]) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        let (mut skip, mut left, mut done) = (from, bytes, 0);
        for part in self.parts {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            let piece = &part[skip..part.len().min(skip + left)];
            skip = 0;
            if piece.is_empty() {
                break;
            }
            act(done, piece)?;
            done += piece.len();
            left -= piece.len();
        }
        Ok(())
    }
}

/// Writes bytes `from..from + bytes` of a packet to `at` of a key.
pub(super) fn write(
    around: &Around<'_, '_>,
    domain: u32,
    key: u32,
    at: u64,
    pieces: &Pieces<'_>,
    from: usize,
    bytes: usize,
) -> Result<(), KeyError> {
    let bus = &*around.bus;
    let mut done = from;
    around.keys.walk(key, domain, at, bytes as u32, Access::Write, |address, run| {
        if let Some(address) = address {
            pieces.each(done, run, |offset, piece| {
                bus.write_frame(address + offset as u64, piece).map_err(|_| KeyError::Unpinned)
            })?;
            bus.ledger.add(Crossing::ReceivePayload, run);
        }
        done += run;
        Ok(())
    })
}

/// Fills up the cache line that a packet ends in, as far as the buffer goes.
fn pad(around: &Around<'_, '_>, domain: u32, key: u32, end: u64, room: u64) -> Result<(), KeyError> {
    let bytes = (end.wrapping_neg() & 63).min(room) as usize;
    if bytes == 0 {
        return Ok(());
    }
    let bus = &*around.bus;
    around.keys.walk(key, domain, end, bytes as u32, Access::Write, |address, run| {
        let Some(address) = address else { return Ok(()) };
        bus.write(Crossing::ReceivePayload, address, &[0; 64][..run]).map_err(|_| KeyError::Unpinned)
    })
}

/// Spreads a packet over data segments. One with the invalid key ends them.
#[inline]
pub(super) fn over_segments(
    around: &Around<'_, '_>,
    domain: u32,
    segments: &[u8],
    pieces: &Pieces<'_>,
    padded: bool,
) -> Result<(), Problem> {
    let total = pieces.bytes();
    let mut done = 0;
    let mut rest = segments;
    while done < total {
        let Ok((data, behind)) = Data::ref_from_prefix(rest) else { return Err(Problem::Length) };
        rest = behind;
        let (key, room, at) = (data.lkey.get(), data.bytes(), data.addr.get());
        if key == INVALID_LKEY {
            return Err(Problem::Length);
        }
        let bytes = room.min((total - done) as u64);
        write(around, domain, key, at, pieces, done, bytes as usize).map_err(Problem::Key)?;
        done += bytes as usize;
        if padded && done == total {
            pad(around, domain, key, at.wrapping_add(bytes), room - bytes).map_err(Problem::Key)?;
        }
    }
    Ok(())
}
