//! mac: packets leave for the peer, from the address of the port that sends them.

use pollux_kit::forward::Edit;

use super::{Ends, Engine, Marks};
use crate::lane::Lane;

/// The engine `mac`.
#[derive(Debug)]
pub struct Mac {
    edit: Edit,
    marks: Marks,
}

impl Mac {
    /// For a stream with these ends.
    #[must_use]
    pub fn new(ends: &Ends, marks: Marks) -> Self {
        Self { edit: Edit::Rewrite(ends.head()), marks }
    }
}

impl Engine for Mac {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        lane.forward(|packets| {
            self.edit.apply(packets);
            self.marks.put(packets);
        })
    }
}
