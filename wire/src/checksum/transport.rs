//! What the checksum field of TCP or UDP holds, and how it follows a change of the packet.

use super::Sum;
use crate::IpProtocol;

/// What the checksum field of a TCP or UDP header holds.
///
/// | state | the field | an address changes | a port or the payload changes |
/// |---|---|---|---|
/// | `Whole` | the checksum | updated (RFC 1624) | updated |
/// | `Open` | the sum of the pseudo-header, not complemented | updated | stays: the rest is summed later |
/// | `Absent` | 0, UDP's "no checksum" (RFC 768) | stays | stays |
///
/// A packet from a sender on the same machine, or joined of several, is open: whoever sends it on to a wire completes it. Source:
/// virtio 1.2, section 5.1.6.2 (`VIRTIO_NET_HDR_F_NEEDS_CSUM`); Linux `include/linux/skbuff.h`, `CHECKSUM_PARTIAL`.
///
/// ```
/// use pollux_wire::{IpProtocol, checksum::TransportSum};
///
/// // A UDP packet whose source address is translated; the field was read from its header.
/// let (old, new) = ([10, 0, 0, 1], [192, 0, 2, 7]);
/// let open = false;
/// let field = 0;
/// let state = TransportSum::of(IpProtocol::UDP, field, open);
/// assert_eq!(state, TransportSum::Absent);
/// assert_eq!(state.address_changed(field, &old, &new), 0, "no checksum before, none after");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportSum {
    /// All of it.
    Whole,
    /// The pseudo-header's part of it.
    Open,
    /// None.
    Absent,
}

impl TransportSum {
    /// What `field` holds in a header of `protocol`; `open`: the checksum is still to be completed, as the packet's flags say
    /// (`pollux_port::PacketMut` asks an mbuf).
    #[inline]
    #[must_use]
    pub fn of(protocol: IpProtocol, field: u16, open: bool) -> Self {
        if open {
            Self::Open
        } else if protocol == IpProtocol::UDP && field == 0 {
            Self::Absent
        } else {
            Self::Whole
        }
    }

    /// The field after the sum of the addresses changed by `address` and that of what is behind the IP header by `data`: sums of the
    /// new bytes less those of the old ones.
    #[inline]
    #[must_use]
    pub fn changed(self, field: u16, address: Sum, data: Sum) -> u16 {
        match self {
            // One after the other: what the address comes to is folded once, for the IPv4 header's checksum too.
            Self::Whole => match data.update(address.update(field)) {
                0 => 0xffff,
                sum => sum,
            },
            // The sum of something is never 0 in ones' complement: what is open stays apart from what is absent.
            Self::Open => (Sum::ZERO.add_word(field) + address).fold(),
            Self::Absent => field,
        }
    }

    /// The field after bytes of the pseudo-header, that is addresses, changed from `old` to `new`, of equal and even length.
    ///
    /// # Panics
    /// In debug builds, if the lengths differ.
    #[inline]
    #[must_use]
    pub fn address_changed(self, field: u16, old: &[u8], new: &[u8]) -> u16 {
        self.changed(field, Sum::of_change(old, new), Sum::ZERO)
    }

    /// The field after bytes behind the IP header, that is ports, options or payload, changed from `old` to `new`, of equal and
    /// even length, at an even offset.
    ///
    /// # Panics
    /// In debug builds, if the lengths differ.
    #[inline]
    #[must_use]
    pub fn data_changed(self, field: u16, old: &[u8], new: &[u8]) -> u16 {
        match self {
            Self::Whole => self.changed(field, Sum::ZERO, Sum::of_change(old, new)),
            Self::Open | Self::Absent => field,
        }
    }
}
