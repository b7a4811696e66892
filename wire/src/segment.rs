//! Software segmentation: one TCP or UDP super-frame, up to 64 KiB, cut into frames that fit a link.
//!
//! The kernel hands such frames to a packet socket with `PACKET_VNET_HDR` (GSO), where the NIC would cut them (TSO, USO).
//! Each cut frame gets the headers of the original with:
//!
//! | field | value |
//! |---|---|
//! | IPv4 total length, IPv6 payload length, UDP length | its own |
//! | IPv4 identification | the original's, plus its number |
//! | IPv4 header checksum, TCP or UDP checksum | summed anew; the original's need not be complete |
//! | TCP sequence number | the original's, plus the payload before it |
//! | TCP flags | FIN and PSH on the last frame only, CWR on the first only |
//!
//! and, in a tunnel ([`Tunnel`]), the outer headers with:
//!
//! | field | value |
//! |---|---|
//! | IPv4 total length and identification, IPv6 payload length, UDP length | as above |
//! | IPv4 header checksum; UDP or GRE checksum where the original has one | summed anew |
//!
//! Source: Linux `net/ipv4/tcp_offload.c` (`tcp_gso_segment`), `net/ipv4/udp_offload.c` (`__udp_gso_segment`),
//! `net/ipv4/af_inet.c` (`inet_gso_segment`), `__skb_udp_tunnel_segment` in `udp_offload.c`, `net/ipv4/gre_offload.c`.

use std::ops::Range;

use zerocopy::FromBytes;

use crate::checksum::{self, Sum};
use crate::{
    Encapsulation, EtherType, IpProtocol, Ipv4Header, Ipv6Header, Layer, TcpFlags, TcpHeader, Tunnel,
    UdpHeader, WireError, ipv6, vlan,
};

/// What is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TCP stream: `VIRTIO_NET_HDR_GSO_TCPV4`, `VIRTIO_NET_HDR_GSO_TCPV6`.
    Tcp,
    /// Datagrams of one size, the last may be shorter: `VIRTIO_NET_HDR_GSO_UDP_L4`.
    Udp,
}

#[derive(Clone, Copy, Debug)]
enum Network {
    V4,
    V6,
}

/// A super-frame and how it is cut. Frames are written one by one, in any order, each into a buffer of the caller's.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    headers: &'a [u8],
    /// What of it is at hand.
    payload: &'a [u8],
    payload_bytes: usize,
    size: usize,
    l3: usize,
    l4: usize,
    network: Network,
    transport: Transport,
    /// Pseudo-header without the length.
    pseudo: Sum,
    tunnel: Option<Tunnel>,
}

impl Transport {
    fn protocol(self) -> IpProtocol {
        match self {
            Self::Tcp => IpProtocol::TCP,
            Self::Udp => IpProtocol::UDP,
        }
    }
}

fn refuse<T>(layer: Layer, field: &'static str, value: u32, allowed: &'static str) -> Result<T, WireError> {
    Err(WireError::Field { layer, field, value, allowed })
}

