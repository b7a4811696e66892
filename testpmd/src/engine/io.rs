//! io: packets leave as they came.

use super::Engine;
use crate::lane::Lane;

/// The engine `io`.
#[derive(Debug)]
pub struct Io;

impl Engine for Io {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        let received = lane.receive();
        if received != 0 {
            lane.send();
        }
        received
    }
}
