//! The bytes of headers and records.

use super::{LostFrames, PcapFormat};
use crate::FrameError;
use crate::pcap::{ETHERNET, FRAME_BYTES_MAX, Timestamp};

/// At most so many bytes stand around a frame: a block's head, its padding and its length.
pub(super) const HEAD_BYTES_MAX: usize = 28 + 3 + 4;

fn put_u16(buffer: &mut Vec<u8>, value: u16) {
    buffer.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(buffer: &mut Vec<u8>, value: u32) {
    buffer.extend_from_slice(&value.to_le_bytes());
}

/// The beginning of a file.
pub(super) fn put_header(format: PcapFormat, buffer: &mut Vec<u8>) {
    let snaplen = FRAME_BYTES_MAX as u32;
    match format {
        PcapFormat::Pcap => {
            put_u32(buffer, 0xa1b2_3c4d);
            put_u16(buffer, 2);
            put_u16(buffer, 4);
            put_u32(buffer, 0);
            put_u32(buffer, 0);
            put_u32(buffer, snaplen);
            put_u32(buffer, u32::from(ETHERNET));
        }
        PcapFormat::PcapNg => {
            // Section header, no options, length not known.
            put_u32(buffer, 0x0a0d_0d0a);
            put_u32(buffer, 28);
            put_u32(buffer, 0x1a2b_3c4d);
            put_u16(buffer, 1);
            put_u16(buffer, 0);
            buffer.extend_from_slice(&u64::MAX.to_le_bytes());
            put_u32(buffer, 28);
            // One interface; option 9, if_tsresol = 9: nanoseconds.
            put_u32(buffer, 1);
            put_u32(buffer, 32);
            put_u16(buffer, ETHERNET);
            put_u16(buffer, 0);
            put_u32(buffer, snaplen);
            put_u16(buffer, 9);
            put_u16(buffer, 1);
            put_u32(buffer, 9);
            put_u32(buffer, 0);
            put_u32(buffer, 32);
        }
    }
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
            let block = (bytes + padding + 32) as u32;
            let mut header = [0; 28];
            header[..4].copy_from_slice(&6u32.to_le_bytes());
            header[4..8].copy_from_slice(&block.to_le_bytes());
            // 8..12: interface 0.
            header[12..16].copy_from_slice(&((nanos >> 32) as u32).to_le_bytes());
            header[16..20].copy_from_slice(&(nanos as u32).to_le_bytes());
            header[20..24].copy_from_slice(&(bytes as u32).to_le_bytes());
            header[24..].copy_from_slice(&wire_bytes.to_le_bytes());
            buffer.extend_from_slice(&header);
            put_pieces(buffer, pieces);
            buffer.extend_from_slice(&[0; 4][..padding]);
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
            PcapFormat::Pcap => (16 + number(at + 8), number(at + 8)),
            PcapFormat::PcapNg => (number(at + 4).max(32), number(at + 20)),
        };
        at += record;
        if at <= put {
            whole = at;
        } else {
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
                put(format, &mut records, &[&vec![7; bytes]], bytes, 0, Timestamp::from_nanos(1));
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
