//! What an interface does to large frames when it sends them, as `ethtool -k` shows it and `ethtool -K` changes it.
//!
//! Source: Linux `include/uapi/linux/ethtool.h`, `struct ethtool_gfeatures`; the features' names: `net/ethtool/common.c`,
//! `netdev_features_strings`. Their places in the mask are the running kernel's own.

use std::io;

use super::Interface;
use super::statistics::{ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS, NAME_WORDS, STATISTICS_MAX};

const ETHTOOL_GFEATURES: u32 = 0x3a;
/// The set of strings that names features (`ETH_SS_FEATURES`).
const SET_FEATURES: u32 = 4;
/// Blocks of 32 features, of four words each: available, asked for, active, never changed.
pub(crate) const BLOCKS_MAX: usize = 8;
const BLOCK_WORDS: usize = 4;
const ACTIVE: usize = 2;

/// Which large frames an interface takes; of others it is to be given the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmenting {
    /// TCP, over IPv4 and IPv6.
    pub tcp: bool,
    /// UDP datagrams of one size.
    pub udp: bool,
}

/// Where the running kernel keeps the features that [`Segmenting`] is made of.
#[derive(Clone, Debug)]
pub struct FeaturePlaces {
    blocks: usize,
    tcp: [Option<usize>; 3],
    udp: Option<usize>,
}

impl Interface {
    /// Looks up where the kernel keeps features, once for any number of [`Interface::segmenting`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn feature_places(&self) -> io::Result<FeaturePlaces> {
        let mut info = [0, 0, 1 << SET_FEATURES, 0, 0];
        self.ethtool(ETHTOOL_GSSET_INFO, &mut info)?;
        let count = if info[2] == 0 { 0 } else { info[4] as usize };
        if count == 0 || count > 32 * BLOCKS_MAX {
            return Err(io::Error::other(format!("{count} features, 1 to {} can be read", 32 * BLOCKS_MAX)));
        }
        let mut names = vec![0; 3 + NAME_WORDS * STATISTICS_MAX];
        (names[1], names[2]) = (SET_FEATURES, count as u32);
        self.ethtool(ETHTOOL_GSTRINGS, &mut names)?;
        Ok(FeaturePlaces::find(&names[3..3 + NAME_WORDS * count]))
    }

    /// Which large frames it takes at present. One system call, two if it was renamed.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` when it is gone.
    pub fn segmenting(&self, places: &FeaturePlaces) -> io::Result<Segmenting> {
        let mut words = [0; 2 + BLOCK_WORDS * BLOCKS_MAX];
        words[1] = places.blocks as u32;
        self.ethtool(ETHTOOL_GFEATURES, &mut words)?;
        Ok(places.read(&words[2..]))
    }
}

impl FeaturePlaces {
    fn find(names: &[u32]) -> Self {
        let (names, _) = names.as_chunks::<NAME_WORDS>();
        let place = |wanted: &str| {
            names.iter().position(|name| {
                let bytes = name.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0);
                bytes.eq(wanted.bytes())
            })
        };
        Self {
            blocks: names.len().div_ceil(32),
            tcp: ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"].map(place),
            udp: place("tx-udp-segmentation"),
        }
    }

    fn read(&self, blocks: &[u32]) -> Segmenting {
        let active = |place: Option<usize>| {
            place.is_some_and(|bit| {
                blocks.get(bit / 32 * BLOCK_WORDS + ACTIVE).is_some_and(|word| word >> (bit % 32) & 1 == 1)
            })
        };
        Segmenting { tcp: self.tcp.into_iter().all(active), udp: active(self.udp) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_features_are_found_by_name() {
        let mut names = vec![0; NAME_WORDS * 40];
        for (bit, name) in [
            (3, "tx-tcp-segmentation"),
            (35, "tx-tcp6-segmentation"),
            (36, "tx-tcp-ecn-segmentation"),
            (37, "tx-udp-segmentation"),
            (4, "tx-tcp-mangleid-segmentation"),
        ] {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(32, 0);
            for (word, four) in names[NAME_WORDS * bit..].iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = u32::from_ne_bytes(*four);
            }
        }
        let places = FeaturePlaces::find(&names);
        assert_eq!(places.blocks, 2);
        let mut blocks = [0_u32; 8];
        // Available and asked for say nothing.
        (blocks[0], blocks[1], blocks[4], blocks[5]) = (!0, !0, !0, !0);
        assert_eq!(places.read(&blocks), Segmenting { tcp: false, udp: false });
        (blocks[ACTIVE], blocks[BLOCK_WORDS + ACTIVE]) = (1 << 3, 1 << 3 | 1 << 5);
        assert_eq!(places.read(&blocks), Segmenting { tcp: false, udp: true }, "no ECN");
        blocks[BLOCK_WORDS + ACTIVE] |= 1 << 4;
        assert_eq!(places.read(&blocks), Segmenting { tcp: true, udp: true });
    }

    #[test]
    fn the_loopback_takes_large_frames() {
        let loopback = Interface::find("lo").expect("every namespace has one");
        let places = loopback.feature_places().expect("features have names");
        let segmenting = loopback.segmenting(&places).expect("an interface has features");
        // Fixed on where the driver is (`drivers/net/loopback.c`, NETIF_F_GSO_SOFTWARE).
        assert!(segmenting.tcp && segmenting.udp, "{segmenting:?}");
    }
}
