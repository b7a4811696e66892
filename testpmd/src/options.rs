//! The options behind `--`, under DPDK's names.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{ArgAction, Parser};
use pollux_kit::number::{at_least_one, seconds};
use pollux_kit::pairs::PortMask;
use pollux_kit::{IdleOptions, WatchOptions};
use pollux_port::MacAddress;

use crate::engine::{Mode, NoisyForward};
use crate::topology::Topology;

/// testpmd: forwards packets with DPDK's engines, commands and output.
#[derive(Parser, Clone, Debug)]
#[command(
    after_help = "The engines are a page each: testpmd/src/engine/*.rs. Commands: testpmd -- -i, then help."
)]
pub struct Options {
    /// Run the testpmd> prompt
    #[arg(short, long)]
    pub interactive: bool,
    /// Start forwarding before the prompt
    #[arg(short, long)]
    pub auto_start: bool,
    /// Send one burst from each port before forwarding, to fill ports that are looped back
    #[arg(long)]
    pub tx_first: bool,
    /// Print port statistics every N seconds, without a prompt [default: 0, off]
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub stats_period: u32,
    /// Run the commands of this file, then the prompt if -i is given
    #[arg(long, value_name = "FILE")]
    pub cmdline_file: Option<PathBuf>,
    /// As --cmdline-file, without printing the commands
    #[arg(long, value_name = "FILE", conflicts_with = "cmdline_file")]
    pub cmdline_file_noecho: Option<PathBuf>,
    /// Extended statistics shown with each port's statistics, by name
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub display_xstats: Vec<String>,

    /// Number of forwarding lcores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub nb_cores: usize,
    /// Number of forwarding ports [default: all]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub nb_ports: Option<usize>,
    /// Hexadecimal mask of the forwarding lcores [default: all but the main lcore]
    #[arg(long, value_name = "MASK")]
    pub coremask: Option<PortMask>,
    /// Hexadecimal mask of the forwarding ports [default: all]
    #[arg(long, value_name = "MASK")]
    pub portmask: Option<PortMask>,
    /// Forwarding ports, in this order: 0,2-3
    #[arg(long, value_name = "LIST", conflicts_with = "portmask", value_parser = list)]
    pub portlist: Option<PortList>,
    /// Which port sends what a port receives: paired, chained or loop
    #[arg(long, value_name = "MODE", default_value = "paired", value_parser = topology)]
    pub port_topology: Topology,
    /// Packet forwarding mode
    #[arg(long, value_name = "MODE", default_value = "io", value_parser = mode)]
    pub forward_mode: Mode,
    /// Destination address of packets sent by port N: N,XX:XX:XX:XX:XX:XX
    #[arg(long, value_name = "N,MAC", value_parser = peer, action = ArgAction::Append)]
    pub eth_peer: Vec<(u16, MacAddress)>,
    /// File of such addresses, one a line, port 0 first
    #[arg(long, value_name = "FILE")]
    pub eth_peers_configfile: Option<PathBuf>,

    /// Rx queues per port [default: set by the profile, else 1]
    #[arg(long, value_name = "N", value_parser = queues)]
    pub rxq: Option<u16>,
    /// Tx queues per port [default: set by the profile, else 1]
    #[arg(long, value_name = "N", value_parser = queues)]
    pub txq: Option<u16>,
    /// Descriptors per rx queue [default: set by the driver]
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub rxd: u16,
    /// Descriptors per tx queue [default: set by the driver]
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub txd: u16,
    /// Packets per burst, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = burst)]
    pub burst: usize,
    /// Mbuf size in bytes, headroom included; a list gives the sizes of buffer split's segments
    #[arg(long, value_name = "N[,N1]", value_delimiter = ',')]
    pub mbuf_size: Vec<u16>,
    /// Number of mbufs [default: as many as the queues need]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub total_num_mbufs: Option<usize>,
    /// Maximum frame length in bytes, from which the MTU follows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=65_549))]
    pub max_pkt_len: Option<u32>,
    /// Buffer split: bytes of each segment of received packets
    #[arg(long, value_name = "X[,Y]", value_delimiter = ',')]
    pub rxpkts: Vec<u16>,
    /// Buffer split: data offset of each segment
    #[arg(long, value_name = "X[,Y]", value_delimiter = ',')]
    pub rxoffs: Vec<u16>,
    /// Keep packets that were received before forwarding starts
    #[arg(long)]
    pub no_flush_rx: bool,
    /// Do not wait for the links when ports start
    #[arg(long)]
    pub disable_link_check: bool,

