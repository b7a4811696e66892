//! Options of DPDK that have no effect here; one warning each.

/// Options of DPDK that mean nothing here. They are accepted, so that a command line made for DPDK runs.
#[derive(clap::Args, Debug, Default)]
pub(super) struct IdleOptions {
    #[arg(short = 'n', long, hide = true)]
    memory_channels: Option<String>,
    #[arg(short = 'r', long, hide = true)]
    memory_ranks: Option<String>,
    #[arg(short = 'd', long, hide = true)]
    pub(super) driver_path: Vec<String>,
    #[arg(short = 'A', long, hide = true)]
    no_auto_probing: bool,
    #[arg(long, hide = true)]
    base_virtaddr: Option<String>,
    #[arg(long, hide = true)]
    create_uio_dev: bool,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "")]
    huge_worker_stack: Option<String>,
    #[arg(long, hide = true)]
    pub(super) legacy_mem: bool,
    #[arg(long, hide = true)]
    pub(super) match_allocations: bool,
    #[arg(long, hide = true)]
    no_hpet: bool,
    #[arg(long, hide = true)]
    no_shconf: bool,
    #[arg(long, hide = true)]
    pub(super) single_file_segments: bool,
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
    pub(super) fn given(&self) -> Vec<(&'static str, &'static str)> {
        const MEMORY: &str = "the memory layout is chosen automatically";
        const DEVICES: &str = "no kernel driver is replaced";
        const TRACE: &str = "tracing is not supported";
        let all = [
            (self.memory_channels.is_some(), "-n", MEMORY),
            (self.memory_ranks.is_some(), "-r", MEMORY),
            (!self.driver_path.is_empty(), "-d", "all drivers are built in"),
            (self.no_auto_probing, "-A", "devices are only opened when named"),
            (self.base_virtaddr.is_some(), "--base-virtaddr", MEMORY),
            (self.create_uio_dev, "--create-uio-dev", DEVICES),
            (self.huge_worker_stack.is_some(), "--huge-worker-stack", "lcore stacks use regular pages"),
            (self.legacy_mem, "--legacy-mem", MEMORY),
            (self.match_allocations, "--match-allocations", MEMORY),
            (self.no_hpet, "--no-hpet", "the HPET is never used"),
            (self.no_shconf, "--no-shconf", "nothing is shared between processes"),
            (self.single_file_segments, "--single-file-segments", "each region is always a single file"),
            (self.syslog.is_some(), "--syslog", "the log goes to standard error"),
            (!self.trace.is_empty(), "--trace", TRACE),
            (self.trace_bufsz.is_some(), "--trace-bufsz", TRACE),
            (self.trace_dir.is_some(), "--trace-dir", TRACE),
            (self.trace_mode.is_some(), "--trace-mode", TRACE),
            (self.vfio_intr.is_some(), "--vfio-intr", DEVICES),
            (self.vfio_vf_token.is_some(), "--vfio-vf-token", DEVICES),
            (self.vmware_tsc_map, "--vmware-tsc-map", "the clock source is chosen automatically"),
        ];
        all.into_iter().filter(|(given, ..)| *given).map(|(_, option, why)| (option, why)).collect()
    }
}
