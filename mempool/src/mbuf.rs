//! The packet buffer.
#![expect(unsafe_code, reason = "reads and writes headers and data in pinned memory")]

use std::ptr::NonNull;

use pollux_atomic::Ordering;
use pollux_wire::PacketType;

use crate::registry::pool_of_object;
use crate::shared::MbufShape;
use crate::{External, Object};

mod chain;
mod check;
pub(crate) mod flag;
mod free;
pub(crate) mod header;
mod mark;
pub(crate) mod reference;

pub use chain::Segments;
pub use check::Flaw;
use flag::RxFlags;
pub(crate) use free::{all_plain_of, free_bulk};
use header::{EXTERNAL, HEADER_BYTES, Header, INDIRECT, Lengths, Marks, REFERENCES, cold, distance, home};
use reference::settled;

/// An owned packet buffer: one pointer to a header in pinned memory. Dropping it, on whatever thread, takes it (and the
/// segments chained to it) home to its pool.
///
/// Lengths are in bytes. Methods that cannot do what is asked (no room, data shared with a clone) say so by `None` or
/// `false` and change nothing.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(NonNull<Header>);

const _: () = assert!(size_of::<Mbuf>() == 8 && size_of::<Option<Mbuf>>() == 8);

// SAFETY: an `Mbuf` is the only user of its header, its references apart, which are atomic; the data is written only
// when nobody else refers to it (`sole`). The pool takes objects from any thread.
unsafe impl Send for Mbuf {}
// SAFETY: through `&Mbuf` the header and data are read only; cloning changes the references, which are atomic.
unsafe impl Sync for Mbuf {}

#[inline(always)]
fn pool_number(home: u64) -> u16 {
    (home >> 32) as u16
}

/// The header `distance` bytes from `header`, which may lie in another region.
#[inline(always)]
fn header_at(header: NonNull<Header>, distance: i64) -> NonNull<Header> {
    let address = header.as_ptr().expose_provenance().wrapping_add_signed(distance as isize);
    // SAFETY: distances are made by `distance` from a header that is not null, and lead back to it.
    unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address)) }
}

impl Mbuf {
    /// # Safety
    /// The header is of an mbuf that is out and that the caller owns.
    #[inline(always)]
    pub(crate) unsafe fn from_header(header: NonNull<Header>) -> Self {
        Self(header)
    }

    /// Converts the mbuf to a raw address, such as for a device's ring. It stays allocated until [`Mbuf::from_raw`].
    #[inline(always)]
    #[must_use]
    pub fn into_raw(self) -> NonNull<u8> {
        let raw = self.0.cast();
        std::mem::forget(self);
        raw
    }

