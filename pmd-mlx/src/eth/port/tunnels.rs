//! What a device does to packets in tunnels, how it finds their inner headers, and whether it knows labels.

use pollux_mlx5_abi::kernel::device::{parsing, tunnel};
use pollux_port::TxOffloads;
use pollux_uverbs::abi::flags::QpType;

use crate::eth::parts::{KnownTunnels, TxTunnels};
use pollux_mlx5_common::context::Device;

/// What a port offers besides `plain`, what it does outside tunnels. No device fills in outer UDP checksums, and IP in IP is no offload of its
/// own: to be cut, it is marked as any tunnel over IP. Source: DPDK `drivers/net/mlx5/mlx5_txq.c`, `mlx5_get_tx_port_offloads`.
pub(super) fn offered(device: &Device, plain: TxOffloads) -> TxOffloads {
    let (known, told) = (known(device), told(device));
    let mut tx = TxOffloads::empty();
    if plain.contains(TxOffloads::CHECKSUM) {
        tx.set(TxOffloads::OUTER_IPV4_CKSUM, !known.is_empty() || told & parsing::CSUM != 0);
    }
    // Segments need checksums.
    if plain.contains(TxOffloads::CHECKSUM | TxOffloads::TCP_TSO) {
        tx.set(TxOffloads::VXLAN_TNL_TSO, known.contains(KnownTunnels::VXLAN));
        tx.set(TxOffloads::GRE_TNL_TSO, known.contains(KnownTunnels::GRE));
        tx.set(TxOffloads::GENEVE_TNL_TSO, known.contains(KnownTunnels::GENEVE));
        tx.set(TxOffloads::UDP_TNL_TSO | TxOffloads::IP_TNL_TSO, told & parsing::LSO != 0);
    }
    tx
}

/// How a queue's inner headers are found.
pub(super) fn found(device: &Device) -> TxTunnels {
    let told = told(device);
    let (told_sums, told_cuts) = (told & parsing::CSUM != 0, told & parsing::LSO != 0);
    let mut known = known(device);
    if told_sums && told_cuts {
        known -= KnownTunnels::GENEVE;
    }
    TxTunnels { known, told_sums, told_cuts }
}

/// Whether rules can match MPLS labels. Nobody tells the kernel's callers that; it goes with the offloads. Source: DPDK
/// `drivers/net/mlx5/linux/mlx5_os.c`, `mpls_en`.
pub(super) fn labels(device: &Device) -> bool {
    let both = tunnel::MPLS_GRE | tunnel::MPLS_UDP;
    device.mlx5.tunnel_offloads_caps & both == both
}

fn known(device: &Device) -> KnownTunnels {
    let caps = device.mlx5.tunnel_offloads_caps;
    let mut known = KnownTunnels::empty();
    known.set(KnownTunnels::VXLAN, caps & tunnel::VXLAN != 0);
    known.set(KnownTunnels::GRE, caps & tunnel::GRE != 0);
    known.set(KnownTunnels::GENEVE, caps & tunnel::GENEVE != 0);
    known
}

/// What entries may tell for: a mask of [`parsing`].
fn told(device: &Device) -> u32 {
    let caps = &device.mlx5.sw_parsing_caps;
    if QpType::RAW_PACKET.is_in(caps.supported_qpts) { caps.sw_parsing_offloads } else { 0 }
}
