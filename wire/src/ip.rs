//! What IPv4 and IPv6 share.

mod protocol;

use crate::{EtherType, Ipv6Header, ipv6};

pub use protocol::IpProtocol;

/// Where the IP header at `l3` ends, extension headers included, and what follows. `None` when no whole one stands there, and of
/// fragments of IPv6.
#[must_use]
pub fn behind(frame: &[u8], l3: usize, ether_type: EtherType) -> Option<(usize, IpProtocol)> {
    match ether_type {
        EtherType::IPV4 => {
            let header = frame.get(l3..l3 + 20)?;
            let bytes = usize::from(header[0] & 15) * 4;
            (header[0] >> 4 == 4 && bytes >= 20).then_some((l3 + bytes, IpProtocol(header[9])))
        }
        EtherType::IPV6 => {
            let header = frame.get(l3..l3 + Ipv6Header::BYTES)?;
            let upper = ipv6::walk(IpProtocol(header[6]), &frame[l3 + Ipv6Header::BYTES..]).ok()?;
            let whole = header[0] >> 4 == 6 && upper.fragment.is_none();
            whole.then_some((l3 + Ipv6Header::BYTES + upper.extension_bytes, upper.protocol))
        }
        _ => None,
    }
}