/// An IP header: its version, where the transport begins, where that ends, what it is. The frame has `bytes` bytes, of which `frame` is the
/// beginning.
fn network(
    frame: &[u8],
    bytes: usize,
    l3: usize,
    ether_type: EtherType,
) -> Result<(Network, usize, usize, IpProtocol), WireError> {
    let packet = frame.get(l3..).unwrap_or_default();
    let given = bytes.saturating_sub(l3);
    match ether_type {
        EtherType::IPV4 => {
            let short = |needed| WireError::truncated(Layer::Ipv4, needed, given);
            let (header, _) = Ipv4Header::ref_from_prefix(packet).map_err(|_| short(Ipv4Header::BYTES))?;
            let head = header.header_bytes();
            if header.version() != 4 || head < Ipv4Header::BYTES {
                let value = header.version_ihl.into();
                return refuse(Layer::Ipv4, "version and header length", value, "0x45 to 0x4f");
            }
            if header.is_fragment() {
                return refuse(Layer::Ipv4, "fragment", header.fragment.get().into(), "no fragment");
            }
            // Zero stands for more than the field can say.
            let total = match usize::from(header.total_bytes.get()) {
                0 => given,
                total => total,
            };
            if total < head {
                return refuse(Layer::Ipv4, "total length", total as u32, "at least the header's length");
            }
            if total > given {
                return Err(short(total));
            }
            Ok((Network::V4, l3 + head, l3 + total, header.protocol()))
        }
        EtherType::IPV6 => {
            let short = |needed| WireError::truncated(Layer::Ipv6, needed, given);
            let (header, rest) = Ipv6Header::ref_from_prefix(packet).map_err(|_| short(Ipv6Header::BYTES))?;
            if header.version() != 6 {
                return refuse(Layer::Ipv6, "version", header.version().into(), "6");
            }
            let len = match usize::from(header.payload_bytes.get()) {
                0 => given - Ipv6Header::BYTES,
                len => len,
            };
            if Ipv6Header::BYTES + len > given {
                return Err(short(Ipv6Header::BYTES + len));
            }
            let rest = &rest[..len.min(rest.len())];
            let upper = ipv6::walk(header.next_header(), rest)?;
            if let Some(fragment) = upper.fragment {
                return refuse(Layer::Ipv6Extension, "fragment", fragment.offset.into(), "no fragment");
            }
            if upper.routing {
                return refuse(Layer::Ipv6Extension, "header", 43, "no routing header");
            }
            let l4 = l3 + Ipv6Header::BYTES + upper.extension_bytes;
            Ok((Network::V6, l4, l3 + Ipv6Header::BYTES + len, upper.protocol))
        }
        other => refuse(Layer::Ether, "type", other.0.into(), "0x0800 or 0x86dd"),
    }
}

/// The pseudo-header of the IP header at `l3`, without the length.
fn pseudo(frame: &[u8], l3: usize, network: Network, protocol: IpProtocol) -> Sum {
    Sum::of(match network {
        Network::V4 => &frame[l3 + 12..l3 + 20],
        Network::V6 => &frame[l3 + 8..l3 + 40],
    })
    .add_word(protocol.0.into())
}

impl<'a> Segments<'a> {
    /// Plans how `frame`, which begins with its Ethernet header (tags allowed), is cut into pieces of `size` payload bytes.
    ///
    /// # Errors
    /// `size` is 0; the frame is no IPv4 or IPv6 packet with that transport, is cut short, is a fragment, or has an IPv6
    /// routing header (its checksum would need the last destination).
    pub fn new(frame: &'a [u8], transport: Transport, size: u16) -> Result<Self, WireError> {
        Self::untunnelled(frame, frame.len(), transport, size)
    }

    fn untunnelled(
        frame: &'a [u8],
        bytes: usize,
        transport: Transport,
        size: u16,
    ) -> Result<Self, WireError> {
        let behind = vlan::skip_tags(frame)?;
        Self::plan((frame, bytes), transport, size, (behind.offset, behind.ether_type), None)
    }

    /// The same of a frame whose transport begins at `l4`: right behind the first IP header, or inside a tunnel.
    ///
    /// # Errors
    /// As [`Segments::new`]; no IP header ends there, or there are tunnels in tunnels.
    pub fn at(frame: &'a [u8], transport: Transport, size: u16, l4: usize) -> Result<Self, WireError> {
        Self::of_front(frame, frame.len(), transport, size, l4)
    }

    /// The same of a frame of `bytes` bytes of which `front` is the beginning, with all headers: its payload is put behind the headers by
    /// the caller ([`Segments::payload`], [`Segments::mend`]).
    ///
    /// # Errors
    /// As [`Segments::at`].
    pub fn of_front(
        front: &'a [u8],
        bytes: usize,
        transport: Transport,
        size: u16,
        l4: usize,
    ) -> Result<Self, WireError> {
        let bytes = bytes.max(front.len());
        if let Some(tunnel) = Tunnel::around(front, bytes, l4, transport.protocol()) {
            let ether_type = if tunnel.inner_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
            return Self::plan((front, bytes), transport, size, (tunnel.inner_l3, ether_type), Some(tunnel));
        }
        let plain = Self::untunnelled(front, bytes, transport, size)?;
        if plain.l4 == l4 {
            return Ok(plain);
        }
        refuse(Layer::Frame, "start of the transport", l4 as u32, "the end of an IP header")
    }

