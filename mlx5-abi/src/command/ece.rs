//! Enhanced connection establishment (ECE): options that two devices of this vendor agree on for a queue pair.
//!
//! ```text
//!   bits 31..28  version: 0 none, 1 begins, 2 has selective repeat, 3 congestion control too
//!   bits  8..1   algorithms of congestion control
//!   bit   0      selective repeat
//! ```
//!
//! Source: openucx/ucx `src/uct/ib/mlx5/ece.h` (version, selective repeat) and, in a later proposal, `src/uct/ib/base/ece.h`
//! (congestion control, what both have: each its own way); rdma-core `providers/mlx5/verbs.c`, where queue pairs begin with
//! version 1.

/// The vendor that the options are of: its PCI number. Source: rdma-core `providers/mlx5/mlx5.c`, `PCI_VENDOR_ID_MELLANOX`.
pub const VENDOR: u32 = 0x15b3;

/// What a queue pair is made with to be told the device's own options.
pub const BEGIN: u32 = 1 << VERSION_SHIFT;

/// The newest version.
pub const VERSION_MAX: u32 = 3;

/// Of packets that are lost those alone are sent again.
pub const SELECTIVE_REPEAT: u32 = 1;

/// Algorithms of congestion control, of which one is agreed on.
pub const CONGESTION: u32 = 0x1fe;

const VERSION_SHIFT: u32 = 28;

/// The version in options.
#[must_use]
pub const fn version(options: u32) -> u32 {
    options >> VERSION_SHIFT
}

/// What two ends have in common: the older version, what it knows of the options of both, and of the algorithms the lowest.
#[must_use]
pub fn agree(one: u32, other: u32) -> u32 {
    let version = version(one).min(version(other));
    let common = one & other;
    let algorithms = common & CONGESTION;
    let repeat = if version >= 2 { common & SELECTIVE_REPEAT } else { 0 };
    let algorithm = if version >= 3 { algorithms & algorithms.wrapping_neg() } else { 0 };
    version << VERSION_SHIFT | repeat | algorithm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_common_is_what_both_have_and_the_older_version_knows() {
        for (one, other, common) in [
            (0, 0x3000_0001, 0),
            (0x3000_0001, 0x3000_000f, 0x3000_0001),
            (0x3000_0001, 0x2000_0001, 0x2000_0001),
            (0x3000_0001, 0x1000_0001, 0x1000_0000),
            (0x3000_0000, 0x3000_0001, 0x3000_0000),
            (0x3000_000e, 0x3000_01fd, 0x3000_0004),
            (0x2000_000f, 0x3000_000f, 0x2000_0001),
            // Bits that nobody knows, and versions to come.
            (0x3fff_ffff, 0xffff_fe00, 0x3000_0000),
        ] {
            assert_eq!(agree(one, other), common, "{one:#x} {other:#x}");
            assert_eq!(agree(other, one), common, "{other:#x} {one:#x}");
        }
        assert_eq!((version(BEGIN), version(u32::MAX)), (1, 15));
    }
}
