//! Memory that the peer writes by offset.

use std::sync::Arc;

use pollux_verbs::Mr;

/// Memory that the peer may write to at any time, by offset. It is read by copies. Dropped, the peer can write there no more: it has to
/// know, for a write ends its connection.
#[derive(Debug)]
pub struct RsMap {
    pub(crate) memory: Arc<Mr>,
    pub(crate) offset: u64,
}

impl RsMap {
    /// The offset of its first byte, by which the peer writes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Copies out what is there now.
    ///
    /// # Panics
    /// When there are fewer bytes.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.memory.read(at, into);
    }

    /// Copies in, over what is there. What the peer writes there meanwhile may come before or after.
    ///
    /// # Panics
    /// When it would not fit.
    pub fn write(&self, at: usize, source: &[u8]) {
        self.memory.write(at, source);
    }

    /// The byte at `at`, for polling: what the peer wrote before it is seen as well.
    ///
    /// # Panics
    /// When it is outside.
    #[must_use]
    pub fn load8(&self, at: usize) -> u8 {
        self.memory.load8(at)
    }
}
