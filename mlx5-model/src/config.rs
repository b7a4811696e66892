//! What a model is: which card, and what that card can do.
//!
//! | `device=` | card | PCI | Gbit/s | inline at least | VLAN inserted | eMPW | strides of an entry | stride index in short completions | flow tag, header types there | tunnels that it knows | finds what entries leave out |
//! |---|---|---|---|---|---|---|---|---|---|---|---|
//! | `cx4lx` | ConnectX-4 Lx | 1015 | 25 | layer 2 (18 bytes) | no | no | 512 and more | no | no | VXLAN, GRE | no |
//! | `cx5` | ConnectX-5 | 1017 | 100 | nothing | yes | yes | 512 and more | yes | no | VXLAN, GRE, Geneve | yes |
//! | `cx6dx` | ConnectX-6 Dx | 101d | 100 | nothing | yes | yes | 8 and more | yes | yes | VXLAN, GRE, Geneve, IP in IP | yes |
//! | `cx7` | ConnectX-7 | 1021 | 200 | nothing | yes | yes | 8 and more | yes | yes | VXLAN, GRE, Geneve, IP in IP | yes |
//!
//! PCI numbers are those of Linux `drivers/net/ethernet/mellanox/mlx5/core/main.c` (`mlx5_core_pci_table`); what the cards can
//! do is what DPDK's `doc/guides/nics/mlx5.rst` says of them. [`Traits`] can be changed one by one, for tests: a card
//! with a wish list of its own is still one that a driver has to cope with.

use std::fmt;
use std::str::FromStr;

use pollux_mlx5_abi::command::register::{ext_link_mode, link_mode};

use crate::ModelError;
use crate::card::Traits;

/// Which card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// `cx4lx`
    ConnectX4Lx,
    /// `cx5`
    ConnectX5,
    /// `cx6dx`
    #[default]
    ConnectX6Dx,
    /// `cx7`
    ConnectX7,
}

impl Profile {
    /// All of them, oldest first.
    pub const ALL: [Self; 4] = [Self::ConnectX4Lx, Self::ConnectX5, Self::ConnectX6Dx, Self::ConnectX7];

