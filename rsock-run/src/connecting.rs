//! Connections that the program asks for, until they are made by RDMA or cannot be.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use pollux_rsocket::{PollEntry, RsOptions, RsStream, poll};

use crate::device::Devices;
use crate::events::Token;
use crate::notice::Reason;

/// How long it is tried by RDMA.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Connecting {
    /// Whose call it is.
    pub(crate) client: Token,
    pub(crate) peer: SocketAddr,
    /// On its way, or why it is not.
    stream: std::io::Result<RsStream>,
    begun: Instant,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Connected(RsStream),
    /// Why not, and in words.
    Not(Reason, String),
}

impl Connecting {
    /// Begins, from an address of ours if the program chose one.
    pub(crate) fn new(
        devices: &Devices,
        options: &RsOptions,
        client: Token,
        (source, peer): (Option<SocketAddr>, SocketAddr),
    ) -> Self {
        let stream = RsStream::start_connect(&devices.manager, source, peer, options);
        Self { client, peer, stream, begun: Instant::now() }
    }

    /// Goes on. `None`: it is not decided.
    pub(crate) fn look(&self, devices: &Devices) -> Option<Outcome> {
        if self.begun.elapsed() > PATIENCE {
            return Some(Outcome::Not(Reason::Silent, "not in time".into()));
        }
        let stream = match &self.stream {
            Ok(stream) => stream,
            Err(error) => return Some(not(devices, error)),
        };
        let mut entries = [PollEntry::stream(stream, false, true)];
        if poll(&mut entries, Some(Duration::ZERO)).is_ok_and(|ready| ready == 0) {
            return None;
        }
        Some(match stream.take_error().ok().flatten() {
            None => Outcome::Connected(stream.clone()),
            Some(error) => not(devices, &error),
        })
    }
}

fn not(devices: &Devices, error: &std::io::Error) -> Outcome {
    let reason = match error.kind() {
        ErrorKind::ConnectionRefused => Reason::Refused,
        ErrorKind::NetworkUnreachable => Reason::Elsewhere,
        // Nobody answers, also where it is an error of the address that says so.
        ErrorKind::TimedOut => return Outcome::Not(Reason::Silent, error.to_string()),
        // A kernel's manager says so of addresses that no device leads to.
        ErrorKind::AddrNotAvailable if devices.are_kernels() => Reason::Elsewhere,
        _ if devices.are_kernels() && error.to_string().contains("ADDR_ERROR") => Reason::Elsewhere,
        _ => return Outcome::Not(Reason::Silent, error.to_string()),
    };
    let detail = if reason == Reason::Elsewhere { String::new() } else { error.to_string() };
    Outcome::Not(reason, detail)
}
