//! Raw frames, sent by a plain packet socket and seen by tcpdump: nothing of the project's own is on either side.
#![expect(unsafe_code, reason = "packet sockets are made of system calls without a safe wrapper in std")]

use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use crate::netns::Namespace;

/// Sends frames out of `interface`, whole and as they are.
///
/// # Panics
/// When the kernel refuses one.
pub fn send(from: &Namespace, interface: &str, frames: Vec<Vec<u8>>) {
    let name = CString::new(interface).unwrap_or_else(|why| panic!("{interface}: {why}"));
    let sender = from.enter(move || {
        // SAFETY: a plain system call; the descriptor that it answers is owned from here on.
        let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(raw >= 0, "packet socket: {}", std::io::Error::last_os_error());
        // SAFETY: `raw` was just opened and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: `name` is a C string that lives across the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        assert!(index > 0, "{name:?}: {}", std::io::Error::last_os_error());
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET.cast_unsigned() as u16;
        to.sll_ifindex = index.cast_signed();
        to.sll_halen = 6;
        for frame in frames {
            // SAFETY: the frame and the address are live for the call, and their lengths are passed with them.
            let sent = unsafe {
                libc::sendto(
                    socket.as_raw_fd(),
                    frame.as_ptr().cast(),
                    frame.len(),
                    0,
                    (&raw const to).cast(),
                    size_of::<libc::sockaddr_ll>() as libc::socklen_t,
                )
            };
            assert_eq!(
                usize::try_from(sent).ok(),
                Some(frame.len()),
                "sendto: {}",
                std::io::Error::last_os_error()
            );
        }
    });
    sender.join().unwrap_or_else(|_| panic!("the sender panicked"));
}

/// A tcpdump that listens until it has seen a number of frames.
#[derive(Debug)]
pub struct Capture {
    child: std::process::Child,
}

impl Capture {
    /// Starts to listen on `interface` for `count` frames that match `filter`.
    ///
    /// # Panics
    /// When tcpdump does not start to listen within five seconds.
    #[must_use]
    pub fn start(on: &Namespace, interface: &str, count: usize, filter: &str) -> Self {
        let count = count.to_string();
        // -Q in: only what arrives; -U: written packet by packet; -s 0: whole frames.
        let args = ["-i", interface, "-Q", "in", "-U", "-s", "0", "-c", &count, "-w", "-", filter];
        let mut child = on
            .command("tcpdump", &args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|why| panic!("tcpdump: {why}"));
        let mut said = Vec::new();
        let stderr = child.stderr.as_mut().unwrap_or_else(|| panic!("stderr was piped"));
        let mut byte = [0];
        while !String::from_utf8_lossy(&said).contains("listening on") {
            let got = stderr.read(&mut byte).unwrap_or(0);
            assert!(got > 0, "tcpdump ended: {}", String::from_utf8_lossy(&said));
            said.extend(byte);
        }
        // The line comes just before the ring is live.
        std::thread::sleep(Duration::from_millis(200));
        Self { child }
    }

    /// The frames, whole, in the order of their arrival; fewer when they do not come within `limit`.
    #[must_use]
    pub fn frames(mut self, limit: Duration) -> Vec<Vec<u8>> {
        let deadline = std::time::Instant::now() + limit;
        let mut stdout = self.child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            drop(stdout.as_mut().map(|pipe| pipe.read_to_end(&mut bytes)));
            bytes
        });
        while !reader.is_finished() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
        parse(&reader.join().unwrap_or_default())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Frames of a capture in the machine's own byte order, as tcpdump writes it.
/// Source: the-tcpdump-group/libpcap `pcap/pcap.h`, `struct pcap_file_header` and `struct pcap_pkthdr`.
fn parse(capture: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = capture.get(24..).unwrap_or_default();
    while let Some((header, after)) = rest.split_at_checked(16) {
        let length = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((frame, next)) = after.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = next;
    }
    frames
}
