//! The host's end of a wire: frames out, frames in, compared byte by byte and in order.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::run::Outcome;

/// Longest frame.
const FRAME_MAX: usize = 9216;
/// How long nothing may come while something is awaited, on a machine that is not slow.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// Pause when there is nothing to send or to receive.
const PAUSE: Duration = Duration::from_micros(200);
/// Protocol number of our frames, of those left for experiments. Source: IEEE 802, "Local Experimental Ethertype 1".
const OURS: [u8; 2] = [0x88, 0xb5];

/// One end of a `unix:` wire.
pub(super) struct Peer {
    /// None while it is unplugged: the other end's link is down.
    socket: Option<UnixDatagram>,
    at: PathBuf,
    to: PathBuf,
}

impl Peer {
    pub(super) fn open(at: &Path, to: &Path) -> Outcome<Self> {
        let mut peer = Self { socket: None, at: at.to_owned(), to: to.to_owned() };
        peer.plug()?;
        Ok(peer)
    }

    pub(super) fn plug(&mut self) -> Outcome {
        self.unplug();
        let failed = |why| format!("cannot make the socket {}: {why}", self.at.display());
        let socket = UnixDatagram::bind(&self.at).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        self.socket = Some(socket);
        Ok(())
    }

    pub(super) fn unplug(&mut self) {
        self.socket = None;
        // Not there when it was not plugged.
        drop(std::fs::remove_file(&self.at));
    }

    fn socket(&self) -> Outcome<&UnixDatagram> {
        self.socket.as_ref().ok_or_else(|| format!("the wire {} is unplugged", self.at.display()))
    }

    /// False when the other end has no room now.
    fn send(&self, frame: &[u8]) -> Outcome<bool> {
        match self.socket()?.send_to(frame, &self.to) {
            Ok(_) => Ok(true),
            Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(why) => Err(format!("cannot send to {}: {why}", self.to.display())),
        }
    }

    fn receive<'a>(&self, room: &'a mut [u8]) -> Outcome<Option<&'a [u8]>> {
        match self.socket()?.recv(room) {
            Ok(bytes) => Ok(Some(&room[..bytes])),
            Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(format!("cannot receive from {}: {why}", self.to.display())),
        }
    }
}

/// Frames to send on one wire and to expect on another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    from: usize,
    to: usize,
    frames: u64,
    bytes: (usize, usize),
    window: usize,
    /// Destination of the frames sent.
    target: [u8; 6],
    /// Source that the forwarder puts in, if it does; its destination is then by l2fwd's rule.
    source: Option<[u8; 6]>,
    /// An address that answers ping meanwhile: MAC and IPv4, ours being `.254` of the same network.
    ping: Option<([u8; 6], [u8; 4])>,
}

impl Traffic {
    /// Reads `from=0 to=1 frames=1000 bytes=60-1514 window=64 target=MAC [source=MAC] [ping=MAC,IPV4]`.
    pub(super) fn parse(text: &str) -> Outcome<Self> {
        let mut traffic = Self {
            from: 0,
            to: 1,
            frames: 1000,
            bytes: (60, 1514),
            window: 64,
            target: [0xff; 6],
            source: None,
            ping: None,
        };
        for word in text.split_whitespace() {
            let wrong = || format!("'{word}' is no setting of traffic");
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            let number = || value.parse::<usize>().map_err(|_| wrong());
            match key {
                "from" => traffic.from = number()?,
                "to" => traffic.to = number()?,
                "frames" => traffic.frames = number()? as u64,
                "window" => traffic.window = number()?,
                "bytes" => {
                    let (least, most) = value.split_once('-').ok_or_else(wrong)?;
                    traffic.bytes = (least.parse().map_err(|_| wrong())?, most.parse().map_err(|_| wrong())?);
                    if traffic.bytes.0 < 60
                        || traffic.bytes.1 < traffic.bytes.0
                        || traffic.bytes.1 > FRAME_MAX
                    {
                        return Err(wrong());
                    }
                }
                "target" => traffic.target = mac(value).ok_or_else(wrong)?,
                "source" => traffic.source = Some(mac(value).ok_or_else(wrong)?),
                "ping" => {
                    let (hardware, address) = value.split_once(',').ok_or_else(wrong)?;
                    let address = address.parse::<std::net::Ipv4Addr>().map_err(|_| wrong())?;
                    traffic.ping = Some((mac(hardware).ok_or_else(wrong)?, address.octets()));
                }
                _ => return Err(wrong()),
            }
        }
        Ok(traffic)
    }

