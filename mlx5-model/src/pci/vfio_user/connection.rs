//! Messages from and to a socket: whole, with their descriptors.

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use zerocopy::IntoBytes;

use super::{DESCRIPTORS_MAX, Header, MESSAGE_MAX, flag};

/// A message, with what came with it.
#[derive(Debug)]
pub(in super::super) struct Request {
    pub(in super::super) header: Header,
    pub(in super::super) body: Vec<u8>,
    pub(in super::super) descriptors: Vec<OwnedFd>,
}

/// Why there are no more messages.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Broken {
    /// What came is no message, or not one that may come now.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
}

/// One end of a socket.
#[derive(Debug)]
pub(in super::super) struct Connection {
    stream: UnixStream,
}

impl Connection {
    pub(in super::super) fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// How long a message may take that is waited for or written.
    pub(in super::super) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)?;
        self.stream.set_write_timeout(patience)
    }

    /// Whether the next message, or a part of it, is there.
    pub(in super::super) fn has_more(&self) -> bool {
        rustix::io::ioctl_fionread(&self.stream).is_ok_and(|bytes| bytes > 0)
    }

    /// Waits for the next command. `None` when the peer has ended the connection between two messages.
    pub(in super::super) fn receive(&mut self) -> Result<Option<Request>, Broken> {
        let mut header = Header::default();
        let mut descriptors = Vec::new();
        if !self.receive_header(header.as_mut_bytes(), &mut descriptors)? {
            return Ok(None);
        }
        let bytes = header.bytes as usize;
        if !(size_of::<Header>()..=MESSAGE_MAX).contains(&bytes) {
            let what =
                format!("a message of {bytes} bytes, {} to {MESSAGE_MAX} are allowed", size_of::<Header>());
            return Err(Broken::Protocol(what));
        }
        if header.flags & flag::KIND != flag::COMMAND {
            return Err(Broken::Protocol(format!("flags {:#x}: not a command", header.flags)));
        }
        // Bounded, as just checked. Descriptors that come amid a message are closed by the kernel.
        let mut body = vec![0; bytes - size_of::<Header>()];
        self.stream.read_exact(&mut body).map_err(|why| match why.kind() {
            io::ErrorKind::UnexpectedEof => Broken::Protocol("the last message was cut off".into()),
            _ => why.into(),
        })?;
        Ok(Some(Request { header, body, descriptors }))
    }

    /// Whether there was one.
    fn receive_header(&mut self, header: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<bool, Broken> {
        let mut done = 0;
        while done < header.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut rest = [IoSliceMut::new(&mut header[done..])];
            let got = match recvmsg(&self.stream, &mut rest, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other.map_err(io::Error::from)?,
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = message {
                    descriptors.extend(more);
                }
            }
            if got.flags.contains(rustix::net::ReturnFlags::CTRUNC) || descriptors.len() > DESCRIPTORS_MAX {
                let what = format!("more than {DESCRIPTORS_MAX} descriptors with a message");
                return Err(Broken::Protocol(what));
            }
            match (got.bytes, done) {
                (0, 0) => return Ok(false),
                (0, _) => return Err(Broken::Protocol("the last message was cut off".into())),
                (bytes, _) => done += bytes,
            }
        }
        Ok(true)
    }

    /// Answers `to` with `body`, unless no reply is wanted.
    pub(in super::super) fn reply(&mut self, to: &Header, body: &[u8]) -> io::Result<()> {
        self.send(to, 0, 0, body)
    }

    /// Answers `to` with an error, unless no reply is wanted.
    pub(in super::super) fn refuse(&mut self, to: &Header, errno: u32) -> io::Result<()> {
        self.send(to, flag::ERROR, errno, &[])
    }

    fn send(&mut self, to: &Header, flags: u32, errno: u32, body: &[u8]) -> io::Result<()> {
        if to.flags & flag::NO_REPLY != 0 {
            return Ok(());
        }
        let bytes = (size_of::<Header>() + body.len()) as u32;
        let header = Header { id: to.id, command: to.command, bytes, flags: flag::REPLY | flags, errno };
        // One message, one system call.
        self.stream.write_all(&[header.as_bytes(), body].concat())
    }
}
