//! The ring of a send queue: blocks of 64 bytes that software writes and the device reads, and how the device is told of them.
//!
//! ```text
//!          done                   posted                  next entry
//!   ────────┴──────────────────────┴───────────────────────┴────────►  blocks, counted on past the ring's end
//!    free   │ the device's         │ written: `write`, ..  │ free
//!           └► `give_back`         └► `post`
//! ```
//!
//! Whoever writes entries asks for room ([`free`](SendRing::free), [`has_room`](SendRing::has_room)), fills segments of 16 bytes in
//! any order ([`write`](SendRing::write), [`copy`](SendRing::copy)), the [control segment](SendRing::control) among them, and
//! [posts](SendRing::post) all of them with one doorbell. What an entry is, and when its blocks are done, is the caller's matter.
//!
//! **Order.** A device may read an entry as soon as the record says that it is there: a doorbell of earlier work may have made it
//! look. So each entry is written in full before the record is stored ([`to_device`](barrier::to_device)). It may look at the record
//! as soon as the register is stored to, and a register on a write-combining page is not ordered behind stores to ordinary
//! memory, so the record is flushed before ([`wc_flush`](barrier::wc_flush)). What went to such a page is flushed again
//! ([`SendDoorbell`]), or it would wait in the processor and the next doorbell could be merged with it or overtake it.
//!
//! **Doorbell or BlueFlame.** A doorbell is 8 bytes, the head of the last entry; the device then fetches the entries. Where the
//! register's page is write-combining (BlueFlame) and one block was written, the block itself is copied there, 64 bytes in one
//! write on the bus: the device need not fetch it, which spares a round trip, about a microsecond of latency. With more than one
//! block the device fetches anyway, in reads of many blocks, and the processor would pay for each copy; so bulk traffic rings
//! with 8 bytes.
//!
//! Sources: rdma-core `providers/mlx5/qp.c`, `post_send_db`; DPDK `drivers/common/mlx5/mlx5_common.h`, `mlx5_doorbell_ring`; the
//! layout: [`pollux_mlx5_abi::wqe`].
#![expect(unsafe_code, reason = "writes entries that a device reads")]

use std::mem::offset_of;
use std::ptr::NonNull;

use pollux_eal::barrier;
use pollux_mlx5_abi::wqe::{BLOCK_BYTES, Control, InlineHeader, SEGMENT_BYTES};

use crate::dbrec::{DoorbellRecord, SECOND};
use crate::uar::SendDoorbell;

/// Segments of a block.
const SEGMENTS: u32 = (BLOCK_BYTES / SEGMENT_BYTES) as u32;

/// Bytes of an inline header that stand in the Ethernet segment.
const HEADER_START: u32 = 2;

/// A send ring. Blocks and segments are called by indices that run on past the ring's end.
#[derive(Debug)]
pub struct SendRing {
    base: NonNull<u8>,
    /// Its segments, less one: all ones.
    mask: u32,
    /// Blocks that the device was told of, in all.
    posted: u32,
    /// Blocks that are the device's no more, in all.
    done: u32,
    number: u32,
    record: DoorbellRecord,
    doorbell: SendDoorbell,
}

// SAFETY: the ring belongs to no thread; whoever made it gave it the right to its memory.
unsafe impl Send for SendRing {}

impl SendRing {
    /// A ring of `1 << log` blocks of the send queue that the device calls `number`.
    ///
    /// # Safety
    /// `64 << log` bytes from `base` on, at a multiple of 64, are there as long as the ring is used, and nobody else writes them.
    /// The memory that posted entries name is the caller's to answer for.
    ///
    /// # Panics
    /// With more than 2^15 blocks, of which 16 bits of an index could not tell: it is our mistake.
    #[must_use]
    pub unsafe fn new(
        base: NonNull<u8>,
        log: u8,
        number: u32,
        record: DoorbellRecord,
        doorbell: SendDoorbell,
    ) -> Self {
        assert!(log <= 15, "2^{log} blocks");
        Self { base, mask: (SEGMENTS << log) - 1, posted: 0, done: 0, number, record, doorbell }
    }

    /// Blocks in the ring.
    #[must_use]
    #[inline(always)]
    pub fn blocks(&self) -> u32 {
        self.mask / SEGMENTS + 1
    }

    /// The number that entries carry.
    #[must_use]
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Blocks that the device was told of, in all.
    #[must_use]
    #[inline(always)]
    pub fn posted(&self) -> u32 {
        self.posted
    }

