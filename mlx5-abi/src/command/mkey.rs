//! Memory keys.
//!
//! A key is 32 bits: the index that CREATE_MKEY answers in the upper 24, and the 8 variable bits that its maker chose.

use crate::layout::layouts;

layouts! {
    /// What a key stands for.
    MkeyContext = "mkc" [64] {
        FREE: field(0x00, 30, 30),
        ACCESS_MODE_4_2: field(0x00, 28, 26),
        RELAXED_ORDERING_WRITE: field(0x00, 18, 18),
        SMALL_FENCE_ON_RDMA_READ_RESPONSE: field(0x00, 16, 16),
        UMR_EN: field(0x00, 15, 15),
        A: field(0x00, 14, 14),
        RW: field(0x00, 13, 13),
        RR: field(0x00, 12, 12),
        LW: field(0x00, 11, 11),
        LR: field(0x00, 10, 10),
        ACCESS_MODE_1_0: field(0x00, 9, 8),
        MA_TRANSLATION_MODE: field(0x00, 5, 4),
        QPN: field(0x04, 31, 8),
        MKEY_7_0: field(0x04, 7, 0),
        LENGTH64: field(0x0c, 31, 31),
        BSF_EN: field(0x0c, 30, 30),
        SYNC_UMR: field(0x0c, 29, 29),
        EXPECTED_SIGERR_COUNT: field(0x0c, 26, 26),
        EN_RINVAL: field(0x0c, 24, 24),
        PD: field(0x0c, 23, 0),
        START_ADDR: wide(0x10, 63, 0),
        LEN: wide(0x18, 63, 0),
        BSF_OCTWORD_SIZE: field(0x20, 31, 0),
        TRANSLATIONS_OCTWORD_SIZE: field(0x34, 31, 0),
        RELAXED_ORDERING_READ: field(0x38, 6, 6),
        LOG_PAGE_SIZE: field(0x38, 4, 0),
    }

    /// The translation (page addresses of 8 bytes, or indirect entries of 16) follows.
    CreateMkeyIn = "create_mkey_in" [272] {
        PG_ACCESS: field(0x0c, 31, 31),
        MKEY_UMEM_VALID: field(0x0c, 30, 30),
        MEMORY_KEY_MKEY_ENTRY: run(0x10, 64),
        TRANSLATIONS_OCTWORD_ACTUAL_SIZE: field(0x60, 31, 0),
    }

    /// The index: the key without its variable bits.
    CreateMkeyOut = "create_mkey_out" [16] {
        MKEY_INDEX: field(0x08, 23, 0),
    }

    /// Asks for a key's context.
    QueryMkeyIn = "query_mkey_in" [16] {
        MKEY_INDEX: field(0x08, 23, 0),
    }

    /// The context.
    QueryMkeyOut = "query_mkey_out" [304] {
        MEMORY_KEY_MKEY_ENTRY: run(0x10, 64),
    }

    /// Destroys a key.
    DestroyMkeyIn = "destroy_mkey_in" [16] {
        MKEY_INDEX: field(0x08, 23, 0),
    }
}

/// What an mkey's addresses lead to: `access_mode_1_0`, with `access_mode_4_2` above it.
/// Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_MKC_ACCESS_MODE_*`.
pub mod access_mode {
    /// Physical addresses, no list.
    pub const PA: u32 = 0x0;
    /// A list of pages of one size.
    pub const MTT: u32 = 0x1;
    /// A list of address, length and key.
    pub const KLM: u32 = 0x2;
    /// The same with pieces of one size.
    pub const KSM: u32 = 0x3;
    /// Steering memory of the device, managed by software.
    pub const SW_ICM: u32 = 0x4;
    /// Memory on the device.
    pub const MEMIC: u32 = 0x5;
}
