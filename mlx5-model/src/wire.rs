//! Where the frames of a model's port go to and come from.

use std::fmt;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on the wire (or lost there, as wires lose).
    Yes,
    /// The wire takes no frame now: the same frame is offered again later, nothing is lost.
    Busy,
}

/// A wire: frames in and out, without FCS, from the destination address on. Owned by one model, called on its thread;
/// nothing here blocks.
pub trait Wire: Send + fmt::Debug {
    /// Offers one frame.
    fn send(&mut self, frame: &[u8]) -> Sent;

    /// Takes the next frame into `room`, which is as long as the longest frame of the port (MTU and headers); returns its
    /// length. A longer frame is cut off and its whole length returned, so that the port can count it as too long.
    fn receive(&mut self, room: &mut [u8]) -> Option<usize>;

    /// Whether the other end is there.
    fn is_up(&self) -> bool;

    /// Whether frames that were sent are still on their way to a peer that has to act (so that an idle model looks again
    /// soon).
    fn is_pending(&self) -> bool {
        false
    }

    /// What it is, as the device argument says it (`cable:a`).
    fn describe(&self) -> String;
}
