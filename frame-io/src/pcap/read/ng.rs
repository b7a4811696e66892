//! Blocks of a pcapng file. Source: IETF draft-ietf-opsawg-pcapng; the obsolete Packet Block: its appendix.

use pcap_parser::pcapng::{
    parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le, parse_sectionheaderblock,
};
use pcap_parser::{OptionCode, PcapNGOption};

use super::{Format, PcapFrame, PcapReader, number};
use crate::FrameError;
use crate::pcap::{ETHERNET, FRAME_BYTES_MAX, Timestamp};

/// A block that is parsed (not skipped) may be so long: a frame, its header and options.
const BLOCK_BYTES_MAX: usize = FRAME_BYTES_MAX + 64 * 1024;
/// More interfaces than this in one section is not a capture but an attack on memory.
const INTERFACES_MAX: usize = 65_536;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// What the blocks so far say of those to come.
#[derive(Debug, Default)]
pub(super) struct Section {
    big_endian: bool,
    interfaces: Vec<Capturing>,
    /// The block that is being passed over.
    skipping: Option<Skipping>,
}

#[derive(Clone, Copy, Debug)]
struct Skipping {
    offset: u64,
    bytes: usize,
    left: usize,
}

/// What one interface of a section says about its frames.
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
        Timestamp::from_nanos(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }

    /// Bytes that are kept of a frame of which only the length on the wire is told.
    fn kept(&self, wire_bytes: u32) -> u32 {
        if self.snaplen == 0 { wire_bytes } else { wire_bytes.min(self.snaplen) }
    }
}

pub(super) fn is_section(bytes: &[u8]) -> bool {
    // The type reads the same in both byte orders.
    number(bytes, 0, false) == SECTION_HEADER
}

/// The byte order that a section header's magic stands for.
fn byte_order(magic: u32) -> Option<bool> {
    match magic {
        0x1a2b_3c4d => Some(false),
        0x4d3c_2b1a => Some(true),
        _ => None,
    }
}

/// Bytes of the section header that begins here, of which 12 are there. As many if it makes no sense, which is told when it is
/// taken apart.
pub(super) fn section_bytes(bytes: &[u8]) -> usize {
    let told = byte_order(number(bytes, 8, false)).map(|big_endian| number(bytes, 4, big_endian) as usize);
    told.filter(|bytes| is_section_size(*bytes)).unwrap_or(12)
}

