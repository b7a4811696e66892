//! What the kernel sends through the interface.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pollux_frame_io::Trouble;
use pollux_frame_io::tap::{FRAME_BYTES_MAX, TapRx};
use pollux_frame_io::vnet::VnetHeader;
use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_port::driver::{InBurst, Moved, RxBurst, RxSetup};
use pollux_port::{Gate, PortError, PortId, RxCounters, RxDrop};

use crate::chain::Long;
use crate::lend::Lent;
use crate::{chain, no_interrupt, offload};

/// An rx queue of a tap.
#[repr(align(128))]
pub(super) struct TapQueueRx {
    rx: Lent<TapRx>,
    pool: MbufPool,
    long: Long,
    port: PortId,
    counters: Arc<RxCounters>,
    gate: Gate,
    interface: String,
    /// Allocated for a frame that did not come.
    spare: Option<Mbuf>,
    /// Takes what of a frame does not fit the first mbuf.
    rest: Box<[u8]>,
    interrupts: bool,
}

impl TapQueueRx {
    pub(super) fn new(rx: Lent<TapRx>, setup: RxSetup, interface: &str) -> Self {
        let long = Long::of(&setup);
        let RxSetup { port, pool, counters, gate, interrupts, .. } = setup;
        let rest = vec![0; FRAME_BYTES_MAX].into_boxed_slice();
        Self {
            rx,
            pool,
            long,
            port,
            counters,
            gate,
            interface: interface.into(),
            spare: None,
            rest,
            interrupts,
        }
    }

    /// Reads one frame into `mbuf`; none when none is there.
    #[inline]
    fn read(&mut self, mbuf: &mut Mbuf) -> Result<Option<(VnetHeader, usize)>, Trouble> {
        let room = mbuf.tailroom_own();
        let Some(first) = mbuf.append(room) else { return Err(Trouble::Refused) };
        let taken = self.rx.read(first, &mut self.rest)?;
        let Some((header, bytes)) = taken else {
            mbuf.trim(room);
            return Ok(None);
        };
        mbuf.trim(room.saturating_sub(bytes));
        Ok(Some((header, bytes.saturating_sub(room))))
    }

    #[inline]
    fn finish(&self, mbuf: &mut Mbuf, header: &VnetHeader, further: usize) -> Result<(), RxDrop> {
        self.long.check(header, mbuf.data_len() + further)?;
        if further > 0 {
            self.append_rest(mbuf, further)?;
        }
        mbuf.set_port(self.port.0);
        offload::describe(mbuf, header, 0).map_err(|_| RxDrop::Malformed)
    }

    #[cold]
    fn append_rest(&self, mbuf: &mut Mbuf, further: usize) -> Result<(), RxDrop> {
        let rest = self.rest.get(..further).ok_or(RxDrop::TooLong)?;
        chain::fill(&self.pool, self.long.scatter, mbuf, [rest].into_iter())
    }

    #[cold]
    fn failed(&self, trouble: Trouble) {
        if trouble == Trouble::Gone && !self.gate.is_gone() {
            self.gate.set_gone();
            tracing::warn!(target: "pmd.net.tap", interface = %self.interface, "the interface has disappeared");
        }
    }
}

impl RxBurst for TapQueueRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let mut moved = Moved::NONE;
        while moved.packets < max {
            let Some(mut mbuf) = self.spare.take().or_else(|| self.pool.alloc()) else {
                self.counters.drop_for(RxDrop::NoMbuf, 1);
                break;
            };
            match self.read(&mut mbuf) {
                Ok(Some((header, further))) => match self.finish(&mut mbuf, &header, further) {
                    Ok(()) => {
                        moved.packets += 1;
                        moved.bytes += u64::from(mbuf.pkt_len());
                        burst.push(mbuf);
                    }
                    Err(reason) => self.counters.drop_for(reason, 1),
                },
                Ok(None) => {
                    self.spare = Some(mbuf);
                    break;
                }
                Err(trouble) => {
                    self.failed(trouble);
                    break;
                }
            }
        }
        moved
    }

    fn refill(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("refill", "frames are copied into mbufs as they come: none waits for one"))
    }

    /// The descriptor is readable while a frame waits: there is nothing to arm.
    fn set_interrupt(&mut self, _on: bool) -> Result<(), PortError> {
        self.interrupt_fd().map(drop)
    }

    fn interrupt_fd(&self) -> Result<BorrowedFd<'_>, PortError> {
        if self.interrupts { Ok(self.rx.as_fd()) } else { Err(no_interrupt()) }
    }

    fn mode(&self) -> &'static str {
        "tap"
    }
}
