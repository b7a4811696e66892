//! The ports of a TCP or UDP header to be changed.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{checksum_at, data_changed, front_mut};
use crate::IpProtocol;

/// What TCP (RFC 9293, section 3.1) and UDP (RFC 768) begin with.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ports {
    src: U16,
    dst: U16,
}

/// The ports of a TCP or UDP header, changed in place: what a translator of addresses needs of either.
#[derive(Debug)]
pub struct PortsMut<'a> {
    ports: &'a mut Ports,
    checksum: &'a mut U16,
    protocol: IpProtocol,
    open: bool,
}

impl<'a> PortsMut<'a> {
    /// Views the beginning of `bytes` as a header of `protocol`. `None`: that is neither TCP nor UDP, or they end before its
    /// checksum.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a mut [u8], protocol: IpProtocol, open: bool) -> Option<Self> {
        if !matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) {
            return None;
        }
        let (ports, behind): (&mut Ports, _) = front_mut(bytes)?;
        let at = checksum_at(protocol)? - size_of::<Ports>();
        let (checksum, _) = front_mut(behind.get_mut(at..)?)?;
        Some(Self { ports, checksum, protocol, open })
    }

    /// The source port.
    #[inline]
    #[must_use]
    pub fn src(&self) -> u16 {
        self.ports.src.get()
    }

    /// The destination port.
    #[inline]
    #[must_use]
    pub fn dst(&self) -> u16 {
        self.ports.dst.get()
    }

    /// Sets the source port.
    #[inline]
    pub fn set_src(&mut self, to: u16) {
        let old = self.src();
        self.ports.src.set(to);
        self.changed(old, to);
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_dst(&mut self, to: u16) {
        let old = self.dst();
        self.ports.dst.set(to);
        self.changed(old, to);
    }

    #[inline]
    fn changed(&mut self, old: u16, new: u16) {
        data_changed(self.checksum, self.protocol, self.open, &old.to_be_bytes(), &new.to_be_bytes());
    }
}