    /// As the device argument says it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ConnectX4Lx => "cx4lx",
            Self::ConnectX5 => "cx5",
            Self::ConnectX6Dx => "cx6dx",
            Self::ConnectX7 => "cx7",
        }
    }

    /// PCI device number; the vendor is 15b3.
    #[must_use]
    pub const fn pci_device(self) -> u16 {
        match self {
            Self::ConnectX4Lx => 0x1015,
            Self::ConnectX5 => 0x1017,
            Self::ConnectX6Dx => 0x101d,
            Self::ConnectX7 => 0x1021,
        }
    }

    /// Firmware version: major, minor, subminor. The major number tells the cards apart.
    #[must_use]
    pub const fn firmware(self) -> (u16, u16, u16) {
        match self {
            Self::ConnectX4Lx => (14, 32, 1010),
            Self::ConnectX5 => (16, 35, 3006),
            Self::ConnectX6Dx => (22, 41, 1000),
            Self::ConnectX7 => (28, 41, 1000),
        }
    }

    /// Speed of the port, in Mbit/s.
    #[must_use]
    pub const fn speed_mbps(self) -> u32 {
        match self {
            Self::ConnectX4Lx => 25_000,
            Self::ConnectX5 | Self::ConnectX6Dx => 100_000,
            Self::ConnectX7 => 200_000,
        }
    }

    /// Board id (PSID) of a card of the kind.
    #[must_use]
    pub const fn board(self) -> &'static str {
        match self {
            Self::ConnectX4Lx => "MT_2420110034",
            Self::ConnectX5 => "MT_0000000080",
            Self::ConnectX6Dx => "MT_0000000359",
            Self::ConnectX7 => "MT_0000000838",
        }
    }

    /// The same, filled up with zeros.
    fn psid(self) -> [u8; 16] {
        let mut psid = [0; 16];
        let board = self.board().as_bytes();
        psid[..board.len()].copy_from_slice(board);
        psid
    }

    const fn link_modes(self) -> (u32, u32) {
        match self {
            Self::ConnectX4Lx => (link_mode::MODE_25GBASE_CR, ext_link_mode::MODE_25GAUI_1_25GBASE_CR_KR),
            Self::ConnectX5 | Self::ConnectX6Dx => (
                link_mode::MODE_25GBASE_CR | link_mode::MODE_40GBASE_CR4 | link_mode::MODE_100GBASE_CR4,
                ext_link_mode::CAUI_4_100GBASE_CR4_KR4,
            ),
            Self::ConnectX7 => (
                link_mode::MODE_100GBASE_CR4,
                ext_link_mode::CAUI_4_100GBASE_CR4_KR4 | ext_link_mode::MODE_200GAUI_4_200GBASE_CR4_KR4,
            ),
        }
    }

    /// What the card can do.
    #[must_use]
    pub fn traits(self) -> Traits {
        let old = self == Self::ConnectX4Lx;
        let new = matches!(self, Self::ConnectX6Dx | Self::ConnectX7);
        Traits {
            pci_device: self.pci_device(),
            psid: self.psid(),
            mini_cqe_stride_index: !old,
            mini_cqe_tags: new,
            // Source: Linux's commit 2c925db0a7d6, "net/mlx5e: Support enhanced CQE compression": measured on a ConnectX-6 Dx.
            enhanced_cqe_compression: new,
            // Assumed, so that drivers meet a card without: no public source tells which cards have the key.
            dump_fill_key: !old,
            // Source: DPDK's guide `mlx5.rst`, "LRO", requirements: from ConnectX-5 on.
            lro: !old,
            short_striding: new,
            // Source: Linux's merge of "mlx5e-pedit" (header rewrite of ConnectX-5); DPDK's guide `mlx5.rst`, "Supported hardware
            // offloads", encapsulation and header rewrite: from ConnectX-5 on.
            change_packets: !old,
            // Source: DPDK's guide `mlx5.rst`, "GENEVE", requirements: from ConnectX-5 on.
            geneve: !old,
            // Assumed: no public source tells which cards have it; that of `saeedtx/mlx5ctl:README.md` does, which names none.
            ip_in_ip: new,
            // Source: DPDK `drivers/net/mlx5/mlx5_tx.h`, `txq_mbuf_to_swp`: since ConnectX-5. What entries say all cards take (guide
            // `mlx5.rst`, "TSO" and "L3/L4 Checksums Offloading": generic tunnels from ConnectX-4 on).
            parser_complements: !old,
            // Assumed: no public source tells which cards have it; those that tell of it tell of ConnectX-6 Dx and later.
            ece: new,
            // Assumed, as above.
            data_in_order: !old,
            enhanced_multi_packet: !old,
            needs_inline_l2: old,
            vlan_insert: !old,
            link_modes: self.link_modes(),
            ..Traits::default()
        }
    }
}

impl Traits {
    /// Speed of the card that these are of, in kbit/s.
    pub(crate) fn speed_kbps(&self) -> u32 {
        self.profile().speed_mbps() * 1000
    }

    fn profile(&self) -> Profile {
        let profile = Profile::ALL.into_iter().find(|profile| profile.pci_device() == self.pci_device);
        profile.unwrap_or_default()
    }

    /// Firmware version of the card that these are of, by its device number: major, minor, subminor.
    pub(crate) fn firmware(&self) -> (u16, u16, u16) {
        self.profile().firmware()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Profile {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        Self::ALL.into_iter().find(|profile| profile.word() == text).ok_or_else(|| ModelError::Setting {
            key: "device",
            value: text.into(),
            allowed: format!("is not one of {}", Self::ALL.map(Self::word).join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_go_by_their_words() {
        for profile in Profile::ALL {
            assert_eq!(profile.to_string().parse::<Profile>().expect("known"), profile);
        }
        assert_eq!(
            "cx3".parse::<Profile>().expect_err("unknown").to_string(),
            "device=cx3: is not one of cx4lx, cx5, cx6dx, cx7"
        );
    }

    #[test]
    fn the_oldest_card_can_least() {
        let oldest = Profile::ConnectX4Lx.traits();
        assert!(oldest.needs_inline_l2 && !oldest.enhanced_multi_packet);
        assert_eq!(Profile::default().traits().pci_device, Traits::default().pci_device);
    }
}
