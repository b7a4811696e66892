//! The options of the raw Ethernet tests, under perftest's names.
//!
//! Source of names, ranges and defaults: linux-rdma/perftest `src/perftest_parameters.c`, `usage_raw_ethernet`.

use std::net::IpAddr;

use crate::number::{number, within};
use pollux_wire::MacAddress;

use crate::perftest::options::Options;

/// As typed; what they come to together is a [`Plan`](super::plan::Plan).
#[derive(clap::Args, Clone, Debug)]
#[command(
    mut_arg("all", |arg| arg.hide(true)),
    mut_arg("atomic_type", |arg| arg.hide(true)),
    mut_arg("connection", |arg| arg.hide(true)),
    mut_arg("data_validation", |arg| arg.hide(true)),
    mut_arg("dont_xchg_versions", |arg| arg.hide(true)),
    mut_arg("flow_label", |arg| arg.help("IPv6 flow labels, assigned to the flows in turn; the server accepts only these [default: send 0, accept any]")),
    mut_arg("gid_index", |arg| arg.hide(true)),
    mut_arg("hop_limit", |arg| arg.hide(false).help("TTL or hop limit of the IP header [default: 64]")),
    mut_arg("host", |arg| arg.hide(true)),
    mut_arg("ipv6", |arg| arg.hide(true)),
    mut_arg("ipv6_addr", |arg| arg.hide(true)),
    mut_arg("mcg", |arg| arg.hide(true)),
    mut_arg("mgid", |arg| arg.hide(true)),
    mut_arg("mtu", |arg| arg.help("Maximum frame size, 64 to 9600 bytes including the FCS [default: 1518]")),
    mut_arg("numa_node", |arg| arg.hide(true)),
    mut_arg("outs", |arg| arg.hide(true)),
    mut_arg("peer_version", |arg| arg.hide(true)),
    mut_arg("perform_warm_up", |arg| arg.hide(true)),
    mut_arg("pin_cores", |arg| arg.hide(true)),
    mut_arg("port", |arg| arg.hide(true)),
    mut_arg("qp_timeout", |arg| arg.hide(true)),
    mut_arg("report_both", |arg| arg.hide(true)),
    mut_arg("reply_every", |arg| arg.hide(false).help("Answer, and measure, every Nth frame only; give it at both ends (burst latency)")),
    mut_arg("reversed", |arg| arg.hide(true)),
    mut_arg("size", |arg| arg.help("Frame size in bytes including the FCS, at least 64 [default: the maximum; latency: 64]")),
    mut_arg("sl", |arg| arg.hide(true)),
    mut_arg("tclass", |arg| arg.hide(true)),
    mut_arg("tos", |arg| arg.hide(false).help("Type of service of the IP header")),
    mut_arg("use_srq", |arg| arg.hide(true)),
)]
pub struct RawOptions {
    /// Options of all tests.
    #[command(flatten)]
    pub base: Options,
    /// Run as the server: receive, or answer in a latency test
    #[arg(short = 'Z', long)]
    pub server: bool,
    /// Run as the client: send, or begin in a latency test
    #[arg(short = 'P', long)]
    pub client: bool,
    /// Source MAC address; required
    #[arg(short = 'B', long = "source_mac", visible_alias = "local_mac", value_name = "MAC", value_parser = mac)]
    pub source_mac: Option<MacAddress>,
    /// Destination MAC address; required where this end sends
    #[arg(short = 'E', long = "dest_mac", visible_alias = "remote_mac", value_name = "MAC", value_parser = mac)]
    pub dest_mac: Option<MacAddress>,
    /// IP address of the server, at both ends; adds an IP header
    #[arg(short = 'J', long = "dest_ip", value_name = "IP", value_parser = ip)]
    pub dest_ip: Option<IpAddr>,
    /// IP address of the client, at both ends
    #[arg(short = 'j', long = "source_ip", value_name = "IP", value_parser = ip)]
    pub source_ip: Option<IpAddr>,
    /// UDP or TCP port of the server, at both ends; adds a UDP header, or TCP with --tcp
    #[arg(short = 'K', long = "dest_port", value_name = "PORT", value_parser = port)]
    pub dest_port: Option<u16>,
    /// UDP or TCP port of the client, at both ends
    #[arg(short = 'k', long = "source_port", value_name = "PORT", value_parser = port)]
    pub source_port: Option<u16>,
    /// Local IP address, instead of -J and -j
    #[arg(long = "local_ip", value_name = "IP", value_parser = ip)]
    pub local_ip: Option<IpAddr>,
    /// Remote IP address, instead of -J and -j
    #[arg(long = "remote_ip", value_name = "IP", value_parser = ip)]
    pub remote_ip: Option<IpAddr>,
    /// Local UDP or TCP port, instead of -K and -k
    #[arg(long = "local_port", value_name = "PORT", value_parser = port)]
    pub local_port: Option<u16>,
    /// Remote UDP or TCP port, instead of -K and -k
    #[arg(long = "remote_port", value_name = "PORT", value_parser = port)]
    pub remote_port: Option<u16>,
    /// EtherType in hexadecimal, such as 0x88b5 [default: that of IP; without IP, the length]
    #[arg(short = 'Y', long, value_name = "TYPE", value_parser = ethertype)]
    pub ethertype: Option<u16>,
    /// Add a VLAN tag with VLAN ID 1
    #[arg(long = "vlan_en")]
    pub vlan: bool,
    /// VLAN priority, 0 to 7; 8 changes it with every frame. Implies --vlan_en [default: 1]
    #[arg(long = "vlan_pcp", value_name = "PCP", value_parser = |text: &str| within(text, 0, 8))]
    pub vlan_pcp: Option<u64>,
    /// Use TCP headers instead of UDP
    #[arg(long)]
    pub tcp: bool,
    /// Use IPv6 headers and addresses
    #[arg(long = "raw_ipv6")]
    pub raw_ipv6: bool,
    /// Send to the multicast address given by -J, one way (bandwidth)
    #[arg(long = "raw_mcast")]
    pub raw_mcast: bool,
    /// Number of UDP or TCP flows; each takes the next ports from -K and -k on
    #[arg(long, value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 1024))]
    pub flows: u64,
    /// Frames to send on one flow before the next one
    #[arg(long = "flows_burst", value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 65535))]
    pub flows_burst: u64,
    /// Also receive frames that match no other steering rule
    #[arg(long)]
    pub promiscuous: bool,
    /// Receive a copy of all traffic of the port
    #[arg(long)]
    pub sniffer: bool,
    /// Forward received frames back with their MAC addresses swapped (bandwidth; run the peer with -b)
    #[arg(short = 'v', long = "mac_fwd")]
    pub mac_fwd: bool,
    /// Distribute received frames over -q queues by RSS on addresses and ports (server, bandwidth): a power of two, at least 2
    #[arg(short = 'G', long = "use_rss")]
    pub use_rss: bool,
}

fn mac(text: &str) -> Result<MacAddress, String> {
    text.parse().map_err(|_| "is not a MAC address, such as 02:00:00:00:00:01".into())
}

fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "is not an IP address, such as 10.0.0.1, or fd00::1 with --raw_ipv6".into())
}

fn port(text: &str) -> Result<u16, String> {
    within(text, 1, 65535).map(|port| port as u16)
}

fn ethertype(text: &str) -> Result<u16, String> {
    let digits = if text.starts_with("0x") { text.to_owned() } else { format!("0x{text}") };
    let value = number(&digits).ok().and_then(|value| u16::try_from(value).ok());
    value
        .filter(|value| *value >= 0x600)
        .ok_or_else(|| "is not an ethertype, 0x0600 to 0xffff, such as 0x88b5".into())
}
