//! The device's port: the wire, what of it is let in, and what is counted.

mod counter;
pub(crate) mod loopback;
mod module;

use pollux_mlx5_abi::doorbell::uar::PAGE_BYTES;

use crate::card::Traits;
use crate::wire::{Null, Sent, Wire};
pub use counter::{PortCounters, Traffic, Way};
use loopback::Loopback;
use module::Module;

/// Bytes in front of the MTU: Ethernet header and two tags.
pub(crate) const HEADER_BYTES_MAX: usize = 22;
/// The shortest frame without its FCS; the port pads what is shorter. Source: IEEE 802.3, clause 4A.4.2.
pub(crate) const FRAME_BYTES_MIN: usize = 60;
/// Largest MTU of the wire: PMTU's `max_mtu`.
pub const MTU_MAX: u16 = 9978;
/// Addresses that the port filters by at most: `log_max_current_uc_list`, `log_max_current_mc_list`.
pub(crate) const ADDRESSES_MAX: usize = PAGE_BYTES / 8;

/// Where a frame to be sent comes from: how it counts when it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From an Ethernet send queue, the last or only frame of a packet of so many bytes.
    Packet(usize),
    /// From there, a segment with others behind it.
    Segment,
    /// From elsewhere: RDMA, the kernel's network.
    Other,
}

/// The port.
#[derive(Debug)]
pub(crate) struct Port {
    wire: Box<dyn Wire>,
    pub(crate) mac: [u8; 6],
    pub(crate) permanent: [u8; 6],
    pub(crate) mtu: u16,
    /// What software wants: PAOS's `admin_status`.
    pub(crate) admin_up: bool,
    /// What the plan of faults, or a test, holds down.
    pub(crate) held_down: bool,
    /// As last told to software.
    pub(crate) told_up: bool,
    /// What the wire's other end sees; there is carrier from the first.
    pub(crate) carrier: bool,
    /// Only what the function asked for in its context is let in: it stands behind the e-switch, as virtual functions do.
    filters: bool,
    pub(crate) promiscuous: bool,
    pub(crate) promiscuous_unicast: bool,
    pub(crate) unicast: Vec<[u8; 6]>,
    pub(crate) multicast: Vec<[u8; 6]>,
    pub(crate) promiscuous_multicast: bool,
    pub(crate) vlans: Vec<u16>,
    pub(crate) counters: PortCounters,
    /// Datagrams with another Q_Key than their queue pair's, as many as 16 bits tell.
    pub(crate) qkey_violations: u16,
    pub(crate) loopback: Loopback,
    /// What is plugged in.
    pub(crate) module: Module,
    /// A frame that the wire did not take yet: its length and origin, and its bytes.
    waiting: Option<(usize, Origin)>,
    waiting_frame: Vec<u8>,
    /// Whether a sniffer wants copies of what is sent, and those that it did not get yet.
    pub(crate) copies: bool,
    sent: Vec<Vec<u8>>,
}

/// Copies that wait until the step ends, at most.
const COPIES_MAX: usize = 1024;

impl Port {
    pub(crate) fn new(wire: Box<dyn Wire>, mac: [u8; 6], mtu: u16, traits: &Traits) -> Self {
        Self {
            wire,
            mac,
            permanent: mac,
            mtu,
            admin_up: true,
            held_down: false,
            told_up: false,
            carrier: true,
            filters: traits.filters_vport,
            promiscuous: false,
            promiscuous_unicast: false,
            unicast: Vec::new(),
            multicast: Vec::new(),
            promiscuous_multicast: false,
            vlans: Vec::new(),
            counters: PortCounters::default(),
            qkey_violations: 0,
            loopback: Loopback::default(),
            module: Module::cable(traits.link_modes, mac),
            waiting: None,
            waiting_frame: Vec::new(),
            copies: false,
            sent: Vec::new(),
        }
    }

    /// The wire, for the port that takes this one's place, and whether it has carrier.
    pub(crate) fn take_wire(&mut self) -> (Box<dyn Wire>, bool) {
        let nothing: Box<dyn Wire> = Box::<Null>::default();
        (std::mem::replace(&mut self.wire, nothing), self.carrier)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.admin_up && !self.held_down && self.wire.is_up()
    }

    /// What the wire does by itself, once a step; true when it took a frame that had waited.
    pub(crate) fn poll(&mut self) -> bool {
        self.set_carrier(!self.is_held_down());
        self.wire.poll();
        let Traffic { packets, bytes } = self.wire.take_lost();
        self.counters.refused.packets += packets;
        self.counters.refused.bytes += bytes;
        self.waiting.is_some() && self.send_waiting()
    }

    /// Sets the carrier that the wire's other end sees.
    pub(crate) fn set_carrier(&mut self, on: bool) {
        if self.carrier != on {
            self.carrier = on;
            self.wire.set_carrier(on);
        }
    }

    /// Frames that did not come, or were not let in, because the link was down here.
    pub(crate) fn kept_out(&self) -> u64 {
        self.counters.arrived_while_down + self.wire.missed()
    }

    /// Whether the wire's other end can be made to wait.
    pub(crate) fn waits(&self) -> bool {
        self.wire.waits()
    }

    /// Whether the wire's frames are all there from the beginning.
    pub(crate) fn is_stored(&self) -> bool {
        self.wire.is_stored()
    }

    /// Whether the wire has always one more frame.
    pub(crate) fn is_endless(&self) -> bool {
        self.wire.is_endless()
    }

