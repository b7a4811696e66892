//! The fields of pattern items, by testpmd's names (`app/test-pmd/cmdline_flow.c`).

use std::net::{Ipv4Addr, Ipv6Addr};

use pollux_port::MacAddress;
use pollux_port::flow::{
    EthFields, GreFields, GreKeyFields, Ipv4Fields, Ipv6Fields, MplsFields, TcpFields, UdpFields, VlanFields,
    VxlanFields,
};

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

/// Sets `width` bits of a field, the lowest of which is bit `shift`, and leaves the others.
fn put_bits<T: Word>(
    to: &mut T,
    field: &str,
    value: Option<u64>,
    (width, shift): (u32, u32),
) -> Result<(), Wrong> {
    let ones = (1_u64 << width) - 1;
    let value = value.filter(|value| *value <= ones);
    let value = value.ok_or_else(|| format!("{field}: expected a number of {width} bits"))?;
    to.change(|whole| whole & !(ones << shift) | value << shift);
    Ok(())
}

/// The first `bits` of `width` bits, or all.
fn first_bits(field: &str, bits: Option<u32>, width: u32) -> Result<u64, Wrong> {
    let bits = bits.unwrap_or(width);
    if bits > width {
        return Err(format!("{field}: expected at most {width} bits"));
    }
    Ok(((1_u64 << bits) - 1) << (width - bits))
}

/// A field whose bits have names of their own.
trait Word {
    fn change(&mut self, change: impl FnOnce(u64) -> u64);
}

macro_rules! word {
    ($($type:ty)*) => {$(
        impl Word for $type {
            fn change(&mut self, change: impl FnOnce(u64) -> u64) {
                // Bits stand where `named` says, all of them inside.
                *self = change((*self).into()) as Self;
            }
        }
    )*};
}
word!(u16 u32);

/// The value of a part of a field.
fn part(text: &str, width: u32) -> Option<u64> {
    match text {
        "yes" | "true" | "on" if width == 1 => Some(1),
        "no" | "false" | "off" if width == 1 => Some(0),
        _ => number(text),
    }
}

macro_rules! named {
    (@set $self:ident $name:ident $value:ident $field:ident) => {
        put(&mut $self.$field, $name, Value::read($value))
    };
    (@set $self:ident $name:ident $value:ident $field:ident $width:literal $shift:literal) => {
        put_bits(&mut $self.$field, $name, part($value, $width), ($width, $shift))
    };
    (@prefix $self:ident $name:ident $bits:ident $field:ident) => {
        put(&mut $self.$field, $name, Value::prefix($bits))
    };
    (@prefix $self:ident $name:ident $bits:ident $field:ident $width:literal $shift:literal) => {
        put_bits(&mut $self.$field, $name, Some(first_bits($name, $bits, $width)?), ($width, $shift))
    };
    // A name stands for a field, or for so many bits of it from the bit of that number on.
    ($fields:ident: $($name:literal => $field:ident $([$width:literal at $shift:literal])?,)*) => {
        impl Named for $fields {
            const NAMES: &'static [&'static str] = &[$($name,)*];

            fn set(&mut self, field: &str, value: &str) -> Result<(), Wrong> {
                match field {
                    $($name => named!(@set self field value $field $($width $shift)?),)*
                    _ => Err(format!("{field}: no such field")),
                }
            }

            fn set_prefix(&mut self, field: &str, bits: Option<u32>) -> Result<(), Wrong> {
                match field {
                    $($name => named!(@prefix self field bits $field $($width $shift)?),)*
                    _ => Err(format!("{field}: no such field")),
                }
            }
        }
    };
}
named!(EthFields: "dst" => dst, "src" => src, "type" => ether_type,);
named!(VlanFields: "tci" => tci, "pcp" => tci[3 at 13], "dei" => tci[1 at 12], "vid" => tci[12 at 0], "inner_type" => inner_type,);
named!(Ipv4Fields: "tos" => tos, "ttl" => ttl, "proto" => protocol, "src" => src, "dst" => dst,);
named!(Ipv6Fields: "tc" => traffic_class, "proto" => next_header, "hop" => hop_limit, "src" => src, "dst" => dst, "flow" => flow_label,);
named!(TcpFields: "src" => src, "dst" => dst, "flags" => flags,);
named!(UdpFields: "src" => src, "dst" => dst,);
named!(VxlanFields: "vni" => vni[24 at 0],);
named!(MplsFields: "label" => entry[20 at 12], "tc" => entry[3 at 9], "s" => entry[1 at 8], "ttl" => entry[8 at 0],);
named!(GreFields: "protocol" => protocol, "c_rsvd0_ver" => flags, "c_bit" => flags[1 at 15], "k_bit" => flags[1 at 13], "s_bit" => flags[1 at 12],);
named!(GreKeyFields: "value" => key,);

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

    #[test]
    fn parts_of_tunnels_headers_have_names() {
        let mut entry = MplsFields::default();
        for (field, value) in [("label", "0x12345"), ("tc", "5"), ("s", "1"), ("ttl", "64")] {
            entry.set(field, value).expect(field);
        }
        assert_eq!(entry.entry, 0x12345 << 12 | 5 << 9 | 1 << 8 | 64);
        entry.set("tc", "2").expect("a second time");
        assert_eq!(entry.entry, 0x12345 << 12 | 2 << 9 | 1 << 8 | 64, "the others stay");
        for (field, value) in [("label", "0x100000"), ("tc", "8"), ("s", "2"), ("ttl", "256"), ("ttl", "x")] {
            entry.set(field, value).expect_err(field);
        }
        let mask = |fields: &[(&str, Option<u32>)]| {
            let mut mask = MplsFields::default();
            fields.iter().for_each(|(field, bits)| mask.set_prefix(field, *bits).expect("bits"));
            mask.entry
        };
        assert_eq!(mask(&[("label", None)]), 0xffff_f000);
        assert_eq!(mask(&[("label", Some(4)), ("ttl", None)]), 0xf000_00ff);
        assert_eq!(mask(&[("tc", None), ("s", None)]), 0xf00);
        assert_eq!(mask(&[("label", None), ("label", Some(0))]), 0, "the last one counts");
        MplsFields::default().set_prefix("label", Some(21)).expect_err("20 bits");

        let mut gre = GreFields::default();
        for (field, value) in [("c_bit", "on"), ("k_bit", "1"), ("s_bit", "no"), ("protocol", "0x6558")] {
            gre.set(field, value).expect(field);
        }
        assert_eq!((gre.flags, gre.protocol), (0xa000, 0x6558));
        gre.set("c_rsvd0_ver", "0x1001").expect("all of it");
        assert_eq!(gre.flags, 0x1001);
        gre.set("k_bit", "2").expect_err("one bit");
        let mut vxlan = VxlanFields::default();
        vxlan.set("vni", "0xffffff").expect("24 bits");
        vxlan.set("vni", "0x1000000").expect_err("25 bits");
        let mut mask = VxlanFields::default();
        mask.set_prefix("vni", Some(12)).expect("half of it");
        assert_eq!((vxlan.vni, mask.vni), (0xff_ffff, 0xff_f000));
        let mut key = GreKeyFields::default();
        key.set("value", "0xffffffff").expect("32 bits");
        assert_eq!(key.key, u32::MAX);
    }
}
