//! Checks what was received as a router has to (RFC 1812, section 5.2.2; RFC 8200), and takes a hop off it.
//!
//! The EtherType is read from the frame, whether or not the port told a packet type: it stands in the four bytes that the check of the header
//! reads anyway, so that a packet type would save nothing, and a tag in front of the header is seen.

use pollux_mempool::{Mbuf, MbufPool, RxFlags};
use pollux_wire::checksum::Sum;
use pollux_wire::{EtherHeader, EtherType, IpProtocol, Ipv4Header, Ipv6Header, ipv6};
use zerocopy::FromBytes;

use crate::count::Reason;

/// Bytes of a packet in several mbufs that the first one must have, lest the headers are looked for in others: more than the longest IPv4
/// header, and IPv6 with extension headers of usual length.
const HEADERS: usize = 128;

/// A packet that may go on; its time to live counts the hop already.
#[derive(Debug)]
pub(crate) enum Ip<'a> {
    V4(V4<'a>),
    V6(V6<'a>),
}

/// IPv4.
#[derive(Debug)]
pub(crate) struct V4<'a> {
    pub(crate) header: &'a Ipv4Header,
    /// What follows those 20 bytes in the first mbuf, options first, padding included.
    behind: &'a [u8],
}

impl V4<'_> {
    /// Source and destination port, as they stand in the packet; zeros where it has none: in other protocols, and in fragments but the first.
    #[inline]
    pub(crate) fn ports(&self) -> [u8; 4] {
        if self.header.fragment_offset() != 0 {
            return [0; 4];
        }
        let options = self.header.header_bytes() - Ipv4Header::BYTES;
        let end = usize::from(self.header.total_bytes.get()) - Ipv4Header::BYTES;
        let payload = self.behind.get(options..end.min(self.behind.len())).unwrap_or_default();
        ports(self.header.protocol(), payload)
    }
}

/// IPv6.
#[derive(Debug)]
pub(crate) struct V6<'a> {
    pub(crate) header: &'a Ipv6Header,
    /// What follows it in the first mbuf, padding included.
    behind: &'a [u8],
}

impl V6<'_> {
    /// The protocol behind the extension headers, and the ports as in [`V4::ports`].
    #[inline]
    pub(crate) fn upper(&self) -> Result<(u8, [u8; 4]), Reason> {
        let protocol = self.header.next_header();
        let end = usize::from(self.header.payload_bytes.get()).min(self.behind.len());
        let behind = &self.behind[..end];
        if matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) {
            return Ok((protocol.0, ports(protocol, behind)));
        }
        let upper = ipv6::walk(protocol, behind).map_err(|_| Reason::Extensions)?;
        let payload = if upper.has_header() { upper.payload } else { &[] };
        Ok((upper.protocol.0, ports(upper.protocol, payload)))
    }
}

/// UDP-Lite (RFC 3828) and DCCP (RFC 4340), whose ports stand where those of UDP do.
const UDP_LITE: IpProtocol = IpProtocol(136);
const DCCP: IpProtocol = IpProtocol(33);

#[inline]
fn ports(protocol: IpProtocol, payload: &[u8]) -> [u8; 4] {
    match protocol {
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP | UDP_LITE | DCCP => {
            payload.first_chunk().copied().unwrap_or_default()
        }
        _ => [0; 4],
    }
}

/// Checks a packet and takes a hop off it. One that may not be written, or whose headers are scattered over mbufs, is replaced by a copy.
///
/// Hot: a packet of the usual kind (one mbuf, no IPv4 options) costs some 40 instructions, with the checksum.
///
/// # Errors
/// Why it goes no further. It may have been changed.
#[inline(always)]
pub(crate) fn check<'a>(mbuf: &'a mut Mbuf, pool: &MbufPool) -> Result<Ip<'a>, Reason> {
    if !(mbuf.is_contiguous() || mbuf.data_len() >= HEADERS) || !mbuf.is_sole() {
        gather(mbuf, pool)?;
    }
    let bytes = (mbuf.pkt_len() as usize).wrapping_sub(EtherHeader::BYTES);
    let checksum = mbuf.rx_flags() & RxFlags::IP_CHECKSUM_NONE;
    let frame = mbuf.data_mut().ok_or(Reason::NoMbuf)?;
    let (ether, packet) = EtherHeader::mut_from_prefix(frame).map_err(|_| Reason::Truncated)?;
    match ether.ether_type() {
        EtherType::IPV4 => check_v4(packet, bytes, checksum).map(Ip::V4),
        EtherType::IPV6 => check_v6(packet, bytes).map(Ip::V6),
        other => Err(if other.is_vlan() { Reason::Vlan } else { Reason::NotIp }),
    }
}

