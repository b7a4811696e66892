//! Addresses and names of ports, as they stand in a filter.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pollux_wire::MacAddress;

use super::FilterError;

/// A network: an address of which so many bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    pub(super) address: IpAddr,
    pub(super) bits: u8,
}

/// An address; names are not looked up.
pub(super) fn host(text: &str) -> Result<IpAddr, FilterError> {
    text.parse().map_err(|_| {
        FilterError(format!("'{text}' is not an IPv4 or IPv6 address (names of hosts are not looked up)"))
    })
}

/// `10`, `10.1`, `10.1.2.0/24`, `2001:db8::/32`, and `mask` where one was given.
pub(super) fn net(text: &str, mask: Option<&str>) -> Result<Net, FilterError> {
    let wrong = |why: &str| FilterError(format!("net '{text}' {why}"));
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => {
            (address, Some(bits.parse::<u8>().map_err(|_| wrong("has a prefix length that is no number"))?))
        }
        None => (text, None),
    };
    if address.contains(':') {
        let address: Ipv6Addr = address.parse().map_err(|_| wrong("is not an IPv6 network"))?;
        let bits = bits.unwrap_or(128);
        if bits > 128 || mask.is_some() {
            return Err(wrong(
                "is an IPv6 network: its prefix length must be 0 to 128, and it takes no mask",
            ));
        }
        let kept = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        if u128::from(address) & !kept != 0 {
            return Err(wrong("has bits behind its prefix"));
        }
        return Ok(Net { address: address.into(), bits });
    }
    let parts: Vec<u8> = address
        .split('.')
        .map(|part| part.parse().map_err(|_| wrong("is not a network, as 10.1.0.0/16 or 2001:db8::/32")))
        .collect::<Result<_, _>>()?;
    if !(1..=4).contains(&parts.len()) {
        return Err(wrong("has more than four parts"));
    }
    let mut whole = [0; 4];
    whole[..parts.len()].copy_from_slice(&parts);
    let address = Ipv4Addr::from(whole);
    let bits = match (bits, mask) {
        (Some(_), Some(_)) => return Err(wrong("has a prefix length and a mask: leave one out")),
        (Some(bits @ 0..=32), None) => bits,
        (Some(_), None) => return Err(wrong("is an IPv4 network: its prefix length must be 0 to 32")),
        (None, Some(mask)) => {
            let mask: Ipv4Addr = mask.parse().map_err(|_| wrong("has a mask that is no IPv4 address"))?;
            let mask = u32::from(mask);
            if mask.leading_ones() + mask.trailing_zeros() != 32 && mask != 0 {
                return Err(wrong("has a mask whose bits are not in a row"));
            }
            mask.leading_ones() as u8
        }
        (None, None) => parts.len() as u8 * 8,
    };
    let kept = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
    if u32::from(address) & !kept != 0 {
        return Err(wrong("has bits behind its prefix"));
    }
    Ok(Net { address: address.into(), bits })
}

/// `aa:bb:cc:dd:ee:ff`, also with `-` or `.`.
pub(super) fn mac(text: &str) -> Result<[u8; 6], FilterError> {
    let parsed = text.replace('.', ":").parse::<MacAddress>();
    let wrong = |_| FilterError(format!("'{text}' is not a MAC address, as 02:00:00:00:00:01"));
    parsed.map(|address| address.0).map_err(wrong)
}

/// A number, decimal, or hexadecimal behind `0x`.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A port's number, or its name in `/etc/services`.
pub(super) fn port(text: &str) -> Result<u16, FilterError> {
    let named = || {
        let services = std::fs::read_to_string("/etc/services").unwrap_or_default();
        services.lines().find_map(|line| {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let (name, place) = (words.next()?, words.next()?);
            let is = name.eq_ignore_ascii_case(text) || words.any(|alias| alias.eq_ignore_ascii_case(text));
            is.then(|| place.split('/').next()?.parse().ok()).flatten()
        })
    };
    let number = number(text).map(u16::try_from);
    match number {
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) => Err(FilterError(format!("port '{text}' must be from 0 to 65535"))),
        None => {
            named().ok_or_else(|| FilterError(format!("port '{text}' is no number and not in /etc/services")))
        }
    }
}

/// `1000-2000`.
pub(super) fn ports(text: &str) -> Result<(u16, u16), FilterError> {
    let (low, high) = text
        .split_once('-')
        .ok_or_else(|| FilterError(format!("portrange '{text}' must be two ports, as 1000-2000")))?;
    let (low, high) = (port(low)?, port(high)?);
    Ok((low.min(high), low.max(high)))
}
