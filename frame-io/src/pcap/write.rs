//! Writing: records gathered in a buffer, handed to the file in large pieces.
//!
//! ```text
//!   write, under a lock -> buffer --full--> the caller ----------> file
//!                                 --every FLUSH_AFTER--> thread -> file      so that a pause finds all of it there
//! ```
//!
//! Whoever hands the buffer over takes it out of the lock's reach first: meanwhile others gather in the second one. A caller
//! makes no system call before its buffer is full, and tells nobody that there is something to write.
//!
//! Written here and not by `pcap-parser`, whose serialiser builds each block in a heap allocation of its own.

mod record;
mod section;

use std::fs::File;
use std::io::{self, ErrorKind, Seek, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Timestamp;
use crate::FrameError;
pub use section::{PcapInterface, PcapPlace, PcapSection, PcapStatistics};

const BUFFER_BYTES: usize = 256 * 1024;

/// How long a frame stays in the buffer at most. A process that is killed loses so much of its capture.
const FLUSH_AFTER: Duration = Duration::from_millis(250);

/// Which kind of capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapFormat {
    /// The old format, with nanosecond time stamps.
    Pcap,
    /// The new one: one section, nanosecond time stamps.
    PcapNg,
}

impl PcapFormat {
    /// By the file's name: `.pcapng` and `.ntar` mean the new format, all else the old.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("pcapng" | "ntar") => Self::PcapNg,
            _ => Self::Pcap,
        }
    }
}

/// Frames that were taken and never reached the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostFrames {
    /// How many.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Writes a capture file, from any thread. Buffered; what is buffered is handed to the file a quarter of a second later at the
/// latest, by a thread of the writer's, and at [`flush`](Self::flush), [`close`](Self::close) and when it is dropped. The
/// file is the kernel's then and outlives the process, not the machine.
///
/// A file that takes no more (a full disk) ends with its last whole record, if it is a plain file.
#[derive(Debug)]
pub struct PcapWriter {
    shared: Arc<Shared>,
    /// Until it is dropped.
    flusher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    format: PcapFormat,
    file: File,
    state: Mutex<State>,
    /// The flusher waits here for the end.
    ending: Condvar,
    /// All others, for whoever is writing.
    written: Condvar,
}

#[derive(Debug)]
struct State {
    buffer: Vec<u8>,
    spare: Vec<u8>,
    /// Somebody has a buffer and writes it to the file.
    writing: bool,
    /// Threads that wait for the end of that.
    waiting: usize,
    /// Bytes written, with what is buffered.
    bytes: u64,
    /// The kernel's answer to the write that failed. Nothing more is added after it.
    failure: Option<i32>,
    lost: LostFrames,
    ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands what is buffered to the file, behind what others are handing over.
    fn write_out<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.writing {
            state.waiting += 1;
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        if state.buffer.is_empty() {
            return state;
        }
        let spare = mem::take(&mut state.spare);
        let mut full = mem::replace(&mut state.buffer, spare);
        let failed_before = state.failure.is_some();
        state.writing = true;
        drop(state);
        let (put, failure) = if failed_before { (0, None) } else { self.put(&full) };
        let mut state = self.state();
        if failed_before || failure.is_some() {
            self.give_up(&mut state, &full, put, failure);
        }
        full.clear();
        state.spare = full;
        state.writing = false;
        if state.waiting > 0 {
            self.written.notify_all();
        }
        state
    }

    /// Writes to the file; how much it took, and why not more.
    fn put(&self, mut bytes: &[u8]) -> (usize, Option<io::Error>) {
        let total = bytes.len();
        while !bytes.is_empty() {
            match (&self.file).write(bytes) {
                Ok(0) => return (total - bytes.len(), Some(ErrorKind::WriteZero.into())),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (total - bytes.len(), Some(error)),
            }
        }
        (total, None)
    }

