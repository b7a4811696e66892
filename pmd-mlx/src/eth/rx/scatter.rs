//! Packets over several mbufs: an entry has several data segments, a packet fills as many as it needs.
//!
//! The mbufs that a packet took are replaced at once, before it is handed over, so that the entry can be posted again
//! whole. Where the pool cannot, the packet is dropped and its mbufs wait for the next one.
#![expect(unsafe_code, reason = "takes mbufs by their addresses from the ring")]

use std::mem::MaybeUninit;

use pollux_mempool::{Burst, Mbuf, PacketType, RxFlags};
use pollux_port::RxDrop;
use pollux_port::driver::Moved;

use super::meta::Meta;
use super::zip::Mini;
use super::{AHEAD, KIND, Out, PLAIN};
use crate::eth::parking::MalformedCqe;
use crate::eth::rq::{Rq, SEGMENTS_LOG2_MAX, Slot};

/// Most data segments of an entry, as the queue's constructor checks.
pub(super) const SEGMENTS_MAX: usize = 1 << SEGMENTS_LOG2_MAX;

/// Receives packets that may be chains.
pub(super) fn burst<const F: u32>(rq: &mut Rq, burst: &mut Burst, max: usize) -> Moved {
    burst_with::<F>(rq, burst, max, take::<F>)
}

/// The frame of the modes in which a packet is a chain: `take` takes a packet out of the next entry, and posts that again.
#[inline(always)]
pub(super) fn burst_with<const F: u32>(
    rq: &mut Rq,
    burst: &mut Burst,
    max: usize,
    take: impl Fn(&mut Rq, &mut Out<'_>, u32, &Meta),
) -> Moved {
    let mut out = Out::new(burst, max);
    let (before, posted) = (rq.cq.consumer(), rq.posted);
    // Plain completions from here on were consumed since a title was kept.
    let mut from = before;
    while out.has_room() {
        if rq.zip.count != 0 {
            unzip::<F>(rq, &mut out, &take);
            from = rq.cq.consumer();
            if rq.zip.count != 0 {
                break;
            }
            continue;
        }
        // SAFETY: the ring is this queue's own, and the entry is read while it is there.
        let Some(entry) = (unsafe { rq.cq.peek(0) }) else { break };
        let bytes = entry.byte_cnt();
        let strange = u32::from(entry.op_own() & KIND != PLAIN)
            | (u32::from(entry.wqe_counter()) ^ rq.taken) & rq.mask()
            | u32::from(bytes.wrapping_sub(1) >= rq.longest);
        if strange != 0 {
            rq.keep_title(from);
            let goes_on = rq.special();
            from = rq.cq.consumer();
            if !goes_on {
                break;
            }
            continue;
        }
        rq.cq.prefetch(AHEAD);
        let meta = Meta::read::<F>(rq, entry);
        rq.cq.consume(1);
        take(rq, &mut out, bytes, &meta);
    }
    rq.keep_title(from);
    let (done, moved) = out.moved();
    // SAFETY: `Out` has written so many places.
    unsafe { burst.filled(done) };
    if rq.cq.consumer() != before {
        rq.cq.publish();
    }
    if rq.posted != posted {
        rq.ring_doorbell();
    }
    moved
}

/// Packets of the open compressed session.
#[inline(always)]
fn unzip<const F: u32>(rq: &mut Rq, out: &mut Out<'_>, take: &impl Fn(&mut Rq, &mut Out<'_>, u32, &Meta)) {
    let Some(format) = rq.compressed else { return };
    let title = rq.session_title();
    let title = title.entry();
    let common = Meta::read::<F>(rq, title);
    while rq.zip.done < rq.zip.count && out.has_room() {
        let mini = Mini::read(&rq.cq, rq.zip.done);
        let bytes = mini.byte_cnt(format);
        if bytes.wrapping_sub(1) >= rq.capacity {
            return rq.malformed(MalformedCqe::Length);
        }
        let mut meta = common;
        mini.describe::<F>(rq, title, format, &mut meta);
        rq.zip.done += 1;
        if bytes > rq.longest {
            rq.taken = rq.taken.wrapping_add(1);
            rq.posted = rq.posted.wrapping_add(1);
            rq.too_long();
            continue;
        }
        take(rq, out, bytes, &meta);
    }
    if rq.zip.done == rq.zip.count {
        rq.close_zip();
    }
}

/// Takes a packet of `bytes`, at most the entry's capacity, out of the next entry, and posts the entry again.
#[inline(always)]
fn take<const F: u32>(rq: &mut Rq, out: &mut Out<'_>, bytes: u32, meta: &Meta) {
    let first = ((rq.taken & rq.mask()) as usize) << rq.segments_log2;
    rq.taken = rq.taken.wrapping_add(1);
    rq.posted = rq.posted.wrapping_add(1);
    let head = rq.room - rq.headroom;
    let count = 1 + bytes.saturating_sub(head).div_ceil(rq.room) as usize;
    let mut fresh = [const { Slot::uninit() }; SEGMENTS_MAX];
    if !rq.pool.alloc_raw(&mut fresh[..count]) {
        return rq.counters.drop_for(RxDrop::NoMbuf, 1);
    }
    // The FCS may lie in a segment of its own, which then has nothing to say.
    let len = bytes.saturating_sub(rq.crc);
    let mut left = len;
    let mut packet: Option<Mbuf> = None;
    for (at, fresh) in fresh[..count].iter().enumerate() {
        let old = std::mem::replace(&mut rq.slots[first + at], *fresh);
        // SAFETY: the slots of a posted entry hold mbufs; `alloc_raw` wrote `count` fresh ones.
        let (old, fresh) = unsafe { (MaybeUninit::assume_init(old), fresh.assume_init()) };
        rq.write_segment(first + at, fresh);
        let here = left.min(if at == 0 { head } else { rq.room });
        left -= here;
        // SAFETY: the mbufs came of the pool by `alloc_raw` and are this packet's now; `here` fits into the room behind
        // what was left free.
        unsafe {
            match &mut packet {
                None => {
                    packet = Some(Mbuf::adopt_received(
                        old,
                        rq.headroom,
                        here,
                        rq.port,
                        meta.flags,
                        meta.packet_type,
                    ));
                }
                Some(packet) => {
                    let rest =
                        Mbuf::adopt_received(old, 0, here, rq.port, RxFlags::empty(), PacketType::UNKNOWN);
                    if here > 0 {
                        // At most 32 segments of an mbuf each: far below the limits of a chain.
                        drop(packet.chain(rest));
                    }
                }
            }
        }
    }
    if let Some(mut packet) = packet {
        meta.write::<F>(rq, &mut packet);
        out.add(packet, len);
    }
}
