//! The EAL half: DPDK's names, read into [`EalSpec`].

mod conflict;
mod idle;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::{
    ConfigError, DeviceArg, DeviceSpec, EalSpec, HugeUnlink, IovaMode, LcoreMap, LcoreSet, LogSpec,
    MemorySpec, PoolSpec, ProcessSpec, ProcessType,
};
pub(super) use conflict::RIVALS;
use idle::IdleOptions;

/// Values stay text here, so that the messages about them are ours.
#[derive(clap::Parser, Debug, Default)]
pub(super) struct EalOptions {
    /// Lcores to run on: a list of CPUs (0-3,5) or a map of lcores to CPUs ('(0-3)@(0-1)', 0@1,1@0)
    #[arg(short = 'l', long, value_name = "LIST")]
    lcores: Option<String>,
    /// Hexadecimal bitmask of lcores; deprecated, use -l
    #[arg(short = 'c', long, value_name = "MASK")]
    coremask: Option<String>,
    /// Main lcore ID [default: the lowest lcore]
    #[arg(long, value_name = "LCORE")]
    main_lcore: Option<String>,
    /// Renumber the lcores consecutively from FIRST [default: 0]
    #[arg(short = 'R', long, value_name = "FIRST", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    remap_lcore_ids: Option<String>,
    /// Lcores to use as service cores
    #[arg(short = 'S', long, value_name = "LIST")]
    service_corelist: Option<String>,
    /// Hexadecimal bitmask of service cores; deprecated, use -S
    #[arg(short = 's', long, value_name = "MASK")]
    service_coremask: Option<String>,
    /// Memory to reserve at startup, in MiB
    #[arg(short = 'm', long, value_name = "MIB")]
    memory_size: Option<String>,
    /// Memory to reserve at startup on each NUMA node, in MiB: 512,512
    #[arg(long, alias = "socket-mem", value_name = "MIB,..")]
    numa_mem: Option<String>,
    /// Memory limit of each NUMA node, in MiB; 0 is unlimited
    #[arg(long, alias = "socket-limit", value_name = "MIB,..")]
    numa_limit: Option<String>,
    /// hugetlbfs mount point to use
    #[arg(long, value_name = "DIR")]
    huge_dir: Option<PathBuf>,
    /// Hugepage files to unlink: existing ones at startup, all of them (always), or none (never) [default: existing]
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    huge_unlink: Option<String>,
    /// Use regular pages instead of hugepages
    #[arg(long)]
    no_huge: bool,
    /// Create no files in any file system
    #[arg(long)]
    in_memory: bool,
    /// Default mempool backend for mbufs: ring_mp_mc, ring_mt_rts, ring_mt_hts, ring_sp_sc or stack [default: ring_mp_mc]
    #[arg(long, value_name = "NAME")]
    mbuf_pool_ops_name: Option<String>,
    /// Detect and log double frees and overruns of mbufs; slow
    #[arg(long)]
    mempool_debug: bool,
    /// Maximum SIMD bitwidth: 64 (scalar), 128, 256 or 512; 0 is unlimited [default: 0]
    #[arg(long, value_name = "BITS")]
    force_max_simd_bitwidth: Option<String>,
    /// Prefix of hugepage file names; processes with different prefixes share nothing [default: rte]
    #[arg(long, value_name = "PREFIX")]
    file_prefix: Option<String>,
    /// Process type: primary or auto; secondary is not supported [default: primary]
    #[arg(long, value_name = "TYPE")]
    proc_type: Option<String>,
    /// Open this device, a PCI address or an RDMA device name, with devargs: DEVICE[,KEY=VALUE..]. May be repeated
    #[arg(short = 'a', long, value_name = "DEVICE")]
    allow: Vec<String>,
    /// Never open this device, even if it is named elsewhere; only named devices are opened. May be repeated
    #[arg(short = 'b', long, value_name = "DEVICE")]
    block: Vec<String>,
    /// Create a virtual device: driver name, number, devargs, such as net_af_packet0,iface=eth0 or net_null0,size=64. Drivers:
    /// net_null, net_ring, net_pcap, net_af_packet, net_af_xdp, net_tap, mlx5_model. May be repeated
    #[arg(long, value_name = "DEVICE")]
    vdev: Vec<String>,
    /// Disable PCI devices
    #[arg(long)]
    no_pci: bool,
    /// IOVA mode: va or pa [default: chosen at startup]
    #[arg(long, value_name = "MODE")]
    iova_mode: Option<String>,
    /// Log level: LEVEL, PATTERN:LEVEL or REGEX,LEVEL; 'help' lists levels and components. May be repeated
    #[arg(long, value_name = "FILTER")]
    log_level: Vec<String>,
    /// Color log output: auto (on a terminal, unless NO_COLOR or TERM=dumb is set), always or never [default: auto]
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    log_color: Option<String>,
    /// Timestamp format of the log: notime, time, delta, reltime, ctime or iso [default: notime]
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "time")]
    log_timestamp: Option<String>,
    /// Enable telemetry: the socket that dpdk-telemetry.py connects to (the default)
    #[arg(long)]
    telemetry: bool,
    /// Disable telemetry
    #[arg(long)]
    no_telemetry: bool,
    /// Read options from a TOML profile; the command line overrides it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print the version
    #[arg(short = 'v', long)]
    pub(super) version: bool,
    /// Print this help
    #[arg(short = 'h', long)]
    pub(super) help: bool,
    #[command(flatten)]
    idle: IdleOptions,
}

