//! One client: what it asks, and its capture.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_capture::{
    Asked, CLIENTS_MAX, CaptureReply, CaptureRequest, INTERFACES_MAX, Interface, Layout, Port, Program,
    Request, Response, SNAPLEN_MAX, Writer,
};
use pollux_eal::clock::Source;
use pollux_port::capture::{Attached, Captures, Tap};
use pollux_port::{PortId, PortView};
use rustix::io::{Errno, IoSlice};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use super::Served;

/// How long queues have to see a new capture.
const SETTLE: Duration = Duration::from_millis(20);

/// A client that is connected.
pub(super) struct Client {
    socket: OwnedFd,
    capture: Option<Attached>,
}

/// The client is gone, or is to go.
pub(super) struct Gone;

impl Client {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, capture: None }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn is_capturing(&self) -> bool {
        self.capture.is_some()
    }

    /// Answers one message; `capturing` clients have a capture.
    pub(super) fn step(&mut self, served: &Served, capturing: usize, message: &mut [u8]) -> Result<(), Gone> {
        let bytes = match recv(&self.socket, &mut *message, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) => return Err(Gone),
            Ok((_, bytes)) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(_) => return Err(Gone),
        };
        let request = match message.get(..bytes) {
            Some(message) => Asked::decode(message),
            None => Err(format!("a request has up to {} bytes, this one has {bytes}", message.len())),
        };
        let answer = match request {
            Ok(Request::Ports) => Response::Ports(served.ports.list().iter().filter_map(describe).collect()),
            Ok(Request::Capture(_)) if self.is_capturing() => {
                Response::Error("this connection has a capture already; open another one".into())
            }
            Ok(Request::Capture(_)) if capturing >= CLIENTS_MAX => Response::Error(format!(
                "{CLIENTS_MAX} captures run already, which is the most; end one of them"
            )),
            Ok(Request::Capture(request)) => match capture(served, &request) {
                Ok((writer, attached)) => {
                    settle(&served.captures);
                    return self.begin(served, &request, &writer, attached);
                }
                Err(problem) => Response::Error(problem),
            },
            Err(problem) => Response::Error(problem),
        };
        send(&self.socket, &answer, None)
    }

    fn begin(
        &mut self,
        served: &Served,
        request: &CaptureRequest,
        writer: &Writer,
        attached: Attached,
    ) -> Result<(), Gone> {
        let clock = served.clock;
        let reply = CaptureReply {
            ring_bytes: request.ring_bytes,
            hz: clock.hz(),
            tsc: clock.source() != Source::Monotonic,
        };
        send(&self.socket, &Response::Capture(reply), writer.file())?;
        self.capture = Some(attached);
        Ok(())
    }
}

/// Sends an answer, with a file if there is one. A client that does not read its answers goes.
fn send(socket: &OwnedFd, answer: &Response, file: Option<BorrowedFd<'_>>) -> Result<(), Gone> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let message = answer.encode();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&message)], &mut control, flags).map(|_| ()).map_err(|_| Gone)
}

fn describe(view: &PortView) -> Option<Port> {
    let info = view.info()?;
    let stats = view.stats()?;
    Some(Port {
        id: view.id().0,
        name: view.name().into(),
        driver: info.driver.into(),
        device: info.device,
        mac: view.mac_addresses().and_then(|all| all.first().map(|mac| mac.0)),
        mbps: view.link().and_then(|link| link.speed_mbps).unwrap_or(0),
        received: stats.ipackets,
        missed: stats.imissed + stats.ierrors + stats.rx_nombuf,
    })
}

/// Waits until all queues that are polled have seen the change: an lcore that was preempted within a burst may yet receive what the client
/// makes arrive once it is told that it captures. Queues that nobody polls are not waited for longer.
fn settle(captures: &Captures) {
    let end = Instant::now() + SETTLE;
    while captures.collect() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a ring and has the ports fill it.
fn capture(served: &Served, request: &CaptureRequest) -> Result<(Arc<Writer>, Attached), String> {
    let layout = Layout::of_bytes(request.ring_bytes).ok_or_else(|| {
        format!(
            "a ring of {} bytes: it must be a power of two from {} to {}",
            request.ring_bytes,
            Layout::BYTES_MIN,
            Layout::BYTES_MAX
        )
    })?;
    let count = request.interfaces.len();
    if !(1..=INTERFACES_MAX).contains(&count) {
        return Err(format!("{count} interfaces: a capture has 1 to {INTERFACES_MAX}"));
    }
    let mut interfaces = Vec::new();
    for (number, wanted) in request.interfaces.iter().enumerate() {
        let port = PortId(wanted.port);
        if served.ports.get(port).is_none() {
            return Err(format!("there is no port {port}"));
        }
        if interfaces.iter().any(|(other, _)| *other == port) {
            return Err(format!("port {port} is named twice"));
        }
        if !(1..=SNAPLEN_MAX).contains(&wanted.snaplen) {
            return Err(format!("a snap length of {}: it must be from 1 to {SNAPLEN_MAX}", wanted.snaplen));
        }
        let filter = wanted.filter.as_deref().map(Program::verify).transpose();
        let filter = filter.map_err(|error| format!("the filter of port {port}: {error}"))?;
        // At most 64.
        interfaces.push((port, Interface { number: number as u16, snaplen: wanted.snaplen, filter }));
    }
    let writer = Writer::new(layout).map_err(|error| pollux_eal::with_causes(&error))?;
    let writer = Arc::new(writer);
    let tap = |(port, interface)| Tap { port, interface, writer: Arc::clone(&writer), clock: served.clock };
    let attached = served.captures.attach(interfaces.into_iter().map(tap).collect());
    let attached =
        attached.ok_or("as many captures run at one of these ports as there may be; end one of them")?;
    Ok((writer, attached))
}
