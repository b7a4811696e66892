//! Packets in parts: each has its own pool, length and place, or is dropped.
//!
//! As in [`scatter`](super::scatter), the mbufs that a packet took are replaced at once. See
//! [`rq::split`](crate::eth::rq::split).
#![expect(unsafe_code, reason = "takes mbufs by their addresses from the ring")]

use std::mem::MaybeUninit;

use pollux_mempool::{Burst, Mbuf, PacketType, RxFlags};
use pollux_port::RxDrop;
use pollux_port::driver::Moved;

use super::Out;
use super::meta::Meta;
use super::scatter::{SEGMENTS_MAX, burst_with};
use crate::eth::rq::{Rq, Slot};

/// Receives packets that are split.
pub(super) fn burst<const F: u32>(rq: &mut Rq, burst: &mut Burst, max: usize) -> Moved {
    burst_with::<F>(rq, burst, max, take::<F>)
}

/// Takes a packet of `bytes`, at most the entry's capacity, out of the next entry, and posts the entry again.
fn take<const F: u32>(rq: &mut Rq, out: &mut Out<'_>, bytes: u32, meta: &Meta) {
    let first = ((rq.taken & rq.mask()) as usize) << rq.segments_log2;
    rq.taken = rq.taken.wrapping_add(1);
    rq.posted = rq.posted.wrapping_add(1);
    let Some(split) = rq.split.take() else { return };
    let mut left = bytes.saturating_sub(rq.crc);
    let reached = split.parts.iter().scan(left, |left, part| {
        let here = *left;
        *left = left.saturating_sub(part.bytes);
        (here > 0).then_some(())
    });
    let reached = reached.count();
    let mut fresh = [const { Slot::uninit() }; SEGMENTS_MAX];
    if !split.take(reached, &mut fresh) {
        rq.split = Some(split);
        return rq.counters.drop_for(RxDrop::NoMbuf, 1);
    }
    let mut packet: Option<Mbuf> = None;
    let mut len = 0;
    for (at, part) in split.parts[..reached].iter().enumerate() {
        let here = left.min(part.bytes);
        left -= here;
        if part.home.is_none() {
            continue;
        }
        // SAFETY: the slots of a posted entry hold mbufs.
        let old = unsafe { MaybeUninit::assume_init(rq.exchange(first + at, part, fresh[at])) };
        len += here;
        // SAFETY: the mbuf came of the part's pool by `alloc_raw` and is this packet's now; `here` fits into its room behind
        // the offset, by who made the parts.
        unsafe {
            match &mut packet {
                None => {
                    let (flags, kind) = (meta.flags, meta.packet_type);
                    packet = Some(Mbuf::adopt_received(old, part.offset, here, rq.port, flags, kind));
                }
                Some(packet) => {
                    let (flags, kind) = (RxFlags::empty(), PacketType::UNKNOWN);
                    let rest = Mbuf::adopt_received(old, part.offset, here, rq.port, flags, kind);
                    // At most 32 parts of an mbuf each: far below the limits of a chain.
                    drop(packet.chain(rest));
                }
            }
        }
    }
    rq.split = Some(split);
    match packet {
        Some(mut packet) => {
            meta.write::<F>(rq, &mut packet);
            out.add(packet, len);
        }
        // All of it lies in parts that nobody wants.
        None => rq.counters.drop_for(RxDrop::Unwanted, 1),
    }
}
