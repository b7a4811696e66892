//! One client: what it asks, and its capture.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use pollux_capture::{
    Asked, CLIENTS_MAX, CaptureReply, CaptureRequest, INTERFACES_MAX, Interface, Layout, Port, Program,
    Request, Response, SNAPLEN_MAX, Writer,
};
use pollux_eal::clock::Source;
use pollux_eal::prefix_socket::Gone;
use pollux_port::capture::{Attached, Tap};
use pollux_port::{PortId, PortView};
use rustix::io::{Errno, IoSlice};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use super::Served;

/// A client that is connected.
pub(super) struct Client {
    socket: OwnedFd,
    /// The capture, and its share of `Served::capturing`.
    capture: Option<(Attached, Arc<()>)>,
}

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

    /// Answers one message.
    pub(super) fn step(&mut self, served: &mut Served) -> Result<(), Gone> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let bytes = match recv(&self.socket, &mut *served.message, flags) {
            Ok((_, 0)) => return Err(Gone),
            Ok((_, bytes)) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(_) => return Err(Gone),
        };
        let request = match served.message.get(..bytes) {
            Some(message) => Asked::decode(message),
            None => Err(format!("a request has up to {} bytes, this one has {bytes}", served.message.len())),
        };
        // One is its own.
        let capturing = Arc::strong_count(&served.capturing) - 1;
        let answer = match request {
            Ok(Request::Ports) => Response::Ports(served.ports.list().iter().filter_map(describe).collect()),
            Ok(Request::Capture(_)) if self.is_capturing() => {
                Response::Error("this connection has a capture already; open another one".into())
            }
            Ok(Request::Capture(_)) if capturing >= CLIENTS_MAX => Response::Error(format!(
                "{CLIENTS_MAX} captures run already, which is the most; end one of them"
            )),
            Ok(Request::Capture(request)) => match capture(served, &request) {
                Ok((writer, attached)) => return self.begin(served, &request, &writer, attached),
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
        self.capture = Some((attached, Arc::clone(&served.capturing)));
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Before the socket is closed, which tells the client that nothing more is written.
        drop(self.capture.take());
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
    Ok((writer, attached.map_err(|error| error.to_string())?))
}
