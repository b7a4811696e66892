use proptest::prelude::*;

use super::*;
use crate::{EtherRepr, Ipv4, Ipv4Repr, Ipv6, Ipv6Repr, Tci, Tcp, TcpRepr, Udp, UdpRepr, VlanRepr};

/// All that makes a frame, so that the whole and its pieces can be built by the same plain steps.
#[derive(Clone, Debug)]
struct Shape {
    tags: usize,
    v6: bool,
    tcp: bool,
    extension: bool,
    ident: u16,
    seq: u32,
    flags: u8,
}

impl Shape {
    fn build(&self, payload: &[u8]) -> Vec<u8> {
        let l4 = if self.tcp { 20 } else { 8 };
        let extension: &[u8] = if self.v6 && self.extension { &[0, 0, 1, 4, 0, 0, 0, 0] } else { &[] };
        let l3 = if self.v6 { 40 + extension.len() } else { 20 };
        let mut frame = vec![0; 14 + 4 * self.tags + l3 + l4 + payload.len()];
        let ip_type = if self.v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mut types = [EtherType::QINQ, EtherType::VLAN][2 - self.tags..].to_vec();
        types.push(ip_type);
        let ether = EtherRepr { dst: [2; 6].into(), src: [4; 6].into(), ether_type: types[0] };
        let mut rest = ether.emit(&mut frame).unwrap();
        for (tag, &ether_type) in types[1..].iter().enumerate() {
            rest = VlanRepr { tci: Tci(100 + tag as u16), ether_type }.emit(rest).unwrap();
        }
        let protocol = if self.tcp { IpProtocol::TCP } else { IpProtocol::UDP };
        let segment = (l4 + payload.len()) as u16;
        let pseudo;
        if self.v6 {
            let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
            let first = if extension.is_empty() { protocol } else { IpProtocol::HOP_BY_HOP };
            let ip = Ipv6Repr::new(src, dst, first, segment + extension.len() as u16);
            rest = ip.emit(rest).unwrap();
            rest[..extension.len()].copy_from_slice(extension);
            if !extension.is_empty() {
                rest[0] = protocol.0;
            }
            rest = &mut rest[extension.len()..];
            pseudo = checksum::pseudo_v6(src, dst, protocol, segment.into());
        } else {
            let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
            let ip = Ipv4Repr { ident: self.ident, ..Ipv4Repr::new(src, dst, protocol, segment) };
            rest = ip.emit(rest).unwrap();
            pseudo = checksum::pseudo_v4(src, dst, protocol, segment);
        }
        rest[l4..].copy_from_slice(payload);
        if self.tcp {
            let repr = TcpRepr {
                src_port: 5000,
                dst_port: 80,
                seq: self.seq,
                ack: 7,
                flags: TcpFlags(self.flags),
                window: 1000,
                urgent: 0,
            };
            repr.emit(rest, pseudo).unwrap();
        } else {
            UdpRepr { src_port: 5000, dst_port: 4789 }.emit(rest, pseudo).unwrap();
        }
        frame
    }

    /// The frames that must come out, built piece by piece with no look at the whole.
    fn pieces(&self, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut pieces: Vec<&[u8]> = payload.chunks(size).collect();
        if pieces.is_empty() {
            pieces.push(&[]);
        }
        let last = pieces.len() - 1;
        let build = |(index, piece): (usize, &&[u8])| {
            let mut flags = self.flags;
            if index != last {
                flags &= !0x09;
            }
            if index != 0 {
                flags &= !0x80;
            }
            let shape = Shape {
                ident: self.ident.wrapping_add(index as u16),
                seq: self.seq.wrapping_add((index * size) as u32),
                flags,
                ..self.clone()
            };
            shape.build(piece)
        };
        pieces.iter().enumerate().map(build).collect()
    }

    fn transport(&self) -> Transport {
        if self.tcp { Transport::Tcp } else { Transport::Udp }
    }
}

fn cut(frame: &[u8], transport: Transport, size: u16) -> Vec<Vec<u8>> {
    let segments = Segments::new(frame, transport, size).unwrap();
    (0..segments.count())
        .map(|index| {
            let mut out = vec![0xee; segments.bytes_max()];
            let bytes = segments.write(index, &mut out).unwrap();
            assert_eq!(bytes, segments.bytes(index));
            out.truncate(bytes);
            out
        })
        .collect()
}

fn shape() -> impl Strategy<Value = Shape> {
    (0usize..=2, any::<[bool; 3]>(), any::<u16>(), any::<u32>(), any::<u8>()).prop_map(
        |(tags, [v6, tcp, extension], ident, seq, flags)| Shape {
            tags,
            v6,
            tcp,
            extension,
            ident,
            seq,
            flags,
        },
    )
}

