//! Receive work queues and the tables over them.

use std::mem::offset_of;

use super::described::described;

described! {
    /// What a receive work queue is made of.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_wq`.
    CreateWq = "mlx5_ib_create_wq" {
        /// The ring.
        buf_addr: u64,
        /// Its doorbell record.
        db_addr: u64,
        /// Entries.
        rq_wqe_count: u32,
        /// Bytes of an entry, as a logarithm.
        rq_wqe_shift: u32,
        /// What completions shall call it.
        user_index: u32,
        /// Bit 0: check bytes.
        flags: u32,
        /// A mask of [`wq_mask`].
        comp_mask: u32,
        /// Bytes of a stride, as a logarithm.
        single_stride_log_num_of_bytes: u32,
        /// Strides in an entry, as a logarithm.
        single_wqe_log_num_of_strides: u32,
        /// 1: two zero bytes come before each frame.
        two_byte_shift_en: u32,
    }
}

const _: () = assert!(size_of::<CreateWq>() == 48 && offset_of!(CreateWq, two_byte_shift_en) == 44);

described! {
    /// What comes back.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_wq_resp`.
    CreateWqAnswer = "mlx5_ib_create_wq_resp" {
        /// Bytes of this answer.
        response_length: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () = assert!(size_of::<CreateWqAnswer>() == 8 && offset_of!(CreateWqAnswer, reserved) == 4);

described! {
    /// What a change of state adds: nothing yet.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_modify_wq`.
    ModifyWq = "mlx5_ib_modify_wq" {
        /// None is defined.
        comp_mask: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () = assert!(size_of::<ModifyWq>() == 8 && offset_of!(ModifyWq, reserved) == 4);

described! {
    /// What comes back with an indirection table.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_rwq_ind_tbl_resp`.
    CreateRwqTableAnswer = "mlx5_ib_create_rwq_ind_tbl_resp" {
        /// Bytes of this answer.
        response_length: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () =
    assert!(size_of::<CreateRwqTableAnswer>() == 8 && offset_of!(CreateRwqTableAnswer, reserved) == 4);

/// Which parts of the request count. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_create_wq_mask`.
pub mod wq_mask {
    /// The stride fields.
    pub const STRIDING_RQ: u32 = 1 << 0;
}
