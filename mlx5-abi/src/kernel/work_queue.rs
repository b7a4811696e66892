//! Receive work queues and the tables over them.

use std::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a receive work queue is made of.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_wq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CreateWq {
    /// The ring.
    pub buf_addr: u64,
    /// Its doorbell record.
    pub db_addr: u64,
    /// Entries.
    pub rq_wqe_count: u32,
    /// Bytes of an entry, as a logarithm.
    pub rq_wqe_shift: u32,
    /// What completions shall call it.
    pub user_index: u32,
    /// Bit 0: check bytes.
    pub flags: u32,
    /// A mask of [`wq_mask`].
    pub comp_mask: u32,
    /// Bytes of a stride, as a logarithm.
    pub single_stride_log_num_of_bytes: u32,
    /// Strides in an entry, as a logarithm.
    pub single_wqe_log_num_of_strides: u32,
    /// 1: two zero bytes come before each frame.
    pub two_byte_shift_en: u32,
}

const _: () = assert!(size_of::<CreateWq>() == 48 && offset_of!(CreateWq, two_byte_shift_en) == 44);

/// What comes back.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_wq_resp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CreateWqAnswer {
    /// Bytes of this answer.
    pub response_length: u32,
    /// Reserved.
    pub reserved: u32,
}

const _: () = assert!(size_of::<CreateWqAnswer>() == 8 && offset_of!(CreateWqAnswer, reserved) == 4);

/// What a change of state adds: nothing yet.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_modify_wq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ModifyWq {
    /// None is defined.
    pub comp_mask: u32,
    /// Reserved.
    pub reserved: u32,
}

const _: () = assert!(size_of::<ModifyWq>() == 8 && offset_of!(ModifyWq, reserved) == 4);

/// What comes back with an indirection table.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_rwq_ind_tbl_resp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CreateRwqTableAnswer {
    /// Bytes of this answer.
    pub response_length: u32,
    /// Reserved.
    pub reserved: u32,
}

const _: () =
    assert!(size_of::<CreateRwqTableAnswer>() == 8 && offset_of!(CreateRwqTableAnswer, reserved) == 4);

/// Which parts of the request count. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_create_wq_mask`.
pub mod wq_mask {
    /// The stride fields.
    pub const STRIDING_RQ: u32 = 1 << 0;
}