impl EalOptions {
    /// The profile that is named.
    pub(super) fn profile(&self) -> Option<&Path> {
        self.profile.as_deref()
    }

    /// Whether any port is named.
    pub(super) fn names_ports(&self) -> bool {
        !self.vdev.is_empty() || !self.allow.is_empty()
    }

    /// Whether `-d` was meant for the app: here it is DPDK's, a driver's file.
    pub(super) fn check_driver_paths(&self, app_has_it: bool) -> Result<(), ConfigError> {
        // What the kernel and rdma-core's rules call RDMA devices.
        const DEVICES: [&str; 4] = ["mlx5_", "roce", "rxe", "ibp"];
        let paths = self.idle.driver_path.iter().filter(|path| !path.contains(['/', '.']));
        for name in paths {
            if app_has_it {
                let problem = format!(
                    "is not a driver file; to name an RDMA device, write -d after '--': -- -d {name}"
                );
                return Err(ConfigError::value("-d", name, problem));
            }
            if DEVICES.iter().any(|begin| name.starts_with(begin)) {
                let problem = format!("is not a driver file; to open a device, write -a {name}");
                return Err(ConfigError::value("-d", name, problem));
            }
        }
        Ok(())
    }

    /// The data, and one line for each option that does nothing or is deprecated.
    pub(super) fn finish(self) -> Result<(EalSpec, Vec<String>), ConfigError> {
        let idle = self.idle.given().into_iter();
        let mut warnings: Vec<String> =
            idle.map(|(option, why)| format!("option '{option}' has no effect: {why}")).collect();
        self.check_conflicts()?;
        let lcores = self.lcore_map(&mut warnings)?;
        let service_lcores = self.services(&mut warnings)?;
        let eal = EalSpec {
            main_lcore: self.main_lcore(lcores.as_ref(), &service_lcores)?,
            lcores,
            service_lcores,
            memory: self.memory()?,
            iova: self.iova()?,
            process: self.process()?,
            log: self.log()?,
            telemetry: self.telemetry(),
            devices: self.devices()?,
            pools: self.pools(),
            simd_bits_max: self.simd_bits_max()?,
        };
        Ok((eal, warnings))
    }

