use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Cqe64;
use crate::opcode::completion;

/// A signature that did not fit: opcode [`SIGNATURE_ERROR`](completion::SIGNATURE_ERROR). The work itself goes on, and completes by an
/// entry of its own behind this one.
///
/// Source: rdma-core `providers/mlx5/cq.c`, `struct mlx5_sigerr_cqe`; Linux `include/linux/mlx5/device.h`, `struct mlx5_sig_err_cqe`,
/// which has the queue pair and not the two bytes behind the syndrome.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct CqeSignature {
    /// Reserved.
    pub reserved0: [u8; 16],
    /// What stands in the data: of T10-DIF guard and application tag, of a CRC its upper or only 32 bits. Which of the two is which:
    /// rdma-core `providers/mlx5/man/mlx5dv_mkey_check.3.md`; in what words: `providers/mlx5/verbs.c`, `mlx5_decode_sigerr`, and Linux
    /// `drivers/infiniband/hw/mlx5/cq.c`, `get_sig_err_item`.
    pub expected_trans_sig: U32,
    /// What was computed.
    pub actual_trans_sig: U32,
    /// What stands in the data: of T10-DIF the reference tag, of a CRC of 64 bits the lower half.
    pub expected_reftag: U32,
    /// What was computed.
    pub actual_reftag: U32,
    /// One of [`signature_error`].
    pub syndrome: U16,
    /// 0: of a block.
    pub sig_type: u8,
    /// One of [`signature_domain`].
    pub domain: u8,
    /// The key.
    pub mkey: U32,
    /// Where the block begins, signatures of those before it included. Source: rdma-core
    /// `providers/mlx5/man/mlx5dv_mkey_check.3.md`, for blocks; Linux `drivers/infiniband/ulp/iser/iser_verbs.c`,
    /// `iser_check_task_pi_status`, for what is included.
    pub err_offset: U64,
    /// Reserved.
    pub reserved1: [u8; 8],
    /// Queue pair.
    pub qpn: U32,
    /// Reserved.
    pub reserved2: [u8; 2],
    /// Check byte.
    pub signature: u8,
    /// As in [`Cqe64`].
    pub op_own: u8,
}

const _: () = assert!(size_of::<CqeSignature>() == 64 && offset_of!(CqeSignature, expected_trans_sig) == 16);
const _: () = assert!(offset_of!(CqeSignature, syndrome) == 32 && offset_of!(CqeSignature, mkey) == 36);
const _: () = assert!(offset_of!(CqeSignature, err_offset) == 40 && offset_of!(CqeSignature, qpn) == 56);
const _: () = assert!(offset_of!(CqeSignature, op_own) == offset_of!(Cqe64, op_own));

/// Which part of a signature did not fit. Source: rdma-core `providers/mlx5/verbs.c`, `MLX5_SIGERR_CQE_SYNDROME_*`; Linux
/// `drivers/infiniband/hw/mlx5/cq.c`, `get_sig_err_item`.
pub mod signature_error {
    /// The reference tag.
    pub const REFTAG: u16 = 1 << 11;
    /// The application tag.
    pub const APPTAG: u16 = 1 << 12;
    /// The guard, or the CRC.
    pub const GUARD: u16 = 1 << 13;
}

/// Whose signature it was. Source: rdma-core `providers/mlx5/verbs.c`, `MLX5_SIGERR_CQE_DOMAIN_*`; that there is something behind the
/// syndrome at all, `providers/mlx5/mlx5_ifc.h`, `mlx5_ifc_cmd_hca_cap_bits.sigerr_domain_and_sig_type`.
pub mod signature_domain {
    /// That of what came by the wire.
    pub const WIRE: u8 = 0;
    /// That of what lies in memory.
    pub const MEMORY: u8 = 1;
}

impl CqeSignature {
    /// The same bytes as a signature's error, if that is what `entry` reports.
    #[must_use]
    pub fn of(entry: &Cqe64) -> Option<&Self> {
        (entry.opcode() == completion::SIGNATURE_ERROR).then(|| zerocopy::transmute_ref!(entry))
    }

    /// The same bytes as an entry.
    #[must_use]
    pub fn entry(&self) -> &Cqe64 {
        zerocopy::transmute_ref!(self)
    }
}
