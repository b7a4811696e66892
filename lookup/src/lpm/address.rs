//! Addresses that routes are found by.

use std::fmt::Debug;
use std::hash::Hash;
use std::net::IpAddr;

/// An address as a number: `u32` for IPv4, `u128` for IPv6, both in host order. No other type can be one.
pub trait Address: sealed::Sealed + Copy + Ord + Hash + Debug + Send + Sync + 'static {
    /// Bits of an address.
    const BITS: u32;
}

pub(crate) mod sealed {
    use super::IpAddr;

    pub trait Sealed: Sized {
        const ZERO: Self;
        /// The `count` bits, at most 24, that stand behind the first `skip`.
        fn field(self, skip: u32, count: u32) -> usize;
        /// The first address that has the first `length` bits.
        fn first(self, length: u32) -> Self;
        fn ip(self) -> IpAddr;
    }
}

macro_rules! address {
    ($type:ty, $ip:ident) => {
        impl Address for $type {
            const BITS: u32 = <$type>::BITS;
        }

        impl sealed::Sealed for $type {
            const ZERO: Self = 0;

            #[inline(always)]
            fn field(self, skip: u32, count: u32) -> usize {
                (self >> (<$type>::BITS - skip - count)) as usize & ((1 << count) - 1)
            }

            #[inline]
            fn first(self, length: u32) -> Self {
                self & !<$type>::MAX.unbounded_shr(length)
            }

            fn ip(self) -> IpAddr {
                std::net::$ip::from(self).into()
            }
        }
    };
}

address!(u32, Ipv4Addr);
address!(u128, Ipv6Addr);
