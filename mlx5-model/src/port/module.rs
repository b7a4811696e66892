//! The module in the port's cage: a passive copper cable, and the memory by which it says so.
//!
//! Its memory is flat: two halves of 128 bytes, which are pages 0 of SFF-8636, and no other page. Source: SFF-8636 revision 2.10a,
//! sections 6.2 and 6.3, as DPDK `lib/ethdev/sff_8636.h` and ethtool `qsfp.h` name its bytes.

use pollux_mlx5_abi::command::register::{ext_link_mode, link_mode};
use zerocopy::{Immutable, IntoBytes, KnownLayout};

/// The lower half of a module's memory: what it is and how it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, KnownLayout)]
struct Lower {
    identifier: u8,
    revision: u8,
    status: u8,
    /// Flags, measurements and controls, of which a passive cable has none.
    monitors: [u8; 124],
    page_select: u8,
}

/// The upper half, page 0: what kind of cable it is, and who made it.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, KnownLayout)]
struct Upper {
    identifier: u8,
    extended_identifier: u8,
    connector: u8,
    compliance: [u8; 8],
    encoding: u8,
    /// In 100 MBd.
    baud: u8,
    extended_rate_select: u8,
    /// Of fibres: single mode, OM3, OM2, OM1.
    fibre_lengths: [u8; 4],
    /// In metres.
    length: u8,
    technology: u8,
    vendor: [u8; 16],
    extended_module: u8,
    oui: [u8; 3],
    part: [u8; 16],
    revision: [u8; 2],
    /// In dB, at 2.5, 5, 7 and 12.9 GHz.
    attenuation: [u8; 4],
    temperature_max: u8,
    base_checksum: u8,
    extended_compliance: u8,
    options: [u8; 3],
    serial: [u8; 16],
    /// Year, month, day, lot.
    date: [u8; 8],
    monitoring: u8,
    enhanced_options: u8,
    /// In 250 MBd, where `baud` is too small for it.
    baud_high: u8,
    extended_checksum: u8,
    vendor_specific: [u8; 32],
}

const _: () = assert!(size_of::<Lower>() == 128 && size_of::<Upper>() == 128);

/// Identifier of QSFP28 and later. Source: Linux `include/linux/mlx5/port.h`, `MLX5_MODULE_ID_QSFP28`; SFF-8024, table 4-1.
const QSFP28: u8 = 0x11;
/// SFF-8636 from revision 2.8 on.
const REVISION: u8 = 0x08;
/// Bit 2 of the status: page 0 alone.
const FLAT: u8 = 1 << 2;
/// A cable that does not come off. Source: DPDK `lib/ethdev/sff_8636.h`, `SFF_8636_CTOR_NO_SEPARABLE`.
const NO_SEPARABLE: u8 = 0x23;
/// In `compliance`: the extended code tells. Source: SFF-8636, table 6-17.
const EXTENDED: u8 = 1 << 7;
/// Source: DPDK `lib/ethdev/sff_8636.h`, `SFF_8636_ENCODING_64B66B`.
const ENCODING_64B66B: u8 = 0x05;
/// Copper without equalizer. Source: DPDK `lib/ethdev/sff_8636.h`, `SFF_8636_TRANS_COPPER_PAS_UNEQUAL`.
const COPPER_UNEQUALIZED: u8 = 10 << 4;
/// Extended codes. Source: SFF-8024, table 4-4; ethtool `sff-common.c` and `qsfp.c`, `sff8636_show_transceiver`.
mod code {
    pub(super) const CR4_100G: u8 = 0x0b;
    pub(super) const CR4_200G: u8 = 0x40;
}

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    bytes: [u8; 256],
    /// Lanes of it that the port uses.
    pub(crate) lanes: u8,
}