    fn plan(
        (frame, bytes): (&'a [u8], usize),
        transport: Transport,
        size: u16,
        (l3, ether_type): (usize, EtherType),
        tunnel: Option<Tunnel>,
    ) -> Result<Self, WireError> {
        if size == 0 {
            return refuse(Layer::Frame, "segment size", 0, "at least 1");
        }
        let (network, l4, end, protocol) = network(frame, bytes, l3, ether_type)?;
        if protocol != transport.protocol() {
            return refuse(
                Layer::Frame,
                "IP protocol",
                protocol.0.into(),
                "6 for TCP, 17 for UDP, as was asked",
            );
        }
        let segment = frame.get(l4..end.min(frame.len())).unwrap_or_default();
        let head = match transport {
            Transport::Tcp => TcpHeader::ref_from_prefix(segment)
                .map_err(|_| WireError::truncated(Layer::Tcp, TcpHeader::BYTES, segment.len()))?
                .0
                .header_bytes(),
            Transport::Udp => UdpHeader::BYTES,
        };
        if transport == Transport::Tcp && head < TcpHeader::BYTES {
            return refuse(Layer::Tcp, "header length", head as u32, "20 to 60");
        }
        if head > segment.len() {
            let layer = if transport == Transport::Tcp { Layer::Tcp } else { Layer::Udp };
            return Err(WireError::truncated(layer, head, segment.len()));
        }
        let piece = l4 - tunnel.map_or(l3, |tunnel| tunnel.l3) + head + usize::from(size);
        if piece > usize::from(u16::MAX) {
            return refuse(
                Layer::Frame,
                "segment size",
                size.into(),
                "headers and segment within 65535 bytes",
            );
        }
        if let Some(tunnel) = tunnel
            && !(l4 - tunnel.l4).is_multiple_of(2)
        {
            let bytes = (l4 - tunnel.l4) as u32;
            return refuse(Layer::Frame, "length of the tunnel's headers", bytes, "an even number");
        }
        Ok(Segments {
            headers: &frame[..l4 + head],
            payload: &frame[l4 + head..end.min(frame.len())],
            payload_bytes: end - l4 - head,
            size: size.into(),
            l3,
            l4,
            pseudo: pseudo(frame, l3, network, protocol),
            network,
            transport,
            tunnel,
        })
    }

    /// Frames to be written; at least one, since an empty payload is sent too.
    #[must_use]
    pub fn count(&self) -> usize {
        self.payload_bytes.div_ceil(self.size).max(1)
    }

    /// Bytes of the longest frame.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.headers.len() + self.size.min(self.payload_bytes)
    }

