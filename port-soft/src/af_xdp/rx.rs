//! Out of the receive ring: the mbufs that the kernel was given, with frames in them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_frame_io::Trouble;
use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_port::driver::{InBurst, Moved, RxBurst, RxDescriptor, RxSetup};
use pollux_port::{Gate, PortError, RxCounters, RxDrop};

use super::pair::RxEnd;
use crate::lend::Lent;
use crate::{chain, no_interrupt};

/// Polls that bring nothing before the socket is asked how it is.
const QUIET_POLLS: u32 = 4096;

/// An rx queue.
#[repr(align(128))]
pub(super) struct XdpQueueRx {
    end: Lent<RxEnd>,
    /// Where mbufs for the application come from when the socket's are of a pool of the port's own.
    copies: Option<MbufPool>,
    scatter: bool,
    port: u16,
    /// A call for each poll that brings nothing, so that the interface's driver works.
    busy: bool,
    quiet: u32,
    /// Pieces of a frame of which more come, and why it is dropped then, if it is.
    pieces: Burst,
    broken: Option<RxDrop>,
    counters: Arc<RxCounters>,
    gate: Gate,
    interface: String,
    interrupts: bool,
}

impl XdpQueueRx {
    pub(super) fn new(end: Lent<RxEnd>, setup: RxSetup, interface: &str) -> Self {
        let RxSetup { port, pool, counters, gate, interrupts, scatter, .. } = setup;
        let busy = end.shared.socket().busy_polls().unwrap_or(false);
        let copies = (pool.id() != end.shared.pool.id()).then_some(pool);
        Self {
            end,
            copies,
            scatter,
            port: port.0,
            busy,
            quiet: 0,
            pieces: Burst::new(),
            broken: None,
            counters,
            gate,
            interface: interface.into(),
            interrupts,
        }
    }

    /// The next whole frame; none when none is there.
    #[inline]
    fn next(&mut self) -> Option<Result<Mbuf, RxDrop>> {
        loop {
            let (made, more) = self.end.claim(self.port)?;
            let made = made.map_err(|()| RxDrop::Malformed);
            if more || !self.pieces.is_empty() || self.broken.is_some() {
                match self.gather(made, more) {
                    Some(frame) => return Some(frame),
                    None => continue,
                }
            }
            return Some(match &self.copies {
                None => made,
                Some(pool) => made.and_then(|mbuf| copy(pool, self.scatter, &mbuf)),
            });
        }
    }

    /// Adds a piece to the frame that is under way; the frame, once it is whole.
    #[cold]
    fn gather(&mut self, made: Result<Mbuf, RxDrop>, more: bool) -> Option<Result<Mbuf, RxDrop>> {
        let room = made.and_then(|mbuf| self.pieces.try_push(mbuf).map_err(|_| RxDrop::TooLong));
        if let Err(reason) = room {
            self.broken.get_or_insert(reason);
        }
        if more {
            return None;
        }
        let pieces = std::mem::take(&mut self.pieces);
        if let Some(reason) = self.broken.take() {
            return Some(Err(reason));
        }
        let frame = chain::join(pieces).ok_or(RxDrop::Malformed);
        Some(match &self.copies {
            Some(pool) => frame.and_then(|frame| copy(pool, self.scatter, &frame)),
            None if self.scatter => frame,
            None => {
                frame.and_then(|frame| if frame.is_contiguous() { Ok(frame) } else { Err(RxDrop::TooLong) })
            }
        })
    }

    /// After a poll that brought nothing.
    #[inline]
    fn idle(&mut self) {
        self.quiet += 1;
        let shared = &self.end.shared;
        let wanted = self.busy || self.end.ring.needs_wakeup();
        if wanted || shared.waiting.load(Ordering::Relaxed) || self.quiet >= QUIET_POLLS {
            self.look();
        }
    }

    /// Makes the kernel go on, where it waits for that, and finds out whether the interface is still there.
    fn look(&mut self) {
        self.quiet = 0;
        let shared = &self.end.shared;
        if shared.waiting.load(Ordering::Relaxed) && shared.socket().wake_tx().is_ok() {
            shared.waiting.store(false, Ordering::Relaxed);
        }
        if shared.socket().wake_rx() == Err(Trouble::Gone) {
            gone(&self.gate, &self.interface);
        }
    }
}

/// A copy of a frame in mbufs of another pool.
fn copy(pool: &MbufPool, scatter: bool, frame: &Mbuf) -> Result<Mbuf, RxDrop> {
    let mut mbuf = pool.alloc().ok_or(RxDrop::NoMbuf)?;
    chain::fill(pool, scatter, &mut mbuf, frame.segments())?;
    Ok(mbuf)
}

#[cold]
pub(super) fn gone(gate: &Gate, interface: &str) {
    if !gate.is_gone() {
        gate.set_gone();
        tracing::warn!(target: "pmd.net.af_xdp", %interface, "the interface has disappeared");
    }
}

impl RxBurst for XdpQueueRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let mut moved = Moved::NONE;
        let mut seen = 0;
        // Frames that are dropped count, too: the loop ends whatever arrives.
        while seen < max {
            let Some(made) = self.next() else { break };
            seen += 1;
            match made {
                Ok(mut mbuf) => {
                    mbuf.set_port(self.port);
                    moved.packets += 1;
                    moved.bytes += u64::from(mbuf.pkt_len());
                    burst.push(mbuf);
                }
                Err(reason) => self.counters.drop_for(reason, 1),
            }
        }
        self.end.ring.release();
        if !self.end.refill() {
            self.counters.drop_for(RxDrop::NoMbuf, 1);
        }
        if seen == 0 {
            self.idle();
        }
        moved
    }

    fn refill(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("refill", "the fill ring takes its mbufs from the pool"))
    }

    /// The socket is readable while a frame waits: there is nothing to arm. An interface that is gone is found here, and frames that wait to
    /// be sent are kicked, as polling does now and then.
    fn set_interrupt(&mut self, on: bool) -> Result<(), PortError> {
        self.interrupt_fd()?;
        if on {
            self.look();
        }
        Ok(())
    }

    fn interrupt_fd(&self) -> Result<BorrowedFd<'_>, PortError> {
        if self.interrupts { Ok(self.end.as_fd()) } else { Err(no_interrupt()) }
    }

    fn mode(&self) -> &'static str {
        match (self.end.shared.socket().is_zero_copy(), &self.copies) {
            (true, None) => "AF_XDP, zero-copy",
            (false, None) => "AF_XDP, copied by the kernel into mbufs",
            (_, Some(_)) => "AF_XDP, copied from memory of the port's own",
        }
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(self.end.ring.waiting())
    }

    fn descriptor_status(&self, offset: usize) -> Result<RxDescriptor, PortError> {
        Ok(match offset {
            _ if offset >= self.end.ring.slots() => RxDescriptor::Unavailable,
            _ if offset < self.end.ring.waiting() => RxDescriptor::Done,
            _ => RxDescriptor::Available,
        })
    }
}
