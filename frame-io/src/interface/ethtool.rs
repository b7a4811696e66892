//! What ethtool(8) shows of an interface: speed, duplex, forward error correction.
//!
//! Source: Linux `include/uapi/linux/ethtool.h`, `struct ethtool_link_settings` and `struct ethtool_fecparam`.

use std::io;
use std::os::fd::AsFd;

use super::Interface;
use crate::sys;

const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const ETHTOOL_GFECPARAM: u32 = 0x50;
const ETHTOOL_SFECPARAM: u32 = 0x51;
/// 32-bit words before the three masks of link modes, and most words of one mask (its count is an `__s8`).
const SETTINGS_WORDS: usize = 12;
const MASK_WORDS_MAX: usize = 127;
const FEC_WORDS: usize = 4;

/// The link as the interface's driver tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// Megabits per second.
    pub speed_mbps: Option<u32>,
    /// One end at a time may speak.
    pub half_duplex: bool,
    /// The speed was negotiated.
    pub autoneg: bool,
    /// The error corrections that it can use.
    pub fec: FecModes,
}

/// A set of forward error corrections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FecModes {
    /// None.
    pub off: bool,
    /// As both ends agree.
    pub auto: bool,
    /// Firecode.
    pub baser: bool,
    /// Reed-Solomon.
    pub rs: bool,
    /// Reed-Solomon with low latency.
    pub llrs: bool,
}

impl FecModes {
    /// `ETHTOOL_FEC_*_BIT`; `NONE` (bit 0) says that there is nothing to choose.
    fn from_bits(bits: u32) -> Self {
        let has = |bit: u32| bits >> bit & 1 == 1;
        Self { off: has(2), auto: has(1), baser: has(4), rs: has(3), llrs: has(5) }
    }

    fn bits(self) -> u32 {
        u32::from(self.auto) << 1
            | u32::from(self.off) << 2
            | u32::from(self.rs) << 3
            | u32::from(self.baser) << 4
            | u32::from(self.llrs) << 5
    }
}

impl LinkSettings {
    /// Of the kernel's answer, `mask_words` words a mask.
    fn decode(words: &[u32], mask_words: usize) -> Self {
        let [duplex, _port, _phy, autoneg] = words[2].to_ne_bytes();
        // The first mask is what the interface supports. Bits: `ETHTOOL_LINK_MODE_FEC_*_BIT`.
        let supports = |bit: usize| {
            bit / 32 < mask_words
                && words.get(SETTINGS_WORDS + bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)
        };
        let fec = FecModes {
            off: supports(49),
            auto: false,
            baser: supports(51),
            rs: supports(50),
            llrs: supports(74),
        };
        Self {
            // 0 and SPEED_UNKNOWN (-1) both say that nobody knows.
            speed_mbps: Some(words[1]).filter(|speed| ![0, u32::MAX].contains(speed)),
            half_duplex: duplex == 0,
            autoneg: autoneg == 1,
            fec,
        }
    }
}

impl Interface {
    /// Speed, duplex and what error correction there is.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` where the interface's driver does not tell.
    pub fn link_settings(&self) -> io::Result<LinkSettings> {
        let mut words = [0; SETTINGS_WORDS + 3 * MASK_WORDS_MAX];
        // Asked for masks of no words, the kernel answers with the right number, negative; asked for that, with the masks.
        self.ethtool(ETHTOOL_GLINKSETTINGS, &mut words)?;
        let [a, b, c, count] = words[3].to_ne_bytes();
        let mask_words = count.cast_signed().unsigned_abs();
        words[3] = u32::from_ne_bytes([a, b, c, mask_words]);
        self.ethtool(ETHTOOL_GLINKSETTINGS, &mut words)?;
        Ok(LinkSettings::decode(&words, mask_words.into()))
    }

    /// The error corrections asked for, and the one in use.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` where the interface has none.
    pub fn fec(&self) -> io::Result<(FecModes, FecModes)> {
        let mut words = [0; FEC_WORDS];
        self.ethtool(ETHTOOL_GFECPARAM, &mut words)?;
        Ok((FecModes::from_bits(words[2]), FecModes::from_bits(words[1])))
    }

    /// Asks for one of these error corrections.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` where the interface has none, `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_fec(&self, modes: FecModes) -> io::Result<()> {
        self.ethtool(ETHTOOL_SFECPARAM, &mut [0, 0, modes.bits(), 0])
    }

    pub(super) fn ethtool(&self, command: u32, words: &mut [u32]) -> io::Result<()> {
        words[0] = command;
        let name = self.current_name()?;
        sys::ethtool(self.socket.as_fd(), &name, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_the_kernels_bits() {
        let modes = FecModes { rs: true, auto: true, ..FecModes::default() };
        assert_eq!(modes.bits(), 0b1010);
        for bits in (0..64).step_by(2) {
            assert_eq!(FecModes::from_bits(bits).bits(), bits);
        }
        assert_eq!(FecModes::from_bits(1), FecModes::default(), "nothing to choose");
    }

    #[test]
    fn an_answer_is_taken_apart() {
        let mut words = [0; SETTINGS_WORDS + 9];
        words[1] = 100_000;
        words[2] = u32::from_ne_bytes([1, 0, 0, 1]);
        words[SETTINGS_WORDS + 1] = 1 << (50 - 32) | 1 << (49 - 32);
        words[SETTINGS_WORDS + 2] = 1 << (74 - 64);
        // What the other end advertises is none of ours.
        words[SETTINGS_WORDS + 4] = 1 << (51 - 32);
        let fec = FecModes { off: true, rs: true, llrs: true, ..FecModes::default() };
        let whole = LinkSettings { speed_mbps: Some(100_000), half_duplex: false, autoneg: true, fec };
        assert_eq!(LinkSettings::decode(&words, 3), whole);
        assert_eq!(LinkSettings::decode(&words, 1).fec, FecModes::default(), "a mask of one word ends there");
        words[1] = u32::MAX;
        words[2] = 0;
        let unknown = LinkSettings::decode(&words, 0);
        assert_eq!((unknown.speed_mbps, unknown.half_duplex, unknown.autoneg), (None, true, false));
    }
}
