//! The EAL half: DPDK's names, read into [`EalSpec`].

use std::path::{Path, PathBuf};

use crate::{
    ConfigError, DeviceArg, DeviceSpec, EalSpec, HugeUnlink, IovaMode, LcoreMap, LcoreSet, LogSpec,
    MemorySpec, ProcessSpec, ProcessType,
};

/// Options that exclude each other: one of them on the command line sets aside the others in a profile.
pub(super) const RIVALS: [&[&str]; 8] = [
    &["lcores", "coremask"],
    &["service_corelist", "service_coremask"],
    &["memory_size", "numa_mem"],
    &["no_huge", "huge_dir"],
    &["no_huge", "numa_mem"],
    &["in_memory", "huge_dir"],
    &["telemetry", "no_telemetry"],
    &["allow", "block"],
];

/// Values stay text here, so that the messages about them are ours.
#[derive(clap::Parser, Debug, Default)]
pub(super) struct EalOptions {
    /// Lcores: a list (0-3,5: lcore N on CPU N) or a map ('(0-3)@(0-1)', 0@1,1@0)
    #[arg(short = 'l', long, value_name = "LIST")]
    lcores: Option<String>,
    /// Lcores as a hexadecimal mask; deprecated, use -l
    #[arg(short = 'c', long, value_name = "MASK")]
    coremask: Option<String>,
    /// The lcore of the main thread [default: the lowest]
    #[arg(long, value_name = "LCORE")]
    main_lcore: Option<String>,
    /// Number the lcores anew, from 0 or from the given number on
    #[arg(short = 'R', long, value_name = "FIRST", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    remap_lcore_ids: Option<String>,
    /// Lcores that run services
    #[arg(short = 'S', long, value_name = "LIST")]
    service_corelist: Option<String>,
    /// Service lcores as a hexadecimal mask; deprecated, use -S
    #[arg(short = 's', long, value_name = "MASK")]
    service_coremask: Option<String>,
    /// MiB of memory to set aside at start
    #[arg(short = 'm', long, value_name = "MIB")]
    memory_size: Option<String>,
    /// The same for each NUMA node: 512,512
    #[arg(long, alias = "socket-mem", value_name = "MIB,..")]
    numa_mem: Option<String>,
    /// No more than this on each NUMA node; 0: no limit
    #[arg(long, alias = "socket-limit", value_name = "MIB,..")]
    numa_limit: Option<String>,
    /// The hugetlbfs mount to use
    #[arg(long, value_name = "DIR")]
    huge_dir: Option<PathBuf>,
    /// When to remove huge page files: existing, always, never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    huge_unlink: Option<String>,
    /// Ordinary pages only
    #[arg(long)]
    no_huge: bool,
    /// No files in any file system
    #[arg(long)]
    in_memory: bool,
    /// One memory file for each page size and node
    #[arg(long)]
    single_file_segments: bool,
    /// Tells processes apart; different prefixes share nothing [default: rte]
    #[arg(long, value_name = "PREFIX")]
    file_prefix: Option<String>,
    /// primary or auto; secondary does not exist yet
    #[arg(long, value_name = "TYPE")]
    proc_type: Option<String>,
    /// Open this device: a PCI address or an RDMA device [,KEY=VALUE..]
    #[arg(short = 'a', long, value_name = "DEVICE")]
    allow: Vec<String>,
    /// Leave this device alone
    #[arg(short = 'b', long, value_name = "DEVICE")]
    block: Vec<String>,
    /// Open a device in software: net_null0,size=64; mlx5_model0,device=cx5. A key that it lacks lists those it has
    #[arg(long, value_name = "DEVICE")]
    vdev: Vec<String>,
    /// Open no hardware
    #[arg(long)]
    no_pci: bool,
    /// Addresses for devices: va or pa
    #[arg(long, value_name = "MODE")]
    iova_mode: Option<String>,
    /// LEVEL, PATTERN:LEVEL or REGEX,LEVEL; 'help' lists levels and components
    #[arg(long, value_name = "FILTER")]
    log_level: Vec<String>,
    /// Colours in the log: auto, always, never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    log_color: Option<String>,
    /// Times in the log: notime, time, delta, reltime, ctime, iso
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "time")]
    log_timestamp: Option<String>,
    /// Open the telemetry socket
    #[arg(long)]
    telemetry: bool,
    /// Do not
    #[arg(long)]
    no_telemetry: bool,
    /// Read a TOML profile; options given here win over it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print the version
    #[arg(short = 'v', long)]
    pub(super) version: bool,
    /// Print this page
    #[arg(short = 'h', long)]
    pub(super) help: bool,
    #[command(flatten)]
    idle: IdleOptions,
}