    /// Bytes of all headers, which each frame repeats.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.headers.len()
    }

    /// Bytes of frame `index`; 0 from [`Segments::count`] on.
    #[must_use]
    pub fn bytes(&self, index: usize) -> usize {
        self.piece(index).map_or(0, |piece| self.headers.len() + piece.len())
    }

    /// Where the payload of frame `index` stands in the frame that is cut; empty from [`Segments::count`] on.
    #[must_use]
    pub fn payload(&self, index: usize) -> Range<usize> {
        let piece = self.piece(index).unwrap_or_default();
        self.headers.len() + piece.start..self.headers.len() + piece.end
    }

    fn piece(&self, index: usize) -> Option<Range<usize>> {
        if index >= self.count() {
            return None;
        }
        let start = index * self.size;
        Some(start..(start + self.size).min(self.payload_bytes))
    }

    /// Writes frame `index` to the front of `out` and tells its length. Allocates nothing.
    ///
    /// # Errors
    /// There is no such frame, its payload is not at hand, or `out` is too small.
    pub fn write(&self, index: usize, out: &mut [u8]) -> Result<usize, WireError> {
        let bytes = self.bytes(index);
        let given = out.len();
        let out =
            out.get_mut(..bytes).ok_or(WireError::NoRoom { layer: Layer::Frame, needed: bytes, given })?;
        if let Some(piece) = self.piece(index) {
            let needed = piece.end;
            let payload = self.payload.get(piece);
            let given = self.payload.len();
            let payload = payload.ok_or_else(|| WireError::truncated(Layer::Frame, needed, given))?;
            out[self.headers.len()..].copy_from_slice(payload);
        }
        self.mend(index, out)?;
        Ok(bytes)
    }

    /// Makes `out` frame `index`: writes its headers in front of its payload, which stands there behind [`Segments::header_bytes`] bytes. Allocates
    /// nothing.
    ///
    /// # Errors
    /// There is no such frame, or it has another length.
    pub fn mend(&self, index: usize, out: &mut [u8]) -> Result<(), WireError> {
        if index >= self.count() {
            return Err(WireError::Field {
                layer: Layer::Frame,
                field: "segment number",
                value: u32::try_from(index).unwrap_or(u32::MAX),
                allowed: "below the count",
            });
        }
        let (needed, given) = (self.bytes(index), out.len());
        if needed != given {
            return Err(WireError::NoRoom { layer: Layer::Frame, needed, given });
        }
        let (headers, payload) = out.split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        let (network, transport) = headers[self.l3..].split_at_mut(self.l4 - self.l3);
        mend_network(self.network, network, index, (transport.len() + payload.len()) as u16);
        self.mend_transport(transport, payload, index);
        if let Some(tunnel) = self.tunnel {
            self.mend_tunnel(tunnel, headers, payload.len(), index);
        }
        Ok(())
    }

    /// The headers in front of what was cut; `headers` are all there are, the inner ones done.
    fn mend_tunnel(&self, tunnel: Tunnel, headers: &mut [u8], payload: usize, index: usize) {
        let upper = (headers.len() - tunnel.l4 + payload) as u16;
        // What holds its own checksum sums up to the complement of its pseudo-header's sum.
        let inner = (headers.len() - self.l4 + payload) as u16;
        let rest = Sum::ZERO.add_word(!self.pseudo.add_word(inner).fold());
        let outer = if tunnel.outer_v4 { Network::V4 } else { Network::V6 };
        let pseudo = pseudo(headers, tunnel.l3, outer, IpProtocol::UDP).add_word(upper);
        let head = &mut headers[tunnel.l4..self.l4];
        match tunnel.encapsulation {
            Encapsulation::Ip | Encapsulation::Gre { checksum: false } => {}
            Encapsulation::Gre { checksum: true } => {
                head[4..6].fill(0);
                let sum = (Sum::of(head) + rest).checksum();
                head[4..6].copy_from_slice(&sum.to_be_bytes());
            }
            Encapsulation::Udp { checksum, .. } => {
                head[4..6].copy_from_slice(&upper.to_be_bytes());
                head[6..8].fill(0);
                if checksum {
                    let sum = (pseudo + Sum::of(head) + rest).checksum_udp();
                    head[6..8].copy_from_slice(&sum.to_be_bytes());
                }
            }
        }
        mend_network(outer, &mut headers[tunnel.l3..tunnel.l4], index, upper);
    }

    fn mend_transport(&self, bytes: &mut [u8], payload: &[u8], index: usize) {
        let len = (bytes.len() + payload.len()) as u16;
        let pseudo = self.pseudo.add_word(len);
        let at = match self.transport {
            Transport::Tcp => {
                let seq = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                let seq = seq.wrapping_add((index * self.size) as u32);
                bytes[4..8].copy_from_slice(&seq.to_be_bytes());
                if index + 1 < self.count() {
                    bytes[13] &= !(TcpFlags::FIN | TcpFlags::PSH).0;
                }
                if index > 0 {
                    bytes[13] &= !TcpFlags::CWR.0;
                }
                16
            }
            Transport::Udp => {
                bytes[4..6].copy_from_slice(&len.to_be_bytes());
                6
            }
        };
        bytes[at..at + 2].fill(0);
        let sum = pseudo.add_bytes(bytes).add_bytes(payload);
        let sum = if self.transport == Transport::Udp { sum.checksum_udp() } else { sum.checksum() };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Mends an IP header; `upper` counts the bytes behind it.
fn mend_network(network: Network, bytes: &mut [u8], index: usize, upper: u16) {
    let len = bytes.len() as u16 + upper;
    match network {
        Network::V4 => {
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
            let ident = u16::from_be_bytes([bytes[4], bytes[5]]).wrapping_add(index as u16);
            bytes[4..6].copy_from_slice(&ident.to_be_bytes());
            bytes[10..12].fill(0);
            let sum = checksum::of(bytes);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Network::V6 => {
            let behind = len - Ipv6Header::BYTES as u16;
            bytes[4..6].copy_from_slice(&behind.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
