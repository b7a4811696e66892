//! What kind of packet it is, layer by layer.

/// The kind of packet: a number for each layer, in the bits of `RTE_PTYPE_*`. 0: not known.
///
/// A port that finds it out sets it; in software, the parser of the `wire` crate gives the same bits.
/// Source: DPDK `lib/mbuf/rte_mbuf_ptype.h` at 38f72e5.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketType(pub u32);

impl PacketType {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self(0);
    /// Mask of layer 2.
    pub const L2_MASK: u32 = 0x0000_000f;
    /// Mask of layer 3.
    pub const L3_MASK: u32 = 0x0000_00f0;
    /// Mask of layer 4.
    pub const L4_MASK: u32 = 0x0000_0f00;
    /// Mask of the tunnel.
    pub const TUNNEL_MASK: u32 = 0x0000_f000;
    /// Mask of layer 2 inside the tunnel.
    pub const INNER_L2_MASK: u32 = 0x000f_0000;
    /// Mask of layer 3 inside the tunnel.
    pub const INNER_L3_MASK: u32 = 0x00f0_0000;
    /// Mask of layer 4 inside the tunnel.
    pub const INNER_L4_MASK: u32 = 0x0f00_0000;

    /// The layers in `mask`.
    #[inline]
    #[must_use]
    pub const fn layers(self, mask: u32) -> u32 {
        self.0 & mask
    }

    /// Whether it is a tunnelled packet.
    #[inline]
    #[must_use]
    pub const fn is_tunnel(self) -> bool {
        self.0 & (Self::TUNNEL_MASK | Self::INNER_L2_MASK | Self::INNER_L3_MASK | Self::INNER_L4_MASK) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::PacketType;

    /// The masks as `RTE_PTYPE_*_MASK` has them, and the macro `RTE_ETH_IS_TUNNEL_PKT`.
    #[test]
    fn masks_are_those_of_dpdk() {
        let masks = [
            (PacketType::L2_MASK, 0x0000_000f),
            (PacketType::L3_MASK, 0x0000_00f0),
            (PacketType::L4_MASK, 0x0000_0f00),
            (PacketType::TUNNEL_MASK, 0x0000_f000),
            (PacketType::INNER_L2_MASK, 0x000f_0000),
            (PacketType::INNER_L3_MASK, 0x00f0_0000),
            (PacketType::INNER_L4_MASK, 0x0f00_0000),
        ];
        for (ours, dpdk) in masks {
            assert_eq!(ours, dpdk);
            assert_eq!(PacketType(dpdk).is_tunnel(), dpdk > 0xfff, "0x{dpdk:x}");
        }
        // RTE_PTYPE_ALL_MASK.
        assert_eq!(masks.iter().fold(0, |all, (mask, _)| all | mask), 0x0fff_ffff);
        let vxlan = PacketType(0x0120_3211);
        assert_eq!(
            (vxlan.layers(PacketType::TUNNEL_MASK), vxlan.layers(PacketType::L4_MASK)),
            (0x3000, 0x200)
        );
    }
}
