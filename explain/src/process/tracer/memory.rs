//! The memory of a thread that stands still. What it holds is the process's affair: any address may be asked for, and what cannot be
//! read is `None`.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Most bytes that are read for one stop: a frame and its attributes have room in it, and a process cannot make more be read.
const BYTES_MAX: usize = 1 << 20;
/// Most bytes of a path. Source: Linux `include/uapi/linux/limits.h`, `PATH_MAX`.
const PATH_MAX: usize = 4096;
/// Bytes of a path that are read at once: they end where a page does, behind which there may be nothing.
const CHUNK: u64 = 256;

/// Memory, opened for one stop of a thread.
#[derive(Debug)]
pub(super) struct Memory {
    file: Option<File>,
    left: Cell<usize>,
}

impl Memory {
    pub(super) fn of(pid: u32, thread: i32) -> Self {
        let file = File::open(format!("/proc/{pid}/task/{thread}/mem")).ok();
        Self { file, left: Cell::new(BYTES_MAX) }
    }

    /// Bytes at an address.
    pub(super) fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        if bytes == 0 {
            return Some(Vec::new());
        }
        self.left.set(self.left.get().checked_sub(bytes)?);
        let mut out = vec![0; bytes];
        self.file.as_ref()?.read_exact_at(&mut out, address).ok()?;
        Some(out)
    }

    /// The path at an address.
    pub(super) fn path(&self, address: u64) -> Option<String> {
        let mut path = Vec::new();
        while path.len() < PATH_MAX {
            let from = address.checked_add(path.len() as u64)?;
            let bytes = CHUNK - from % CHUNK;
            let more = self.read(from, bytes as usize)?;
            if let Some(end) = more.iter().position(|byte| *byte == 0) {
                path.extend_from_slice(&more[..end]);
                return Some(String::from_utf8_lossy(&path).into_owned());
            }
            path.extend_from_slice(&more);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Memory {
        Memory::of(std::process::id(), rustix::thread::gettid().as_raw_nonzero().get())
    }

    #[test]
    fn what_is_there_is_read_and_the_rest_is_none() {
        let memory = own();
        let text = std::hint::black_box(*b"/dev/infiniband/uverbs0\0");
        let address = text.as_ptr().addr() as u64;
        assert_eq!(memory.read(address, 4), Some(b"/dev".to_vec()));
        assert_eq!(memory.path(address).as_deref(), Some("/dev/infiniband/uverbs0"));
        for nowhere in [0, 8, u64::MAX, u64::MAX - 4, 1 << 63] {
            assert_eq!((memory.read(nowhere, 8), memory.path(nowhere)), (None, None), "{nowhere:#x}");
        }
        assert_eq!(memory.read(0, 0), Some(Vec::new()));
        assert_eq!(Memory::of(u32::MAX, 1).read(address, 4), None);
    }

    #[test]
    fn a_stop_has_an_end() {
        let (memory, bytes) = (own(), vec![1_u8; 1 << 16]);
        let address = bytes.as_ptr().addr() as u64;
        let read = (0..100).take_while(|_| memory.read(address, bytes.len()).is_some()).count();
        assert_eq!(read, BYTES_MAX >> 16);
        assert_eq!(memory.read(address, usize::MAX), None);
    }
}
