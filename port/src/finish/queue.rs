//! The step between a tx queue and its driver.

use super::{CUTS, Cut, Finisher, Place, Unfinishable, fill_in_place};
use crate::driver::{InBurst, Moved, TxBurst};
use crate::layer::pass_tx;
use crate::prepare::needed;
use crate::{PortInfo, TxCounters, TxDrop, TxOffloads};
use pollux_mempool::{Burst, Mbuf, MbufPool, TxFlags};
use pollux_wire::segment::Segments;
use std::sync::Arc;

/// Marks the packet whose frames are on their way: it stays at the front of the caller's burst until the last one is with the
/// driver. No flag of DPDK's; an mbuf loses it when it goes home.
const UNDER_WAY: TxFlags = TxFlags::from_bits_retain(1 << 31);

/// Finishes what the driver behind it cannot.
///
/// Hot: one look at the first line of a packet that asks for nothing; a copy of all bytes, sums included, of one that is cut.
#[repr(align(128))]
pub(crate) struct FinishTx {
    inner: Box<dyn TxBurst>,
    /// What the queue was set up to do.
    offloads: TxOffloads,
    max_cut_bytes: u32,
    max_cut_header_bytes: usize,
    max_segments: usize,
    counters: Arc<TxCounters>,
    finisher: Finisher,
    under_way: Option<UnderWay>,
    /// Finished frames that the driver has not taken; none when nothing is under way.
    out: Burst,
}

/// A packet that is being turned into frames; its bytes are in the finisher.
struct UnderWay {
    /// The address of its header: with the mark there, it is this packet and no later one in the same mbuf.
    header: usize,
    pool: MbufPool,
    port: u16,
    cut: Option<Cut>,
    /// The next frame.
    next: usize,
}

impl UnderWay {
    fn is(&self, mbuf: &Mbuf) -> bool {
        mbuf.tx_flags().contains(UNDER_WAY) && mbuf.header_ptr().addr() == self.header
    }
}

/// Whether there is more to a packet than one mbuf full of bytes.
#[inline(always)]
fn is_special(mbuf: &Mbuf) -> bool {
    !mbuf.tx_flags().is_empty() || !mbuf.is_contiguous()
}

impl FinishTx {
    /// In front of a driver whose queue was set up for `offloads`.
    pub(crate) fn new(
        inner: Box<dyn TxBurst>,
        info: &PortInfo,
        offloads: TxOffloads,
        counters: Arc<TxCounters>,
    ) -> Self {
        Self {
            inner,
            offloads,
            max_cut_bytes: info.max_tso_bytes,
            max_cut_header_bytes: info.max_tso_header_bytes.into(),
            max_segments: info.max_tx_segments.into(),
            counters,
            finisher: Finisher::default(),
            under_way: None,
            out: Burst::new(),
        }
    }

    /// Whether the driver, which can do `can`, takes the packet as it is by now.
    fn passes(&self, mbuf: &mut Mbuf, can: TxOffloads) -> bool {
        if !is_special(mbuf) {
            return true;
        }
        let (flags, segments) = (mbuf.tx_flags(), mbuf.segment_count());
        let too_long = flags.intersects(CUTS)
            && (mbuf.pkt_len() > self.max_cut_bytes
                || Place::of(mbuf).l4 + usize::from(mbuf.tx_offload().l4_len) > self.max_cut_header_bytes);
        if segments > self.max_segments || too_long {
            return false;
        }
        match needed(flags, segments) - can {
            missing if missing.is_empty() => true,
            // A chain on a queue that sends none is the driver's to drop and count.
            TxOffloads::MULTI_SEGS => true,
            _ => fill_in_place(mbuf),
        }
    }

    #[cold]
    fn finish_and_send(&mut self, inside: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let mut moved = Moved::NONE;
        if let Some(under_way) = &self.under_way
            && !burst.first().is_some_and(|mbuf| under_way.is(mbuf))
        {
            // The caller has let it go.
            self.under_way = None;
            self.out.clear();
        }
        while !burst.is_empty() {
            let lacks = self.inner.lacks();
            let can = self.offloads - lacks;
            let taken = match burst.iter_mut().position(|mbuf| !self.passes(mbuf, can)) {
                Some(0) => {
                    if !self.send_front(inside, burst, &mut moved) {
                        return moved;
                    }
                    burst.free_front(1);
                    true
                }
                Some(count) => {
                    let mut front = burst.take_front(count);
                    self.pass(inside, &mut front, &mut moved);
                    let taken = front.is_empty();
                    burst.move_front(burst.len(), &mut front);
                    std::mem::swap(burst, &mut front);
                    taken
                }
                None => {
                    self.pass(inside, burst, &mut moved);
                    burst.is_empty()
                }
            };
            // Unless the driver has just found out that it cannot do what it was asked, there is no room.
            if !taken && self.inner.lacks() == lacks {
                return moved;
            }
        }
        moved
    }

