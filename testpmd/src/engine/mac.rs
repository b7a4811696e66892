//! mac: packets leave for the peer, from the address of the port that sends them.

use pollux_mempool::Mbuf;

use super::{Ends, Engine, Marks};
use crate::lane::Lane;

/// The engine `mac`.
#[derive(Debug)]
pub struct Mac {
    head: [u8; 12],
    marks: Marks,
}

impl Mac {
    /// For a stream with these ends.
    #[must_use]
    pub fn new(ends: &Ends, marks: Marks) -> Self {
        Self { head: ends.head(), marks }
    }

    /// Sets both addresses. Frames too short for them, or shared with another holder, stay as they are.
    #[inline(always)]
    pub(super) fn edit(head: [u8; 12], packets: &mut [Mbuf]) {
        for mbuf in packets {
            if let Some(addresses) = mbuf.data_mut().and_then(|data| data.first_chunk_mut::<12>()) {
                *addresses = head;
            }
        }
    }
}

impl Engine for Mac {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        let received = lane.receive();
        if received != 0 {
            Self::edit(self.head, lane.packets());
            self.marks.put(lane.packets());
            lane.send();
        }
        received
    }
}
