//! The fields of pattern items, by testpmd's names (`app/test-pmd/cmdline_flow.c`).

use std::net::{Ipv4Addr, Ipv6Addr};

use pollux_port::MacAddress;
use pollux_port::flow::{EthFields, Ipv4Fields, Ipv6Fields, TcpFields, UdpFields, VlanFields};

use crate::grammar::number;

/// What is wrong with a value.
pub(super) type Wrong = String;

/// A header whose fields are set by name.
pub(super) trait Named: Copy + Default {
    /// The fields' names.
    const NAMES: &'static [&'static str];

    /// Sets a field to a value.
    fn set(&mut self, field: &str, value: &str) -> Result<(), Wrong>;

    /// Sets the bits of a field that count to its first `bits`, or to all.
    fn set_prefix(&mut self, field: &str, bits: Option<u32>) -> Result<(), Wrong>;
}

/// A type of field.
trait Value: Sized {
    fn read(text: &str) -> Option<Self>;
    fn prefix(bits: Option<u32>) -> Option<Self>;
    const WHAT: &'static str;
}

macro_rules! number_value {
    ($($type:ty, $what:literal;)*) => {$(
        impl Value for $type {
            fn read(text: &str) -> Option<Self> {
                number(text).and_then(|number| number.try_into().ok())
            }

            fn prefix(bits: Option<u32>) -> Option<Self> {
                let bits = bits.unwrap_or(Self::BITS);
                if bits > Self::BITS { return None }
                Some(if bits == 0 { 0 } else { Self::MAX << (Self::BITS - bits) })
            }

            const WHAT: &'static str = $what;
        }
    )*};
}
number_value! {
    u8, "a number below 256";
    u16, "a number below 65536";
    u32, "a number of 32 bits";
}

impl Value for MacAddress {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn prefix(bits: Option<u32>) -> Option<Self> {
        let bits = bits.unwrap_or(48);
        let mask = if bits == 0 { 0 } else { u64::MAX.checked_shl(64 - bits)? };
        let [a, b, c, d, e, f, ..] = mask.to_be_bytes();
        (bits <= 48).then_some(Self([a, b, c, d, e, f]))
    }

    const WHAT: &'static str = "an address such as 02:00:00:00:00:01";
}

impl Value for Ipv4Addr {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn prefix(bits: Option<u32>) -> Option<Self> {
        u32::prefix(bits).map(Self::from_bits)
    }

    const WHAT: &'static str = "an IPv4 address";
}

impl Value for Ipv6Addr {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn prefix(bits: Option<u32>) -> Option<Self> {
        let bits = bits.unwrap_or(128);
        let mask = if bits == 0 { 0 } else { u128::MAX.checked_shl(128_u32.checked_sub(bits)?)? };
        Some(Self::from_bits(mask))
    }

    const WHAT: &'static str = "an IPv6 address";
}

/// Sets a whole field.
fn put<T: Value>(to: &mut T, field: &str, value: Option<T>) -> Result<(), Wrong> {
    *to = value.ok_or_else(|| format!("{field}: expected {}", T::WHAT))?;
    Ok(())
}

macro_rules! named {
    ($fields:ident: $($name:literal => $field:ident,)*) => {
        impl Named for $fields {
            const NAMES: &'static [&'static str] = &[$($name,)*];

            fn set(&mut self, field: &str, value: &str) -> Result<(), Wrong> {
                match field {
                    $($name => put(&mut self.$field, field, Value::read(value)),)*
                    _ => Err(format!("{field}: no such field")),
                }
            }

            fn set_prefix(&mut self, field: &str, bits: Option<u32>) -> Result<(), Wrong> {
                match field {
                    $($name => put(&mut self.$field, field, Value::prefix(bits)),)*
                    _ => Err(format!("{field}: no such field")),
                }
            }
        }
    };
}
named!(EthFields: "dst" => dst, "src" => src, "type" => ether_type,);
named!(Ipv4Fields: "tos" => tos, "ttl" => ttl, "proto" => protocol, "src" => src, "dst" => dst,);
named!(Ipv6Fields: "tc" => traffic_class, "proto" => next_header, "hop" => hop_limit, "src" => src, "dst" => dst, "flow" => flow_label,);
named!(TcpFields: "src" => src, "dst" => dst, "flags" => flags,);
named!(UdpFields: "src" => src, "dst" => dst,);

