//! What send and receive queues have in common.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::wq::WorkQueue;
use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::umem::Umem;

/// Bits of the place of a ring in its first page, in a work queue's context.
pub(crate) const OFFSET_BITS: u32 = 5;

/// A user index that says: completions of version 0. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`,
/// `MLX5_IB_DEFAULT_UIDX`.
pub(crate) const DEFAULT_USER_INDEX: u32 = 0xff_ffff;

/// Fields of a ring in memory of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) kind: u32,
    pub(crate) log_entries: u32,
    pub(crate) log_stride: u32,
    pub(crate) pdn: u32,
    pub(crate) record: u64,
}

impl Ring {
    /// Writes them; pages of 4 KiB follow the context.
    pub(crate) fn write(&self, context: &mut [u8; WorkQueue::BYTES], umem: &Umem) -> Result<(), Errno> {
        let fits =
            WorkQueue::LOG_WQ_SZ.fits(self.log_entries) && WorkQueue::LOG_WQ_STRIDE.fits(self.log_stride);
        if !fits {
            return Err(Errno::EINVAL);
        }
        WorkQueue::WQ_TYPE.set(context, self.kind);
        WorkQueue::PAGE_OFFSET.set(context, umem.quantized_offset(OFFSET_BITS)?);
        WorkQueue::PD.set(context, self.pdn);
        WorkQueue::DBR_ADDR.set(context, self.record);
        WorkQueue::LOG_WQ_STRIDE.set(context, self.log_stride);
        WorkQueue::LOG_WQ_SZ.set(context, self.log_entries);
        Ok(())
    }
}

/// The user index that a queue gets. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `verify_assign_uidx`.
pub(crate) fn user_index(cqe_version: u8, wanted: u32) -> Result<u32, Errno> {
    if cqe_version == 0 {
        return Ok(DEFAULT_USER_INDEX);
    }
    if wanted >= DEFAULT_USER_INDEX {
        return Err(Errno::EINVAL);
    }
    Ok(wanted)
}

/// Whether frames inside tunnels can be looked into.
pub(crate) fn tunnels(adapter: &Adapter) -> bool {
    use pollux_mlx5_abi::caps::ethernet::EthernetCaps as E;
    [E::TUNNEL_STATELESS_VXLAN, E::TUNNEL_STATELESS_GRE, E::TUNNEL_STATELESS_GENEVE_RX]
        .into_iter()
        .any(|field| adapter.caps.has_ethernet(field))
}

/// Whether the device does offloads of frames, and this one.
pub(crate) fn offloads(
    adapter: &Adapter,
    field: pollux_mlx5_abi::field::Field<{ pollux_mlx5_abi::caps::ethernet::EthernetCaps::BYTES }>,
) -> bool {
    adapter.caps.has(GeneralCaps::ETH_NET_OFFLOADS) && adapter.caps.has_ethernet(field)
}
