//! What depends on the processor that the device is plugged into.

use pollux_eal::processor::Processor;

/// Processors on which writes that may overtake each other bring nothing: Intel's Haswell and Broadwell, by their model numbers
/// of family 6. Source: DPDK `drivers/common/mlx5/mlx5_common.c`, `mlx5_is_haswell_broadwell_cpu`.
const IN_ORDER: [u32; 8] = [0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56];

/// Whether memory is worth registering for relaxed ordering of the device's writes on this machine. What is not known may gain.
pub fn gains_from_relaxed_ordering() -> bool {
    Processor::first().is_none_or(gains)
}

fn gains(processor: &Processor) -> bool {
    !(processor.vendor == "GenuineIntel" && processor.family == 6 && IN_ORDER.contains(&processor.model))
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
            let processor = Processor { vendor: vendor.into(), family, model };
            assert_eq!(gains(&processor), expected, "{processor:?}");
        }
    }
}
