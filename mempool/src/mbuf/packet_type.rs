//! What kind of packet it is, layer by layer.

/// The kind of packet: one nibble a layer. 0 in a nibble: not known.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketType(pub u32);

impl PacketType {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self(0);

    /// The layers that are set in `mask`.
    #[must_use]
    pub const fn masked(self, mask: u32) -> Self {
        Self(self.0 & mask)
    }
}
