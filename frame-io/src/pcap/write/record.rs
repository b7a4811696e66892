//! The bytes of headers and records.

use super::{LostFrames, PcapFormat, PcapInterface, PcapPlace, PcapSection, PcapStatistics};
use crate::FrameError;
use crate::pcap::{ETHERNET, FRAME_BYTES_MAX, Timestamp};

/// At most so many bytes stand around a frame: a block's head, padding, the option of its direction, and its length.
pub(super) const HEAD_BYTES_MAX: usize = 28 + 3 + 12 + 4;

/// Bytes of a block of statistics.
pub(super) const STATISTICS_BYTES: usize = 20 + 6 * 12 + 4 + 4;

/// Block types. Source: the IETF draft draft-ietf-opsawg-pcapng, section 4.
const INTERFACE_BLOCK: u32 = 1;
const STATISTICS_BLOCK: u32 = 5;
const PACKET_BLOCK: u32 = 6;

fn put_u16(buffer: &mut Vec<u8>, value: u16) {
    buffer.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(buffer: &mut Vec<u8>, value: u32) {
    buffer.extend_from_slice(&value.to_le_bytes());
}

/// Puts a block: its type, what `body` puts, and its length on both sides of that.
fn put_block(buffer: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = buffer.len();
    put_u32(buffer, kind);
    put_u32(buffer, 0);
    body(buffer);
    let bytes = (buffer.len() - start + 4) as u32;
    buffer[start + 4..start + 8].copy_from_slice(&bytes.to_le_bytes());
    put_u32(buffer, bytes);
}

/// Puts one option, cut at the 65,535 bytes that an option may have.
fn put_option(buffer: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(u16::MAX.into())];
    put_u16(buffer, code);
    put_u16(buffer, value.len() as u16);
    buffer.extend_from_slice(value);
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

fn put_text(buffer: &mut Vec<u8>, code: u16, text: &str) {
    if !text.is_empty() {
        put_option(buffer, code, text.as_bytes());
    }
}

/// The beginning of a file.
pub(super) fn put_header(format: PcapFormat, section: &PcapSection, buffer: &mut Vec<u8>) {
    match format {
        PcapFormat::Pcap => {
            let snaplen = section.interfaces.iter().map(|interface| interface.snaplen).max();
            put_u32(buffer, 0xa1b2_3c4d);
            put_u16(buffer, 2);
            put_u16(buffer, 4);
            put_u32(buffer, 0);
            put_u32(buffer, 0);
            put_u32(buffer, snaplen.unwrap_or(FRAME_BYTES_MAX as u32));
            put_u32(buffer, u32::from(ETHERNET));
        }
        PcapFormat::PcapNg => {
            put_block(buffer, 0x0a0d_0d0a, |buffer| {
                put_u32(buffer, 0x1a2b_3c4d);
                put_u16(buffer, 1);
                put_u16(buffer, 0);
                // Length not known.
                buffer.extend_from_slice(&u64::MAX.to_le_bytes());
                let before = buffer.len();
                put_text(buffer, 1, &section.comment);
                put_text(buffer, 3, &section.os);
                put_text(buffer, 4, &section.application);
                if buffer.len() > before {
                    put_u32(buffer, 0);
                }
            });
            section.interfaces.iter().for_each(|interface| put_interface(interface, buffer));
        }
    }
}

fn put_interface(interface: &PcapInterface, buffer: &mut Vec<u8>) {
    put_block(buffer, INTERFACE_BLOCK, |buffer| {
        put_u16(buffer, ETHERNET);
        put_u16(buffer, 0);
        put_u32(buffer, interface.snaplen);
        put_text(buffer, 2, &interface.name);
        put_text(buffer, 3, &interface.description);
        if let Some(mac) = interface.mac {
            put_option(buffer, 6, &mac);
        }
        if let Some(speed) = interface.bits_per_second {
            put_option(buffer, 8, &speed.to_le_bytes());
        }
        // if_tsresol = 9: nanoseconds.
        put_option(buffer, 9, &[9]);
        if !interface.filter.is_empty() {
            // A string of libpcap.
            let filter = [&[0], interface.filter.as_bytes()].concat();
            put_option(buffer, 11, &filter);
        }
        put_u32(buffer, 0);
    });
}

/// What became of an interface's frames, [`STATISTICS_BYTES`] long.
pub(super) fn put_statistics(interface: u32, statistics: &PcapStatistics, buffer: &mut Vec<u8>) {
    let moment = |timestamp: Timestamp| {
        let nanos = timestamp.nanos();
        nanos.rotate_left(32).to_le_bytes()
    };
    put_block(buffer, STATISTICS_BLOCK, |buffer| {
        put_u32(buffer, interface);
        buffer.extend_from_slice(&moment(statistics.end));
        put_option(buffer, 2, &moment(statistics.start));
        put_option(buffer, 3, &moment(statistics.end));
        put_option(buffer, 4, &statistics.received.to_le_bytes());
        put_option(buffer, 5, &statistics.dropped.to_le_bytes());
        put_option(buffer, 6, &statistics.accepted.to_le_bytes());
        put_option(buffer, 8, &statistics.delivered.to_le_bytes());
        put_u32(buffer, 0);
    });
}

/// Whether the format has room for a frame.
#[inline]
pub(super) fn check(format: PcapFormat, bytes: usize, timestamp: Timestamp) -> Result<(), FrameError> {
    let seconds = timestamp.nanos() / 1_000_000_000;
    if bytes > FRAME_BYTES_MAX || (format == PcapFormat::Pcap && seconds > u64::from(u32::MAX)) {
        return Err(unfit(bytes, seconds));
    }
    Ok(())
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

/// A frame that [`check`] let pass; `bytes` is the length of its pieces.
#[inline]
pub(super) fn put(
    format: PcapFormat,
    buffer: &mut Vec<u8>,
    place: PcapPlace,
    pieces: &[&[u8]],
    bytes: usize,
    wire_bytes: usize,
    timestamp: Timestamp,
) {
    let nanos = timestamp.nanos();
    let wire_bytes = u32::try_from(wire_bytes.max(bytes)).unwrap_or(u32::MAX);
    match format {
        PcapFormat::Pcap => {
            let mut header = [0; 16];
            header[..4].copy_from_slice(&((nanos / 1_000_000_000) as u32).to_le_bytes());
            header[4..8].copy_from_slice(&((nanos % 1_000_000_000) as u32).to_le_bytes());
            header[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
            header[12..].copy_from_slice(&wire_bytes.to_le_bytes());
            buffer.extend_from_slice(&header);
            put_pieces(buffer, pieces);
        }
        PcapFormat::PcapNg => {
            let padding = bytes.next_multiple_of(4) - bytes;
            let flags = place.sent.map(|sent| if sent { 2u32 } else { 1 });
            let options = if flags.is_some() { 12 } else { 0 };
            let block = (bytes + padding + options + 32) as u32;
            let mut header = [0; 28];
            header[..4].copy_from_slice(&PACKET_BLOCK.to_le_bytes());
            header[4..8].copy_from_slice(&block.to_le_bytes());
            header[8..12].copy_from_slice(&place.interface.to_le_bytes());
            header[12..16].copy_from_slice(&((nanos >> 32) as u32).to_le_bytes());
            header[16..20].copy_from_slice(&(nanos as u32).to_le_bytes());
            header[20..24].copy_from_slice(&(bytes as u32).to_le_bytes());
            header[24..].copy_from_slice(&wire_bytes.to_le_bytes());
            buffer.extend_from_slice(&header);
            put_pieces(buffer, pieces);
            buffer.extend_from_slice(&[0; 4][..padding]);
            if let Some(flags) = flags {
                // Option 2, epb_flags; the end of the options.
                let mut option = [2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                option[4..8].copy_from_slice(&flags.to_le_bytes());
                buffer.extend_from_slice(&option);
            }
            put_u32(buffer, block);
        }
    }
}

#[inline]
fn put_pieces(buffer: &mut Vec<u8>, pieces: &[&[u8]]) {
    for piece in pieces {
        buffer.extend_from_slice(piece);
    }
}

/// Of records of which the first `put` bytes were written: the bytes of those that are whole, and what the others held.
pub(super) fn lost(format: PcapFormat, records: &[u8], put: usize) -> (usize, LostFrames) {
    let number = |at: usize| {
        let four = records.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        four.map_or(0, |four| u32::from_le_bytes(*four)) as usize
    };
    let (mut at, mut whole, mut lost) = (0, 0, LostFrames::default());
    while at < records.len() {
        let (record, frame) = match format {
            PcapFormat::Pcap => (16 + number(at + 8), Some(number(at + 8))),
            PcapFormat::PcapNg => {
                let is_frame = number(at) == PACKET_BLOCK as usize;
                (number(at + 4).max(32), is_frame.then(|| number(at + 20)))
            }
        };
        at += record;
        if at <= put {
            whole = at;
        } else if let Some(frame) = frame {
            lost.frames += 1;
            lost.bytes += frame as u64;
        }
    }
    (whole, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_in_part_is_lost() {
        for format in [PcapFormat::Pcap, PcapFormat::PcapNg] {
            let (mut records, mut ends) = (Vec::new(), vec![0]);
            for bytes in [5, 0, 1500] {
                let place = PcapPlace { interface: 1, sent: Some(true) };
                put(format, &mut records, place, &[&vec![7; bytes]], bytes, 0, Timestamp::from_nanos(1));
                ends.push(records.len());
            }
            for written in 0..=records.len() {
                let (whole, lost) = lost(format, &records, written);
                let count = ends.iter().rposition(|end| *end <= written).expect("0 is among them");
                assert_eq!(whole, ends[count]);
                let bytes = [5, 0, 1500][count..].iter().sum();
                assert_eq!(lost, LostFrames { frames: 3 - count as u64, bytes }, "{format:?} {written}");
            }
        }
    }
}
