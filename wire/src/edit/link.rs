//! Ethernet, VLAN and ARP headers to be changed: no checksum covers them.

use std::net::Ipv4Addr;
use std::ops::Deref;

use super::{behind_tags, front_mut};
use crate::{Arp, ArpHeader, EtherHeader, EtherType, MacAddress, Tci, VlanHeader, arp};

/// The Ethernet header of a frame, to be changed; `None`: the frame is shorter than 14 bytes.
#[inline]
#[must_use]
pub fn ether_mut(frame: &mut [u8]) -> Option<EtherMut<'_>> {
    Some(EtherMut { header: front_mut(frame)?.0 })
}

/// The outermost VLAN tag of a frame; `None`: it has none.
#[inline]
#[must_use]
pub fn vlan_mut(frame: &mut [u8]) -> Option<VlanMut<'_>> {
    let (ether, behind): (&mut EtherHeader, _) = front_mut(frame)?;
    ether.ether_type().is_vlan().then(|| front_mut(behind)).flatten().map(|(header, _)| VlanMut { header })
}

/// The ARP packet of a frame; `None`: it has none for IPv4 over Ethernet.
#[inline]
#[must_use]
pub fn arp_mut(frame: &mut [u8]) -> Option<ArpMut<'_>> {
    let bytes = behind_tags(frame, EtherType::ARP)?;
    Arp::new(bytes).ok()?;
    Some(ArpMut { header: front_mut(bytes)?.0 })
}

/// An Ethernet header that is changed in place. Reads as [`EtherHeader`].
#[derive(Debug)]
pub struct EtherMut<'a> {
    header: &'a mut EtherHeader,
}

impl EtherMut<'_> {
    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, to: impl Into<MacAddress>) {
        self.header.src = to.into();
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, to: impl Into<MacAddress>) {
        self.header.dst = to.into();
    }

    /// Source becomes destination and destination source.
    #[inline]
    pub fn swap(&mut self) {
        std::mem::swap(&mut self.header.src, &mut self.header.dst);
    }
}

impl Deref for EtherMut<'_> {
    type Target = EtherHeader;

    #[inline]
    fn deref(&self) -> &EtherHeader {
        self.header
    }
}

/// A VLAN tag that is changed in place. Reads as [`VlanHeader`].
#[derive(Debug)]
pub struct VlanMut<'a> {
    header: &'a mut VlanHeader,
}

impl VlanMut<'_> {
    /// Sets priority, drop eligibility and id.
    #[inline]
    pub fn set_tci(&mut self, to: Tci) {
        self.header.tci.set(to.0);
    }

    /// Sets the VLAN id, of which 12 bits count.
    #[inline]
    pub fn set_id(&mut self, to: u16) {
        let tci = self.header.tci();
        self.set_tci(Tci::new(tci.priority(), tci.drop_eligible(), to));
    }

    /// Sets the priority, 0 to 7.
    #[inline]
    pub fn set_priority(&mut self, to: u8) {
        let tci = self.header.tci();
        self.set_tci(Tci::new(to, tci.drop_eligible(), tci.id()));
    }
}

impl Deref for VlanMut<'_> {
    type Target = VlanHeader;

    #[inline]
    fn deref(&self) -> &VlanHeader {
        self.header
    }
}

/// An ARP packet that is changed in place. Reads as [`ArpHeader`].
#[derive(Debug)]
pub struct ArpMut<'a> {
    header: &'a mut ArpHeader,
}

impl ArpMut<'_> {
    /// Turns a request into the reply that the station at `mac` gives.
    #[inline]
    pub fn set_reply(&mut self, mac: impl Into<MacAddress>) {
        let header = &mut *self.header;
        header.operation.set(arp::REPLY);
        header.target_mac = header.sender_mac;
        header.sender_mac = mac.into();
        std::mem::swap(&mut header.sender_ip, &mut header.target_ip);
    }

    /// Sets what the sender says of itself.
    #[inline]
    pub fn set_sender(&mut self, mac: impl Into<MacAddress>, ip: impl Into<Ipv4Addr>) {
        (self.header.sender_mac, self.header.sender_ip) = (mac.into(), ip.into().octets());
    }

    /// Sets whom it is for.
    #[inline]
    pub fn set_target(&mut self, mac: impl Into<MacAddress>, ip: impl Into<Ipv4Addr>) {
        (self.header.target_mac, self.header.target_ip) = (mac.into(), ip.into().octets());
    }
}

impl Deref for ArpMut<'_> {
    type Target = ArpHeader;

    #[inline]
    fn deref(&self) -> &ArpHeader {
        self.header
    }
}
