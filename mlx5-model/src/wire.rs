//! Where the frames of a model's port go to and come from.
//!
//! ```text
//!   Device ──► Impaired (loss reorder delay dup corrupt) ──► Cable  Source  Null  Capture  Interface  Datagrams
//! ```
//!
//! | `wire=` | what | lossless | link |
//! |---|---|---|---|
//! | `cable:NAME` | the other device of this process that names the same cable | yes | up while both ends are there and neither is held down |
//! | `source:SIZE` | frames of SIZE bytes out of nothing; what is sent is swallowed and counted | yes | up |
//! | `source:SIZE:RATE` | the same, RATE frames a second at most | yes | up |
//! | `null` | nothing comes, what is sent is swallowed | yes | up |
//! | `pcap:IN:OUT` | frames of file IN, once; what is sent goes to file OUT (each may be empty) | yes | up |
//! | `iface:NAME` | a Linux interface, by a packet socket | no | the interface's |
//! | `unix:LOCAL:PEER` | raw frames in datagrams between two sockets | yes | up while PEER is there |
//!
//! SIZE, and every length here, is without FCS, as `net_null`'s `size`: a frame of 64 bytes there is one of 64 here.

mod cable;
mod capture;
mod datagram;
mod impair;
mod interface;
mod source;
mod spec;

use std::fmt;

pub use cable::Cable;
pub use capture::Capture;
pub use datagram::Datagrams;
pub use impair::{Impaired, Impairments};
pub use interface::KernelInterface;
pub use source::{FLOWS, Null, SIZE_MAX, SIZE_MIN, Source, Swallowed};
pub use spec::WireSpec;

use crate::port::Traffic;

/// What may stand after `wire=`.
pub const FORMS: &str = "cable:NAME, source:SIZE[:RATE], null, pcap:IN:OUT, iface:NAME, unix:LOCAL:PEER";

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on the wire (or lost there, as wires lose).
    Yes,
    /// It is lost at this end: nobody is at the other, or what stands for the wire takes no such frame.
    Lost,
    /// The wire takes no frame now: the same frame is offered again later, nothing is lost.
    Busy,
}

/// A wire: frames in and out, without FCS, from the destination address on. Owned by one model, called on its thread;
/// nothing here blocks.
pub trait Wire: Send + fmt::Debug {
    /// Called at the beginning of each step, before the other calls: what the wire has to do by itself.
    fn poll(&mut self) {}

    /// Offers one frame.
    fn send(&mut self, frame: &[u8]) -> Sent;

    /// Takes the next frame into `room`, which is as long as the longest frame of the port (MTU and headers); returns its
    /// length. A longer frame is cut off and its whole length returned, so that the port can count it as too long.
    fn receive(&mut self, room: &mut [u8]) -> Option<usize>;

    /// Whether the other end is there, and has carrier.
    fn is_up(&self) -> bool;

    /// Sets this end's carrier (it is on from the first): a port that is held down, or a device that is gone, is seen by
    /// the other end as loss of carrier, where the wire carries such a thing.
    fn set_carrier(&mut self, _on: bool) {}

    /// A frame was to be sent, and is lost because the other end was not [there](Self::is_up).
    fn lost(&mut self) {}

    /// Frames that the other end lost so.
    fn missed(&self) -> u64 {
        0
    }

    /// Frames that were taken as sent and turned out to be lost at this end, since this was last asked.
    fn take_lost(&mut self) -> Traffic {
        Traffic::default()
    }

    /// Whether frames that were sent are still on their way to a peer that has to act (so that an idle model looks again
    /// soon).
    fn is_pending(&self) -> bool {
        false
    }

    /// Whether the other end can be made to wait. A frame that finds no receive slot then stays with the port until there is
    /// one, and no further frame is taken meanwhile, as under pause frames; nothing is lost. On a wire that cannot wait the
    /// port drops such a frame and counts it out of buffer.
    fn waits(&self) -> bool {
        false
    }

    /// Whether frames come without end and out of nothing: one that nobody takes ends the port's asking for that step, and
    /// is no work, so that a device that nobody uses comes to rest.
    fn is_endless(&self) -> bool {
        false
    }

    /// Whether its frames are there from the beginning, as in a file: the port takes the first one only once a driver has set
    /// it up, which is when steering leads somewhere and no command came for 20 ms. Else the first frames would be lost
    /// between two rules.
    fn is_stored(&self) -> bool {
        false
    }

    /// What it is, as the device argument says it (`cable:a`).
    fn describe(&self) -> String;
}

/// A wire with a switch in between: the link is up whether or not somebody is at the other end, and what is sent to nobody is lost
/// on the way.
#[derive(Debug)]
pub struct Switched(pub Box<dyn Wire>);

impl Wire for Switched {
    fn poll(&mut self) {
        self.0.poll();
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        match self.0.send(frame) {
            Sent::Lost => Sent::Yes,
            sent => sent,
        }
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        self.0.receive(room)
    }

    fn is_up(&self) -> bool {
        true
    }

    fn set_carrier(&mut self, on: bool) {
        self.0.set_carrier(on);
    }

    fn is_pending(&self) -> bool {
        self.0.is_pending()
    }

    fn waits(&self) -> bool {
        self.0.waits()
    }

    fn missed(&self) -> u64 {
        self.0.missed()
    }

    fn is_endless(&self) -> bool {
        self.0.is_endless()
    }

    fn is_stored(&self) -> bool {
        self.0.is_stored()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// A wire whose other end is not made to wait: what finds no receive slot is dropped, as without pause frames.
#[derive(Debug)]
pub struct Unpaused(pub Box<dyn Wire>);

impl Wire for Unpaused {
    fn poll(&mut self) {
        self.0.poll();
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        self.0.send(frame)
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        self.0.receive(room)
    }

    fn is_up(&self) -> bool {
        self.0.is_up()
    }

    fn set_carrier(&mut self, on: bool) {
        self.0.set_carrier(on);
    }

    fn lost(&mut self) {
        self.0.lost();
    }

    fn missed(&self) -> u64 {
        self.0.missed()
    }

    fn take_lost(&mut self) -> Traffic {
        self.0.take_lost()
    }

    fn is_pending(&self) -> bool {
        self.0.is_pending()
    }

    fn is_endless(&self) -> bool {
        self.0.is_endless()
    }

    fn is_stored(&self) -> bool {
        self.0.is_stored()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// Copies a frame to where the port wants it, as [`Wire::receive`] has it.
fn deliver(frame: &[u8], room: &mut [u8]) -> usize {
    let bytes = frame.len().min(room.len());
    room[..bytes].copy_from_slice(&frame[..bytes]);
    frame.len()
}
