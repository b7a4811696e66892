//! What a model is: which card, and what that card can do.
//!
//! | `device=` | card | PCI | inline at least | eMPW | striding | short completions |
//! |---|---|---|---|---|---|---|
//! | `cx4lx` | ConnectX-4 Lx | 1015 | layer 2 (18 bytes) | no | yes | hash, checksum |
//! | `cx5` | ConnectX-5 | 1017 | nothing | yes | yes | hash, checksum, stride index |
//! | `cx6dx` | ConnectX-6 Dx | 101d | nothing | yes | yes | the same, and flow tag |
//! | `cx7` | ConnectX-7 | 1021 | nothing | yes | yes | the same, and flow tag |
//!
//! PCI numbers are those of Linux `drivers/net/ethernet/mellanox/mlx5/core/main.c` (`mlx5_core_pci_table`); what the cards can
//! do is what DPDK's `doc/guides/nics/mlx5.rst` says of them. [`Features`] can be changed one by one, for tests: a card
//! with a wish list of its own is still one that a driver has to cope with.

use std::fmt;
use std::str::FromStr;

use crate::ModelError;

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

/// Bytes that each packet's send entry must carry. Source: Linux `include/linux/mlx5/device.h`, `MLX5_CAP_INLINE_MODE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinInline {
    /// The Ethernet header, with room for one tag.
    Layer2,
    /// None.
    Nothing,
}

/// What a card can do. Each may be there or not by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is something that a card has or lacks, on its own")]
pub struct Features {
    /// Bytes that each packet's send entry must carry.
    pub min_inline: MinInline,
    /// Enhanced multi-packet write.
    pub multi_packet: bool,
    /// Striding receive queues.
    pub striding: bool,
    /// Short completions.
    pub compression: bool,
    /// Short completions that name a flow tag, or the stride's index.
    pub compression_flow_tag: bool,
    /// Commands of user contexts: DevX.
    pub devx: bool,
    /// Its bus can combine writes: BlueFlame.
    pub blue_flame: bool,
    /// UARs of 4 KiB whatever the page size.
    pub uar_4k: bool,
    /// Highest version of completions: 0 or 1.
    pub cqe_version: u8,
    /// Completions of 128 bytes.
    pub cqe_128: bool,
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
            Self::ConnectX7 => 400_000,
        }
    }

    /// What the card can do.
    #[must_use]
    pub const fn features(self) -> Features {
        let newest = Features {
            min_inline: MinInline::Nothing,
            multi_packet: true,
            striding: true,
            compression: true,
            compression_flow_tag: true,
            devx: true,
            blue_flame: true,
            uar_4k: true,
            cqe_version: 1,
            cqe_128: true,
        };
        match self {
            Self::ConnectX4Lx => Features {
                min_inline: MinInline::Layer2,
                multi_packet: false,
                compression_flow_tag: false,
                ..newest
            },
            Self::ConnectX5 => Features { compression_flow_tag: false, ..newest },
            Self::ConnectX6Dx | Self::ConnectX7 => newest,
        }
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
        let oldest = Profile::ConnectX4Lx.features();
        assert_eq!(oldest.min_inline, MinInline::Layer2);
        assert!(!oldest.multi_packet);
        assert_eq!(Profile::ConnectX6Dx.features(), Profile::ConnectX7.features());
    }
}
