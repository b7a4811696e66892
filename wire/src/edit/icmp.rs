//! ICMP headers to be changed. Their checksums are always whole.

use std::ops::Deref;

use super::front_mut;
use crate::{IcmpHeader, Icmpv6Header, checksum};

/// An ICMP header that is changed in place. Reads as [`IcmpHeader`].
#[derive(Debug)]
pub struct IcmpMut<'a> {
    header: &'a mut IcmpHeader,
}

impl<'a> IcmpMut<'a> {
    /// Views the beginning of `bytes` as an ICMP header; `None`: it is shorter.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a mut [u8]) -> Option<Self> {
        Some(Self { header: front_mut(bytes)?.0 })
    }

    #[inline]
    fn changed(&mut self, old: u16, new: u16) {
        self.header.checksum.set(checksum::update(self.header.checksum.get(), old, new));
    }

    /// Sets type and code: a request becomes a reply, say.
    #[inline]
    pub fn set_kind(&mut self, kind: u8, code: u8) {
        let old = u16::from_be_bytes([self.header.kind, self.header.code]);
        (self.header.kind, self.header.code) = (kind, code);
        self.changed(old, u16::from_be_bytes([kind, code]));
    }

    /// Sets the identifier of an echo message.
    #[inline]
    pub fn set_ident(&mut self, to: u16) {
        let old = self.header.ident.get();
        self.header.ident.set(to);
        self.changed(old, to);
    }

    /// Sets the sequence number of an echo message.
    #[inline]
    pub fn set_seq(&mut self, to: u16) {
        let old = self.header.seq.get();
        self.header.seq.set(to);
        self.changed(old, to);
    }
}

impl Deref for IcmpMut<'_> {
    type Target = IcmpHeader;

    #[inline]
    fn deref(&self) -> &IcmpHeader {
        self.header
    }
}

/// An ICMPv6 header that is changed in place. Reads as [`Icmpv6Header`].
#[derive(Debug)]
pub struct Icmpv6Mut<'a> {
    header: &'a mut Icmpv6Header,
}

impl<'a> Icmpv6Mut<'a> {
    /// Views the beginning of `bytes` as an ICMPv6 header; `None`: it is shorter.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a mut [u8]) -> Option<Self> {
        Some(Self { header: front_mut(bytes)?.0 })
    }

    /// Sets type and code.
    #[inline]
    pub fn set_kind(&mut self, kind: u8, code: u8) {
        let old = u16::from_be_bytes([self.header.kind, self.header.code]);
        (self.header.kind, self.header.code) = (kind, code);
        let new = u16::from_be_bytes([kind, code]);
        self.header.checksum.set(checksum::update(self.header.checksum.get(), old, new));
    }

    /// Sets the word behind the checksum: identifier and sequence number of an echo message.
    #[inline]
    pub fn set_word(&mut self, to: u32) {
        let old = self.header.word.get();
        self.header.word.set(to);
        let sum = self.header.checksum.get();
        self.header.checksum.set(checksum::update_bytes(sum, &old.to_be_bytes(), &to.to_be_bytes()));
    }
}

impl Deref for Icmpv6Mut<'_> {
    type Target = Icmpv6Header;

    #[inline]
    fn deref(&self) -> &Icmpv6Header {
        self.header
    }
}
