//! The limit on locked memory.

/// The limit in bytes; `None` when there is none, or nobody tells.
pub(crate) fn limit() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

/// Source: proc(5), `/proc/pid/limits`.
fn parse(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_soft_limit_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             1                    2                    processes \n\
                    Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(super::parse(text), Some(8_388_608));
        assert_eq!(super::parse(&text.replace("8388608", "unlimited")), None);
        assert_eq!(super::parse(""), None);
    }
}
