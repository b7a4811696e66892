//! What passes between a driver and the device without a call, for whoever writes it down: doorbells as they arrive, send entries as
//! the device takes them up, completions as it writes them (each whole, compressed or not).
//!
//! ```text
//! ring 0x00000040 0x800 bytes=00000a0300010402
//! entry 0x000104 index=5 bytes=...
//! completion 0x000401 bytes=...
//! ```

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use pollux_uverbs::trace::hex;

/// Writes lines of the fast path, a write each: several writers of one file that grows keep their lines whole. A line that cannot be
/// written is lost.
pub struct FastPath(Mutex<Box<dyn Write + Send>>);

impl std::fmt::Debug for FastPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FastPath")
    }
}

impl FastPath {
    /// Lines go to `to`.
    #[must_use]
    pub fn new(to: Box<dyn Write + Send>) -> Self {
        Self(Mutex::new(to))
    }

    #[cold]
    fn line(&self, line: &str) {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(to.write_all(line.as_bytes()));
    }

    /// A store to a register of the page of that number.
    pub(crate) fn ring(&self, page: u32, offset: usize, bytes: &[u8]) {
        self.line(&format!("ring {page:#010x} {offset:#x} bytes={}\n", hex(bytes)));
    }

    /// The next send entry of a queue.
    pub(crate) fn entry(&self, queue: u32, index: u16, bytes: &[u8]) {
        self.line(&format!("entry {queue:#08x} index={index} bytes={}\n", hex(bytes)));
    }

    /// An entry of a completion queue.
    pub(crate) fn completion(&self, queue: u32, bytes: &[u8]) {
        self.line(&format!("completion {queue:#08x} bytes={}\n", hex(bytes)));
    }
}
