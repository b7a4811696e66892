//! Receiving from a striding queue: see [`striding`](crate::eth::rq::striding).
#![expect(unsafe_code, reason = "copies out of buffers that a device wrote")]

use std::ptr::NonNull;

use pollux_mempool::{Burst, Mbuf};
use pollux_mlx5_abi::cqe::{Strides, format};
use pollux_port::RxDrop;
use pollux_port::driver::Moved;

use super::meta::Meta;
use super::title::Zip;
use super::zip::Mini;
use super::{AHEAD, KIND, Out, PLAIN};
use crate::eth::parking::MalformedCqe;
use crate::eth::rq::Rq;
use pollux_mlx5_common::cq::Entry;

/// Receives packets that share buffers.
pub(super) fn burst<const F: u32>(rq: &mut Rq, burst: &mut Burst, max: usize) -> Moved {
    let mut out = Out::new(burst, max);
    let (before, taken) = (rq.cq.consumer(), rq.taken);
    // Plain completions from here on were consumed since a title was kept.
    let mut from = before;
    while out.has_room() && rq.trouble.is_none() {
        if rq.zip.count != 0 {
            unzip::<F>(rq, &mut out);
            from = rq.cq.consumer();
            continue;
        }
        // SAFETY: the ring is this queue's own, and the entry is read while it is there.
        let Some(entry) = (unsafe { rq.cq.peek(0) }) else { break };
        if entry.op_own() & KIND != PLAIN {
            if !rq.is_packet(entry) {
                break;
            }
            if entry.format() == format::COMPRESSED {
                rq.keep_title(from);
                from = rq.cq.consumer();
                if rq.open_zip(entry) && rq.striding_counter(rq.session_title().entry()) {
                    rq.zip = Zip::default();
                }
                continue;
            }
        }
        if rq.striding_counter(entry) {
            break;
        }
        rq.cq.prefetch(AHEAD);
        let meta = Meta::read::<F>(rq, entry);
        if !take::<F>(rq, &mut out, entry.byte_cnt(), Some(u32::from(entry.wqe_counter())), &meta) {
            break;
        }
        rq.cq.consume(1);
    }
    rq.keep_title(from);
    let (done, moved) = out.moved();
    // SAFETY: `Out` has written so many places.
    unsafe { burst.filled(done) };
    if rq.cq.consumer() != before {
        rq.cq.publish();
    }
    if rq.taken != taken {
        rq.refill();
    }
    moved
}

impl Rq {
    /// Trouble when a completion is not for the entry at hand.
    #[inline(always)]
    fn striding_counter(&mut self, entry: Entry) -> bool {
        let strange = (u32::from(entry.wqe_id()) ^ self.taken) & self.mask() != 0;
        if strange {
            self.malformed(MalformedCqe::Counter);
        }
        strange
    }
}

fn unzip<const F: u32>(rq: &mut Rq, out: &mut Out<'_>) {
    let Some(format) = rq.compressed else { return };
    let title = rq.session_title();
    let title = title.entry();
    let common = Meta::read::<F>(rq, title);
    while rq.zip.done < rq.zip.count && out.has_room() {
        let mini = Mini::read(&rq.cq, rq.zip.done);
        let mut meta = common;
        mini.describe::<F>(rq, title, format, &mut meta);
        if !take::<F>(rq, out, mini.byte_cnt(format), mini.stride(format), &meta) {
            return;
        }
        rq.zip.done += 1;
    }
    if rq.zip.done == rq.zip.count {
        rq.close_zip();
    }
}