    fn lcore_map(&self, warnings: &mut Vec<String>) -> Result<Option<LcoreMap>, ConfigError> {
        let map: Option<LcoreMap> = match (&self.lcores, &self.coremask) {
            (Some(list), _) => {
                Some(list.parse().map_err(|problem: String| ConfigError::value("-l", list, problem))?)
            }
            (None, Some(mask)) => {
                let set =
                    LcoreSet::from_mask(mask).map_err(|problem| ConfigError::value("-c", mask, problem))?;
                warnings.push(format!("option '-c' is deprecated: write -l {set}"));
                LcoreMap::identity(&set)
            }
            (None, None) => None,
        };
        let Some(first) = &self.remap_lcore_ids else { return Ok(map) };
        let fail = |problem: &str| ConfigError::value("-R", first, problem);
        let base = first.parse().map_err(|_| fail("is not an lcore number"))?;
        let Some(map) = map else {
            return Err(ConfigError::usage("-R", "requires -l: give both"));
        };
        map.remapped(base).map(Some).ok_or_else(|| fail("is too high: lcore IDs must stay below 1024"))
    }

    fn services(&self, warnings: &mut Vec<String>) -> Result<LcoreSet, ConfigError> {
        match (&self.service_corelist, &self.service_coremask) {
            (Some(list), _) => {
                list.parse().map_err(|problem: String| ConfigError::value("-S", list, problem))
            }
            (None, Some(mask)) => {
                let set =
                    LcoreSet::from_mask(mask).map_err(|problem| ConfigError::value("-s", mask, problem))?;
                warnings.push(format!("option '-s' is deprecated: write -S {set}"));
                Ok(set)
            }
            (None, None) => Ok(LcoreSet::default()),
        }
    }

    fn main_lcore(&self, lcores: Option<&LcoreMap>, services: &LcoreSet) -> Result<Option<u16>, ConfigError> {
        let Some(text) = &self.main_lcore else { return Ok(None) };
        let fail = |problem: String| ConfigError::value("--main-lcore", text, problem);
        let lcore = text.parse().map_err(|_| fail("is not an lcore number".into()))?;
        if let Some(map) = lcores.filter(|map| !map.contains(lcore)) {
            return Err(fail(format!("is not among the lcores {map}: add it to -l or choose one of them")));
        }
        if services.contains(lcore) {
            return Err(fail("is a service lcore: choose another or take it out of -S".into()));
        }
        Ok(Some(lcore))
    }

    fn memory(&self) -> Result<MemorySpec, ConfigError> {
        let huge_unlink = match self.huge_unlink.as_deref() {
            None | Some("existing") => HugeUnlink::Existing,
            Some("always") => HugeUnlink::Always,
            Some("never") => HugeUnlink::Never,
            Some(other) => {
                return Err(ConfigError::value(
                    "--huge-unlink",
                    other,
                    "is not one of existing, always, never",
                ));
            }
        };
        let initial = self.memory_size.as_deref().map(|text| mebibytes("-m", text)).transpose()?;
        if initial == Some(0) {
            return Err(ConfigError::value("-m", "0", "must be at least 1 MiB, such as 512"));
        }
        Ok(MemorySpec {
            initial_mib: initial,
            numa_mib: mebibyte_list("--numa-mem", self.numa_mem.as_deref())?,
            numa_limit_mib: mebibyte_list("--numa-limit", self.numa_limit.as_deref())?,
            no_huge: self.no_huge,
            huge_dir: self.huge_dir.clone(),
            huge_unlink,
            in_memory: self.in_memory,
        })
    }

    fn iova(&self) -> Result<IovaMode, ConfigError> {
        match self.iova_mode.as_deref() {
            None => Ok(IovaMode::Auto),
            Some("va") => Ok(IovaMode::Virtual),
            Some("pa") => Ok(IovaMode::Physical),
            Some(other) => Err(ConfigError::value("--iova-mode", other, "is not one of va, pa")),
        }
    }

