//! The options of the pingpongs, under the originals' names.
//!
//! Source of names and defaults: rdma-core `libibverbs/examples/{rc,uc,ud,srq,xsrq}_pingpong.c`.

use pollux_bringup::{BringupError, RdmaDevice};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_verbs::Mtu;

use crate::exchange::line::Patience;
use crate::number::{number, size, within};
use crate::rdma::{Appointment, Failure, device, program};

/// What all of them have.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Common {
    /// TCP port to listen on, or to connect to
    #[arg(short = 'p', long, value_name = "PORT", default_value = "18515", value_parser = |text: &str| within(text, 1, 65535))]
    pub port: u64,
    /// RDMA device to use [default: the first one named by --vdev or -a]
    #[arg(short = 'd', long, value_name = "DEV")]
    pub ib_dev: Option<String>,
    /// Device port
    #[arg(short = 'i', long, value_name = "PORT", default_value = "1", value_parser = |text: &str| within(text, 1, 255))]
    pub ib_port: u64,
    /// Message size in bytes [default: 4096; ud_pingpong: 1024]
    #[arg(short = 's', long, value_name = "BYTES", value_parser = size)]
    pub size: Option<u64>,
    /// Service level, 0 to 15
    #[arg(short = 'l', long, value_name = "SL", default_value = "0", value_parser = |text: &str| within(text, 0, 15))]
    pub sl: u64,
    /// Wait for CQ events instead of polling
    #[arg(short = 'e', long)]
    pub events: bool,
    /// Local GID table index; required on RoCE
    #[arg(short = 'g', long, value_name = "INDEX", value_parser = |text: &str| within(text, 0, 255))]
    pub gid_idx: Option<u64>,
    /// Seconds to wait for the peer, once connected, before giving up; 0 waits forever
    #[arg(long = "peer-timeout", value_name = "SECONDS", default_value = "60", value_parser = |text: &str| within(text, 0, 86400))]
    pub peer_timeout: u64,
    /// Print the final report as one line of JSON, the last line of standard output
    #[arg(long)]
    pub json: bool,
    /// Server to connect to; without it, run as the server
    #[arg(value_name = "HOST")]
    pub host: Option<String>,
}

impl Common {
    /// Runs one end, `work`, on the device that was chosen.
    ///
    /// # Errors
    /// One line.
    pub fn run<W>(&self, line: &CommandLine, paging: Paging, work: W) -> Result<(), BringupError>
    where
        W: FnOnce(&LcoreContext, &RdmaDevice, Appointment) -> Result<(), Failure> + Send + 'static,
    {
        let patience = Patience::seconds(Some(self.peer_timeout));
        let appointment = Appointment::new(self.host.as_deref(), self.port, patience);
        paging.check(line)?;
        appointment.check().or_else(Failure::end)?;
        program::run(line, self.ib_dev.as_deref(), move |lcore, device| {
            device::check_wire(device)?;
            work(lcore, device, appointment)
        })
    }
}

/// What all but XSRQ's have.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Volume {
    /// Receive queue depth, in WQEs
    #[arg(short = 'r', long, value_name = "N", default_value = "500", value_parser = |text: &str| within(text, 1, 1 << 24))]
    pub rx_depth: u64,
    /// Number of exchanges
    #[arg(short = 'n', long, value_name = "N", default_value = "1000", value_parser = |text: &str| within(text, 1, 1 << 40))]
    pub iters: u64,
    /// Validate every received buffer
    #[arg(short = 'c', long)]
    pub chk: bool,
}

impl Volume {
    /// What both ends must have been told alike. The size is not among them: a receive may be longer than what comes.
    #[must_use]
    pub fn shared(&self, program: &str) -> Vec<(&'static str, String)> {
        let check = if self.chk { "on" } else { "off" };
        vec![("the program", program.into()), ("-n", self.iters.to_string()), ("-c", check.into())]
    }
}

/// What all but UD's have.
#[derive(clap::Args, Clone, Debug)]
pub struct Path {
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(short = 'm', long, value_name = "BYTES", default_value = "1024", value_parser = mtu)]
    pub mtu: Mtu,
}

/// Options of `rc_pingpong` about its memory.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Paging {
    /// Register the message buffer on demand: its pages are not pinned (on-demand paging, ODP)
    #[arg(short = 'o', long)]
    pub odp: bool,
    /// Register all memory of the program on demand, the message buffer with it (implicit ODP)
    #[arg(short = 'O', long)]
    pub iodp: bool,
    /// Prefetch the pages of the message buffer; with -o or -O
    #[arg(short = 'P', long)]
    pub prefetch: bool,
    /// Not supported: unprotected memory of confidential guests
    #[arg(short = 'U', long = "allow-cc-unprotected")]
    pub unprotected: bool,
}

impl Paging {
    /// The option by which memory comes on demand, if one does.
    #[must_use]
    pub fn on_demand(self) -> Option<&'static str> {
        match self {
            Self { iodp: true, .. } => Some("-O"),
            Self { odp: true, .. } => Some("-o"),
            _ => None,
        }
    }

    /// Refuses what does not go together or is not there.
    fn check(self, line: &CommandLine) -> Result<(), BringupError> {
        let device = line.ports.first().map_or("the device", |port| &port.device.name);
        let usage = |line: String| Err(BringupError::Usage(line));
        if self.unprotected {
            return usage(format!(
                "-U: {device} does not support unprotected memory of confidential guests: leave it out"
            ));
        }
        if self.prefetch && self.on_demand().is_none() {
            return usage("-P requires -o or -O: only memory on demand is prefetched".into());
        }
        Ok(())
    }
}

fn mtu(text: &str) -> Result<Mtu, String> {
    let known = number(text).ok().and_then(Mtu::from_bytes);
    known.ok_or_else(|| "is not an RDMA MTU: choose 256, 512, 1024, 2048 or 4096".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        volume: Volume,
        #[command(flatten)]
        path: Path,
    }

    #[test]
    fn the_originals_options_are_read() {
        let line = Line::parse_from("rc -g 0 -n 1000 -s 0x40 -m 2048 -c 127.0.0.1".split(' '));
        assert_eq!((line.common.gid_idx, line.common.size, line.common.port), (Some(0), Some(64), 18515));
        assert_eq!(
            (line.volume.iters, line.volume.rx_depth, line.volume.chk, line.path.mtu),
            (1000, 500, true, Mtu::Bytes2048)
        );
        assert_eq!(line.common.host.as_deref(), Some("127.0.0.1"));
        let error = Line::try_parse_from("rc -m 1500".split(' ')).err().expect("no MTU").to_string();
        assert!(error.contains("choose 256, 512"), "{error}");
    }
}
