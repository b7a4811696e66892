//! Signatures over blocks of data: what stands behind the translation of an entry that changes a key ([`Bsf`]), and the entry that sets
//! a signature variable ([`SetPsv`]).
//!
//! A key's data has two forms. In the *memory domain* it is as it lies in memory, in the *wire domain* as it crosses the wire; each
//! either is plain, or has a signature behind every block. `Bsf` says which, and names for each domain that has signatures a variable
//! (PSV) with what the signatures begin from.
//!
//! ```text
//!   Control | UmrControl | MkeyContext | translation, filled up to 64 bytes | Bsf
//!   Control | SetPsv                                                          opcode SET_PSV
//! ```
//!
//! Source: rdma-core `providers/mlx5/wqe.h`, `struct mlx5_bsf`, `struct mlx5_wqe_set_psv_seg`, and `providers/mlx5/qp.c`,
//! `mlx5_umr_fill_sig_bsf`, `umr_wqe_finalize`; Linux `include/linux/mlx5/qp.h`, `struct mlx5_bsf`, `struct mlx5_seg_set_psv`, and
//! `drivers/infiniband/hw/mlx5/wr.c`, `mlx5_set_bsf`, `set_pi_umr_wr`.

use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Which signatures a key's data has in memory and on the wire.
///
/// Source: rdma-core `providers/mlx5/wqe.h`, `struct mlx5_bsf`; Linux `include/linux/mlx5/qp.h`, likewise.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Bsf {
    /// How much of this counts ([`size`], shifted by [`size::SHIFT`]), [`SAME_STRUCTURE`], and the kind of it.
    pub bsf_size_sbs: u8,
    /// Bytes of the incoming signature that are checked: bit 7 is its first byte.
    pub check_byte_mask: u8,
    /// Of the wire: its block size, one of [`block`]; with [`SAME_STRUCTURE`] the bytes of the incoming signature that go on as they
    /// are, bit 7 the first.
    pub wire: u8,
    /// Of memory: its block size, one of [`block`].
    pub mem: u8,
    /// Bytes without signatures; all ones: as many as the key has.
    pub raw_data_size: U32,
    /// Of the wire: [`format`](mod@format) of its signatures (bits 31 to 24) and number of its variable.
    pub w_bfs_psv: U32,
    /// The same of memory.
    pub m_bfs_psv: U32,
    /// Signatures over whole transactions.
    pub t_init_gen_pro_size: U32,
    /// The same.
    pub rsvd_epi_size: U32,
    /// The same, of the wire.
    pub w_tfs_psv: U32,
    /// The same, of memory.
    pub m_tfs_psv: U32,
    /// T10-DIF on the wire.
    pub w_inl: BsfInline,
    /// T10-DIF in memory.
    pub m_inl: BsfInline,
}

const _: () = assert!(size_of::<Bsf>() == 64 && offset_of!(Bsf, raw_data_size) == 4);
const _: () = assert!(offset_of!(Bsf, w_inl) == 32 && offset_of!(Bsf, m_inl) == 48);

/// Of one domain: how T10-DIF signatures look.
///
/// Source: rdma-core `providers/mlx5/wqe.h`, `struct mlx5_bsf_inl`; Linux `include/linux/mlx5/qp.h`, likewise.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct BsfInline {
    /// A mask of [`inline`].
    pub vld_refresh: U16,
    /// Application tag.
    pub dif_apptag: U16,
    /// Reference tag of the first block.
    pub dif_reftag: U32,
    /// One of [`guard`].
    pub sig_type: u8,
    /// A mask of [`repeat`].
    pub rp_inv_seed: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// A mask of [`check`].
    pub dif_inc_ref_guard_check: u8,
    /// Bits of the application tag that are checked.
    pub dif_app_bitmask_check: U16,
}

const _: () = assert!(size_of::<BsfInline>() == 16 && offset_of!(BsfInline, dif_app_bitmask_check) == 14);

/// Sets what the signatures of a domain begin from.
///
/// Source: rdma-core `providers/mlx5/wqe.h`, `struct mlx5_wqe_set_psv_seg`; Linux `include/linux/mlx5/qp.h`,
/// `struct mlx5_seg_set_psv`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct SetPsv {
    /// Number of the variable.
    pub psv_index: U32,
    /// Zero: no error.
    pub syndrome: U16,
    /// Zero.
    pub status: U16,
    /// Of T10-DIF the seed of the guard (bits 63 to 48), the application tag (47 to 32) and the reference tag of the first block; of a
    /// CRC of 64 bits its seed, of 32 bits its seed in the upper half.
    pub transient_signature: U64,
}

const _: () = assert!(size_of::<SetPsv>() == 16 && offset_of!(SetPsv, transient_signature) == 8);

