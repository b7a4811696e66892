//! macswap: packets go back where they came from.

use pollux_kit::forward::swapped;
use pollux_mempool::Mbuf;

use super::{Engine, Marks};
use crate::lane::Lane;

/// The engine `macswap`.
#[derive(Debug)]
pub struct MacSwap {
    marks: Marks,
}

impl MacSwap {
    /// For a stream.
    #[must_use]
    pub fn new(marks: Marks) -> Self {
        Self { marks }
    }

    /// Exchanges both addresses.
    #[inline(always)]
    pub(super) fn edit(packets: &mut [Mbuf]) {
        for mbuf in packets {
            if let Some(addresses) = mbuf.data_mut().and_then(|data| data.first_chunk_mut::<12>()) {
                *addresses = swapped(*addresses);
            }
        }
    }
}

impl Engine for MacSwap {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        let received = lane.receive();
        if received != 0 {
            Self::edit(lane.packets());
            self.marks.put(lane.packets());
            lane.send();
        }
        received
    }
}
