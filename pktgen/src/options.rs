//! The options behind `--`.

use std::path::PathBuf;

use clap::Parser;
use pollux_kit::pairs::PortMask;
use pollux_kit::{IdleOptions, RunOptions};

use crate::answer::OwnAddress;
use crate::packet::Packet;
use crate::rate::Rate;
use crate::replay::ReplaySpec;
use crate::rfc2544::options::{SIZES, SearchOptions, pause};
use crate::schedule::Pattern;
use crate::size::Sizes;
use crate::spec::StreamSpec;

/// pktgen: a traffic generator. Sends streams of packets at a rate, and measures loss and latency of what returns.
#[derive(Parser, Debug)]
#[command(
    after_help = "Packets: ether/vlan(id=5)/ipv4(src=10.0.0.1..10.0.0.254,dst=192.0.2.1)/udp(dst=53|80)/payload(c0ffee). Headers: \
ether, vlan, qinq, mpls, arp, ipv4, ipv6, udp, tcp, icmp, icmpv6, gre, vxlan, gtpu. The loop is one page: pktgen/src/lane.rs."
)]
pub(crate) struct Options {
    /// Hexadecimal bitmask of the ports that send a stream that names none: 3 is ports 0 and 1 [default: 1]
    #[arg(short = 'p', long, value_name = "PORTMASK")]
    pub(crate) portmask: Option<PortMask>,
    /// Streams in a TOML file, in place of the one that the next options make
    #[arg(long, value_name = "FILE", conflicts_with_all = ["packet", "size", "tuple", "count", "pattern"])]
    pub(crate) streams: Option<PathBuf>,
    /// Packet, header by header; several take turns. Values: V, FIRST..LAST[+STEP], V|V, V~MASK (random bits) or random
    /// [default: ether/ipv4/udp]
    #[arg(long, value_name = "PACKET")]
    pub(crate) packet: Vec<Packet>,
    /// Capture file (pcap, pcapng) that is sent in place of packets, at its recorded times unless there is a rate in pps
    #[arg(long, value_name = "FILE", conflicts_with_all = ["packet", "size", "tuple", "pattern", "latency", "streams"])]
    pub(crate) pcap: Option<PathBuf>,
    /// Replay so many times as fast as recorded, 0.000001 to 1000000
    #[arg(long, value_name = "X", default_value = "1", requires = "pcap", value_parser = speed)]
    pub(crate) speed: f64,
    /// Replay so many times; 0: until the end
    #[arg(long, value_name = "N", default_value = "1", requires = "pcap")]
    pub(crate) loops: u64,
    /// Size in bytes, FCS included: 64, 64x7,594x4,1518 (in turn), 64..1518+2 or imix [default: 64]
    #[arg(long, value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,
    /// Rate: 1000000pps, 1.5mpps, 10gbit (of frames), 10gbitl1 (on the wire), 50% (of the link) or max; for streams that name none
    /// [default: max]
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Pattern: constant, poisson or burst:N [default: constant]
    #[arg(long, value_name = "PATTERN")]
    pub(crate) pattern: Option<Pattern>,
    /// Send so many packets in all, then end [default: until the duration or Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Fields that vary one after the other, such as udp.src,ipv4.src: the next one changes when the one before has had all its values
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    pub(crate) tuple: Vec<String>,
    /// Measure loss, duplicates, reordering and latency: each packet carries its number and time in its last 16 bytes
    #[arg(long)]
    pub(crate) latency: bool,
    /// Measure how evenly packets leave: the error of each distance between them against that of the rate; for a constant rate
    #[arg(long, conflicts_with_all = ["pcap", "rfc2544", "rpc"])]
    pub(crate) gaps: bool,
    /// Answer ARP, neighbour discovery and pings for this address of a port; given several times for more
    #[arg(long, value_name = "[PORT=]ADDRESS")]
    pub(crate) ip: Vec<OwnAddress>,
    /// Seed of what is random
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Queues of each port, each on an lcore, among which streams are divided
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) queues: u16,
    /// Seconds to wait for returns when all is sent, 0 to 60 [default: 0.1; 2 with --rfc2544]
    #[arg(long, value_name = "S", value_parser = pause)]
    pub(crate) wait: Option<f64>,
    /// Send nothing until a client asks for it: start, stop, rate, stats, quit by JSON-RPC on a socket of the file prefix
    #[arg(long, conflicts_with_all = ["pcap", "rfc2544"])]
    pub(crate) rpc: bool,
    #[command(flatten)]
    pub(crate) search: SearchOptions,
    #[command(flatten)]
    pub(crate) idle: IdleOptions,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (1e-6..=1e6).contains(speed));
    speed.ok_or_else(|| "is not a number from 0.000001 to 1000000".into())
}

impl Options {
    /// The stream that the options make.
    pub(crate) fn stream(&self) -> StreamSpec {
        let packets = if self.packet.is_empty() { vec![Packet::default()] } else { self.packet.clone() };
        StreamSpec {
            name: "0".into(),
            port: None,
            replay: self.pcap.clone().map(|path| ReplaySpec { path, speed: self.speed, loops: self.loops }),
            packets,
            sizes: self.size.clone().unwrap_or_else(|| match self.search.rfc2544 {
                Some(_) => Sizes(SIZES.to_vec()),
                None => Sizes::default(),
            }),
            rate: self.rate.unwrap_or_default(),
            pattern: self.pattern.unwrap_or_default(),
            count: self.count,
            tuple: self.tuple.clone(),
            latency: self.latency || self.search.rfc2544.is_some(),
        }
    }
}
