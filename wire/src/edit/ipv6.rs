//! An IPv6 packet to be changed.

use std::net::Ipv6Addr;
use std::ops::Deref;

use super::{Covering, Icmpv6Mut, checksum_at, front_mut};
use crate::checksum::Sum;
use crate::{IpProtocol, Ipv6Header, ipv6};

/// An IPv6 packet whose header is changed in place. Reads as its [`Ipv6Header`].
#[derive(Debug)]
pub struct Ipv6Mut<'a> {
    header: &'a mut Ipv6Header,
    /// Extension headers, then the payload.
    behind: &'a mut [u8],
    /// Where the transport header is among them, and what it is; none in a later fragment.
    upper: Option<(usize, IpProtocol)>,
    covering: Option<Covering>,
    open: bool,
}

impl<'a> Ipv6Mut<'a> {
    /// Views `bytes` as an IPv6 packet. `None` as [`ipv6_mut`](super::ipv6_mut), and with extension headers that are cut off or
    /// more than [`EXTENSIONS_MAX`](ipv6::EXTENSIONS_MAX).
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a mut [u8], open: bool) -> Option<Self> {
        let (header, behind): (&mut Ipv6Header, _) = front_mut(bytes)?;
        if header.version() != 6 {
            return None;
        }
        let walked = ipv6::walk(header.next_header(), behind).ok()?;
        let upper = walked.has_header().then_some((walked.extension_bytes, walked.protocol));
        // The pseudo-header's destination is the last hop's, which a routing header may name elsewhere (RFC 8200, section 8.1).
        let routed = walked.routing;
        let covering = match upper {
            Some((extensions, protocol)) => {
                // ICMPv6 sums the pseudo-header, too (RFC 4443, section 2.3); no device leaves it open.
                let icmp = protocol == IpProtocol::ICMPV6;
                match if icmp { Some(2) } else { checksum_at(protocol) } {
                    Some(_) if routed => return None,
                    Some(at) => {
                        let at = extensions + at;
                        if at + 2 > behind.len() {
                            return None;
                        }
                        Some(Covering { at, protocol, open: open && !icmp })
                    }
                    None => None,
                }
            }
            None => None,
        };
        Some(Self { header, behind, upper, covering, open })
    }

    #[inline]
    fn address(&mut self, old: [u8; 16], new: [u8; 16]) {
        if let Some(covering) = self.covering {
            covering.follow(self.behind, &old, &new);
        }
    }

    /// Sets the source address and the source port, as a translator of addresses (NAT) does on the way out: less work than one after
    /// the other. `false`, and nothing changed: no TCP or UDP (nor DCCP or UDP-Lite), or a fragment that is not the first.
    #[inline]
    #[must_use]
    pub fn translate_src(&mut self, to: impl Into<Ipv6Addr>, port: u16) -> bool {
        self.translate(false, to.into().octets(), port)
    }

    /// Sets the destination address and the destination port, as on the way back; as [`translate_src`](Self::translate_src).
    #[inline]
    #[must_use]
    pub fn translate_dst(&mut self, to: impl Into<Ipv6Addr>, port: u16) -> bool {
        self.translate(true, to.into().octets(), port)
    }

    /// Address and port, and what follows of them.
    #[inline]
    fn translate(&mut self, dst: bool, to: [u8; 16], port: u16) -> bool {
        // ICMPv6 has no ports.
        let Some(covering) = self.covering.filter(|one| one.protocol != IpProtocol::ICMPV6) else {
            return false;
        };
        let upper = self.upper.map_or(0, |(at, _)| at);
        let field = if dst { &mut self.header.dst } else { &mut self.header.src };
        let change = Sum::of_change(field, &to);
        if !covering.translate(self.behind, upper, dst, port, change) {
            return false;
        }
        *field = to;
        true
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, to: impl Into<Ipv6Addr>) {
        let (old, new) = (self.header.src, to.into().octets());
        self.header.src = new;
        self.address(old, new);
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, to: impl Into<Ipv6Addr>) {
        let (old, new) = (self.header.dst, to.into().octets());
        self.header.dst = new;
        self.address(old, new);
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, to: u8) {
        self.header.hop_limit = to;
    }

    /// Lowers the hop limit by one, as a router does. `false`, and nothing changed, if it was 0 or 1.
    #[inline]
    pub fn decrement_hop_limit(&mut self) -> bool {
        let lowers = self.header.hop_limit > 1;
        self.header.hop_limit -= u8::from(lowers);
        lowers
    }

    /// Sets the traffic class: DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, to: u8) {
        let word = self.header.version_class_flow.get() & !(0xff << 20);
        self.header.version_class_flow.set(word | u32::from(to) << 20);
    }

    /// Sets the flow label, of which 20 bits count.
    #[inline]
    pub fn set_flow_label(&mut self, to: u32) {
        let word = self.header.version_class_flow.get() & !0xf_ffff;
        self.header.version_class_flow.set(word | to & 0xf_ffff);
    }

    /// What stands behind the extension headers; `None` in a fragment that is not the first.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> Option<IpProtocol> {
        self.upper.map(|(_, protocol)| protocol)
    }

    #[inline]
    fn carried(&self) -> Option<IpProtocol> {
        self.protocol()
    }

    #[inline]
    fn upper_at(&self, protocol: IpProtocol) -> Option<usize> {
        self.upper.filter(|(_, is)| *is == protocol).map(|(at, _)| at)
    }

    /// The ICMPv6 header.
    #[inline]
    #[must_use]
    pub fn icmpv6_mut(&mut self) -> Option<Icmpv6Mut<'_>> {
        Icmpv6Mut::new(self.upper(IpProtocol::ICMPV6)?)
    }
}

transports!(Ipv6Mut);

impl Deref for Ipv6Mut<'_> {
    type Target = Ipv6Header;

    #[inline]
    fn deref(&self) -> &Ipv6Header {
        self.header
    }
}
