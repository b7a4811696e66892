//! What depends on the processor that the device is plugged into.

/// Processors on which writes that may overtake each other bring nothing: Intel's Haswell and Broadwell, by their model numbers
/// of family 6. Source: DPDK `drivers/common/mlx5/mlx5_common.c`, `mlx5_is_haswell_broadwell_cpu`.
const IN_ORDER: [u32; 8] = [0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56];

/// Whether memory is worth registering for relaxed ordering of the device's writes on this machine.
pub(crate) fn gains_from_relaxed_ordering() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").map_or(true, |text| gains(&text))
}

/// The same, by what the kernel tells of the first processor.
fn gains(cpuinfo: &str) -> bool {
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    let value = |key: &str| {
        let named = |line: &&str| line.split(':').next().is_some_and(|name| name.trim() == key);
        first.lines().find(named).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    };
    let number = |key| value(key).and_then(|value| value.parse::<u32>().ok());
    let model = number("model").filter(|model| IN_ORDER.contains(model));
    !(value("vendor_id") == Some("GenuineIntel") && number("cpu family") == Some(6) && model.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn haswell_and_broadwell_gain_nothing() {
        for (vendor, family, model, expected) in [
            ("GenuineIntel", 6, 0x3f, false),
            ("GenuineIntel", 6, 0x4f, false),
            ("GenuineIntel", 6, 0x55, true),
            ("GenuineIntel", 15, 0x3f, true),
            ("AuthenticAMD", 6, 0x3f, true),
        ] {
            let text = format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: any\n\nprocessor\t: 1\n"
            );
            assert_eq!(gains(&text), expected, "{text}");
        }
        assert!(gains("") && gains("processor : 0\nmodel : x\n"), "what is not known may gain");
    }
}
