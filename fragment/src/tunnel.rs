//! Tunnels in which packets can be cut and joined.

use pollux_wire::tunnel::{GENEVE_PORT, VXLAN_GPE_PORT, VXLAN_PORT};
use pollux_wire::{Encapsulation, Tunnel};

/// The bit of GRE's first byte that says that there is a sequence number. Source: RFC 2890.
const GRE_SEQUENCE: u8 = 0x10;

/// Whether the tunnel's own header, of a packet that begins with `front`, says nothing of the one packet in it. GTP's length and GRE's
/// sequence number do: they would be wrong in what the packet is cut into.
pub(crate) fn is_plain(front: &[u8], tunnel: &Tunnel) -> bool {
    match tunnel.encapsulation {
        Encapsulation::Ip => true,
        Encapsulation::Gre { .. } => front.get(tunnel.l4).is_some_and(|flags| flags & GRE_SEQUENCE == 0),
        Encapsulation::Udp { port, .. } => matches!(port, VXLAN_PORT | VXLAN_GPE_PORT | GENEVE_PORT),
    }
}