/// Parts of the tag's 16 bits have names of their own.
impl Named for VlanFields {
    const NAMES: &'static [&'static str] = &["tci", "pcp", "dei", "vid", "inner_type"];

    fn set(&mut self, field: &str, value: &str) -> Result<(), Wrong> {
        let part = |bits: u32, shift: u32, tci: &mut u16| {
            let value = u16::read(value).filter(|value| u32::from(*value) < 1 << bits);
            let value = value.ok_or_else(|| format!("{field}: expected a number of {bits} bits"))?;
            let mask = (((1_u32 << bits) - 1) << shift) as u16;
            *tci = *tci & !mask | value << shift;
            Ok(())
        };
        match field {
            "tci" => put(&mut self.tci, field, Value::read(value)),
            "pcp" => part(3, 13, &mut self.tci),
            "dei" => part(1, 12, &mut self.tci),
            "vid" => part(12, 0, &mut self.tci),
            "inner_type" => put(&mut self.inner_type, field, Value::read(value)),
            _ => Err(format!("{field}: no such field")),
        }
    }

    fn set_prefix(&mut self, field: &str, bits: Option<u32>) -> Result<(), Wrong> {
        let mut part = |width: u32, shift: u32| {
            let bits = bits.unwrap_or(width);
            if bits > width {
                return Err(format!("{field}: expected at most {width} bits"));
            }
            let ones = if bits == 0 { 0 } else { ((1_u32 << bits) - 1) << (width - bits) };
            self.tci |= (ones << shift) as u16;
            Ok(())
        };
        match field {
            "tci" => part(16, 0),
            "pcp" => part(3, 13),
            "dei" => part(1, 12),
            "vid" => part(12, 0),
            "inner_type" => put(&mut self.inner_type, field, Value::prefix(bits)),
            _ => Err(format!("{field}: no such field")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_masks() {
        assert_eq!(Ipv4Addr::prefix(Some(24)), Some([255, 255, 255, 0].into()));
        assert_eq!((Ipv4Addr::prefix(Some(0)), Ipv4Addr::prefix(Some(33))), (Some([0; 4].into()), None));
        assert_eq!(Ipv6Addr::prefix(Some(64)), Some(Ipv6Addr::from_bits(u128::MAX << 64)));
        assert_eq!(
            (Ipv6Addr::prefix(None), Ipv6Addr::prefix(Some(129))),
            (Some(Ipv6Addr::from_bits(u128::MAX)), None)
        );
        assert_eq!(MacAddress::prefix(Some(24)), Some(MacAddress([255, 255, 255, 0, 0, 0])));
        assert_eq!(
            (MacAddress::prefix(Some(0)), MacAddress::prefix(Some(49))),
            (Some(MacAddress([0; 6])), None)
        );
        assert_eq!(
            (u8::prefix(Some(8)), u8::prefix(Some(9)), u16::prefix(None)),
            (Some(255), None, Some(0xffff))
        );
    }

    #[test]
    fn parts_of_a_tag_have_names() {
        let mut tag = VlanFields::default();
        for (field, value) in [("pcp", "5"), ("vid", "100"), ("dei", "1"), ("inner_type", "0x800")] {
            tag.set(field, value).expect(field);
        }
        assert_eq!((tag.tci, tag.inner_type), (5 << 13 | 1 << 12 | 100, 0x800));
        tag.set("vid", "4096").expect_err("13 bits");
        let mut mask = VlanFields::default();
        mask.set_prefix("vid", None).expect("all of it");
        mask.set_prefix("pcp", Some(1)).expect("the highest");
        assert_eq!(mask.tci, 0x8fff);
    }
}
