//! The packets of ARP and neighbour discovery. Source: RFC 826, RFC 5227; RFC 4861, sections 4.3, 4.4 and 7.2.

use std::net::{IpAddr, Ipv6Addr};

use pollux_wire::arp::{self, Arp, ArpHeader, ArpRepr};
use pollux_wire::ether::EtherHeader;
use pollux_wire::icmpv6::{self, Icmpv6, Icmpv6Header, Icmpv6Repr};
use pollux_wire::ipv6::{Ipv6, Ipv6Header, Ipv6Repr};
use pollux_wire::{Ether, EtherRepr, EtherType, IpProtocol, MacAddress, checksum};

/// Neighbour discovery is believed from this link alone: nobody forwards a packet and leaves it at 255.
const HOPS: u8 = 255;

/// Flags of an advertisement: it was asked for; it replaces what was known.
const SOLICITED: u32 = 1 << 30;
/// See [`SOLICITED`].
const OVERRIDE: u32 = 1 << 29;

/// A target address and the option that tells a MAC.
const ND_BODY: usize = 16 + 8;

/// What somebody said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Who has `target`? Asked by the station at `mac`, whose address may not be settled yet.
    Question { target: IpAddr, source: IpAddr, mac: [u8; 6] },
    /// `address` is at `mac`.
    Statement { address: IpAddr, mac: [u8; 6] },
}

impl Heard {
    /// An address and where it is.
    pub(super) fn tells(&self) -> Option<(IpAddr, [u8; 6])> {
        match *self {
            Self::Question { source, mac, .. } => (!source.is_unspecified()).then_some((source, mac)),
            Self::Statement { address, mac } => Some((address, mac)),
        }
    }
}

