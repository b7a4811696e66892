//! Frames for the kernel's stack.

use std::sync::Arc;

use pollux_frame_io::Trouble;
use pollux_frame_io::tap::TapTx;
use pollux_frame_io::vnet::{VNET_BYTES, VnetHeader};
use pollux_mempool::{Burst, Mbuf};
use pollux_port::driver::{InBurst, Moved, TxBurst, TxSetup};
use pollux_port::{Gate, PortError, TxCounters, TxDrop};

use crate::offload;

/// A tx queue of a tap.
#[repr(align(128))]
pub(super) struct TapQueueTx {
    tx: TapTx,
    counters: Arc<TxCounters>,
    gate: Gate,
    interface: String,
}

impl TapQueueTx {
    pub(super) fn new(tx: TapTx, setup: TxSetup, interface: &str) -> Self {
        Self { tx, counters: setup.counters, gate: setup.gate, interface: interface.into() }
    }

    #[inline]
    fn send(&mut self, mbuf: &mut Mbuf) -> Result<(), Trouble> {
        if !offload::is_plain(mbuf) {
            return self.send_asking(mbuf);
        }
        // The kernel's header goes into the headroom, so that it and the frame are one piece.
        if mbuf.is_contiguous()
            && let Some(header) = mbuf.prepend(VNET_BYTES)
        {
            header.copy_from_slice(&VnetHeader::default().encode());
            let done = self.tx.write_joined(mbuf.data());
            mbuf.adj(VNET_BYTES);
            return done;
        }
        self.tx.write(&VnetHeader::default(), mbuf.segments())
    }

    #[cold]
    fn send_asking(&mut self, mbuf: &mut Mbuf) -> Result<(), Trouble> {
        let asked = offload::header_of(mbuf).map_err(|_| Trouble::Refused)?;
        let (addresses, rest) = mbuf.data().split_at_checked(12).ok_or(Trouble::Refused)?;
        let mut tag_bytes = [0; 8];
        for (at, tag) in asked.tags.iter().flatten().enumerate() {
            tag_bytes[4 * at..][..4].copy_from_slice(&tag.bytes());
        }
        let pieces = [addresses, &tag_bytes[..asked.tag_bytes()], rest];
        self.tx.write(&asked.header, pieces.into_iter().chain(mbuf.segments().skip(1)))
    }

    #[cold]
    fn gone(&self) {
        if !self.gate.is_gone() {
            self.gate.set_gone();
            tracing::warn!(target: "pmd.net.tap", interface = %self.interface, "the interface has disappeared");
        }
    }
}

impl TxBurst for TapQueueTx {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let mut moved = Moved::NONE;
        let mut taken = 0;
        for mbuf in burst.iter_mut() {
            let bytes = u64::from(mbuf.pkt_len());
            match self.send(mbuf) {
                Ok(()) => {
                    moved.packets += 1;
                    moved.bytes += bytes;
                }
                Err(Trouble::Busy) => break,
                Err(Trouble::Gone) => {
                    self.gone();
                    break;
                }
                Err(Trouble::Down) => self.counters.drop_for(TxDrop::LinkDown, 1),
                Err(_) => self.counters.drop_for(TxDrop::Refused, 1),
            }
            taken += 1;
        }
        burst.free_front(taken);
        moved
    }

    fn recycle(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("recycle", "frames are copied out: mbufs go home within the burst"))
    }

    fn mode(&self) -> &'static str {
        "tap"
    }

    fn done_cleanup(&mut self, _max: usize) -> Result<usize, pollux_port::PortError> {
        // Frames are copied: no mbuf is held.
        Ok(0)
    }
}
