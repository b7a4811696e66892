//! Memory on the device (MEMIC): pieces of its BAR that programs map and keys cover.

use crate::layout::layouts;

layouts! {
    /// A piece of `memic_size` bytes inside a range of bus addresses.
    AllocMemicIn = "alloc_memic_in" [32] {
        LOG_MEMIC_ADDR_ALIGNMENT: field(0x0c, 7, 0),
        RANGE_START_ADDR: wide(0x10, 63, 0),
        RANGE_SIZE: field(0x18, 31, 0),
        MEMIC_SIZE: field(0x1c, 31, 0),
    }

    /// Its bus address.
    AllocMemicOut = "alloc_memic_out" [16] {
        MEMIC_START_ADDR: wide(0x08, 63, 0),
    }

    /// Gives a piece back.
    DeallocMemicIn = "dealloc_memic_in" [32] {
        MEMIC_START_ADDR: wide(0x10, 63, 0),
        MEMIC_SIZE: field(0x18, 31, 0),
    }
}
