//! Where the headers of a frame are that is sent: found by the card, or told by the entry (software parsing).
//!
//! A card believes what it is told and fills sums into whatever stands there. The model looks: an entry whose offsets are not those
//! of its frame's headers fails, and so does one that asks for sums inside a tunnel that neither the card nor the entry finds, which
//! a card would send as it is, wrong.
//!
//! Sources: Linux `drivers/net/ethernet/mellanox/mlx5/core/en/txrx.h`, `mlx5e_set_eseg_swp`; DPDK `drivers/net/mlx5/mlx5_tx.h`,
//! `txq_mbuf_to_swp`.

use pollux_mlx5_abi::wqe::{Ethernet, checksum, parse};
use pollux_wire::EtherType;

use crate::failure::Failure;
use crate::frame::{Headers, TAG_BYTES, Transport, Tunnels};

const INNER: u8 = checksum::L3_INNER | checksum::L4_INNER;
const KINDS: u8 = parse::INNER_L3_IPV6 | parse::INNER_L4_UDP | parse::OUTER_L3_IPV6 | parse::OUTER_L4_UDP;

/// What a queue lets its entries say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsing {
    /// They may say where headers are.
    pub(crate) allowed: bool,
    /// The card finds what they leave out.
    pub(crate) complemented: bool,
}

/// What is looked for with.
pub(super) struct Parser<'a> {
    pub(super) tunnels: &'a Tunnels,
    pub(super) parsing: Parsing,
}

/// The headers of a frame.
pub(super) struct Found {
    pub(super) outer: Headers,
    /// Those in its tunnel; there where something was asked for in there.
    pub(super) inner: Option<Headers>,
}

/// Whether an entry asks for sums, or says where headers are.
#[inline]
pub(super) fn asks(ethernet: &Ethernet) -> bool {
    ethernet.cs_flags & (checksum::L3 | checksum::L4 | INNER) != 0 || tells(ethernet)
}

/// Whether an entry asks for something inside a tunnel.
pub(super) fn asks_inside(ethernet: &Ethernet) -> bool {
    ethernet.cs_flags & INNER != 0
}

#[inline]
fn tells(ethernet: &Ethernet) -> bool {
    let offsets = [
        ethernet.swp_outer_l4_offset,
        ethernet.swp_outer_l3_offset,
        ethernet.swp_inner_l4_offset,
        ethernet.swp_inner_l3_offset,
    ];
    offsets != [0; 4] || ethernet.swp_flags != 0
}

impl Parser<'_> {
    #[inline]
    pub(super) fn parse(&self, frame: &[u8], ethernet: &Ethernet) -> Result<Found, Failure> {
        let outer = Headers::parse(frame, 0);
        let told = tells(ethernet);
        if !told && !asks_inside(ethernet) {
            return Ok(Found { outer, inner: None });
        }
        let own = self.tunnels.inside(frame, &outer);
        let inner = if told { self.told(frame, ethernet, &outer, own)? } else { own };
        if inner.is_none() && asks_inside(ethernet) {
            return Err(Failure::NOT_FOUND);
        }
        Ok(Found { outer, inner })
    }

    /// The inner headers of an entry that says where headers are; `own` are those that the card finds itself.
    fn told(
        &self,
        frame: &[u8],
        ethernet: &Ethernet,
        outer: &Headers,
        own: Option<Headers>,
    ) -> Result<Option<Headers>, Failure> {
        if !self.parsing.allowed || ethernet.swp_flags & !KINDS != 0 {
            return Err(Failure::TOLD);
        }
        // Of a tag that the card inserts Linux's driver says nothing, since it inlines those itself; DPDK's counts it.
        let told = self.told_behind(frame, ethernet, outer, 0);
        let told = match ethernet.vlan() {
            Some(_) => told.or_else(|_| self.told_behind(frame, ethernet, outer, TAG_BYTES)),
            None => told,
        }?;
        let own = if self.parsing.complemented { own } else { None };
        let sums_l4 = ethernet.cs_flags & checksum::L4_INNER != 0;
        match (told, own) {
            (Some(told), Some(own)) if told.l3 != own.l3 => Err(Failure::TOLD),
            (Some(_), None) if sums_l4 && ethernet.swp_inner_l4_offset == 0 => Err(Failure::TOLD),
            (told, own) => Ok(told.or(own)),
        }
    }

    fn told_behind(
        &self,
        frame: &[u8],
        ethernet: &Ethernet,
        outer: &Headers,
        tag: usize,
    ) -> Result<Option<Headers>, Failure> {
        let layers = |[l3, l4]: [u8; 2], [ipv6, udp]: [u8; 2]| {
            if l3 == 0 {
                // A layer 4 without a layer 3 would say nothing.
                return if l4 == 0 { Ok(None) } else { Err(Failure::TOLD) };
            }
            let at = |offset: u8| (usize::from(offset) * 2).checked_sub(tag).ok_or(Failure::TOLD);
            let is = |kind: u8| ethernet.swp_flags & kind != 0;
            let kind = if is(ipv6) { EtherType::IPV6 } else { EtherType::IPV4 };
            let headers = Headers::parse_packet(frame, at(l3)?, kind).ok_or(Failure::TOLD)?;
            let transport = if is(udp) { Transport::Udp } else { Transport::Tcp };
            if l4 != 0 && (at(l4)? != headers.l4 || headers.transport != transport) {
                return Err(Failure::TOLD);
            }
            Ok(Some(headers))
        };
        let told = layers(
            [ethernet.swp_outer_l3_offset, ethernet.swp_outer_l4_offset],
            [parse::OUTER_L3_IPV6, parse::OUTER_L4_UDP],
        )?;
        if told.map_or(!self.parsing.complemented, |told| told.l3 != outer.l3) {
            return Err(Failure::TOLD);
        }
        let inner = layers(
            [ethernet.swp_inner_l3_offset, ethernet.swp_inner_l4_offset],
            [parse::INNER_L3_IPV6, parse::INNER_L4_UDP],
        )?;
        if inner.is_some_and(|inner| inner.l3 < outer.l4) {
            return Err(Failure::TOLD);
        }
        Ok(inner)
    }
}
