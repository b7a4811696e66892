//! A UDP header to be changed.

use std::ops::Deref;

use super::{data_changed, front_mut};
use crate::{IpProtocol, UdpHeader};

/// A UDP header that is changed in place. Reads as [`UdpHeader`].
#[derive(Debug)]
pub struct UdpMut<'a> {
    header: &'a mut UdpHeader,
    open: bool,
}

impl<'a> UdpMut<'a> {
    /// Views the beginning of `bytes` as a UDP header; `None`: it is shorter.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a mut [u8], open: bool) -> Option<Self> {
        let (header, _) = front_mut(bytes)?;
        Some(Self { header, open })
    }

    #[inline]
    fn changed(&mut self, old: u16, new: u16) {
        let (old, new) = (old.to_be_bytes(), new.to_be_bytes());
        data_changed(&mut self.header.checksum, IpProtocol::UDP, self.open, &old, &new);
    }

    /// Sets the source port.
    #[inline]
    pub fn set_src_port(&mut self, to: u16) {
        let old = self.header.src_port.get();
        self.header.src_port.set(to);
        self.changed(old, to);
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_dst_port(&mut self, to: u16) {
        let old = self.header.dst_port.get();
        self.header.dst_port.set(to);
        self.changed(old, to);
    }
}

impl Deref for UdpMut<'_> {
    type Target = UdpHeader;

    #[inline]
    fn deref(&self) -> &UdpHeader {
        self.header
    }
}
