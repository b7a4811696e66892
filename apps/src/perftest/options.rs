//! The options of `send_bw` and its family, under perftest's names.
//!
//! Source of names, ranges and defaults: linux-rdma/perftest `src/perftest_parameters.{c,h}`.

use pollux_kit::number::{number, size, within};

use super::absent::Absent;
use crate::exchange::perftest::version;

/// As typed; what they come to together is [`Settings`](super::settings::Settings).
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Options {
    /// Sizes from 2 to 2^23 bytes, one after the other; UD ends at the MTU
    #[arg(short = 'a', long)]
    pub all: bool,
    /// CMP_AND_SWAP or FETCH_AND_ADD (atomic tests) [default: FETCH_AND_ADD]
    #[arg(short = 'A', long = "atomic_type", value_name = "TYPE")]
    pub atomic_type: Option<Atomic>,
    /// Both ends send at once (bandwidth)
    #[arg(short = 'b', long)]
    pub bidirectional: bool,
    /// RC, UC or UD
    #[arg(short = 'c', long, value_name = "TYPE", default_value = "RC")]
    pub connection: Connection,
    /// Times in cycles (latency)
    #[arg(short = 'C', long)]
    pub report_cycles: bool,
    /// Use this device [default: the first that --vdev or -a names]
    #[arg(short = 'd', long, value_name = "DEV")]
    pub ib_dev: Option<String>,
    /// Run for this many seconds instead of a number of iterations
    #[arg(short = 'D', long = "duration", value_name = "S", value_parser = |text: &str| within(text, 1, 86_400))]
    pub seconds: Option<u64>,
    /// Sleep on completion events instead of polling
    #[arg(short = 'e', long)]
    pub events: bool,
    /// Seconds at either end of --duration that are not measured [default: a quarter]
    #[arg(short = 'f', long, value_name = "S", value_parser = |text: &str| within(text, 0, 86_400))]
    pub margin: Option<u64>,
    /// Send to a multicast group; queue pairs are UD then (send tests; of send_lat each end hears a group of its own)
    #[arg(short = 'g', long)]
    pub mcg: bool,
    /// The group that this end hears, or sends to, as 16 numbers with colons between them [default: perftest's, 255:1:0:0:0:2:201:133:0:0:0:0:0:0:0:0, the client's of send_lat the next]
    #[arg(short = 'M', long = "MGID", value_name = "GID", value_parser = group)]
    pub mgid: Option<[u8; 16]>,
    /// Refused: connection management is absent
    #[arg(short = 'R', long = "rdma_cm")]
    pub rdma_cm: bool,
    /// Refused: connection management is absent
    #[arg(short = 'z', long = "comm_rdma_cm")]
    pub comm_rdma_cm: bool,
    /// Print by how much these counters of the port rose, by their names in sysfs, such as counters/port_xmit_data
    #[arg(short = 'W', long = "report-counters", value_name = "NAMES", value_delimiter = ',')]
    pub counters: Vec<String>,
    /// Accepted; nothing here depends on the frequency of a core
    #[arg(short = 'F', long = "CPU-freq")]
    pub cpu_freq: bool,
    /// Print all results, sorted (latency)
    #[arg(short = 'H', long, alias = "report-histogrm")]
    pub report_histogram: bool,
    /// Port of the device
    #[arg(short = 'i', long, value_name = "PORT", default_value = "1", value_parser = |text: &str| within(text, 1, 255))]
    pub ib_port: u64,
    /// Largest message that travels inside its work request [default: 0; latency 220 (write), 236 (send), 188 (send on UD)]
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES", value_parser = |text: &str| within(text, 0, 1024))]
    pub inline: Option<u64>,
    /// Post this many sends at once, with one doorbell (bandwidth)
    #[arg(short = 'l', long = "post_list", value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 1024))]
    pub post_list: u64,
    /// Post this many receives at once (bandwidth)
    #[arg(long = "recv_post_list", value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 1024))]
    pub recv_post_list: u64,
    /// Path MTU: 256 to 4096 [default: the port's]
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = number)]
    pub mtu: Option<u64>,
    /// Exchanges, 5 at least [default: 1000; 5000 for write_bw]
    #[arg(short = 'n', long, value_name = "N", value_parser = |text: &str| within(text, 5, 1 << 32))]
    pub iters: Option<u64>,
    /// Do not look for the peak (bandwidth) [default: look, up to 20000 iterations]
    #[arg(short = 'N', long = "noPeak")]
    pub no_peak: bool,
    /// READs or atomics under way at once [default: the device's most]
    #[arg(short = 'o', long, value_name = "N", value_parser = |text: &str| within(text, 1, 255))]
    pub outs: Option<u64>,
    /// TCP port over which the ends meet
    #[arg(short = 'p', long, value_name = "PORT", default_value = "18515", value_parser = |text: &str| within(text, 1, 65535))]
    pub port: u64,
    /// Seconds that the other end may be silent when something of it is due; 0: for ever [default: 60, and 3600 beyond -D while a server of
    /// a read, write or atomic test sees nothing of it; raw_ethernet: for ever]
    #[arg(long = "peer-timeout", value_name = "SECONDS", value_parser = |text: &str| within(text, 0, 86400))]
    pub peer_timeout: Option<u64>,
    /// Queue pairs (bandwidth)
    #[arg(short = 'q', long, value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 16384))]
    pub qp: u64,
    /// One completion for this many sends [default: 100; 1 above 8192 bytes]
    #[arg(short = 'Q', long = "cq-mod", value_name = "N", value_parser = |text: &str| within(text, 1, 1024))]
    pub cq_mod: Option<u64>,
    /// Receives posted at a time (send tests) [default: 512]
    #[arg(short = 'r', long, value_name = "N", value_parser = |text: &str| within(text, 1, 16384))]
    pub rx_depth: Option<u64>,
    /// Bytes of a message, also as 4K or 1M [default: 65536; latency 2; atomic 8]
    #[arg(short = 's', long, value_name = "BYTES", value_parser = size)]
    pub size: Option<u64>,
    /// Service level
    #[arg(short = 'S', long, value_name = "SL", default_value = "0", value_parser = |text: &str| within(text, 0, 15))]
    pub sl: u64,
    /// Sends under way at once [default: 128; latency 1]
    #[arg(short = 't', long, value_name = "N", value_parser = |text: &str| within(text, 1, 15000))]
    pub tx_depth: Option<u64>,
    /// Time until a resend: 4.096 us times 2 to this power
    #[arg(short = 'u', long, value_name = "EXPONENT", default_value = "14", value_parser = |text: &str| within(text, 0, 31))]
    pub qp_timeout: u64,
    /// Print all results in their order (latency)
    #[arg(short = 'U', long)]
    pub report_unsorted: bool,
    /// Print the version that the other end is told, and end
    #[arg(short = 'V', long)]
    pub version: bool,
    /// End with an error below this average bandwidth, in the unit shown
    #[arg(short = 'w', long = "limit_bw", value_name = "N", value_parser = above_zero)]
    pub limit_bw: Option<f64>,
    /// GID of this index [default: the first of an IPv4 address, or else of a global IPv6 one, or else any]
    #[arg(short = 'x', long, value_name = "INDEX", value_parser = |text: &str| within(text, 0, 255))]
    pub gid_index: Option<u64>,
    /// End with an error below this many millions of messages a second
    #[arg(short = 'y', long = "limit_msgrate", value_name = "N", value_parser = above_zero)]
    pub limit_msgrate: Option<f64>,
    /// Save the report as JSON
    #[arg(long = "out_json")]
    pub out_json: bool,
    /// Where [default: perftest_out.json]
    #[arg(long = "out_json_file", value_name = "FILE")]
    pub out_json_file: Option<String>,
    /// Show how busy this machine's CPUs were (with --duration)
    #[arg(long = "cpu_util")]
    pub cpu_util: bool,
    /// Print one number only: bandwidth, message_rate or latency
    #[arg(long, value_name = "WHAT")]
    pub output: Option<Output>,
    /// One shared receive queue for all queue pairs (send tests)
    #[arg(long = "use-srq")]
    pub use_srq: bool,
    /// Gbit/s instead of MiB/s
    #[arg(long = "report_gbits")]
    pub report_gbits: bool,
    /// Print both ends' results (with -b)
    #[arg(long = "report-both")]
    pub report_both: bool,
    /// The server sends
    #[arg(long)]
    pub reversed: bool,
    /// A report every --duration seconds until stopped
    #[arg(long = "run_infinitely")]
    pub run_infinitely: bool,
    /// Traffic class
    #[arg(long, value_name = "N", default_value = "0", value_parser = |text: &str| within(text, 0, 255))]
    pub tclass: u64,
    /// Flow labels, to queue pairs in turn; packets of RoCE come from the UDP port that follows from each [default: made of the queue pairs' numbers]
    #[arg(long = "flow_label", value_name = "LABELS", value_delimiter = ',', value_parser = |text: &str| within(text, 0, 0xf_ffff))]
    pub flow_label: Vec<u64>,
    /// Type of service: refused, it goes with -R
    #[arg(short = 'T', long, value_name = "N", hide = true, value_parser = |text: &str| within(text, 0, 255))]
    pub tos: Option<u64>,
    /// Time to live: refused, frames alone have one
    #[arg(short = 'L', long = "hop_limit", value_name = "N", hide = true, value_parser = |text: &str| within(text, 0, 255))]
    pub hop_limit: Option<u64>,
    /// Send as much as may be under way on each queue pair once, before anything is measured (write_bw, read_bw, atomic_bw)
    #[arg(long = "perform_warm_up")]
    pub perform_warm_up: bool,
    /// Send no faster, in --rate_units (client of a bandwidth test)
    #[arg(long = "rate_limit", value_name = "N", value_parser = above_zero)]
    pub rate_limit: Option<f64>,
    /// Of --rate_limit: M (MiB/s), g (Gbit/s) or p (messages a second) [default: g]
    #[arg(long = "rate_units", value_name = "U")]
    pub rate_units: Option<RateUnit>,
    /// How the rate is kept: SW; the others, by the device, are refused
    #[arg(long = "rate_limit_type", value_name = "TYPE", default_value = "SW")]
    pub rate_limit_type: RateLimitType,
    /// Refused: it goes with a rate that the device keeps
    #[arg(long = "typical_pkt_size", value_name = "BYTES", value_parser = size)]
    pub typical_pkt_size: Option<u64>,
    /// Messages between two pauses of --rate_limit [default: 1, or -l's]
    #[arg(long = "burst_size", value_name = "N", value_parser = |text: &str| within(text, 1, 15000))]
    pub burst_size: Option<u64>,
    /// Run on these cores, the first one polls; as -l in the EAL half
    #[arg(long = "pin_cores", value_name = "CPUS")]
    pub pin_cores: Option<String>,
    /// Run on the cores of this NUMA node
    #[arg(long = "numa_node", value_name = "NODE", value_parser = |text: &str| within(text, 0, 1023))]
    pub numa_node: Option<u64>,
    /// Compare every byte that is moved (write_bw and read_bw on RC, at both ends)
    #[arg(long = "data_validation")]
    pub data_validation: bool,
    /// Prefer the GID of an IPv6 address
    #[arg(long)]
    pub ipv6: bool,
    /// Accepted; HOST may be of either kind, and so may a client
    #[arg(long = "ipv6-addr")]
    pub ipv6_addr: bool,
    /// Accepted; nothing here locks
    #[arg(long = "no_lock")]
    pub no_lock: bool,
    /// Accepted; no memory here is registered for relaxed order
    #[arg(long = "disable_pcie_relaxed")]
    pub disable_pcie_relaxed: bool,
    /// Microseconds between two posts (latency)
    #[arg(long = "latency_gap", value_name = "US", value_parser = |text: &str| within(text, 0, 86_400_000_000))]
    pub latency_gap: Option<u64>,
    /// Exchange neither versions nor MTU; needs the same at the other end
    #[arg(long = "dont_xchg_versions")]
    pub dont_xchg_versions: bool,
    /// Tell the other end that we are this version of perftest
    #[arg(long = "peer-version", value_name = "VERSION", default_value = crate::exchange::perftest::VERSION, value_parser = version)]
    pub peer_version: String,
    /// What the original has and this family has not.
    #[command(flatten)]
    pub absent: Absent,
    /// Print the final report as one JSON object, the last line of standard output
    #[arg(long)]
    pub json: bool,
    /// The other end; none: wait for one
    #[arg(value_name = "HOST")]
    pub host: Option<String>,
}

