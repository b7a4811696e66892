//! The options behind `--`, under the names of DPDK's l3fwd.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use pollux_bringup::PortRequest;
use pollux_kit::pairs::PortMask;
use pollux_kit::{IdleOptions, RunOptions};
use pollux_mempool::BURST_MAX;
use pollux_port::{MacAddress, RxOffloads};

use crate::absent::Absent;
use crate::assignment::Config;

/// Bytes of a frame besides the payload that the MTU counts: an Ethernet header and the check sequence, as DPDK's l3fwd counts them.
const FRAME_OVERHEAD: u32 = 18;
/// Packets of a burst where nothing else is asked for.
const BURST: usize = 32;

/// l3fwd: forwards IPv4 and IPv6 packets between ports by routes, flows or rules.
#[derive(Parser, Debug)]
#[command(after_help = "The loop is one page: apps/src/bin/l3fwd/forward.rs.")]
pub(crate) struct Options {
    /// Hexadecimal bitmask of the ports to use: 3 is ports 0 and 1 [default: all]
    #[arg(short = 'p', long, value_name = "PORTMASK")]
    pub(crate) portmask: Option<PortMask>,
    /// Enable promiscuous mode
    #[arg(short = 'P', long)]
    promiscuous: bool,
    /// Look-up method: lpm (longest prefix match), fib (the same table), em (exact match of 5-tuples) or acl (rules) [default: lpm]
    #[arg(long, value_name = "METHOD", value_parser = method)]
    lookup: Option<Method>,
    /// As --lookup em
    #[arg(short = 'E', hide = true, conflicts_with_all = ["lookup", "longest_prefix"])]
    exact_match: bool,
    /// As --lookup lpm
    #[arg(short = 'L', hide = true, conflicts_with = "lookup")]
    longest_prefix: bool,
    /// Which lcore polls which rx queue: (port,queue,lcore),... [default: one queue a port, spread over all lcores]
    #[arg(long, value_name = "LIST")]
    pub(crate) config: Option<Config>,
    /// IPv4 rules, a line each; taken over anew when the file changes [default: 198.18.N.0/24 to port N]
    #[arg(long = "rule_ipv4", value_name = "FILE")]
    pub(crate) rule_ipv4: Option<PathBuf>,
    /// IPv6 rules, likewise [default: 2001:200:0:N::/64 to port N]
    #[arg(long = "rule_ipv6", value_name = "FILE")]
    pub(crate) rule_ipv6: Option<PathBuf>,
    /// Destination MAC address of what port X sends [default: 02:00:00:00:00:X]
    #[arg(long, value_name = "X,MM:MM:MM:MM:MM:MM")]
    pub(crate) eth_dest: Vec<EthDest>,
    /// Packets received at once, 1 to 64; 0 is the default
    #[arg(long, value_name = "NPKTS", default_value = "32", value_parser = burst)]
    pub(crate) rx_burst: usize,
    /// Packets gathered for a port that are sent before the round ends, 1 to 64; 0 is the default
    #[arg(long, value_name = "NPKTS", default_value = "32", value_parser = burst)]
    pub(crate) tx_burst: usize,
    /// Descriptors per rx queue; --rxd is the same
    #[arg(long, value_name = "NPKTS", value_parser = descriptors, conflicts_with = "rxd")]
    rx_queue_size: Option<u16>,
    /// Descriptors per tx queue; --txd is the same
    #[arg(long, value_name = "NPKTS", value_parser = descriptors, conflicts_with = "txd")]
    tx_queue_size: Option<u16>,
    /// Mbufs that each lcore's cache in the pool holds, 0 to 512 [default: 256]
    #[arg(long, value_name = "CACHESZ", value_parser = cache)]
    mbcache: Option<usize>,
    /// Longest frame in bytes, check sequence included, 64 to 9600 [default: the ports' MTU]
    #[arg(long, value_name = "PKTLEN", value_parser = packet_length)]
    max_pkt_len: Option<u32>,
    /// Statistics period in seconds, 0 to 86400; 0 prints only the final table
    #[arg(short = 'T', long, value_name = "PERIOD", default_value = "10", value_parser = period)]
    period: u32,
    /// Tell packet types in software, which is always done
    #[arg(long)]
    parse_ptype: bool,
    /// Forward IPv6, which is always done
    #[arg(long, hide = true)]
    ipv6: bool,
    /// Do without rx offloads that a port lacks, which is always done
    #[arg(long, hide = true)]
    relax_rx_offload: bool,
    #[command(flatten)]
    pub(crate) idle: IdleOptions,
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) absent: Absent,
}

/// How packets are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Longest prefix match: `lpm`, and `fib`, which DPDK has as another library.
    Lpm,
    /// Exact match.
    Em,
    /// Rules in the order of the file.
    Acl,
}

impl Options {
    pub(crate) fn method(&self) -> Method {
        let legacy = if self.exact_match { Method::Em } else { Method::Lpm };
        self.lookup.unwrap_or(legacy)
    }

