//! Packets of the tests: what they say, and their bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::rig::OWN;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Net {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
    /// An Ethernet type for experiments.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp(u16, u16),
    Udp(u16, u16),
    /// A protocol that is neither.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) dst: [u8; 6],
    pub(crate) vlan: Option<u16>,
    pub(crate) net: Net,
    pub(crate) transport: Transport,
}

impl Packet {
    pub(crate) fn v4(last: (u8, u8), transport: Transport) -> Self {
        let net = Net::V4([10, 0, 0, last.0].into(), [10, 0, 1, last.1].into());
        Self { dst: OWN, vlan: None, net, transport }
    }

    pub(crate) fn v6(last: (u16, u16), transport: Transport) -> Self {
        let net =
            Net::V6([0xfd00, 0, 0, 0, 0, 0, 0, last.0].into(), [0xfd00, 0, 0, 0, 0, 0, 1, last.1].into());
        Self { dst: OWN, vlan: None, net, transport }
    }

    pub(crate) fn other() -> Self {
        Self { dst: OWN, vlan: None, net: Net::Other, transport: Transport::Other }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut segment = match self.transport {
            Transport::Tcp(src, dst) => {
                let mut header = [0; 20];
                header[..2].copy_from_slice(&src.to_be_bytes());
                header[2..4].copy_from_slice(&dst.to_be_bytes());
                header[12] = 5 << 4;
                header.to_vec()
            }
            Transport::Udp(src, dst) => {
                let mut header = [0; 8];
                header[..2].copy_from_slice(&src.to_be_bytes());
                header[2..4].copy_from_slice(&dst.to_be_bytes());
                header[4..6].copy_from_slice(&28_u16.to_be_bytes());
                header.to_vec()
            }
            Transport::Other => Vec::new(),
        };
        segment.extend(0..20_u8);
        let protocol = match self.transport {
            Transport::Tcp(..) => 6,
            Transport::Udp(..) => 17,
            Transport::Other => 253,
        };
        let mut frame = self.dst.to_vec();
        frame.extend([2, 0, 0, 0, 0, 0xee]);
        if let Some(tci) = self.vlan {
            frame.extend([0x81, 0x00]);
            frame.extend(tci.to_be_bytes());
        }
        match self.net {
            Net::V4(src, dst) => {
                let length = 20 + segment.len() as u16;
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend(length.to_be_bytes());
                frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
                frame.extend(src.octets());
                frame.extend(dst.octets());
            }
            Net::V6(src, dst) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((segment.len() as u16).to_be_bytes());
                frame.extend([protocol, 64]);
                frame.extend(src.octets());
                frame.extend(dst.octets());
            }
            Net::Other => frame.extend([0x88, 0xb5]),
        }
        frame.extend(segment);
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, end: u16) -> u16 {
        // Knuth's MMIX generator.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u16
    }

    /// A packet to the port, of a small world: rules and packets meet often.
    pub(crate) fn packet(&mut self) -> Packet {
        let ports = (1000 + self.below(4), 50 + self.below(6));
        let transport = match self.below(3) {
            0 => Transport::Tcp(ports.0, ports.1),
            1 => Transport::Udp(ports.0, ports.1),
            _ => Transport::Other,
        };
        let ends = (self.below(6), self.below(6));
        let mut packet = match self.below(5) {
            0 | 1 => Packet::v4((ends.0 as u8, ends.1 as u8), transport),
            2 | 3 => Packet::v6(ends, transport),
            _ => Packet::other(),
        };
        if self.below(4) == 0 {
            packet.vlan = Some(self.below(3) + 5);
        }
        packet
    }
}
