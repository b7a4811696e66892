//! rxonly: packets are received and dropped.

use super::Engine;
use crate::lane::Lane;

/// The engine `rxonly`.
#[derive(Debug)]
pub struct RxOnly;

impl Engine for RxOnly {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        let received = lane.receive();
        lane.burst.clear();
        received
    }
}
