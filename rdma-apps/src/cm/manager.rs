//! Which connection manager a program has, and the frame of such a program.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use pollux_bringup::{BringupError, RdmaBringup, RdmaDevice};
use pollux_cm::{
    CmError, ConnectionParameters, Event, EventChannel, EventKind, Id, ManagementPort, Manager, PortSpace,
    RejectReason,
};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_eal::memory::Memory;
use pollux_verbs::{Context, Options, Qp, VerbsError};

use crate::rdma::{Failure, device, program};

/// How long an address or a route may take to be resolved; what the originals say.
pub const RESOLUTION: Duration = Duration::from_secs(2);
/// How long a wait for events lasts before a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How long the end of a connection may take to be agreed on.
const PARTING: Duration = Duration::from_secs(2);

/// The key of queue pairs of datagrams that are asked for by address. Source: Linux `include/rdma/rdma_cm.h`, `RDMA_UDP_QKEY`.
pub const DATAGRAM_QKEY: u32 = 0x0123_4567;

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
/// process, else the kernel's, which finds its devices by address. Where there is neither, two commands are printed that work on any
/// machine: these programs of server and client, with these options.
///
/// # Errors
/// One line.
pub fn run<W>(line: &CommandLine, example: [(&str, &str); 2], work: W) -> Result<(), BringupError>
where
    W: FnOnce(&LcoreContext, &Manager) -> Result<(), Failure> + Send + 'static,
{
    run_with_keys(line, example, [",ip=10.0.0.1/24", ",ip=10.0.0.2/24"], work)
}

/// The same, where the models of the two commands have other keys.
///
/// # Errors
/// One line.
pub fn run_with_keys<W>(
    line: &CommandLine,
    example: [(&str, &str); 2],
    keys: [&str; 2],
    work: W,
) -> Result<(), BringupError>
where
    W: FnOnce(&LcoreContext, &Manager) -> Result<(), Failure> + Send + 'static,
{
    let RdmaBringup { devices, eal, .. } = &mut RdmaBringup::by_address(line)?;
    match of(devices, eal.memory()) {
        Ok(manager) => program::on_main_lcore(eal, move |lcore| work(lcore, &manager)),
        Err(failure) => {
            if line.ports.is_empty() {
                program::suggest(&line.program, example, keys);
            }
            failure.end()
        }
    }
}

/// Runs `work` on a device as [`program::run`] does, with the connection manager of that device.
///
/// # Errors
/// One line.
pub fn run_on<W>(line: &CommandLine, wanted: Option<&str>, work: W) -> Result<(), BringupError>
where
    W: FnOnce(&LcoreContext, &RdmaDevice, &Manager) -> Result<(), Failure> + Send + 'static,
{
    let RdmaBringup { devices, eal, .. } = &mut RdmaBringup::new(line, wanted)?;
    let manager = match of(devices, eal.memory()) {
        Ok(manager) => manager,
        Err(failure) => return failure.end(),
    };
    let device = program::chosen(devices, wanted);
    program::on_main_lcore(eal, move |lcore| work(lcore, &device, &manager))
}

/// The manager over models, or the kernel's.
///
/// # Errors
/// Devices of both kinds, a wire that leads nowhere, or no manager of the kernel's.
pub fn of(devices: &[RdmaDevice], memory: &Memory) -> Result<Manager, Failure> {
    let models = devices.iter().filter(|device| device.wire().is_some()).count();
    if models == 0 {
        let options = Options { memory: memory.clone(), ..Options::default() };
        return Ok(Manager::kernel(Path::new("/"), options)?);
    }
    if models < devices.len() {
        let line = "a device model and a device of the kernel: name devices of one kind, each has a connection manager of its own";
        return Err(Failure::Usage(line.into()));
    }
    devices.iter().try_for_each(device::check_wire)?;
    let open = |device: &RdmaDevice| ManagementPort::open(&device.context, 1);
    let ports = devices.iter().map(open).collect::<Result<Vec<_>, VerbsError>>()?;
    Ok(Manager::over(ports))
}

/// The GID of a port that stands for an address, of RoCE v2 if there are two, and its index.
///
/// # Errors
/// The port has none.
pub fn gid_of(context: &Context, port: u8, address: IpAddr) -> Result<(u8, [u8; 16]), Failure> {
    let found = context.gid_of(port, address)?;
    let found = found.and_then(|gid| Some((u8::try_from(gid.index).ok()?, gid.gid)));
    found.ok_or_else(|| Failure::Error(format!("port {port} of {} has no GID for {address}", context.name())))
}

/// The device of an ID that has resolved its address or came with a request, and its port.
///
/// # Errors
/// It leads to none.
pub fn device_of(id: &Id) -> Result<(Context, u8), Failure> {
    id.device()?.ok_or_else(|| Failure::Error("the address leads to no device".into()))
}

/// Binds to an address and listens there.
///
/// # Errors
/// What the manager says.
pub fn listen(channel: &EventChannel, space: PortSpace, local: SocketAddr) -> Result<Id, Failure> {
    let listener = channel.create_id(space)?;
    listener.bind(local)?;
    listener.listen(0)?;
    Ok(listener)
}

/// The next event, whose wait a stop ends.
///
/// # Errors
/// A stop, or what the manager says.
pub fn next(lcore: &LcoreContext, channel: &EventChannel) -> Result<Event, Failure> {
    loop {
        if let Some(event) = channel.wait(LOOK)? {
            return Ok(event);
        }
        if lcore.stop_requested() {
            return Err(Failure::Stopped);
        }
    }
}

/// What an event is that ends an attempt.
#[must_use]
pub fn unexpected(kind: &EventKind, peer: SocketAddr) -> Failure {
    let advice = match kind {
        EventKind::AddressError(_) => "; check the address, and that its port is up",
        EventKind::Rejected { reason: RejectReason::INVALID_SERVICE_ID, .. } => {
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
    match next(lcore, channel)?.kind {
        EventKind::AddressResolved => {}
        other => return Err(unexpected(&other, peer)),
    }
    id.resolve_route(RESOLUTION)?;
    match next(lcore, channel)?.kind {
        EventKind::RouteResolved => Ok(()),
        other => Err(unexpected(&other, peer)),
    }
}

/// Connects a queue pair of an ID whose route is resolved, and waits for the peer's answer.
///
/// # Errors
/// The peer does not agree, or a stop.
pub fn connect(
    lcore: &LcoreContext,
    channel: &EventChannel,
    (id, qp): (&Id, &mut Qp),
    parameters: &ConnectionParameters,
    peer: SocketAddr,
) -> Result<(), Failure> {
    id.connect(qp, parameters)?;
    match next(lcore, channel)?.kind {
        EventKind::ConnectResponse(_) => Ok(id.establish(qp)?),
        other => Err(unexpected(&other, peer)),
    }
}

/// The next request for a connection.
///
/// # Errors
/// A stop, or what the manager says.
pub fn request(lcore: &LcoreContext, channel: &EventChannel) -> Result<(Id, ConnectionParameters), Failure> {
    loop {
        if let EventKind::ConnectRequest { id, parameters } = next(lcore, channel)?.kind {
            return Ok((id, parameters));
        }
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