    /// Blocks that are the device's no more, in all.
    #[must_use]
    #[inline(always)]
    pub fn done(&self) -> u32 {
        self.done
    }

    /// Blocks that can be written where the next entry begins at block `at`.
    #[must_use]
    #[inline(always)]
    pub fn free(&self, at: u32) -> u32 {
        self.blocks() - at.wrapping_sub(self.done)
    }

    /// Whether no more than `taken` blocks before block `at` are not done yet. Hot: a comparison.
    #[must_use]
    #[inline(always)]
    pub fn has_room(&self, at: u32, taken: u32) -> bool {
        at.wrapping_sub(self.done) <= taken
    }

    /// Blocks up to `done` are the device's no more, as a completion said.
    #[inline(always)]
    pub fn give_back(&mut self, done: u32) {
        self.done = done;
    }

    /// The first segment of a block.
    #[must_use]
    #[inline(always)]
    pub const fn first_segment(block: u32) -> u32 {
        block.wrapping_mul(SEGMENTS)
    }

    /// The place of a segment.
    #[must_use]
    #[inline(always)]
    pub fn segment(&self, index: u32) -> *mut u8 {
        let segment = (index & self.mask) as usize;
        // SAFETY: the masked index is below the number of segments that fill the ring (`new`).
        unsafe { self.base.as_ptr().add(segment * SEGMENT_BYTES) }
    }

    /// Bytes from the start of a segment to the ring's end.
    #[must_use]
    #[inline(always)]
    pub fn before_end(&self, segment: u32) -> usize {
        (self.mask - (segment & self.mask) + 1) as usize * SEGMENT_BYTES
    }

    /// Writes the 16 bytes of a segment, as they stand in memory.
    #[inline(always)]
    pub fn write(&mut self, segment: u32, words: [u64; 2]) {
        // SAFETY: 16 bytes in the ring, at a multiple of 16; the device does not read them yet, or finds what the caller answers for.
        unsafe { self.segment(segment).cast::<[u64; 2]>().write(words) };
    }

    /// Writes the control segment of the entry at block `at`, which has `segments` segments with it.
    #[inline(always)]
    pub fn control(&mut self, at: u32, opcode: u8, segments: u32, flags: u8, imm: u32) {
        let control = Control::new(opcode, 0, at as u16, self.number, segments as u8, flags, imm);
        self.write(Self::first_segment(at), control.words());
    }

    /// Writes the flags of the entry at block `at`, whose control segment is written, over those that it has.
    #[inline(always)]
    pub fn flag(&mut self, at: u32, flags: u8) {
        let control = self.segment(Self::first_segment(at));
        // SAFETY: inside the segment; as in `write`.
        unsafe { control.add(offset_of!(Control, fm_ce_se)).write(flags) };
    }

    /// Writes the head of inline data of `bytes` bytes to the start of a segment. The data follow at once.
    #[inline(always)]
    pub fn inline_head(&mut self, segment: u32, bytes: u32) {
        let head: [u8; 4] = zerocopy::transmute!(InlineHeader::new(bytes));
        // SAFETY: inside the segment; as in `write`.
        unsafe { self.segment(segment).cast::<[u8; 4]>().write(head) };
    }

    /// Copies `bytes` bytes to the ring, `skip` bytes behind the start of a segment, going on at the ring's start where it ends.
    ///
    /// # Safety
    /// The bytes at `from` can be read, `skip` is below 16, and there are not more bytes than the ring has free.
    #[inline(always)]
    pub unsafe fn copy(&mut self, segment: u32, skip: usize, from: *const u8, bytes: usize) {
        let to = self.segment(segment);
        let before_end = self.before_end(segment) - skip;
        // SAFETY: the first part ends at the ring's end at the latest, the second starts at its start; the caller knows that both
        // are free.
        unsafe {
            if bytes <= before_end {
                std::ptr::copy_nonoverlapping(from, to.add(skip), bytes);
            } else {
                std::ptr::copy_nonoverlapping(from, to.add(skip), before_end);
                let rest = from.add(before_end);
                std::ptr::copy_nonoverlapping(rest, self.base.as_ptr(), bytes - before_end);
            }
        }
    }

    /// Segments of an Ethernet entry up to the end of an inline header of so many bytes, the control segment included. Source: rdma-core
    /// `providers/mlx5/qp.c`, `set_tso_eth_seg`.
    #[must_use]
    #[inline(always)]
    pub const fn header_segments(bytes: u32) -> u32 {
        2 + bytes.saturating_sub(HEADER_START).div_ceil(SEGMENT_BYTES as u32)
    }

