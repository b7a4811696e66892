//! A ring of send entries, as send queues and queue pairs have it: what is posted, and the rules of doorbells.

use pollux_mlx5_abi::wqe::{self, BLOCK_BYTES, Control};
use zerocopy::big_endian::U32;

use super::{Piece, Ring};
use crate::device::blue_flame::CameAlong;
use crate::device::bus::Bus;
use crate::device::violation::Violation;
use crate::memory::Unreachable;

/// How a doorbell came to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It was seen as it was made: the record says the very same.
    Seen,
    /// The same of one that a command of another thread had found before: its record was read and counted then.
    SeenLate,
    /// It was found in the register: software may be further already.
    Found,
}

/// The ring of send entries.
#[derive(Debug)]
pub(crate) struct SendRing {
    ring: Ring,
    log_blocks: u8,
    /// Where its doorbell record is.
    record: u64,
    /// Block of the next entry to begin, and the one after the last posted; they run on past the ring's end.
    next: u16,
    posted: u16,
    /// What the record said last, as far as stores to it are seen.
    announced: u16,
    /// The entry that came with the last doorbell; its copy in memory is not looked at.
    came_along: Option<CameAlong>,
}

impl SendRing {
    /// A ring of two to the `log_blocks` blocks, at most 15, where nothing is posted.
    pub(crate) fn new(ring: Ring, log_blocks: u8, record: u64) -> Self {
        Self { ring, log_blocks, record, next: 0, posted: 0, announced: 0, came_along: None }
    }

    /// The ring of a queue that nothing is posted to.
    pub(crate) fn none() -> Self {
        Self::new(Ring::none(), 0, 0)
    }

    /// Block of the next entry to begin.
    #[inline]
    pub(crate) fn next(&self) -> u16 {
        self.next
    }

    /// Block after the last that is posted.
    pub(crate) fn posted(&self) -> u16 {
        self.posted
    }

    /// All that is posted is done with.
    pub(crate) fn skip(&mut self) {
        self.next = self.posted;
    }

    /// Blocks that are posted and not begun.
    #[inline]
    pub(crate) fn left(&self) -> u16 {
        self.posted.wrapping_sub(self.next)
    }

    /// The next entry is begun, or done with: so many blocks.
    pub(crate) fn advance(&mut self, blocks: u16) {
        self.came_along.take_if(|came| came.index == self.next);
        self.next = self.next.wrapping_add(blocks);
    }

    /// A doorbell may have been missed: the record tells of what is posted. True when that is new.
    pub(crate) fn catch_up(&mut self, bus: &Bus<'_>) -> bool {
        let Ok(record) = bus.host.load32(self.record) else { return false };
        let end = record as u16;
        let room = (1 << self.log_blocks) - self.left().min(1 << self.log_blocks);
        let is_new = (1..=room).contains(&end.wrapping_sub(self.posted));
        if is_new {
            self.posted = end;
        }
        is_new
    }

    /// The queue leaves RESET. The device reads the record then: what it says is posted.
    pub(crate) fn at_ready(&self, bus: &Bus<'_>, number: u32) -> Result<(), Violation> {
        match bus.record(self.record) {
            Ok(0) | Err(Unreachable) => Ok(()),
            Ok(record) => Err(Violation::RecordAtReady { queue: number, record: record as u16 }),
        }
    }

    /// Where its doorbell record is.
    pub(crate) fn record(&self) -> u64 {
        self.record
    }

    /// The record was stored to: the blocks that it tells of, by where they are.
    pub(crate) fn announce(&mut self, bus: &Bus<'_>, number: u32) -> Result<Vec<Piece>, Violation> {
        let unreachable = |_| Violation::Record { queue: number };
        let now = bus.host.load32(self.record).map_err(unreachable)? as u16;
        let blocks = now.wrapping_sub(self.announced);
        let first = std::mem::replace(&mut self.announced, now);
        if blocks > 1 << self.log_blocks {
            return Err(Violation::TooMuch { queue: number, posted: blocks });
        }
        let blocks = (0..blocks).map(|block| self.offset(first.wrapping_add(block)));
        blocks.map(|at| self.ring.piece(at, BLOCK_BYTES as u64).map_err(unreachable)).collect()
    }

