//! Frames with RoCEv2 packets: put together, and taken apart.

use pollux_wire::checksum::Sum;
use pollux_wire::roce::{self, Bth, BthRepr, ICRC_BYTES};

use super::dynamic;
use super::path::{Address, Path, ipv4, mapped};
use crate::frame::{Headers, Ip, Transport, be16};

/// The longest frame: Ethernet with a tag, IPv6, UDP, all transport headers, 4096 bytes, padding, CRC.
pub(crate) const FRAME_MAX: usize = 18 + 40 + 8 + Bth::BYTES + EXTENSION_MAX + 4096 + 3 + ICRC_BYTES;
/// Bytes of the headers behind the BTH at most: a dynamic connection's and those of an atomic.
pub(crate) const EXTENSION_MAX: usize = dynamic::Header::BYTES + 28;
/// The default partition. Source: InfiniBand Architecture Specification, volume 1, 10.9.1.2.
pub(crate) const PARTITION: u16 = 0xffff;
/// Bytes in front of a received datagram: the global header, or what stands in its place.
pub(crate) const GLOBAL_BYTES: usize = 40;

/// Headers behind the BTH.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension {
    bytes: [u8; EXTENSION_MAX],
    used: usize,
}

impl Extension {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; EXTENSION_MAX], used: 0 }
    }

    /// One more header; there is room for all that an opcode has.
    pub(crate) fn with(mut self, header: &[u8]) -> Self {
        if let Some(room) = self.bytes.get_mut(self.used..self.used + header.len()) {
            room.copy_from_slice(header);
            self.used += header.len();
        }
        self
    }
}

/// Puts a frame together: `fill` writes the payload of `bytes` bytes. Returns the frame's length.
#[expect(clippy::too_many_arguments, reason = "what a packet is made of")]
pub(crate) fn build<E>(
    frame: &mut [u8; FRAME_MAX],
    from: &Address,
    path: &Path,
    source_port: u16,
    bth: BthRepr,
    extension: &Extension,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<usize, E> {
    let padding = bytes.wrapping_neg() & 3;
    frame[..6].copy_from_slice(&path.mac);
    frame[6..12].copy_from_slice(&from.mac);
    let mut at = 12;
    if let Some(vlan) = from.vlan {
        frame[at..at + 2].copy_from_slice(&[0x81, 0]);
        frame[at + 2..at + 4].copy_from_slice(&(u16::from(path.priority) << 13 | vlan & 0xfff).to_be_bytes());
        at += 4;
    }
    let udp_bytes = 8 + Bth::BYTES + extension.used + bytes + padding + ICRC_BYTES;
    let l3 = at + 2;
    let hops = if path.hop_limit == 0 { 64 } else { path.hop_limit };
    let udp = match (ipv4(&from.gid), ipv4(&path.gid)) {
        (Some(source), Some(destination)) => {
            frame[at..l3].copy_from_slice(&[0x08, 0]);
            let header = &mut frame[l3..l3 + 20];
            header.fill(0);
            header[0] = 0x45;
            header[1] = path.class;
            header[2..4].copy_from_slice(&((20 + udp_bytes) as u16).to_be_bytes());
            // May not be cut up.
            header[6] = 0x40;
            header[8] = hops;
            header[9] = 17;
            header[12..16].copy_from_slice(&source);
            header[16..20].copy_from_slice(&destination);
            let sum = Sum::of(header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            l3 + 20
        }
        _ => {
            frame[at..l3].copy_from_slice(&[0x86, 0xdd]);
            let header = &mut frame[l3..l3 + 40];
            let word = 6 << 28 | u32::from(path.class) << 20 | path.flow_label & 0xf_ffff;
            header[..4].copy_from_slice(&word.to_be_bytes());
            header[4..6].copy_from_slice(&(udp_bytes as u16).to_be_bytes());
            header[6] = 17;
            header[7] = hops;
            header[8..24].copy_from_slice(&from.gid);
            header[24..40].copy_from_slice(&path.gid);
            l3 + 40
        }
    };
    // No UDP checksum: the CRC covers more.
    frame[udp..udp + 2].copy_from_slice(&source_port.to_be_bytes());
    frame[udp + 2..udp + 4].copy_from_slice(&roce::PORT.to_be_bytes());
    frame[udp + 4..udp + 6].copy_from_slice(&(udp_bytes as u16).to_be_bytes());
    frame[udp + 6..udp + 8].fill(0);
    let transport = udp + 8;
    let _ = BthRepr { padding: padding as u8, ..bth }.emit(&mut frame[transport..transport + Bth::BYTES]);
    let behind = transport + Bth::BYTES;
    frame[behind..behind + extension.used].copy_from_slice(&extension.bytes[..extension.used]);
    let payload = behind + extension.used;
    fill(&mut frame[payload..payload + bytes])?;
    let end = payload + bytes + padding;
    frame[payload + bytes..end].fill(0);
    let sum = roce::icrc(&frame[l3..end], udp - l3).unwrap_or_default();
    frame[end..end + ICRC_BYTES].copy_from_slice(&sum);
    Ok(end + ICRC_BYTES)
}

/// A packet that came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'f> {
    /// Who sent the frame.
    pub(crate) mac: [u8; 6],
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) vlan: Option<u16>,
    pub(crate) ip: Ip,
    pub(crate) bth: BthRepr,
    /// What is behind the BTH, without padding and CRC.
    pub(crate) rest: &'f [u8],
    /// IP header as a datagram's receiver gets it.
    global: &'f [u8],
    /// Whether CRC, version and padding are right.
    pub(crate) sound: bool,
}

