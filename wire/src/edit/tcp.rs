//! A TCP header to be changed.

use std::ops::Deref;

use super::{data_changed, front_mut};
use crate::{IpProtocol, TcpFlags, TcpHeader};

/// A TCP header that is changed in place. Reads as [`TcpHeader`].
#[derive(Debug)]
pub struct TcpMut<'a> {
    header: &'a mut TcpHeader,
    open: bool,
}

impl<'a> TcpMut<'a> {
    /// Views the beginning of `bytes` as a TCP header; `None`: it is shorter.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a mut [u8], open: bool) -> Option<Self> {
        let (header, _) = front_mut(bytes)?;
        Some(Self { header, open })
    }

    #[inline]
    fn changed(&mut self, old: &[u8], new: &[u8]) {
        data_changed(&mut self.header.checksum, IpProtocol::TCP, self.open, old, new);
    }

    /// Sets the source port.
    #[inline]
    pub fn set_src_port(&mut self, to: u16) {
        let old = self.header.src_port.get();
        self.header.src_port.set(to);
        self.changed(&old.to_be_bytes(), &to.to_be_bytes());
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_dst_port(&mut self, to: u16) {
        let old = self.header.dst_port.get();
        self.header.dst_port.set(to);
        self.changed(&old.to_be_bytes(), &to.to_be_bytes());
    }

    /// Sets the sequence number of the first byte.
    #[inline]
    pub fn set_seq(&mut self, to: u32) {
        let old = self.header.seq.get();
        self.header.seq.set(to);
        self.changed(&old.to_be_bytes(), &to.to_be_bytes());
    }

    /// Sets the next sequence number expected from the other side.
    #[inline]
    pub fn set_ack(&mut self, to: u32) {
        let old = self.header.ack.get();
        self.header.ack.set(to);
        self.changed(&old.to_be_bytes(), &to.to_be_bytes());
    }

    /// Sets the receive window.
    #[inline]
    pub fn set_window(&mut self, to: u16) {
        let old = self.header.window.get();
        self.header.window.set(to);
        self.changed(&old.to_be_bytes(), &to.to_be_bytes());
    }

    /// Sets the flags.
    #[inline]
    pub fn set_flags(&mut self, to: TcpFlags) {
        let old = [self.header.data_offset, self.header.flags];
        self.header.flags = to.0;
        self.changed(&old, &[old[0], to.0]);
    }
}

impl Deref for TcpMut<'_> {
    type Target = TcpHeader;

    #[inline]
    fn deref(&self) -> &TcpHeader {
        self.header
    }
}