/// In `bsf_size_sbs`: both domains have blocks of one size and signatures of one kind. Source: rdma-core `providers/mlx5/wqe.h`,
/// `MLX5_BSF_SBS_SHIFT`; Linux `drivers/infiniband/hw/mlx5/wr.c`, `mlx5_set_bsf`.
pub const SAME_STRUCTURE: u8 = 1 << 4;
/// In `bsf_size_sbs`: which kind it is; 0 for signatures, 1 for encryption. Source: rdma-core `providers/mlx5/wqe.h`,
/// `MLX5_BSF_TYPE_CRYPTO`; DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_BSF_P_TYPE_CRYPTO`.
pub const KIND: u8 = 3;
/// `raw_data_size` that bounds nothing. Source: rdma-core `providers/mlx5/qp.c`, `mlx5_umr_fill_sig_bsf`.
pub const ALL_DATA: u32 = u32::MAX;
/// In `w_bfs_psv` and `m_bfs_psv`: the number. Source: rdma-core `providers/mlx5/wqe.h`, `MLX5_BSF_PSV_INDEX_MASK`; Linux
/// `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_create_psv_out_bits`.
pub const PSV_INDEX: u32 = 0xff_ffff;

/// Bits 7 and 6 of `bsf_size_sbs`. Source: rdma-core `providers/mlx5/wqe.h`, `MLX5_BSF_SIZE_*`; Linux
/// `drivers/infiniband/hw/mlx5/wr.c`, `mlx5_set_bsf`, for the last but one.
pub mod size {
    /// Where they stand.
    pub const SHIFT: u8 = 6;
    /// The first 16 bytes count.
    pub const BASIC: u8 = 0;
    /// The first 32.
    pub const EXTENDED: u8 = 1;
    /// All 64.
    pub const WITH_INLINE: u8 = 2;
    /// All 64, and as many for encryption.
    pub const SIGNATURE_AND_CRYPTO: u8 = 3;
}

/// Block sizes. Source: rdma-core `providers/mlx5/qp.c`, `bs_to_bs_selector`; Linux `drivers/infiniband/hw/mlx5/wr.c`, `bs_selector`,
/// which has no 4048 and has 2^30 as 5.
pub mod block {
    /// Bytes of a block; `None` for those that are not known, and for 2^30.
    #[must_use]
    pub const fn bytes(selector: u8) -> Option<u16> {
        match selector {
            1 => Some(512),
            2 => Some(520),
            3 => Some(4096),
            4 => Some(4160),
            6 => Some(4048),
            _ => None,
        }
    }
}

/// Formats of signatures in `w_bfs_psv` and `m_bfs_psv`; 0: T10-DIF, where the inline part says so, or none. Source: rdma-core
/// `providers/mlx5/wqe.h`, `MLX5_BFS_*`, and `providers/mlx5/qp.c`, `mlx5_umr_crc_bfs`.
pub mod format {
    /// Where it stands.
    pub const SHIFT: u32 = 24;
    /// CRC32.
    pub const CRC32: u8 = 0x20;
    /// CRC32C.
    pub const CRC32C: u8 = 0x40;
    /// CRC64 of XP10.
    pub const CRC64_XP10: u8 = 0x50;
    /// Beside those: each block begins anew.
    pub const REPEAT: u8 = 0x2;
    /// Beside those: the seed is 0, and all ones otherwise.
    pub const SEED_ZERO: u8 = 0x1;
}

/// Bits of `vld_refresh`. Source: rdma-core `providers/mlx5/wqe.h`, `MLX5_BSF_INL_VALID`, `MLX5_BSF_REFRESH_DIF`; Linux
/// `include/linux/mlx5/qp.h`, likewise.
pub mod inline {
    /// The part counts.
    pub const VALID: u16 = 1 << 15;
    /// It may be set anew.
    pub const REFRESH: u16 = 1 << 14;
}

/// `sig_type`. Source: rdma-core `providers/mlx5/wqe.h`, `MLX5_T10DIF_*`; Linux `include/linux/mlx5/qp.h`, `MLX5_DIF_*`.
pub mod guard {
    /// A CRC.
    pub const CRC: u8 = 1;
    /// The checksum of IP.
    pub const IP_CHECKSUM: u8 = 2;
}

/// Bits of `rp_inv_seed`. Source: rdma-core `providers/mlx5/wqe.h`, `MLX5_BSF_REPEAT_BLOCK`, `MLX5_BSF_SEED`; Linux
/// `include/linux/mlx5/qp.h`, for the first.
pub mod repeat {
    /// Each block begins anew.
    pub const BLOCK: u8 = 1 << 7;
    /// The seed of the guard is all ones, and 0 otherwise.
    pub const SEED: u8 = 1 << 3;
}

/// Bits of `dif_inc_ref_guard_check`. Source: rdma-core `providers/mlx5/wqe.h`, `MLX5_BSF_INC_REFTAG`, `MLX5_BSF_APPTAG_ESCAPE`,
/// `MLX5_BSF_APPREF_ESCAPE`; Linux `include/linux/mlx5/qp.h`, likewise.
pub mod check {
    /// The reference tag is one more with each block.
    pub const INC_REFTAG: u8 = 1 << 6;
    /// A block whose application tag is all ones is not checked.
    pub const APPTAG_ESCAPE: u8 = 1;
    /// A block whose application tag and reference tag are all ones is not checked.
    pub const APPREF_ESCAPE: u8 = 2;
}
