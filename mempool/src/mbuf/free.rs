//! The way home.
#![expect(unsafe_code, reason = "gives headers in pinned memory back")]

use pollux_atomic::Ordering;
use std::ptr::NonNull;

use super::header::{CHAINED, EXTERNAL, Header, INDIRECT};
use super::reference::{self, settled};
use super::{Mbuf, cold, distance, header_at, home, pool_number};
use crate::Object;
use crate::registry::pool_of_object;
use crate::shared::Shared;

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // Acquire: what a clone that is gone read of the data, it read before this mbuf goes home.
        let word = settled(home(self.0));
        // SAFETY: this mbuf is not used afterwards. A plain and sole one is home when its address is; it keeps its pool alive until it
        // is written to the room and published.
        unsafe {
            if word as u32 == 1
                && let Some(room) = pool_of_object(pool_number(word)).as_ref().room(1)
            {
                room.to.write(Object(self.0.cast()));
                return room.publish();
            }
            // One call for all else keeps this small enough to be inlined where mbufs go.
            free_chain(self.0);
        }
    }
}

/// Frees the mbufs of a burst: all at once when they are plain and of one pool.
///
/// # Safety
/// The `count` mbufs at `mbufs` are the caller's and not used afterwards.
#[inline]
pub(crate) unsafe fn free_bulk(mbufs: *const Mbuf, count: usize) {
    if count == 0 {
        return;
    }
    // SAFETY: the caller's mbufs; `Mbuf` and `Object` are both one address.
    unsafe {
        // Acquire, as in `drop`; the processor loads no slower for it.
        let word = settled(home((*mbufs).0));
        if word as u32 == 1 {
            let pool = pool_of_object(pool_number(word));
            if let Some(room) = pool.as_ref().room(count) {
                // One pass: each is written to the cache as it is checked. They count there only if all pass.
                for at in 0..count {
                    let mbuf = mbufs.add(at);
                    if settled(home((*mbuf).0)) != word {
                        return free_each(mbufs, count);
                    }
                    *room.to.add(at) = *mbuf.cast::<Object>();
                }
                return room.publish();
            }
        }
        free_each(mbufs, count);
    }
}

/// Whether mbufs are plain, sole-owned and of one pool, so that they are home when their addresses are.
///
/// # Safety
/// The `count` mbufs at `mbufs` are the caller's.
#[inline]
pub(crate) unsafe fn all_plain_of(mbufs: *const Mbuf, count: usize, pool: u16) -> bool {
    let plain = u64::from(pool) << 32 | 1;
    // SAFETY: the caller's mbufs.
    (0..count).all(|at| home(unsafe { (*mbufs.add(at)).0 }).load(Ordering::Acquire) == plain)
}

/// # Safety
/// As for [`free_bulk`].
#[cold]
#[inline(never)]
unsafe fn free_each(mbufs: *const Mbuf, count: usize) {
    // Runs of plain mbufs of one pool go home together.
    let mut at = 0;
    while at < count {
        // SAFETY: each is freed once and not used afterwards (caller).
        unsafe {
            let word = home((*mbufs.add(at)).0).load(Ordering::Acquire);
            if word as u32 != 1 {
                free_chain((*mbufs.add(at)).0);
                at += 1;
                continue;
            }
            let same = |at: &usize| home((*mbufs.add(*at)).0).load(Ordering::Acquire) == word;
            let end = (at + 1..count).find(|at| !same(at)).unwrap_or(count);
            Shared::give(pool_of_object(pool_number(word)), mbufs.add(at).cast(), end - at);
            at = end;
        }
    }
}

/// Frees a packet that is not one plain segment of one owner.
///
/// # Safety
/// The caller owns the packet and does not use it afterwards.
#[cold]
#[inline(never)]
unsafe fn free_chain(mut header: NonNull<Header>) {
    loop {
        let word = home(header).load(Ordering::Relaxed);
        let next = (word & CHAINED != 0).then(|| {
            home(header).fetch_and(!CHAINED, Ordering::Relaxed);
            // SAFETY: valid under `CHAINED`.
            header_at(header, unsafe { (*cold(header)).next })
        });
        // SAFETY: the segment is the caller's, and no segment hangs on it now.
        unsafe { free_segment(header) };
        match next {
            Some(next) => header = next,
            None => return,
        }
    }
}

/// # Safety
/// The caller owns the segment, which has no next one, and does not use it afterwards.
unsafe fn free_segment(header: NonNull<Header>) {
    let word = home(header).load(Ordering::Relaxed);
    if word & INDIRECT != 0 {
        // SAFETY: valid under `INDIRECT`; an indirect mbuf holds one reference of the direct one.
        unsafe {
            let direct = header_at(header, (*cold(header)).attached);
            show_own_room(header, pool_of_object(pool_number(word)).as_ref());
            home(header).fetch_and(!INDIRECT, Ordering::Relaxed);
            release(direct);
        }
    }
    // SAFETY: the segment is the caller's.
    unsafe { release(header) };
}

/// Makes an mbuf show its own room again.
///
/// # Safety
/// The caller owns the segment, which is of `pool`.
unsafe fn show_own_room(header: NonNull<Header>, pool: &Shared) {
    // SAFETY: the caller's promise.
    unsafe {
        let room = pool.data_room((*cold(header)).index as usize);
        (*header.as_ptr()).room_at = distance(header, room.as_ptr());
        (*header.as_ptr()).room = pool.shape.room;
    }
}

/// Drops one reference of a segment without a next one; the last takes it home.
///
/// # Safety
/// The caller owns the reference and does not use the segment afterwards.
unsafe fn release(header: NonNull<Header>) {
    let home = home(header);
    let Some(word) = reference::end(home) else { return };
    // SAFETY: the last reference is gone, so the segment is ours alone and its pool lives until it is home.
    unsafe {
        let pool = pool_of_object(pool_number(word));
        let mut external = None;
        if word & EXTERNAL != 0 {
            show_own_room(header, pool.as_ref());
            external = pool.as_ref().set_external((*cold(header)).index as usize, None);
        }
        home.store(word & !(u64::from(u32::MAX)) | 1, Ordering::Relaxed);
        Shared::give(pool, &Object(header.cast()), 1);
        // The free callback may do what it likes, so it runs when we are done here.
        drop(external);
    }
}
