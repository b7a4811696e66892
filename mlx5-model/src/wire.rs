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

/// A wire of which one thing is otherwise: what is behind it, or whether the other end is made to wait.
#[derive(Debug)]
pub struct Altered {
    wire: Box<dyn Wire>,
    waits: bool,
    switched: bool,
}

impl Altered {
    /// The other end is not made to wait: what finds no receive slot is dropped, as without pause frames.
    #[must_use]
    pub fn unpaused(wire: Box<dyn Wire>) -> Self {
        Self { waits: false, ..Self::as_it_is(wire) }
    }

    /// With a switch in between: the link is up whether or not somebody is at the other end, and what is sent to nobody is lost on the
    /// way.
    #[must_use]
    pub fn switched(wire: Box<dyn Wire>) -> Self {
        Self { switched: true, ..Self::as_it_is(wire) }
    }

    fn as_it_is(wire: Box<dyn Wire>) -> Self {
        Self { wire, waits: true, switched: false }
    }
}

impl Wire for Altered {
    fn poll(&mut self) {
        self.wire.poll();
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        match self.wire.send(frame) {
            Sent::Lost if self.switched => Sent::Yes,
            sent => sent,
        }
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        self.wire.receive(room)
    }

    fn is_up(&self) -> bool {
        self.switched || self.wire.is_up()
    }

    fn set_carrier(&mut self, on: bool) {
        self.wire.set_carrier(on);
    }

    fn lost(&mut self) {
        self.wire.lost();
    }

    fn missed(&self) -> u64 {
        self.wire.missed()
    }

    fn take_lost(&mut self) -> Traffic {
        self.wire.take_lost()
    }

    fn is_pending(&self) -> bool {
        self.wire.is_pending()
    }

    fn waits(&self) -> bool {
        self.waits && self.wire.waits()
    }

    fn is_endless(&self) -> bool {
        self.wire.is_endless()
    }

    fn is_stored(&self) -> bool {
        self.wire.is_stored()
    }

    fn describe(&self) -> String {
        self.wire.describe()
    }
}

/// Copies a frame to where the port wants it, as [`Wire::receive`] has it.
fn deliver(frame: &[u8], room: &mut [u8]) -> usize {
    let bytes = frame.len().min(room.len());
    room[..bytes].copy_from_slice(&frame[..bytes]);
    frame.len()
}