/// The same for a packet of the usual kind: IPv4 without options, in one mbuf that is nobody else's, and right. `None`: it is another, or goes
/// no further, which [`check`] says; nothing was changed.
#[inline(always)]
pub(crate) fn usual(mbuf: &mut Mbuf) -> Option<V4<'_>> {
    if !mbuf.is_contiguous() {
        return None;
    }
    let checksum = mbuf.rx_flags() & RxFlags::IP_CHECKSUM_NONE;
    let (ether, packet) = mbuf.data_mut()?.split_first_chunk_mut::<{ EtherHeader::BYTES }>()?;
    let (bytes, behind) = packet.split_first_chunk_mut::<{ Ipv4Header::BYTES }>()?;
    // EtherType, version and length of the header, in one word.
    let word = u32::from_le_bytes([ether[12], ether[13], bytes[0], bytes[1]]);
    if word & 0x00ff_ffff != 0x0045_0008 || !is_valid(bytes, checksum) {
        return None;
    }
    let header = Ipv4Header::mut_from_bytes(bytes).ok()?;
    let payload = usize::from(header.total_bytes.get()).checked_sub(Ipv4Header::BYTES)?;
    (payload <= behind.len() && header.decrement_ttl()).then_some(V4 { header, behind })
}

/// Puts a copy in place of a packet, whose first mbuf has as much of it as fits.
#[cold]
#[inline(never)]
fn gather(mbuf: &mut Mbuf, pool: &MbufPool) -> Result<(), Reason> {
    *mbuf = mbuf.copy(pool).ok_or(Reason::NoMbuf)?;
    Ok(())
}

#[inline(always)]
fn check_v4(packet: &mut [u8], bytes: usize, checksum: RxFlags) -> Result<V4<'_>, Reason> {
    // The usual header first, whose length is known.
    let valid = match packet {
        [0x45, ..] if packet.len() >= Ipv4Header::BYTES => is_valid(&packet[..Ipv4Header::BYTES], checksum),
        _ => is_valid_other(packet, checksum)?,
    };
    if !valid {
        return Err(Reason::Checksum);
    }
    let (header, behind) = Ipv4Header::mut_from_prefix(packet).map_err(|_| Reason::Truncated)?;
    let total = usize::from(header.total_bytes.get());
    if total < header.header_bytes() || total > bytes {
        return Err(Reason::Length);
    }
    if !header.decrement_ttl() {
        return Err(Reason::Ttl);
    }
    Ok(V4 { header, behind })
}

/// Whether the header's checksum is right: as the port says, or counted here.
#[inline(always)]
fn is_valid(header: &[u8], checksum: RxFlags) -> bool {
    if checksum.is_empty() { Sum::of(header).is_valid() } else { checksum != RxFlags::IP_CHECKSUM_BAD }
}

/// A header with options, or one that is none.
#[cold]
#[inline(never)]
fn is_valid_other(packet: &[u8], checksum: RxFlags) -> Result<bool, Reason> {
    let (header, _) = Ipv4Header::ref_from_prefix(packet).map_err(|_| Reason::Truncated)?;
    if header.version() != 4 {
        return Err(Reason::Version);
    }
    if header.header_bytes() < Ipv4Header::BYTES {
        return Err(Reason::HeaderLength);
    }
    let whole = packet.get(..header.header_bytes()).ok_or(Reason::Truncated)?;
    Ok(is_valid(whole, checksum))
}

