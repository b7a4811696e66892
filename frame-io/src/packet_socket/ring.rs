//! The mapped rings: slots whose status word says who owns them.
//!
//! A slot is never behind a reference as a whole. Its status word is read and written atomically through a raw pointer;
//! bytes are borrowed out only between an acquiring load that says "ours" and the releasing store that gives it back.
#![expect(unsafe_code, reason = "memory shared with the kernel")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::PacketOptions;

/// `struct tpacket2_hdr`, without the status word that opens it. Source: `linux/if_packet.h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotHeader {
    /// Length of the frame on the wire.
    pub(super) wire_bytes: u32,
    /// Bytes of it in the slot.
    pub(super) slot_bytes: u32,
    /// Where they begin.
    pub(super) offset: u16,
    pub(super) seconds: u32,
    pub(super) nanos: u32,
    pub(super) vlan_tci: u16,
    pub(super) vlan_tpid: u16,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<libc::tpacket2_hdr>() == 32);
    assert!(offset_of!(libc::tpacket2_hdr, tp_len) == 4 && offset_of!(libc::tpacket2_hdr, tp_snaplen) == 8);
    assert!(offset_of!(libc::tpacket2_hdr, tp_mac) == 12 && offset_of!(libc::tpacket2_hdr, tp_sec) == 16);
    assert!(
        offset_of!(libc::tpacket2_hdr, tp_nsec) == 20 && offset_of!(libc::tpacket2_hdr, tp_vlan_tci) == 24
    );
    assert!(offset_of!(libc::tpacket2_hdr, tp_vlan_tpid) == 26);
};

/// Both rings of a socket, receive first. Nobody reads or writes through it: what may be done to the bytes is decided by the two
/// cursors, of which each half has one.
#[derive(Debug)]
pub(super) struct Mapping(MmapRaw);

impl Mapping {
    pub(super) fn new(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        MmapOptions::new().len(bytes).populate().map_raw(&fd).map(Self)
    }
}

/// A place in one ring, going round. There is one per ring, so `&mut` of it is the right to touch slots that the
/// status word gives to user space.
#[derive(Debug)]
pub(super) struct SlotCursor {
    ring: NonNull<u8>,
    block_bytes: usize,
    frame_bytes: usize,
    per_block: usize,
    blocks: usize,
    block: usize,
    within: usize,
}

// SAFETY: the cursor is the only way to its ring's bytes; it moves with its owner, and the holder keeps the mapping alive.
unsafe impl Send for SlotCursor {}

impl SlotCursor {
    /// The first slot of the receive ring (`half` 0) or the transmit ring (1). The caller keeps `mapping` alive as long as the
    /// cursor, and makes one cursor for each half.
    pub(super) fn new(mapping: &Mapping, options: &PacketOptions, half: usize) -> Self {
        let (block_bytes, frame_bytes) = (options.block_bytes as usize, options.frame_bytes as usize);
        let per_block = block_bytes / frame_bytes;
        let blocks = (options.frames as usize).div_ceil(per_block);
        assert_eq!(2 * blocks * block_bytes, mapping.0.len(), "the rings fill the mapping");
        assert!(half < 2, "two halves");
        let base = NonNull::new(mapping.0.as_mut_ptr()).expect("no mapping begins at 0");
        // SAFETY: half 1 starts in the middle of the mapping.
        let ring = unsafe { base.add(half * blocks * block_bytes) };
        Self { ring, block_bytes, frame_bytes, per_block, blocks, block: 0, within: 0 }
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    pub(super) fn slots(&self) -> usize {
        self.blocks * self.per_block
    }

    #[inline]
    fn at(&self, block: usize, within: usize) -> NonNull<u8> {
        debug_assert!(block < self.blocks && within < self.per_block);
        // SAFETY: `advance` keeps both inside the ring; `frame_bytes * per_block <= block_bytes`.
        unsafe { self.ring.add(block * self.block_bytes + within * self.frame_bytes) }
    }

    #[inline]
    fn slot(&self) -> NonNull<u8> {
        self.at(self.block, self.within)
    }

    fn status_of(slot: NonNull<u8>) -> &'static AtomicU32 {
        // SAFETY: the first four bytes of a slot are its status word, aligned (slots are multiples of 16), and only ever
        // touched atomically by us. The lifetime is the mapping's; the reference does not leave this module.
        unsafe { AtomicU32::from_ptr(slot.cast().as_ptr()) }
    }

    /// The status word. Acquire pairs with the kernel's `smp_wmb` before it writes the word.
    #[inline]
    pub(super) fn status(&self) -> u32 {
        Self::status_of(self.slot()).load(Ordering::Acquire)
    }

    /// The status word of the slot `back` places behind.
    pub(super) fn status_before(&self, back: usize) -> u32 {
        let place = self.block * self.per_block + self.within + self.slots() - back % self.slots();
        let place = place % self.slots();
        Self::status_of(self.at(place / self.per_block, place % self.per_block)).load(Ordering::Acquire)
    }

    /// Gives the slot away. Release: all that we read from or wrote to it is done.
    #[inline]
    pub(super) fn set_status(&mut self, status: u32) {
        Self::status_of(self.slot()).store(status, Ordering::Release);
    }

    #[inline]
    pub(super) fn advance(&mut self) {
        self.within += 1;
        if self.within == self.per_block {
            self.within = 0;
            self.block = if self.block + 1 == self.blocks { 0 } else { self.block + 1 };
        }
    }

    /// The header of a slot that is ours.
    #[inline]
    pub(super) fn header(&self) -> SlotHeader {
        // SAFETY: the caller has seen a status that gives the slot to us, so the kernel does not write it; plain integers.
        let raw = unsafe { self.slot().cast::<libc::tpacket2_hdr>().read() };
        SlotHeader {
            wire_bytes: raw.tp_len,
            slot_bytes: raw.tp_snaplen,
            offset: raw.tp_mac,
            seconds: raw.tp_sec,
            nanos: raw.tp_nsec,
            vlan_tci: raw.tp_vlan_tci,
            vlan_tpid: raw.tp_vlan_tpid,
        }
    }

    /// Bytes of a slot that is ours; what lies outside the slot is left out.
    #[inline]
    pub(super) fn bytes(&self, offset: usize, bytes: usize) -> &[u8] {
        let offset = offset.min(self.frame_bytes);
        let bytes = bytes.min(self.frame_bytes - offset);
        // SAFETY: inside the slot by the lines above. The slot is ours until `set_status`, which needs `&mut self` and so ends
        // this borrow.
        unsafe { std::slice::from_raw_parts(self.slot().add(offset).as_ptr(), bytes) }
    }

    /// Bytes of a slot that is ours, to fill.
    #[inline]
    pub(super) fn bytes_mut(&mut self, offset: usize) -> &mut [u8] {
        let offset = offset.min(self.frame_bytes);
        // SAFETY: as in `bytes`; `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.slot().add(offset).as_ptr(), self.frame_bytes - offset) }
    }

    /// Writes the two lengths of a transmit slot that is ours.
    #[inline]
    pub(super) fn set_lengths(&mut self, bytes: u32) {
        let header = self.slot().cast::<libc::tpacket2_hdr>().as_ptr();
        // SAFETY: inside the slot; ours until `set_status`.
        unsafe {
            (&raw mut (*header).tp_len).write(bytes);
            (&raw mut (*header).tp_snaplen).write(bytes);
        }
    }
}