    /// The file took only `put` bytes of `buffer`: it ends with the last record that is whole, and the rest is lost.
    #[cold]
    fn give_up(&self, state: &mut State, buffer: &[u8], put: usize, failure: Option<io::Error>) {
        let (whole, lost) = record::lost(self.format, buffer, put);
        state.lost.frames += lost.frames;
        state.lost.bytes += lost.bytes;
        if let Some(error) = failure {
            state.failure = Some(error.raw_os_error().unwrap_or(libc::EIO));
            // Where the file stands: it may be standard output, and have more before what was written here. What is no plain file (a pipe)
            // stands nowhere; a reader that went away knows where it stopped.
            let torn = (put - whole) as u64;
            let _no_file =
                (&self.file).stream_position().and_then(|end| self.file.set_len(end.saturating_sub(torn)));
        }
    }

    /// Hands over what has waited, until the end and then once more.
    fn flush_pauses(&self) {
        let mut state = self.state();
        while !state.ended {
            state = self.ending.wait_timeout(state, FLUSH_AFTER).unwrap_or_else(PoisonError::into_inner).0;
            state = self.write_out(state);
        }
        // The end may come before the first wait.
        drop(self.write_out(state));
    }

    fn failed(&self, errno: i32) -> FrameError {
        FrameError::File {
            operation: "write",
            path: self.path.clone(),
            source: io::Error::from_raw_os_error(errno),
        }
    }
}

impl PcapWriter {
    /// Creates or empties a file and writes its header. Opening a pipe waits for its reader.
    ///
    /// # Errors
    /// [`FrameError::File`] when it cannot be created or written; [`FrameError::System`] when there is no thread to be had.
    pub fn create(path: impl AsRef<Path>, format: PcapFormat) -> Result<Self, FrameError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| FrameError::File {
            operation: "create",
            path: path.into(),
            source,
        })?;
        Self::over(file, path, format, &PcapSection::default())
    }

    /// Writes to a file that is open, from where it stands; `path` is for messages, `section` what its header says.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn over(
        file: File,
        path: &Path,
        format: PcapFormat,
        section: &PcapSection,
    ) -> Result<Self, FrameError> {
        let mut header = Vec::new();
        record::put_header(format, section, &mut header);
        let state = State {
            buffer: Vec::with_capacity(BUFFER_BYTES),
            spare: Vec::with_capacity(BUFFER_BYTES),
            writing: false,
            waiting: 0,
            bytes: header.len() as u64,
            failure: None,
            lost: LostFrames::default(),
            ended: false,
        };
        let shared = Arc::new(Shared {
            path: path.into(),
            format,
            file,
            state: Mutex::new(state),
            ending: Condvar::new(),
            written: Condvar::new(),
        });
        if let (_, Some(source)) = shared.put(&header) {
            return Err(FrameError::File { operation: "write", path: path.into(), source });
        }
        let flusher = std::thread::Builder::new().name("control-pcap".into()).spawn({
            let shared = shared.clone();
            move || shared.flush_pauses()
        });
        let flusher = flusher.map_err(|source| FrameError::System {
            operation: "starting a thread",
            subject: path.display().to_string(),
            source,
        })?;
        Ok(Self { shared, flusher: Some(flusher) })
    }

    /// The file that is written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Bytes written so far, with what is buffered.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.state().bytes
    }

    /// Adds statistics of an interface; a pcap file has no place for them.
    ///
    /// # Errors
    /// [`FrameError::File`] once the file takes no more.
    pub fn write_statistics(&self, interface: u32, statistics: &PcapStatistics) -> Result<(), FrameError> {
        if self.shared.format == PcapFormat::Pcap {
            return Ok(());
        }
        let mut batch = self.batch();
        let state = batch.room(record::STATISTICS_BYTES)?;
        record::put_statistics(interface, statistics, &mut state.buffer);
        state.bytes += record::STATISTICS_BYTES as u64;
        Ok(())
    }

    /// Whether a write has failed, so that nothing more will be added.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.state().failure.is_some()
    }

    /// The frames that were taken since the last call and did not reach the file, because a later write failed.
    #[must_use]
    pub fn take_lost(&self) -> LostFrames {
        mem::take(&mut self.shared.state().lost)
    }

    /// Adds a frame given in pieces. `wire_bytes` is its length on the wire, which may be more than is given.
    ///
    /// # Errors
    /// As [`PcapBatch::write`].
    pub fn write(&self, pieces: &[&[u8]], wire_bytes: usize, timestamp: Timestamp) -> Result<(), FrameError> {
        self.batch().write(pieces, wire_bytes, timestamp)
    }

    /// Locks the file for a burst of frames, so that the lock is taken once.
    #[inline]
    #[must_use]
    pub fn batch(&self) -> PcapBatch<'_> {
        PcapBatch { shared: &self.shared, state: Some(self.shared.state()) }
    }

    /// Hands everything buffered to the file.
    ///
    /// # Errors
    /// [`FrameError::File`] when the file does not take it, or did not take what was written before. What was buffered is
    /// lost then ([`take_lost`](Self::take_lost)).
    pub fn flush(&self) -> Result<(), FrameError> {
        let state = self.shared.write_out(self.shared.state());
        state.failure.map_or(Ok(()), |errno| Err(self.shared.failed(errno)))
    }

    /// Flushes and closes.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close(self) -> Result<(), FrameError> {
        self.flush()
    }
}

