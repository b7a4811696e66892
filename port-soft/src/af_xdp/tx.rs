//! Into the transmit ring: mbufs of the socket's memory as they are, others as copies in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_frame_io::Trouble;
use pollux_frame_io::xdp::PIECES_MAX;
use pollux_mempool::{BURST_MAX, Burst, Mbuf};
use pollux_port::driver::{InBurst, Moved, TxBurst, TxDescriptor, TxSetup};
use pollux_port::{Gate, PortError, TxCounters, TxDrop};

use super::pair::TxEnd;
use super::rx::gone;
use crate::interface::Longest;
use crate::lend::Lent;
use crate::offload;

/// A tx queue.
#[repr(align(128))]
pub(super) struct XdpQueueTx {
    end: Lent<TxEnd>,
    longest: Longest,
    /// Pieces that a frame may have.
    pieces: usize,
    counters: Arc<TxCounters>,
    gate: Gate,
}

/// What became of one mbuf.
enum Fate {
    /// The kernel has it.
    Given,
    /// The kernel has a copy.
    Copied,
    /// No room: it stays with the caller, and so do those behind it.
    Stays,
    Lost(TxDrop),
}

impl XdpQueueTx {
    pub(super) fn new(end: Lent<TxEnd>, setup: TxSetup, longest: Longest) -> Self {
        let TxSetup { counters, gate, .. } = setup;
        let pieces = if end.shared.socket().takes_pieces() { PIECES_MAX } else { 1 };
        Self { end, longest, pieces, counters, gate }
    }

    #[inline]
    fn send(&mut self, mbuf: &Mbuf) -> Fate {
        // What packets ask for is done in front of the driver where that was said (`PortConfig::open`).
        if !offload::is_plain(mbuf) || mbuf.pkt_len() == 0 {
            return Fate::Lost(TxDrop::Malformed);
        }
        if !self.longest.fits(mbuf.pkt_len()) {
            return Fate::Lost(TxDrop::TooLong);
        }
        let Some(at) = self.end.place(mbuf) else { return self.copy(mbuf) };
        if !self.end.ring.has_room(1) {
            return Fate::Stays;
        }
        self.end.push(at, mbuf.data_len());
        Fate::Given
    }

    fn copy(&mut self, mbuf: &Mbuf) -> Fate {
        let pieces = (mbuf.pkt_len() as usize).div_ceil(self.end.shared.chunks.bytes as usize);
        if pieces > self.pieces {
            return Fate::Lost(TxDrop::TooLong);
        }
        if self.end.ring.has_room(pieces) && self.end.copied(mbuf) { Fate::Copied } else { Fate::Stays }
    }

    /// Makes the kernel send what stands in the ring: it takes 32 frames a call where it copies.
    fn kick(&mut self) {
        let end = &mut *self.end;
        let mut left = end.ring.pending();
        if left == 0 || !end.ring.needs_wakeup() {
            return;
        }
        loop {
            match end.shared.socket().wake_tx() {
                Err(Trouble::Busy) => {}
                // Its driver took the frame and dropped it: its link is down, or it has no room.
                Err(Trouble::Dropped) => self.counters.lose(TxDrop::Refused, 1, 0),
                Err(Trouble::Gone) => {
                    gone(&self.gate, self.longest.interface().found_as());
                    return;
                }
                // Down: the frames wait in the ring, as on a card without a link.
                Ok(()) | Err(_) => break,
            }
            let now = end.ring.pending();
            if now == 0 || now >= left {
                break;
            }
            left = now;
        }
        let (waiting, told) = (end.ring.pending() > 0, &end.shared.waiting);
        if waiting != told.load(Ordering::Relaxed) {
            told.store(waiting, Ordering::Relaxed);
        }
    }
}

const _: () = assert!(BURST_MAX <= u64::BITS as usize);

impl TxBurst for XdpQueueTx {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        self.end.reap(usize::MAX);
        let mut moved = Moved::NONE;
        let (mut taken, mut given) = (0, 0_u64);
        for mbuf in burst.iter() {
            match self.send(mbuf) {
                Fate::Given => given |= 1 << taken,
                Fate::Copied => {}
                Fate::Stays => break,
                Fate::Lost(reason) => {
                    self.counters.drop_for(reason, 1);
                    taken += 1;
                    continue;
                }
            }
            moved.packets += 1;
            moved.bytes += u64::from(mbuf.pkt_len());
            taken += 1;
        }
        let mut done = Burst::new();
        for (at, mbuf) in burst.drain(..taken).enumerate() {
            if given >> at & 1 == 1 { self.end.keep(mbuf) } else { done.push(mbuf) }
        }
        drop(done);
        // The kernel sees the entries when their mbufs are kept.
        self.end.ring.publish();
        self.kick();
        moved
    }

    fn recycle(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("recycle", "the rx queue's fill ring takes its mbufs from the pool"))
    }

    fn mode(&self) -> &'static str {
        if self.end.shared.socket().is_zero_copy() {
            "AF_XDP, zero-copy"
        } else {
            "AF_XDP, copied by the kernel"
        }
    }

    fn done_cleanup(&mut self, max: usize) -> Result<usize, PortError> {
        Ok(self.end.reap(if max == 0 { usize::MAX } else { max }))
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(self.end.ring.pending())
    }

    fn descriptor_status(&self, offset: usize) -> Result<TxDescriptor, PortError> {
        let slots = self.end.ring.slots();
        Ok(match offset {
            _ if offset >= slots => TxDescriptor::Unavailable,
            _ if offset < slots - self.end.held().min(slots) => TxDescriptor::Done,
            _ => TxDescriptor::Full,
        })
    }
}
