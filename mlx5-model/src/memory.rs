//! Host memory as the device reaches it: only what is pinned, only by copies.
//!
//! In process a device address is the process's address. A copy goes through words that are loaded and stored atomically,
//! so that a driver's thread that writes at the same time is a race of values and never of Rust references. Everything else
//! in the core sees [`Host`], so that a guest's memory can take this one's place. What another process has registered, a forked child
//! by its parent's file, is copied by system calls.
//!
//! Memory that was registered on demand is copied by system calls too, this process's as well: it may go while the device has it.
//!
//! Who takes memory away under a pin (`munmap` before the registration is dropped) breaks the contract of
//! [`DmaMemory`](pollux_mlx5_kernel::DmaMemory); a kernel would have kept the pages.
#![expect(unsafe_code, reason = "copies to and from memory that a driver shares with the device")]

mod copy;
mod file;
mod guest;
mod limit;
mod pins;
mod probe;
mod process;
mod registers;

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use pollux_mlx5_kernel::{DmaMemory, Pinned, Rights};
use pollux_uverbs::Errno;

pub use guest::GuestMemory;
#[cfg(test)]
pub(crate) use guest::sealed;
pub(crate) use guest::{OWN, PIECES_MAX};
use pins::{Cover, Pins};
pub use process::for_process;
pub(crate) use registers::Bar;

/// The device asked for an address that is not pinned, or not with that right, or not aligned as that access must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreachable;

/// Memory of the host, by device address.
pub(crate) trait Host {
    /// Copies out.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreachable>;
    /// Copies in.
    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unreachable>;
    /// Copies in, the last 8 bytes last, so that who sees them sees the rest. Aligned to 8.
    fn publish(&self, at: u64, from: &[u8]) -> Result<(), Unreachable>;
    /// Loads a big-endian dword; what is read afterwards was written before. Aligned to 4.
    fn load32(&self, at: u64) -> Result<u32, Unreachable>;
}

/// This process's memory, and which of it is pinned.
#[derive(Clone, Debug)]
pub struct ProcessMemory {
    pins: Arc<RwLock<Pins>>,
}

impl ProcessMemory {
    /// Memory of which nothing is pinned yet and `limit` bytes may be, in pages, each counted as often as it is pinned.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Self {
        Self { pins: Arc::new(RwLock::new(Pins::new(limit))) }
    }

    /// From now on `more` bytes may be pinned beside what is: a user's limit says nothing of what the kernel needs itself.
    pub(crate) fn limit_further(&self, more: u64) {
        let mut pins = self.pins.write().unwrap_or_else(PoisonError::into_inner);
        let now = pins.bytes();
        pins.set_limit(now.saturating_add(more));
    }

    /// From now on what is pinned counts against this process's limit on locked memory, as a kernel counts it.
    pub(crate) fn limit_as_the_process(&self) {
        self.pins.write().unwrap_or_else(PoisonError::into_inner).count_in_process();
    }

    /// Bytes that are pinned now, in whole pages.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.pins.read().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    /// Another process has ended: what it has pinned is not there any more, whoever else has its number.
    pub(crate) fn forget_process(&self, process: i32) {
        self.pins.write().unwrap_or_else(PoisonError::into_inner).others.forget(process);
    }

    /// Lets the device reach memory of its own, which lives as long as it does.
    pub(crate) fn add_own(&self, start: u64, bytes: u64) {
        self.pins.write().unwrap_or_else(PoisonError::into_inner).set_own(start, start + bytes);
    }

    /// The right to copy for a while; nothing is unpinned meanwhile.
    pub(crate) fn session(&self) -> Session<'_> {
        Session {
            pins: self.pins.read().unwrap_or_else(PoisonError::into_inner),
            last: Cell::new(Cover { start: 0, end: 0, write: false }),
        }
    }
}

struct Hold {
    pins: Arc<RwLock<Pins>>,
    id: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.pins.write().unwrap_or_else(PoisonError::into_inner).remove(self.id);
    }
}

impl ProcessMemory {
    /// Pins what was found there, of this process or another.
    fn pin_in(
        &self,
        process: Option<i32>,
        address: u64,
        bytes: u64,
        rights: Rights,
        counts: bool,
    ) -> Result<Pinned, Errno> {
        let end = address.checked_add(bytes).ok_or(Errno::EFAULT)?;
        if bytes == 0 {
            return Err(Errno::EINVAL);
        }
        match process {
            None => probe::mapped(address, end, rights)?,
            // There the number of the process begins.
            Some(_) if process::is_other(end) => return Err(Errno::EFAULT),
            // Without a descriptor, which the program might close or get in another's place.
            Some(process) if process == file::own() => probe::mapped(address, end, rights)?,
            Some(process) => probe::mapped_in(process, address, end, rights)?,
        }
        let mut pins = self.pins.write().unwrap_or_else(PoisonError::into_inner);
        let place = process.map_or(Ok(0), |process| pins.place_of(process))?;
        let (start, end, write) = (place + address, place + end, rights == Rights::ReadWrite);
        let id = if counts { pins.add(start, end, write)? } else { pins.add_uncounted(start, end, write) };
        drop(pins);
        let hold = Box::new(Hold { pins: Arc::clone(&self.pins), id });
        Ok(Pinned { dma: place + address, address, bytes, hold })
    }
}

