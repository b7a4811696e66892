//! Calls of the program: connections to the control socket, of this user's processes alone.

use std::os::fd::{AsFd, OwnedFd};

use pollux_rsock_run::control::{Answer, BYTES, Request};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use rustix::process::getuid;

/// Most calls at once: more wait for these.
pub(crate) const CLIENTS_MAX: usize = 1024;

/// One of them.
#[derive(Debug)]
pub(crate) struct Client(OwnedFd);

/// What a client has to say.
#[derive(Debug)]
pub(crate) enum Said {
    Request(Request),
    Nothing,
    /// It has gone, or does not speak the protocol.
    Gone,
}

impl Client {
    /// The next one that came to the control socket.
    ///
    /// # Errors
    /// There may be one, which cannot be taken now.
    pub(crate) fn accept(control: &OwnedFd) -> Result<Option<Self>, Errno> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(control, flags) {
                Ok(socket) => {
                    // The folder keeps others away; root goes everywhere.
                    let user = socket_peercred(&socket).map(|peer| peer.uid);
                    if user.is_ok_and(|user| user == getuid() || user.is_root()) {
                        return Ok(Some(Self(socket)));
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }

    pub(crate) fn hear(&self) -> Said {
        let mut packet = [0; BYTES + 1];
        match recv(&self.0, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((_, bytes)) => match Request::decode(packet.get(..bytes).unwrap_or_default()) {
                Ok(request) => Said::Request(request),
                Err(_) => Said::Gone,
            },
            Err(Errno::AGAIN | Errno::INTR) => Said::Nothing,
            Err(_) => Said::Gone,
        }
    }

    /// Answers. One who does not read its answers gets none.
    pub(crate) fn answer(&self, answer: &Answer) {
        send(&self.0, &answer.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok();
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
