//! Addresses of loopback that a launcher has to itself: what comes from one of them, or is connected to one, is a connection by RDMA.
//!
//! They are a network of 254, used in turn: the kernel keeps a port of each for a minute after a connection has ended. IPv6 has one address of
//! loopback alone, which tells nothing.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};

/// The variable of the environment that has the network.
pub const VARIABLE: &str = "RSOCK_RUN_NETWORK";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network([u8; 3]);

impl Network {
    /// That of a launcher, by its process. 127.0 is left to others.
    #[must_use]
    pub fn of(process: u32) -> Self {
        let [_, _, _, third] = process.to_be_bytes();
        let second = 1 + ((process >> 8) % 254) as u8;
        Self([127, second, third])
    }

    /// As the environment has it.
    #[must_use]
    pub fn text(self) -> String {
        self.address(0).to_string()
    }

    /// The one that the environment names.
    #[must_use]
    pub fn read(text: &OsStr) -> Option<Self> {
        let ip: Ipv4Addr = text.to_str()?.parse().ok()?;
        let [first, second, third, _] = ip.octets();
        ip.is_loopback().then_some(Self([first, second, third]))
    }

    /// An address in it; any number stands for one.
    #[must_use]
    pub fn address(self, number: u8) -> Ipv4Addr {
        let [first, second, third] = self.0;
        Ipv4Addr::new(first, second, third, 1 + number % 254)
    }

    /// Whether an address is the launcher's.
    #[must_use]
    pub fn has(self, ip: IpAddr) -> bool {
        matches!(ip.to_canonical(), IpAddr::V4(ip) if ip.octets()[..3] == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_knows_its_own_addresses_and_no_others() {
        for process in [1, 255, 256, 65_023, 65_024, 4_194_304, u32::MAX] {
            let network = Network::of(process);
            assert_eq!(Network::read(OsStr::new(&network.text())), Some(network));
            for number in 0..=u8::MAX {
                let ip = network.address(number);
                assert!(
                    ip.is_loopback() && network.has(ip.into()) && network.has(ip.to_ipv6_mapped().into())
                );
                assert!(!matches!(ip.octets()[3], 0 | 255), "{ip}");
            }
            assert!(!network.has(Ipv4Addr::LOCALHOST.into()));
            assert!(!Network::of(process.wrapping_add(1)).has(network.address(7).into()));
        }
        for other in ["", "10.0.0.1", "::1", "127.1"] {
            assert_eq!(Network::read(OsStr::new(other)), None, "{other}");
        }
    }
}