/// Takes a packet out of the strides of the entry at hand. `false` and trouble when they make no sense.
///
/// Where a mini has no stride, the strides follow those of the packet before.
#[inline(always)]
fn take<const F: u32>(
    rq: &mut Rq,
    out: &mut Out<'_>,
    byte_cnt: u32,
    stride: Option<u32>,
    meta: &Meta,
) -> bool {
    let entry = (rq.taken & rq.mask()) as usize;
    let Strides { bytes, count, filler } = Strides::of(byte_cnt);
    let (bytes, count) = (u32::from(bytes), u32::from(count));
    let Some(striding) = rq.striding.as_deref_mut() else { return false };
    let first = striding.used;
    let offset = (first << striding.stride_log2) + striding.shift;
    if stride.is_some_and(|stride| stride != first) || count == 0 || count > striding.strides() - first {
        rq.malformed(MalformedCqe::Stride);
        return false;
    }
    if !filler && (bytes == 0 || bytes + striding.shift > count << striding.stride_log2) {
        rq.malformed(MalformedCqe::Length);
        return false;
    }
    let len = bytes.saturating_sub(rq.crc);
    let room = rq.room - rq.headroom;
    if filler {
        // Strides that no packet fits into.
    } else if bytes > rq.longest {
        rq.counters.drop_for(RxDrop::TooLong, 1);
    } else if let Some(raw) = striding.mbuf(&rq.pool) {
        if len <= striding.copy_max.min(room) {
            let from = striding.data(entry, offset as usize);
            let whole = (count << striding.stride_log2) - striding.shift;
            // SAFETY: the mbuf came of the pool by `alloc_raw` and has the room; the packet is inside its strides, which the device has
            // completed and does not write again until the entry is posted.
            let mut mbuf = unsafe {
                let mbuf = Mbuf::adopt_received(raw, rq.headroom, len, rq.port, meta.flags, meta.packet_type);
                copy(from, mbuf.data_ptr(), len as usize, whole.min(room) as usize);
                mbuf
            };
            meta.write::<F>(rq, &mut mbuf);
            out.add(mbuf, len);
        } else {
            long::<F>(rq, out, raw, offset, len, meta);
        }
    } else {
        rq.counters.drop_for(RxDrop::NoMbuf, 1);
    }
    let Some(striding) = rq.striding.as_deref_mut() else { return false };
    striding.used = first + count;
    if striding.used == striding.strides() {
        striding.turn(entry);
        rq.taken = rq.taken.wrapping_add(1);
    }
    true
}

/// Copies a short packet, in whole pieces where there is room behind it on both sides: a call of `memcpy` takes longer.
///
/// # Safety
/// There are `room` bytes at both, `len` at least, and nobody else writes there.
#[inline(always)]
unsafe fn copy(from: NonNull<u8>, to: *mut u8, len: usize, room: usize) {
    const PIECE: usize = 32;
    if len > 8 * PIECE || len.next_multiple_of(PIECE) > room {
        // SAFETY: the caller's promise.
        return unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, len) };
    }
    for at in (0..len).step_by(PIECE) {
        // SAFETY: below the next multiple of a piece, so inside the room.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().add(at), to.add(at), PIECE) };
    }
}

/// A packet that is lent, or copied where that cannot be.
#[inline(never)]
fn long<const F: u32>(rq: &mut Rq, out: &mut Out<'_>, raw: NonNull<u8>, offset: u32, len: u32, meta: &Meta) {
    let entry = (rq.taken & rq.mask()) as usize;
    let Some(striding) = rq.striding.as_deref_mut() else { return };
    // SAFETY: the mbuf came of the pool by `alloc_raw`; no bytes are said to be in it yet.
    let mut mbuf =
        unsafe { Mbuf::adopt_received(raw, rq.headroom, 0, rq.port, meta.flags, meta.packet_type) };
    let fits = len <= rq.room - rq.headroom;
    let lent = striding.may_lend() && striding.lend(entry, offset as usize, len as usize, &mut mbuf);
    if lent {
        let shown = mbuf.set_received(0, len as usize, rq.port, meta.flags, meta.packet_type);
        debug_assert!(shown, "the part is as long as the packet");
    } else if fits {
        let from = striding.data(entry, offset as usize);
        // SAFETY: the packet is inside its strides, which the device has completed and does not write again until
        // the entry is posted; the mbuf is ours alone and has the room.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), mbuf.data_ptr(), len as usize) };
        mbuf.set_received(rq.headroom as usize, len as usize, rq.port, meta.flags, meta.packet_type);
    }
    if lent || fits {
        meta.write::<F>(rq, &mut mbuf);
        out.add(mbuf, len);
    } else {
        drop(mbuf);
        rq.counters.drop_for(RxDrop::NoMbuf, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_inside_the_room() {
        for len in 0..300_usize {
            for room in [len, len.next_multiple_of(32), 400] {
                let from: Vec<u8> = (0..room).map(|at| at as u8 | 1).collect();
                let mut to = vec![0_u8; 512];
                let source = NonNull::from(from.as_slice()).cast();
                // SAFETY: `room` bytes at both.
                unsafe { copy(source, to.as_mut_ptr(), len, room) };
                assert_eq!(to[..len], from[..len], "{len} of {room}");
                assert!(to[room..].iter().all(|byte| *byte == 0), "{len} of {room}");
            }
        }
    }
}
