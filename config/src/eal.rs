//! What one EAL is made of.

use std::path::PathBuf;

use crate::{DeviceSpec, LcoreMap, LcoreSet, LogSpec};

/// All EAL options of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EalSpec {
    /// `-l`; `None`: one lcore per CPU in the process's affinity mask.
    pub lcores: Option<LcoreMap>,
    /// `--main-lcore`; `None`: the lowest lcore.
    pub main_lcore: Option<u16>,
    /// `-S`: service cores.
    pub service_lcores: LcoreSet,
    /// Memory.
    pub memory: MemorySpec,
    /// `--iova-mode`.
    pub iova: IovaMode,
    /// Process type and file prefix.
    pub process: ProcessSpec,
    /// Logging options.
    pub log: LogSpec,
    /// `--telemetry`, `--no-telemetry`; `None`: the application decides. `bringup` has it on; an `Eal` made without it has the commands
    /// and no socket.
    pub telemetry: Option<bool>,
    /// Devices to open and devices to block.
    pub devices: DeviceSpec,
    /// Mbuf pool options.
    pub pools: PoolSpec,
    /// `--force-max-simd-bitwidth`: maximum SIMD bitwidth; 0 is unlimited.
    pub simd_bits_max: u32,
}

/// Mbuf pool options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSpec {
    /// `--mbuf-pool-ops-name`: DPDK name of the mempool backend; `None`: the default.
    pub backend: Option<String>,
    /// `--mempool-debug`: detect double frees and overruns.
    pub debug: bool,
}

/// Memory options. Sizes are in MiB, as in DPDK.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySpec {
    /// `-m`: memory to reserve at startup.
    pub initial_mib: Option<u64>,
    /// `--numa-mem`: memory to reserve at startup on each NUMA node, node 0 first.
    pub numa_mib: Vec<u64>,
    /// `--numa-limit`: limit of each NUMA node; 0 is unlimited.
    pub numa_limit_mib: Vec<u64>,
    /// `--no-huge`: use regular pages instead of hugepages.
    pub no_huge: bool,
    /// `--huge-dir`: hugetlbfs mount point to use.
    pub huge_dir: Option<PathBuf>,
    /// `--huge-unlink`.
    pub huge_unlink: HugeUnlink,
    /// `--in-memory`: create no files.
    pub in_memory: bool,
}

/// When hugepage files are unlinked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugeUnlink {
    /// At startup, those left by earlier runs.
    #[default]
    Existing,
    /// Always: each one as soon as it is mapped.
    Always,
    /// Never.
    Never,
}

/// IOVA mode: the kind of address given to devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IovaMode {
    /// Chosen from the devices; all current devices use virtual addresses.
    #[default]
    Auto,
    /// Virtual addresses.
    Virtual,
    /// Physical addresses.
    Physical,
}

/// Process type and file prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// `--proc-type`.
    pub kind: ProcessType,
    /// `--file-prefix`: processes with different prefixes share nothing.
    pub file_prefix: String,
}

impl ProcessSpec {
    /// Whether a text may be a file prefix.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_file_prefix(text: &str) -> Result<(), &'static str> {
        if matches!(text, "" | "." | "..") || text.contains(['/', '%', '\0']) {
            return Err("must not be empty, '.' or '..', or contain '/' or '%': it becomes a file name");
        }
        Ok(())
    }
}

impl Default for ProcessSpec {
    fn default() -> Self {
        Self { kind: ProcessType::default(), file_prefix: "rte".into() }
    }
}

/// Process type. Secondary processes are not supported and are rejected by the parser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessType {
    /// Primary process: it owns its memory.
    #[default]
    Primary,
    /// Always primary, since secondary processes are not supported.
    Auto,
}
