//! The file of the kernel's connection manager: commands by write(2), answers where the command says.
#![expect(unsafe_code, reason = "the kernel writes an answer to where a command points")]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pollux_uverbs::abi::connection::Head;
use pollux_verbs::Errno;
use rustix::fs::OFlags;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An open file: a queue of events, and the IDs that were made by it.
#[derive(Debug)]
pub(super) struct CmFile(File);

impl CmFile {
    /// Opens it, so that nothing waits for events.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path)?;
        Ok(Self(file))
    }

    /// A command without an answer.
    pub(super) fn tell(&self, command: u32, body: &(impl IntoBytes + Immutable)) -> Result<(), Errno> {
        self.write(command, body.as_bytes(), 0)
    }

    /// A command with an answer: `body` makes the command, given where the answer goes.
    pub(super) fn ask<B: IntoBytes + Immutable, A: FromBytes + IntoBytes>(
        &self,
        command: u32,
        body: impl FnOnce(u64) -> B,
    ) -> Result<A, Errno> {
        let mut answer = A::new_zeroed();
        let pointer = std::ptr::from_mut(&mut answer);
        let body = body(pointer.expose_provenance() as u64);
        self.write(command, body.as_bytes(), size_of::<A>() as u16)?;
        // SAFETY: `answer` lives in this frame and nobody else has a reference to it; what the kernel wrote there, by its address that
        // was exposed, is any bytes, of which every one makes an `A`.
        Ok(unsafe { std::ptr::read_volatile(pointer) })
    }

    fn write(&self, command: u32, body: &[u8], output: u16) -> Result<(), Errno> {
        let head = Head { cmd: command, r#in: body.len() as u16, out: output };
        let bytes = [head.as_bytes(), body].concat();
        loop {
            // By the C library, for whose function others may stand in.
            match (&self.0).write(&bytes) {
                // The kernel takes a command whole.
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for CmFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
