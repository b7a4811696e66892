//! Room at both ends, chains of segments, clones and copies.
#![expect(unsafe_code, reason = "walks segments in pinned memory")]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::header::{CHAINED, Header, INDIRECT};
use super::{Mbuf, cold, distance, header_at, home, reference};
use crate::{MbufPool, copy_frame};

/// The data of a packet, segment by segment.
#[derive(Debug)]
pub struct Segments<'a> {
    next: Option<NonNull<Header>>,
    left: usize,
    _packet: PhantomData<&'a Mbuf>,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let header = self.next?;
        self.left -= 1;
        self.next = next_of(header);
        // SAFETY: a segment of a packet that is borrowed for `'a`; see `Mbuf::data`.
        unsafe {
            let segment = std::mem::ManuallyDrop::new(Mbuf::from_header(header));
            Some(std::slice::from_raw_parts(segment.data_ptr(), segment.data_len()))
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Segments<'_> {}

#[inline(always)]
pub(super) fn next_of(header: NonNull<Header>) -> Option<NonNull<Header>> {
    (home(header).load(Ordering::Relaxed) & CHAINED != 0)
        // SAFETY: valid under `CHAINED`.
        .then(|| header_at(header, unsafe { (*cold(header)).next }))
}

impl Mbuf {
    /// The data of the packet, segment by segment.
    #[inline]
    #[must_use]
    pub fn segments(&self) -> Segments<'_> {
        Segments { next: Some(self.0), left: self.segment_count(), _packet: PhantomData }
    }

    #[inline(always)]
    fn last(&self) -> NonNull<Header> {
        if self.is_contiguous() { self.0 } else { self.last_of_chain() }
    }

    #[cold]
    fn last_of_chain(&self) -> NonNull<Header> {
        let mut last = self.0;
        while let Some(next) = next_of(last) {
            last = next;
        }
        last
    }

    /// The last segment, to be changed. Its own `pkt_len` means nothing.
    #[inline(always)]
    fn with_last<R>(&mut self, act: impl FnOnce(&mut Mbuf) -> R) -> R {
        // SAFETY: this packet owns its segments and is borrowed; the view is not dropped.
        let mut last = std::mem::ManuallyDrop::new(unsafe { Mbuf::from_header(self.last()) });
        act(&mut last)
    }

    /// Bytes free after the data of the last segment.
    #[inline]
    #[must_use]
    #[doc(alias = "rte_pktmbuf_tailroom")]
    pub fn tailroom(&self) -> usize {
        if self.is_contiguous() {
            return self.tailroom_own();
        }
        // SAFETY: this packet owns its segments and is borrowed; the view is not dropped.
        std::mem::ManuallyDrop::new(unsafe { Mbuf::from_header(self.last()) }).tailroom_own()
    }

    /// Adds `bytes` at the end of the last segment and lends them to be filled. `None` when there is no such room, or
    /// the data is shared, or the packet would have 4 GiB.
    #[inline]
    #[must_use]
    #[doc(alias = "rte_pktmbuf_append")]
    pub fn append(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let pkt_len = u32::try_from(bytes).ok().and_then(|bytes| self.pkt_len().checked_add(bytes))?;
        let at = self.with_last(|last| {
            if bytes > last.tailroom_own() || !last.is_sole() {
                return None;
            }
            let at = last.data_ptr().wrapping_add(last.data_len());
            last.lengths_mut().data_len += bytes as u32;
            Some(at)
        })?;
        self.lengths_mut().pkt_len = pkt_len;
        // SAFETY: inside the room, initialised memory, and nobody else refers to the data.
        Some(unsafe { std::slice::from_raw_parts_mut(at, bytes) })
    }

    /// Adds a copy of `data` at the end of the last segment. `false` as [`append`](Self::append).
    #[inline]
    pub fn append_slice(&mut self, data: &[u8]) -> bool {
        self.append(data.len()).map(|to| copy_frame(to, data)).is_some()
    }

    /// Adds `bytes` before the data and lends them to be filled. `None` when there is no such headroom, or the data is
    /// shared, or the packet would have 4 GiB.
    #[inline]
    #[must_use]
    #[doc(alias = "rte_pktmbuf_prepend")]
    pub fn prepend(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.headroom() || !self.is_sole() {
            return None;
        }
        // The headroom, and so `bytes`, is a `u32`.
        let pkt_len = self.pkt_len().checked_add(bytes as u32)?;
        let lengths = self.lengths_mut();
        lengths.data_off -= bytes as u32;
        lengths.data_len += bytes as u32;
        lengths.pkt_len = pkt_len;
        // SAFETY: inside the room, initialised memory, and nobody else refers to the data.
        Some(unsafe { std::slice::from_raw_parts_mut(self.data_ptr(), bytes) })
    }

    /// Drops `bytes` from the front of the first segment; `false` when it has fewer.
    #[inline]
    #[doc(alias = "rte_pktmbuf_adj")]
    pub fn adj(&mut self, bytes: usize) -> bool {
        if bytes > self.data_len() {
            return false;
        }
        let lengths = self.lengths_mut();
        lengths.data_off += bytes as u32;
        lengths.data_len -= bytes as u32;
        lengths.pkt_len -= bytes as u32;
        true
    }

    /// Drops `bytes` from the end of the last segment; `false` when it has fewer.
    #[inline]
    #[doc(alias = "rte_pktmbuf_trim")]
    pub fn trim(&mut self, bytes: usize) -> bool {
        let done = self.with_last(|last| {
            if bytes > last.data_len() {
                return false;
            }
            last.lengths_mut().data_len -= bytes as u32;
            true
        });
        if done {
            self.lengths_mut().pkt_len -= bytes as u32;
        }
        done
    }

    /// Hangs the segments of `tail` after those of this packet. `Err` gives `tail` back when the packet would have more
    /// than 65,535 segments or 4 GiB.
    ///
    /// # Errors
    /// The packet that was not taken.
    #[doc(alias = "rte_pktmbuf_chain")]
    pub fn chain(&mut self, tail: Mbuf) -> Result<(), Mbuf> {
        let segments = self.segment_count() + tail.segment_count();
        let bytes = u64::from(self.pkt_len()) + u64::from(tail.pkt_len());
        let (Ok(segments), Ok(bytes)) = (u16::try_from(segments), u32::try_from(bytes)) else {
            return Err(tail);
        };
        let last = self.last();
        let tail = tail.into_raw();
        // SAFETY: the last segment is this packet's own.
        unsafe { (*cold(last)).next = distance(last, tail.as_ptr()) };
        home(last).fetch_or(CHAINED, Ordering::Relaxed);
        let lengths = self.lengths_mut();
        lengths.segments = segments;
        lengths.pkt_len = bytes;
        Ok(())
    }

    /// Takes off all segments after the first, as a packet of their own.
    #[must_use]
    pub fn split_rest(&mut self) -> Option<Mbuf> {
        let next = next_of(self.0)?;
        home(self.0).fetch_and(!CHAINED, Ordering::Relaxed);
        let lengths = self.lengths_mut();
        let (segments, bytes) = (lengths.segments - 1, lengths.pkt_len - lengths.data_len);
        lengths.segments = 1;
        lengths.pkt_len = lengths.data_len;
        // SAFETY: the segment was this packet's and is so no more.
        let mut rest = unsafe { Mbuf::from_header(next) };
        let lengths = rest.lengths_mut();
        lengths.segments = segments;
        lengths.pkt_len = bytes;
        Some(rest)
    }

    /// Copies the packet's bytes from `offset` on to `to`; tells how many there were to copy.
    pub fn read(&self, mut offset: usize, to: &mut [u8]) -> usize {
        let mut done = 0;
        for segment in self.segments() {
            if offset >= segment.len() {
                offset -= segment.len();
                continue;
            }
            let count = (segment.len() - offset).min(to.len() - done);
            to[done..done + count].copy_from_slice(&segment[offset..offset + count]);
            done += count;
            offset = 0;
            if done == to.len() {
                break;
            }
        }
        done
    }

    /// A second packet that shows the same data: each segment of it is an mbuf of `pool` that holds a reference of
    /// the one that owns the data. No data is copied, and neither can write it while both live. `None` when `pool` is
    /// empty or there are
    /// 65,535 already.
    #[must_use]
    #[doc(alias = "rte_pktmbuf_clone")]
    pub fn clone_indirect(&self, pool: &MbufPool) -> Option<Mbuf> {
        let mut first: Option<Mbuf> = None;
        let mut source = Some(self.0);
        while let Some(header) = source {
            let mut segment = pool.alloc()?;
            // SAFETY: the segment is of this packet, which is borrowed.
            if !unsafe { segment.attach(header) } {
                return None;
            }
            match &mut first {
                None => first = Some(segment),
                Some(first) => first.chain(segment).ok()?,
            }
            source = next_of(header);
        }
        let mut clone = first?;
        clone.take_marks(self);
        Some(clone)
    }

    /// Makes this fresh mbuf show the data of `source`; `false` when 65,535 references of that exist already.
    ///
    /// # Safety
    /// `source` is a segment of a living packet.
    unsafe fn attach(&mut self, source: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise; this mbuf owns its own header.
        unsafe {
            let word = home(source).load(Ordering::Relaxed);
            let direct =
                if word & INDIRECT != 0 { header_at(source, (*cold(source)).attached) } else { source };
            if !reference::share(home(direct)) {
                return false;
            }
            let (from, to) = (source.as_ptr(), self.0.as_ptr());
            (*to).room_at = (*from).room_at.wrapping_add(distance(self.0, source.as_ptr().cast()));
            (*to).room = (*from).room;
            (*to).lengths.data_off = (*from).lengths.data_off;
            (*to).lengths.data_len = (*from).lengths.data_len;
            (*to).lengths.pkt_len = (*from).lengths.data_len;
            (*cold(self.0)).attached = distance(self.0, direct.as_ptr().cast());
            home(self.0).fetch_or(INDIRECT, Ordering::Relaxed);
            true
        }
    }

    /// Takes over all that is known of a packet but its data and lengths.
    fn take_marks(&mut self, from: &Self) {
        // SAFETY: both headers are owned by mbufs that are borrowed.
        unsafe {
            let (to_line, from_line) = (&mut *self.0.as_ptr(), &*from.0.as_ptr());
            to_line.lengths.port = from_line.lengths.port;
            to_line.marks = from_line.marks;
            to_line.rss_hash = from_line.rss_hash;
            to_line.mark = from_line.mark;
            to_line.vlan_tci = from_line.vlan_tci;
            to_line.vlan_tci_outer = from_line.vlan_tci_outer;
            (*cold(self.0)).tx_offload = (*cold(from.0)).tx_offload;
            (*cold(self.0)).dynamic = (*cold(from.0)).dynamic;
        }
    }

    /// A copy of the packet with data of its own, in as many mbufs of `pool` as it takes. `None` when `pool` has not
    /// so many.
    #[must_use]
    #[doc(alias = "rte_pktmbuf_copy")]
    pub fn copy(&self, pool: &MbufPool) -> Option<Mbuf> {
        let mut copy = pool.alloc()?;
        for mut data in self.segments() {
            while !data.is_empty() {
                if copy.tailroom() == 0 {
                    let mut more = pool.alloc()?;
                    // Only the first segment has use for headroom.
                    more.lengths_mut().data_off = 0;
                    if more.tailroom() == 0 {
                        return None;
                    }
                    copy.chain(more).ok()?;
                }
                let count = data.len().min(copy.tailroom());
                if !copy.append_slice(&data[..count]) {
                    return None;
                }
                data = &data[count..];
            }
        }
        copy.take_marks(self);
        Some(copy)
    }

    /// Moves all data into the first segment; the others go home. `false` and no change when it has not so much
    /// tailroom or its data is shared.
    #[doc(alias = "rte_pktmbuf_linearize")]
    pub fn linearize(&mut self) -> bool {
        if self.is_contiguous() {
            return true;
        }
        let more = self.pkt_len() as usize - self.data_len();
        if more > self.tailroom_own() || !self.is_sole() {
            return false;
        }
        let Some(rest) = self.split_rest() else { return true };
        rest.segments().all(|data| self.append_slice(data))
    }
}
