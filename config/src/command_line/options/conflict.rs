//! Options that contradict each other.

use super::EalOptions;
use crate::ConfigError;

/// Options that cannot be combined, by field: one of them on the command line sets aside the others in a profile.
pub(in crate::command_line) const RIVALS: [&[&str]; 8] = [
    &["lcores", "coremask"],
    &["service_corelist", "service_coremask"],
    &["memory_size", "numa_mem"],
    &["no_huge", "huge_dir"],
    &["no_huge", "numa_mem"],
    &["in_memory", "huge_dir"],
    &["telemetry", "no_telemetry"],
    &["allow", "block"],
];

impl EalOptions {
    /// The first pair that contradict each other. Pairs are DPDK's (`lib/eal/common/eal_common_options.c`,
    /// `eal_parse_args` and `eal_check_common_options`) and those that do so here.
    pub(super) fn check_conflicts(&self) -> Result<(), ConfigError> {
        let unlink = self.huge_unlink.as_deref();
        let always = unlink == Some("always");
        let idle = &self.idle;
        let pairs = [
            ("-l", self.lcores.is_some(), "-c", self.coremask.is_some(), "keep -l"),
            ("-S", self.service_corelist.is_some(), "-s", self.service_coremask.is_some(), "keep -S"),
            ("-m", self.memory_size.is_some(), "--numa-mem", self.numa_mem.is_some(), "keep one"),
            ("--no-huge", self.no_huge, "--numa-mem", self.numa_mem.is_some(), "use -m with --no-huge"),
            ("--no-huge", self.no_huge, "--huge-dir", self.huge_dir.is_some(), "keep one"),
            ("--no-huge", self.no_huge, "--huge-unlink", unlink.is_some(), "keep one"),
            ("--no-huge", self.no_huge, "--single-file-segments", idle.single_file_segments, "keep one"),
            ("--no-huge", self.no_huge, "--match-allocations", idle.match_allocations, "keep one"),
            ("--in-memory", self.in_memory, "--huge-dir", self.huge_dir.is_some(), "keep one"),
            ("--in-memory", self.in_memory, "--huge-unlink", unlink == Some("never"), "keep one"),
            ("--in-memory", self.in_memory, "--legacy-mem", idle.legacy_mem, "keep one"),
            ("--legacy-mem", idle.legacy_mem, "--match-allocations", idle.match_allocations, "keep one"),
            ("--legacy-mem", idle.legacy_mem, "--numa-limit", self.numa_limit.is_some(), "keep --numa-limit"),
            ("--single-file-segments", idle.single_file_segments, "--huge-unlink", always, "keep one"),
            ("--telemetry", self.telemetry, "--no-telemetry", self.no_telemetry, "keep one"),
            (
                "-a",
                !self.allow.is_empty(),
                "-b",
                !self.block.is_empty(),
                "only named devices are opened, so leave -b out",
            ),
            (
                "--no-pci",
                self.no_pci,
                "-a",
                !self.allow.is_empty(),
                "-a opens hardware; use --vdev for virtual devices",
            ),
        ];
        match pairs.into_iter().find(|(_, first, _, second, _)| *first && *second) {
            Some((first, _, second, _, mend)) => Err(ConfigError::conflict(first, second, mend)),
            None => Ok(()),
        }
    }
}