/// Options of DPDK that mean nothing here. They are accepted, so that a command line made for DPDK runs.
#[derive(clap::Args, Debug, Default)]
struct IdleOptions {
    #[arg(short = 'n', long, hide = true)]
    memory_channels: Option<String>,
    #[arg(short = 'r', long, hide = true)]
    memory_ranks: Option<String>,
    #[arg(short = 'd', long, hide = true)]
    driver_path: Vec<String>,
    #[arg(short = 'A', long, hide = true)]
    no_auto_probing: bool,
    #[arg(long, hide = true)]
    base_virtaddr: Option<String>,
    #[arg(long, hide = true)]
    create_uio_dev: bool,
    #[arg(long, hide = true)]
    force_max_simd_bitwidth: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "")]
    huge_worker_stack: Option<String>,
    #[arg(long, hide = true)]
    legacy_mem: bool,
    #[arg(long, hide = true)]
    match_allocations: bool,
    #[arg(long, hide = true)]
    mbuf_pool_ops_name: Option<String>,
    #[arg(long, hide = true)]
    no_hpet: bool,
    #[arg(long, hide = true)]
    no_shconf: bool,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "")]
    syslog: Option<String>,
    #[arg(long, hide = true)]
    trace: Vec<String>,
    #[arg(long, hide = true)]
    trace_bufsz: Option<String>,
    #[arg(long, hide = true)]
    trace_dir: Option<String>,
    #[arg(long, hide = true)]
    trace_mode: Option<String>,
    #[arg(long, hide = true)]
    vfio_intr: Option<String>,
    #[arg(long, hide = true)]
    vfio_vf_token: Option<String>,
    #[arg(long, hide = true)]
    vmware_tsc_map: bool,
}

impl IdleOptions {
    /// Those that were given, and why each does nothing.
    fn given(&self) -> Vec<(&'static str, &'static str)> {
        const MEMORY: &str = "memory is laid out as the machine allows";
        const DEVICES: &str = "no kernel driver is replaced";
        const TRACE: &str = "there is no trace recorder";
        let all = [
            (self.memory_channels.is_some(), "-n", MEMORY),
            (self.memory_ranks.is_some(), "-r", MEMORY),
            (!self.driver_path.is_empty(), "-d", "drivers are built in"),
            (self.no_auto_probing, "-A", "devices are only opened when named"),
            (self.base_virtaddr.is_some(), "--base-virtaddr", MEMORY),
            (self.create_uio_dev, "--create-uio-dev", DEVICES),
            (
                self.force_max_simd_bitwidth.is_some(),
                "--force-max-simd-bitwidth",
                "vector code is chosen by the CPU",
            ),
            (self.huge_worker_stack.is_some(), "--huge-worker-stack", "lcore stacks are ordinary memory"),
            (self.legacy_mem, "--legacy-mem", MEMORY),
            (self.match_allocations, "--match-allocations", MEMORY),
            (self.mbuf_pool_ops_name.is_some(), "--mbuf-pool-ops-name", "each app chooses its pools"),
            (self.no_hpet, "--no-hpet", "the HPET is never used"),
            (self.no_shconf, "--no-shconf", "processes share nothing"),
            (self.syslog.is_some(), "--syslog", "the log goes to standard error"),
            (!self.trace.is_empty(), "--trace", TRACE),
            (self.trace_bufsz.is_some(), "--trace-bufsz", TRACE),
            (self.trace_dir.is_some(), "--trace-dir", TRACE),
            (self.trace_mode.is_some(), "--trace-mode", TRACE),
            (self.vfio_intr.is_some(), "--vfio-intr", DEVICES),
            (self.vfio_vf_token.is_some(), "--vfio-vf-token", DEVICES),
            (self.vmware_tsc_map, "--vmware-tsc-map", "the clock is chosen by the CPU"),
        ];
        all.into_iter().filter(|(given, ..)| *given).map(|(_, option, why)| (option, why)).collect()
    }
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

