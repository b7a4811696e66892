//! macswap: packets go back where they came from.

use pollux_kit::forward::Edit;

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
}

impl Engine for MacSwap {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        lane.forward(|packets| {
            Edit::Swap.apply(packets);
            self.marks.put(packets);
        })
    }
}
