//! Numbers as the tables of librdmacm's tests have them. Source: rdma-core `librdmacm/examples/common.c`.

/// How often a test transfers so many bytes. Source: rdma-core `librdmacm/examples/common.c`, `size_to_count`.
#[must_use]
pub fn count_of(bytes: usize) -> u64 {
    match bytes {
        1_048_576.. => 100,
        65_536.. => 1000,
        1024.. => 10_000,
        _ => 100_000,
    }
}

/// Bytes as a table has them. Source: rdma-core `librdmacm/examples/common.c`, `size_str`.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    let (unit, letter) = match bytes {
        1_073_741_824.. => (1 << 30, "g"),
        1_048_576.. => (1 << 20, "m"),
        1024.. => (1 << 10, "k"),
        _ => (1, ""),
    };
    let (whole, tenths) = (bytes / unit, bytes % unit * 10 / unit);
    if whole < 10 && tenths > 0 { format!("{whole}.{tenths}{letter}") } else { format!("{whole}{letter}") }
}

/// A number as a table has it. Source: rdma-core `librdmacm/examples/common.c`, `cnt_str`.
#[must_use]
pub fn count_text(count: u64) -> String {
    match count {
        1_000_000_000.. => format!("{}b", count / 1_000_000_000),
        1_000_000.. => format!("{}m", count / 1_000_000),
        1000.. => format!("{}k", count / 1000),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_original() {
        assert_eq!([1536, 1 << 30, 192].map(size_text), ["1.5k", "1g", "192"]);
        assert_eq!([999, 1000, 2_500_000, 3_000_000_000].map(count_text), ["999", "1k", "2m", "3b"]);
        assert_eq!([64, 1023, 1024, 65_536, 1 << 20].map(count_of), [100_000, 100_000, 10_000, 1000, 100]);
    }
}
