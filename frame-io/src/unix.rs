//! Raw frames in unix datagrams: a wire between two processes, as QEMU's `-netdev dgram` has it.
//!
//! ```text
//!   LOCAL ◄── datagrams ── PEER         each datagram a frame, without FCS
//!   LOCAL ── datagrams ──► PEER         the kernel queues few and then says "not now"
//! ```
//!
//! Few are as many as fit the sender's buffer (net.core.wmem_default, some 277 short ones) while both sockets are connected to
//! each other; 10 (net.unix.max_dgram_qlen) when the peer listens to everybody. Source: Linux `net/unix/af_unix.c`,
//! `unix_dgram_sendmsg`.
//!
//! Nothing blocks and nothing is lost while both sockets are there: a datagram that finds no room is refused at the sender,
//! who offers it again.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use pollux_eal::socket_file::{SocketFile, check_path};
use rustix::net::{RecvFlags, recv};

use crate::{FrameError, Trouble};

/// A socket of one's own, and the peer's.
#[derive(Debug)]
pub struct UnixFrames {
    socket: UnixDatagram,
    local: SocketFile,
    peer: PathBuf,
    connected: bool,
}

impl UnixFrames {
    /// Makes the socket `local`, to which its owner alone may send; see [`SocketFile::datagram`] for a file that stands there
    /// already. The peer need not be there.
    ///
    /// # Errors
    /// [`FrameError::Socket`]; [`FrameError::System`] of fcntl(2).
    pub fn open(local: &Path, peer: &Path) -> Result<Self, FrameError> {
        check_path(peer)?;
        let (socket, file) = SocketFile::datagram(local)?;
        socket
            .set_nonblocking(true)
            .map_err(|why| FrameError::system("fcntl", &local.display().to_string(), why))?;
        Ok(Self { socket, local: file, peer: peer.into(), connected: false })
    }

    /// The path of one's own socket.
    #[must_use]
    pub fn local(&self) -> &Path {
        self.local.path()
    }

    /// The path of the peer's.
    #[must_use]
    pub fn peer(&self) -> &Path {
        &self.peer
    }

    /// Looks whether the peer is there, and connects to it: to be called now and then, whether it was or not, since nothing else
    /// tells that a peer has gone or that another has come in its place. One system call.
    pub fn connect(&mut self) -> bool {
        // EPERM: that socket listens to somebody else. ENOENT, ECONNREFUSED: nobody is there.
        self.connected = self.socket.connect(&self.peer).is_ok();
        self.connected
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// [`Trouble::Busy`] when the peer's queue is full; [`Trouble::Down`] when it is not there; [`Trouble::Refused`] for a frame
    /// longer than the kernel's buffers.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Trouble> {
        if !self.connected {
            return Err(Trouble::Down);
        }
        let Err(error) = self.socket.send(frame) else { return Ok(()) };
        match error.raw_os_error().unwrap_or(0) {
            libc::ECONNREFUSED | libc::ENOTCONN | libc::ECONNRESET | libc::EPIPE | libc::EPERM => {
                self.connected = false;
                Err(Trouble::Down)
            }
            errno => Err(Trouble::from_errno(errno)),
        }
    }

    /// Takes the next frame, if there is one, into `room`. Gives its whole length, which is more than what was written if it
    /// did not fit.
    #[inline]
    pub fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        // An error is the end of what is there, or the news that the peer has gone, which `connect` will find.
        recv(&self.socket, room, RecvFlags::DONTWAIT | RecvFlags::TRUNC).ok().map(|(_, bytes)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn pair(folder: &Path) -> (UnixFrames, UnixFrames) {
        let (a, b) = (folder.join("a"), folder.join("b"));
        let mut first = UnixFrames::open(&a, &b).expect("a socket");
        let mut second = UnixFrames::open(&b, &a).expect("a socket");
        assert!(first.connect() && second.connect());
        (first, second)
    }

    #[test]
    fn frames_go_both_ways_and_a_full_queue_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut a, mut b) = pair(folder.path());
        let mut room = [0; 64];
        assert_eq!(b.receive(&mut room), None);
        let mut sent = 0_u32;
        while a.send(&sent.to_be_bytes()).is_ok() {
            sent += 1;
            assert!(sent < 100_000, "the kernel's queue has an end");
        }
        assert_eq!(a.send(&sent.to_be_bytes()), Err(Trouble::Busy));
        for number in 0..sent {
            assert_eq!(b.receive(&mut room), Some(4));
            assert_eq!(room[..4], number.to_be_bytes());
        }
        assert_eq!(b.send(&[9; 1000]), Ok(()));
        assert_eq!(a.receive(&mut room), Some(1000), "the whole length of a frame that was cut");
    }

    #[test]
    fn a_peer_that_goes_is_noticed_and_one_that_comes_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut a, b) = pair(folder.path());
        drop(b);
        assert!(!folder.path().join("b").exists(), "it removes its socket");
        assert_eq!(a.send(&[0; 60]), Err(Trouble::Down));
        assert!(!a.connect());
        let mut b = UnixFrames::open(&folder.path().join("b"), &folder.path().join("a")).expect("again");
        assert!(b.connect() && a.connect());
        assert_eq!(a.send(&[0; 60]), Ok(()));
    }

    #[test]
    fn what_a_killed_process_left_is_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        // Dropped without its own clean-up, as SIGKILL does.
        drop(UnixDatagram::bind(&a).expect("a socket"));
        assert!(a.exists());
        let first = UnixFrames::open(&a, &b).expect("taken over");
        let error = UnixFrames::open(&a, &b).expect_err("in use");
        assert!(error.to_string().contains("another process has this socket open"), "{error}");
        drop(first);
        assert!(!a.exists());
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("precious");
        fs::write(&file, "data").expect("written");
        UnixFrames::open(&file, &folder.path().join("b")).expect_err("refused");
        assert_eq!(fs::read(&file).expect("still there"), b"data");
        let long = folder.path().join("x".repeat(200));
        let error = UnixFrames::open(&long, &file).expect_err("too long").to_string();
        assert!(error.contains("a socket's path has 1 to 107 bytes"), "{error}");
    }

    #[test]
    fn a_socket_that_took_our_place_is_not_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let first = UnixFrames::open(&a, &b).expect("a socket");
        fs::remove_file(&a).expect("removed by somebody");
        let second = UnixFrames::open(&a, &b).expect("another");
        drop(first);
        assert!(a.exists());
        drop(second);
        assert!(!a.exists());
    }
}
