//! A window that moves over a file or a pipe.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::sys;

/// How much is read at a time; well inside a second-level cache.
const WINDOW_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Window {
    file: File,
    bytes: Vec<u8>,
    /// The unread part of `bytes` is `start..end`.
    start: usize,
    end: usize,
    /// Place in the file of `bytes[0]`.
    offset: u64,
    /// Nothing comes after `end`.
    at_end: bool,
    /// A pipe: it is read once, and what is not there yet may come.
    pipe: bool,
    /// A pipe reads as ended until its first writer has come.
    silent: bool,
}

impl Window {
    /// Opens a file. A pipe is opened without waiting for its writer, and read without waiting for bytes.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        let pipe = kind.is_fifo();
        Ok(Self {
            file,
            bytes: vec![0; WINDOW_BYTES],
            start: 0,
            end: 0,
            offset: 0,
            at_end: false,
            pipe,
            silent: pipe,
        })
    }

    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        (self.start, self.end, self.offset, self.at_end) = (0, 0, 0, false);
        Ok(())
    }

    pub(super) fn is_pipe(&self) -> bool {
        self.pipe
    }

    /// Whether the file has no more bytes than stand in the window.
    pub(super) fn at_end(&self) -> bool {
        self.at_end
    }

    /// Ends the file here, whatever follows.
    pub(super) fn end_here(&mut self) {
        self.end = self.start;
        self.at_end = true;
    }

    /// Place of the first unread byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.start as u64
    }

    /// The unread bytes that are there.
    #[inline]
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Passes over bytes and returns them.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> &[u8] {
        let taken = self.start..self.start + bytes;
        self.start = taken.end;
        &self.bytes[taken]
    }

    /// Makes `bytes` bytes stand in the window if the file has them now. Returns how many do.
    #[inline]
    pub(super) fn ensure(&mut self, bytes: usize) -> io::Result<usize> {
        if self.end - self.start >= bytes { Ok(self.end - self.start) } else { self.refill(bytes) }
    }

    #[cold]
    fn refill(&mut self, bytes: usize) -> io::Result<usize> {
        if self.at_end {
            return Ok(self.end - self.start);
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.offset += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        if self.bytes.len() < bytes {
            // Bounded by the callers: a record header, or at most a block with a frame.
            self.bytes.resize(bytes.next_multiple_of(WINDOW_BYTES), 0);
        }
        while self.end < bytes {
            match self.file.read(&mut self.bytes[self.end..]) {
                Ok(0) => {
                    self.at_end = !self.silent;
                    break;
                }
                Ok(count) => {
                    self.end += count;
                    self.silent = false;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.silent = false;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end)
    }

    /// Sleeps until a pipe has bytes or has ended, at most `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> io::Result<()> {
        if self.pipe { sys::wait_readable(self.file.as_fd(), timeout) } else { Ok(()) }
    }
}
