//! Options that all forwarders have.

use std::net::{Ipv4Addr, SocketAddr};

use pollux_bringup::{PortRequest, ReceiveRequest};

use crate::number::{at_least_one, seconds};

/// How a running program is looked at.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
pub struct WatchOptions {
    /// Serve Prometheus metrics, JSON and a live page over HTTP; a bare port is one of 127.0.0.1, port 0 any free one
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listener)]
    pub metrics: Option<SocketAddr>,
    /// Show rates, drops, lcores and latency on the terminal; q ends the program
    #[arg(long)]
    pub screen: bool,
}

/// How long to run, what to report, how much to set aside.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
pub struct RunOptions {
    /// Run for S seconds, then print the final report [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Print the final report as one line of JSON, the last line of standard output
    #[arg(long)]
    pub json: bool,
    /// Total number of mbufs [default: as many as the queues need]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub mbufs: Option<usize>,
    /// Descriptors per rx queue [default: set by the driver]
    #[arg(long, value_name = "N", value_parser = descriptors)]
    pub rxd: Option<u16>,
    /// Descriptors per tx queue [default: set by the driver]
    #[arg(long, value_name = "N", value_parser = descriptors)]
    pub txd: Option<u16>,
    /// Buffer split: segment lengths in bytes, each segment in mbufs of its own; 0 fills an mbuf
    #[arg(long, value_name = "X[,Y]", value_delimiter = ',', value_parser = bytes)]
    pub rxpkts: Vec<u16>,
    /// Buffer split: data offset of each segment in its mbuf, in bytes, after the headroom [default: 0]
    #[arg(long, value_name = "X[,Y]", value_delimiter = ',', value_parser = bytes)]
    pub rxoffs: Vec<u16>,
    /// Buffer split: mbuf size of each segment in bytes, headroom included; the last one applies to the rest; 0 discards the segment
    /// [default: that of unsplit packets]
    #[arg(long, value_name = "N[,N1]", value_delimiter = ',', value_parser = bytes)]
    pub mbuf_size: Vec<u16>,
    /// Enable TCP large receive offload (LRO)
    #[arg(long)]
    pub enable_lro: bool,
    /// Maximum size of an LRO packet in bytes [default: the port's maximum]
    #[arg(long, value_name = "N", value_parser = joined)]
    pub max_lro_pkt_size: Option<u32>,
    /// How it is looked at meanwhile.
    #[command(flatten)]
    pub watch: WatchOptions,
}

impl RunOptions {
    /// What they ask of the ports, which `lcores` lcores will poll.
    pub fn port_request(&self, lcores: usize) -> PortRequest {
        PortRequest::new()
            .lcores(lcores)
            .mbufs(self.mbufs.unwrap_or(0))
            .rx_descriptors(self.rxd.unwrap_or(0))
            .tx_descriptors(self.txd.unwrap_or(0))
            .receive(ReceiveRequest {
                lengths: self.rxpkts.clone(),
                offsets: self.rxoffs.clone(),
                sizes: self.mbuf_size.clone(),
                lro: self.enable_lro,
                lro_bytes: self.max_lro_pkt_size,
            })
    }
}

/// Where to listen: other addresses than this machine's own only where they are named.
fn listener(text: &str) -> Result<SocketAddr, String> {
    let loopback = |port: &str| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)));
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    let address = if text.starts_with('+') { None } else { loopback(port).or_else(|| text.parse().ok()) };
    address.ok_or_else(|| {
        "is not a TCP port or an address and a port such as 9100, 0.0.0.0:9100 or [::1]:9100".into()
    })
}

fn bytes(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("is not a whole number from 0 to {}", u16::MAX))
}

fn joined(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("is not a whole number from 0 to {}", u32::MAX))
}

fn descriptors(text: &str) -> Result<u16, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("is not a whole number from 1 to {}", u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_is_one_of_this_machine_alone() {
        let told = |text| listener(text).map(|address| address.to_string());
        for (text, address) in [
            ("9100", "127.0.0.1:9100"),
            ("0", "127.0.0.1:0"),
            ("localhost:80", "127.0.0.1:80"),
            ("0.0.0.0:9100", "0.0.0.0:9100"),
            ("[::1]:9100", "[::1]:9100"),
        ] {
            assert_eq!(told(text), Ok(address.into()), "{text}");
        }
        for wrong in ["", "65536", "-1", "+9100", ":9100", "127.0.0.1", "::1", "example.org:80", "9100/"] {
            assert!(told(wrong).is_err_and(|why| why.contains("such as 9100")), "{wrong}");
        }
    }
}
