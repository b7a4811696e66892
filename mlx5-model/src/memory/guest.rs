//! A guest's memory: pieces of files that its machine maps in here and takes away again.
//!
//! The machine sends each piece with a descriptor; pieces come and go while the guest's firmware moves its memory about.
//! Every access looks its piece up, and nothing is kept over an access.
//! Who holds a file can change it at any time: [`file`] says how its bytes are touched without harm.
#![expect(unsafe_code, reason = "copies to and from memory that a guest's processors write to")]

use std::fs::File;
use std::io;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};

use memmap2::{MmapOptions, MmapRaw};

use super::file::{self, Reach, own};
use super::{Bar, Host, Unreachable, copy};

/// Where the device has memory of its own, beyond every address of a guest's.
pub(crate) const OWN: u64 = 1 << 63;

/// Most pieces at a time, and most bytes in them: mappings and addresses are the whole process's.
pub(crate) const PIECES_MAX: usize = 1024;
const BYTES_MAX: u64 = 1 << 40;

/// One piece.
#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: u64,
    /// Where it is mapped here.
    mapping: MmapRaw,
    write: bool,
    reach: Reach,
}

impl Piece {
    fn end(&self) -> u64 {
        // Checked when it was mapped.
        self.start + self.bytes
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
    /// `EINVAL` for a range that wraps round, overlaps another or lies outside the file, for more than 1024 pieces or 1 TiB in
    /// all, and for a file that is not in memory (tmpfs, hugetlbfs); and what mmap(2) says.
    pub fn map(&self, start: u64, bytes: u64, file: &File, offset: u64, write: bool) -> io::Result<()> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let end = start.checked_add(bytes).ok_or_else(|| wrong("the piece wraps round"))?;
        if end > OWN {
            return Err(wrong("no guest has memory there"));
        }
        let length = usize::try_from(bytes).map_err(|_| wrong("the piece is too long"))?;
        let reach = file::reach(file)?;
        let inside =
            offset.checked_add(bytes).is_some_and(|last| file.metadata().is_ok_and(|m| last <= m.len()));
        if bytes == 0 || !inside {
            return Err(wrong("the piece is not inside its file"));
        }
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        if pieces.iter().any(|other| other.start < end && start < other.end()) {
            return Err(wrong("the piece overlaps another"));
        }
        let all = pieces.iter().map(|piece| piece.bytes).sum::<u64>().saturating_add(bytes);
        if pieces.len() >= PIECES_MAX || all > BYTES_MAX {
            return Err(wrong("too many pieces, or too long in all"));
        }
        let mut options = MmapOptions::new();
        options.offset(offset).len(length);
        let mapping = if write { options.map_raw(file) } else { options.map_raw_read_only(file) }?;
        if reach == Reach::SystemCall {
            // Some sandboxes forbid these calls: better known now than at the first doorbell.
            file::read(own(), mapping.as_ptr().expose_provenance(), &mut [0])
                .map_err(|_| wrong("the memory is not there, or process_vm_readv(2) is forbidden"))?;
            tracing::warn!(
                target: "model.pci",
                "guest memory at {start:#x} may shrink: it is copied by system calls, which is slow; give the machine \
                 -object memory-backend-memfd,share=on"
            );
        }
        let place = pieces.partition_point(|piece| piece.start < start);
        pieces.insert(place, Piece { start, bytes, mapping, write, reach });
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

/// Where bytes of one piece stand here.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    /// How many are wanted and follow in the piece.
    bytes: usize,
    reach: Reach,
}

impl GuestSession<'_> {
    /// Where the byte at `at` stands here, and how many bytes, `want` at most, follow in one piece.
    fn run(&self, at: u64, want: usize, write: bool) -> Result<Place, Unreachable> {
        if let (Some(inside), Some(own)) = (at.checked_sub(OWN), self.own) {
            let left = own.bytes().checked_sub(inside).filter(|left| *left > 0).ok_or(Unreachable)?;
            let bytes = left.min(want as u64) as usize;
            return Ok(Place { at: (own.address(0) + inside) as usize, bytes, reach: Reach::Direct });
        }
        let after = self.pieces.partition_point(|piece| piece.start <= at);
        let piece = after.checked_sub(1).and_then(|index| self.pieces.get(index)).ok_or(Unreachable)?;
        if at >= piece.end() || (write && !piece.write) {
            return Err(Unreachable);
        }
        Ok(Place {
            at: piece.mapping.as_ptr().expose_provenance() + (at - piece.start) as usize,
            bytes: (piece.end() - at).min(want as u64) as usize,
            reach: piece.reach,
        })
    }

    fn pieces(
        &self,
        at: u64,
        bytes: usize,
        write: bool,
        mut each: impl FnMut(Place, usize) -> Result<(), Unreachable>,
    ) -> Result<(), Unreachable> {
        at.checked_add(bytes as u64).ok_or(Unreachable)?;
        // All of it is looked at before any of it is touched.
        for touch in [false, true] {
            let mut done = 0;
            while done < bytes {
                let place = self.run(at + done as u64, bytes - done, write)?;
                if touch {
                    each(place, done)?;
                }
                done += place.bytes;
            }
        }
        Ok(())
    }
}

