//! Reading: a window on the file, records taken apart in place.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use pcap_parser::pcapng::{
    parse_enhancedpacketblock_be, parse_enhancedpacketblock_le, parse_interfacedescriptionblock_be,
    parse_interfacedescriptionblock_le, parse_sectionheaderblock, parse_simplepacketblock_be,
    parse_simplepacketblock_le,
};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{
    OptionCode, PcapNGOption, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified,
    parse_pcap_header,
};

use super::{ETHERNET, FRAME_BYTES_MAX, Timestamp};
use crate::FrameError;

/// How much is read at a time; well inside a second-level cache.
const WINDOW_BYTES: usize = 256 * 1024;
/// A block that is parsed (not skipped) may be so long: a frame, its header and options.
const BLOCK_BYTES_MAX: usize = FRAME_BYTES_MAX + 64 * 1024;
/// More interfaces than this in one section is not a capture but an attack on memory.
const INTERFACES_MAX: usize = 65_536;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

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

#[derive(Clone, Copy, Debug)]
struct Classic {
    big_endian: bool,
    /// The "modified" format of some old kernels: eight more bytes in each record header, little endian only.
    modified: bool,
    nanos_per_tick: u64,
}

/// What one interface of a pcapng section says about its frames.
#[derive(Clone, Copy, Debug)]
struct Capturing {
    snaplen: u32,
    /// Ticks a second; 0 stands for more than fit, whose time stamps read as zero.
    ticks_per_second: u64,
    offset_seconds: i64,
    ethernet: bool,
}

