//! Bringing the function up and down: enabling, interface version, pages, adapter facts.
//!
//! The host lends the firmware memory in 4 KiB pages: [`QueryPagesOut`] says how many it wants, [`ManagePagesIn`] with
//! [`GIVE`](page_request::GIVE) carries their addresses, with [`TAKE`](page_request::TAKE) asks for some back.

use crate::layout::layouts;

layouts! {
    /// Function 0 is the one that asks.
    EnableHcaIn = "enable_hca_in" [16] {
        EMBEDDED_CPU_FUNCTION: field(0x08, 31, 31),
        FUNCTION_ID: field(0x08, 15, 0),
    }

    /// The reverse, after all pages are back.
    DisableHcaIn = "disable_hca_in" [16] {
        EMBEDDED_CPU_FUNCTION: field(0x08, 31, 31),
        FUNCTION_ID: field(0x08, 15, 0),
    }

    /// Which interface revisions the firmware speaks: bit n of the mask is revision n.
    QueryIssiOut = "query_issi_out" [112] {
        CURRENT_ISSI: field(0x08, 15, 0),
        SUPPORTED_ISSI_DW0: field(0x6c, 31, 0),
    }

    /// The revision to speak from here on.
    SetIssiIn = "set_issi_in" [16] {
        CURRENT_ISSI: field(0x08, 15, 0),
    }

    /// How many pages are wanted; op_mod is a [`page_phase`].
    QueryPagesIn = "query_pages_in" [16] {
        EMBEDDED_CPU_FUNCTION: field(0x08, 31, 31),
        FUNCTION_ID: field(0x08, 15, 0),
    }

    /// A negative number (two's complement) offers pages back.
    QueryPagesOut = "query_pages_out" [16] {
        EMBEDDED_CPU_FUNCTION: field(0x08, 31, 31),
        FUNCTION_ID: field(0x08, 15, 0),
        NUM_PAGES: field(0x0c, 31, 0),
    }

    /// Gives or takes pages; op_mod is a [`page_request`]; addresses, 8 bytes each, follow.
    ManagePagesIn = "manage_pages_in" [16] {
        EMBEDDED_CPU_FUNCTION: field(0x08, 31, 31),
        FUNCTION_ID: field(0x08, 15, 0),
        INPUT_NUM_ENTRIES: field(0x0c, 31, 0),
    }

    /// Addresses of the pages given back follow.
    ManagePagesOut = "manage_pages_out" [16] {
        OUTPUT_NUM_ENTRIES: field(0x08, 31, 0),
    }

    /// Ends the bring-up: commands on objects are accepted from here on.
    InitHcaIn = "init_hca_in" [32] {
        SW_VHCA_ID: field(0x0c, 29, 16),
        SW_OWNER_ID: run(0x10, 16),
    }

    /// Ends the function's life; the profile says how gently.
    TeardownHcaIn = "teardown_hca_in" [16] {
        PROFILE: field(0x08, 15, 0),
    }

    /// Whether a forced teardown was done.
    TeardownHcaOut = "teardown_hca_out" [16] {
        STATE: field(0x0c, 0, 0),
    }

    /// Facts of the board.
    QueryAdapterOut = "query_adapter_out" [272] {
        QUERY_ADAPTER_STRUCT: run(0x10, 256),
    }

    /// Vendor and board: the last 16 bytes of the vendor data are the board's PSID.
    AdapterParameters = "query_adapter_param_block" [256] {
        IEEE_VENDOR_ID: field(0x18, 23, 0),
        VSD_VENDOR_ID: field(0x1c, 15, 0),
        VSD: run(0x20, 208),
        VSD_CONTD_PSID: run(0xf0, 16),
    }

    /// Keys that the firmware made: the reserved lkey, the null mkey, the one for DUMP.
    QuerySpecialContextsOut = "query_special_contexts_out" [32] {
        DUMP_FILL_MKEY: field(0x08, 31, 0),
        RESD_LKEY: field(0x0c, 31, 0),
        NULL_MKEY: field(0x10, 31, 0),
    }
}

/// op_mod of QUERY_PAGES. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_QUERY_PAGES_IN_OP_MOD_*`.
pub mod page_phase {
    /// Before INIT_HCA, for booting.
    pub const BOOT: u16 = 1;
    /// Before INIT_HCA, for its work.
    pub const INIT: u16 = 2;
    /// While it runs.
    pub const REGULAR: u16 = 3;
}

/// op_mod of MANAGE_PAGES. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/pagealloc.c`, `MLX5_PAGES_*`.
pub mod page_request {
    /// The host cannot give what was asked.
    pub const CANNOT_GIVE: u16 = 0;
    /// Pages go to the firmware.
    pub const GIVE: u16 = 1;
    /// Pages come back.
    pub const TAKE: u16 = 2;
}
