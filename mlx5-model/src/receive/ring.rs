//! The ring of posted buffers, a queue's own or a pool's.

use std::mem::offset_of;

use pollux_mlx5_abi::wqe::{NextSegment, SEGMENT_BYTES};
use zerocopy::{FromBytes, IntoBytes};

use crate::device::bus::Bus;
use crate::device::ring::{Piece, Ring};
use crate::device::violation::Violation;
use crate::ledger::Crossing;
use crate::memory::Unreachable;

/// How one entry leads to the next. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_WQ_TYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They follow each other.
    Cyclic,
    /// Each names the next.
    Linked,
}

/// How packets share an entry's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) log_bytes: u32,
    pub(crate) log_count: u32,
    /// Packets begin 2 bytes into their first stride.
    pub(crate) shift: bool,
}

/// Most bytes of a receive entry: `max_wqe_sz_rq`.
pub(crate) const ENTRY_BYTES_MAX: usize = 512;

/// A ring of receive entries.
#[derive(Clone, Debug)]
pub(crate) struct WorkRing {
    /// Whose it is, for messages.
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) strides: Option<Strides>,
    pub(crate) ring: Ring,
    pub(crate) log_entries: u8,
    pub(crate) log_entry_bytes: u8,
    pub(crate) record: u64,
    pub(crate) domain: u32,
    /// The end of a packet is filled up to a whole cache line.
    pub(crate) pad: bool,
    /// Entries begin with a segment that names the next, even where nobody follows it.
    headed: bool,
    /// Entries used up in all, and posted in all.
    pub(crate) next: u16,
    posted: u16,
    /// What the record said last, as far as stores to it are seen.
    announced: u16,
    /// Where the next entry of a linked ring is.
    head: u16,
    /// Strides of the next entry that are in use.
    pub(super) stride: u32,
    /// Entries read ahead, of those that are posted: the first one's count, how many, and their bytes.
    ahead_from: u16,
    ahead: u16,
    ahead_bytes: [u8; AHEAD_BYTES],
}

/// Bytes of posted entries that are read at once.
const AHEAD_BYTES: usize = ENTRY_BYTES_MAX;

/// An entry that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// What a completion calls it.
    pub(crate) index: u16,
    /// Its data segments.
    pub(super) bytes: [u8; ENTRY_BYTES_MAX],
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Entry {
    /// The data segments.
    pub(crate) fn segments(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }
}

impl WorkRing {
    #[expect(clippy::too_many_arguments, reason = "what a ring is made of")]
    pub(crate) fn new(
        kind: Kind,
        strides: Option<Strides>,
        ring: Ring,
        log_entries: u8,
        log_entry_bytes: u8,
        record: u64,
        domain: u32,
        pad: bool,
    ) -> Self {
        Self {
            number: 0,
            kind,
            strides,
            ring,
            log_entries,
            log_entry_bytes,
            record,
            domain,
            pad,
            headed: kind == Kind::Linked || strides.is_some(),
            next: 0,
            posted: 0,
            announced: 0,
            head: 0,
            stride: 0,
            ahead_from: 0,
            ahead: 0,
            ahead_bytes: [0; AHEAD_BYTES],
        }
    }

    /// The same with a next segment in front of each entry.
    pub(crate) fn with_heads(self) -> Self {
        Self { headed: true, ..self }
    }

    /// Forgets all that was posted.
    pub(crate) fn reset(&mut self) {
        (self.next, self.posted, self.announced, self.head, self.stride) = (0, 0, 0, 0, 0);
        self.ahead = 0;
    }

    /// The queue leaves RESET. The device reads the record then, and takes what it says for entries that are posted. What it
    /// says, where it does not say zero.
    pub(crate) fn at_ready(&mut self, bus: &Bus<'_>) -> Option<u16> {
        self.posted = bus.record(self.record).ok()? as u16;
        self.announced = self.posted;
        Some(self.posted).filter(|posted| *posted != 0)
    }

    /// The record was stored to: the entries that it tells of, by where they are. `None` when it tells of more than there are.
    pub(crate) fn announce(&mut self, bus: &Bus<'_>) -> Result<Option<Vec<Piece>>, Unreachable> {
        let now = bus.host.load32(self.record)? as u16;
        let first = std::mem::replace(&mut self.announced, now);
        if u32::from(now.wrapping_sub(first)) > 1 << self.log_entries {
            return Ok(None);
        }
        let (mask, bytes) = (((1_u32 << self.log_entries) - 1) as u16, 1 << self.log_entry_bytes);
        let mut pieces = Vec::new();
        let mut slot = if self.kind == Kind::Linked { self.head } else { first };
        let mut index = if self.kind == Kind::Linked { self.next } else { first };
        while index != now {
            let piece = self.ring.piece(u64::from(slot & mask) << self.log_entry_bytes, bytes)?;
            if now.wrapping_sub(index) <= now.wrapping_sub(first) {
                pieces.push(piece);
            }
            slot = slot.wrapping_add(1);
            if self.kind == Kind::Linked {
                let mut link = NextSegment::default();
                bus.host.read(piece.address, link.as_mut_bytes())?;
                slot = link.next_wqe_index.get();
            }
            index = index.wrapping_add(1);
        }
        Ok(Some(pieces))
    }

