//! The frame check sequence, for queues that want it: wires carry frames without.

/// By byte: the remainder of the reflected polynomial. Source: IEEE 802.3, clause 3.2.9.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// The 4 bytes as they stand behind a frame.
pub(super) fn fcs(parts: &[&[u8]]) -> [u8; 4] {
    let mut value = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        value = TABLE[usize::from(value as u8 ^ byte)] ^ value >> 8;
    }
    (!value).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::fcs;

    #[test]
    fn the_check_value_of_the_standards_catalogue() {
        assert_eq!(fcs(&[b"1234", b"56789"]), 0xcbf4_3926_u32.to_le_bytes());
    }
}
