//! The frame check sequence, for queues that want it: wires carry frames without.

use crc32fast::Hasher;

/// The 4 bytes as they stand behind a frame. Source: IEEE 802.3, clause 3.2.9.
pub(super) fn fcs(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::fcs;

    #[test]
    fn the_check_value_of_the_standards_catalogue() {
        assert_eq!(fcs(&[b"1234", b"56789"]), 0xcbf4_3926_u32.to_le_bytes());
    }
}
