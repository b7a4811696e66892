//! Packet sequence numbers, which begin again at zero when they are through.

/// Sequence numbers have so many bits.
pub(crate) const PSN_MASK: u32 = 0xff_ffff;

/// From `from` to `to`, round the end of sequence numbers.
pub(crate) fn distance(from: u32, to: u32) -> i32 {
    (to.wrapping_sub(from) << 8) as i32 >> 8
}

/// `psn` and so many more.
pub(crate) fn after(psn: u32, more: u32) -> u32 {
    psn.wrapping_add(more) & PSN_MASK
}
