//! Memory that answers of commands come to, by its address: a kernel's writes are seen there as well as those of a manager in this process.

use std::sync::atomic::{AtomicU8, Ordering};

use pollux_verbs::Errno;

/// What no answer has written.
const UNTOUCHED: u8 = 0xaa;

/// See the module.
pub(crate) struct Room(Box<[AtomicU8]>);

impl Room {
    pub(crate) fn new() -> Self {
        Self((0..4096).map(|_| AtomicU8::new(UNTOUCHED)).collect())
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    fn at(&self, address: u64, bytes: usize) -> Result<&[AtomicU8], Errno> {
        let from = address.checked_sub(self.address()).and_then(|from| usize::try_from(from).ok());
        let part = from.and_then(|from| self.0.get(from..from.checked_add(bytes)?));
        part.ok_or(Errno::EFAULT)
    }

    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let from = self.at(address, into.len())?;
        for (to, from) in into.iter_mut().zip(from) {
            *to = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        for (to, from) in self.at(address, from.len())?.iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|byte| byte.store(UNTOUCHED, Ordering::Relaxed));
    }

    /// The answer: all up to the last byte that was written.
    pub(crate) fn answer(&self) -> Vec<u8> {
        let all: Vec<u8> = self.0.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        let bytes = all.iter().rposition(|byte| *byte != UNTOUCHED).map_or(0, |last| last + 1);
        all[..bytes].to_vec()
    }
}
