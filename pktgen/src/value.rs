//! Values of a field, as they are typed: one, a range, a list, random bits.
//!
//! ```text
//!   10.0.0.1               the same in each packet
//!   10.0.0.1..10.0.0.9     one after the other, then from the first again; ..A+2 in steps of 2; downwards if the last is below the first
//!   53|80|443              one after the other
//!   10.0.0.0~0.0.255.255   random in the bits of the mask
//!   random                 random in all bits
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use pollux_wire::MacAddress;

use crate::layer::{Field, Kind};

/// The most values of a list.
const LIST_MAX: usize = 65_536;

/// What a field holds in one packet after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    Fixed(u128),
    Range { first: u128, last: u128, step: u128 },
    List(Vec<u128>),
    Random { base: u128, mask: u128 },
}

impl Values {
    /// Reads the values of `field`, called `name`.
    pub(crate) fn parse(field: &Field, name: &str, text: &str) -> Result<Self, String> {
        let one = |text: &str| value(field, name, text.trim());
        if text.trim() == "random" {
            return Ok(Self::Random { base: 0, mask: u128::MAX >> (128 - field.bits) });
        }
        if let Some((base, mask)) = text.split_once('~') {
            let (base, mask) = (one(base)?, one(mask)?);
            return Ok(Self::Random { base: base & !mask, mask });
        }
        if let Some((first, rest)) = text.split_once("..") {
            let (last, step) = match rest.split_once('+') {
                Some((last, step)) => (last, step_of(name, step.trim())?),
                None => (rest, 1),
            };
            return Ok(Self::Range { first: one(first)?, last: one(last)?, step });
        }
        if text.contains('|') {
            let list: Vec<u128> = text.split('|').map(one).collect::<Result<_, _>>()?;
            if list.len() > LIST_MAX {
                return Err(format!("field '{name}' has {} values: at most {LIST_MAX}", list.len()));
            }
            return Ok(Self::List(list));
        }
        one(text).map(Self::Fixed)
    }

    /// The value of the first packet, without what is random.
    pub(crate) fn first(&self) -> u128 {
        match self {
            Self::Fixed(value) | Self::Range { first: value, .. } | Self::Random { base: value, .. } => {
                *value
            }
            Self::List(list) => list.first().copied().unwrap_or(0),
        }
    }

    /// The bits that differ between packets.
    pub(crate) fn varying(&self) -> u128 {
        match self {
            Self::Fixed(_) => 0,
            Self::Range { first, last, .. } => {
                // All bits below the highest one that differs may change on the way.
                let differ = first ^ last;
                if differ == 0 { 0 } else { u128::MAX >> differ.leading_zeros() }
            }
            Self::List(list) => list.iter().fold(0, |bits, value| bits | (value ^ self.first())),
            Self::Random { mask, .. } => *mask,
        }
    }
}

fn step_of(name: &str, text: &str) -> Result<u128, String> {
    let step: Option<u64> = text.parse().ok().filter(|step| *step > 0);
    step.map(u128::from)
        .ok_or_else(|| format!("field '{name}': step '{text}' is not a whole number from 1 to {}", u64::MAX))
}

fn value(field: &Field, name: &str, text: &str) -> Result<u128, String> {
    let wrong = |allowed: &str| format!("field '{name}': '{text}' is not {allowed}");
    match field.kind {
        Kind::Number => {
            let most = u128::MAX >> (128 - field.bits);
            let digits = text.strip_prefix("0x");
            // `from_str_radix` would take a sign too.
            let number = match digits {
                _ if text.contains('+') => None,
                Some(digits) => u128::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            };
            let number = number.filter(|number| *number <= most);
            number.ok_or_else(|| wrong(&format!("a whole number from 0 to {most}")))
        }
        Kind::Mac => {
            let address: MacAddress =
                text.parse().map_err(|_| wrong("a MAC address such as 02:00:00:00:00:01"))?;
            Ok(address.0.iter().fold(0, |all, byte| all << 8 | u128::from(*byte)))
        }
        Kind::Ipv4 => {
            let address: Ipv4Addr = text.parse().map_err(|_| wrong("an IPv4 address such as 198.18.0.1"))?;
            Ok(u128::from(address.to_bits()))
        }
        Kind::Ipv6 => {
            let address: Ipv6Addr = text.parse().map_err(|_| wrong("an IPv6 address such as 2001:2::1"))?;
            Ok(address.to_bits())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Layer;

    fn read(layer: Layer, field: &str, text: &str) -> Result<Values, String> {
        let name = format!("{layer}.{field}");
        Values::parse(layer.field(field).expect("a field"), &name, text)
    }

    #[test]
    fn each_form_is_read() {
        assert_eq!(read(Layer::Udp, "src", "0x35"), Ok(Values::Fixed(53)));
        assert_eq!(read(Layer::Udp, "src", "9..1+2"), Ok(Values::Range { first: 9, last: 1, step: 2 }));
        assert_eq!(read(Layer::Udp, "src", "53 | 80"), Ok(Values::List(vec![53, 80])));
        assert_eq!(
            read(Layer::Ipv4, "src", "10.1.2.3~0.0.255.255"),
            Ok(Values::Random { base: 0x0a01_0000, mask: 0xffff })
        );
        assert_eq!(read(Layer::Vlan, "id", "random"), Ok(Values::Random { base: 0, mask: 0xfff }));
        assert_eq!(read(Layer::Ether, "dst", "02:00:00:00:00:09"), Ok(Values::Fixed(0x0200_0000_0009)));
        assert_eq!(read(Layer::Ipv6, "dst", "::5..::9"), Ok(Values::Range { first: 5, last: 9, step: 1 }));
    }

    #[test]
    fn what_is_none_is_refused_with_what_is_allowed() {
        for (layer, field, text, why) in [
            (Layer::Vlan, "id", "4096", "field 'vlan.id': '4096' is not a whole number from 0 to 4095"),
            (Layer::Udp, "src", "-1", "field 'udp.src': '-1' is not a whole number from 0 to 65535"),
            (Layer::Udp, "src", "0x+1", "field 'udp.src': '0x+1' is not a whole number from 0 to 65535"),
            (Layer::Udp, "src", "", "field 'udp.src': '' is not a whole number from 0 to 65535"),
            (
                Layer::Udp,
                "src",
                "1..2+0",
                "field 'udp.src': step '0' is not a whole number from 1 to 18446744073709551615",
            ),
            (
                Layer::Ipv4,
                "src",
                "10.0.0.1..10.0.0.256",
                "field 'ipv4.src': '10.0.0.256' is not an IPv4 address such as 198.18.0.1",
            ),
            (Layer::Ipv4, "src", "::1", "field 'ipv4.src': '::1' is not an IPv4 address such as 198.18.0.1"),
            (
                Layer::Ipv6,
                "src",
                "1.2.3.4",
                "field 'ipv6.src': '1.2.3.4' is not an IPv6 address such as 2001:2::1",
            ),
            (
                Layer::Ether,
                "dst",
                "02:00",
                "field 'ether.dst': '02:00' is not a MAC address such as 02:00:00:00:00:01",
            ),
        ] {
            assert_eq!(read(layer, field, text), Err(why.into()));
        }
    }

    #[test]
    fn bits_that_may_change_are_known() {
        assert_eq!(Values::Range { first: 0x0f, last: 0x10, step: 1 }.varying(), 0x1f);
        assert_eq!(Values::Range { first: 5, last: 5, step: 1 }.varying(), 0);
        assert_eq!(Values::List(vec![1, 2, 4]).varying(), 7);
        assert_eq!(Values::Fixed(9).varying(), 0);
    }
}