impl Options {
    /// The file of `--out_json`, if there shall be one.
    #[must_use]
    pub fn report_file(&self) -> Option<&str> {
        self.out_json.then(|| self.out_json_file.as_deref().unwrap_or("perftest_out.json"))
    }

    /// As when nothing is typed.
    #[must_use]
    pub fn usual() -> Self {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        <Line as clap::Parser>::parse_from(["perftest"]).options
    }
}

/// A GID as perftest takes it: 16 numbers with colons between them.
fn group(text: &str) -> Result<[u8; 16], String> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|part| number(part).ok().and_then(|byte| u8::try_from(byte).ok())).collect();
    let gid: Option<[u8; 16]> = bytes.and_then(|bytes| bytes.try_into().ok());
    gid.filter(|gid| gid[0] == 0xff)
        .ok_or_else(|| "is no multicast GID: 16 numbers up to 255 with colons, the first of them 255".into())
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| "is not a number above zero".into())
}

/// Type of queue pair.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// Reliable.
    #[default]
    #[value(name = "RC")]
    Rc,
    /// Connected, unreliable.
    #[value(name = "UC")]
    Uc,
    /// Datagrams.
    #[value(name = "UD")]
    Ud,
    /// Frames: the raw Ethernet tests, which have no other.
    #[value(skip)]
    RawEth,
}