    /// The data, and one line for each option that does nothing or is deprecated.
    pub(super) fn finish(self) -> Result<(EalSpec, Vec<String>), ConfigError> {
        let idle = self.idle.given().into_iter();
        let mut warnings: Vec<String> =
            idle.map(|(option, why)| format!("option '{option}' has no effect: {why}")).collect();
        if self.telemetry {
            warnings.push("option '--telemetry' has no effect: there is no telemetry socket yet".into());
        }
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
            telemetry: self.telemetry()?,
            devices: self.devices()?,
        };
        Ok((eal, warnings))
    }

    fn lcore_map(&self, warnings: &mut Vec<String>) -> Result<Option<LcoreMap>, ConfigError> {
        let map: Option<LcoreMap> = match (&self.lcores, &self.coremask) {
            (Some(_), Some(_)) => return Err(ConfigError::conflict("-l", "-c", "keep -l")),
            (Some(list), None) => {
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
            return Err(ConfigError::usage("-R", "numbers the lcores of -l anew: give -l too"));
        };
        map.remapped(base).map(Some).ok_or_else(|| fail("leaves no room for all lcores below 1024"))
    }

    fn services(&self, warnings: &mut Vec<String>) -> Result<LcoreSet, ConfigError> {
        match (&self.service_corelist, &self.service_coremask) {
            (Some(_), Some(_)) => Err(ConfigError::conflict("-S", "-s", "keep -S")),
            (Some(list), None) => {
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
        if self.memory_size.is_some() && self.numa_mem.is_some() {
            return Err(ConfigError::conflict("-m", "--numa-mem", "keep one"));
        }
        if self.no_huge && self.numa_mem.is_some() {
            return Err(ConfigError::conflict("--no-huge", "--numa-mem", "use -m with --no-huge"));
        }
        if self.no_huge && self.huge_dir.is_some() {
            return Err(ConfigError::conflict("--no-huge", "--huge-dir", "keep one"));
        }
        if self.in_memory && self.huge_dir.is_some() {
            return Err(ConfigError::conflict("--in-memory", "--huge-dir", "keep one"));
        }
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
            return Err(ConfigError::value("-m", "0", "is no memory at all: give MiB, such as 512"));
        }
        Ok(MemorySpec {
            initial_mib: initial,
            numa_mib: mebibyte_list("--numa-mem", self.numa_mem.as_deref())?,
            numa_limit_mib: mebibyte_list("--numa-limit", self.numa_limit.as_deref())?,
            no_huge: self.no_huge,
            huge_dir: self.huge_dir.clone(),
            huge_unlink,
            in_memory: self.in_memory,
            single_file_segments: self.single_file_segments,
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
                let problem = "does not exist yet: leave it out, each process runs by itself";
                return Err(ConfigError::value("--proc-type", "secondary", problem));
            }
            Some(other) => {
                return Err(ConfigError::value("--proc-type", other, "is not one of primary, auto"));
            }
        };
        let prefix = self.file_prefix.as_deref().unwrap_or("rte");
        if prefix.is_empty() || prefix.contains(['/', '%', '\0']) {
            let problem = "must not be empty or contain '/' or '%': it becomes a file name";
            return Err(ConfigError::value("--file-prefix", prefix, problem));
        }
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

    fn telemetry(&self) -> Result<Option<bool>, ConfigError> {
        match (self.telemetry, self.no_telemetry) {
            (true, true) => Err(ConfigError::conflict("--telemetry", "--no-telemetry", "keep one")),
            (false, false) => Ok(None),
            (wanted, _) => Ok(Some(wanted)),
        }
    }

    fn devices(&self) -> Result<DeviceSpec, ConfigError> {
        if !self.allow.is_empty() && !self.block.is_empty() {
            return Err(ConfigError::conflict(
                "-a",
                "-b",
                "devices are only opened when named, so -b is not needed",
            ));
        }
        let parse = |texts: &[String]| {
            texts.iter().map(|text| text.parse::<DeviceArg>()).collect::<Result<Vec<_>, _>>()
        };
        let vdevs = parse(&self.vdev)?;
        for (place, device) in vdevs.iter().enumerate() {
            if vdevs[..place].iter().any(|earlier| earlier.name == device.name) {
                return Err(ConfigError::Device {
                    text: device.to_string(),
                    problem: "is given twice: number devices apart, such as net_null0 and net_null1".into(),
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