impl<'f> Incoming<'f> {
    /// A frame that carries RoCEv2; `None` if it does not.
    pub(crate) fn parse(frame: &'f [u8], headers: &Headers) -> Option<Self> {
        if headers.transport != Transport::Udp
            || be16(frame, headers.l4 + 2) != roce::PORT
            || headers.fragment
            || headers.tags > 1
        {
            return None;
        }
        let (source, destination) = headers.addresses(frame)?;
        let (source, destination) = match headers.ip {
            Ip::V4 => (mapped(source), mapped(destination)),
            _ => (source.try_into().ok()?, destination.try_into().ok()?),
        };
        let end = headers.packet_end(frame)?;
        let udp_end = headers.l4 + usize::from(be16(frame, headers.l4 + 4));
        let whole = frame.get(headers.l4 + 8..end.min(udp_end))?;
        let (transport, sum) = whole.split_last_chunk::<ICRC_BYTES>()?;
        let (bth, rest) = Bth::new(transport).ok()?;
        let bth = bth.repr();
        let covered = frame.get(headers.l3..headers.l4 + 8 + transport.len())?;
        let padding = usize::from(bth.padding);
        let sound = roce::icrc(covered, headers.l4 - headers.l3) == Some(*sum)
            && bth.version == 0
            && rest.len() >= padding;
        Some(Self {
            mac: *frame.get(6..)?.first_chunk()?,
            source,
            destination,
            vlan: (headers.tags == 1).then(|| be16(frame, 14) & 0xfff),
            ip: headers.ip,
            bth,
            rest: rest.get(..rest.len().saturating_sub(padding))?,
            global: frame.get(headers.l3..headers.l4)?,
            sound,
        })
    }

    /// The same with a header less.
    pub(crate) fn behind(&self, rest: &'f [u8]) -> Self {
        Self { rest, ..*self }
    }

    /// The 40 bytes in front of a datagram: IPv6's header, or IPv4's in the last 20 of them.
    pub(crate) fn global_header(&self) -> [u8; GLOBAL_BYTES] {
        let mut header = [0; GLOBAL_BYTES];
        match (self.ip, self.global.first_chunk::<GLOBAL_BYTES>(), self.global.first_chunk::<20>()) {
            (Ip::V6, Some(whole), _) => header = *whole,
            (_, _, Some(short)) => header[20..].copy_from_slice(short),
            _ => {}
        }
        header
    }
}

/// UDP's source port of a flow, where nobody has set one: the same for all packets between two queue pairs. The range is
/// that of the capabilities, `r_roce_min_src_udp_port` and up.
pub(crate) fn source_port(set: u16, from: u32, to: u32) -> u16 {
    if set != 0 {
        return set;
    }
    let mixed = u64::from(from) * u64::from(to);
    let mixed = mixed ^ mixed >> 20 ^ mixed >> 40;
    0xc000 | (mixed ^ mixed >> 14) as u16 & 0x3fff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_parsed() {
        let mac = [2, 0, 0, 0, 0, 1];
        for (own, peer) in [(mapped(&[10, 0, 0, 1]), mapped(&[10, 0, 0, 2])), ([0xfe; 16], [0xfd; 16])] {
            for vlan in [None, Some(7)] {
                for bytes in [0, 1, 2, 3, 4, 1000, 4096] {
                    let from = Address { gid: own, mac, vlan };
                    let path = Path { mac: [4; 6], gid: peer, class: 0x6a, ..Path::default() };
                    let bth = BthRepr { opcode: 4, qp: 7, psn: 9, partition: 0xffff, ..BthRepr::default() };
                    let mut frame = [0; FRAME_MAX];
                    let extension = Extension::new().with(&[1, 2, 3, 4]);
                    let built = build(&mut frame, &from, &path, 0xc123, bth, &extension, bytes, |room| {
                        room.fill(0x5a);
                        Ok::<(), ()>(())
                    });
                    let frame = &mut frame[..built.expect("it does not fail")];
                    let headers = Headers::parse(frame, 0);
                    let seen = Incoming::parse(frame, &headers).expect("RoCE");
                    assert!(seen.sound);
                    assert_eq!((seen.source, seen.destination, seen.vlan), (own, peer, vlan));
                    assert_eq!((seen.bth.qp, seen.bth.psn), (7, 9));
                    assert_eq!(seen.rest.len(), 4 + bytes);
                    let middle = frame.len() - 5;
                    frame[middle] ^= 4;
                    assert!(!Incoming::parse(frame, &headers).expect("RoCE").sound);
                    for cut in 14..frame.len().min(120) {
                        let headers = Headers::parse(&frame[..cut], 0);
                        assert!(Incoming::parse(&frame[..cut], &headers).is_none_or(|seen| !seen.sound));
                    }
                }
            }
        }
    }

    #[test]
    fn a_flow_keeps_its_port() {
        assert_eq!(source_port(5, 1, 2), 5);
        assert_eq!(source_port(0, 1, 2), source_port(0, 2, 1));
        assert!(source_port(0, 0x1234, 0x9876) >= 0xc000);
    }
}
