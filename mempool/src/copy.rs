//! Copies of frames.

/// The least bytes that [`copy_frame`] moves in two pieces, and the most.
const HALF: usize = 32;
const LINE: usize = 64;

/// Copies a frame, the short ones without a call: one of 32 to 64 bytes, which most are in tests of packet rates, is two pieces that overlap.
/// No more than the shorter one of the two is copied. Hot: some ten instructions for such a frame, else `memcpy`.
#[inline(always)]
pub fn copy_frame(to: &mut [u8], from: &[u8]) {
    if to.len() == from.len() && (HALF..=LINE).contains(&to.len()) {
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<HALF>(), from.first_chunk::<HALF>()) {
            *to = *from;
        }
        if let (Some(to), Some(from)) = (to.last_chunk_mut::<HALF>(), from.last_chunk::<HALF>()) {
            *to = *from;
        }
        return;
    }
    let bytes = to.len().min(from.len());
    to[..bytes].copy_from_slice(&from[..bytes]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_lengths_are_copied_whole() {
        let bytes: Vec<u8> = (1..=200).collect();
        for length in 0..bytes.len() {
            for room in [length.saturating_sub(1), length, length + 1] {
                let mut to = vec![0; room];
                copy_frame(&mut to, &bytes[..length]);
                let copied = room.min(length);
                assert_eq!(to[..copied], bytes[..copied], "{length} into {room}");
                assert!(to[copied..].iter().all(|byte| *byte == 0), "{length} into {room}");
            }
        }
    }
}