impl Capturing {
    fn time(&self, high: u32, low: u32) -> Timestamp {
        let ticks = u128::from(high) << 32 | u128::from(low);
        if self.ticks_per_second == 0 {
            return Timestamp::default();
        }
        let nanos = ticks * 1_000_000_000 / u128::from(self.ticks_per_second);
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX);
        let shifted = nanos.saturating_add(i128::from(self.offset_seconds) * 1_000_000_000);
        Timestamp(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
enum Format {
    Classic(Classic),
    Ng { big_endian: bool, interfaces: Vec<Capturing> },
}

/// Reads a capture file from front to back. Memory use does not depend on the file.
#[derive(Debug)]
pub struct PcapReader {
    path: PathBuf,
    file: File,
    format: Format,
    window: Vec<u8>,
    /// The unread part of `window` is `start..end`.
    start: usize,
    end: usize,
    /// Place in the file of `window[0]`.
    window_offset: u64,
    /// An error is said once; after it the file reads as ended.
    failed: bool,
}

fn number(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let four = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

impl PcapReader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`FrameError::File`] when it cannot be opened or read, [`FrameError::Capture`] when it is not a pcap or pcapng
    /// file of Ethernet frames.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FrameError> {
        let path = path.as_ref();
        let failed = |source| FrameError::File { operation: "open", path: path.into(), source };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(ErrorKind::IsADirectory.into()));
        }
        let mut reader = Self {
            path: path.into(),
            file,
            format: Format::Ng { big_endian: false, interfaces: Vec::new() },
            window: vec![0; WINDOW_BYTES],
            start: 0,
            end: 0,
            window_offset: 0,
            failed: false,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// Goes back to the first frame.
    ///
    /// # Errors
    /// [`FrameError::File`] when the file is not one that can be read twice, a pipe for example.
    pub fn rewind(&mut self) -> Result<(), FrameError> {
        self.file.seek(SeekFrom::Start(0)).map_err(|source| FrameError::File {
            operation: "rewind",
            path: self.path.clone(),
            source,
        })?;
        (self.start, self.end, self.window_offset, self.failed) = (0, 0, 0, false);
        self.read_header()
    }

    /// The file that is read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next frame; none at the end of the file.
    ///
    /// Cost: one system call for each 256 KiB of file; else some ten nanoseconds.
    ///
    /// # Errors
    /// [`FrameError::Capture`] names the offset of the record that is cut off or makes no sense,
    /// [`FrameError::File`] a failed read. After an error the file reads as ended.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a frame borrows from the reader, which no Iterator can say"
    )]
    pub fn next(&mut self) -> Result<Option<PcapFrame<'_>>, FrameError> {
        match self.format {
            Format::Classic(classic) => self.next_classic(classic),
            Format::Ng { .. } => self.next_ng(),
        }
    }

    fn offset(&self) -> u64 {
        self.window_offset + self.start as u64
    }

    #[cold]
    fn damaged(&mut self, problem: impl Into<String>) -> FrameError {
        let offset = self.offset();
        self.failed = true;
        self.end = self.start;
        FrameError::Capture { path: self.path.clone(), offset, problem: problem.into() }
    }

    /// Makes `bytes` bytes stand in the window unless the file ends before; says how many do.
    #[inline]
    fn ensure(&mut self, bytes: usize) -> Result<usize, FrameError> {
        if self.end - self.start >= bytes { Ok(self.end - self.start) } else { self.refill(bytes) }
    }

    #[cold]
    fn refill(&mut self, bytes: usize) -> Result<usize, FrameError> {
        if self.failed {
            return Ok(0);
        }
        self.window.copy_within(self.start..self.end, 0);
        self.window_offset += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        if self.window.len() < bytes {
            // Bounded by the callers: a record header, or at most `BLOCK_BYTES_MAX`.
            self.window.resize(bytes.next_multiple_of(WINDOW_BYTES), 0);
        }
        while self.end < bytes {
            match self.file.read(&mut self.window[self.end..]) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    self.failed = true;
                    return Err(FrameError::File { operation: "read", path: self.path.clone(), source });
                }
            }
        }
        Ok(self.end)
    }

    /// As [`ensure`](Self::ensure), for bytes that must be there.
    #[inline]
    fn demand(&mut self, bytes: usize, what: &str) -> Result<(), FrameError> {
        let have = self.ensure(bytes)?;
        if have < bytes {
            return Err(self.cut_off(bytes, have, what));
        }
        Ok(())
    }

    #[cold]
    fn cut_off(&mut self, bytes: usize, have: usize, what: &str) -> FrameError {
        self.damaged(format!("the file ends inside {what} ({bytes} bytes expected, {have} there)"))
    }

    fn read_header(&mut self) -> Result<(), FrameError> {
        if self.ensure(4)? < 4 {
            return Err(self.damaged("too short to be a pcap or pcapng file"));
        }
        if number(&self.window, self.start, false) == SECTION_HEADER {
            self.format = Format::Ng { big_endian: false, interfaces: Vec::new() };
            // Parsed like any other block, but it must be the first.
            return self.skip_to_packet().map(|_| ());
        }
        self.ensure(24)?;
        let parsed = parse_pcap_header(&self.window[self.start..self.end]).map(|(_, header)| header);
        let header = match parsed {
            Ok(header) => header,
            Err(pcap_parser::nom::Err::Incomplete(_)) => {
                return Err(self.damaged("the file ends inside its header"));
            }
            Err(_) => return Err(self.damaged("neither a pcap nor a pcapng file")),
        };
        if header.version_major != 2 {
            return Err(self.damaged(format!("pcap version {} (2 is known)", header.version_major)));
        }
        // The upper half of the field holds flags about the frame check sequence.
        let link_type = header.network.0 & 0xffff;
        if link_type != i32::from(ETHERNET) {
            return Err(self.damaged(format!("link type {link_type} (only 1, Ethernet, can be used)")));
        }
        self.format = Format::Classic(Classic {
            big_endian: header.is_bigendian(),
            modified: header.is_modified_format(),
            nanos_per_tick: if header.is_nanosecond_precision() { 1 } else { 1000 },
        });
        self.start += header.size();
        Ok(())
    }

    #[inline]
    fn next_classic(&mut self, classic: Classic) -> Result<Option<PcapFrame<'_>>, FrameError> {
        let header_bytes = if classic.modified { 24 } else { 16 };
        let have = self.ensure(header_bytes)?;
        if have < header_bytes {
            return match have {
                _ if self.failed => Ok(None),
                0 => Ok(None),
                _ => Err(self.cut_off(header_bytes, have, "a record header")),
            };
        }
        let captured = number(&self.window, self.start + 8, classic.big_endian) as usize;
        if captured > FRAME_BYTES_MAX {
            return Err(
                self.damaged(format!("a frame of {captured} bytes (at most {FRAME_BYTES_MAX} are possible)"))
            );
        }
        self.demand(header_bytes + captured, "a frame")?;
        let record = &self.window[self.start..self.end];
        let parsed = if classic.modified {
            parse_pcap_frame_modified(record)
        } else if classic.big_endian {
            parse_pcap_frame_be(record)
        } else {
            parse_pcap_frame(record)
        };
        let Ok((_, frame)) = parsed else { unreachable!("all bytes of the record are in the window") };
        self.start += header_bytes + captured;
        let nanos =
            u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * classic.nanos_per_tick;
        Ok(Some(PcapFrame {
            data: frame.data,
            wire_bytes: frame.origlen.max(frame.caplen),
            timestamp: Timestamp(nanos),
            interface: 0,
        }))
    }

    fn next_ng(&mut self) -> Result<Option<PcapFrame<'_>>, FrameError> {
        let Some((kind, bytes)) = self.skip_to_packet()? else { return Ok(None) };
        let Format::Ng { big_endian, .. } = self.format else {
            unreachable!("the format does not change while reading")
        };
        let block = self.start..self.start + bytes;
        // The checks come before the borrow that is returned.
        let (interface, length) = if kind == ENHANCED_PACKET {
            if bytes < 32 {
                return Err(self.damaged(format!("an enhanced packet block of {bytes} bytes (at least 32)")));
            }
            (number(&self.window, self.start + 8, big_endian), None)
        } else {
            if bytes < 16 {
                return Err(self.damaged(format!("a simple packet block of {bytes} bytes (at least 16)")));
            }
            (0, Some(number(&self.window, self.start + 8, big_endian)))
        };
        let Format::Ng { interfaces, .. } = &self.format else {
            unreachable!("the format does not change while reading")
        };
        let Some(&capturing) = interfaces.get(interface as usize) else {
            let known = interfaces.len();
            return Err(self
                .damaged(format!("a frame of interface {interface}, but {known} interfaces are described")));
        };
        if !capturing.ethernet {
            return Err(self
                .damaged(format!("a frame of interface {interface}, whose link type is not Ethernet (1)")));
        }
        let usable = if kind == ENHANCED_PACKET {
            let captured = number(&self.window, self.start + 20, big_endian) as usize;
            captured <= FRAME_BYTES_MAX && captured.next_multiple_of(4) + 32 <= bytes
        } else {
            let kept = if capturing.snaplen == 0 { u32::MAX } else { capturing.snaplen };
            let captured = length.unwrap_or(0).min(kept) as usize;
            captured <= FRAME_BYTES_MAX && captured.next_multiple_of(4) + 16 <= bytes
        };
        if !usable {
            return Err(self.damaged("a frame longer than its block or than 262144 bytes"));
        }
        let offset = self.offset();
        self.start = block.end;
        let bytes_of_block = &self.window[block];
        if kind == ENHANCED_PACKET {
            let parse = if big_endian { parse_enhancedpacketblock_be } else { parse_enhancedpacketblock_le };
            let Ok((_, packet)) = parse(bytes_of_block) else {
                (self.failed, self.end) = (true, self.start);
                return Err(unreadable(&self.path, offset));
            };
            let captured = packet.caplen as usize;
            return Ok(Some(PcapFrame {
                data: &packet.data[..captured],
                wire_bytes: packet.origlen.max(packet.caplen),
                timestamp: capturing.time(packet.ts_high, packet.ts_low),
                interface,
            }));
        }
        let parse = if big_endian { parse_simplepacketblock_be } else { parse_simplepacketblock_le };
        let Ok((_, packet)) = parse(bytes_of_block) else {
            (self.failed, self.end) = (true, self.start);
            return Err(unreadable(&self.path, offset));
        };
        let kept = if capturing.snaplen == 0 { u32::MAX } else { capturing.snaplen };
        Ok(Some(PcapFrame {
            data: &packet.data[..packet.orig_len().min(kept) as usize],
            wire_bytes: packet.orig_len(),
            timestamp: Timestamp::default(),
            interface: 0,
        }))
    }

    /// Takes in sections and interfaces and passes over what holds no frame. Returns kind and length of the packet
    /// block at the start of the window, all of which is there.
    fn skip_to_packet(&mut self) -> Result<Option<(u32, usize)>, FrameError> {
        loop {
            let have = self.ensure(12)?;
            if have < 12 {
                return match have {
                    _ if self.failed => Ok(None),
                    0 => Ok(None),
                    _ => Err(self.cut_off(12, have, "a block header")),
                };
            }
            if number(&self.window, self.start, false) == SECTION_HEADER {
                self.begin_section()?;
                continue;
            }
            let Format::Ng { big_endian, .. } = self.format else {
                unreachable!("the format does not change while reading")
            };
            let kind = number(&self.window, self.start, big_endian);
            let bytes = number(&self.window, self.start + 4, big_endian) as usize;
            if bytes < 12 || !bytes.is_multiple_of(4) {
                return Err(self.damaged(format!("a block of {bytes} bytes (a multiple of 4, at least 12)")));
            }
            match kind {
                ENHANCED_PACKET | SIMPLE_PACKET | INTERFACE_DESCRIPTION => {
                    if bytes > BLOCK_BYTES_MAX {
                        return Err(self.damaged(format!(
                            "a block of {bytes} bytes (at most {BLOCK_BYTES_MAX} for this kind)"
                        )));
                    }
                    self.demand(bytes, "a block")?;
                    if number(&self.window, self.start + bytes - 4, big_endian) as usize != bytes {
                        return Err(self.damaged("a block whose two lengths differ"));
                    }
                    if kind != INTERFACE_DESCRIPTION {
                        return Ok(Some((kind, bytes)));
                    }
                    self.describe_interface(big_endian, bytes)?;
                }
                _ => self.skip(bytes)?,
            }
        }
    }

    fn begin_section(&mut self) -> Result<(), FrameError> {
        // The byte order stands behind the length that needs it.
        let big_endian = match number(&self.window, self.start + 8, false) {
            0x1a2b_3c4d => false,
            0x4d3c_2b1a => true,
            other => {
                return Err(self.damaged(format!("byte-order magic {other:#010x} in a section header")));
            }
        };
        let bytes = number(&self.window, self.start + 4, big_endian) as usize;
        if !(28..=BLOCK_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(4) {
            return Err(self.damaged(format!(
                "a section header of {bytes} bytes (28 to {BLOCK_BYTES_MAX}, a multiple of 4)"
            )));
        }
        self.demand(bytes, "a section header")?;
        match parse_sectionheaderblock(&self.window[self.start..self.start + bytes]) {
            Ok((_, section)) if section.major_version == 1 => {}
            Ok((_, section)) => {
                let version = section.major_version;
                return Err(self.damaged(format!("pcapng version {version} (1 is known)")));
            }
            Err(_) => return Err(self.damaged("a section header that cannot be read")),
        }
        self.format = Format::Ng { big_endian, interfaces: Vec::new() };
        self.start += bytes;
        Ok(())
    }

    fn describe_interface(&mut self, big_endian: bool, bytes: usize) -> Result<(), FrameError> {
        let block = &self.window[self.start..self.start + bytes];
        let parse =
            if big_endian { parse_interfacedescriptionblock_be } else { parse_interfacedescriptionblock_le };
        let Ok((_, described)) = parse(block) else {
            return Err(self.damaged("an interface description that cannot be read"));
        };
        let ticks_per_second = match described.if_tsresol {
            power if power & 0x80 == 0 => 10u64.checked_pow(u32::from(power)),
            power => 1u64.checked_shl(u32::from(power & 0x7f)),
        };
        let capturing = Capturing {
            snaplen: described.snaplen,
            ticks_per_second: ticks_per_second.unwrap_or(0),
            offset_seconds: time_offset(&described.options, big_endian),
            ethernet: described.linktype.0 == i32::from(ETHERNET),
        };
        let Format::Ng { interfaces, .. } = &mut self.format else {
            unreachable!("the format does not change while reading")
        };
        if interfaces.len() == INTERFACES_MAX {
            return Err(self.damaged(format!("more than {INTERFACES_MAX} interfaces in a section")));
        }
        interfaces.push(capturing);
        self.start += bytes;
        Ok(())
    }

    /// Passes over a block of any length in steps of the window.
    fn skip(&mut self, bytes: usize) -> Result<(), FrameError> {
        let mut left = bytes;
        while left > 0 {
            let have = self.ensure(1)?.min(left);
            if have == 0 {
                return Err(self.cut_off(bytes, bytes - left, "a block"));
            }
            self.start += have;
            left -= have;
        }
        Ok(())
    }
}

#[cold]
fn unreadable(path: &Path, offset: u64) -> FrameError {
    FrameError::Capture { path: path.into(), offset, problem: "a packet block that cannot be read".into() }
}

/// Seconds to add to each time stamp. `pcap-parser` 0.17 reads this option as little endian always.
fn time_offset(options: &[PcapNGOption<'_>], big_endian: bool) -> i64 {
    options
        .iter()
        .find(|option| option.code == OptionCode::IfTsoffset)
        .and_then(|option| <[u8; 8]>::try_from(option.as_bytes().ok()?).ok())
        .map_or(0, |bytes| if big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) })
}
