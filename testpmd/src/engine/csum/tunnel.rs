//! Tunnels as the port that sends is told of them.

use pollux_mempool::TxFlags;
use pollux_port::TxOffloads;
use pollux_wire::Encapsulation;
use pollux_wire::tunnel::{GENEVE_PORT, GTP_CONTROL_PORT, GTP_USER_PORT, VXLAN_GPE_PORT, VXLAN_PORT};

/// The kind of a tunnel, as a packet is marked.
pub(super) fn kind(encapsulation: Encapsulation) -> TxFlags {
    match encapsulation {
        Encapsulation::Ip => TxFlags::TUNNEL_IPIP,
        Encapsulation::Gre { .. } => TxFlags::TUNNEL_GRE,
        Encapsulation::Udp { port: VXLAN_PORT, .. } => TxFlags::TUNNEL_VXLAN,
        Encapsulation::Udp { port: VXLAN_GPE_PORT, .. } => TxFlags::TUNNEL_VXLAN_GPE,
        Encapsulation::Udp { port: GENEVE_PORT, .. } => TxFlags::TUNNEL_GENEVE,
        Encapsulation::Udp { port: GTP_CONTROL_PORT | GTP_USER_PORT, .. } => TxFlags::TUNNEL_GTP,
        Encapsulation::Udp { .. } => TxFlags::TUNNEL_UDP,
    }
}

/// The kind that a port is told which cuts packets in tunnels of `kinds`; `None`: it cuts none in this one.
pub(super) fn cut_as(encapsulation: Encapsulation, kinds: TxOffloads) -> Option<TxFlags> {
    let kind = kind(encapsulation);
    let own = match kind {
        TxFlags::TUNNEL_VXLAN => TxOffloads::VXLAN_TNL_TSO,
        TxFlags::TUNNEL_GENEVE => TxOffloads::GENEVE_TNL_TSO,
        TxFlags::TUNNEL_GRE => TxOffloads::GRE_TNL_TSO,
        TxFlags::TUNNEL_IPIP => TxOffloads::IPIP_TNL_TSO,
        _ => TxOffloads::empty(),
    };
    let (any, marked) = match encapsulation {
        Encapsulation::Udp { .. } => (TxOffloads::UDP_TNL_TSO, TxFlags::TUNNEL_UDP),
        _ => (TxOffloads::IP_TNL_TSO, TxFlags::TUNNEL_IP),
    };
    let told = kinds.intersects(own).then_some(kind);
    told.or_else(|| kinds.contains(any).then_some(marked))
}