fn is_section_size(bytes: usize) -> bool {
    (28..=BLOCK_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(4)
}

impl PcapReader {
    fn section(&mut self) -> &mut Section {
        let Format::Ng(section) = &mut self.format else {
            unreachable!("the format does not change while reading")
        };
        section
    }

    pub(super) fn next_ng(&mut self) -> Result<Option<PcapFrame<'_>>, FrameError> {
        let Some((kind, bytes)) = self.skip_to_packet()? else { return Ok(None) };
        let big_endian = self.section().big_endian;
        // Bytes before the frame's own, those behind the padding being the block's length again.
        let (name, head_bytes) = match kind {
            PACKET => ("a packet block", 28),
            SIMPLE_PACKET => ("a simple packet block", 12),
            _ => ("an enhanced packet block", 28),
        };
        let least = head_bytes + 4;
        if bytes < least {
            return Err(self.damaged(format!("{name} of {bytes} bytes (at least {least})")));
        }
        let mut head = [0; 28];
        head[..head_bytes].copy_from_slice(&self.window.unread()[..head_bytes]);
        let field = |at| number(&head, at, big_endian);
        let interface = match kind {
            PACKET => {
                let both = [head[8], head[9]];
                u32::from(if big_endian { u16::from_be_bytes(both) } else { u16::from_le_bytes(both) })
            }
            SIMPLE_PACKET => 0,
            _ => field(8),
        };
        let interfaces = &self.section().interfaces;
        let Some(&capturing) = interfaces.get(interface as usize) else {
            let known = interfaces.len();
            return Err(self
                .damaged(format!("a frame of interface {interface}, but {known} interfaces are described")));
        };
        if !capturing.ethernet {
            return Err(self
                .damaged(format!("a frame of interface {interface}, whose link type is not Ethernet (1)")));
        }
        let (captured, wire_bytes, timestamp) = match kind {
            SIMPLE_PACKET => (capturing.kept(field(8)), field(8), Timestamp::default()),
            _ => (field(20), field(24).max(field(20)), capturing.time(field(12), field(16))),
        };
        let captured = captured as usize;
        if captured > FRAME_BYTES_MAX || captured.next_multiple_of(4) + least > bytes {
            return Err(self.damaged("a frame longer than its block or than 262144 bytes"));
        }
        self.frames += 1;
        let data = &self.window.take(bytes)[head_bytes..][..captured];
        Ok(Some(PcapFrame { data, wire_bytes, timestamp, interface }))
    }

    /// Takes in sections and interfaces and passes over what holds no frame. Returns kind and length of the packet
    /// block at the start of the window, all of which is there.
    fn skip_to_packet(&mut self) -> Result<Option<(u32, usize)>, FrameError> {
        loop {
            if !self.skip()? || !self.have(12)? {
                return Ok(None);
            }
            if is_section(self.window.unread()) {
                let bytes = section_bytes(self.window.unread());
                if !self.have(bytes)? {
                    return Ok(None);
                }
                self.begin_section()?;
                continue;
            }
            let big_endian = self.section().big_endian;
            let kind = number(self.window.unread(), 0, big_endian);
            let bytes = number(self.window.unread(), 4, big_endian) as usize;
            if bytes < 12 || !bytes.is_multiple_of(4) {
                return Err(self.damaged(format!("a block of {bytes} bytes (a multiple of 4, at least 12)")));
            }
            if !matches!(kind, ENHANCED_PACKET | SIMPLE_PACKET | PACKET | INTERFACE_DESCRIPTION) {
                let offset = self.window.offset();
                self.section().skipping = Some(Skipping { offset, bytes, left: bytes });
                continue;
            }
            if bytes > BLOCK_BYTES_MAX {
                return Err(self
                    .damaged(format!("a block of {bytes} bytes (at most {BLOCK_BYTES_MAX} for this kind)")));
            }
            if !self.have(bytes)? {
                return Ok(None);
            }
            if number(self.window.unread(), bytes - 4, big_endian) as usize != bytes {
                return Err(self.damaged("a block whose two lengths differ"));
            }
            if kind != INTERFACE_DESCRIPTION {
                return Ok(Some((kind, bytes)));
            }
            self.describe_interface(bytes)?;
        }
    }

    /// Takes the section header in that begins here, all of which is there unless its length makes no sense.
    pub(super) fn begin_section(&mut self) -> Result<(), FrameError> {
        // The byte order stands behind the length that needs it.
        let magic = number(self.window.unread(), 8, false);
        let Some(big_endian) = byte_order(magic) else {
            return Err(self.damaged(format!("byte-order magic {magic:#010x} in a section header")));
        };
        let bytes = number(self.window.unread(), 4, big_endian) as usize;
        if !is_section_size(bytes) {
            return Err(self.damaged(format!(
                "a section header of {bytes} bytes (28 to {BLOCK_BYTES_MAX}, a multiple of 4)"
            )));
        }
        match parse_sectionheaderblock(&self.window.unread()[..bytes]) {
            Ok((_, section)) if section.major_version == 1 => {}
            Ok((_, section)) => {
                let version = section.major_version;
                return Err(self.damaged(format!("pcapng version {version} (1 is known)")));
            }
            Err(_) => return Err(self.damaged("a section header that cannot be read")),
        }
        *self.section() = Section { big_endian, ..Section::default() };
        self.window.take(bytes);
        Ok(())
    }

    fn describe_interface(&mut self, bytes: usize) -> Result<(), FrameError> {
        let big_endian = self.section().big_endian;
        let block = &self.window.unread()[..bytes];
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
        if self.section().interfaces.len() == INTERFACES_MAX {
            return Err(self.damaged(format!("more than {INTERFACES_MAX} interfaces in a section")));
        }
        self.section().interfaces.push(capturing);
        self.window.take(bytes);
        Ok(())
    }

    /// Passes over a block of any length in steps of the window; whether that is done.
    fn skip(&mut self) -> Result<bool, FrameError> {
        while let Some(Skipping { offset, bytes, left }) = self.section().skipping {
            let present = self.ensure(1)?.min(left);
            if present == 0 {
                self.missing((bytes - left) as u64, bytes as u64, offset);
                return Ok(false);
            }
            self.window.take(present);
            let left = left - present;
            self.section().skipping = (left > 0).then_some(Skipping { offset, bytes, left });
        }
        Ok(true)
    }
}

/// Seconds to add to each time stamp. `pcap-parser` 0.17 reads this option as little endian always.
fn time_offset(options: &[PcapNGOption<'_>], big_endian: bool) -> i64 {
    options
        .iter()
        .find(|option| option.code == OptionCode::IfTsoffset)
        .and_then(|option| <[u8; 8]>::try_from(option.as_bytes().ok()?).ok())
        .map_or(0, |bytes| if big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) })
}
