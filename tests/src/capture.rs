//! Capture files made and read by hand: nothing of the project's own is on the other side.

/// A capture file of frames, microseconds, Ethernet. Source: the-tcpdump-group/libpcap `pcap/pcap.h`.
#[must_use]
pub fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let words =
        |bytes: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    words(&mut bytes, &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for frame in frames {
        words(&mut bytes, &[0, 0, frame.len() as u32, frame.len() as u32]);
        bytes.extend(frame);
    }
    bytes
}

/// The frames of a capture file that was written on this machine.
///
/// # Panics
/// When the file ends inside a frame.
#[must_use]
pub fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().expect("4 bytes")) as usize;
        frames.push(rest[16..16 + length].to_vec());
        rest = &rest[16 + length..];
    }
    frames
}