#[inline(always)]
fn check_v6(packet: &mut [u8], bytes: usize) -> Result<V6<'_>, Reason> {
    let (header, behind) = Ipv6Header::mut_from_prefix(packet).map_err(|_| Reason::Truncated)?;
    if header.version() != 6 {
        return Err(Reason::Version);
    }
    if Ipv6Header::BYTES + usize::from(header.payload_bytes.get()) > bytes {
        return Err(Reason::Length);
    }
    if header.hop_limit <= 1 {
        return Err(Reason::Ttl);
    }
    header.hop_limit -= 1;
    Ok(V6 { header, behind })
}

#[cfg(test)]
mod tests {
    use pollux_wire::build::Frame;
    use pollux_wire::{Ipv4, Ipv6, checksum};

    use super::*;

    fn pool() -> MbufPool {
        MbufPool::builder("packets", 64).build_anonymous().expect("a pool")
    }

    /// As one mbuf.
    fn whole(pool: &MbufPool, frame: &[u8]) -> Mbuf {
        let mut mbuf = pool.alloc().expect("an mbuf");
        assert!(mbuf.append_slice(frame));
        mbuf
    }

    fn udp4() -> Vec<u8> {
        Frame::ether([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1024, 9)
            .payload(b"some bytes")
            .to_vec()
    }

    fn udp6() -> Vec<u8> {
        Frame::ether([2; 6], [4; 6]).ipv6(1, 2).udp(1024, 9).payload(b"some bytes").to_vec()
    }

    fn fate(frame: &[u8]) -> Result<(), Reason> {
        let pool = pool();
        check(&mut whole(&pool, frame), &pool).map(|_| ())
    }

    /// The frame with these bytes at a place, and the right checksum again.
    fn changed(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        if frame[12..14] == [8, 0] && frame.len() >= 34 {
            frame[24..26].fill(0);
            let header = usize::from(frame[14] & 15) * 4;
            let end = (14 + header).clamp(34, frame.len());
            let sum = checksum::of(&frame[14..end]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    }

    #[test]
    fn a_hop_is_taken_off_and_nothing_else_changes() {
        let pool = pool();
        for (frame, ttl_at) in [(udp4(), 22), (udp6(), 21)] {
            for ttl in [2, 64, 255] {
                let frame = changed(frame.clone(), ttl_at, &[ttl]);
                let mut mbuf = whole(&pool, &frame);
                assert!(check(&mut mbuf, &pool).is_ok());
                // The checksum as counted anew: the incremental update is the same.
                assert_eq!(mbuf.data(), changed(frame, ttl_at, &[ttl - 1]));
            }
            for ttl in [0, 1] {
                assert_eq!(fate(&changed(frame.clone(), ttl_at, &[ttl])), Err(Reason::Ttl));
            }
        }
    }

    #[test]
    fn each_reason_has_its_packets() {
        let (four, six) = (udp4(), udp6());
        let bytes = four.len() - 14;
        let cases: Vec<(Vec<u8>, Reason)> = vec![
            (four[..13].to_vec(), Reason::Truncated),
            (Vec::new(), Reason::Truncated),
            (four[..33].to_vec(), Reason::Truncated),
            (six[..53].to_vec(), Reason::Truncated),
            (changed(four.clone(), 12, &[0x08, 0x06]), Reason::NotIp),
            (changed(four.clone(), 12, &[0x00, 0x2e]), Reason::NotIp),
            (changed(four.clone(), 12, &[0x81, 0x00]), Reason::Vlan),
            (changed(four.clone(), 12, &[0x88, 0xa8]), Reason::Vlan),
            (changed(four.clone(), 14, &[0x65]), Reason::Version),
            (changed(six.clone(), 14, &[0x45]), Reason::Version),
            (changed(four.clone(), 14, &[0x44]), Reason::HeaderLength),
            (changed(four.clone(), 14, &[0x40]), Reason::HeaderLength),
            // Options that would end behind the packet.
            (changed(four[..40].to_vec(), 14, &[0x4f]), Reason::Truncated),
            (changed(four.clone(), 16, &[0, 19]), Reason::Length),
            (changed(four.clone(), 16, &((bytes + 1) as u16).to_be_bytes()), Reason::Length),
            (changed(four.clone(), 16, &[0xff, 0xff]), Reason::Length),
            (changed(six.clone(), 18, &((six.len() - 53) as u16).to_be_bytes()), Reason::Length),
        ];
        for (frame, reason) in cases {
            assert_eq!(fate(&frame), Err(reason), "{frame:02x?}");
        }
        let mut wrong = four.clone();
        wrong[24] ^= 1;
        assert_eq!(fate(&wrong), Err(Reason::Checksum));
        // Padding behind the packet is none of its business.
        let padded = [four, vec![0; 20]].concat();
        assert_eq!(fate(&padded), Ok(()));
    }

    #[test]
    fn a_port_that_checked_the_checksum_is_believed() {
        let pool = pool();
        let (right, mut wrong) = (udp4(), udp4());
        wrong[24] ^= 1;
        for (flags, frame, fate) in [
            (RxFlags::IP_CHECKSUM_BAD, &right, Err(Reason::Checksum)),
            (RxFlags::IP_CHECKSUM_GOOD, &wrong, Ok(())),
            (RxFlags::IP_CHECKSUM_NONE, &wrong, Ok(())),
            (RxFlags::L4_CHECKSUM_BAD, &right, Ok(())),
        ] {
            let mut mbuf = whole(&pool, frame);
            mbuf.set_rx_flags(flags);
            assert_eq!(check(&mut mbuf, &pool).map(|_| ()), fate, "{flags:?}");
        }
    }

    #[test]
    fn options_are_passed_over() {
        let mut frame = udp4();
        // A router alert (RFC 2113).
        frame.splice(34..34, [0x94, 4, 0, 0]);
        let total = (frame.len() - 14) as u16;
        frame[14] = 0x46;
        let frame = changed(frame, 16, &total.to_be_bytes());
        let pool = pool();
        let mut mbuf = whole(&pool, &frame);
        let Ok(Ip::V4(packet)) = check(&mut mbuf, &pool) else { panic!("IPv4") };
        assert_eq!(packet.ports(), [4, 0, 0, 9]);
        let mut wrong = frame;
        wrong[37] ^= 1;
        assert_eq!(fate(&wrong), Err(Reason::Checksum), "the checksum covers them");
    }

    #[test]
    fn ports_are_those_of_the_transport_header() {
        let pool = pool();
        let of = |frame: &[u8]| {
            let mut mbuf = whole(&pool, frame);
            match check(&mut mbuf, &pool).expect("a packet") {
                Ip::V4(packet) => Ok((packet.header.protocol, packet.ports())),
                Ip::V6(packet) => packet.upper(),
            }
        };
        let ports = [4, 0, 0, 9];
        assert_eq!((of(&udp4()), of(&udp6())), (Ok((17, ports)), Ok((17, ports))));
        // A fragment but the first, a protocol without ports, one that is not there.
        assert_eq!(of(&changed(udp4(), 20, &[0, 1])), Ok((17, [0; 4])));
        assert_eq!(of(&changed(udp4(), 20, &[0x20, 0])), Ok((17, ports)));
        assert_eq!(of(&changed(udp4(), 23, &[1])), Ok((1, [0; 4])));
        let short = changed(udp4()[..37].to_vec(), 16, &[0, 23]);
        assert_eq!(of(&short), Ok((17, [0; 4])));
        // Behind a hop-by-hop header, a fragment header, and headers that end outside.
        let extended = |kind: u8, header: [u8; 8]| {
            let mut frame = udp6();
            frame.splice(54..54, header);
            let payload = (frame.len() - 54) as u16;
            frame[20] = kind;
            frame[18..20].copy_from_slice(&payload.to_be_bytes());
            of(&frame)
        };
        assert_eq!(extended(0, [17, 0, 1, 4, 0, 0, 0, 0]), Ok((17, ports)));
        assert_eq!(extended(44, [17, 0, 0, 1, 0, 0, 0, 7]), Ok((17, ports)));
        assert_eq!(extended(44, [17, 0, 0, 8, 0, 0, 0, 7]), Ok((17, [0; 4])));
        assert_eq!(extended(0, [17, 200, 1, 4, 0, 0, 0, 0]), Err(Reason::Extensions));
    }

    #[test]
    fn shared_and_scattered_packets_are_copied() {
        let pool = pool();
        let frame = udp4();
        let original = whole(&pool, &frame);
        let mut clone = original.clone_indirect(&pool).expect("a clone");
        assert!(check(&mut clone, &pool).is_ok());
        assert_eq!((original.data(), clone.data()[22]), (&frame[..], 63), "the other holder's is as it was");
        // Each byte of the headers in an mbuf of its own.
        for cut in 0..frame.len() {
            let mut chain = whole(&pool, &frame[..cut]);
            let rest = whole(&pool, &frame[cut..]);
            chain.chain(rest).expect("a chain");
            assert!(check(&mut chain, &pool).is_ok(), "cut behind {cut} bytes");
            assert_eq!(chain.data()[22], 63);
        }
        let others = self::pool();
        let held: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
        let mut shared = original.clone_indirect(&others).expect("a clone");
        assert_eq!(check(&mut shared, &pool).map(|_| ()), Err(Reason::NoMbuf));
        drop(held);
    }

    #[test]
    fn a_long_chain_is_left_as_it_is() {
        let pool = pool();
        let payload = vec![7; 3000];
        let frame =
            Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&payload);
        let mut chain = whole(&pool, &frame[..1500]);
        chain.chain(whole(&pool, &frame[1500..])).expect("a chain");
        let data = chain.data_ptr();
        assert!(check(&mut chain, &pool).is_ok());
        assert_eq!((chain.data_ptr(), chain.segment_count()), (data, 2));
    }

    /// Whatever the bytes are, there is an answer, and what passes is a packet for those who look closer.
    #[test]
    fn no_bytes_panic() {
        let pool = pool();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut passed, mut usuals) = (0, 0);
        for round in 0..20_000 {
            let mut frame = if round % 2 == 0 { udp4() } else { udp6() };
            if random() % 4 == 0 {
                frame.truncate(random() as usize % (frame.len() + 1));
            }
            for _ in 0..random() % 4 {
                if let Some(last) = frame.len().checked_sub(1) {
                    // Not before the EtherType, of which nothing is read.
                    let at = 12.min(last) + random() as usize % (last + 1 - 12.min(last));
                    frame[at] = random() as u8;
                }
            }
            let frame = if round % 3 == 0 && frame.len() >= 34 { changed(frame, 0, &[]) } else { frame };
            // The short way agrees, and leaves the rest as it was.
            let (mut one, mut other) = (whole(&pool, &frame), whole(&pool, &frame));
            let short = usual(&mut one).map(|packet| packet.ports());
            match check(&mut other, &pool) {
                Ok(Ip::V4(packet)) if packet.header.header_bytes() == Ipv4Header::BYTES => {
                    assert_eq!(short, Some(packet.ports()), "{frame:02x?}");
                    assert_eq!(one.data(), other.data());
                    usuals += 1;
                }
                _ => assert_eq!((short, one.data()), (None, &frame[..])),
            }
            let cut = random() as usize % (frame.len() + 1);
            let mut mbuf = whole(&pool, &frame[..cut]);
            mbuf.chain(whole(&pool, &frame[cut..])).expect("a chain");
            match check(&mut mbuf, &pool) {
                Ok(Ip::V4(packet)) => {
                    packet.ports();
                    passed += 1;
                }
                Ok(Ip::V6(packet)) => {
                    let _ = packet.upper();
                    passed += 1;
                }
                Err(_) => continue,
            }
            let mut bytes = vec![0; mbuf.pkt_len() as usize];
            mbuf.read(0, &mut bytes);
            let seen = match Ipv4::new(&bytes[14..]) {
                Ok(packet) => packet.checksum_ok(),
                Err(_) => Ipv6::new(&bytes[14..]).is_ok(),
            };
            assert!(seen, "{bytes:02x?}");
        }
        assert!(passed > 1000 && usuals > 1000, "{passed}, {usuals}");
    }
}
