//! Reading: a window on the file, records taken apart in place.

mod classic;
mod ng;
mod window;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Timestamp;
use crate::FrameError;
use classic::Classic;
use ng::Section;
use window::Window;

/// Bytes of a pcap file's header, the longest that has to stand in the window before the format is known.
const HEADER_BYTES: usize = 24;

/// One frame, borrowed from the reader until the next call.
#[derive(Clone, Copy, Debug)]
pub struct PcapFrame<'a> {
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// How long the frame was on the wire; more than `data` holds if the capture cut it short.
    pub wire_bytes: u32,
    /// When it was seen; zero where the file does not say.
    pub timestamp: Timestamp,
    /// Which interface of the section saw it; zero in a pcap file.
    pub interface: u32,
}

/// Where a capture ends inside a record, as a full disk or a killed writer leaves it. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The file.
    pub path: PathBuf,
    /// Where the record begins that is not whole.
    pub offset: u64,
    /// Whole frames before it.
    pub frames: u64,
    /// Bytes that the record needs.
    pub expected: u64,
    /// Bytes that are there.
    pub present: u64,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset, frames, expected, present } = self;
        let record = frames + 1;
        write!(
            f,
            "{} ends inside record {record} at byte {offset} ({present} bytes of {expected}); whole frames before it: \
             {frames}",
            path.display()
        )
    }
}

#[derive(Debug)]
enum Format {
    /// Nothing was read yet, or not enough.
    Unknown,
    Classic(Classic),
    Ng(Section),
}

/// Reads a capture from front to back: a file, or a pipe into which another program writes. Memory use does not depend on
/// the file.
#[derive(Debug)]
pub struct PcapReader {
    path: PathBuf,
    window: Window,
    format: Format,
    frames: u64,
    ended: bool,
    truncation: Option<Truncation>,
}

fn number(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let four = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

impl PcapReader {
    /// Opens a file and reads its header. Of a pipe nothing is read yet, and its writer may come later.
    ///
    /// # Errors
    /// [`FrameError::File`] when it cannot be opened or read, [`FrameError::Capture`] when it is not a pcap or pcapng
    /// file of Ethernet frames.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FrameError> {
        let path = path.as_ref();
        let window = Window::open(path).map_err(|source| FrameError::File {
            operation: "open",
            path: path.into(),
            source,
        })?;
        let mut reader = Self {
            path: path.into(),
            window,
            format: Format::Unknown,
            frames: 0,
            ended: false,
            truncation: None,
        };
        if !reader.is_pipe() {
            reader.begin()?;
        }
        Ok(reader)
    }

    /// Goes back to the first frame.
    ///
    /// # Errors
    /// [`FrameError::File`] when the file is not one that can be read twice, a pipe for example.
    pub fn rewind(&mut self) -> Result<(), FrameError> {
        let done = self.window.rewind();
        done.map_err(|source| FrameError::File { operation: "rewind", path: self.path.clone(), source })?;
        (self.format, self.frames, self.ended, self.truncation) = (Format::Unknown, 0, false, None);
        self.begin().map(|_| ())
    }

    /// The file that is read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a pipe, which is read once and may have no frame now and one later.
    #[must_use]
    pub fn is_pipe(&self) -> bool {
        self.window.is_pipe()
    }

    /// Whether no frame will come any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Where the file ends inside a record, once the frames before it were read.
    #[must_use]
    pub fn truncation(&self) -> Option<&Truncation> {
        self.truncation.as_ref()
    }

    /// Sleeps until a pipe has bytes or has ended, at most `timeout`. A file always has.
    ///
    /// # Errors
    /// [`FrameError::File`], the kernel's answer.
    pub fn wait(&self, timeout: Duration) -> Result<(), FrameError> {
        let done = self.window.wait(timeout);
        done.map_err(|source| FrameError::File { operation: "wait for", path: self.path.clone(), source })
    }

    /// The next frame; none at the end of the file, and none while a pipe has no whole frame
    /// ([`has_ended`](Self::has_ended) tells which). A file that is cut off ends before the record that is not whole
    /// ([`truncation`](Self::truncation) tells).
    ///
    /// Cost: one system call for each 256 KiB of file; else some ten nanoseconds. On a pipe one for each call without a frame.
    ///
    /// # Errors
    /// [`FrameError::Capture`] names the offset of a record that makes no sense, [`FrameError::File`] a failed read.
    /// After an error the file reads as ended.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a frame borrows from the reader, which no Iterator can say"
    )]
    pub fn next(&mut self) -> Result<Option<PcapFrame<'_>>, FrameError> {
        match self.format {
            Format::Classic(classic) => self.next_classic(classic),
            Format::Ng { .. } => self.next_ng(),
            Format::Unknown => {
                if self.ended || !self.begin()? {
                    return Ok(None);
                }
                match self.format {
                    Format::Classic(classic) => self.next_classic(classic),
                    _ => self.next_ng(),
                }
            }
        }
    }

    #[cold]
    fn damaged(&mut self, problem: impl Into<String>) -> FrameError {
        let offset = self.window.offset();
        self.ended = true;
        self.window.end_here();
        FrameError::Capture { path: self.path.clone(), offset, problem: problem.into() }
    }

    #[inline]
    fn ensure(&mut self, bytes: usize) -> Result<usize, FrameError> {
        self.window.ensure(bytes).map_err(|source| {
            self.ended = true;
            FrameError::File { operation: "read", path: self.path.clone(), source }
        })
    }

    /// Makes a record's bytes stand in the window; whether they do. If not, the file has ended or the rest is yet to come.
    #[inline]
    fn have(&mut self, bytes: usize) -> Result<bool, FrameError> {
        let present = self.ensure(bytes)?;
        if present < bytes {
            self.missing(present as u64, bytes as u64, self.window.offset());
        }
        Ok(present >= bytes)
    }

    /// A record at `offset` of which only so many bytes are there.
    #[cold]
    fn missing(&mut self, present: u64, expected: u64, offset: u64) {
        if !self.window.at_end() || self.ended {
            return;
        }
        self.ended = true;
        if present > 0 {
            let (path, frames) = (self.path.clone(), self.frames);
            self.truncation = Some(Truncation { path, offset, frames, expected, present });
        }
    }

    /// Reads the file's header; whether it is there.
    fn begin(&mut self) -> Result<bool, FrameError> {
        let mut present = self.ensure(HEADER_BYTES)?;
        if present >= 4 && ng::is_section(self.window.unread()) {
            let bytes = if present < 12 { 12 } else { ng::section_bytes(self.window.unread()) };
            present = self.ensure(bytes)?;
            if present < bytes {
                return self.header_missing(present);
            }
            self.format = Format::Ng(Section::default());
            self.begin_section()?;
            return Ok(true);
        }
        if present < HEADER_BYTES {
            if present >= 4 && self.window.at_end() && !classic::is_magic(self.window.unread()) {
                return Err(self.damaged("neither a pcap nor a pcapng file"));
            }
            return self.header_missing(present);
        }
        self.format = Format::Classic(self.read_classic_header()?);
        Ok(true)
    }

    fn header_missing(&mut self, present: usize) -> Result<bool, FrameError> {
        match present {
            _ if !self.window.at_end() => Ok(false),
            0..4 => Err(self.damaged("too short to be a pcap or pcapng file")),
            _ => Err(self.damaged("the file ends inside its header")),
        }
    }
}
