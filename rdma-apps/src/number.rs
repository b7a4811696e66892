//! Numbers that options of RDMA programs take, as C programs read them; each refusal is what clap puts behind the option.

/// A whole number, decimal or hexadecimal behind `0x`.
///
/// # Errors
/// A sentence when it is none.
pub fn number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "is not a whole number, such as 64 or 0x40".into())
}

/// A whole number from `least` to `most`.
///
/// # Errors
/// A sentence when it is none.
pub fn within(text: &str, least: u64, most: u64) -> Result<u64, String> {
    number(text)
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("is not a whole number from {least} to {most}"))
}

/// Bytes of a message, also as `4K` or `1M`: up to what one message may hold.
///
/// # Errors
/// A sentence when it is none.
pub fn size(text: &str) -> Result<u64, String> {
    /// InfiniBand's longest message (IBTA 1.4, 9.2: DMA length of 2^31).
    const MOST: u64 = 1 << 31;
    let (digits, unit) = match text.as_bytes() {
        [.., b'K'] => (&text[..text.len() - 1], 1024),
        [.., b'M'] => (&text[..text.len() - 1], 1024 * 1024),
        _ => (text, 1),
    };
    number(digits)
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| (1..=MOST).contains(bytes))
        .ok_or_else(|| format!("is not a number of bytes from 1 to {MOST}, such as 64, 4K or 1M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_programs_do() {
        assert_eq!(number("64"), Ok(64));
        assert_eq!(number("0x40"), Ok(64));
        assert!(
            number("").is_err() && number("-1").is_err() && number("0x").is_err() && number("6 4").is_err()
        );
        assert_eq!(within("5", 5, 5), Ok(5));
        assert_eq!(within("6", 1, 5), Err("is not a whole number from 1 to 5".into()));
        assert_eq!((size("4K"), size("1M"), size("2")), (Ok(4096), Ok(1 << 20), Ok(2)));
        assert!(size("0").is_err() && size("3000M").is_err() && size("K").is_err() && size("").is_err());
    }
}