impl Drop for PcapWriter {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.ending.notify_all();
        if let Some(flusher) = self.flusher.take() {
            // It writes what is left, and it does not panic.
            let _ended = flusher.join();
        }
        let lost = self.take_lost().frames;
        if lost > 0 {
            let path = self.path().display();
            tracing::error!(target: "lib.frame_io", "{lost} frames lost at the end of {path}: {}", self.failure());
        }
    }
}

impl PcapWriter {
    fn failure(&self) -> io::Error {
        io::Error::from_raw_os_error(self.shared.state().failure.unwrap_or(libc::EIO))
    }
}

/// Frames that are added under one lock.
#[derive(Debug)]
pub struct PcapBatch<'a> {
    shared: &'a Shared,
    /// Always there between calls.
    state: Option<MutexGuard<'a, State>>,
}

impl PcapBatch<'_> {
    /// Bytes written so far, with what is buffered, as [`PcapWriter::bytes`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.bytes)
    }

    /// Adds a frame of the first interface, as [`write_at`](Self::write_at).
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    #[inline]
    pub fn write(
        &mut self,
        pieces: &[&[u8]],
        wire_bytes: usize,
        timestamp: Timestamp,
    ) -> Result<(), FrameError> {
        self.write_at(PcapPlace::default(), pieces, wire_bytes, timestamp)
    }

    /// Adds a frame given in pieces, and where it passed. `wire_bytes` is its length on the wire, which may be more than is given.
    ///
    /// Cost: a copy; a system call for each 256 KiB.
    ///
    /// # Errors
    /// [`FrameError::File`] with the kernel's answer once the file takes no more (a full disk): the frame is not written, nor
    /// will any other be. [`FrameError::Setting`] for a frame beyond 256 KiB or, in a pcap file, a time after 2106.
    #[inline]
    pub fn write_at(
        &mut self,
        place: PcapPlace,
        pieces: &[&[u8]],
        wire_bytes: usize,
        timestamp: Timestamp,
    ) -> Result<(), FrameError> {
        let format = self.shared.format;
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        record::check(format, bytes, timestamp)?;
        let state = self.room(bytes + record::HEAD_BYTES_MAX)?;
        let before = state.buffer.len();
        record::put(format, &mut state.buffer, place, pieces, bytes, wire_bytes, timestamp);
        state.bytes += (state.buffer.len() - before) as u64;
        Ok(())
    }

    /// Sees to it that the buffer has room for so many bytes.
    #[inline]
    fn room(&mut self, bytes: usize) -> Result<&mut State, FrameError> {
        let Self { shared, state: place } = self;
        // Held between calls: it is taken out here alone, and only for a full buffer.
        let Some(mut state) = place.take() else { unreachable!("the lock is held between calls") };
        if state.buffer.len() + bytes > BUFFER_BYTES {
            state = shared.write_out(state);
        }
        let state = place.insert(state);
        match state.failure {
            Some(errno) => Err(shared.failed(errno)),
            None => Ok(state),
        }
    }
}
