//! From mbufs into the transmit ring, or past it.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_frame_io::Trouble;
use pollux_frame_io::interface::Interface;
use pollux_frame_io::packet_socket::PacketTx;
use pollux_frame_io::vnet::{Segmentation, VnetHeader};
use pollux_mempool::{Burst, Mbuf};
use pollux_port::driver::{Moved, TxBurst, TxDescriptor, TxSetup};
use pollux_port::{Gate, PortError, TxCounters, TxDrop};

use super::Mtu;
use crate::lend::Lent;
use crate::offload::{self, Asked};

/// Ethernet header and one tag: what a frame may have beside the MTU's payload (`is_skb_forwardable`, net/core/dev.c).
const BESIDE_MTU: u32 = 14 + 4;
/// How often a frame that is too long makes us ask for the MTU again.
const MTU_AGE: Duration = Duration::from_millis(100);

/// A tx queue on an interface.
#[repr(align(128))]
pub(crate) struct InterfaceTx {
    tx: Lent<PacketTx>,
    mtu: Mtu,
    mtu_asked: Option<Instant>,
    interface: Interface,
    counters: Arc<TxCounters>,
    gate: Gate,
}

/// What became of one mbuf.
enum Fate {
    Sent,
    /// No room: it stays with the caller, and so do those behind it.
    Stays,
    Lost(TxDrop),
}

impl InterfaceTx {
    pub(crate) fn new(
        tx: Lent<PacketTx>,
        setup: TxSetup,
        mtu: Mtu,
        interface: &Interface,
    ) -> Result<Self, PortError> {
        let interface =
            interface.try_clone().map_err(|error| PortError::device("open a control socket", error))?;
        let TxSetup { counters, gate, .. } = setup;
        Ok(Self { tx, mtu, mtu_asked: None, interface, counters, gate })
    }

    #[inline]
    fn fits(&mut self, bytes: u32) -> bool {
        bytes <= self.mtu.get() + BESIDE_MTU || self.fits_after_all(bytes)
    }

    /// The MTU may have been raised behind our back.
    #[cold]
    fn fits_after_all(&mut self, bytes: u32) -> bool {
        if self.mtu_asked.is_none_or(|then| then.elapsed() > MTU_AGE) {
            self.mtu_asked = Some(Instant::now());
            if let Ok(state) = self.interface.state() {
                self.mtu.set(state.mtu);
            }
        }
        bytes <= self.mtu.get() + BESIDE_MTU
    }

    #[inline]
    fn send(&mut self, mbuf: &mut Mbuf) -> Fate {
        if !offload::is_plain(mbuf) {
            return self.send_asking(mbuf);
        }
        if !self.fits(mbuf.pkt_len()) {
            return Fate::Lost(TxDrop::TooLong);
        }
        if mbuf.pkt_len() as usize > self.tx.slot_room() {
            return self.send_long(&VnetHeader::default(), mbuf.segments());
        }
        if self.tx.push(&VnetHeader::default(), mbuf.segments()) { Fate::Sent } else { Fate::Stays }
    }

    /// A frame with something left to do, tags to be put in among it.
    #[cold]
    fn send_asking(&mut self, mbuf: &mut Mbuf) -> Fate {
        let Ok(asked) = offload::header_of(mbuf) else { return Fate::Lost(TxDrop::Malformed) };
        let Asked { header, tags } = &asked;
        let bytes = mbuf.pkt_len() as usize + asked.tag_bytes();
        if header.segmentation == Segmentation::None && !self.fits(bytes as u32) {
            return Fate::Lost(TxDrop::TooLong);
        }
        let mut tag_bytes = [0; 8];
        for (at, tag) in tags.iter().flatten().enumerate() {
            tag_bytes[4 * at..][..4].copy_from_slice(&tag.bytes());
        }
        let tag_bytes = &tag_bytes[..asked.tag_bytes()];
        // The tags go behind the two addresses, where the header says "nothing" when there are none.
        let first = mbuf.data();
        let Some((addresses, rest)) = first.split_at_checked(12) else {
            return Fate::Lost(TxDrop::Malformed);
        };
        let pieces = [addresses, tag_bytes, rest].into_iter().chain(mbuf.segments().skip(1));
        if bytes > self.tx.slot_room() {
            return self.send_long(header, pieces);
        }
        if self.tx.push(header, pieces) { Fate::Sent } else { Fate::Stays }
    }

    #[cold]
    fn send_long<'a>(&mut self, header: &VnetHeader, pieces: impl Iterator<Item = &'a [u8]>) -> Fate {
        let pieces: Vec<IoSlice<'_>> = pieces.map(IoSlice::new).collect();
        match self.tx.send(header, &pieces) {
            Ok(()) => Fate::Sent,
            Err(Trouble::Busy) => Fate::Stays,
            Err(Trouble::Down) => Fate::Lost(TxDrop::LinkDown),
            Err(Trouble::Gone) => {
                self.gone();
                Fate::Stays
            }
            Err(_) => Fate::Lost(TxDrop::Refused),
        }
    }

    #[cold]
    fn gone(&self) {
        if !self.gate.is_gone() {
            self.gate.set_gone();
            tracing::warn!(target: "pmd.net.af_packet", interface = %self.interface.found_as(), "the interface has disappeared");
        }
    }
}

impl TxBurst for InterfaceTx {
    fn tx_burst(&mut self, burst: &mut Burst) -> Moved {
        let mut moved = Moved::NONE;
        let mut taken = 0;
        for mbuf in burst.iter_mut() {
            let bytes = u64::from(mbuf.pkt_len());
            match self.send(mbuf) {
                Fate::Sent => {
                    moved.packets += 1;
                    moved.bytes += bytes;
                }
                Fate::Stays => break,
                Fate::Lost(reason) => self.counters.drop_for(reason, 1),
            }
            taken += 1;
        }
        burst.free_front(taken);
        // Down: the frames wait in the ring, as on a card without a link.
        if self.tx.kick() == Err(Trouble::Gone) {
            self.gone();
        }
        moved
    }

    fn recycle(&mut self, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("recycle", "frames are copied out: mbufs go home within the burst"))
    }

    fn mode(&self) -> &'static str {
        "packet ring"
    }

    fn done_cleanup(&mut self, _max: usize) -> Result<usize, PortError> {
        // Frames are copied: no mbuf is held.
        Ok(0)
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(self.tx.pending())
    }

    fn descriptor_status(&self, offset: usize) -> Result<TxDescriptor, PortError> {
        Ok(if offset >= self.tx.slots() {
            TxDescriptor::Unavailable
        } else if offset < self.tx.slots() - self.tx.pending() {
            TxDescriptor::Done
        } else {
            TxDescriptor::Full
        })
    }
}
