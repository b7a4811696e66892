//! A guest's memory: pieces of files that its machine maps in here and takes away again.
//!
//! The machine sends each piece with a descriptor; pieces come and go while the guest's firmware moves its memory about.
//! Every access looks its piece up, and nothing is kept over an access.
#![expect(unsafe_code, reason = "maps files that a guest's processors write to, and copies")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};

use super::{Bar, Host, Unreachable, copy};

/// Where the device has memory of its own, beyond every address of a guest's.
pub(crate) const OWN: u64 = 1 << 63;

/// One piece.
#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: u64,
    /// Where it is mapped here.
    at: usize,
    write: bool,
}

impl Piece {
    fn end(&self) -> u64 {
        // Checked when it was mapped.
        self.start + self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping; who copies holds the lock under which pieces are dropped.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.at), self.bytes as usize) };
    }
}

/// Memory by guest address.
#[derive(Debug, Default)]
pub struct GuestMemory {
    pieces: RwLock<Vec<Piece>>,
    own: OnceLock<Bar>,
}

impl GuestMemory {
    /// Maps `bytes` of a file from `offset` on to guest address `start`.
    ///
    /// # Errors
    /// `EINVAL` for a range that wraps round, overlaps another or lies outside the file, and what mmap(2) says.
    pub fn map(&self, start: u64, bytes: u64, file: &File, offset: u64, write: bool) -> io::Result<()> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let end = start.checked_add(bytes).ok_or_else(|| wrong("the piece wraps round"))?;
        if end > OWN {
            return Err(wrong("no guest has memory there"));
        }
        let length = usize::try_from(bytes).map_err(|_| wrong("the piece is too long"))?;
        let inside =
            offset.checked_add(bytes).is_some_and(|last| file.metadata().is_ok_and(|m| last <= m.len()));
        if bytes == 0 || !inside {
            return Err(wrong("the piece is not inside its file"));
        }
        let offset = libc::off_t::try_from(offset).map_err(|_| wrong("the offset is too large"))?;
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        if pieces.iter().any(|other| other.start < end && start < other.end()) {
            return Err(wrong("the piece overlaps another"));
        }
        let rights = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        pieces.push(Piece { start, bytes, at: at.expose_provenance(), write });
        pieces.sort_unstable_by_key(|piece| piece.start);
        Ok(())
    }

    /// Takes away every piece inside the range; a piece that is only partly inside stays.
    pub fn unmap(&self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        pieces.retain(|piece| piece.start < start || piece.end() > end);
    }

    /// Takes everything away.
    pub fn clear(&self) {
        self.pieces.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Lets the device reach memory of its own at [`OWN`], once.
    pub(crate) fn add_own(&self, memory: Bar) {
        drop(self.own.set(memory));
    }

    /// The right to copy for a while; nothing is unmapped meanwhile.
    pub(crate) fn session(&self) -> GuestSession<'_> {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        GuestSession { pieces, own: self.own.get() }
    }
}

/// Access to a guest's memory; see [`GuestMemory::session`].
pub(crate) struct GuestSession<'a> {
    pieces: RwLockReadGuard<'a, Vec<Piece>>,
    own: Option<&'a Bar>,
}

impl GuestSession<'_> {
    /// Where the byte at `at` stands here, and how many bytes, `want` at most, follow in one piece.
    fn run(&self, at: u64, want: usize, write: bool) -> Result<(usize, usize), Unreachable> {
        if let (Some(inside), Some(own)) = (at.checked_sub(OWN), self.own) {
            let left = own.bytes().checked_sub(inside).filter(|left| *left > 0).ok_or(Unreachable)?;
            return Ok(((own.address(0) + inside) as usize, left.min(want as u64) as usize));
        }
        let after = self.pieces.partition_point(|piece| piece.start <= at);
        let piece = after.checked_sub(1).and_then(|index| self.pieces.get(index)).ok_or(Unreachable)?;
        if at >= piece.end() || (write && !piece.write) {
            return Err(Unreachable);
        }
        Ok((piece.at + (at - piece.start) as usize, (piece.end() - at).min(want as u64) as usize))
    }

    fn pieces(
        &self,
        at: u64,
        bytes: usize,
        write: bool,
        mut each: impl FnMut(usize, usize, usize),
    ) -> Result<(), Unreachable> {
        at.checked_add(bytes as u64).ok_or(Unreachable)?;
        // All of it is looked at before any of it is touched.
        for touch in [false, true] {
            let mut done = 0;
            while done < bytes {
                let (here, piece) = self.run(at + done as u64, bytes - done, write)?;
                if touch {
                    each(here, done, piece);
                }
                done += piece;
            }
        }
        Ok(())
    }
}

