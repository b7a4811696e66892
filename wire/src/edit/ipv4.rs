//! An IPv4 packet to be changed.

use std::net::Ipv4Addr;
use std::ops::Deref;

use super::{Covering, IcmpMut, checksum_at, front_mut};
use crate::checksum::{self, Sum};
use crate::{IpProtocol, Ipv4Header};

/// Version 4, and a header of 20 bytes.
const NO_OPTIONS: u8 = 0x45;

/// What follows the options. `None`: this is no whole header of IPv4.
#[cold]
fn behind_options<'a>(header: &Ipv4Header, behind: &'a mut [u8]) -> Option<&'a mut [u8]> {
    let options = header.header_bytes().checked_sub(Ipv4Header::BYTES)?;
    if header.version() == 4 { behind.get_mut(options..) } else { None }
}

/// An IPv4 packet whose header is changed in place. Reads as its [`Ipv4Header`].
#[derive(Debug)]
pub struct Ipv4Mut<'a> {
    header: &'a mut Ipv4Header,
    /// What follows the options.
    behind: &'a mut [u8],
    covering: Option<Covering>,
    open: bool,
}

impl<'a> Ipv4Mut<'a> {
    /// Views `bytes` as an IPv4 packet. `None` as [`ipv4_mut`](super::ipv4_mut).
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a mut [u8], open: bool) -> Option<Self> {
        let (header, behind): (&mut Ipv4Header, _) = front_mut(bytes)?;
        // Most have no options.
        let behind = if header.version_ihl == NO_OPTIONS { behind } else { behind_options(header, behind)? };
        let protocol = header.protocol();
        let covering = match checksum_at(protocol) {
            Some(at) if header.fragment_offset() == 0 => {
                if at + 2 > behind.len() {
                    return None;
                }
                Some(Covering { at, protocol, open })
            }
            _ => None,
        };
        Some(Self { header, behind, covering, open })
    }

    #[inline]
    fn address(&mut self, old: [u8; 4], new: [u8; 4]) {
        self.header.checksum.set(checksum::update_bytes(self.header.checksum.get(), &old, &new));
        if let Some(covering) = self.covering {
            covering.follow(self.behind, &old, &new);
        }
    }

    /// Sets the source address and the source port, as a translator of addresses (NAT) does on the way out: less work than one after
    /// the other. `false`, and nothing changed: no TCP or UDP (nor DCCP or UDP-Lite), or a fragment that is not the first.
    #[inline]
    #[must_use]
    pub fn translate_src(&mut self, to: impl Into<Ipv4Addr>, port: u16) -> bool {
        self.translate(false, to.into().octets(), port)
    }

    /// Sets the destination address and the destination port, as on the way back; as [`translate_src`](Self::translate_src).
    #[inline]
    #[must_use]
    pub fn translate_dst(&mut self, to: impl Into<Ipv4Addr>, port: u16) -> bool {
        self.translate(true, to.into().octets(), port)
    }

    /// Address and port, and what follows of them.
    #[inline]
    fn translate(&mut self, dst: bool, to: [u8; 4], port: u16) -> bool {
        let Some(covering) = self.covering else { return false };
        let field = if dst { &mut self.header.dst } else { &mut self.header.src };
        let change = Sum::of_change(field, &to);
        if !covering.translate(self.behind, 0, dst, port, change) {
            return false;
        }
        *field = to;
        self.header.checksum.set(change.update(self.header.checksum.get()));
        true
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, to: impl Into<Ipv4Addr>) {
        let (old, new) = (self.header.src, to.into().octets());
        self.header.src = new;
        self.address(old, new);
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, to: impl Into<Ipv4Addr>) {
        let (old, new) = (self.header.dst, to.into().octets());
        self.header.dst = new;
        self.address(old, new);
    }

    /// Changes a word of the header that no other checksum covers.
    #[inline]
    fn word(&mut self, old: [u8; 2], new: [u8; 2]) {
        let (old, new) = (u16::from_be_bytes(old), u16::from_be_bytes(new));
        self.header.checksum.set(checksum::update(self.header.checksum.get(), old, new));
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, to: u8) {
        let old = self.header.ttl;
        self.header.ttl = to;
        self.word([old, self.header.protocol], [to, self.header.protocol]);
    }

    /// Lowers the time to live by one, as a router does. `false`, and nothing changed, if it was 0 or 1.
    #[inline]
    pub fn decrement_ttl(&mut self) -> bool {
        self.header.decrement_ttl()
    }

    /// Sets the type of service: DSCP and ECN.
    #[inline]
    pub fn set_tos(&mut self, to: u8) {
        let old = self.header.tos;
        self.header.tos = to;
        self.word([self.header.version_ihl, old], [self.header.version_ihl, to]);
    }

    /// Sets the identification.
    #[inline]
    pub fn set_ident(&mut self, to: u16) {
        let old = self.header.ident.get();
        self.header.ident.set(to);
        self.word(old.to_be_bytes(), to.to_be_bytes());
    }

    #[inline]
    fn carried(&self) -> Option<IpProtocol> {
        Some(self.header.protocol())
    }

    /// Where behind the options the transport header stands, if it is one of `protocol` and this is no later fragment.
    #[inline]
    fn upper_at(&self, protocol: IpProtocol) -> Option<usize> {
        let is_there = self.header.protocol() == protocol && self.header.fragment_offset() == 0;
        is_there.then_some(0)
    }

    /// The ICMP header.
    #[inline]
    #[must_use]
    pub fn icmp_mut(&mut self) -> Option<IcmpMut<'_>> {
        IcmpMut::new(self.upper(IpProtocol::ICMP)?)
    }
}

transports!(Ipv4Mut);

impl Deref for Ipv4Mut<'_> {
    type Target = Ipv4Header;

    #[inline]
    fn deref(&self) -> &Ipv4Header {
        self.header
    }
}
