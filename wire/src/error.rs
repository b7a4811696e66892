//! What can be wrong with bytes that claim to be a header.

use std::fmt;

/// The header that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// Ethernet.
    Ether,
    /// An 802.1Q or 802.1ad tag.
    Vlan,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// An IPv6 extension header.
    Ipv6Extension,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// RoCE's transport headers.
    Roce,
    /// A whole frame, where no one header is to blame.
    Frame,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Ether => "Ethernet",
            Layer::Vlan => "VLAN",
            Layer::Arp => "ARP",
            Layer::Ipv4 => "IPv4",
            Layer::Ipv6 => "IPv6",
            Layer::Ipv6Extension => "IPv6 extension",
            Layer::Icmp => "ICMP",
            Layer::Icmpv6 => "ICMPv6",
            Layer::Udp => "UDP",
            Layer::Tcp => "TCP",
            Layer::Roce => "RoCE",
            Layer::Frame => "frame",
        })
    }
}

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before the header, or what the header says follows it, does.
    #[error("{layer}: {needed} bytes needed, {given} given ({} missing)", .needed - .given)]
    Truncated {
        /// Header.
        layer: Layer,
        /// Bytes that the header and what it counts take.
        needed: usize,
        /// Bytes there were; always less than `needed`.
        given: usize,
    },
    /// A field has a value that the format does not allow.
    #[error("{layer}: {field} is {value}, allowed is {allowed}")]
    Field {
        /// Header.
        layer: Layer,
        /// Field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// What it may be.
        allowed: &'static str,
    },
    /// The buffer given to write into is too small.
    #[error("{layer}: {needed} bytes to write, room for {given}")]
    NoRoom {
        /// Header.
        layer: Layer,
        /// Bytes to be written.
        needed: usize,
        /// Bytes of room.
        given: usize,
    },
    /// A hash key too short for the longest input.
    #[error("Toeplitz key has {given} bytes, allowed is {min} to {max}")]
    KeyLength {
        /// Bytes of the key.
        given: usize,
        /// Fewest.
        min: usize,
        /// Most.
        max: usize,
    },
}

impl WireError {
    pub(crate) fn truncated(layer: Layer, needed: usize, given: usize) -> Self {
        debug_assert!(given < needed);
        WireError::Truncated { layer, needed, given }
    }
}