impl Host for GuestSession<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        self.pieces(at, into.len(), false, |here, done, bytes| {
            // SAFETY: `run` found the bytes in a piece that is mapped until the session's guard is let go, or in memory of the
            // device's own, whose zone the session borrows.
            unsafe { copy::from_host(here, &mut into[done..done + bytes]) };
        })
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        self.pieces(at, from.len(), true, |here, done, bytes| {
            // SAFETY: as in `read`, and mapped for writing.
            unsafe { copy::to_host(here, &from[done..done + bytes]) };
        })
    }

    fn publish(&self, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        let Some((body, tail)) = from.split_last_chunk::<8>() else { return Err(Unreachable) };
        let (here, bytes) = self.run(at, from.len(), true)?;
        if bytes != from.len() || !(here | from.len()).is_multiple_of(8) {
            return Err(Unreachable);
        }
        // SAFETY: as in `write`; the last word is aligned, as just checked.
        unsafe {
            copy::to_host(here, body);
            copy::release64(here + body.len(), *tail);
        }
        Ok(())
    }

    fn load32(&self, at: u64) -> Result<u32, Unreachable> {
        let (here, bytes) = self.run(at, 4, false)?;
        if bytes != 4 || !here.is_multiple_of(4) {
            return Err(Unreachable);
        }
        // SAFETY: as in `read`, and aligned, as just checked.
        Ok(u32::from_be_bytes(unsafe { copy::acquire32(here) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pages: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(pages * 4096).expect("its length");
        file
    }

    #[test]
    fn pieces_come_and_go() {
        let memory = GuestMemory::default();
        let backing = file(4);
        memory.map(0x10_0000, 4096, &backing, 4096, true).expect("a piece");
        memory.map(0x10_1000, 4096, &backing, 8192, true).expect("the next");
        // Across the border of two pieces.
        memory.session().write(0x10_0ffc, b"12345678").expect("both are there");
        let mut seen = [0; 8];
        memory.session().read(0x10_0ffc, &mut seen).expect("both are there");
        assert_eq!(&seen, b"12345678");
        memory.unmap(0x10_1000, 4096);
        assert_eq!(memory.session().write(0x10_0ffc, b"abcdefgh"), Err(Unreachable));
        // Nothing of a write that fails is seen.
        let mut seen = [0; 4];
        memory.session().read(0x10_0ffc, &mut seen).expect("the first is there");
        assert_eq!(&seen, b"1234");
        memory.clear();
        assert_eq!(memory.session().read(0x10_0000, &mut seen), Err(Unreachable));
    }

    #[test]
    fn a_piece_has_its_rights_and_limits() {
        let memory = GuestMemory::default();
        let backing = file(2);
        memory.map(0, 4096, &backing, 0, false).expect("a piece");
        assert_eq!(memory.session().write(0, &[1]), Err(Unreachable));
        assert!(memory.map(0x800, 4096, &backing, 0, true).is_err(), "overlaps");
        assert!(memory.map(0x10_0000, 4096, &backing, 8192, true).is_err(), "behind the end of the file");
        assert!(memory.map(u64::MAX - 100, 4096, &backing, 0, true).is_err(), "wraps");
        assert!(memory.map(0x10_0000, 0, &backing, 0, true).is_err(), "nothing");
        assert!(memory.map(OWN - 4096, 8192, &backing, 0, true).is_err(), "the device's own");
        for (at, bytes) in [(4090, 8), (u64::MAX - 2, 8), (5000, 1)] {
            assert_eq!(memory.session().read(at, &mut vec![0; bytes]), Err(Unreachable));
        }
        assert_eq!(memory.session().publish(0, &[0; 8]), Err(Unreachable));
        assert_eq!(memory.session().load32(2), Err(Unreachable));
        assert_eq!(memory.session().load32(4), Ok(0));
    }

    #[test]
    fn the_device_has_memory_of_its_own_that_stays() {
        let memory = GuestMemory::default();
        assert_eq!(memory.session().write(OWN, &[1]), Err(Unreachable));
        memory.add_own(Bar::new("own", 2).expect("memory"));
        memory.session().write(OWN + 8188, b"last").expect("inside");
        memory.clear();
        let mut seen = [0; 4];
        memory.session().read(OWN + 8188, &mut seen).expect("inside");
        assert_eq!(&seen, b"last");
        for (at, bytes) in [(OWN + 8189, 4), (OWN + 8192, 1), (OWN - 1, 2), (u64::MAX, 1)] {
            assert_eq!(memory.session().write(at, &vec![0; bytes]), Err(Unreachable));
        }
    }
}