proptest! {
    #[test]
    fn equals_frames_built_one_by_one(
        shape in shape(), payload in prop::collection::vec(any::<u8>(), 0..6000), size in 1u16..2000,
        spoil in any::<[u8; 2]>(), padding in 0usize..8,
    ) {
        let size = size.max(payload.len() as u16 / 60);
        let mut frame = shape.build(&payload);
        // What the kernel leaves in the checksum fields of a super-frame must not matter, nor bytes behind the packet.
        let l4 = frame.len() - payload.len() - if shape.tcp { 20 } else { 8 };
        let at = l4 + if shape.tcp { 16 } else { 6 };
        frame[at..at + 2].copy_from_slice(&spoil);
        frame.extend(vec![0xaa; padding]);
        prop_assert_eq!(cut(&frame, shape.transport(), size), shape.pieces(&payload, size.into()));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), ether_type in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100]),
        version in prop::sample::select(vec![0x45u8, 0x4f, 0x60, 0x6f]), protocol in prop::sample::select(vec![6u8, 17, 0, 43, 44]),
        tcp in any::<bool>(), size in any::<u16>(),
    ) {
        if bytes.len() > 24 {
            bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
            bytes[14] = version;
            bytes[16..18].copy_from_slice(&[0, 0]);
            bytes[18..20].copy_from_slice(&[0, 0]);
            bytes[20] = protocol;
            bytes[21] = 0;
            bytes[23] = protocol;
        }
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        if let Ok(segments) = Segments::new(&bytes, transport, size) {
            let mut out = [0; 2048];
            for index in 0..segments.count() {
                let written = segments.write(index, &mut out).unwrap();
                prop_assert!(written <= segments.bytes_max());
            }
        }
    }
}

#[test]
fn options_of_ip_and_tcp_are_repeated() {
    // IPv4 with one option word, TCP with a timestamp option, 3000 bytes in pieces of 1400.
    let mut frame = vec![0u8; 14];
    frame[12..].copy_from_slice(&[8, 0]);
    let total = (24 + 32 + 3000u16).to_be_bytes();
    frame.extend([
        0x46, 0, total[0], total[1], 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0,
    ]);
    frame.extend([0, 80, 0, 81, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9, 0x80, 0x99, 1, 0, 0, 0, 0, 0]);
    frame.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    frame.extend((0..3000u32).map(|i| i as u8));
    let pieces = cut(&frame, Transport::Tcp, 1400);
    assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [70 + 1400, 70 + 1400, 70 + 200]);
    let mut stream: Vec<u8> = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let ip = Ipv4::new(&piece[14..]).unwrap();
        assert!(ip.checksum_ok());
        assert_eq!((ip.options(), ip.ident.get()), (&[1u8, 1, 1, 0][..], [0xffff, 0, 1][index]));
        let tcp = Tcp::new(ip.payload()).unwrap();
        assert!(tcp.checksum_ok(ip.pseudo_sum()));
        assert_eq!(tcp.options(), [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((tcp.seq.get(), tcp.flags), ([0xffff_ffff, 1399, 2799][index], [0x90, 0x10, 0x19][index]));
        stream.extend(tcp.payload());
    }
    assert_eq!(stream, frame[70..]);
}

#[test]
fn a_full_64_kib_frame_over_ipv6() {
    let shape = Shape { tags: 1, v6: true, tcp: false, extension: false, ident: 0, seq: 0, flags: 0 };
    let payload = vec![3; 65535 - 8];
    let frame = shape.build(&payload);
    let pieces = cut(&frame, Transport::Udp, 1452);
    assert_eq!(pieces.len(), 46);
    for piece in &pieces {
        let ip = Ipv6::new(&piece[18..]).unwrap();
        let udp = Udp::new(ip.payload()).unwrap();
        assert!(udp.checksum.get() != 0 && udp.checksum_ok(ip.repr().pseudo_sum()));
    }
    // A length of zero stands for one that the field cannot say; the end of the frame counts then.
    let mut jumbo = frame;
    jumbo[18 + 4..18 + 6].fill(0);
    assert_eq!(cut(&jumbo, Transport::Udp, 1452), pieces);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let shape = Shape { tags: 0, v6: false, tcp: true, extension: false, ident: 0, seq: 0, flags: 0 };
    let frame = shape.build(&[1; 100]);
    assert!(Segments::new(&frame, Transport::Tcp, 0).is_err());
    assert!(Segments::new(&frame, Transport::Udp, 10).is_err());
    assert!(Segments::new(&frame, Transport::Tcp, 65535).is_err());
    for len in 0..frame.len() {
        assert!(Segments::new(&frame[..len], Transport::Tcp, 10).is_err(), "cut at {len}");
    }
    let mut fragment = frame.clone();
    fragment[20] = 0x20;
    assert!(Segments::new(&fragment, Transport::Tcp, 10).is_err());
    let mut arp = frame.clone();
    arp[13] = 6;
    assert_eq!(
        Segments::new(&arp, Transport::Tcp, 10).unwrap_err().to_string(),
        "Ethernet: type is 2054, allowed is 0x0800 or 0x86dd"
    );
    let segments = Segments::new(&frame, Transport::Tcp, 10).unwrap();
    assert!(segments.write(10, &mut [0; 2000]).is_err());
    assert_eq!(
        segments.write(0, &mut [0; 63]),
        Err(WireError::NoRoom { layer: Layer::Frame, needed: 64, given: 63 })
    );
    let routed = Shape { v6: true, extension: true, ..shape };
    let mut frame = routed.build(&[1; 100]);
    frame[20] = 43;
    assert!(Segments::new(&frame, Transport::Tcp, 10).is_err());
}

mod tunnelled;
