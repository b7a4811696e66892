//! The signatures themselves: what stands behind a block of data.
//!
//! T10-DIF is 8 bytes, high byte first: a guard (a CRC of 16 bits, or the checksum of IP), an application tag, a reference tag. A CRC
//! is 4 or 8 bytes, low byte first, inverted at the end. Source for T10-DIF: Linux `block/t10-pi.c` and `crypto/crct10dif_common.c`. For
//! CRC32C: sroninio/spdk `module/accel/mlx5/accel_mlx5.c`, `accel_mlx5_crc_task_complete`, which takes what the card wrote in the host's
//! order and inverts it back; changchengx/irdma `crc32c/check_rdma_write_crc32c.c`, which compares it with a known one. That the other
//! two CRCs are stored likewise is taken from CRC32C: nobody says. Their polynomials: rdma-core
//! `providers/mlx5/man/mlx5dv_wr_set_mkey_sig_block.3.md`, which names FC-PH and XP10; Linux `lib/gen_crc64table.c` for the latter,
//! which NVMe has too.

/// What a signature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// T10-DIF with a CRC as guard.
    DifCrc,
    /// T10-DIF with the checksum of IP as guard.
    DifChecksum,
    Crc32,
    Crc32c,
    Crc64,
}

/// A signature's bytes as they stand in the data; of the short ones the first half.
pub(super) type Bytes = [u8; 8];

impl Kind {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::DifCrc | Self::DifChecksum | Self::Crc64 => 8,
            Self::Crc32 | Self::Crc32c => 4,
        }
    }

    pub(super) fn is_dif(self) -> bool {
        matches!(self, Self::DifCrc | Self::DifChecksum)
    }

    /// The signature of a block. `from` is what its variable was set to, `tag` what the reference tag is more by than that.
    pub(super) fn of(self, from: u64, tag: u32, data: &[u8]) -> Bytes {
        let mut bytes = [0; 8];
        match self {
            Self::DifCrc | Self::DifChecksum => {
                let seed = (from >> 48) as u16;
                let guard = if self == Self::DifCrc { crc16(seed, data) } else { checksum(seed, data) };
                bytes[..2].copy_from_slice(&guard.to_be_bytes());
                bytes[2..4].copy_from_slice(&((from >> 32) as u16).to_be_bytes());
                bytes[4..].copy_from_slice(&(from as u32).wrapping_add(tag).to_be_bytes());
            }
            Self::Crc32 | Self::Crc32c => {
                let table = if self == Self::Crc32 { &CRC32 } else { &CRC32C };
                bytes[..4].copy_from_slice(&(!crc(table, from >> 32, data) as u32).to_le_bytes());
            }
            Self::Crc64 => bytes = (!crc(&CRC64, from, data)).to_le_bytes(),
        }
        bytes
    }

    /// A signature as completions have it: in two words.
    pub(super) fn words(self, bytes: Bytes) -> (u32, u32) {
        let value = match self {
            Self::DifCrc | Self::DifChecksum => u64::from_be_bytes(bytes),
            Self::Crc32 | Self::Crc32c => u64::from_le_bytes(bytes) << 32,
            Self::Crc64 => u64::from_le_bytes(bytes),
        };
        ((value >> 32) as u32, value as u32)
    }
}

/// Tables of CRCs whose bits run from the lowest up, by their polynomials read so.
static CRC32: [u64; 256] = table(0xedb8_8320);
static CRC32C: [u64; 256] = table(0x82f6_3b78);
static CRC64: [u64; 256] = table(0x9a6c_9329_ac4b_c9b5);
/// That of T10-DIF, whose bits run from the highest down.
static CRC16: [u16; 256] = table16(0x8bb7);

const fn table(polynomial: u64) -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u64, 0);
        while bit < 8 {
            value = if value & 1 == 0 { value >> 1 } else { value >> 1 ^ polynomial };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

const fn table16(polynomial: u16) -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            value = if value >> 15 == 0 { value << 1 } else { value << 1 ^ polynomial };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

fn crc(table: &[u64; 256], seed: u64, data: &[u8]) -> u64 {
    data.iter().fold(seed, |value, byte| value >> 8 ^ table[usize::from(value as u8 ^ byte)])
}

fn crc16(seed: u16, data: &[u8]) -> u16 {
    data.iter().fold(seed, |value, byte| value << 8 ^ CRC16[usize::from((value >> 8) as u8 ^ byte)])
}

/// The checksum of IP, with a seed in the place of the sum before.
fn checksum(seed: u16, data: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum = u64::from(seed) + data.chunks(2).map(word).sum::<u64>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &[u8] = b"123456789";

    /// The values that catalogues of CRCs have for the nine digits; the long one of CRC32C is that of changchengx/irdma.
    #[test]
    fn they_are_the_known_ones() {
        assert_eq!(Kind::Crc32.of(0xffff_ffff << 32, 0, DIGITS)[..4], 0xcbf4_3926_u32.to_le_bytes());
        assert_eq!(Kind::Crc32c.of(0xffff_ffff << 32, 0, DIGITS)[..4], 0xe306_9283_u32.to_le_bytes());
        assert_eq!(Kind::Crc32c.of(0xffff_ffff << 32, 0, &[b'a'; 4096])[..4], 0x26c7_4ca2_u32.to_le_bytes());
        assert_eq!(Kind::Crc64.of(u64::MAX, 0, DIGITS), 0xae8b_1486_0a79_9888_u64.to_le_bytes());
        let dif = Kind::DifCrc.of(0xabcd_0123_4567, 3, DIGITS);
        assert_eq!(dif, [0xd0, 0xdb, 0xab, 0xcd, 0x01, 0x23, 0x45, 0x6a]);
        assert_eq!(Kind::DifCrc.of(0xffff << 48, 0, DIGITS)[..2], 0x8e3c_u16.to_be_bytes());
        // RFC 1071, 3.
        let sum = Kind::DifChecksum.of(0, 0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum[..2], (!0xddf2_u16).to_be_bytes());
    }

    #[test]
    fn completions_have_them_as_numbers() {
        assert_eq!(Kind::DifCrc.words([1, 2, 3, 4, 5, 6, 7, 8]), (0x0102_0304, 0x0506_0708));
        assert_eq!(Kind::Crc32.words([1, 2, 3, 4, 0, 0, 0, 0]), (0x0403_0201, 0));
        assert_eq!(Kind::Crc64.words([1, 2, 3, 4, 5, 6, 7, 8]), (0x0807_0605, 0x0403_0201));
    }
}
