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

    /// Ends a user context and all that carries its number.
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

    /// Ends a memory region.
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

/// What a user context may do. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_UCTX_CAP_*`.
pub mod capability {
    /// Send frames of any content.
    pub const RAW_TX: u32 = 1 << 0;
    /// Use what belongs to the device, not to it.
    pub const INTERNAL_DEV_RES: u32 = 1 << 1;
}