    /// Copies of what was sent since last time.
    pub(crate) fn take_sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent)
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.has_waiting() || self.loopback.is_pending() || self.wire.is_pending()
    }

    /// The longest frame that goes in and out.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        usize::from(self.mtu) + HEADER_BYTES_MAX
    }

    /// Whether the port takes a frame now: none waits for the wire any more.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        self.waiting.is_none() || self.send_waiting()
    }

    #[cold]
    fn send_waiting(&mut self) -> bool {
        let Some((bytes, origin)) = self.waiting.take() else { return true };
        if self.is_held_down() {
            self.lose(origin, true);
            return true;
        }
        let frame = &self.waiting_frame[..bytes];
        match self.wire.send(frame) {
            Sent::Yes => {
                self.counters.sent.add(frame, bytes);
                if self.copies {
                    let frame = std::mem::take(&mut self.waiting_frame);
                    self.copy(&frame);
                    self.waiting_frame = frame;
                }
            }
            Sent::Lost => self.lose(origin, !self.wire.is_up()),
            Sent::Busy => self.waiting = Some((bytes, origin)),
        }
        self.waiting.is_none()
    }

    /// Keeps a copy of a frame that was sent, for a sniffer. Where too many wait it is lost, which nobody counts.
    #[cold]
    fn copy(&mut self, frame: &[u8]) {
        if self.sent.len() < COPIES_MAX {
            self.sent.push(frame.to_vec());
        }
    }

    /// A frame is lost here: the link is down, or the wire does not want it.
    #[cold]
    fn lose(&mut self, origin: Origin, down: bool) {
        self.counters.sent_while_down += u64::from(down);
        if let Origin::Packet(bytes) = origin {
            let lost = if down { &mut self.counters.down } else { &mut self.counters.refused };
            lost.add(bytes);
        }
    }

    /// A frame to be sent got longer than the port sends: it is lost.
    #[cold]
    pub(crate) fn lose_too_long(&mut self, bytes: usize) {
        if self.counters.sent_too_long == 0 {
            let most = self.frame_bytes_max();
            tracing::warn!(
                target: "model.steering",
                "steering made a frame of {bytes} bytes, where the MTU allows {most}: it is dropped, and counted (sent_too_long)"
            );
        }
        self.counters.sent_too_long += 1;
    }

    fn is_held_down(&self) -> bool {
        self.held_down || !self.admin_up
    }

    /// Puts a frame on the wire, padded to the least that Ethernet allows. One that the wire does not take now is kept, and
    /// the port takes no other meanwhile. `false`: not now.
    #[inline]
    pub(crate) fn send(&mut self, frame: &[u8], origin: Origin) -> bool {
        if !self.is_ready() {
            return false;
        }
        let mut padded = [0; FRAME_BYTES_MIN];
        let frame = if frame.len() < FRAME_BYTES_MIN {
            padded[..frame.len()].copy_from_slice(frame);
            &padded
        } else {
            frame
        };
        if self.is_held_down() || !self.told_up && !self.wire.is_up() {
            self.lose(origin, true);
            if !self.wire.is_up() {
                self.wire.lost();
            }
            return true;
        }
        match self.wire.send(frame) {
            Sent::Yes => {
                self.counters.sent.add(frame, frame.len());
                if self.copies {
                    self.copy(frame);
                }
            }
            Sent::Lost => self.lose(origin, !self.wire.is_up()),
            Sent::Busy => {
                self.waiting_frame.clear();
                self.waiting_frame.extend_from_slice(frame);
                self.waiting = Some((frame.len(), origin));
            }
        }
        true
    }

    /// The next frame from the wire that the port lets in: its bytes in `room`. `Some(None)`: one came and was dropped.
    #[inline]
    pub(crate) fn receive(&mut self, room: &mut [u8]) -> Option<Option<usize>> {
        let most = self.frame_bytes_max().min(room.len());
        let bytes = self.wire.receive(&mut room[..most])?;
        if self.is_held_down() {
            self.counters.arrived_while_down += 1;
            return Some(None);
        }
        if bytes > most {
            self.counters.too_long += 1;
            return Some(None);
        }
        if bytes < 14 {
            self.counters.too_short += 1;
            return Some(None);
        }
        if !self.lets_in(&room[..6]) {
            self.counters.filtered += 1;
            return Some(None);
        }
        self.counters.received.add(&room[..6], bytes);
        Some(Some(bytes))
    }

    /// A physical function gets all that the wire brings, and steering decides: DPDK asks nobody for promiscuous mode there,
    /// it only makes rules. Behind the e-switch the lists of the function's context decide first. Source: DPDK
    /// `drivers/net/mlx5/mlx5_rxmode.c`, `mlx5_promiscuous_enable`; Linux
    /// `drivers/net/ethernet/mellanox/mlx5/core/eswitch.c`, `esw_update_vport_addr_list`, `esw_update_vport_rx_mode`.
    #[inline]
    fn lets_in(&self, destination: &[u8]) -> bool {
        !self.filters || self.promiscuous || self.lists(destination)
    }

    fn lists(&self, destination: &[u8]) -> bool {
        let (all, listed) = if destination[0] & 1 == 1 {
            (self.promiscuous_multicast, &self.multicast)
        } else {
            (self.promiscuous_unicast, &self.unicast)
        };
        all || destination == self.mac || listed.iter().any(|address| destination == address)
    }
}

impl Port {
    /// Changes the MTU; false when it is out of range.
    pub(crate) fn set_mtu(&mut self, mtu: u16) -> bool {
        let fits = (68..=MTU_MAX).contains(&mtu);
        if fits {
            self.mtu = mtu;
        }
        fits
    }
}
