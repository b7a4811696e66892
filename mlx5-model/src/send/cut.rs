//! Cutting a packet into segments, one that is inside a tunnel as well.
//!
//! The card goes by the entry's bytes alone: what lengths the headers state does not matter, and may be those of one segment already
//! (Linux `Documentation/networking/segmentation-offloads.rst`, "Partial Generic Segmentation Offload"). Of a tunnel's headers each
//! segment gets its own lengths of IPv4, IPv6 and UDP, the next IPv4 identification (no card is known that keeps it,
//! `tunnel_lso_const_out_ip_id`), and its IPv4 header checksum where the entry asks for it. Checksums of outer UDP and of GRE stay as
//! they are: Linux's driver has those computed beforehand (`drivers/net/ethernet/mellanox/mlx5/core/en_main.c`,
//! `gso_partial_features`), DPDK's refuses them.

use pollux_mlx5_abi::wqe::{Ethernet, checksum as ask};
use pollux_wire::checksum::Sum;
use pollux_wire::segment::{self, Segments};

use super::parse::{self, Parser};
use crate::failure::Failure;
use crate::frame::{Headers, Ip, Transport, be16};

/// Bytes of headers in front of an inner IP header at most: what an entry has room for.
pub(super) const TUNNEL_BYTES_MAX: usize = 1024;

/// Bytes of the Ethernet header that is put in front of an inner packet while it is cut.
const ETHERNET_BYTES: usize = 14;

/// How a packet is cut.
pub(super) struct Cut<'a> {
    segments: Segments<'a>,
    tunnel: Option<Tunnel<'a>>,
}

/// The headers in front of the inner IP header.
struct Tunnel<'a> {
    headers: &'a [u8],
    outer: Headers,
    sum: bool,
}

impl<'a> Cut<'a> {
    /// Plans it. `room` has [`TUNNEL_BYTES_MAX`] bytes.
    pub(super) fn new(
        parser: &Parser<'_>,
        frame: &'a mut [u8],
        ethernet: &Ethernet,
        room: &'a mut [u8],
    ) -> Result<Self, Failure> {
        let found = parser.parse(frame, ethernet)?;
        let inner = found.inner.filter(|_| parse::asks_inside(ethernet));
        let cut = inner.unwrap_or(found.outer);
        let (transport, length) = match (cut.transport, cut.ip) {
            (Transport::Tcp, Ip::V4) => (segment::Transport::Tcp, cut.l3 + 2),
            (Transport::Tcp, Ip::V6) => (segment::Transport::Tcp, cut.l3 + 4),
            (Transport::Udp, Ip::V4) => (segment::Transport::Udp, cut.l3 + 2),
            (Transport::Udp, Ip::V6) => (segment::Transport::Udp, cut.l3 + 4),
            _ => return Err(Failure::CUT),
        };
        // As much as there is.
        frame[length..length + 2].fill(0);
        let mss = ethernet.mss.get();
        let Some(inner) = inner else {
            let segments = Segments::new(frame, transport, mss).map_err(|_| Failure::CUT)?;
            return Ok(Self { segments, tunnel: None });
        };
        let headers = room.get_mut(..inner.l3).ok_or(Failure::CUT)?;
        headers.copy_from_slice(&frame[..inner.l3]);
        let start = inner.l3 - ETHERNET_BYTES;
        frame[start..inner.l3 - 2].fill(0);
        let kind: u16 = if inner.ip == Ip::V6 { 0x86dd } else { 0x0800 };
        frame[inner.l3 - 2..inner.l3].copy_from_slice(&kind.to_be_bytes());
        let segments = Segments::new(&frame[start..], transport, mss).map_err(|_| Failure::CUT)?;
        let sum = ethernet.cs_flags & ask::L3 != 0;
        Ok(Self { segments, tunnel: Some(Tunnel { headers, outer: found.outer, sum }) })
    }

    /// Bytes in front of what [`Segments`] writes.
    fn before(&self) -> usize {
        self.tunnel.as_ref().map_or(0, |tunnel| tunnel.headers.len() - ETHERNET_BYTES)
    }

    pub(super) fn count(&self) -> usize {
        self.segments.count()
    }

    /// Bytes of all headers.
    pub(super) fn header_bytes(&self) -> usize {
        self.before() + self.segments.header_bytes()
    }

    /// Bytes of the longest segment, with its headers.
    pub(super) fn bytes_max(&self) -> usize {
        self.before() + self.segments.bytes_max()
    }

    /// Writes a segment; its bytes.
    pub(super) fn write(&self, index: usize, out: &mut [u8]) -> Result<usize, Failure> {
        let before = self.before();
        let room = out.get_mut(before..).ok_or(Failure::CUT)?;
        let bytes = before + self.segments.write(index, room).map_err(|_| Failure::CUT)?;
        if let Some(tunnel) = &self.tunnel {
            tunnel.put(&mut out[..bytes], index);
        }
        Ok(bytes)
    }
}

impl Tunnel<'_> {
    /// Puts the tunnel's headers in front of a segment.
    fn put(&self, segment: &mut [u8], index: usize) {
        segment[..self.headers.len()].copy_from_slice(self.headers);
        let (l3, l4, bytes) = (self.outer.l3, self.outer.l4, segment.len());
        let mut put = |at: usize, value: u16| segment[at..at + 2].copy_from_slice(&value.to_be_bytes());
        if self.outer.transport == Transport::Udp {
            put(l4 + 4, (bytes - l4) as u16);
        }
        match self.outer.ip {
            Ip::V6 => put(l3 + 4, (bytes - l3 - 40) as u16),
            Ip::V4 => {
                put(l3 + 2, (bytes - l3) as u16);
                put(l3 + 4, be16(self.headers, l3 + 4).wrapping_add(index as u16));
                if self.sum {
                    put(l3 + 10, 0);
                    let sum = Sum::of(&segment[l3..l4]).checksum();
                    segment[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
                }
            }
            Ip::None => {}
        }
    }
}