    /// Converts a raw address from [`Mbuf::into_raw`] back to the mbuf.
    ///
    /// # Safety
    /// `raw` came from `into_raw` (or from [`MbufPool::address_of`](crate::MbufPool::address_of) and its kin for an mbuf that was given away), and
    /// was not taken back since. Nothing else, no device either, reads or writes the mbuf any more.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw.cast())
    }

    /// Takes back an mbuf that [`MbufPool::alloc_raw`](crate::MbufPool::alloc_raw) gave out, or makes one given away by
    /// [`into_raw`](Self::into_raw) fresh: one segment, empty.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw); and if it was given away by `into_raw`, it was one segment that showed its own
    /// data room.
    #[inline(always)]
    #[must_use]
    pub unsafe fn adopt(raw: NonNull<u8>) -> Self {
        let header = raw.cast::<Header>();
        // SAFETY: the caller owns the mbuf, which is out, so its pool lives.
        unsafe {
            let pool = pool_of_object(pool_number(home(header).load(Ordering::Relaxed)));
            Self::freshen(Object(raw), &pool.as_ref().shape.fresh);
        }
        Self(header)
    }

    /// Takes back an mbuf that [`MbufPool::alloc_raw`](crate::MbufPool::alloc_raw) gave out, and says at once what a port received into it: as
    /// [`adopt`](Self::adopt) and [`set_received`](Self::set_received), without a look at what the header said before: two
    /// stores of 16 bytes.
    ///
    /// # Safety
    /// As for [`adopt`](Self::adopt); `offset + len` is at most the pool's [`data_room`](crate::MbufPool::data_room).
    #[inline(always)]
    #[must_use]
    pub unsafe fn adopt_received(
        raw: NonNull<u8>,
        offset: u32,
        len: u32,
        port: u16,
        flags: RxFlags,
        packet_type: PacketType,
    ) -> Self {
        let header = raw.cast::<Header>();
        // SAFETY: the caller owns the mbuf.
        unsafe {
            (*header.as_ptr()).lengths =
                Lengths { data_off: offset, data_len: len, pkt_len: len, segments: 1, port };
            (*header.as_ptr()).marks = Marks { rx_flags: flags, packet_type, ..Marks::fresh() };
        }
        let mbuf = Self(header);
        debug_assert!(offset.checked_add(len).is_some_and(|end| end as usize <= mbuf.room_bytes()));
        mbuf
    }

    /// As [`adopt_received`](Self::adopt_received), for who makes the first 16 bytes in a vector register: offset of the
    /// data, its length twice, and `1 | port << 16`.
    ///
    /// # Safety
    /// As for [`adopt_received`](Self::adopt_received).
    #[inline(always)]
    #[must_use]
    pub unsafe fn adopt_words(
        raw: NonNull<u8>,
        lengths: [u32; 4],
        flags: RxFlags,
        packet_type: PacketType,
    ) -> Self {
        const { assert!(size_of::<Lengths>() == 16 && cfg!(target_endian = "little")) };
        let header = raw.cast::<Header>();
        // SAFETY: the caller owns the mbuf; `Lengths` is four dwords, of which the last has segments and port.
        unsafe {
            (&raw mut (*header.as_ptr()).lengths).cast::<[u32; 4]>().write(lengths);
            (*header.as_ptr()).marks = Marks { rx_flags: flags, packet_type, ..Marks::fresh() };
        }
        let mbuf = Self(header);
        debug_assert!(mbuf.check().is_ok(), "lengths make no sense");
        mbuf
    }

    /// Returns the address of the header, for prefetching.
    #[inline(always)]
    #[must_use]
    pub fn header_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    /// Frees mbufs that [`Mbuf::into_raw`] gave away: all at once when they are plain and of one pool. A packet of several
    /// segments goes with its first.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw), for each of them.
    #[inline]
    pub unsafe fn free_raw(raws: &[NonNull<u8>]) {
        // SAFETY: `Mbuf` is one address; the caller gives them up.
        unsafe { free_bulk(raws.as_ptr().cast(), raws.len()) }
    }

    /// Makes an object fresh from its pool an empty mbuf: two stores of 16 bytes.
    ///
    /// # Safety
    /// The object is of an mbuf pool, out, and the caller's.
    #[inline(always)]
    pub(crate) unsafe fn freshen(object: Object, lengths: &Lengths) {
        let header = object.0.cast::<Header>().as_ptr();
        // SAFETY: the caller's promise.
        unsafe {
            // A copy from memory is one load and one store of 16 bytes; a value in registers would be three stores.
            std::ptr::copy_nonoverlapping(lengths, &raw mut (*header).lengths, 1);
            (*header).marks = Marks::fresh();
        }
    }

    #[inline(always)]
    fn lengths(&self) -> &Lengths {
        // SAFETY: this mbuf owns its header.
        unsafe { &(*self.0.as_ptr()).lengths }
    }

    #[inline(always)]
    fn lengths_mut(&mut self) -> &mut Lengths {
        // SAFETY: this mbuf owns its header.
        unsafe { &mut (*self.0.as_ptr()).lengths }
    }

    #[inline(always)]
    fn marks(&self) -> &Marks {
        // SAFETY: this mbuf owns its header.
        unsafe { &(*self.0.as_ptr()).marks }
    }

    #[inline(always)]
    fn marks_mut(&mut self) -> &mut Marks {
        // SAFETY: this mbuf owns its header.
        unsafe { &mut (*self.0.as_ptr()).marks }
    }

    /// Returns the size of the data room in bytes, headroom included.
    #[inline(always)]
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        // SAFETY: this mbuf owns its header.
        unsafe { (*self.0.as_ptr()).room as usize }
    }

    /// First byte of the data room. What may be done with it is as for [`data_ptr`](Self::data_ptr).
    #[inline(always)]
    #[must_use]
    pub fn room_ptr(&self) -> *mut u8 {
        // SAFETY: this mbuf owns its header.
        let room_at = unsafe { (*self.0.as_ptr()).room_at };
        let address = self.0.as_ptr().expose_provenance().wrapping_add_signed(room_at as isize);
        std::ptr::with_exposed_provenance_mut(address)
    }

    /// First byte of this segment's data, for a device or a copy. Reading is right while the mbuf is owned; writing
    /// only when nobody shares the data ([`is_sole`](Self::is_sole)).
    #[inline(always)]
    #[must_use]
    pub fn data_ptr(&self) -> *mut u8 {
        self.room_ptr().wrapping_add(self.lengths().data_off as usize)
    }

    /// Returns the data of this segment.
    #[inline(always)]
    #[must_use]
    #[doc(alias = "rte_pktmbuf_mtod")]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `data_off + data_len <= room` always, the room is mapped and initialised (zeroed when it was mapped),
        // and nobody writes it while a reference is held (see `data_mut`).
        unsafe { std::slice::from_raw_parts(self.data_ptr(), self.lengths().data_len as usize) }
    }

    /// Returns the data of this segment for writing; `None` if a clone or another holder of an external buffer shares it.
    #[inline(always)]
    #[must_use]
    pub fn data_mut(&mut self) -> Option<&mut [u8]> {
        if !self.is_sole() {
            return None;
        }
        // SAFETY: as for `data`, and nobody else refers to the data; nobody can while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(self.data_ptr(), self.lengths().data_len as usize) })
    }

    /// Returns whether the data of this segment is not shared and may be written.
    #[inline(always)]
    #[must_use]
    pub fn is_sole(&self) -> bool {
        // Acquire pairs with the Release of a clone's drop: its reads are over.
        let home = settled(home(self.0));
        if home & (REFERENCES | INDIRECT) == 1 { true } else { self.is_sole_elsewhere(home) }
    }

    /// Whether it is one segment of the pool with this number, shows its own data room, and nobody else refers to it.
    #[inline(always)]
    pub(crate) fn is_plain_in(&self, pool: u16) -> bool {
        // No flag set, one reference. Acquire as in `is_sole`.
        settled(home(self.0)) == u64::from(pool) << 32 | 1
    }

    #[cold]
    #[inline(never)]
    fn is_sole_elsewhere(&self, word: u64) -> bool {
        if word & INDIRECT == 0 {
            return false;
        }
        // SAFETY: the field is valid under `INDIRECT`.
        let direct = header_at(self.0, unsafe { (*cold(self.0)).attached });
        settled(home(direct)) & REFERENCES == 1
    }

    /// Returns the data length of this segment in bytes.
    #[inline(always)]
    #[must_use]
    #[doc(alias = "rte_pktmbuf_data_len")]
    pub fn data_len(&self) -> usize {
        self.lengths().data_len as usize
    }

    /// Returns the packet length: the data of all segments, in bytes.
    #[inline(always)]
    #[must_use]
    #[doc(alias = "rte_pktmbuf_pkt_len")]
    pub fn pkt_len(&self) -> u32 {
        self.lengths().pkt_len
    }

    /// Returns the headroom of this segment in bytes.
    #[inline(always)]
    #[must_use]
    #[doc(alias = "rte_pktmbuf_headroom")]
    pub fn headroom(&self) -> usize {
        self.lengths().data_off as usize
    }

    /// Returns the tailroom of this segment in bytes.
    #[inline(always)]
    #[must_use]
    pub fn tailroom_own(&self) -> usize {
        let lengths = self.lengths();
        self.room_bytes() - lengths.data_off as usize - lengths.data_len as usize
    }

    /// Returns the number of segments of the packet.
    #[inline(always)]
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.lengths().segments.into()
    }

    /// Returns whether the packet has a single segment.
    #[inline(always)]
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.segment_count() == 1
    }

    /// Sets where the data starts and how long it is, for a packet of one segment that a device filled in. `false`
    /// and no change when it does not fit in the room or the packet has more segments.
    #[inline(always)]
    pub fn set_data(&mut self, offset: usize, len: usize) -> bool {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.room_bytes());
        if !fits || !self.is_contiguous() {
            return false;
        }
        let lengths = self.lengths_mut();
        lengths.data_off = offset as u32;
        lengths.data_len = len as u32;
        lengths.pkt_len = len as u32;
        true
    }

    /// Says all at once what a port received: data of `len` bytes at `offset` in the room, in one segment. As
    /// [`set_data`](Self::set_data), with port, flags and packet type set besides, and no tx or dynamic flags: two
    /// stores of 16 bytes.
    #[inline(always)]
    pub fn set_received(
        &mut self,
        offset: usize,
        len: usize,
        port: u16,
        flags: RxFlags,
        packet_type: PacketType,
    ) -> bool {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.room_bytes());
        if !fits || !self.is_contiguous() {
            return false;
        }
        let (data_off, len) = (offset as u32, len as u32);
        *self.lengths_mut() = Lengths { data_off, data_len: len, pkt_len: len, segments: 1, port };
        *self.marks_mut() = Marks { rx_flags: flags, packet_type, ..Marks::fresh() };
        true
    }

    /// Sets the length of a packet of one segment; the data starts where it did. As [`set_data`](Self::set_data).
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) -> bool {
        self.set_data(self.headroom(), len)
    }

    /// Resets it to an empty mbuf of one segment, as from the pool; further segments are freed.
    pub fn reset(&mut self) {
        drop(self.split_rest());
        let headroom = self.shape().fresh.data_off;
        let room = self.room_bytes() as u32;
        *self.lengths_mut() = Lengths::fresh(headroom.min(room));
        *self.marks_mut() = Marks::fresh();
    }

    /// Shows an external buffer instead of the mbuf's own data room, empty at first ([`set_data`](Self::set_data) says
    /// what of it is data). It goes when the mbuf does. `Err` gives the buffer back when the mbuf is shared, has more
    /// segments, shows another's data already, or the buffer has 4 GiB or more.
    ///
    /// # Errors
    /// The buffer that was not taken.
    #[doc(alias = "rte_pktmbuf_attach_extbuf")]
    pub fn attach_external(&mut self, external: External) -> Result<(), External> {
        let word = settled(home(self.0));
        let Ok(bytes) = u32::try_from(external.bytes()) else { return Err(external) };
        if word as u32 != 1 {
            return Err(external);
        }
        let header = self.0.as_ptr();
        // SAFETY: this mbuf owns its header and its pool's slot for it.
        unsafe {
            (*header).room_at = distance(self.0, external.base().as_ptr());
            (*header).room = bytes;
            (*header).lengths.data_off = 0;
            (*header).lengths.data_len = 0;
            (*header).lengths.pkt_len = 0;
            let index = (*cold(self.0)).index as usize;
            pool_of_object(pool_number(word)).as_ref().set_external(index, Some(external.into_owner()));
        }
        home(self.0).fetch_or(EXTERNAL, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the private area of this mbuf.
    #[inline]
    #[must_use]
    pub fn private(&self) -> &[u8] {
        let bytes = self.private_bytes();
        // SAFETY: the private area follows the two header lines, `private_bytes` long, and this mbuf owns it.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>().add(HEADER_BYTES), bytes) }
    }

    /// Returns the private area of this mbuf for writing.
    #[inline]
    #[must_use]
    pub fn private_mut(&mut self) -> &mut [u8] {
        let bytes = self.private_bytes();
        // SAFETY: as for `private`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().cast::<u8>().add(HEADER_BYTES), bytes) }
    }

    #[inline]
    fn private_bytes(&self) -> usize {
        self.shape().private_bytes as usize
    }

    /// Returns the layout of the mbufs of its pool.
    #[inline]
    fn shape(&self) -> &MbufShape {
        let number = pool_number(home(self.0).load(Ordering::Relaxed));
        // SAFETY: an mbuf is out, for as long as it is borrowed, and its pool lives.
        unsafe { &pool_of_object(number).as_ref().shape }
    }

    /// Returns the ID of its pool.
    #[inline]
    #[must_use]
    pub fn pool_id(&self) -> u16 {
        pool_number(home(self.0).load(Ordering::Relaxed))
    }
}
