//! Options that all forwarders have.

use pollux_bringup::{PortRequest, ReceiveRequest};

use crate::number::{at_least_one, seconds};

/// How long to run, what to report, how much to set aside.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
pub struct RunOptions {
    /// Stop after this many seconds, with the final report
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Print the final report as one JSON object, the last line of standard output
    #[arg(long)]
    pub json: bool,
    /// Packet buffers in all [default: as many as the queues need]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub mbufs: Option<usize>,
    /// Descriptors of each rx queue [default: the driver's]
    #[arg(long, value_name = "N", value_parser = descriptors)]
    pub rxd: Option<u16>,
    /// Descriptors of each tx queue [default: the driver's]
    #[arg(long, value_name = "N", value_parser = descriptors)]
    pub txd: Option<u16>,
    /// Split received packets into parts of so many bytes, an mbuf or more each; 0: as many as one has room for
    #[arg(long, value_name = "X[,Y]", value_delimiter = ',', value_parser = bytes)]
    pub rxpkts: Vec<u16>,
    /// How far into its mbuf's room each part begins [default: at once]
    #[arg(long, value_name = "X[,Y]", value_delimiter = ',', value_parser = bytes)]
    pub rxoffs: Vec<u16>,
    /// Bytes of an mbuf of each part, headroom included, the last for all behind; 0: the part is dropped [default: the usual]
    #[arg(long, value_name = "N[,N1]", value_delimiter = ',', value_parser = bytes)]
    pub mbuf_size: Vec<u16>,
    /// Join received TCP segments
    #[arg(long)]
    pub enable_lro: bool,
    /// The longest packet joined of TCP segments, in bytes [default: as long as the port can]
    #[arg(long, value_name = "N", value_parser = joined)]
    pub max_lro_pkt_size: Option<u32>,
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
