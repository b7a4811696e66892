//! Writing: records gathered in a buffer, handed to the file in large pieces.
//!
//! Written here and not by `pcap-parser`, whose serialiser builds each block in a heap allocation of its own.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{ETHERNET, FRAME_BYTES_MAX, Timestamp};
use crate::FrameError;

const BUFFER_BYTES: usize = 256 * 1024;

/// Which kind of capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapFormat {
    /// The old format, with nanosecond time stamps.
    Pcap,
    /// The new one: one section, one interface, nanosecond time stamps.
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

/// Writes a capture file. Buffered; what is buffered is written at [`flush`](Self::flush), [`close`](Self::close) and
/// when it is dropped.
#[derive(Debug)]
pub struct PcapWriter {
    path: PathBuf,
    file: File,
    format: PcapFormat,
    buffer: Vec<u8>,
    /// After a failed write the file ends inside a record: nothing more is added to it.
    failed: bool,
}

impl PcapWriter {
    /// Creates or empties a file and writes its header.
    ///
    /// # Errors
    /// [`FrameError::File`] when it cannot be created or written.
    pub fn create(path: impl AsRef<Path>, format: PcapFormat) -> Result<Self, FrameError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| FrameError::File {
            operation: "create",
            path: path.into(),
            source,
        })?;
        let mut writer =
            Self { path: path.into(), file, format, buffer: Vec::with_capacity(BUFFER_BYTES), failed: false };
        writer.put_header();
        writer.flush()?;
        Ok(writer)
    }

    /// The file that is written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a write has failed, so that nothing more will be added.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    fn put_header(&mut self) {
        let snaplen = FRAME_BYTES_MAX as u32;
        match self.format {
            PcapFormat::Pcap => {
                self.put_u32(0xa1b2_3c4d);
                self.put_u16(2);
                self.put_u16(4);
                self.put_u32(0);
                self.put_u32(0);
                self.put_u32(snaplen);
                self.put_u32(u32::from(ETHERNET));
            }
            PcapFormat::PcapNg => {
                // Section header, no options, length not known.
                self.put_u32(0x0a0d_0d0a);
                self.put_u32(28);
                self.put_u32(0x1a2b_3c4d);
                self.put_u16(1);
                self.put_u16(0);
                self.buffer.extend_from_slice(&u64::MAX.to_le_bytes());
                self.put_u32(28);
                // One interface; option 9, if_tsresol = 9: nanoseconds.
                self.put_u32(1);
                self.put_u32(32);
                self.put_u16(ETHERNET);
                self.put_u16(0);
                self.put_u32(snaplen);
                self.put_u16(9);
                self.put_u16(1);
                self.put_u32(9);
                self.put_u32(0);
                self.put_u32(32);
            }
        }
    }

    fn put_u16(&mut self, value: u16) {
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds a frame given in pieces. `wire_bytes` is its length on the wire, which may be more than is given.
    ///
    /// # Errors
    /// [`FrameError::File`] when the buffer was full and the file took no more (a full disk): the frame is not written, nor
    /// will any other be. [`FrameError::Setting`] for a frame beyond 256 KiB or, in a pcap file, a time after 2106.
    #[inline]
    pub fn write(
        &mut self,
        pieces: &[&[u8]],
        wire_bytes: usize,
        timestamp: Timestamp,
    ) -> Result<(), FrameError> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let seconds = timestamp.0 / 1_000_000_000;
        if bytes > FRAME_BYTES_MAX || (self.format == PcapFormat::Pcap && seconds > u64::from(u32::MAX)) {
            return Err(Self::unfit(bytes, seconds));
        }
        let padding = bytes.next_multiple_of(4) - bytes;
        if self.buffer.len() + bytes + 36 > BUFFER_BYTES {
            self.flush()?;
        }
        if self.failed {
            return Err(self.closed());
        }
        let wire_bytes = u32::try_from(wire_bytes.max(bytes)).unwrap_or(u32::MAX);
        match self.format {
            PcapFormat::Pcap => {
                let mut header = [0; 16];
                header[..4].copy_from_slice(&(seconds as u32).to_le_bytes());
                header[4..8].copy_from_slice(&((timestamp.0 % 1_000_000_000) as u32).to_le_bytes());
                header[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
                header[12..].copy_from_slice(&wire_bytes.to_le_bytes());
                self.buffer.extend_from_slice(&header);
                self.put_pieces(pieces);
            }
            PcapFormat::PcapNg => {
                let block = (bytes + padding + 32) as u32;
                let mut header = [0; 28];
                header[..4].copy_from_slice(&6u32.to_le_bytes());
                header[4..8].copy_from_slice(&block.to_le_bytes());
                // 8..12: interface 0.
                header[12..16].copy_from_slice(&((timestamp.0 >> 32) as u32).to_le_bytes());
                header[16..20].copy_from_slice(&(timestamp.0 as u32).to_le_bytes());
                header[20..24].copy_from_slice(&(bytes as u32).to_le_bytes());
                header[24..].copy_from_slice(&wire_bytes.to_le_bytes());
                self.buffer.extend_from_slice(&header);
                self.put_pieces(pieces);
                self.buffer.extend_from_slice(&[0; 4][..padding]);
                self.put_u32(block);
            }
        }
        Ok(())
    }

    #[inline]
    fn put_pieces(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            self.buffer.extend_from_slice(piece);
        }
    }

    #[cold]
    fn unfit(bytes: usize, seconds: u64) -> FrameError {
        if bytes > FRAME_BYTES_MAX {
            FrameError::Setting {
                setting: "frame length",
                value: bytes.to_string(),
                allowed: format!("a capture file takes up to {FRAME_BYTES_MAX} bytes"),
            }
        } else {
            FrameError::Setting {
                setting: "time stamp in seconds",
                value: seconds.to_string(),
                allowed: format!("a pcap file takes up to {} (pcapng takes more)", u32::MAX),
            }
        }
    }

    #[cold]
    fn closed(&self) -> FrameError {
        FrameError::File {
            operation: "write",
            path: self.path.clone(),
            source: std::io::Error::other("an earlier write failed"),
        }
    }

    /// Hands everything buffered to the file.
    ///
    /// # Errors
    /// [`FrameError::File`] when the file does not take it. What was buffered is lost then.
    pub fn flush(&mut self) -> Result<(), FrameError> {
        if self.failed {
            return Err(self.closed());
        }
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|source| {
            self.failed = true;
            FrameError::File { operation: "write", path: self.path.clone(), source }
        })
    }

    /// Flushes and closes.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close(mut self) -> Result<(), FrameError> {
        self.flush()
    }
}

impl Drop for PcapWriter {
    fn drop(&mut self) {
        if self.failed || self.buffer.is_empty() {
            return;
        }
        if let Err(error) = self.flush() {
            tracing::error!(target: "lib.frame_io", %error, "frames lost at the end of a capture");
        }
    }
}
