//! Memory of frames that are gone, for copies of the next ones.

/// Most that is kept.
const KEPT_MAX: usize = 256;

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// A copy of a frame.
    pub(crate) fn copy(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut copy = self.0.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        copy
    }

    /// A copy that nobody needs any more.
    pub(crate) fn give_back(&mut self, copy: Vec<u8>) {
        if self.0.len() < KEPT_MAX {
            self.0.push(copy);
        }
    }
}