    /// Segment sizes of packets made by txonly and flowgen
    #[arg(long, value_name = "X[,Y]", default_value = "64", value_delimiter = ',')]
    pub txpkts: Vec<u16>,
    /// Vary the UDP source port of txonly
    #[arg(long)]
    pub txonly_multi_flow: bool,
    /// Number of source ports of --txonly-multi-flow, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub txonly_flows: u16,
    /// Source and destination address of txonly
    #[arg(long, value_name = "SRC,DST", default_value = "198.18.0.1,198.18.0.2", value_parser = ip_pair)]
    pub tx_ip: (Ipv4Addr, Ipv4Addr),
    /// Source and destination port of txonly
    #[arg(long, value_name = "SRC[,DST]", default_value = "9,9", value_parser = port_pair)]
    pub tx_udp: (u16, u16),
    /// Number of flows of flowgen
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub flowgen_flows: u32,
    /// Copies of each packet of flowgen
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub flowgen_clones: usize,

    /// Enable rx checksum offloads
    #[arg(long)]
    pub enable_rx_cksum: bool,
    /// Enable large receive offload
    #[arg(long)]
    pub enable_lro: bool,
    /// Maximum size of an LRO packet
    #[arg(long, value_name = "N")]
    pub max_lro_pkt_size: Option<u32>,
    /// Enable scattered rx
    #[arg(long)]
    pub enable_scatter: bool,
    /// Enable rx timestamps
    #[arg(long)]
    pub enable_rx_timestamp: bool,
    /// Enable VLAN filter, strip and extend
    #[arg(long)]
    pub enable_hw_vlan: bool,
    /// Enable the VLAN filter
    #[arg(long)]
    pub enable_hw_vlan_filter: bool,
    /// Enable VLAN stripping
    #[arg(long)]
    pub enable_hw_vlan_strip: bool,
    /// Enable VLAN extend
    #[arg(long)]
    pub enable_hw_vlan_extend: bool,
    /// Enable QinQ stripping
    #[arg(long)]
    pub enable_hw_qinq_strip: bool,
    /// Rx offloads as a bitmask
    #[arg(long, value_name = "MASK", value_parser = mask)]
    pub rx_offloads: Option<u64>,
    /// Tx offloads as a bitmask
    #[arg(long, value_name = "MASK", value_parser = mask)]
    pub tx_offloads: Option<u64>,
    /// Hash IP addresses for RSS (the default with several queues)
    #[arg(long)]
    pub rss_ip: bool,
    /// Hash IP addresses and UDP ports for RSS
    #[arg(long)]
    pub rss_udp: bool,
    /// Disable RSS
    #[arg(long)]
    pub disable_rss: bool,

    /// Count cycles per packet
    #[arg(long)]
    pub record_core_cycles: bool,
    /// Count bursts by their number of packets
    #[arg(long)]
    pub record_burst_stats: bool,

    /// noisy: packets kept back
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub noisy_tx_sw_buffer_size: u16,
    /// noisy: milliseconds after which they are sent
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub noisy_tx_sw_buffer_flushtime: u16,
    /// noisy: MiB of memory to walk over
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub noisy_lkup_memory: u32,
    /// noisy: reads per packet
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub noisy_lkup_num_reads: u16,
    /// noisy: writes per packet
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub noisy_lkup_num_writes: u16,
    /// noisy: reads followed by a write, per packet
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub noisy_lkup_num_reads_writes: u16,
    /// noisy: io, mac, macswap or 5tswap
    #[arg(long, value_name = "MODE", default_value = "io", value_parser = noisy)]
    pub noisy_forward_mode: NoisyForward,

    /// What lcores do while no packet arrives.
    #[command(flatten)]
    pub idle: IdleOptions,

    /// Run for S seconds, then print the final report [default: until quit or Ctrl-C]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Print the final report as one line of JSON, the last line of standard output
    #[arg(long)]
    pub json: bool,

    /// How it is looked at meanwhile.
    #[command(flatten)]
    pub watch: WatchOptions,

    /// Accepted, without effect.
    #[command(flatten)]
    pub unused: Unused,
}

/// Options of DPDK that mean nothing here: accepted, and told in one line.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Unused {
    /// Mbufs per lcore cache; pools here choose it
    #[arg(long, value_name = "N", hide = true)]
    mbcache: Option<u16>,
    /// NUMA support is always on
    #[arg(long, hide = true)]
    numa: bool,
    #[arg(long, hide = true)]
    no_numa: bool,
    #[arg(long, value_name = "N", hide = true)]
    socket_num: Option<u16>,
    #[arg(long, value_name = "MODE", hide = true)]
    mp_alloc: Option<String>,
    #[arg(long, value_name = "N", hide = true)]
    rxpt: Option<u16>,
    #[arg(long, value_name = "N", hide = true)]
    rxht: Option<u16>,
    #[arg(long, value_name = "N", hide = true)]
    rxwt: Option<u16>,
    #[arg(long, value_name = "N", hide = true)]
    rxfreet: Option<u16>,
    #[arg(long, value_name = "N", hide = true)]
    txpt: Option<u16>,
    #[arg(long, value_name = "N", hide = true)]
    txht: Option<u16>,
    #[arg(long, value_name = "N", hide = true)]
    txwt: Option<u16>,
    #[arg(long, value_name = "N", hide = true)]
    txfreet: Option<u16>,
    #[arg(long, value_name = "N", hide = true)]
    txrst: Option<u16>,
    #[arg(long, hide = true)]
    no_lsc_interrupt: bool,
    #[arg(long, hide = true)]
    no_rmv_interrupt: bool,
    #[arg(long, hide = true)]
    disable_device_start: bool,
    #[arg(long, hide = true)]
    lcore_forward: bool,
}

