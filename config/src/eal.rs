//! What one EAL is made of.

use std::path::PathBuf;

use crate::{DeviceSpec, LcoreMap, LcoreSet, LogSpec};

/// Everything that the EAL half of a command line can say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EalSpec {
    /// `-l`; none: one lcore for each CPU that the process may run on.
    pub lcores: Option<LcoreMap>,
    /// `--main-lcore`; none: the lowest.
    pub main_lcore: Option<u16>,
    /// `-S`: lcores that run services.
    pub service_lcores: LcoreSet,
    /// Memory.
    pub memory: MemorySpec,
    /// `--iova-mode`.
    pub iova: IovaMode,
    /// Names that this process goes by.
    pub process: ProcessSpec,
    /// The log.
    pub log: LogSpec,
    /// `--telemetry`, `--no-telemetry`; none: as the app likes.
    pub telemetry: Option<bool>,
    /// Devices to open and to leave alone.
    pub devices: DeviceSpec,
    /// Pools of packet buffers.
    pub pools: PoolSpec,
    /// `--force-max-simd-bitwidth`: the widest vectors that may be used, in bits; 0: no limit.
    pub simd_bits_max: u32,
}

/// How the pools of packet buffers are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSpec {
    /// `--mbuf-pool-ops-name`: what holds the objects that are in no cache, under DPDK's name; none: the usual one.
    pub backend: Option<String>,
    /// `--mempool-debug`: watch for double frees and overruns.
    pub debug: bool,
}

/// How much memory, where, and of what kind. Sizes are in MiB, as DPDK's are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySpec {
    /// `-m`: set aside at start.
    pub initial_mib: Option<u64>,
    /// `--numa-mem`: the same for each NUMA node, node 0 first.
    pub numa_mib: Vec<u64>,
    /// `--numa-limit`: no more than this on each node; 0: no limit.
    pub numa_limit_mib: Vec<u64>,
    /// `--no-huge`: ordinary pages only.
    pub no_huge: bool,
    /// `--huge-dir`: the hugetlbfs mount to use.
    pub huge_dir: Option<PathBuf>,
    /// `--huge-unlink`.
    pub huge_unlink: HugeUnlink,
    /// `--in-memory`: no files at all.
    pub in_memory: bool,
}

/// When files in a hugetlbfs are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugeUnlink {
    /// Those of earlier runs, at start.
    #[default]
    Existing,
    /// Each as soon as it is mapped.
    Always,
    /// Never.
    Never,
}

/// The addresses that devices are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IovaMode {
    /// As the devices need; all devices so far take virtual addresses.
    #[default]
    Auto,
    /// Virtual addresses.
    Virtual,
    /// Physical addresses.
    Physical,
}

/// What this process is to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// `--proc-type`.
    pub kind: ProcessType,
    /// `--file-prefix`: processes with different prefixes share nothing.
    pub file_prefix: String,
}

impl Default for ProcessSpec {
    fn default() -> Self {
        Self { kind: ProcessType::default(), file_prefix: "rte".into() }
    }
}

/// Whether a process owns its memory. Secondary processes are refused when the options are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessType {
    /// It does.
    #[default]
    Primary,
    /// Primary, as no other kind exists.
    Auto,
}
