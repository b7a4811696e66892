//! The Internet checksum: whole, in pieces, incremental, completed from a partial sum.
//! Sources: RFC 1071 (the sum and its byte-order independence), RFC 1624 (incremental update).
//!
//! The sum of 16-bit words with end-around carry does not depend on the byte order in which the words are read, up to one
//! swap at the end, and words of 64 bits may be summed just as well. [`Sum`] therefore adds eight bytes at a time as they
//! lie in memory and folds to 16 bits only when asked.
//!
//! Numbers that go in and out (`u16`) are in host order, as a header's field reads.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::{Add, Sub};

use crate::{IpProtocol, Layer, WireError};

/// A running ones'-complement sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

/// Adds with end-around carry.
#[inline(always)]
const fn add_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// Subtracts with end-around borrow.
#[inline(always)]
const fn subtract(a: u16, b: u16) -> u16 {
    let (less, borrow) = a.overflowing_sub(b);
    less - borrow as u16
}

impl Sum {
    /// Nothing summed yet.
    pub const ZERO: Sum = Sum(0);

    /// The sum of `bytes`; an odd last byte counts as if a zero followed.
    #[inline]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Sum {
        Sum(sum_bytes(bytes))
    }

    /// By how much a sum changes when bytes at an even offset do, of equal length: the new ones less the old ones.
    ///
    /// # Panics
    /// In debug builds, if the lengths differ.
    #[inline]
    #[must_use]
    pub fn of_change(old: &[u8], new: &[u8]) -> Sum {
        debug_assert_eq!(old.len(), new.len());
        // In as many bits as there are: the compiler sees that nothing is above them to fold.
        if let (Ok(old), Ok(new)) = (<[u8; 4]>::try_from(old), <[u8; 4]>::try_from(new)) {
            let (less, borrow) = u32::from_ne_bytes(new).overflowing_sub(u32::from_ne_bytes(old));
            return Sum((less - u32::from(borrow)).into());
        }
        if let (Ok(old), Ok(new)) = (<[u8; 2]>::try_from(old), <[u8; 2]>::try_from(new)) {
            return Sum(subtract(u16::from_ne_bytes(new), u16::from_ne_bytes(old)).into());
        }
        Sum::of(new) - Sum::of(old)
    }

    /// Adds bytes that start at an even offset of what is summed.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Sum {
        self + Sum::of(bytes)
    }

    /// Adds bytes that start at `offset` of what is summed: for data in pieces of any length, as an mbuf chain.
    #[inline]
    #[must_use]
    pub fn add_bytes_at(self, offset: usize, bytes: &[u8]) -> Sum {
        let piece = Sum::of(bytes);
        if offset.is_multiple_of(2) {
            self + piece
        } else {
            self + Sum(u64::from(piece.fold_raw().swap_bytes()))
        }
    }

    /// Adds one field.
    #[inline]
    #[must_use]
    pub const fn add_word(self, word: u16) -> Sum {
        Sum(add_carry(self.0, word.to_be() as u64))
    }

    /// Folded to 16 bits, still in memory order.
    #[inline]
    const fn fold_raw(self) -> u16 {
        let (s, carry) = (self.0 as u32).overflowing_add((self.0 >> 32) as u32);
        let s = s + carry as u32;
        let (s, carry) = (s as u16).overflowing_add((s >> 16) as u16);
        s + carry as u16
    }

    /// The checksum that was `checksum` before what it covers changed by this much ([`of_change`](Self::of_change)): RFC 1624,
    /// equation 3, of which `!(!checksum + change)` is `checksum - change` in every bit.
    #[inline]
    #[must_use]
    pub const fn update(self, checksum: u16) -> u16 {
        u16::from_be(subtract(checksum.to_be(), self.fold_raw()))
    }

    /// The sum in 16 bits, not complemented: what a partial checksum field holds.
    #[inline]
    #[must_use]
    pub const fn fold(self) -> u16 {
        u16::from_be(self.fold_raw())
    }

    /// The checksum: the complement of the sum.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// The checksum as UDP sends it: 0 means "none" there, so its other form 0xffff stands in.
    #[inline]
    #[must_use]
    pub const fn checksum_udp(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            sum => sum,
        }
    }

    /// Whether data that holds its own checksum sums up as it must.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.fold_raw() == 0xffff
    }
}

impl Add for Sum {
    type Output = Sum;

    #[inline]
    fn add(self, other: Sum) -> Sum {
        Sum(add_carry(self.0, other.0))
    }
}

impl Sub for Sum {
    type Output = Sum;

    /// The complement of a sum is its negative, in 64 bits as in 16: no need to fold it before.
    #[inline]
    fn sub(self, other: Sum) -> Sum {
        Sum(add_carry(self.0, !other.0))
    }
}

/// From here on the vector sum pays.
const LONG: usize = 192;

