//! From mbufs into the transmit ring, or past it.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use pollux_frame_io::Trouble;
use pollux_frame_io::interface::{FeaturePlaces, Interface};
use pollux_frame_io::packet_socket::PacketTx;
use pollux_frame_io::vnet::{Segmentation, VnetHeader};
use pollux_mempool::{Burst, Mbuf};
use pollux_port::driver::{InBurst, Moved, TxBurst, TxDescriptor, TxSetup};
use pollux_port::{Gate, PortError, TxCounters, TxDrop, TxOffloads};

use crate::interface::{AGE, Longest, Mtu};
use crate::lend::Lent;
use crate::offload::{self, Asked};

/// A tx queue on an interface.
#[repr(align(128))]
pub(crate) struct InterfaceTx {
    tx: Lent<PacketTx>,
    longest: Longest,
    cutting: Cutting,
    counters: Arc<TxCounters>,
    gate: Gate,
}

/// Which large frames the interface cuts. The kernel drops others where no queueing discipline is passed.
struct Cutting {
    /// None where the kernel does not tell: then it is tried.
    places: Option<FeaturePlaces>,
    lacks: TxOffloads,
    asked: Instant,
    /// A step in front of us cuts what the interface does not.
    finishing: bool,
}

impl Cutting {
    fn new(interface: &Interface, finishing: bool) -> Self {
        let places = interface.feature_places().ok();
        let mut cutting = Self { places, lacks: TxOffloads::empty(), asked: Instant::now(), finishing };
        cutting.ask(interface);
        cutting
    }

    fn ask(&mut self, interface: &Interface) {
        self.asked = Instant::now();
        self.lacks = TxOffloads::empty();
        if let Some(can) = self.places.as_ref().and_then(|places| interface.segmenting(places).ok()) {
            self.lacks.set(TxOffloads::TCP_TSO, !can.tcp);
            self.lacks.set(TxOffloads::UDP_TSO, !can.udp);
        }
    }
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
        let TxSetup { counters, gate, finishing, .. } = setup;
        let cutting = Cutting::new(&interface, finishing);
        Ok(Self { tx, longest: Longest::new(mtu, interface), cutting, counters, gate })
    }

    #[inline]
    fn send(&mut self, mbuf: &mut Mbuf) -> Fate {
        if !offload::is_plain(mbuf) {
            return self.send_asking(mbuf);
        }
        if !self.longest.fits(mbuf.pkt_len()) {
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
        if header.segmentation == Segmentation::None && !self.longest.fits(bytes as u32) {
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
        // A large frame goes by itself, whatever its length: in the ring, one that the kernel drops stays for ever.
        if bytes > self.tx.slot_room() || header.segmentation != Segmentation::None {
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
            Err(Trouble::Dropped) => self.dropped(header.segmentation),
            Err(Trouble::Down) => Fate::Lost(TxDrop::LinkDown),
            Err(Trouble::Gone) => {
                self.gone();
                Fate::Stays
            }
            Err(_) => Fate::Lost(TxDrop::Refused),
        }
    }

    /// The kernel dropped a frame on its way to the device: that has no room, or the kernel would have had to cut the frame.
    fn dropped(&mut self, segmentation: Segmentation) -> Fate {
        let lacks = match segmentation {
            Segmentation::None => return Fate::Stays,
            Segmentation::Udp => TxOffloads::UDP_TSO,
            _ => TxOffloads::TCP_TSO,
        };
        if !self.cutting.finishing {
            return Fate::Lost(TxDrop::Refused);
        }
        self.cutting.ask(self.longest.interface());
        // Whatever the features say, this frame it did not take: it is too large, or tagged, or the device is busy. Its
        // segments tell.
        self.cutting.lacks |= lacks;
        Fate::Stays
    }

    #[cold]
    fn gone(&self) {
        if !self.gate.is_gone() {
            self.gate.set_gone();
            tracing::warn!(target: "pmd.net.af_packet", interface = %self.longest.interface().found_as(), "the interface has disappeared");
        }
    }
}

impl TxBurst for InterfaceTx {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
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

    fn lacks(&mut self) -> TxOffloads {
        if !self.cutting.lacks.is_empty() && self.cutting.asked.elapsed() > AGE {
            self.cutting.ask(self.longest.interface());
        }
        self.cutting.lacks
    }

    fn recycle(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
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