impl DmaMemory for ProcessMemory {
    fn pin(&self, address: u64, bytes: u64, rights: Rights) -> Result<Pinned, Errno> {
        self.pin_in(None, address, bytes, rights, true)
    }

    fn pin_of_caller(&self, address: u64, bytes: u64, rights: Rights) -> Result<Pinned, Errno> {
        self.pin_in(process::caller(), address, bytes, rights, true)
    }

    fn reach(&self, process: Option<u32>, address: u64, bytes: u64, rights: Rights) -> Result<Pinned, Errno> {
        // By system calls also where it is this process's: they say where nothing is.
        let process = process.map_or_else(file::own, u32::cast_signed);
        self.pin_in(Some(process), address, bytes, rights, false)
    }

    fn caller(&self) -> Option<u32> {
        process::caller().map(i32::cast_unsigned)
    }
}

/// Access to pinned memory; see [`ProcessMemory::session`].
pub(crate) struct Session<'a> {
    pins: RwLockReadGuard<'a, Pins>,
    last: Cell<Cover>,
}

impl Session<'_> {
    /// How many bytes from `at` on, `want` at most, lie in one pinned piece.
    #[inline]
    fn run(&self, at: u64, want: usize, write: bool) -> Result<usize, Unreachable> {
        let mut cover = self.last.get();
        if at < cover.start || at >= cover.end {
            cover = self.pins.cover(at).ok_or(Unreachable)?;
            self.last.set(cover);
        }
        if write && !cover.write {
            return Err(Unreachable);
        }
        Ok((cover.end - at).min(want as u64) as usize)
    }

    /// Splits an access into pinned pieces: address, offset in the buffer, length.
    #[inline]
    fn pieces(
        &self,
        at: u64,
        bytes: usize,
        write: bool,
        mut each: impl FnMut(u64, usize, usize),
    ) -> Result<(), Unreachable> {
        at.checked_add(bytes as u64).ok_or(Unreachable)?;
        // All of it is looked at before any of it is touched.
        let first = if bytes == 0 { 0 } else { self.run(at, bytes, write)? };
        if first == bytes {
            each(at, 0, bytes);
            return Ok(());
        }
        let mut done = first;
        while done < bytes {
            done += self.run(at + done as u64, bytes - done, write)?;
        }
        let mut done = 0;
        while done < bytes {
            let piece = self.run(at + done as u64, bytes - done, write)?;
            each(at + done as u64, done, piece);
            done += piece;
        }
        Ok(())
    }
}

impl Session<'_> {
    /// Whose memory an access is to that is not to this process's, and where it is there, once all of it is found pinned.
    #[cold]
    fn other(&self, at: u64, bytes: usize, write: bool) -> Result<(i32, usize), Unreachable> {
        self.pieces(at, bytes, write, |_, _, _| {})?;
        self.pins.others.find(at).ok_or(Unreachable)
    }
}

impl Host for Session<'_> {
    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        if process::is_other(at) {
            let (process, at) = self.other(at, into.len(), false)?;
            return file::read(process, at, into);
        }
        self.pieces(at, into.len(), false, |at, done, bytes| {
            // SAFETY: `run` found the piece pinned: mapped and readable when it was pinned, and by the contract of
            // `DmaMemory` until the pin is dropped, which the session's guard keeps from happening now.
            unsafe { copy::from_host(at as usize, &mut into[done..done + bytes]) };
        })
    }

    #[inline]
    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        if process::is_other(at) {
            let (process, at) = self.other(at, from.len(), true)?;
            // SAFETY: registered by that process for the device to write.
            return unsafe { file::write(process, at, from) };
        }
        self.pieces(at, from.len(), true, |at, done, bytes| {
            // SAFETY: as in `read`, and pinned for writing.
            unsafe { copy::to_host(at as usize, &from[done..done + bytes]) };
        })
    }

    #[inline]
    fn publish(&self, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        let Some((body, tail)) = from.split_last_chunk::<8>() else { return Err(Unreachable) };
        if !(at | from.len() as u64).is_multiple_of(8) || self.run(at, from.len(), true)? != from.len() {
            return Err(Unreachable);
        }
        if process::is_other(at) {
            let (process, at) = self.other(at, from.len(), true)?;
            // SAFETY: as in `write`.
            return unsafe { file::publish(process, at, from) };
        }
        // SAFETY: as in `write`; the last word is aligned, as just checked.
        unsafe {
            copy::to_host(at as usize, body);
            copy::release64(at as usize + body.len(), *tail);
        }
        Ok(())
    }

    #[inline]
    fn load32(&self, at: u64) -> Result<u32, Unreachable> {
        if !at.is_multiple_of(4) || self.run(at, 4, false)? != 4 {
            return Err(Unreachable);
        }
        if process::is_other(at) {
            let (process, at) = self.other(at, 4, false)?;
            return Ok(u32::from_be_bytes(file::load(process, at)?));
        }
        // SAFETY: as in `read`, and aligned, as just checked.
        Ok(u32::from_be_bytes(unsafe { copy::acquire32(at as usize) }))
    }
}

#[cfg(test)]
mod tests;