    /// Frame `number`: its content follows from that alone.
    fn frame(&self, number: u64) -> Vec<u8> {
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (least, most) = self.bytes;
        let length = least + (next() % (most - least + 1) as u64) as usize;
        let mut frame = Vec::with_capacity(length + 8);
        frame.extend(self.target);
        frame.extend([0x02, 0, 0, 0, 0, 0xfe]);
        frame.extend(OURS);
        frame.extend(number.to_be_bytes());
        while frame.len() < length {
            frame.extend(next().to_be_bytes());
        }
        frame.truncate(length);
        frame
    }

    /// What the forwarder makes of it. Destination by l2fwd's rule: 02:00:00:00:00:PORT.
    fn forwarded(&self, mut frame: Vec<u8>) -> Vec<u8> {
        if let Some(source) = self.source {
            frame[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, self.to as u8]);
            frame[6..12].copy_from_slice(&source);
        }
        frame
    }

    /// An ICMP echo request with number `count`.
    fn echo(&self, count: u16) -> Option<Vec<u8>> {
        let (hardware, address) = self.ping?;
        let mut ours = address;
        ours[3] = 254;
        let mut frame = Vec::new();
        frame.extend(hardware);
        frame.extend([0x02, 0, 0, 0, 0, 0xfe, 0x08, 0]);
        let mut header = vec![0x45, 0, 0, 84, 0, 0, 0x40, 0, 64, 1, 0, 0];
        header.extend(ours);
        header.extend(address);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum);
        frame.extend(&header);
        let mut echo = vec![8, 0, 0, 0, 0x50, 0x6f];
        echo.extend(count.to_be_bytes());
        echo.extend((0..56_u8).map(|byte| byte ^ count as u8));
        let sum = checksum(&echo);
        echo[2..4].copy_from_slice(&sum);
        frame.extend(&echo);
        Some(frame)
    }

    /// Whether a frame is the reply to our echo request.
    fn is_reply(&self, frame: &[u8]) -> bool {
        let Some((hardware, address)) = self.ping else { return false };
        frame.len() >= 42
            && frame[6..12] == hardware
            && frame[12..14] == [8, 0]
            && frame[26..30] == address
            && frame[23] == 1
            && frame[34] == 0
            && frame[38..40] == [0x50, 0x6f]
            && checksum(&frame[34..98.min(frame.len())]) == [0, 0]
    }
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    (!(folded as u16)).to_be_bytes()
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

