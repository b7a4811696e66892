//! Addresses as the originals take them: `-f` says how they are written. Source: rdma-core `librdmacm/examples/cmatose.c`, `udaddy.c`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::ValueEnum;
use pollux_cm::{AddressFamily, AddressHints, CmError, PortSpace, address_info};

use crate::number::number;
use crate::rdma::Failure;

/// How addresses are written.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A host name or an address
    #[default]
    Name,
    /// An IP address: no name is looked up
    Ip,
    /// A host name or an address, of which an address of IPv6 is taken
    Ipv6,
}

impl Format {
    /// Reads an address that was given by `option`. A name with addresses of both families means that of IPv4, unless IPv6 was asked for.
    ///
    /// # Errors
    /// It is none of this format, in one line.
    pub fn read(self, host: &str, option: &str) -> Result<IpAddr, Failure> {
        let refuse = |why: &str| Failure::Usage(format!("{option} {host}: {why}"));
        if self == Self::Ip {
            return host.parse().map_err(|_| {
                refuse("not an IP address, which -f ip asks for; give one, or leave -f out for host names")
            });
        }
        let any = AddressHints::new(PortSpace::Tcp);
        let look = |hints| address_info(Some(host), None, &hints);
        let unknown = |error| match error {
            CmError::Lookup { source, .. } => refuse(&format!("{source}; give a host name or an IP address")),
            other => refuse(&other.to_string()),
        };
        let all = if self == Self::Ipv6 {
            look(AddressHints { family: Some(AddressFamily::V6), ..any }).map_err(|_| match look(any) {
                Ok(_) => refuse("no IPv6 address, which -f ipv6 asks for; leave -f out for IPv4"),
                Err(error) => unknown(error),
            })?
        } else {
            look(any).map_err(unknown)?
        };
        let mut all = all.iter().filter_map(|info| info.destination).map(|address| address.ip());
        let first = all.next().ok_or_else(|| refuse("no address"))?;
        Ok(if first.is_ipv4() { first } else { all.find(IpAddr::is_ipv4).unwrap_or(first) })
    }

    /// The same of an option that may be absent.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_given(self, host: Option<&str>, option: &str) -> Result<Option<IpAddr>, Failure> {
        host.map(|host| self.read(host, option)).transpose()
    }

    /// What a server binds to that was given no address.
    #[must_use]
    pub fn any(self) -> IpAddr {
        if self == Self::Ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
    }
}

/// `-P` of a program whose queue pairs are connected.
///
/// # Errors
/// Another port space.
pub fn tcp(text: &str) -> Result<PortSpace, String> {
    space(text, "tcp", PortSpace::Tcp)
}

/// `-P` of a program that sends datagrams.
///
/// # Errors
/// Another port space.
pub fn udp(text: &str) -> Result<PortSpace, String> {
    space(text, "udp", PortSpace::Udp)
}

/// `-p` of a program that sends datagrams: a port space by its number.
///
/// # Errors
/// Another port space.
pub fn udp_by_number(text: &str) -> Result<PortSpace, String> {
    let code = PortSpace::Udp.code();
    let found = number(text).ok().filter(|number| *number == u64::from(code));
    found
        .map(|_| PortSpace::Udp)
        .ok_or_else(|| format!("is the number of a port space, of which 0x{code:04x} (udp) is supported"))
}

fn space(text: &str, name: &str, space: PortSpace) -> Result<PortSpace, String> {
    if text.eq_ignore_ascii_case(name) { Ok(space) } else { Err(format!("is not supported: give {name}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, host: &str) -> Result<IpAddr, String> {
        format.read(host, "-s").map_err(|failure| match failure {
            Failure::Usage(line) => line,
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn each_format_takes_what_it_says() {
        let (v4, v6): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().expect("one"), "2001:db8::1".parse().expect("one"));
        for (format, host, expected) in [
            (Format::Name, "192.0.2.1", Ok(v4)),
            (Format::Name, "2001:db8::1", Ok(v6)),
            (Format::Name, "localhost", Ok(Ipv4Addr::LOCALHOST.into())),
            (Format::Ip, "192.0.2.1", Ok(v4)),
            (Format::Ip, "2001:db8::1", Ok(v6)),
            (Format::Ip, "localhost", Err("-s localhost: not an IP address, which -f ip asks for")),
            (Format::Ipv6, "2001:db8::1", Ok(v6)),
            (Format::Ipv6, "192.0.2.1", Err("-s 192.0.2.1: no IPv6 address, which -f ipv6 asks for")),
            (Format::Name, "not.a.host.invalid", Err("-s not.a.host.invalid: ")),
            (Format::Ip, "127.1", Err("-s 127.1: not an IP address")),
        ] {
            match (read(format, host), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{format:?} {host}"),
                (Err(line), Err(expected)) => {
                    assert!(line.starts_with(expected), "{format:?} {host}: {line}")
                }
                (found, expected) => panic!("{format:?} {host}: {found:?} in place of {expected:?}"),
            }
        }
    }

    #[test]
    fn other_port_spaces_are_refused() {
        assert_eq!((tcp("TCP"), udp("udp")), (Ok(PortSpace::Tcp), Ok(PortSpace::Udp)));
        for other in ["ib", "ipoib", "gid", ""] {
            assert_eq!(tcp(other), Err("is not supported: give tcp".into()));
            assert_eq!(udp(other), Err("is not supported: give udp".into()));
        }
    }
}
