//! User contexts, and what only they have: memory regions by number (umem) and general objects.
//!
//! Commands of a user context carry its number in the header's `uid`, so that the firmware refuses it the objects of
//! others.

use crate::layout::layouts;

layouts! {
    /// A user context with the capabilities of [`capability`].
    CreateUctxIn = "create_uctx_in" [64] {
        CAP as "uctx.cap": field(0x10, 31, 0),
    }

    /// The number.
    CreateUctxOut = "create_uctx_out" [16] {
        UID: field(0x08, 15, 0),
    }

    /// Destroys a user context and all that carries its number.
    DestroyUctxIn = "destroy_uctx_in" [16] {
        UID: field(0x08, 15, 0),
    }

    /// A memory region by number.
    CreateUmemIn = "create_umem_in" [48] {
        UMEM: run(0x10, 32),
    }

    /// The region; its pages, 8 bytes each, follow.
    UmemContext = "umem" [32] {
        ATS: field(0x10, 31, 31),
        LOG_PAGE_SIZE: field(0x10, 4, 0),
        PAGE_OFFSET: field(0x14, 31, 0),
        NUM_OF_MTT: wide(0x18, 63, 0),
    }

    /// The number.
    CreateUmemOut = "create_umem_out" [16] {
        UMEM_ID: field(0x08, 23, 0),
    }

    /// Destroys a memory region.
    DestroyUmemIn = "destroy_umem_in" [16] {
        UMEM_ID: field(0x08, 23, 0),
    }

    /// Header of the four commands on general objects; the object follows.
    GeneralObjectIn = "general_obj_in_cmd_hdr" [16] {
        OBJ_TYPE: field(0x04, 15, 0),
        OBJ_ID: field(0x08, 31, 0),
        LOG_OBJ_RANGE: field(0x0c, 28, 24),
    }

    /// Its answer.
    GeneralObjectOut = "general_obj_out_cmd_hdr" [16] {
        OBJ_ID: field(0x08, 31, 0),
    }
}

/// Where a ring, a doorbell record or a translation is named by umem number and offset instead of by addresses; each
/// counts only with its `*_umem_valid` bit. The offset of a doorbell record stands in the block's `dbr_addr`.
///
/// Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `mlx5_ifc_wq_bits`, `mlx5_ifc_cqc_bits`, `mlx5_ifc_create_cq_in_bits`,
/// `mlx5_ifc_create_mkey_in_bits`, `mlx5_ifc_create_qp_in_bits`, `mlx5_ifc_qpc_bits`, `mlx5_ifc_cmd_hca_cap_bits`; Linux
/// `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_create_xrc_srq_in_bits`, `mlx5_ifc_xrc_srqc_bits`. No header names what stands
/// between the reserved bits of the last two; `XRC_SRQ_*` are where the other rings have the same.
pub mod place {
    use crate::field::{Field, Wide};

    /// In a [`WorkQueue`](crate::command::wq::WorkQueue): the record's umem.
    pub const WQ_RECORD_UMEM: Field<192> = Field::new(0x28, 31, 0);
    /// In a [`WorkQueue`](crate::command::wq::WorkQueue): the ring's umem.
    pub const WQ_UMEM: Field<192> = Field::new(0x2c, 31, 0);
    /// In a [`WorkQueue`](crate::command::wq::WorkQueue): where in it the ring begins.
    pub const WQ_OFFSET: Wide<192> = Wide::new(0x30, 63, 0);
    /// In a [`CqContext`](crate::command::cq::CqContext): the record's umem.
    pub const CQ_RECORD_UMEM: Field<64> = Field::new(0x04, 31, 0);
    /// In a [`CqContext`](crate::command::cq::CqContext): the upper bits of the form of short completions.
    pub const CQ_MINI_FORMAT_EXT: Field<64> = Field::new(0x08, 3, 2);
    /// In [`GeneralCaps`](crate::caps::general::GeneralCaps): short completions can have the types of headers.
    pub const CAP_MINI_HEADERS: Field<256> = Field::new(0xb4, 6, 6);
    /// In [`GeneralCaps`](crate::caps::general::GeneralCaps): short completions can have the flow tag.
    pub const CAP_MINI_FLOW_TAG: Field<256> = Field::new(0xb4, 5, 5);
    /// In a [`CreateCqIn`](crate::command::cq::CreateCqIn): where in the umem the ring begins.
    pub const CQ_OFFSET: Wide<272> = Wide::new(0x50, 63, 0);
    /// In a [`CreateCqIn`](crate::command::cq::CreateCqIn): the ring's umem.
    pub const CQ_UMEM: Field<272> = Field::new(0x58, 31, 0);
    /// In a [`CreateMkeyIn`](crate::command::mkey::CreateMkeyIn): the umem that the key stands for.
    pub const MKEY_UMEM: Field<272> = Field::new(0x64, 31, 0);
    /// In a [`CreateMkeyIn`](crate::command::mkey::CreateMkeyIn): where in the umem it begins.
    pub const MKEY_OFFSET: Wide<272> = Wide::new(0x68, 63, 0);

    /// In a [`CreateQpIn`](crate::command::qp::CreateQpIn): where in the umem the rings begin.
    pub const QP_OFFSET: Wide<272> = Wide::new(0x100, 63, 0);
    /// In a [`CreateQpIn`](crate::command::qp::CreateQpIn): the rings' umem.
    pub const QP_UMEM: Field<272> = Field::new(0x108, 31, 0);
    /// In a [`QpContext`](crate::command::qp::context::QpContext): the record's umem.
    pub const QP_RECORD_UMEM: Field<232> = Field::new(0xe4, 31, 0);
    /// In a [`CreateXrcSrqIn`](crate::command::srq::CreateXrcSrqIn): where in the umem the ring begins.
    pub const XRC_SRQ_OFFSET: Wide<272> = Wide::new(0x50, 63, 0);
    /// In a [`CreateXrcSrqIn`](crate::command::srq::CreateXrcSrqIn): the ring's umem.
    pub const XRC_SRQ_UMEM: Field<272> = Field::new(0x58, 31, 0);
    /// In an [`XrcSrqContext`](crate::command::srq::XrcSrqContext): the record's umem.
    pub const XRC_SRQ_RECORD_UMEM: Field<64> = Field::new(0x0c, 31, 0);
}

/// Kinds of general objects; the device has those whose bit of `general_obj_types` is set. Source: rdma-core
/// `providers/mlx5/mlx5_ifc.h`, `MLX5_OBJ_TYPE_*`.
pub mod general_object {
    /// Numbers that no queue pair gets.
    pub const RESERVED_QPN: u32 = 0x2c;
}

/// What a user context may do. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_UCTX_CAP_*`.
pub mod capability {
    /// Send frames of any content.
    pub const RAW_TX: u32 = 1 << 0;
    /// Use what belongs to the device, not to it.
    pub const INTERNAL_DEV_RES: u32 = 1 << 1;
}