/// Sends the frames, `window` of them under way at once, and compares what comes out at the other end. Frames there that are
/// none of ours (a kernel announces itself) are passed over.
pub(super) fn traffic(
    peers: &mut [Peer],
    traffic: &Traffic,
    silence: Duration,
    over: &AtomicBool,
) -> Outcome<String> {
    let count = peers.len();
    let none = || format!("no wires {} and {}; this job has {count}", traffic.from, traffic.to);
    let from = peers.get(traffic.from).ok_or_else(none)?;
    let to = peers.get(traffic.to).ok_or_else(none)?;
    let mut room = vec![0; FRAME_MAX];
    // What is left from before.
    while from.receive(&mut room)?.is_some() || to.receive(&mut room)?.is_some() {}
    let mut expected: VecDeque<Vec<u8>> = VecDeque::new();
    let mut waiting: Option<Vec<u8>> = None;
    let (mut sent, mut got, mut bytes, mut pings, mut replies) = (0, 0, 0_usize, 0_u16, 0_u16);
    let mut last = Instant::now();
    while got < traffic.frames || replies < pings {
        if over.load(Ordering::Relaxed) {
            return Err("the guest is gone".into());
        }
        let mut busy = false;
        if sent < traffic.frames && expected.len() < traffic.window {
            let frame = waiting.take().unwrap_or_else(|| traffic.frame(sent));
            if from.send(&frame)? {
                expected.push_back(traffic.forwarded(frame));
                sent += 1;
                busy = true;
                // A ping for every hundredth frame.
                if sent % 100 == 1
                    && let Some(echo) = traffic.echo(pings)
                    && from.send(&echo)?
                {
                    pings += 1;
                }
            } else {
                waiting = Some(frame);
            }
        }
        if let Some(frame) = to.receive(&mut room)?
            && frame.get(12..14) == Some(&OURS)
        {
            let Some(wanted) = expected.pop_front() else {
                return Err(format!("a frame too many behind frame {got}"));
            };
            if frame != wanted {
                return Err(format!("frame {got} differs: {}", difference(frame, &wanted)));
            }
            got += 1;
            bytes += wanted.len();
            busy = true;
        }
        if traffic.ping.is_some()
            && let Some(frame) = from.receive(&mut room)?
            && traffic.is_reply(frame)
        {
            replies += 1;
            busy = true;
        }
        if busy {
            last = Instant::now();
        } else if last.elapsed() > silence {
            return Err(format!(
                "{sent} frames sent, {got} came through; {pings} pings, {replies} answered; then nothing for {} s",
                silence.as_secs()
            ));
        } else {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(format!("frames={got} bytes={bytes} pings={replies}"))
}

fn difference(got: &[u8], wanted: &[u8]) -> String {
    if got.len() != wanted.len() {
        return format!("{} bytes for {}", got.len(), wanted.len());
    }
    let at = got.iter().zip(wanted).position(|(got, wanted)| got != wanted).unwrap_or(0);
    format!("byte {at} is {:#04x}, not {:#04x}", got[at], wanted[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let traffic = Traffic::parse("from=1 to=0 frames=7 bytes=60-9018 window=3 target=02:00:00:00:00:0a ping=02:00:00:00:00:0b,10.0.0.1")
            .expect("in order");
        assert_eq!((traffic.from, traffic.to, traffic.frames, traffic.window), (1, 0, 7, 3));
        assert_eq!((traffic.target[5], traffic.bytes.1), (10, 9018));
        for wrong in
            ["frames", "frames=x", "bytes=10-60", "bytes=100-60", "target=1:2", "ping=1", "colour=red"]
        {
            assert!(Traffic::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wire_that_echoes_passes_and_one_that_changes_a_byte_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for change in [false, true] {
            let (a, b) = (path(&format!("a{change}")), path(&format!("b{change}")));
            let far = UnixDatagram::bind(&b).expect("a socket");
            far.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
            let mut peers = vec![Peer::open(&a, &b).expect("a socket")];
            let echo = std::thread::spawn(move || {
                let mut room = [0; FRAME_MAX];
                for number in 0..50 {
                    let Ok(bytes) = far.recv(&mut room) else { return };
                    room[30] ^= u8::from(change && number == 20);
                    if far.send_to(&room[..bytes], &a).is_err() {
                        return;
                    }
                }
            });
            let wanted = Traffic::parse("from=0 to=0 frames=50 window=4").expect("in order");
            let outcome = traffic(&mut peers, &wanted, SILENCE, &AtomicBool::new(false));
            if change {
                assert!(outcome.expect_err("differs").starts_with("frame 20 differs: byte 30"));
            } else {
                assert!(outcome.expect("the same").starts_with("frames=50 bytes="));
            }
            drop(peers);
            echo.join().expect("the echo ends");
        }
    }

    #[test]
    fn a_wire_is_unplugged_and_plugged() {
        let folder = tempfile::tempdir().expect("a folder");
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let mut peer = Peer::open(&a, &b).expect("a socket");
        peer.unplug();
        assert!(!a.exists() && peer.send(&[0; 60]).is_err_and(|why| why.contains("unplugged")));
        peer.plug().expect("again");
        let far = UnixDatagram::bind(&b).expect("a socket");
        assert_eq!(peer.send(&[7; 60]), Ok(true));
        assert_eq!(far.recv(&mut [0; 100]).expect("a frame"), 60);
    }

    #[test]
    fn an_echo_has_good_checksums() {
        let traffic = Traffic::parse("ping=02:00:00:00:00:0b,10.0.0.1").expect("in order");
        let mut echo = traffic.echo(3).expect("a ping");
        assert_eq!(checksum(&echo[14..34]), [0, 0]);
        assert_eq!(checksum(&echo[34..]), [0, 0]);
        assert!(!traffic.is_reply(&echo), "a request is none");
        echo[34] = 0;
        echo[36] += 8;
        echo[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b]);
        echo.copy_within(30..34, 26);
        assert!(traffic.is_reply(&echo));
    }
}
