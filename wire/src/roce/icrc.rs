//! The invariant CRC: over all that does not change on the way, with what may change taken as ones.

use crc32fast::Hasher;

use super::Bth;

/// The CRC of a packet, in the order of the wire. `packet` begins with the IPv4 or IPv6 header and ends with the padding, in
/// front of the CRC; `udp` is where in it the UDP header begins. `None` where these are not in it.
///
/// Taken as ones are: 8 bytes in front of it all (where InfiniBand has its local header), IPv4's type of service, time to live
/// and checksum, IPv6's traffic class, flow label and hop limit, UDP's checksum, and the congestion bits of the BTH. Source:
/// InfiniBand Architecture Specification, volume 1, annex A17, section A17.3.3.
#[must_use]
pub fn icrc(packet: &[u8], udp: usize) -> Option<[u8; 4]> {
    const FIXED: usize = 60 + 8 + Bth::BYTES;
    let end = udp.checked_add(8 + Bth::BYTES)?;
    if end > FIXED {
        return None;
    }
    let mut head = [0; FIXED];
    let head = &mut head[..end];
    head.copy_from_slice(packet.get(..end)?);
    match head[0] >> 4 {
        4 if udp >= 20 => {
            head[1] = 0xff;
            head[8] = 0xff;
            head[10..12].fill(0xff);
        }
        6 if udp >= 40 => {
            head[0] |= 0x0f;
            head[1..4].fill(0xff);
            head[7] = 0xff;
        }
        _ => return None,
    }
    head[udp + 6..udp + 8].fill(0xff);
    head[udp + 12] = 0xff;
    let mut sum = Hasher::new();
    sum.update(&[0xff; 8]);
    sum.update(head);
    sum.update(&packet[end..]);
    Some(sum.finalize().to_le_bytes())
}
