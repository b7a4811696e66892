//! What an IP header says of its payload. Source of the numbers: IANA, Assigned Internet Protocol Numbers.

use std::fmt;

/// What an IP payload is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: IpProtocol = IpProtocol(0);
    /// ICMP.
    pub const ICMP: IpProtocol = IpProtocol(1);
    /// IGMP.
    pub const IGMP: IpProtocol = IpProtocol(2);
    /// IPv4 in IP.
    pub const IPV4: IpProtocol = IpProtocol(4);
    /// TCP.
    pub const TCP: IpProtocol = IpProtocol(6);
    /// UDP.
    pub const UDP: IpProtocol = IpProtocol(17);
    /// IPv6 in IP.
    pub const IPV6: IpProtocol = IpProtocol(41);
    /// IPv6 routing header.
    pub const ROUTING: IpProtocol = IpProtocol(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: IpProtocol = IpProtocol(44);
    /// GRE.
    pub const GRE: IpProtocol = IpProtocol(47);
    /// Authentication header.
    pub const AUTHENTICATION: IpProtocol = IpProtocol(51);
    /// ICMPv6.
    pub const ICMPV6: IpProtocol = IpProtocol(58);
    /// Nothing follows.
    pub const NONE: IpProtocol = IpProtocol(59);
    /// IPv6 destination options.
    pub const DESTINATION: IpProtocol = IpProtocol(60);
    /// SCTP.
    pub const SCTP: IpProtocol = IpProtocol(132);
    /// IPv6 mobility header.
    pub const MOBILITY: IpProtocol = IpProtocol(135);
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpProtocol({})", self.0)
    }
}