impl Host for GuestSession<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        self.pieces(at, into.len(), false, |place, done| {
            let into = &mut into[done..done + place.bytes];
            match place.reach {
                Reach::Direct => {
                    // SAFETY: `run` found the bytes in a piece that is mapped until the session's guard is let go and whose file
                    // cannot shrink, or in memory of the device's own, whose zone the session borrows.
                    unsafe { copy::from_host(place.at, into) };
                    Ok(())
                }
                Reach::SystemCall => file::read(own(), place.at, into),
            }
        })
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        self.pieces(at, from.len(), true, |place, done| {
            let from = &from[done..done + place.bytes];
            match place.reach {
                Reach::Direct => {
                    // SAFETY: as in `read`, and mapped for writing.
                    unsafe { copy::to_host(place.at, from) };
                    Ok(())
                }
                // SAFETY: `run` found the bytes in a mapping of the guest's file, where no Rust object is.
                Reach::SystemCall => unsafe { file::write(own(), place.at, from) },
            }
        })
    }

    fn publish(&self, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        let Some((body, tail)) = from.split_last_chunk::<8>() else { return Err(Unreachable) };
        let place = self.run(at, from.len(), true)?;
        if place.bytes != from.len() || !(place.at | from.len()).is_multiple_of(8) {
            return Err(Unreachable);
        }
        match place.reach {
            Reach::Direct => {
                // SAFETY: as in `write`; the last word is aligned, as just checked.
                unsafe {
                    copy::to_host(place.at, body);
                    copy::release64(place.at + body.len(), *tail);
                }
                Ok(())
            }
            // SAFETY: as in `write`.
            Reach::SystemCall => unsafe { file::publish(own(), place.at, from) },
        }
    }

    fn load32(&self, at: u64) -> Result<u32, Unreachable> {
        let place = self.run(at, 4, false)?;
        if place.bytes != 4 || !place.at.is_multiple_of(4) {
            return Err(Unreachable);
        }
        let bytes = match place.reach {
            // SAFETY: as in `read`, and aligned, as just checked.
            Reach::Direct => unsafe { copy::acquire32(place.at) },
            Reach::SystemCall => file::load(own(), place.at)?,
        };
        Ok(u32::from_be_bytes(bytes))
    }
}

/// Memory of a guest, as QEMU makes it: a memfd that cannot shrink.
#[cfg(test)]
pub(crate) fn sealed(bytes: u64) -> File {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    let file = File::from(file);
    file.set_len(bytes).expect("its length");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pages: u64) -> File {
        sealed(pages * 4096)
    }

    /// The same that can shrink, as `memory-backend-file` and `seal=off` have it.
    fn unsealed(pages: u64) -> File {
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
        let file = File::from(file);
        file.set_len(pages * 4096).expect("its length");
        file
    }

    #[test]
    fn pieces_come_and_go() {
        [file(4), unsealed(4)].into_iter().for_each(pieces_of);
    }

    fn pieces_of(backing: File) {
        let memory = GuestMemory::default();
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
        [file(2), unsealed(2)].into_iter().for_each(rights_of);
    }

    fn rights_of(backing: File) {
        let memory = GuestMemory::default();
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
    fn memory_that_shrinks_is_an_error_and_no_signal() {
        let (memory, backing) = (GuestMemory::default(), unsealed(4));
        memory.map(0, 4 * 4096, &backing, 0, true).expect("pieces");
        let session = memory.session();
        session.publish(0x2000, b"body of 16 bytes").expect("it is there");
        assert_eq!(session.load32(0x2000), Ok(u32::from_be_bytes(*b"body")));
        let mut seen = [0; 16];
        session.read(0x2000, &mut seen).expect("it is there");
        assert_eq!(&seen, b"body of 16 bytes");
        backing.set_len(4096).expect("it can shrink");
        assert_eq!(session.read(0x2000, &mut [0; 8]), Err(Unreachable));
        assert_eq!(session.read(0x0ffc, &mut [0; 8]), Err(Unreachable), "half of it");
        assert_eq!(session.write(0x3ff8, &[1; 8]), Err(Unreachable));
        assert_eq!(session.publish(0x1000, &[1; 16]), Err(Unreachable));
        assert_eq!(session.load32(0x1000), Err(Unreachable));
        assert_eq!(session.read(0x0ff8, &mut [0; 8]), Ok(()), "what is left");
    }

    #[test]
    fn only_files_in_memory_are_taken_and_so_many() {
        let memory = GuestMemory::default();
        let null = File::open("/dev/null").expect("a device");
        let proc = File::open("/proc/self/status").expect("a file");
        for file in [null, proc] {
            let refused = memory.map(0, 4096, &file, 0, false).expect_err("not in memory").to_string();
            assert!(refused.contains("memory-backend-memfd"), "{refused}");
        }
        let backing = file(1);
        for piece in 0..PIECES_MAX as u64 {
            memory.map(piece * 4096, 4096, &backing, 0, true).expect("a piece");
        }
        memory.map(1 << 40, 4096, &backing, 0, true).expect_err("one more");
        memory.clear();
        let huge = unsealed(0);
        huge.set_len(BYTES_MAX + 4096).expect("sparse");
        memory.map(0, BYTES_MAX + 4096, &huge, 0, true).expect_err("too long");
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
