//! VLAN tags: words for what the control handle sets.

/// Which of two tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VlanTagPlace {
    /// The one next to the addresses, of a frame with two.
    Outer,
    /// The other, and the only one.
    Inner,
}

/// Numbers of VLANs end there (IEEE 802.1Q).
pub(crate) const VLANS: u16 = 4096;
