//! Options that all apps have.

use pollux_bringup::PortWishes;

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
}

impl RunOptions {
    /// What they ask of the ports, `lcores` polling them.
    #[must_use]
    pub fn wishes(&self, lcores: usize) -> PortWishes {
        PortWishes {
            mbufs: self.mbufs.unwrap_or(0),
            rx_descriptors: self.rxd.unwrap_or(0),
            tx_descriptors: self.txd.unwrap_or(0),
            promiscuous: None,
            lcores,
        }
    }
}

/// A time above zero.
///
/// # Errors
/// A sentence when it is none.
pub fn seconds(text: &str) -> Result<f64, String> {
    // The longest time: a thousand years, well inside what the clock counts.
    let time = text.parse().ok().filter(|time| (1e-6..3e10).contains(time));
    time.ok_or_else(|| "is not a time in seconds, such as 10 or 0.5".into())
}

/// A count from 1 to what no machine has.
///
/// # Errors
/// A sentence when it is none.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    const MOST: usize = 1 << 31;
    let count = text.parse().ok().filter(|count| (1..=MOST).contains(count));
    count.ok_or_else(|| format!("is not a whole number from 1 to {MOST}"))
}

fn descriptors(text: &str) -> Result<u16, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("is not a whole number from 1 to {}", u16::MAX))
}