impl Module {
    /// The cable of a port with these link modes, to a card with this address, which is its serial number.
    pub(crate) fn cable((modes, extended): (u32, u32), mac: [u8; 6]) -> Self {
        let faster = extended & ext_link_mode::MODE_200GAUI_4_200GBASE_CR4_KR4 != 0;
        let four = faster || modes & (link_mode::MODE_40GBASE_CR4 | link_mode::MODE_100GBASE_CR4) != 0;
        let lower = Lower {
            identifier: QSFP28,
            revision: REVISION,
            status: FLAT,
            monitors: [0; 124],
            page_select: 0,
        };
        let mut serial = [b' '; 16];
        for (place, nibble) in serial.iter_mut().zip(mac.iter().flat_map(|byte| [byte >> 4, byte & 0xf])) {
            *place = b"0123456789ABCDEF"[usize::from(nibble)];
        }
        let mut upper = Upper {
            identifier: QSFP28,
            extended_identifier: 0,
            connector: NO_SEPARABLE,
            compliance: [EXTENDED, 0, 0, 0, 0, 0, 0, 0],
            encoding: ENCODING_64B66B,
            // More than 25.4 GBd: see below.
            baud: 0xff,
            extended_rate_select: 0,
            fibre_lengths: [0; 4],
            length: 1,
            technology: COPPER_UNEQUALIZED,
            vendor: *b"Pollux          ",
            extended_module: 0,
            oui: [0; 3],
            part: *b"MODEL-CABLE-1M  ",
            revision: *b"A ",
            attenuation: [3, 4, 6, 8],
            temperature_max: 70,
            base_checksum: 0,
            extended_compliance: if faster { code::CR4_200G } else { code::CR4_100G },
            options: [0; 3],
            serial,
            date: *b"260101  ",
            monitoring: 0,
            enhanced_options: 0,
            // 26.5625 GBd (PAM4) and 25.78125 GBd.
            baud_high: if faster { 106 } else { 103 },
            extended_checksum: 0,
            vendor_specific: [0; 32],
        };
        let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        upper.base_checksum = sum(&upper.as_bytes()[..63]);
        upper.extended_checksum = sum(&upper.as_bytes()[64..95]);
        let mut bytes = [0; 256];
        bytes[..128].copy_from_slice(lower.as_bytes());
        bytes[128..].copy_from_slice(upper.as_bytes());
        Self { bytes, lanes: if four { 4 } else { 1 } }
    }

    /// What stands on a page from `first` on; `None` where the module does not answer.
    pub(crate) fn read(&self, page: u32, first: usize, bytes: usize) -> Option<&[u8]> {
        // A flat memory has no register that selects a page, so one that is not there is refused by whoever would select it.
        (page == 0).then(|| self.bytes.get(first..first + bytes)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Profile;

    #[test]
    fn the_checksums_hold_and_names_are_text() {
        for profile in Profile::ALL {
            let module = Module::cable(profile.traits().link_modes, [2, 0, 0, 0, 0xab, 1]);
            let upper = module.read(0, 128, 128).expect("page 0");
            let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
            // Bytes 128 to 190 and 192 to 222, behind each its sum.
            assert_eq!((upper[63], upper[95]), (sum(&upper[..63]), sum(&upper[64..95])), "{profile}");
            assert_eq!(&upper[20..36], b"Pollux          ");
            assert_eq!(&upper[68..84], b"02000000AB01    ");
            assert_eq!(module.lanes, if profile == Profile::ConnectX4Lx { 1 } else { 4 });
        }
    }

    #[test]
    fn a_flat_memory_has_one_page() {
        let module = Module::cable((link_mode::MODE_100GBASE_CR4, 0), [0; 6]);
        assert_eq!(module.read(0, 0, 3), Some(&[QSFP28, REVISION, FLAT][..]));
        assert_eq!((module.read(1, 128, 1), module.read(3, 128, 128)), (None, None));
        assert_eq!((module.read(0, 255, 1), module.read(0, 255, 2)), (Some(&[0][..]), None));
    }
}