    fn process(&self) -> Result<ProcessSpec, ConfigError> {
        let kind = match self.proc_type.as_deref() {
            None | Some("primary") => ProcessType::Primary,
            Some("auto") => ProcessType::Auto,
            Some("secondary") => {
                let problem = "is not supported yet: leave it out; every process is a primary one";
                return Err(ConfigError::value("--proc-type", "secondary", problem));
            }
            Some(other) => {
                return Err(ConfigError::value("--proc-type", other, "is not one of primary, auto"));
            }
        };
        let prefix = self.file_prefix.as_deref().unwrap_or("rte");
        ProcessSpec::check_file_prefix(prefix)
            .map_err(|problem| ConfigError::value("--file-prefix", prefix, problem))?;
        Ok(ProcessSpec { kind, file_prefix: prefix.into() })
    }

    fn log(&self) -> Result<LogSpec, ConfigError> {
        let mut log = LogSpec::default();
        for text in &self.log_level {
            if text == "help" {
                log.help = true;
                continue;
            }
            log.filters.push(
                text.parse().map_err(|problem: String| ConfigError::value("--log-level", text, problem))?,
            );
        }
        if let Some(text) = &self.log_color {
            log.color =
                text.parse().map_err(|problem: String| ConfigError::value("--log-color", text, problem))?;
        }
        if let Some(text) = &self.log_timestamp {
            log.timestamp = text
                .parse()
                .map_err(|problem: String| ConfigError::value("--log-timestamp", text, problem))?;
        }
        Ok(log)
    }

    /// None: as the program likes; those of bring-up have it on.
    fn telemetry(&self) -> Option<bool> {
        (self.telemetry || self.no_telemetry).then_some(self.telemetry)
    }

    fn pools(&self) -> PoolSpec {
        PoolSpec { backend: self.mbuf_pool_ops_name.clone(), debug: self.mempool_debug }
    }

    /// Bounds are DPDK's (`lib/eal/include/rte_vect.h`, `rte_vect_max_simd`): powers of two from 64 to 32768, or 0.
    fn simd_bits_max(&self) -> Result<u32, ConfigError> {
        let Some(text) = &self.force_max_simd_bitwidth else { return Ok(0) };
        let bits = text.parse().ok();
        let bits =
            bits.filter(|bits: &u32| *bits == 0 || bits.is_power_of_two() && (64..=32_768).contains(bits));
        bits.ok_or_else(|| {
            let problem = "is not a SIMD bitwidth: use 64 (scalar), 128, 256 or 512; 0 is unlimited";
            ConfigError::value("--force-max-simd-bitwidth", text, problem)
        })
    }

    fn devices(&self) -> Result<DeviceSpec, ConfigError> {
        let parse = |texts: &[String]| {
            texts.iter().map(|text| text.parse::<DeviceArg>()).collect::<Result<Vec<_>, _>>()
        };
        let vdevs = parse(&self.vdev)?;
        for (place, device) in vdevs.iter().enumerate() {
            if vdevs[..place].iter().any(|earlier| earlier.name == device.name) {
                return Err(ConfigError::Device {
                    text: device.to_string(),
                    problem: "is given twice: use different numbers, such as net_null0 and net_null1".into(),
                });
            }
        }
        Ok(DeviceSpec { vdevs, allow: parse(&self.allow)?, block: self.block.clone(), no_pci: self.no_pci })
    }
}

fn mebibytes(option: &str, text: &str) -> Result<u64, ConfigError> {
    // 2^44 MiB are 2^64 bytes.
    let size = text.trim().parse().ok().filter(|mib: &u64| *mib < 1 << 44);
    size.ok_or_else(|| ConfigError::value(option, text, "is not a number of MiB, such as 512"))
}

fn mebibyte_list(option: &str, text: Option<&str>) -> Result<Vec<u64>, ConfigError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    text.split(',').map(|node| mebibytes(option, node)).collect::<Result<_, _>>().map_err(|_| {
        ConfigError::value(option, text, "is not a list of MiB for each NUMA node, such as 512,512")
    })
}
