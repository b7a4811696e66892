//! The conversation with the application.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use pollux_capture::{
    Asked, CaptureReply, CaptureRequest, MESSAGE_BYTES_MAX, Port, Request, Response, SOCKET,
};
use pollux_eal::prefix_socket::{directory, name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, shutdown, socket_with, sockopt,
};

use crate::error::DumpcapError;

/// How long an answer may take: the application asks devices, and makes memory.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to an application.
pub(crate) struct Client {
    path: PathBuf,
    socket: OwnedFd,
}

impl Client {
    /// Connects to the application of a file prefix that came `instance`th.
    pub(crate) fn connect(file_prefix: &str, instance: u16) -> Result<Self, DumpcapError> {
        let path = directory(file_prefix).join(name(SOCKET, instance));
        let wrong = |source: Errno| DumpcapError::Connect {
            prefix: file_prefix.into(),
            path: path.clone(),
            source: source.into(),
        };
        let address = SocketAddrUnix::new(&path).map_err(wrong)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(wrong)?;
        for side in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, side, Some(PATIENCE)).map_err(wrong)?;
        }
        connect(&socket, &address).map_err(wrong)?;
        Ok(Self { path, socket })
    }

    /// Asks for the ports.
    pub(crate) fn ports(&self) -> Result<Vec<Port>, DumpcapError> {
        match self.ask(Request::Ports)? {
            (Response::Ports(ports), _) => Ok(ports),
            (other, _) => Err(self.odd(&other)),
        }
    }

    /// Begins the capture; the file is that of the ring.
    pub(crate) fn capture(&self, request: CaptureRequest) -> Result<(CaptureReply, OwnedFd), DumpcapError> {
        match self.ask(Request::Capture(request))? {
            (Response::Capture(reply), Some(file)) => Ok((reply, file)),
            (other, _) => Err(self.odd(&other)),
        }
    }

    /// Waits until the application ends or `timeout` has passed; whether it has ended.
    pub(crate) fn ended(&self, timeout: Duration) -> bool {
        let mut files = [PollFd::new(&self.socket, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        // It says nothing more: what comes is the end. A signal shows in its flag.
        poll(&mut files, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Ends the capture. What passed before is in the ring when [`ended`](Self::ended) says so.
    pub(crate) fn stop(&self) {
        // An application that is gone has stopped.
        let _gone = shutdown(&self.socket, Shutdown::Write);
    }

    fn ask(&self, request: Request) -> Result<(Response, Option<OwnedFd>), DumpcapError> {
        let failed =
            |source: Errno| DumpcapError::Conversation { path: self.path.clone(), source: source.into() };
        let message = Asked::encode(request);
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(DumpcapError::Long { bytes: message.len() });
        }
        send(&self.socket, &message, SendFlags::NOSIGNAL).map_err(failed)?;
        let mut answer = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut answer)], &mut control, flags);
        let bytes = received.map_err(failed)?.bytes;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        if bytes == 0 {
            return Err(failed(Errno::CONNRESET));
        }
        let refused = |problem| DumpcapError::Refused { path: self.path.clone(), problem };
        match Response::decode(&answer[..bytes]).map_err(refused)? {
            Response::Error(problem) => Err(refused(problem)),
            response => Ok((response, file)),
        }
    }

    /// A client, and the program's end of its connection.
    #[cfg(test)]
    pub(crate) fn pair() -> (Self, OwnedFd) {
        let pair =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, program) = pair.expect("sockets");
        (Self { path: PathBuf::new(), socket }, program)
    }

    fn odd(&self, response: &Response) -> DumpcapError {
        DumpcapError::Refused {
            path: self.path.clone(),
            problem: format!("an answer to another question: {response:?}"),
        }
    }
}
