//! The network of the kernel over a model: its addresses, and its way to the wire.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use pollux_mlx5_kernel::{FrameListener, Frames, InterfaceAddress};

use crate::device::Device;
use crate::random::Random;
use crate::time::worker::Steps;

/// The subnet of models that were given no address: for tests of network devices (RFC 2544, appendix C.2.2).
const SUBNET: [u8; 2] = [198, 18];
const PREFIX: u8 = 15;

/// The wire as the kernel's network has it.
pub(crate) struct Station {
    pub(crate) device: Arc<Device>,
    /// What makes the steps, where no thread does.
    pub(crate) steps: Option<Arc<dyn Steps>>,
}

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Frames for Station {
    fn send(&self, frame: &[u8]) {
        self.device.send_frame(frame);
    }

    fn on_frame(&self, listener: FrameListener) {
        self.device.on_frame(listener);
    }

    fn turn(&self) -> bool {
        match &self.steps {
            Some(steps) => {
                steps.step();
                true
            }
            None => false,
        }
    }
}

/// A number that is the same for a name in every run.
fn seed(name: &str) -> u64 {
    name.bytes().fold(0, |seed, byte| Random::new(seed ^ u64::from(byte)).next())
}

/// An address of a model's own, made from its name, so that it is the same in every run. Locally administered.
pub(crate) fn mac(name: &str) -> [u8; 6] {
    let [_, _, a, b, c, d, e, f] = seed(name).to_be_bytes();
    [a & 0xfc | 0x02, b, c, d, e, f]
}

/// The same for its IPv4 address; all of them are in one subnet.
pub(crate) fn address(name: &str) -> InterfaceAddress {
    let [.., c, d] = seed(name).to_be_bytes();
    let [a, b] = SUBNET;
    // Neither the first nor the last address of a network.
    InterfaceAddress { address: Ipv4Addr::new(a, b, c, 1 + d % 254).into(), prefix: PREFIX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_addresses_of_one_subnet() {
        let (one, two) = (address("/tmp/a"), address("/tmp/b"));
        assert_ne!(one, two);
        assert!(one.reaches(two.address), "{one} {two}");
        assert_ne!(mac("/tmp/a"), mac("/tmp/b"));
        assert_eq!(one, address("/tmp/a"));
        for name in 0..1000 {
            let own = address(&name.to_string());
            let last = match own.address {
                std::net::IpAddr::V4(address) => address.octets()[3],
                std::net::IpAddr::V6(_) => panic!("{own}"),
            };
            assert!((1..=254).contains(&last), "{own}");
        }
    }
}
