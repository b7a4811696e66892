//! The checksum of SCTP, which is no Internet checksum.

use crate::{IpProtocol, ip, vlan};

/// Where SCTP has its checksum in its header. Source: RFC 9260, section 3.1.
pub const SCTP_CHECKSUM_AT: usize = 8;

/// CRC32c of an SCTP packet, in pieces, whose checksum field is zero, as it stands in that field. Source: RFC 9260, appendix A.
///
/// ```
/// use pollux_wire::checksum::crc32c;
///
/// assert_eq!(crc32c([&b"1234"[..], b"56789"]), 0xe306_9283_u32.to_le_bytes());
/// ```
#[must_use]
pub fn crc32c<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> [u8; 4] {
    pieces.into_iter().fold(0, ::crc32c::crc32c_append).to_le_bytes()
}

/// Whether an open checksum, whose field stands `offset` bytes behind `start`, is that of an SCTP packet over IP: it is completed by
/// [`complete_crc32c`], not by [`complete`](super::complete). The kernel tells such a packet from others by a mark of its own that no
/// header carries. Source: Linux `include/linux/skbuff.h`, `csum_not_inet`.
#[must_use]
pub fn is_sctp(frame: &[u8], start: usize, offset: usize) -> bool {
    let Ok(behind) = vlan::skip_tags(frame) else { return false };
    let carried = ip::behind(frame, behind.offset, behind.ether_type);
    offset == SCTP_CHECKSUM_AT && carried == Some((start, IpProtocol::SCTP))
}

/// Completes the open checksum of an SCTP packet that begins at `start` and ends with `frame`. False when it does not fit.
#[must_use]
pub fn complete_crc32c(frame: &mut [u8], start: usize) -> bool {
    let Some(packet) = frame.get_mut(start..).filter(|packet| packet.len() >= SCTP_CHECKSUM_AT + 4) else {
        return false;
    };
    packet[SCTP_CHECKSUM_AT..SCTP_CHECKSUM_AT + 4].fill(0);
    let crc = crc32c([&*packet]);
    packet[SCTP_CHECKSUM_AT..SCTP_CHECKSUM_AT + 4].copy_from_slice(&crc);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_checksum_is_sctps_only_where_ip_says_so() {
        // IPv4, protocol 132; IPv6; and both behind a tag.
        let v4 = |protocol: u8| {
            let mut frame = vec![0; 14 + 20 + 32];
            frame[12..14].copy_from_slice(&[8, 0]);
            (frame[14], frame[23]) = (0x45, protocol);
            frame
        };
        let mut v6 = vec![0; 14 + 40 + 32];
        v6[12..14].copy_from_slice(&[0x86, 0xdd]);
        (v6[14], v6[20]) = (0x60, 132);
        assert!(is_sctp(&v4(132), 34, 8) && is_sctp(&v6, 54, 8));
        assert!(!is_sctp(&v4(17), 34, 8) && !is_sctp(&v4(132), 34, 6) && !is_sctp(&v6, 62, 8));
        let mut tagged = v4(132);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert!(is_sctp(&tagged, 38, 8) && !is_sctp(&tagged[..20], 38, 8));

        let mut frame = v4(132);
        frame[34..].copy_from_slice(&[7; 32]);
        assert!(complete_crc32c(&mut frame, 34));
        let written: [u8; 4] = frame[42..46].try_into().expect("four");
        let mut plain = frame[34..].to_vec();
        plain[8..12].fill(0);
        assert_eq!(written, crc32c([&*plain]));
        assert!(!complete_crc32c(&mut frame, 56) && !complete_crc32c(&mut frame, 999));
    }
}
