//! Which page an offset into the device file maps.
//!
//! Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_mmap_cmd`; the encoding from
//! `providers/mlx5/mlx5.h`, `set_command`, `set_extended_index`. Pages that were allocated one by one (UAR objects,
//! device memory) are mapped at the offset that their allocation gave, which has the same form.

/// Pages of the static kind: index is the page of UARs.
pub const REGULAR_PAGE: u32 = 0;
/// Memory in one piece, in kernels that had it.
pub const GET_CONTIGUOUS_PAGES: u32 = 1;
/// The same, write combining asked for.
pub const WC_PAGE: u32 = 2;
/// The same, not cached.
pub const NC_PAGE: u32 = 3;
/// The page with the adapter's clock.
pub const CORE_CLOCK: u32 = 5;
/// One more UAR page, write combining, made by the mapping.
pub const ALLOC_WC: u32 = 6;
/// The page with [`ClockInfo`](super::context::ClockInfo).
pub const CLOCK_INFO: u32 = 7;
/// Memory of the device.
pub const DEVICE_MEM: u32 = 8;

/// Bits of a command. Source: rdma-core `providers/mlx5/mlx5.h`, `MLX5_IB_MMAP_CMD_MASK`.
const COMMAND_MASK: u64 = 0xff;

/// Where the command stands, counted in pages. Source: rdma-core `providers/mlx5/mlx5.h`, `MLX5_IB_MMAP_CMD_SHIFT`.
const COMMAND_SHIFT: u32 = 8;

/// Where the upper byte of the index stands, counted in pages.
const INDEX_SHIFT: u32 = 16;

/// The offset in bytes for a command and an index (16 bits), with pages of `page_bytes`.
///
/// ```
/// use pollux_mlx5_abi::kernel::mmap::{self, CORE_CLOCK};
///
/// assert_eq!(mmap::offset(CORE_CLOCK, 0, 4096), 0x50_0000);
/// assert_eq!(mmap::of(0x50_0000, 4096), Some((CORE_CLOCK, 0)));
/// ```
#[must_use]
pub const fn offset(command: u32, index: u16, page_bytes: u64) -> u64 {
    let index = index as u64;
    let pages = (command as u64 & COMMAND_MASK) << COMMAND_SHIFT | index & 0xff | index >> 8 << INDEX_SHIFT;
    pages * page_bytes
}

/// Command and index of an offset; `None` where it is no multiple of a page.
#[must_use]
pub const fn of(offset: u64, page_bytes: u64) -> Option<(u32, u16)> {
    if page_bytes == 0 || !offset.is_multiple_of(page_bytes) {
        return None;
    }
    let pages = offset / page_bytes;
    let index = pages & 0xff | (pages >> INDEX_SHIFT & 0xff) << 8;
    Some(((pages >> COMMAND_SHIFT & COMMAND_MASK) as u32, index as u16))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{of, offset};

    proptest! {
        #[test]
        fn command_and_index_come_back(command in 0..=0xff_u32, index: u16, log_page in 12..=16_u32) {
            let page = 1 << log_page;
            prop_assert_eq!(of(offset(command, index, page), page), Some((command, index)));
        }

        #[test]
        fn any_offset_can_be_asked(offset: u64, page: u64) {
            let known = of(offset, page).is_some();
            prop_assert_eq!(known, page != 0 && offset % page == 0);
        }
    }
}
