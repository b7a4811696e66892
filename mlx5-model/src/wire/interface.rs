//! A Linux interface, by a packet socket.
//!
//! The kernel hands over frames that are not finished: checksums still open, up to 64 KiB in one piece, a VLAN tag beside the
//! frame. A wire carries finished frames, so they are finished here.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use pollux_frame_io::Trouble;
use pollux_frame_io::packet_socket::{PacketControl, PacketOptions, PacketPort, PacketRx, PacketTx, RxFrame};
use pollux_frame_io::vnet::{Segmentation, VlanTag, VnetHeader};
use pollux_wire::checksum;
use pollux_wire::segment::{Segments, Transport};

use super::{Sent, Wire, deliver};
use crate::ModelError;
use crate::time::Clock;

/// How often the interface's state is read.
const LOOK: Duration = Duration::from_millis(10);
/// Frames that are put into the ring before the kernel is told.
const PUSHED_MAX: usize = 32;

/// `iface:NAME`. It receives for everybody (the model filters by itself), and what the host sends through the interface is
/// not seen. Needs `CAP_NET_RAW`.
#[derive(Debug)]
pub struct KernelInterface {
    rx: PacketRx,
    tx: PacketTx,
    control: PacketControl,
    name: String,
    clock: Clock,
    next_look: Duration,
    up: bool,
    pushed: usize,
    /// What came of one large frame and has not been taken yet.
    cut: VecDeque<Vec<u8>>,
}

impl KernelInterface {
    /// Opens an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`ModelError::Frames`]: no such interface, no right, no memory.
    pub fn open(name: &str, clock: &Clock) -> Result<Self, ModelError> {
        let PacketPort { mut control, queues } = PacketPort::open(&PacketOptions::new(name))?;
        let missing = || ModelError::Wire { text: format!("iface:{name}"), problem: "has no queue".into() };
        let (rx, tx) = queues.into_iter().next().ok_or_else(missing)?;
        let refused = |source| pollux_frame_io::FrameError::System {
            operation: "PACKET_ADD_MEMBERSHIP",
            subject: name.into(),
            source,
        };
        control.modes().set_promiscuous(true).map_err(refused)?;
        control.admit(true)?;
        let up = control.state().is_ok_and(|state| state.running);
        Ok(Self {
            rx,
            tx,
            control,
            name: name.into(),
            clock: clock.clone(),
            next_look: clock.now() + LOOK,
            up,
            pushed: 0,
            cut: VecDeque::new(),
        })
    }

    fn kick(&mut self) {
        self.pushed = 0;
        // Down or gone: frames stay in the ring, and `poll` says so soon.
        let _left = self.tx.kick();
    }
}

/// All of a frame, its tag put back in. `None` when the kernel had lost it.
fn whole(mut frame: RxFrame<'_>) -> Option<(Vec<u8>, VnetHeader)> {
    let tag = frame.vlan();
    let (mut bytes, mut header) = if frame.is_whole() {
        (frame.data().to_vec(), frame.vnet())
    } else {
        let mut bytes = vec![0; frame.wire_bytes()];
        let (header, got) = frame.receive(&mut [IoSliceMut::new(&mut bytes)]).ok()?;
        bytes.truncate(got);
        (bytes, header)
    };
    if let Some(tag) = tag {
        insert(&mut bytes, tag)?;
        if let Some(open) = &mut header.checksum {
            open.start = open.start.checked_add(4)?;
        }
    }
    Some((bytes, header))
}

fn insert(bytes: &mut Vec<u8>, tag: VlanTag) -> Option<()> {
    if bytes.len() < 12 {
        return None;
    }
    bytes.splice(12..12, tag.bytes());
    Some(())
}

/// Does what is left to do to a frame; the frames that come of it go to `into`. A frame that makes no sense gives none.
fn finish(mut bytes: Vec<u8>, header: &VnetHeader, into: &mut VecDeque<Vec<u8>>) -> Option<()> {
    let transport = match header.segmentation {
        Segmentation::None => {
            if let Some(open) = header.checksum {
                let (start, offset) = (open.start.into(), open.offset.into());
                if checksum::is_sctp(&bytes, start, offset) {
                    checksum::complete_crc32c(&mut bytes, start).then_some(())?;
                } else {
                    checksum::complete(&mut bytes, start, offset).ok()?;
                }
            }
            into.push_back(bytes);
            return Some(());
        }
        Segmentation::Tcp4 | Segmentation::Tcp6 => Transport::Tcp,
        Segmentation::Udp => Transport::Udp,
        Segmentation::UdpFragments | Segmentation::Unknown(_) => return None,
    };
    // In a tunnel, too: the open checksum says where the transport begins.
    let start = usize::from(header.checksum?.start);
    let segments = Segments::at(&bytes, transport, header.segment_bytes, start).ok()?;
    for index in 0..segments.count() {
        let mut one = vec![0; segments.bytes(index)];
        segments.write(index, &mut one).ok()?;
        into.push_back(one);
    }
    Some(())
}

