//! Header views that never panic, Internet checksum, Toeplitz hash, packet types and software segmentation.
//!
//! Each header has up to three forms:
//!
//! ```text
//!   bytes --XHeader::...--> XHeader     the fixed layout, big-endian fields, sub-byte accessors; read or written in place
//!         --X::new(bytes)-> X<'_>       checked view: header, options, payload cut to the lengths the header states
//!         --X::repr()-----> XRepr       plain data, host order; XRepr::emit(&mut bytes) writes it back
//! ```
//!
//! `X::new` is the only step that can fail. It says which header and how many bytes were missing; after it, no accessor
//! can panic, whatever the bytes are. A view dereferences to its layout, so `ipv4.ttl` and `ipv4.src()` both work.
//!
//! [`build`] makes whole frames layer by layer; [`edit`] changes headers in place, and checksums follow.
//! [`checksum`] sums eight bytes at a time and updates sums in place; [`toeplitz`] is the RSS hash; [`ptype`] tells what
//! layers a frame has and how long they are; [`segment`] cuts a TCP or UDP super-frame, in a tunnel too,
//! into frames that fit a link; [`tunnel`] finds the tunnel's headers.
//!
//! Called by the apps, `port-soft` and the device model. Calls nothing of this workspace.
//!
//! ```
//! use pollux_wire::{EtherRepr, EtherType, IpProtocol, Ipv4Repr, UdpRepr, checksum, ptype};
//!
//! let ip = Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP, 8 + 5);
//! let mut frame = [0u8; 14 + 20 + 8 + 5];
//! frame[42..].copy_from_slice(b"hello");
//! let rest = EtherRepr { dst: [2; 6].into(), src: [4; 6].into(), ether_type: EtherType::IPV4 }.emit(&mut frame)?;
//! let rest = ip.emit(rest)?;
//! UdpRepr { src_port: 9, dst_port: 9 }.emit(rest, checksum::pseudo_v4(ip.src, ip.dst, ip.protocol, 13))?;
//!
//! let seen = ptype::parse(&frame);
//! assert_eq!((seen.l2_len, seen.l3_len, seen.l4_len), (14, 20, 8));
//! assert!(seen.ptype.is_udp());
//! # Ok::<(), pollux_wire::WireError>(())
//! ```

pub mod arp;
pub mod build;
pub mod checksum;
pub mod edit;
pub mod error;
pub mod ether;
mod flow;
pub mod icmp;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod ptype;
pub mod roce;
pub mod segment;
pub mod simd;
pub mod tcp;
pub mod toeplitz;
pub mod tunnel;
pub mod udp;
pub mod vlan;

pub use arp::{Arp, ArpHeader, ArpRepr};
pub use error::{Layer, WireError};
pub use ether::{Ether, EtherHeader, EtherRepr, EtherType, MacAddress};
pub use flow::FiveTuple;
pub use icmp::{Icmp, IcmpHeader, IcmpRepr};
pub use icmpv6::{Icmpv6, Icmpv6Header, Icmpv6Repr};
pub use ip::IpProtocol;
pub use ipv4::{Ipv4, Ipv4Header, Ipv4Repr};
pub use ipv6::{Ipv6, Ipv6Header, Ipv6Repr};
pub use ptype::PacketType;
pub use tcp::{Tcp, TcpFlags, TcpHeader, TcpRepr};
pub use tunnel::{Encapsulation, Tunnel};
pub use udp::{Udp, UdpHeader, UdpRepr};
pub use vlan::{Tci, Vlan, VlanHeader, VlanRepr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The layout `H` at the front of `bytes` and what follows it.
fn front<H>(layer: Layer, bytes: &[u8]) -> Result<(&H, &[u8]), WireError>
where
    H: FromBytes + KnownLayout + Immutable + Unaligned,
{
    H::ref_from_prefix(bytes).map_err(|_| WireError::truncated(layer, size_of::<H>(), bytes.len()))
}

/// Writes `header` to the front of `bytes` and gives back the rest.
fn put<'a, H>(layer: Layer, header: &H, bytes: &'a mut [u8]) -> Result<&'a mut [u8], WireError>
where
    H: IntoBytes + Immutable,
{
    let given = bytes.len();
    let (head, rest) = bytes.split_at_mut_checked(size_of::<H>()).ok_or(WireError::NoRoom {
        layer,
        needed: size_of::<H>(),
        given,
    })?;
    head.copy_from_slice(header.as_bytes());
    Ok(rest)
}