    /// Copies an inline header behind the Ethernet segment of the entry at block `at`, all but its first two bytes, which that segment
    /// itself has: these are returned, zero where there are none.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), with the bytes that [`header_segments`](Self::header_segments) says.
    #[inline(always)]
    pub unsafe fn copy_header(&mut self, at: u32, from: *const u8, bytes: usize) -> [u8; 2] {
        let start = HEADER_START as usize;
        // SAFETY: as many bytes as the caller vouches for, and so much room.
        unsafe {
            if bytes > start {
                self.copy(Self::first_segment(at).wrapping_add(2), 0, from.add(start), bytes - start);
            }
            let byte = |at| if at < bytes { from.add(at).read() } else { 0 };
            [byte(0), byte(1)]
        }
    }

    /// Tells the device of all blocks up to `to`, the last entry of which begins at `last`. Hot: once a burst.
    #[inline(always)]
    pub fn post(&mut self, last: u32, to: u32) {
        let first = self.posted;
        self.posted = to;
        barrier::to_device();
        self.record.store(SECOND, to & 0xffff);
        barrier::wc_flush();
        self.ring_doorbell(first, last, to);
    }

    #[inline(always)]
    fn ring_doorbell(&mut self, first: u32, last: u32, to: u32) {
        let head = self.segment(Self::first_segment(last));
        if self.doorbell.copies() && to.wrapping_sub(first) == 1 {
            // SAFETY: a block of the ring, written by us alone.
            let block = unsafe { head.cast::<[u8; BLOCK_BYTES]>().read() };
            self.doorbell.copy(&block);
        } else {
            // SAFETY: as above.
            self.doorbell.ring(unsafe { head.cast::<u64>().read() });
        }
    }

    /// Turns BlueFlame off, or on again where the register can do it.
    pub fn set_blueflame(&mut self, on: bool) {
        self.doorbell.set_copies(on);
    }

    /// After the device's queue was reset: nothing is posted, and the next block is `at`, 0 but in tests of what comes behind many.
    pub fn restart(&mut self, at: u32) {
        (self.posted, self.done) = (at, at);
        self.record.store(SECOND, at & 0xffff);
    }