impl Unused {
    /// The names of those that were given.
    #[must_use]
    pub fn given(&self) -> Vec<&'static str> {
        let thresholds = [
            ("--rxpt", self.rxpt),
            ("--rxht", self.rxht),
            ("--rxwt", self.rxwt),
            ("--rxfreet", self.rxfreet),
            ("--txpt", self.txpt),
            ("--txht", self.txht),
            ("--txwt", self.txwt),
            ("--txfreet", self.txfreet),
            ("--txrst", self.txrst),
            ("--mbcache", self.mbcache),
            ("--socket-num", self.socket_num),
        ];
        let flags = [
            ("--numa", self.numa),
            ("--no-numa", self.no_numa),
            ("--mp-alloc", self.mp_alloc.is_some()),
            ("--no-lsc-interrupt", self.no_lsc_interrupt),
            ("--no-rmv-interrupt", self.no_rmv_interrupt),
            ("--disable-device-start", self.disable_device_start),
            ("--lcore-forward", self.lcore_forward),
        ];
        let thresholds = thresholds.into_iter().map(|(name, value)| (name, value.is_some()));
        thresholds.chain(flags).filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

/// Ports in the order of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortList(pub Vec<u16>);

/// `0,2-3` as numbers; each once.
///
/// # Errors
/// A sentence when it is no such list.
pub(crate) fn list(text: &str) -> Result<PortList, String> {
    let wrong = || "is not a list of ports such as 0,2-3".to_owned();
    let mut ports = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        for port in first..=last {
            if ports.contains(&port) {
                return Err(format!("names port {port} twice"));
            }
            ports.push(port);
        }
    }
    Ok(PortList(ports))
}

fn topology(text: &str) -> Result<Topology, String> {
    Topology::by_name(text).ok_or_else(|| "is not one of paired, chained, loop".into())
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::by_name(text).ok_or_else(|| format!("is not one of {}", Mode::ALL.map(Mode::name).join(", ")))
}

fn noisy(text: &str) -> Result<NoisyForward, String> {
    NoisyForward::by_name(text).ok_or_else(|| "is not one of io, mac, macswap, 5tswap".into())
}

fn queues(text: &str) -> Result<u16, String> {
    let count = text.parse().ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| "is not a whole number from 1 to 1024".into())
}

fn burst(text: &str) -> Result<usize, String> {
    let most = pollux_mempool::BURST_MAX;
    let count = text.parse().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("is not a whole number from 1 to {most}"))
}

fn peer(text: &str) -> Result<(u16, MacAddress), String> {
    let wrong = || "is not a port and an address such as 0,02:00:00:00:00:01".to_owned();
    let (port, address) = text.split_once(',').ok_or_else(wrong)?;
    Ok((port.parse().map_err(|_| wrong())?, address.parse().map_err(|_| wrong())?))
}

fn ip_pair(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let wrong = || "is not two IPv4 addresses such as 198.18.0.1,198.18.0.2".to_owned();
    let (source, destination) = text.split_once(',').ok_or_else(wrong)?;
    Ok((source.parse().map_err(|_| wrong())?, destination.parse().map_err(|_| wrong())?))
}

fn port_pair(text: &str) -> Result<(u16, u16), String> {
    let (source, destination) = text.split_once(',').unwrap_or((text, text));
    let port = |text: &str| text.parse().map_err(|_| "is not one or two UDP ports such as 9,9".to_owned());
    Ok((port(source)?, port(destination)?))
}

fn mask(text: &str) -> Result<u64, String> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    value.map_err(|_| "is not a bitmask such as 0x2000".into())
}

/// The addresses of `--eth-peers-configfile`, by port.
///
/// # Errors
/// A line when the file cannot be read or a line is no address.
pub(crate) fn peers_of_file(path: &std::path::Path) -> Result<BTreeMap<u16, MacAddress>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("option '--eth-peers-configfile': {}: {error}", path.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty()).enumerate();
    lines
        .map(|(port, line)| match line.trim().parse() {
            Ok(address) => Ok((u16::try_from(port).unwrap_or(u16::MAX), address)),
            Err(_) => Err(format!(
                "{}: line {}: '{}' is not an address such as 02:00:00:00:00:01",
                path.display(),
                port + 1,
                line.trim()
            )),
        })
        .collect()
}