impl Connection {
    /// As perftest writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::RawEth => "RawEth",
        }
    }
}

/// Which atomic operation.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atomic {
    /// Swaps when it finds what it expects.
    #[value(name = "CMP_AND_SWAP")]
    CompareSwap,
    /// Adds.
    #[default]
    #[value(name = "FETCH_AND_ADD")]
    FetchAdd,
}

impl Atomic {
    /// As perftest writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CompareSwap => "CMP_AND_SWAP",
            Self::FetchAdd => "FETCH_AND_ADD",
        }
    }
}

/// What one number to print.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Average bandwidth.
    #[value(name = "bandwidth")]
    Bandwidth,
    /// Messages.
    #[value(name = "message_rate")]
    MessageRate,
    /// Average latency.
    #[value(name = "latency")]
    Latency,
}

/// Who keeps `--rate_limit`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateLimitType {
    /// The device, a service level's.
    #[value(name = "HW")]
    Hardware,
    /// The program.
    #[default]
    #[value(name = "SW")]
    Software,
    /// The device, a queue pair's.
    #[value(name = "PP")]
    Pacing,
}

/// Of what `--rate_limit` is a number.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateUnit {
    /// MiB/s.
    #[value(name = "M")]
    Megabytes,
    /// Gbit/s.
    #[default]
    #[value(name = "g")]
    Gigabits,
    /// Messages a second.
    #[value(name = "p")]
    Messages,
}