    /// All that was posted is forgotten.
    pub(crate) fn reset(&mut self) {
        (self.next, self.posted, self.announced, self.came_along) = (0, 0, 0, None);
    }

    /// What came with a doorbell is looked for in memory like the rest.
    pub(crate) fn forget_came_along(&mut self) {
        self.came_along = None;
    }

    /// The next entry, where it came with a doorbell.
    #[inline]
    pub(crate) fn next_came_along(&self) -> Option<&CameAlong> {
        self.came_along.as_ref().filter(|came| came.index == self.next)
    }

    /// Puts the entry that came with a doorbell in the place of its copy, where that is among blocks that were read from the
    /// next entry's on.
    #[inline]
    fn put_in(&self, batch: &mut [u8]) {
        let Some(came) = &self.came_along else { return };
        let at = usize::from(came.index.wrapping_sub(self.next)) * BLOCK_BYTES;
        if let Some(place) = batch.get_mut(at..) {
            let bytes = place.len().min(came.bytes().len());
            place[..bytes].copy_from_slice(&came.bytes()[..bytes]);
        }
    }

    fn offset(&self, block: u16) -> u64 {
        u64::from(block & ((1 << self.log_blocks) - 1)) * BLOCK_BYTES as u64
    }

    /// Copies blocks, from the next entry's first on, as they are posted: what came with a doorbell is not taken from memory. What
    /// of them are entries, the caller counts.
    #[inline]
    pub(crate) fn read(&self, bus: &Bus<'_>, into: &mut [u8]) -> Result<(), Unreachable> {
        self.ring.pieces(self.offset(self.next), into, |address, piece| bus.host.read(address, piece))?;
        self.put_in(into);
        Ok(())
    }

    /// The head of the entry at a block.
    pub(crate) fn head(&self, bus: &Bus<'_>, block: u16) -> Result<[u8; 8], Unreachable> {
        let mut head = [0; 8];
        let (address, _) = self.ring.place(self.offset(block))?;
        bus.host.read(address, &mut head)?;
        Ok(head)
    }

    /// A doorbell of queue `number`: `value` must be the head of the last entry posted, and the record must have been written
    /// before. Without `strict` it only says that there is work. `bytes` is all that was stored: with BlueFlame, the entry itself.
    pub(crate) fn rung(
        &mut self,
        bus: &Bus<'_>,
        number: u32,
        value: [u8; 8],
        came: Came,
        strict: bool,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        let unreachable = |_| Violation::Record { queue: number };
        let exact = came != Came::Found;
        let record =
            if came == Came::SeenLate { bus.host.load32(self.record) } else { bus.record(self.record) };
        let record = record.map_err(unreachable)? as u16;
        let [opmod_idx_opcode, qpn_ds]: [U32; 2] = zerocopy::transmute!(value);
        let control = Control { opmod_idx_opcode, qpn_ds, ..Control::default() };
        let all = 1_u16 << self.log_blocks;
        let told = control.index().wrapping_add(wqe::blocks(control.segments().into()) as u16);
        let mut end = record;
        // Whoever rings, the record is written before.
        if !strict && exact && (1..=all).contains(&told.wrapping_sub(record)) {
            bus.note(Violation::RecordValue { queue: number, record, expected: told });
        }
        if strict {
            end = told;
            let room = all - self.left().min(all);
            // An old register value, seen late: its entry was carried out with those behind it.
            if !exact && !(1..=room).contains(&end.wrapping_sub(self.posted)) {
                return Ok(());
            }
            let posted = self.head(bus, control.index()).map_err(unreachable)?;
            if posted != value {
                return Err(Violation::Head { queue: number, rung: value, posted });
            }
            let ahead = record.wrapping_sub(end);
            if ahead > all || exact && ahead != 0 {
                return Err(Violation::RecordValue { queue: number, record, expected: end });
            }
        }
        // No more can be posted than the ring holds.
        let count = end.wrapping_sub(self.next);
        if count > all {
            return Err(Violation::TooMuch { queue: number, posted: count });
        }
        self.posted = end;
        self.came_along = CameAlong::of(&control, bytes);
        Ok(())
    }
}
