//! The Toeplitz hash, by which a NIC spreads flows over its queues (RSS).
//! Source: Microsoft, "RSS hashing functions" and "Verifying the RSS hash calculation".
//!
//! Each set bit of the input, from the left, adds (exclusive or) the 32 bits of the key that begin at the bit's position.
//! The hash is linear, so [`Toeplitz`] holds, for each half-byte of the input, the hash of its sixteen values: two loads a
//! byte from 4.5 KiB, which stay in the first-level cache.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::WireError;

/// The key of Microsoft's verification suite, which many drivers use as their default.
pub const DEFAULT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A key of period 16 bits: both directions of a flow get one hash, since swapping addresses and ports changes nothing.
/// Source: Woo and Park, "Scalable TCP session monitoring with symmetric receive-side scaling", 2012.
pub const SYMMETRIC_KEY: [u8; 40] = {
    let mut key = [0; 40];
    let mut at = 0;
    while at < 40 {
        key[at] = 0x6d;
        key[at + 1] = 0x5a;
        at += 2;
    }
    key
};

/// Fewest bytes of a key: 32 bits more than the longest standard input, two IPv6 addresses and two ports.
pub const KEY_BYTES_MIN: usize = 40;
/// Most bytes of a key; 52 is what Intel's and Mellanox's larger keys have.
pub const KEY_BYTES_MAX: usize = 52;

/// The hash straight from the definition, bit by bit. For set-up and as the fast form's witness.
///
/// Input bits that lie so far right that fewer than 32 bits of key remain see zeros there.
#[must_use]
pub fn hash(key: &[u8], input: &[u8]) -> u32 {
    let byte = |at: usize| key.get(at).copied().unwrap_or(0);
    let mut result = 0;
    for (at, &value) in input.iter().enumerate() {
        let window =
            u64::from_be_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3), byte(at + 4), 0, 0, 0]);
        for bit in 0..8 {
            if value & (0x80 >> bit) != 0 {
                result ^= (window << bit >> 32) as u32;
            }
        }
    }
    result
}

/// A key made ready for fast hashing.
#[derive(Clone, Debug)]
pub struct Toeplitz {
    /// Two tables for each byte of input: the left half's, then the right half's.
    tables: Box<[[[u32; 16]; 2]]>,
}

impl Toeplitz {
    /// Prepares `key`.
    ///
    /// # Errors
    /// The key has fewer than [`KEY_BYTES_MIN`] or more than [`KEY_BYTES_MAX`] bytes.
    pub fn new(key: &[u8]) -> Result<Self, WireError> {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(WireError::KeyLength { given: key.len(), min: KEY_BYTES_MIN, max: KEY_BYTES_MAX });
        }
        let half = |at: usize, shift: u8| -> [u32; 16] {
            std::array::from_fn(|value| hash(&key[at..], &[(value as u8) << shift]))
        };
        Ok(Toeplitz { tables: (0..key.len() - 4).map(|at| [half(at, 4), half(at, 0)]).collect() })
    }

    /// Bytes of input that the key covers: its length less 4.
    #[must_use]
    pub fn input_bytes_max(&self) -> usize {
        self.tables.len()
    }

    /// The hash of `input`. Bytes past [`Toeplitz::input_bytes_max`] do not count. Hot: two loads a byte.
    #[inline]
    #[must_use]
    #[doc(alias = "rte_softrss")]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let halves = |byte: u8, [left, right]: &[[u32; 16]; 2]| {
            left[usize::from(byte >> 4)] ^ right[usize::from(byte & 15)]
        };
        // Standard inputs are whole words; what is left of another follows.
        let (words, tables) = (input.as_chunks::<4>().0, self.tables.as_chunks::<4>().0);
        let mut result = 0;
        for ([a, b, c, d], [at, bt, ct, dt]) in words.iter().zip(tables) {
            result ^= halves(*a, at) ^ halves(*b, bt) ^ halves(*c, ct) ^ halves(*d, dt);
        }
        let done = words.len().min(tables.len()) * 4;
        for (byte, table) in input.iter().zip(&self.tables).skip(done) {
            result ^= halves(*byte, table);
        }
        result
    }
}

/// The input for IPv4 with ports; its first 8 bytes are the input without.
#[inline]
#[must_use]
pub fn input_v4(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> [u8; 12] {
    let mut input = [0; 12];
    input[..4].copy_from_slice(&src.octets());
    input[4..8].copy_from_slice(&dst.octets());
    input[8..10].copy_from_slice(&src_port.to_be_bytes());
    input[10..].copy_from_slice(&dst_port.to_be_bytes());
    input
}

/// The input for IPv6 with ports; its first 32 bytes are the input without.
#[inline]
#[must_use]
pub fn input_v6(src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> [u8; 36] {
    let mut input = [0; 36];
    input[..16].copy_from_slice(&src.octets());
    input[16..32].copy_from_slice(&dst.octets());
    input[32..34].copy_from_slice(&src_port.to_be_bytes());
    input[34..].copy_from_slice(&dst_port.to_be_bytes());
    input
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// (destination, port, source, port, hash of addresses, hash with ports), as published.
    const V4: [(&str, u16, &str, u16, u32, u32); 5] = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
    ];
    const V6: [(&str, u16, &str, u16, u32, u32); 3] = [
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
        (
            "fe80::200:f8ff:fe21:67cf",
            38024,
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    #[test]
    fn published_vectors() {
        let fast = Toeplitz::new(&DEFAULT_KEY).unwrap();
        let check = |input: &[u8], expected: u32| {
            assert_eq!(hash(&DEFAULT_KEY, input), expected);
            assert_eq!(fast.hash(input), expected);
        };
        for (dst, dst_port, src, src_port, addresses, ports) in V4 {
            let input = input_v4(src.parse().unwrap(), dst.parse().unwrap(), src_port, dst_port);
            check(&input[..8], addresses);
            check(&input, ports);
        }
        for (dst, dst_port, src, src_port, addresses, ports) in V6 {
            let input = input_v6(src.parse().unwrap(), dst.parse().unwrap(), src_port, dst_port);
            check(&input[..32], addresses);
            check(&input, ports);
        }
    }

    #[test]
    fn keys_of_other_lengths_are_refused() {
        assert_eq!(
            Toeplitz::new(&[0; 39]).unwrap_err().to_string(),
            "Toeplitz key has 39 bytes, allowed is 40 to 52"
        );
        assert!(Toeplitz::new(&[0; 53]).is_err());
        assert_eq!(Toeplitz::new(&[1; 52]).unwrap().input_bytes_max(), 48);
    }

    proptest! {
        #[test]
        fn fast_equals_definition(
            key in prop::collection::vec(any::<u8>(), 40..=52), input in prop::collection::vec(any::<u8>(), 0..=60),
        ) {
            let fast = Toeplitz::new(&key).unwrap();
            let counted = &input[..input.len().min(fast.input_bytes_max())];
            prop_assert_eq!(fast.hash(&input), hash(&key, counted));
        }

        #[test]
        fn the_symmetric_key_ignores_direction(a in any::<u32>(), b in any::<u32>(), p in any::<u16>(), q in any::<u16>()) {
            let fast = Toeplitz::new(&SYMMETRIC_KEY).unwrap();
            let there = fast.hash(&input_v4(a.into(), b.into(), p, q));
            prop_assert_eq!(there, fast.hash(&input_v4(b.into(), a.into(), q, p)));
        }
    }
}