    fn pass(&mut self, inside: &InBurst<'_>, burst: &mut Burst, moved: &mut Moved) {
        let more = self.inner.tx_burst(inside, burst);
        moved.packets += more.packets;
        moved.bytes += more.bytes;
    }

    /// Sends the frames of the first packet; false when it has to stay.
    fn send_front(&mut self, inside: &InBurst<'_>, burst: &mut Burst, moved: &mut Moved) -> bool {
        let Some(mbuf) = burst.first_mut() else { return true };
        if self.under_way.is_none() {
            match self.begin(mbuf) {
                Ok(under_way) => {
                    mbuf.set_tx_flags(mbuf.tx_flags() | UNDER_WAY);
                    self.under_way = Some(under_way);
                }
                Err(Unfinishable) => {
                    self.counters.drop_for(TxDrop::Malformed, 1);
                    return true;
                }
            }
        }
        loop {
            let mut out = std::mem::take(&mut self.out);
            self.pass(inside, &mut out, moved);
            self.out = out;
            if !self.out.is_empty() {
                return false;
            }
            match self.make_frames() {
                Ok(true) => {}
                Ok(false) => {
                    self.under_way = None;
                    return true;
                }
                Err(NoMbuf) => return false,
            }
        }
    }

    fn begin(&mut self, mbuf: &Mbuf) -> Result<UnderWay, Unfinishable> {
        let pool = mbuf.pool().ok_or(Unfinishable)?;
        let cut = self.finisher.load(mbuf)?;
        Ok(UnderWay { header: mbuf.header_ptr().addr(), pool, port: mbuf.port(), cut, next: 0 })
    }

    /// Makes as many of the frames to come as find room; whether there were any.
    fn make_frames(&mut self) -> Result<bool, NoMbuf> {
        let Self { under_way: Some(under_way), finisher: Finisher { whole, cut: room }, out, .. } = self
        else {
            return Ok(false);
        };
        // It was planned once before, with success.
        let segments =
            under_way.cut.and_then(|(transport, size, l4)| Segments::at(whole, transport, size, l4).ok());
        let count = segments.as_ref().map_or(1, Segments::count);
        while under_way.next < count && !out.is_full() {
            let made = match &segments {
                None => copied(&under_way.pool, whole),
                Some(segments) => segment(&under_way.pool, segments, under_way.next, room),
            };
            let Some(mut mbuf) = made else { break };
            mbuf.set_port(under_way.port);
            out.push(mbuf);
            under_way.next += 1;
        }
        match out.is_empty() {
            false => Ok(true),
            true if under_way.next == count => Ok(false),
            true => Err(NoMbuf),
        }
    }
}

/// The pool is empty; what is on its way elsewhere will come home.
struct NoMbuf;

/// One of the frames that a packet is cut into.
fn segment(pool: &MbufPool, segments: &Segments<'_>, index: usize, room: &mut Vec<u8>) -> Option<Mbuf> {
    let bytes = segments.bytes(index);
    let mut mbuf = pool.alloc()?;
    if let Some(to) = mbuf.append(bytes) {
        segments.write(index, to).ok()?;
        return Some(mbuf);
    }
    room.resize(segments.bytes_max(), 0);
    segments.write(index, room).ok()?;
    fill(pool, mbuf, &room[..bytes])
}

fn copied(pool: &MbufPool, bytes: &[u8]) -> Option<Mbuf> {
    fill(pool, pool.alloc()?, bytes)
}

/// Puts bytes into an mbuf, and what does not fit into further ones behind it.
fn fill(pool: &MbufPool, mut mbuf: Mbuf, bytes: &[u8]) -> Option<Mbuf> {
    let (here, mut rest) = bytes.split_at(bytes.len().min(mbuf.tailroom_own()));
    let mut tail = Burst::new();
    if !mbuf.append_slice(here) {
        return None;
    }
    while !rest.is_empty() {
        let mut next = pool.alloc()?;
        let (here, behind) = rest.split_at(rest.len().min(next.tailroom_own()));
        if here.is_empty() || !next.append_slice(here) {
            return None;
        }
        tail.try_push(next).ok()?;
        rest = behind;
    }
    // From the back: hanging something onto one segment is one step.
    let mut chain: Option<Mbuf> = None;
    while let Some(mut before) = tail.pop() {
        if let Some(behind) = chain.take() {
            before.chain(behind).ok()?;
        }
        chain = Some(before);
    }
    if let Some(behind) = chain {
        mbuf.chain(behind).ok()?;
    }
    Some(mbuf)
}

impl TxBurst for FinishTx {
    #[inline]
    fn tx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst) -> Moved {
        if self.under_way.is_none() && !burst.iter().any(is_special) {
            return self.inner.tx_burst(inside, burst);
        }
        self.finish_and_send(inside, burst)
    }

    pass_tx!();
}
