//! How software tells the adapter of new work and of space: records in memory, registers in a UAR page.
//!
//! ```text
//!   send:     1. write the entry into the ring
//!             2. barrier; SQ record := index after the last block
//!             3. barrier; 8 bytes (the head of the last entry) -> UAR + 0x800, or with BlueFlame the whole entry
//!             4. barrier of write combining before the next register
//!   receive:  1. write entries   2. barrier; RQ record := entries posted in all      (no register)
//!   complete: 1. read entries    2. CQ record[0] := entries consumed in all          (no register)
//!   arm:      1. CQ record[1] := arm word   2. barrier; (arm word, queue) -> UAR + 0x20
//!   events:   (queue, entries consumed) -> UAR + 0x40 and arm, or + 0x48 and do not
//! ```
//!
//! Records are big-endian dwords in memory that the adapter reads.

use std::mem::offset_of;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Doorbell record of a queue pair, and of a send or receive queue alone.
///
/// Source: Linux `include/linux/mlx5/qp.h`, `MLX5_RCV_DBR`, `MLX5_SND_DBR`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct QueueRecord {
    /// Receive entries posted in all, 16 bits.
    pub receive: U32,
    /// Index after the last block of send work, 16 bits.
    pub send: U32,
}

const _: () = assert!(size_of::<QueueRecord>() == 8 && offset_of!(QueueRecord, send) == 4);

/// Doorbell record of a completion queue.
///
/// Source: Linux `include/linux/mlx5/cq.h`, `mlx5_cq_set_ci`, `mlx5_cq_arm`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct CqRecord {
    /// Entries consumed in all, 24 bits.
    pub consumer: U32,
    /// The last [`ArmWord`].
    pub arm: U32,
}

const _: () = assert!(size_of::<CqRecord>() == 8 && offset_of!(CqRecord, arm) == 4);

/// What arms a completion queue: for which completion, and as which of its turns.
///
/// Source: Linux `include/linux/mlx5/cq.h`, `mlx5_cq_arm`; rdma-core `providers/mlx5/mlx5dv.h`,
/// `MLX5_CQ_DB_REQ_NOT_SOL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmWord {
    /// Counts events that were taken, 2 bits: an arm with an old one is a repetition.
    pub sequence: u8,
    /// Only for a solicited completion or an error.
    pub solicited_only: bool,
    /// Entries consumed in all, 24 bits.
    pub consumer: u32,
}

impl ArmWord {
    /// The word as written to record and register.
    #[must_use]
    #[inline]
    pub const fn word(self) -> u32 {
        (self.sequence as u32 & 3) << 28 | (self.solicited_only as u32) << 24 | self.consumer & INDEX_24
    }

    /// Takes a word apart.
    #[must_use]
    #[inline]
    pub const fn of(word: u32) -> Self {
        Self {
            sequence: (word >> 28 & 3) as u8,
            solicited_only: word & 1 << 24 != 0,
            consumer: word & INDEX_24,
        }
    }

    /// The 8 bytes for the [`uar::CQ_ARM`] register.
    #[must_use]
    #[inline]
    pub const fn register(self, cqn: u32) -> [u8; 8] {
        ((self.word() as u64) << 32 | cqn as u64).to_be_bytes()
    }
}

/// Bits that an index of a completion or event queue has. Source: DPDK `drivers/common/mlx5/mlx5_prm.h`,
/// `MLX5_CQ_INDEX_WIDTH`.
pub const INDEX_24: u32 = 0xff_ffff;

/// The 4 bytes for [`uar::EQ_ARM`] or [`uar::EQ_CONSUMER`]: the queue in the top byte, entries consumed below.
///
/// Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/lib/eq.h`, `eq_update_ci`.
#[must_use]
#[inline]
pub const fn eq_register(eqn: u8, consumer: u32) -> [u8; 4] {
    ((eqn as u32) << 24 | consumer & INDEX_24).to_be_bytes()
}

/// A UAR page: the registers of a user.
///
/// Source: Linux `include/linux/mlx5/doorbell.h`, `include/linux/mlx5/device.h`; rdma-core
/// `providers/mlx5/mlx5dv.h`.
pub mod uar {
    /// Bytes of a page, whatever the host's page size. Source: Linux `include/linux/mlx5/device.h`,
    /// `MLX5_ADAPTER_PAGE_SIZE`.
    pub const PAGE_BYTES: usize = 4096;
    /// Completion queue arm, 8 bytes. Source: Linux `include/linux/mlx5/doorbell.h`, `MLX5_CQ_DOORBELL`.
    pub const CQ_ARM: usize = 0x20;
    /// Event queue consumer, and arm, 4 bytes. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/lib/eq.h`,
    /// `MLX5_EQ_DOORBEL_OFFSET`.
    pub const EQ_ARM: usize = 0x40;
    /// Event queue consumer alone, 4 bytes: two dwords on.
    pub const EQ_CONSUMER: usize = 0x48;
    /// First send doorbell and BlueFlame buffer. Source: Linux `include/linux/mlx5/doorbell.h`, `MLX5_BF_OFFSET`.
    pub const BLUE_FLAME: usize = 0x800;
    /// Bytes from one send doorbell to the next, and of one BlueFlame buffer, with `log_bf_reg_size` 9: a register is
    /// two buffers used in turn.
    pub const BLUE_FLAME_BYTES: usize = 0x100;
    /// Registers (pairs of buffers) in a page that anybody may use. Source: Linux `include/linux/mlx5/device.h`,
    /// `MLX5_NON_FP_BFREGS_PER_UAR`.
    pub const REGISTERS: usize = 2;
    /// All of them, those of the fast path included. Source: Linux `include/linux/mlx5/device.h`,
    /// `MLX5_BFREGS_PER_UAR`.
    pub const REGISTERS_ALL: usize = 4;

    /// Where buffer `turn & 1` of register `register` begins, with `log_bf_reg_size` 9.
    ///
    /// ```
    /// use pollux_mlx5_abi::doorbell::uar::blue_flame;
    ///
    /// assert_eq!([blue_flame(0, 0), blue_flame(0, 1), blue_flame(1, 0), blue_flame(1, 1)], [0x800, 0x900, 0xa00, 0xb00]);
    /// ```
    #[must_use]
    #[inline]
    pub const fn blue_flame(register: usize, turn: usize) -> usize {
        BLUE_FLAME + (register % REGISTERS_ALL) * 2 * BLUE_FLAME_BYTES + (turn & 1) * BLUE_FLAME_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::{ArmWord, eq_register};

    #[test]
    fn an_arm_word_comes_apart_as_it_was_put_together() {
        for sequence in 0..4 {
            for solicited_only in [false, true] {
                for consumer in [0, 1, 0x7f_ffff, 0xff_ffff] {
                    let arm = ArmWord { sequence, solicited_only, consumer };
                    assert_eq!(ArmWord::of(arm.word()), arm);
                }
            }
        }
    }

    #[test]
    fn indices_are_cut_to_their_width() {
        let arm = ArmWord { sequence: 7, solicited_only: true, consumer: 0x1234_5678 };
        assert_eq!(arm.word(), 0x3134_5678);
        assert_eq!(arm.register(0x42), [0x31, 0x34, 0x56, 0x78, 0, 0, 0, 0x42]);
        assert_eq!(eq_register(5, 0x1234_5678), [5, 0x34, 0x56, 0x78]);
    }
}
