//! Which connection manager a program has, and the frame of such a program.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use pollux_bringup::program::say;
use pollux_bringup::{BringupError, RdmaBringup, RdmaDevice};
use pollux_cm::{CmError, Event, EventChannel, EventKind, Id, ManagementPort, Manager};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_verbs::{Options, VerbsError};

use crate::rdma::{Failure, device};

/// How long an address or a route may take to be resolved; what the originals say.
pub const RESOLUTION: Duration = Duration::from_secs(2);
/// How long a wait for events lasts before a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How long the end of a connection may take to be agreed on.
const PARTING: Duration = Duration::from_secs(2);

impl From<CmError> for Failure {
    fn from(error: CmError) -> Self {
        match error {
            CmError::Verbs(error) => error.into(),
            error @ (CmError::NoDevice { .. } | CmError::PortInUse { .. } | CmError::PrivateData { .. }) => {
                Self::Usage(error.to_string())
            }
            error => Self::Error(error.to_string()),
        }
    }
}

/// Brings up what the command line names, and runs `work` on the main lcore with its connection manager: of device models one in this
/// process, else the kernel's, which finds its devices by address.
///
/// # Errors
/// One line.
pub fn run<W>(line: &CommandLine, work: W) -> Result<(), BringupError>
where
    W: FnOnce(&LcoreContext, &Manager) -> Result<(), Failure> + Send + 'static,
{
    let RdmaBringup { devices, eal, .. } = &mut RdmaBringup::by_address(line)?;
    let manager = of(devices, eal.memory()).inspect_err(|_| {
        if line.ports.is_empty() {
            suggest(&line.program);
        }
    });
    let manager = manager.or_else(|failure| failure.end().map(|()| None))?;
    let Some(manager) = manager else { return Ok(()) };
    let main = eal.lcores().main();
    let launched = eal.launch(main, move |lcore| work(lcore, &manager))?;
    match launched.wait() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => failure.end(),
        Err(panicked) => Err(BringupError::Runtime(panicked.to_string())),
    }
}

/// The manager over models, or the kernel's.
fn of(devices: &[RdmaDevice], memory: &pollux_eal::memory::Memory) -> Result<Option<Manager>, Failure> {
    let models = devices.iter().filter(|device| device.wire().is_some()).count();
    if models == 0 {
        let options = Options { memory: memory.clone(), ..Options::default() };
        return Ok(Some(Manager::kernel(Path::new("/"), options)?));
    }
    if models < devices.len() {
        let line = "a device model and a device of the kernel: name devices of one kind, each has a connection manager of its own";
        return Err(Failure::Usage(line.into()));
    }
    devices.iter().try_for_each(device::check_wire)?;
    let open = |device: &RdmaDevice| ManagementPort::open(&device.context, 1);
    let ports = devices.iter().map(open).collect::<Result<Vec<_>, VerbsError>>()?;
    Ok(Some(Manager::over(ports)))
}

/// Two commands that work on any machine.
fn suggest(program: &str) {
    let command = |lcore, own, other, ip, rest| {
        say(format_args!(
            "  {program} -l {lcore} --vdev mlx5_model0,wire=unix:/tmp/{own}:/tmp/{other},ip={ip}/24 -- {rest}"
        ));
    };
    say(format_args!("{program}: to run on any machine between two device models, start in two shells:"));
    let [server, client] = match program {
        "rping" => ["-s -a 10.0.0.1", "-c -a 10.0.0.1"],
        _ => ["-b 10.0.0.1", "-s 10.0.0.1"],
    };
    command(0, "a", "b", "10.0.0.1", server);
    command(1, "b", "a", "10.0.0.2", client);
}

/// The address of a host, of IPv4 if it has one.
///
/// # Errors
/// It has none.
pub fn address(host: &str, option: &str) -> Result<IpAddr, Failure> {
    let refuse =
        |why: String| Failure::Usage(format!("{option} {host}: {why}; give a host name or an IP address"));
    let all: Vec<SocketAddr> =
        (host, 0).to_socket_addrs().map_err(|error| refuse(error.to_string()))?.collect();
    let found = all.iter().find(|address| address.is_ipv4()).or(all.first());
    found.map(SocketAddr::ip).ok_or_else(|| refuse("no address".into()))
}

/// The next event, whose wait a stop ends. `None` after `limit`, if there is one.
///
/// # Errors
/// A stop, or what the manager says.
pub fn next(
    lcore: &LcoreContext,
    channel: &EventChannel,
    limit: Option<Duration>,
) -> Result<Option<Event>, Failure> {
    let begin = Instant::now();
    loop {
        let left = limit.map_or(LOOK, |limit| limit.saturating_sub(begin.elapsed()).min(LOOK));
        if let Some(event) = channel.wait(left)? {
            return Ok(Some(event));
        }
        if lcore.stop_requested() {
            return Err(Failure::Stopped);
        }
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            return Ok(None);
        }
    }
}

/// What an event is that ends an attempt.
#[must_use]
pub fn unexpected(kind: &EventKind, peer: SocketAddr) -> Failure {
    let advice = match kind {
        EventKind::AddressError(_) => "; check the address, and that its port is up",
        EventKind::Rejected { reason, .. } if reason.0 == 8 => {
            "; nobody listens there: start the server first, with the same -p"
        }
        EventKind::Unreachable(_) => "; the connection manager there does not answer",
        _ => "",
    };
    Failure::Error(format!("{peer}: {kind}{advice}"))
}

/// Resolves address and route.
///
/// # Errors
/// Nothing leads there.
pub fn resolve(
    lcore: &LcoreContext,
    channel: &EventChannel,
    id: &Id,
    source: Option<IpAddr>,
    peer: SocketAddr,
) -> Result<(), Failure> {
    id.resolve_address(source.map(|source| SocketAddr::new(source, 0)), peer, RESOLUTION)?;
    let event = next(lcore, channel, None)?;
    match event.map(|event| event.kind) {
        Some(EventKind::AddressResolved) => {}
        other => return Err(other.map_or(Failure::Stopped, |kind| unexpected(&kind, peer))),
    }
    id.resolve_route(RESOLUTION)?;
    match next(lcore, channel, None)?.map(|event| event.kind) {
        Some(EventKind::RouteResolved) => Ok(()),
        other => Err(other.map_or(Failure::Stopped, |kind| unexpected(&kind, peer))),
    }
}

/// Waits until the end of a connection is agreed on, a moment at most.
pub fn part(channel: &EventChannel) {
    let begin = Instant::now();
    while begin.elapsed() < PARTING {
        match channel.wait(LOOK) {
            Ok(Some(Event { kind: EventKind::Disconnected, .. })) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
