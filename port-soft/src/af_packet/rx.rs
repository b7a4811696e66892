//! From the receive ring into mbufs.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use pollux_frame_io::Trouble;
use pollux_frame_io::packet_socket::{PacketRx, RxFrame};
use pollux_frame_io::vnet::VlanTag;
use pollux_mempool::{BURST_MAX, Burst, Mbuf, MbufPool};
use pollux_port::driver::{InBurst, Moved, RxBurst, RxDescriptor, RxSetup};
use pollux_port::{Gate, PortError, PortId, RxCounters, RxDrop};

use crate::chain::{self, Long};
use crate::lend::Lent;
use crate::{no_interrupt, offload};

/// Polls that bring nothing before the socket is asked how it is.
const QUIET_POLLS: u32 = 4096;

/// An rx queue on an interface.
#[repr(align(128))]
pub(crate) struct InterfaceRx {
    rx: Lent<PacketRx>,
    pool: MbufPool,
    long: Long,
    port: PortId,
    counters: Arc<RxCounters>,
    gate: Gate,
    interface: String,
    quiet: u32,
    interrupts: bool,
}

impl InterfaceRx {
    pub(crate) fn new(rx: Lent<PacketRx>, setup: RxSetup, interface: &str) -> Self {
        let long = Long::of(&setup);
        let RxSetup { port, pool, counters, gate, interrupts, .. } = setup;
        Self { rx, pool, long, port, counters, gate, interface: interface.into(), quiet: 0, interrupts }
    }

    #[cold]
    fn look(&mut self) {
        self.quiet = 0;
        if self.rx.check() == Err(Trouble::Gone) && !self.gate.is_gone() {
            self.gate.set_gone();
            tracing::warn!(target: "pmd.net.af_packet", interface = %self.interface, "the interface has disappeared");
        }
    }
}

/// Bytes of a tag behind the two addresses.
const TAG_BYTES: usize = 4;
/// The two addresses.
const ADDRESSES: usize = 12;

/// The mbuf of a frame that stands in its slot whole.
#[inline]
fn copy_out(pool: &MbufPool, long: Long, mut mbuf: Mbuf, frame: &RxFrame<'_>) -> Result<Mbuf, RxDrop> {
    let (data, header) = (frame.data(), frame.vnet());
    long.check(&header, data.len())?;
    let shift = match frame.vlan() {
        None => {
            if !mbuf.append_slice(data) {
                chain::fill(pool, long.scatter, &mut mbuf, [data].into_iter())?;
            }
            0
        }
        Some(tag) => {
            let (addresses, rest) = data.split_at_checked(ADDRESSES).ok_or(RxDrop::Malformed)?;
            chain::fill(pool, long.scatter, &mut mbuf, [addresses, &tag.bytes(), rest].into_iter())?;
            TAG_BYTES as u16
        }
    };
    offload::describe(&mut mbuf, &header, shift).map_err(|_| RxDrop::Malformed)?;
    Ok(mbuf)
}

/// The mbufs of a frame that waits on the socket: it is fetched straight into them.
#[cold]
fn fetch(pool: &MbufPool, long: Long, first: Mbuf, frame: &mut RxFrame<'_>) -> Result<Mbuf, RxDrop> {
    if !frame.can_receive() {
        // The socket's queue was full.
        return Err(RxDrop::Missed);
    }
    let wire_bytes = frame.wire_bytes();
    if !long.scatter && wire_bytes > first.tailroom_own() {
        return Err(RxDrop::TooLong);
    }
    let mut burst = Burst::new();
    let mut left = wire_bytes;
    let mut places = ArrayVec::<usize, BURST_MAX>::new();
    let mut next = Some(first);
    while left > 0 {
        let mbuf = next.take().or_else(|| pool.alloc()).ok_or(RxDrop::NoMbuf)?;
        let bytes = mbuf.tailroom_own().min(left);
        if bytes == 0 || places.is_full() {
            return Err(RxDrop::TooLong);
        }
        places.push(bytes);
        burst.push(mbuf);
        left -= bytes;
    }
    let mut pieces = ArrayVec::<IoSliceMut<'_>, BURST_MAX>::new();
    for (mbuf, bytes) in burst.iter_mut().zip(&places) {
        pieces.push(IoSliceMut::new(mbuf.append(*bytes).ok_or(RxDrop::TooLong)?));
    }
    let received = frame.receive(&mut pieces);
    drop(pieces);
    let (header, bytes) = received.map_err(|_| RxDrop::Missed)?;
    if bytes != wire_bytes {
        return Err(RxDrop::Malformed);
    }
    long.check(&header, bytes)?;
    let mut mbuf = chain::join(burst).ok_or(RxDrop::Malformed)?;
    let shift = match frame.vlan() {
        None => 0,
        Some(tag) => put_back(&mut mbuf, tag).ok_or(RxDrop::Malformed)?,
    };
    offload::describe(&mut mbuf, &header, shift).map_err(|_| RxDrop::Malformed)?;
    Ok(mbuf)
}

/// Puts a tag in front of layer 3; the addresses move into the headroom.
fn put_back(mbuf: &mut Mbuf, tag: VlanTag) -> Option<u16> {
    mbuf.prepend(TAG_BYTES)?;
    let data = mbuf.data_mut()?;
    data.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES, 0);
    data.get_mut(ADDRESSES..ADDRESSES + TAG_BYTES)?.copy_from_slice(&tag.bytes());
    Some(TAG_BYTES as u16)
}

impl RxBurst for InterfaceRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let mut moved = Moved::NONE;
        while moved.packets < max && self.rx.is_ready() {
            // First an mbuf: without one the frame stays, and the kernel counts those that no longer fit.
            let Some(mbuf) = self.pool.alloc() else {
                self.counters.drop_for(RxDrop::NoMbuf, 1);
                break;
            };
            let Some(mut frame) = self.rx.next() else { break };
            let made = if frame.is_whole() {
                copy_out(&self.pool, self.long, mbuf, &frame)
            } else {
                fetch(&self.pool, self.long, mbuf, &mut frame)
            };
            match made {
                Ok(mut mbuf) => {
                    mbuf.set_port(self.port.0);
                    moved.packets += 1;
                    moved.bytes += u64::from(mbuf.pkt_len());
                    burst.push(mbuf);
                }
                Err(reason) => self.counters.drop_for(reason, 1),
            }
        }
        if moved.packets == 0 {
            self.quiet += 1;
            if self.quiet >= QUIET_POLLS || self.rx.kick_wanted() {
                self.look();
            }
        }
        moved
    }

    fn refill(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("refill", "frames are copied into mbufs as they come: none waits for one"))
    }

    /// The socket is readable while a frame waits: there is nothing to arm. An interface that went down or is gone is found here, and
    /// frames that wait to be sent are kicked, as polling does now and then.
    fn set_interrupt(&mut self, on: bool) -> Result<(), PortError> {
        self.interrupt_fd()?;
        if on {
            self.look();
        }
        Ok(())
    }

    fn interrupt_fd(&self) -> Result<BorrowedFd<'_>, PortError> {
        if self.interrupts { Ok(self.rx.as_fd()) } else { Err(no_interrupt()) }
    }

    fn mode(&self) -> &'static str {
        "packet ring"
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(self.rx.ready(self.rx.slots()))
    }

    fn descriptor_status(&self, offset: usize) -> Result<RxDescriptor, PortError> {
        Ok(match offset {
            _ if offset >= self.rx.slots() => RxDescriptor::Unavailable,
            _ if self.rx.ready(offset + 1) > offset => RxDescriptor::Done,
            _ => RxDescriptor::Available,
        })
    }
}
