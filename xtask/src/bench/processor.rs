//! The processor that figures are of. Hypervisors hide its product's name, not its family.

/// What Linux tells of the processors; empty where it tells nothing.
pub(crate) fn cpuinfo() -> String {
    std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()
}

fn value<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    let pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}

/// Maker and family as CPUID has them, such as `AuthenticAMD family 26`.
pub(crate) fn name(cpuinfo: &str) -> String {
    let told = |key| value(cpuinfo, key).unwrap_or("unknown");
    format!("{} family {}", told("vendor_id"), told("cpu family"))
}

/// The same with the name it is sold under and its model.
pub(crate) fn full_name(cpuinfo: &str) -> String {
    let told = |key| value(cpuinfo, key).unwrap_or("unknown");
    format!("{} ({} model {})", told("model name"), name(cpuinfo), told("model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_named_by_maker_and_family() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\ncpu family\t: 1\n";
        assert_eq!(name(text), "AuthenticAMD family 26");
        assert_eq!(full_name(text), "AMD EPYC (AuthenticAMD family 26 model 2)");
        assert_eq!(name(""), "unknown family unknown");
    }
}