impl Wire for KernelInterface {
    fn poll(&mut self) {
        if self.pushed > 0 {
            self.kick();
        }
        let now = self.clock.now();
        if now >= self.next_look {
            self.next_look = now + LOOK;
            // Clears the error that going down leaves on the socket; the state itself says whether it is back.
            let _down = self.rx.check();
            self.up = self.control.state().is_ok_and(|state| state.running);
        }
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        if !self.up {
            return Sent::Lost;
        }
        let plain = VnetHeader::default();
        if frame.len() > self.tx.slot_room() {
            return match self.tx.send(&plain, &[IoSlice::new(frame)]) {
                Ok(()) => Sent::Yes,
                Err(Trouble::Busy | Trouble::Dropped) => Sent::Busy,
                // Longer than the interface's MTU.
                Err(_) => Sent::Lost,
            };
        }
        if !self.tx.push(&plain, std::iter::once(frame)) {
            self.kick();
            return Sent::Busy;
        }
        self.pushed += 1;
        if self.pushed >= PUSHED_MAX {
            self.kick();
        }
        Sent::Yes
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        loop {
            if let Some(frame) = self.cut.pop_front() {
                return Some(deliver(&frame, room));
            }
            let frame = self.rx.next()?;
            if frame.is_whole() && frame.vlan().is_none() && frame.vnet().is_plain() {
                return Some(deliver(frame.data(), room));
            }
            if let Some((bytes, header)) = whole(frame) {
                // A frame that makes no sense is nobody's.
                let _nonsense = finish(bytes, &header, &mut self.cut);
            }
        }
    }

    fn is_up(&self) -> bool {
        self.up
    }

    fn is_pending(&self) -> bool {
        self.pushed > 0
    }

    fn describe(&self) -> String {
        format!("iface:{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use pollux_frame_io::vnet::PartialChecksum;
    use pollux_wire::{EtherRepr, EtherType, IpProtocol, Ipv4, Ipv4Repr, Udp};

    use super::*;

    /// UDP with its checksum still open: the place holds the pseudo-header's sum.
    fn open_udp(payload: usize) -> (Vec<u8>, PartialChecksum) {
        let bytes = 8 + payload as u16;
        let ip = Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP, bytes);
        let mut frame = vec![0x5a; 14 + 20 + 8 + payload];
        let rest = EtherRepr { dst: [2; 6].into(), src: [4; 6].into(), ether_type: EtherType::IPV4 }
            .emit(&mut frame)
            .expect("room");
        let udp = ip.emit(rest).expect("room");
        udp[..8].copy_from_slice(&[0, 9, 0, 9, (bytes >> 8) as u8, bytes as u8, 0, 0]);
        let pseudo = !checksum::pseudo_v4(ip.src, ip.dst, ip.protocol, bytes).checksum();
        udp[6..8].copy_from_slice(&pseudo.to_be_bytes());
        (frame, PartialChecksum { start: 34, offset: 6 })
    }

    fn valid(frame: &[u8], l3: usize) -> usize {
        let ip = Ipv4::new(&frame[l3..]).expect("IPv4");
        assert!(ip.checksum_ok());
        let udp = Udp::new(ip.payload()).expect("UDP");
        assert!(udp.checksum_ok(ip.pseudo_sum()), "the checksum is complete");
        udp.payload().len()
    }

    /// The kernel leaves the checksum of SCTP open, too, with zero in its place.
    #[test]
    fn an_open_checksum_of_sctp_is_a_crc() {
        let mut frame = vec![0; 14 + 20];
        frame[12..14].copy_from_slice(&[8, 0]);
        (frame[14], frame[23]) = (0x45, 132);
        frame.extend((0..40).map(|at| if (8..12).contains(&at) { 0 } else { at }));
        for tag in [0, 4] {
            let mut sent = frame.clone();
            sent.splice(12..12, [0x81, 0, 0, 7].into_iter().take(tag));
            let open = PartialChecksum { start: 34 + tag as u16, offset: 8 };
            let mut out = VecDeque::new();
            finish(sent.clone(), &VnetHeader { checksum: Some(open), ..VnetHeader::default() }, &mut out)
                .expect("it makes sense");
            let found = out.pop_front().expect("one");
            sent[42 + tag..46 + tag].copy_from_slice(&checksum::crc32c([&frame[34..]]));
            assert_eq!(found, sent);
        }
        let open = PartialChecksum { start: 34, offset: 8 };
        let header = VnetHeader { checksum: Some(open), ..VnetHeader::default() };
        assert!(finish(frame[..44].to_vec(), &header, &mut VecDeque::new()).is_none(), "cut off");
    }

    #[test]
    fn an_open_checksum_is_completed() {
        let (frame, open) = open_udp(100);
        let mut out = VecDeque::new();
        finish(frame, &VnetHeader { checksum: Some(open), ..VnetHeader::default() }, &mut out)
            .expect("finished");
        assert_eq!(out.len(), 1);
        assert_eq!(valid(&out[0], 14), 100);
    }

    #[test]
    fn a_large_frame_is_cut() {
        let (frame, open) = open_udp(2500);
        let header = VnetHeader {
            checksum: Some(open),
            segmentation: Segmentation::Udp,
            segment_bytes: 1000,
            ..VnetHeader::default()
        };
        let mut out = VecDeque::new();
        finish(frame, &header, &mut out).expect("finished");
        let payloads: Vec<usize> = out.iter().map(|frame| valid(frame, 14)).collect();
        assert_eq!(payloads, [1000, 1000, 500]);
    }

    #[test]
    fn a_tag_is_put_back_in() {
        let (mut frame, _) = open_udp(20);
        insert(&mut frame, VlanTag { tpid: 0x8100, tci: 5 }).expect("room");
        assert_eq!(frame[12..18], [0x81, 0, 0, 5, 8, 0]);
        assert!(insert(&mut vec![0; 11], VlanTag { tpid: 0x8100, tci: 5 }).is_none());
    }

    #[test]
    fn nonsense_gives_no_frame() {
        let mut out = VecDeque::new();
        let header =
            VnetHeader { segmentation: Segmentation::Tcp4, segment_bytes: 100, ..VnetHeader::default() };
        assert!(finish(vec![0; 60], &header, &mut out).is_none());
        let header =
            VnetHeader { checksum: Some(PartialChecksum { start: 59, offset: 6 }), ..VnetHeader::default() };
        assert!(finish(vec![0; 60], &header, &mut out).is_none());
        assert!(out.is_empty());
    }
}
