//! Frames between processes, in unix datagrams.

use std::path::Path;
use std::time::Duration;

use pollux_frame_io::Trouble;
use pollux_frame_io::unix::UnixFrames;

use super::{Sent, Wire};
use crate::ModelError;
use crate::time::Clock;

/// How often the peer is looked for, and looked after.
const LOOK: Duration = Duration::from_millis(2);

/// `unix:LOCAL:PEER`.
#[derive(Debug)]
pub struct Datagrams {
    frames: UnixFrames,
    clock: Clock,
    next_look: Duration,
    up: bool,
}

impl Datagrams {
    /// Makes the socket at `local`; the one at `peer` may come and go.
    ///
    /// # Errors
    /// [`ModelError::Frames`].
    pub fn open(local: &Path, peer: &Path, clock: &Clock) -> Result<Self, ModelError> {
        let mut frames = UnixFrames::open(local, peer)?;
        let up = frames.connect();
        Ok(Self { frames, clock: clock.clone(), next_look: clock.now() + LOOK, up })
    }
}

impl Wire for Datagrams {
    fn poll(&mut self) {
        let now = self.clock.now();
        if now >= self.next_look {
            self.up = self.frames.connect();
            self.next_look = now + LOOK;
        }
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        if !self.up {
            return Sent::Lost;
        }
        match self.frames.send(frame) {
            Ok(()) => Sent::Yes,
            Err(Trouble::Busy) => Sent::Busy,
            Err(Trouble::Down | Trouble::Gone) => {
                self.up = false;
                Sent::Lost
            }
            // A frame that the kernel does not take at all: too long for its buffers.
            Err(Trouble::Refused | Trouble::Dropped | Trouble::Other(_)) => Sent::Lost,
        }
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        self.frames.receive(room)
    }

    fn is_up(&self) -> bool {
        self.up
    }

    fn waits(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("unix:{}:{}", self.frames.local().display(), self.frames.peer().display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(clock: &Clock, wires: &mut [&mut Datagrams]) {
        clock.advance(LOOK);
        for wire in wires {
            wire.poll();
        }
    }

    #[test]
    fn two_sockets_make_a_wire_that_loses_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let clock = Clock::stepped();
        let mut first = Datagrams::open(&a, &b, &clock).expect("a socket");
        assert!(!first.is_up());
        assert_eq!(first.send(&[1; 60]), Sent::Lost, "into the dark");
        let mut second = Datagrams::open(&b, &a, &clock).expect("a socket");
        settle(&clock, &mut [&mut first, &mut second]);
        assert!(first.is_up() && second.is_up());
        let (mut sent, mut got) = (0_u32, 0_u32);
        let mut busy = 0;
        let mut room = [0; 2048];
        while got < 1000 {
            while sent < 1000 {
                let mut frame = [0; 64];
                frame[..4].copy_from_slice(&sent.to_be_bytes());
                if first.send(&frame) == Sent::Busy {
                    busy += 1;
                    break;
                }
                sent += 1;
            }
            while second.receive(&mut room) == Some(64) {
                assert_eq!(room[..4], got.to_be_bytes());
                got += 1;
            }
        }
        assert!(busy > 0, "the kernel queues only so many datagrams");
        drop(second);
        settle(&clock, &mut [&mut first]);
        assert!(!first.is_up());
        let mut second = Datagrams::open(&b, &a, &clock).expect("again");
        settle(&clock, &mut [&mut first, &mut second]);
        assert!(first.is_up() && second.is_up());
        assert_eq!(second.send(&[5; 1514]), Sent::Yes);
        assert_eq!(first.receive(&mut room[..60]), Some(1514), "cut, and its length told");
        assert_eq!(room[..60], [5; 60]);
    }
}
