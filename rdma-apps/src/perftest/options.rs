//! The options of `send_bw` and its family, under perftest's names.
//!
//! Source of names, ranges and defaults: linux-rdma/perftest `src/perftest_parameters.{c,h}`.

use crate::number::{number, size, within};

use super::absent::Absent;
use crate::exchange::perftest::version;

/// As typed; what they come to together is [`Settings`](super::settings::Settings).
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Options {
    /// Run all message sizes from 2 to 2^23 bytes; on UD up to the MTU
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Atomic operation: CMP_AND_SWAP or FETCH_AND_ADD (atomic tests) [default: FETCH_AND_ADD]
    #[arg(short = 'A', long = "atomic_type", value_name = "TYPE")]
    pub atomic_type: Option<Atomic>,
    /// Measure bidirectional bandwidth: both ends send at the same time
    #[arg(short = 'b', long)]
    pub bidirectional: bool,
    /// QP transport: RC, UC, UD or XRC
    #[arg(short = 'c', long, value_name = "TYPE", default_value = "RC")]
    pub connection: Connection,
    /// Report times in CPU cycles instead of microseconds (latency)
    #[arg(short = 'C', long)]
    pub report_cycles: bool,
    /// RDMA device to use [default: the first one named by --vdev or -a]
    #[arg(short = 'd', long, value_name = "DEV")]
    pub ib_dev: Option<String>,
    /// Test duration in seconds, instead of a number of iterations
    #[arg(short = 'D', long = "duration", value_name = "S", value_parser = |text: &str| within(text, 1, 86_400))]
    pub seconds: Option<u64>,
    /// Wait for CQ events instead of polling
    #[arg(short = 'e', long)]
    pub events: bool,
    /// Warm-up and cool-down of --duration that are not measured, in seconds each [default: a quarter of --duration]
    #[arg(short = 'f', long, value_name = "S", value_parser = |text: &str| within(text, 0, 86_400))]
    pub margin: Option<u64>,
    /// Send to a multicast group over UD (send tests; in send_lat each end joins a group of its own)
    #[arg(short = 'g', long)]
    pub mcg: bool,
    /// Multicast GID, as 16 decimal bytes separated by colons [default: perftest's, 255:1:0:0:0:2:201:133:0:0:0:0:0:0:0:0; the
    /// client of send_lat uses the one after it]
    #[arg(short = 'M', long = "MGID", value_name = "GID", value_parser = group)]
    pub mgid: Option<[u8; 16]>,
    /// Connect the QPs by RDMA CM, with the server's RDMA address in place of a host; the ends exchange their data over a QP as well.
    /// Give it at both ends
    #[arg(short = 'R', long = "rdma_cm")]
    pub rdma_cm: bool,
    /// Exchange data over a QP that RDMA CM connects, in place of TCP; the test's QPs are connected without. Give it at both ends
    #[arg(short = 'z', long = "comm_rdma_cm")]
    pub comm_rdma_cm: bool,
    /// Retry count of the QPs, 0 to 7 (with -R)
    #[arg(long = "retry_count", value_name = "N", default_value = "7", value_parser = |text: &str| within(text, 0, 7))]
    pub retry_count: u64,
    /// Report the change of these port counters over the test, by sysfs name: counters/port_xmit_data,..
    #[arg(short = 'W', long = "report-counters", value_name = "NAMES", value_delimiter = ',')]
    pub counters: Vec<String>,
    /// No effect: results do not depend on the CPU frequency
    #[arg(short = 'F', long = "CPU-freq")]
    pub cpu_freq: bool,
    /// Print every sample, sorted (latency)
    #[arg(short = 'H', long, alias = "report-histogrm")]
    pub report_histogram: bool,
    /// Device port
    #[arg(short = 'i', long, value_name = "PORT", default_value = "1", value_parser = |text: &str| within(text, 1, 255))]
    pub ib_port: u64,
    /// Largest message to send inline in the WQE, in bytes [default: 0; latency: 220 (write), 236 (send), 188 (send on UD)]
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES", value_parser = |text: &str| within(text, 0, 1024))]
    pub inline: Option<u64>,
    /// Number of send WQEs to post with one doorbell (bandwidth)
    #[arg(short = 'l', long = "post_list", value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 1024))]
    pub post_list: u64,
    /// Number of receive WQEs to post at once (bandwidth)
    #[arg(long = "recv_post_list", value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 1024))]
    pub recv_post_list: u64,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096 [default: the port's active MTU]
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = number)]
    pub mtu: Option<u64>,
    /// Number of iterations, at least 5 [default: 1000; write_bw: 5000]
    #[arg(short = 'n', long, value_name = "N", value_parser = |text: &str| within(text, 5, 1 << 32))]
    pub iters: Option<u64>,
    /// Do not compute peak bandwidth (bandwidth) [default: compute it up to 20000 iterations]
    #[arg(short = 'N', long = "noPeak")]
    pub no_peak: bool,
    /// Outstanding RDMA reads or atomics per QP [default: the device's maximum]
    #[arg(short = 'o', long, value_name = "N", value_parser = |text: &str| within(text, 1, 255))]
    pub outs: Option<u64>,
    /// Use both ports of a two-port device: -q QPs on each of the ports 1 and 2 (bandwidth; give it at both ends)
    #[arg(short = 'O', long)]
    pub dualport: bool,
    /// Report the bandwidth of each port separately (with -O and -D; give it at both ends)
    #[arg(long = "report-per-port")]
    pub report_per_port: bool,
    /// TCP port for the connection between server and client; with -R and -z the port of RDMA CM
    #[arg(short = 'p', long, value_name = "PORT", default_value = "18515", value_parser = |text: &str| within(text, 1, 65535))]
    pub port: u64,
    /// Seconds to wait for the peer before giving up; 0 waits forever [default: 60; the server of a read, write or atomic test allows the
    /// test itself 3600 beyond -D; raw_ethernet: 0]
    #[arg(long = "peer-timeout", value_name = "SECONDS", value_parser = |text: &str| within(text, 0, 86400))]
    pub peer_timeout: Option<u64>,
    /// Number of QPs (bandwidth)
    #[arg(short = 'q', long, value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 16384))]
    pub qp: u64,
    /// Send WQEs per CQE [default: 100; 1 for messages above 8192 bytes]
    #[arg(short = 'Q', long = "cq-mod", value_name = "N", value_parser = |text: &str| within(text, 1, 1024))]
    pub cq_mod: Option<u64>,
    /// Receive queue depth, in WQEs (send tests, --write_with_imm) [default: 512]
    #[arg(short = 'r', long, value_name = "N", value_parser = |text: &str| within(text, 1, 16384))]
    pub rx_depth: Option<u64>,
    /// Message size in bytes; suffixes K and M are accepted [default: 65536; latency: 2; atomic: 8]
    #[arg(short = 's', long, value_name = "BYTES", value_parser = size)]
    pub size: Option<u64>,
    /// Service level, 0 to 15
    #[arg(short = 'S', long, value_name = "SL", default_value = "0", value_parser = |text: &str| within(text, 0, 15))]
    pub sl: u64,
    /// Send queue depth: outstanding WQEs per QP [default: 128; latency: 1]
    #[arg(short = 't', long, value_name = "N", value_parser = |text: &str| within(text, 1, 15000))]
    pub tx_depth: Option<u64>,
    /// ACK timeout exponent N: 4.096 us x 2^N; 0 disables it
    #[arg(short = 'u', long, value_name = "EXPONENT", default_value = "14", value_parser = |text: &str| within(text, 0, 31))]
    pub qp_timeout: u64,
    /// Print every sample in the order measured (latency)
    #[arg(short = 'U', long)]
    pub report_unsorted: bool,
    /// Print the perftest version announced to the peer, and exit
    #[arg(short = 'V', long)]
    pub version: bool,
    /// Exit with an error if the average bandwidth is below N, in the unit reported
    #[arg(short = 'w', long = "limit_bw", value_name = "N", value_parser = above_zero)]
    pub limit_bw: Option<f64>,
    /// GID table index [default: the first entry with an IPv4 address, else with a global IPv6 address, else any]
    #[arg(short = 'x', long, value_name = "INDEX", value_parser = |text: &str| within(text, 0, 255))]
    pub gid_index: Option<u64>,
    /// Exit with an error if the message rate is below N million messages per second
    #[arg(short = 'y', long = "limit_msgrate", value_name = "N", value_parser = above_zero)]
    pub limit_msgrate: Option<f64>,
    /// Write the report to a JSON file
    #[arg(long = "out_json")]
    pub out_json: bool,
    /// File for --out_json [default: perftest_out.json]
    #[arg(long = "out_json_file", value_name = "FILE")]
    pub out_json_file: Option<String>,
    /// Report the CPU utilization of this host (with --duration)
    #[arg(long = "cpu_util")]
    pub cpu_util: bool,
    /// Print a single number: bandwidth, message_rate or latency
    #[arg(long, value_name = "WHAT")]
    pub output: Option<Output>,
    /// Use one shared receive queue for all QPs (send tests, --write_with_imm); XRC always does
    #[arg(long = "use-srq")]
    pub use_srq: bool,
    /// Report bandwidth in Gbit/s instead of MiB/s
    #[arg(long = "report_gbits")]
    pub report_gbits: bool,
    /// Report the results of both ends separately (with -b)
    #[arg(long = "report-both")]
    pub report_both: bool,
    /// Reverse the direction: the server sends to the client
    #[arg(long)]
    pub reversed: bool,
    /// Run until stopped, with a report every --duration seconds
    #[arg(long = "run_infinitely")]
    pub run_infinitely: bool,
    /// Traffic class, 0 to 255
    #[arg(long, value_name = "N", default_value = "0", value_parser = |text: &str| within(text, 0, 255))]
    pub tclass: u64,
    /// GRH flow labels, assigned to the QPs in turn; the RoCE v2 UDP source port is derived from them [default: from the QP numbers]
    #[arg(long = "flow_label", value_name = "LABELS", value_delimiter = ',', value_parser = |text: &str| within(text, 0, 0xf_ffff))]
    pub flow_label: Vec<u64>,
    /// Type of service of the QPs (with -R)
    #[arg(short = 'T', long, value_name = "N", value_parser = |text: &str| within(text, 0, 255))]
    pub tos: Option<u64>,
    /// Time to live; raw Ethernet tests only
    #[arg(short = 'L', long = "hop_limit", value_name = "N", hide = true, value_parser = |text: &str| within(text, 0, 255))]
    pub hop_limit: Option<u64>,
    /// Send one full send queue on each QP before measuring (write_bw, read_bw, atomic_bw)
    #[arg(long = "perform_warm_up")]
    pub perform_warm_up: bool,
    /// Limit the send rate to N --rate_units (client of a bandwidth test)
    #[arg(long = "rate_limit", value_name = "N", value_parser = above_zero)]
    pub rate_limit: Option<f64>,
    /// Unit of --rate_limit: M (MiB/s), g (Gbit/s) or p (messages per second) [default: g]
    #[arg(long = "rate_units", value_name = "U")]
    pub rate_units: Option<RateUnit>,
    /// Rate limiter: SW, the program; or PP, the device, for each QP (raw Ethernet; with --rate_units M). HW (a limit of the service
    /// level) is not supported
    #[arg(long = "rate_limit_type", value_name = "TYPE", default_value = "SW")]
    pub rate_limit_type: RateLimitType,
    /// Not supported: no rate limit of the device depends on it
    #[arg(long = "typical_pkt_size", value_name = "BYTES", value_parser = size)]
    pub typical_pkt_size: Option<u64>,
    /// Messages per burst under --rate_limit [default: -l, or 1; burst latency: -t, and also without a rate limit]
    #[arg(long = "burst_size", value_name = "N", value_parser = |text: &str| within(text, 1, 15000))]
    pub burst_size: Option<u64>,
    /// CPUs to run on, as a list; the first one polls. Same as -l of the EAL options
    #[arg(long = "pin_cores", value_name = "CPUS")]
    pub pin_cores: Option<String>,
    /// Run on the CPUs of this NUMA node
    #[arg(long = "numa_node", value_name = "NODE", value_parser = |text: &str| within(text, 0, 1023))]
    pub numa_node: Option<u64>,
    /// Writes carry immediate data, so that each takes a receive and completes at the peer (write_bw and write_lat; give it at both ends)
    #[arg(long = "write_with_imm")]
    pub write_with_imm: bool,
    /// Sends carry immediate data, which the receiver checks for (send_bw and send_lat; give it at both ends)
    #[arg(long = "send_with_imm")]
    pub send_with_imm: bool,
    /// Verify every byte transferred (write_bw and read_bw on RC; give it at both ends)
    #[arg(long = "data_validation")]
    pub data_validation: bool,
    /// Register the message buffers on demand: their pages are not pinned (on-demand paging, ODP)
    #[arg(long)]
    pub odp: bool,
    /// Allocate the message buffers from hugepages, or fail; without it, hugepages are used where enough are free
    #[arg(long = "use_hugepages")]
    pub use_hugepages: bool,
    /// Prefer a GID with an IPv6 address
    #[arg(long)]
    pub ipv6: bool,
    /// With -R or -z: use the server's IPv6 address. Else no effect: IPv4 and IPv6 addresses are both accepted
    #[arg(long = "ipv6-addr")]
    pub ipv6_addr: bool,
    /// No effect: the data path takes no locks
    #[arg(long = "no_lock")]
    pub no_lock: bool,
    /// No effect: memory is never registered with relaxed ordering
    #[arg(long = "disable_pcie_relaxed")]
    pub disable_pcie_relaxed: bool,
    /// Answer every Nth message only
    #[arg(long = "reply_every", value_name = "N", default_value = "1", hide = true, value_parser = |text: &str| within(text, 1, 1 << 32))]
    pub reply_every: u64,
    /// Pause between two messages, in microseconds (latency)
    #[arg(long = "latency_gap", value_name = "US", value_parser = |text: &str| within(text, 0, 86_400_000_000))]
    pub latency_gap: Option<u64>,
    /// Skip the exchange of versions and MTU; give it at both ends
    #[arg(long = "dont_xchg_versions")]
    pub dont_xchg_versions: bool,
    /// perftest version to announce to the peer
    #[arg(long = "peer-version", value_name = "VERSION", default_value = crate::exchange::perftest::VERSION, value_parser = version)]
    pub peer_version: String,
    /// Options of perftest that are not supported.
    #[command(flatten)]
    pub absent: Absent,
    /// Print the final report as one line of JSON, the last line of standard output
    #[arg(long)]
    pub json: bool,
    /// Server to connect to; without it, run as the server
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
    gid.filter(|gid| gid[0] == 0xff).ok_or_else(|| {
        "is not a multicast GID: give 16 decimal bytes separated by colons, the first one 255".into()
    })
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| "must be a number above 0".into())
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
    /// Reliable; a message names the shared receive queue that it is for, and a queue pair either sends or receives.
    #[value(name = "XRC")]
    Xrc,
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
            Self::Xrc => "XRC",
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