/// The 64-bit ones'-complement sum of `bytes` as they lie in memory.
#[inline]
fn sum_bytes(bytes: &[u8]) -> u64 {
    if bytes.len() >= LONG {
        let (sum, rest) = simd::sum_blocks(bytes);
        return add_carry(sum, sum_short(rest));
    }
    sum_short(bytes)
}

#[inline(always)]
fn sum_short(bytes: &[u8]) -> u64 {
    let Some(last) = bytes.last_chunk::<8>() else { return sum_few(bytes) };
    let (words, rest) = bytes.as_chunks::<8>();
    // What is no whole word is the end of the last eight bytes: shifted, it stands as if zeros followed.
    let mut sum = u64::from_le_bytes(*last).unbounded_shr(64 - 8 * rest.len() as u32).to_le();
    let (lines, words) = words.as_chunks::<8>();
    for line in lines {
        sum = sum_words(sum, line);
    }
    let (four, words) = words.as_chunks::<4>();
    if let [four] = four {
        sum = sum_words(sum, four);
    }
    let (two, words) = words.as_chunks::<2>();
    if let [two] = two {
        sum = sum_words(sum, two);
    }
    if let [one] = words {
        sum = sum_words(sum, &[*one]);
    }
    sum
}

/// Adds so many words in one run, each with the carry of the one before.
#[inline(always)]
fn sum_words<const COUNT: usize>(sum: u64, words: &[[u8; 8]; COUNT]) -> u64 {
    let (mut sum, mut carry) = (sum, false);
    for word in words {
        (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
    }
    add_carry(sum, carry.into())
}

/// The same for under eight bytes.
#[inline]
fn sum_few(bytes: &[u8]) -> u64 {
    let (mut sum, mut rest) = (0, bytes);
    if let Some((word, behind)) = rest.split_first_chunk::<4>() {
        sum += u64::from(u32::from_ne_bytes(*word));
        rest = behind;
    }
    if let Some((word, behind)) = rest.split_first_chunk::<2>() {
        sum += u64::from(u16::from_ne_bytes(*word));
        rest = behind;
    }
    if let [last] = rest {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    sum
}

/// The checksum of `bytes`. Over a header whose checksum field is zero, it is what the field must hold.
#[inline]
#[must_use]
pub fn of(bytes: &[u8]) -> u16 {
    Sum::of(bytes).checksum()
}

/// The sum of the IPv4 pseudo-header of TCP and UDP; `bytes` counts header and payload of that layer.
#[inline]
#[must_use]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, bytes: u16) -> Sum {
    let addresses = u64::from(u32::from_ne_bytes(src.octets())) + u64::from(u32::from_ne_bytes(dst.octets()));
    Sum(addresses).add_word(protocol.0.into()).add_word(bytes)
}

/// The sum of the IPv6 pseudo-header of TCP, UDP and ICMPv6; `bytes` counts header and payload of that layer, and
/// `protocol` is what stands behind all extension headers. Source: RFC 8200, section 8.1.
#[inline]
#[must_use]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, bytes: u32) -> Sum {
    Sum::of(&src.octets())
        .add_bytes(&dst.octets())
        .add_bytes(&bytes.to_be_bytes())
        .add_word(protocol.0.into())
}

/// The checksum after one 16-bit field changed from `old` to `new` (RFC 1624, equation 3).
#[inline]
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = !checksum as u32 + !old as u32 + new as u32;
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    !(sum as u16)
}

/// The checksum after bytes at an even offset changed from `old` to `new`, of equal length: addresses, ports.
///
/// Only for a field that holds a whole checksum and in which 0 is a checksum like any other: IPv4's header, TCP, ICMP. A TCP or
/// UDP field of a packet on its way from a local sender holds something else, and UDP gives 0 a meaning: [`TransportSum`] knows.
///
/// # Panics
/// In debug builds, if the lengths differ.
#[inline]
#[must_use]
pub fn update_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    Sum::of_change(old, new).update(checksum)
}

/// Completes a partial checksum, as a frame from or for the kernel with `VIRTIO_NET_HDR_F_NEEDS_CSUM` carries it.
///
/// The field at `start + offset` holds the folded sum of the pseudo-header. The checksum runs from `start` to the end of
/// `frame` and replaces it; a result of 0 is written as 0xffff, which is right for TCP and needed for UDP. Source: virtio
/// 1.2, section 5.1.6.2; Linux `skb_checksum_help`.
///
/// # Errors
/// The field lies outside the frame, or before `start`'s end.
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> Result<(), WireError> {
    let given = frame.len();
    let end = start.saturating_add(offset).saturating_add(2);
    if end > given {
        return Err(WireError::truncated(Layer::Frame, end, given));
    }
    let checksum = Sum::of(&frame[start..]).checksum_udp();
    frame[end - 2..end].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

mod crc32c;
mod simd;
mod transport;

pub use crc32c::{SCTP_CHECKSUM_AT, complete_crc32c, crc32c, is_sctp};
pub use transport::TransportSum;

#[cfg(test)]
mod tests;