    /// How often a table is printed.
    pub(crate) fn period(&self) -> Option<Duration> {
        (self.period > 0).then(|| Duration::from_secs(self.period.into()))
    }

    /// What they ask of the ports, which `lcores` lcores will poll.
    pub(crate) fn request(&self, lcores: usize) -> PortRequest {
        let mut request = self
            .run
            .port_request(lcores)
            .rx_interrupts_where_supported(self.idle.sleeps())
            .rx_where_supported(RxOffloads::IPV4_CKSUM);
        if self.promiscuous {
            request = request.promiscuous(true);
        }
        if let Some(count) = self.rx_queue_size {
            request = request.rx_descriptors(count);
        }
        if let Some(count) = self.tx_queue_size {
            request = request.tx_descriptors(count);
        }
        if let Some(count) = self.mbcache {
            request = request.mbuf_cache(count);
        }
        match self.max_pkt_len {
            Some(bytes) => request.mtu(bytes - FRAME_OVERHEAD),
            None => request,
        }
    }
}

/// `--eth-dest`: the destination of what a port sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EthDest {
    pub(crate) port: u16,
    pub(crate) address: MacAddress,
}

impl FromStr for EthDest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is not a port and a MAC address such as 1,02:00:00:00:00:09".to_owned();
        let (port, address) = text.split_once(',').ok_or_else(wrong)?;
        let plain = port.bytes().all(|digit| digit.is_ascii_digit());
        let port = port.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
        let address: MacAddress = address.parse().map_err(|_| wrong())?;
        if address.is_multicast() {
            return Err("is a multicast address: the first byte must be even, such as 02".into());
        }
        Ok(Self { port, address })
    }
}

fn method(text: &str) -> Result<Method, String> {
    match text {
        "lpm" | "fib" => Ok(Method::Lpm),
        "em" => Ok(Method::Em),
        "acl" => Ok(Method::Acl),
        _ => Err("is not one of lpm, fib, em, acl".into()),
    }
}

fn burst(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count <= BURST_MAX);
    let count = count.ok_or_else(|| format!("is not a whole number from 0 to {BURST_MAX}"))?;
    Ok(if count == 0 { BURST } else { count })
}

fn descriptors(text: &str) -> Result<u16, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("is not a whole number from 1 to {}", u16::MAX))
}

fn cache(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count <= pollux_mempool::CACHE_MAX);
    count.ok_or_else(|| format!("is not a whole number from 0 to {}", pollux_mempool::CACHE_MAX))
}

fn packet_length(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok().filter(|bytes| (64..=9600).contains(bytes));
    bytes.ok_or_else(|| "is not a whole number of bytes from 64 to 9600".into())
}

fn period(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= 86_400);
    seconds.ok_or_else(|| "is not a whole number of seconds from 0 to 86400".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["l3fwd"], words].concat())
    }

    #[test]
    fn the_method_is_chosen_once() {
        let method = |words: &[&str]| parsed(words).expect("options").method();
        assert_eq!([&[][..], &["-L"], &["-E"], &["--lookup", "fib"]].map(method), {
            [Method::Lpm, Method::Lpm, Method::Em, Method::Lpm]
        });
        assert_eq!([&["--lookup", "em"][..], &["--lookup=acl"]].map(method), [Method::Em, Method::Acl]);
        for twice in [&["-E", "-L"][..], &["-E", "--lookup", "em"], &["-L", "--lookup", "acl"]] {
            assert!(parsed(twice).is_err(), "{twice:?}");
        }
        assert!(parsed(&["--lookup", "hash"]).is_err());
    }

    #[test]
    fn a_destination_is_a_port_and_a_unicast_address() {
        let read = |text: &str| text.parse::<EthDest>();
        let address = MacAddress([2, 0, 0, 0, 0, 9]);
        assert_eq!(read("1,02:00:00:00:00:09"), Ok(EthDest { port: 1, address }));
        for wrong in ["", "1", "1,", "02:00:00:00:00:09", "-1,02:00:00:00:00:09", "65536,02:00:00:00:00:09"] {
            assert!(read(wrong).is_err_and(|why| why.contains("such as")), "{wrong}");
        }
        assert!(read("1,ff:ff:ff:ff:ff:ff").is_err_and(|why| why.contains("multicast")));
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!([burst("0"), burst("1"), burst("64")], [Ok(32), Ok(1), Ok(64)]);
        assert!(burst("65").is_err() && burst("x").is_err());
        assert!(packet_length("63").is_err() && packet_length("9601").is_err() && descriptors("0").is_err());
        assert_eq!((cache("512"), cache("513").is_err()), (Ok(512), true));
    }

    #[test]
    fn one_size_of_a_queue_is_given() {
        assert!(parsed(&["--rx-queue-size", "512", "--tx-queue-size", "512"]).is_ok());
        assert!(parsed(&["--rx-queue-size", "512", "--rxd", "256"]).is_err());
    }
}
