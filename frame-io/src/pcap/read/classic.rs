//! Records of a pcap file.

use pcap_parser::parse_pcap_header;

use super::{PcapFrame, PcapReader, number};
use crate::FrameError;
use crate::pcap::{ETHERNET, FRAME_BYTES_MAX, Timestamp};

#[derive(Clone, Copy, Debug)]
pub(super) struct Classic {
    big_endian: bool,
    /// Bytes of a record's header. The "modified" format of some old kernels has eight more.
    head_bytes: usize,
    nanos_per_tick: u64,
}

/// Whether these are the first bytes of a pcap file. Source: the-tcpdump-group/libpcap `sf-pcap.c`.
pub(super) fn is_magic(bytes: &[u8]) -> bool {
    let known = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34];
    [false, true].into_iter().any(|big_endian| known.contains(&number(bytes, 0, big_endian)))
}

impl PcapReader {
    pub(super) fn read_classic_header(&mut self) -> Result<Classic, FrameError> {
        let parsed = parse_pcap_header(self.window.unread()).map(|(_, header)| header);
        let Ok(header) = parsed else { return Err(self.damaged("neither a pcap nor a pcapng file")) };
        if header.version_major != 2 {
            return Err(self.damaged(format!("pcap version {} (2 is known)", header.version_major)));
        }
        // The upper half of the field holds flags about the frame check sequence.
        let link_type = header.network.0 & 0xffff;
        if link_type != i32::from(ETHERNET) {
            return Err(self.damaged(format!("link type {link_type} (only 1, Ethernet, can be used)")));
        }
        self.window.take(header.size());
        Ok(Classic {
            big_endian: header.is_bigendian(),
            head_bytes: if header.is_modified_format() { 24 } else { 16 },
            nanos_per_tick: if header.is_nanosecond_precision() { 1 } else { 1000 },
        })
    }

    #[inline]
    pub(super) fn next_classic(&mut self, classic: Classic) -> Result<Option<PcapFrame<'_>>, FrameError> {
        let Classic { big_endian, head_bytes, nanos_per_tick } = classic;
        if !self.have(head_bytes)? {
            return Ok(None);
        }
        let field = |reader: &Self, at| number(reader.window.unread(), at, big_endian);
        let captured = field(self, 8) as usize;
        if captured > FRAME_BYTES_MAX {
            return Err(
                self.damaged(format!("a frame of {captured} bytes (at most {FRAME_BYTES_MAX} are possible)"))
            );
        }
        if !self.have(head_bytes + captured)? {
            return Ok(None);
        }
        let seconds = u64::from(field(self, 0));
        let nanos = seconds * 1_000_000_000 + u64::from(field(self, 4)) * nanos_per_tick;
        let wire_bytes = field(self, 12).max(captured as u32);
        self.frames += 1;
        Ok(Some(PcapFrame {
            data: &self.window.take(head_bytes + captured)[head_bytes..],
            wire_bytes,
            timestamp: Timestamp::from_nanos(nanos),
            interface: 0,
        }))
    }
}