    /// Whether an entry is posted; reads the doorbell record only when none seems to be.
    #[inline]
    pub(super) fn has_entry(&mut self, bus: &Bus<'_>) -> Result<bool, Unreachable> {
        if self.next != self.posted {
            return Ok(true);
        }
        let posted = bus.record(self.record)? as u16;
        if u32::from(posted.wrapping_sub(self.next)) > 1 << self.log_entries {
            // More than there are: nothing that it says can be believed.
            return Err(Unreachable);
        }
        self.posted = posted;
        Ok(self.next != self.posted)
    }

    /// Takes the next entry out, if one is posted.
    pub(crate) fn take(&mut self, bus: &Bus<'_>, entry: &mut Entry) -> Result<bool, Unreachable> {
        if !self.has_entry(bus)? {
            return Ok(false);
        }
        self.peek(bus, entry)?;
        self.advance(entry);
        Ok(true)
    }

    /// How many entries are posted.
    pub(crate) fn left(&mut self, bus: &Bus<'_>) -> Result<u16, Unreachable> {
        let posted = bus.record(self.record)? as u16;
        if u32::from(posted.wrapping_sub(self.next)) > 1 << self.log_entries {
            return Err(Unreachable);
        }
        self.posted = posted;
        Ok(self.posted.wrapping_sub(self.next))
    }

    /// Reads the next entry into `entry`, without using it up. Of entries that follow each other those that are posted
    /// already are read at once, as far as they go.
    #[inline]
    pub(super) fn peek(&mut self, bus: &Bus<'_>, entry: &mut Entry) -> Result<(), Unreachable> {
        let bytes = 1_usize << self.log_entry_bytes;
        let mask = ((1_u32 << self.log_entries) - 1) as u16;
        let slot = match self.kind {
            Kind::Cyclic => self.next & mask,
            Kind::Linked => self.head & mask,
        };
        if self.kind == Kind::Linked {
            let at = u64::from(slot) << self.log_entry_bytes;
            self.ring.read(bus, Crossing::ReceiveEntry, at, &mut entry.bytes[..bytes])?;
        } else {
            if self.next.wrapping_sub(self.ahead_from) >= self.ahead {
                self.read_ahead(bus, slot)?;
            }
            let at = usize::from(self.next.wrapping_sub(self.ahead_from)) * bytes;
            entry.bytes[..bytes].copy_from_slice(&self.ahead_bytes[at..at + bytes]);
        }
        entry.index = if self.kind == Kind::Linked { slot } else { self.next };
        entry.from = if self.headed { size_of::<NextSegment>() } else { 0 };
        // Once, as the first packet comes to it.
        if self.headed
            && self.stride == 0
            && let Some(byte) = reserved(&entry.bytes)
        {
            bus.note(Violation::ReservedInReceive { queue: self.number, byte });
        }
        entry.to = if self.strides.is_some() { entry.from + SEGMENT_BYTES } else { bytes };
        Ok(())
    }

    fn read_ahead(&mut self, bus: &Bus<'_>, slot: u16) -> Result<(), Unreachable> {
        let posted = usize::from(self.posted.wrapping_sub(self.next)).max(1);
        let to_end = (1_usize << self.log_entries) - usize::from(slot);
        let count = posted.min(to_end).min(AHEAD_BYTES >> self.log_entry_bytes);
        self.ahead = 0;
        let at = u64::from(slot) << self.log_entry_bytes;
        self.ring.read(
            bus,
            Crossing::ReceiveEntry,
            at,
            &mut self.ahead_bytes[..count << self.log_entry_bytes],
        )?;
        (self.ahead_from, self.ahead) = (self.next, count as u16);
        Ok(())
    }

    /// The entry is used up.
    #[inline]
    pub(super) fn advance(&mut self, entry: &Entry) {
        self.next = self.next.wrapping_add(1);
        self.stride = 0;
        if self.kind == Kind::Linked
            && let Ok((link, _)) = NextSegment::ref_from_prefix(&entry.bytes)
        {
            self.head = link.next_wqe_index.get();
        }
    }
}

/// The first byte of a next segment that has bits set which mean nothing. The check byte is no part of this: no ring here asks for
/// one. Zero in those of every driver: Linux `drivers/infiniband/hw/mlx5/srq.c`, `create_srq_kernel`, and rdma-core
/// `providers/mlx5/srq.c`, `mlx5_alloc_srq_buf`, on memory that is cleared before.
fn reserved(entry: &[u8]) -> Option<usize> {
    let (link, _) = NextSegment::ref_from_prefix(entry).ok()?;
    let places = [(0, &link.reserved0[..]), (offset_of!(NextSegment, reserved1), &link.reserved1[..])];
    places.into_iter().find_map(|(from, bytes)| Some(from + bytes.iter().position(|byte| *byte != 0)?))
}

impl Default for Entry {
    fn default() -> Self {
        Self { index: 0, bytes: [0; ENTRY_BYTES_MAX], from: 0, to: 0 }
    }
}