    /// The record, whose other word is that of the queue pair's receive ring.
    #[inline(always)]
    pub fn record(&mut self) -> &mut DoorbellRecord {
        &mut self.record
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pollux_eal::region::{Region, Zone};
    use pollux_mlx5_abi::opcode::send;
    use pollux_mlx5_abi::wqe::Completion;
    use pollux_uverbs::{Page, Protection};

    use super::*;
    use crate::dbrec::DoorbellRecords;

    struct Rig {
        ring: SendRing,
        memory: Zone,
        page: Arc<Zone>,
    }

    fn zone(name: &str) -> Zone {
        Region::anonymous(name, 4096).expect("memory").into_zone()
    }

    /// A ring of 4 blocks that begins at block `at`, on a page that is write-combining or not.
    fn rig(at: u32, combining: bool) -> Rig {
        let (memory, page) = (zone("ring"), Arc::new(zone("page")));
        let uar = Arc::new(Page::of_zone(Arc::clone(&page), 0, 4096, Protection::ReadWrite));
        let doorbell = SendDoorbell::own(uar.registers(0x800..0xa00).expect("registers"), combining);
        let record = DoorbellRecords::new(zone("records")).take().expect("a record");
        // SAFETY: the zone is kept beside the ring, and no device reads what it posts.
        let mut ring = unsafe { SendRing::new(memory.base(), 2, 0x12_3456, record, doorbell) };
        ring.restart(at);
        Rig { ring, memory, page }
    }

    impl Rig {
        fn entry(&mut self, at: u32, segments: u32) {
            self.ring.control(at, send::NOP, segments, 0, 0);
        }

        fn memory(&self) -> [u8; 256] {
            let mut bytes = [0; 256];
            self.memory.copy_out(0, &mut bytes);
            bytes
        }

        /// 64 bytes of one of the register's buffers.
        fn register(&self, buffer: usize) -> [u8; 64] {
            let mut bytes = [0; 64];
            self.page.copy_out(0x800 + buffer * 0x100, &mut bytes);
            bytes
        }
    }

    #[test]
    fn room_is_counted_past_the_end_of_the_ring_and_of_the_index() {
        for start in [0, 3, u32::MAX - 1] {
            let Rig { mut ring, .. } = rig(start, false);
            assert_eq!((ring.blocks(), ring.free(start)), (4, 4));
            let at = start.wrapping_add(3);
            assert_eq!((ring.free(at), ring.has_room(at, 3), ring.has_room(at, 2)), (1, true, false));
            ring.give_back(start.wrapping_add(2));
            assert_eq!((ring.free(at), ring.has_room(at, 1), ring.done()), (3, true, start.wrapping_add(2)));
        }
    }

    #[test]
    fn bytes_go_on_at_the_start_of_the_ring() {
        let mut rig = rig(0, false);
        let bytes: Vec<u8> = (1..=40).collect();
        // SAFETY: 40 bytes, and the ring of 256 has nothing posted.
        unsafe { rig.ring.copy(14, 4, bytes.as_ptr(), bytes.len()) };
        let memory = rig.memory();
        assert_eq!(rig.ring.before_end(14), 32);
        assert_eq!((&memory[228..], &memory[..12]), (&bytes[..28], &bytes[28..]));
        assert_eq!(memory[12..228], [0; 216]);
    }

    #[test]
    fn a_header_begins_in_its_segment_and_goes_on_at_the_start_of_the_ring() {
        let ends = [(0, 2), (1, 2), (2, 2), (3, 3), (18, 3), (19, 4), (34, 4), (35, 5)];
        for (bytes, segments) in ends {
            assert_eq!(SendRing::header_segments(bytes), segments, "{bytes} bytes");
        }
        let mut rig = rig(0, false);
        let bytes: Vec<u8> = (1..=40).collect();
        // SAFETY: 40 bytes, and the ring of 256 has nothing posted.
        assert_eq!(unsafe { rig.ring.copy_header(3, bytes.as_ptr(), bytes.len()) }, [1, 2]);
        let memory = rig.memory();
        assert_eq!((&memory[224..], &memory[..6]), (&bytes[2..34], &bytes[34..]));
        assert_eq!(memory[6..224], [0; 218]);
        for few in 0..=2 {
            // SAFETY: as above.
            let first = unsafe { rig.ring.copy_header(0, bytes.as_ptr(), few) };
            assert_eq!(first, [u8::from(few > 0), if few > 1 { 2 } else { 0 }]);
        }
        assert_eq!(rig.memory(), memory);
    }

    #[test]
    fn one_doorbell_tells_of_the_last_entry() {
        let at = u32::MAX;
        let mut rig = rig(at, true);
        rig.entry(at, 4);
        rig.entry(at.wrapping_add(1), 8);
        rig.ring.flag(at.wrapping_add(1), Completion::Always as u8);
        rig.ring.post(at.wrapping_add(1), at.wrapping_add(3));
        assert_eq!((rig.ring.posted(), rig.ring.record().load(SECOND)), (2, 2));
        // The index of its first block is 0, it is at the ring's start, and the flags are no part of what is stored.
        assert_eq!(rig.memory()[..12], [0, 0, 0, 0, 0x12, 0x34, 0x56, 8, 0, 0, 0, 8]);
        assert_eq!(rig.register(0)[..8], [0, 0, 0, 0, 0x12, 0x34, 0x56, 8]);
        assert_eq!(rig.register(0)[8..], [0; 56]);
    }

    #[test]
    fn one_block_is_copied_whole_to_a_buffer_and_the_next_to_the_other() {
        let mut rig = rig(0, true);
        for at in 0..2 {
            rig.entry(at, 2);
            rig.ring.inline_head(SendRing::first_segment(at) + 1, 7);
            rig.ring.post(at, at + 1);
            assert_eq!(rig.register(at as usize)[..], rig.memory()[at as usize * 64..][..64]);
        }
        assert_eq!(rig.register(1)[16..20], [0x80, 0, 0, 7]);
        rig.ring.set_blueflame(false);
        rig.entry(2, 2);
        rig.ring.inline_head(9, 9);
        rig.ring.post(2, 3);
        assert_eq!((rig.register(0)[2], rig.register(0)[19]), (2, 7), "the head alone");
    }

    #[test]
    fn a_ring_that_is_restarted_has_nothing_posted() {
        let mut rig = rig(0, false);
        rig.entry(0, 1);
        rig.ring.post(0, 1);
        rig.ring.give_back(1);
        rig.ring.restart(0);
        assert_eq!((rig.ring.posted(), rig.ring.done(), rig.ring.record().load(SECOND)), (0, 0, 0));
    }
}