/// What a frame says, if it is one of these.
pub(super) fn parse(frame: &[u8]) -> Option<Heard> {
    let ether = Ether::new(frame).ok()?;
    match ether.header().ether_type() {
        EtherType::ARP => {
            let arp = Arp::new(ether.payload()).ok()?.repr();
            let (source, mac) = (IpAddr::V4(arp.sender_ip), arp.sender_mac.0);
            match arp.operation {
                arp::REQUEST => Some(Heard::Question { target: arp.target_ip.into(), source, mac }),
                arp::REPLY => Some(Heard::Statement { address: source, mac }),
                _ => None,
            }
        }
        EtherType::IPV6 => {
            let ip = Ipv6::new(ether.payload()).ok()?;
            let header = ip.header();
            if header.next_header() != IpProtocol::ICMPV6 || header.hop_limit != HOPS {
                return None;
            }
            let message = Icmpv6::new(ip.payload()).ok()?;
            let bytes = u32::try_from(ip.payload().len()).ok()?;
            let pseudo = checksum::pseudo_v6(header.src(), header.dst(), IpProtocol::ICMPV6, bytes);
            if !message.checksum_ok(pseudo) {
                return None;
            }
            let target = IpAddr::V6(message.target()?);
            match message.header().kind {
                icmpv6::NEIGHBOR_SOLICITATION => {
                    let mac = message.link_address(icmpv6::OPTION_SOURCE_ADDRESS);
                    let mac = mac.unwrap_or(ether.header().src).0;
                    Some(Heard::Question { target, source: header.src().into(), mac })
                }
                icmpv6::NEIGHBOR_ADVERTISEMENT => {
                    let mac = message.link_address(icmpv6::OPTION_TARGET_ADDRESS)?.0;
                    Some(Heard::Statement { address: target, mac })
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Who has `target`? `None` when the addresses are of two versions.
pub(super) fn question(mac: [u8; 6], source: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => Some(arp_frame(
            MacAddress::BROADCAST,
            &ArpRepr {
                operation: arp::REQUEST,
                sender_mac: MacAddress(mac),
                sender_ip: source,
                target_mac: MacAddress([0; 6]),
                target_ip: target,
            },
        )),
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let [.., a, b, c] = target.octets();
            // The solicited-node group, which the target's station listens to.
            let group =
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
            let to = MacAddress([0x33, 0x33, 0xff, a, b, c]);
            let kind = icmpv6::NEIGHBOR_SOLICITATION;
            Some(discovery_frame(to, (source, group), (kind, 0, icmpv6::OPTION_SOURCE_ADDRESS), target, mac))
        }
        _ => None,
    }
}

/// The answer to a question about an address of ours.
pub(super) fn answer(heard: &Heard, mac: [u8; 6]) -> Option<Vec<u8>> {
    let Heard::Question { target, source, mac: asker } = *heard else { return None };
    match (target, source) {
        (IpAddr::V4(target), IpAddr::V4(source)) => Some(arp_frame(
            MacAddress(asker),
            &ArpRepr {
                operation: arp::REPLY,
                sender_mac: MacAddress(mac),
                sender_ip: target,
                target_mac: MacAddress(asker),
                target_ip: source,
            },
        )),
        (IpAddr::V6(target), IpAddr::V6(source)) => {
            let kind = icmpv6::NEIGHBOR_ADVERTISEMENT;
            let option = icmpv6::OPTION_TARGET_ADDRESS;
            // Who has no address yet is answered as everybody.
            if source.is_unspecified() {
                return Some(discovery_frame(
                    ALL_NODES_MAC,
                    (target, ALL_NODES),
                    (kind, OVERRIDE, option),
                    target,
                    mac,
                ));
            }
            let flags = SOLICITED | OVERRIDE;
            Some(discovery_frame(MacAddress(asker), (target, source), (kind, flags, option), target, mac))
        }
        _ => None,
    }
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0, 1]);

/// Tells everybody where `own` is.
pub(super) fn announcement(mac: [u8; 6], own: IpAddr) -> Vec<u8> {
    match own {
        IpAddr::V4(own) => arp_frame(
            MacAddress::BROADCAST,
            &ArpRepr {
                operation: arp::REQUEST,
                sender_mac: MacAddress(mac),
                sender_ip: own,
                target_mac: MacAddress([0; 6]),
                target_ip: own,
            },
        ),
        IpAddr::V6(own) => discovery_frame(
            ALL_NODES_MAC,
            (own, ALL_NODES),
            (icmpv6::NEIGHBOR_ADVERTISEMENT, OVERRIDE, icmpv6::OPTION_TARGET_ADDRESS),
            own,
            mac,
        ),
    }
}

fn arp_frame(to: MacAddress, repr: &ArpRepr) -> Vec<u8> {
    let mut frame = vec![0; EtherHeader::BYTES + ArpHeader::BYTES];
    let ether = EtherRepr { dst: to, src: repr.sender_mac, ether_type: EtherType::ARP };
    if let Ok(rest) = ether.emit(&mut frame) {
        // There is room by the length above.
        let _ = repr.emit(rest);
    }
    frame
}

fn discovery_frame(
    to: MacAddress,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    (kind, word, option): (u8, u32, u8),
    target: Ipv6Addr,
    mac: [u8; 6],
) -> Vec<u8> {
    let bytes = Icmpv6Header::BYTES + ND_BODY;
    let mut frame = vec![0; EtherHeader::BYTES + Ipv6Header::BYTES + bytes];
    let ip =
        Ipv6Repr { hop_limit: HOPS, ..Ipv6Repr::new(source, destination, IpProtocol::ICMPV6, bytes as u16) };
    let body = frame.len() - ND_BODY;
    frame[body..body + 16].copy_from_slice(&target.octets());
    // Length in units of 8 bytes.
    frame[body + 16..body + 18].copy_from_slice(&[option, 1]);
    frame[body + 18..].copy_from_slice(&mac);
    let ether = EtherRepr { dst: to, src: MacAddress(mac), ether_type: EtherType::IPV6 };
    // There is room by the length above.
    if let Ok(rest) = ether.emit(&mut frame)
        && let Ok(rest) = ip.emit(rest)
    {
        let _ = Icmpv6Repr { kind, code: 0, word }.emit(rest, ip.pseudo_sum());
    }
    frame
}
