//! The command queue itself: its entries, its mailboxes, and the registers at the start of BAR 0 by which it is found.
//!
//! A command of up to 16 bytes stands in its entry; the rest of a longer one, and of its answer, in mailboxes that lead
//! to each other.

use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An entry.
///
/// Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_cmd_layout`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Entry {
    /// How it comes: [`PCI`].
    pub transport: u8,
    /// Reserved.
    pub reserved0: [u8; 3],
    /// Bytes of the command.
    pub input_bytes: U32,
    /// First mailbox of the command, or 0.
    pub input_mailbox: U64,
    /// First 16 bytes of the command.
    pub input: [u8; 16],
    /// First 16 bytes of the answer.
    pub output: [u8; 16],
    /// First mailbox of the answer, or 0.
    pub output_mailbox: U64,
    /// Bytes of the answer.
    pub output_bytes: U32,
    /// What its mailboxes must carry too.
    pub token: u8,
    /// Check byte, where the device asks for one.
    pub signature: u8,
    /// Reserved.
    pub reserved1: u8,
    /// Bit 0: the device's. Bits 7 to 1: one of [`delivery`].
    pub status_own: u8,
}

const _: () = assert!(size_of::<Entry>() == 64 && offset_of!(Entry, input) == 16);
const _: () = assert!(offset_of!(Entry, output_mailbox) == 48 && offset_of!(Entry, status_own) == 63);

/// The transport of an entry that comes over PCI. Source: Linux `include/linux/mlx5/device.h`,
/// `MLX5_PCI_CMD_XPORT`.
pub const PCI: u8 = 7;

/// In `status_own`: the device has it. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`, `CMD_OWNER_HW`.
pub const OWNER: u8 = 1;

/// How many entries a queue has at most. Source: Linux `include/linux/mlx5/device.h`, `MLX5_MAX_COMMANDS`.
pub const ENTRIES_MAX: usize = 32;

/// Whether a command arrived, whatever became of it: bits 7 to 1 of `status_own`.
///
/// Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`, `MLX5_CMD_DELIVERY_STAT_*`.
pub mod delivery {
    /// It did.
    pub const OK: u8 = 0x0;
    /// The check byte is wrong.
    pub const SIGNATURE_ERR: u8 = 0x1;
    /// The token is wrong.
    pub const TOKEN_ERR: u8 = 0x2;
    /// The number of a mailbox is wrong.
    pub const BAD_BLK_NUM_ERR: u8 = 0x3;
    /// The answer's mailbox is not aligned.
    pub const OUT_PTR_ALIGN_ERR: u8 = 0x4;
    /// The command's mailbox is not aligned.
    pub const IN_PTR_ALIGN_ERR: u8 = 0x5;
    /// The firmware failed.
    pub const FW_ERR: u8 = 0x6;
    /// The command's length is wrong.
    pub const IN_LENGTH_ERR: u8 = 0x7;
    /// The answer's length is wrong.
    pub const OUT_LENGTH_ERR: u8 = 0x8;
    /// Reserved bits are set.
    pub const RES_FLD_NOT_CLR_ERR: u8 = 0x9;
    /// The transport is wrong.
    pub const CMD_DESCR_ERR: u8 = 0x10;
}

/// A mailbox; it stands at a multiple of 1024 bytes.
///
/// Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_cmd_prot_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Mailbox {
    /// Bytes 16 to 527 of the command or answer, and so on.
    pub data: [u8; 512],
    /// Reserved.
    pub reserved0: [u8; 48],
    /// The next mailbox, or 0.
    pub next: U64,
    /// Its place in the list, from 0.
    pub block_num: U32,
    /// Reserved.
    pub reserved1: u8,
    /// As in the entry.
    pub token: u8,
    /// Check byte over these 16 bytes.
    pub control_signature: u8,
    /// Check byte over the whole.
    pub signature: u8,
}

const _: () = assert!(size_of::<Mailbox>() == 576 && offset_of!(Mailbox, next) == 560);
const _: () = assert!(offset_of!(Mailbox, block_num) == 568 && offset_of!(Mailbox, token) == 573);

/// Registers at the start of BAR 0, as byte offsets.
///
/// Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_init_seg`, `struct health_buffer`.
pub mod init_segment {
    /// Firmware revision: minor (bits 31 to 16), major.
    pub const FW_REV: usize = 0x0;
    /// Revision of the command interface (bits 31 to 16), sub-minor of the firmware.
    pub const CMDIF_REV_FW_SUB: usize = 0x4;
    /// Address of the command queue, upper half.
    pub const CMDQ_ADDR_H: usize = 0x10;
    /// Lower half; read, its low byte is the queue's size and stride as logarithms.
    pub const CMDQ_ADDR_L_SZ: usize = 0x14;
    /// One bit for each entry to start.
    pub const CMD_DBELL: usize = 0x18;
    /// Bit 31: still starting.
    pub const INITIALIZING: usize = 0x1fc;
    /// Health buffer.
    pub const HEALTH: usize = 0x200;
    /// In it, severity of the trouble.
    pub const HEALTH_SEVERITY: usize = 0x238;
    /// In it, what the trouble is; 0 is none.
    pub const HEALTH_SYNDROME: usize = 0x23d;
    /// The clock, upper half.
    pub const INTERNAL_TIMER_H: usize = 0x1000;
    /// Lower half.
    pub const INTERNAL_TIMER_L: usize = 0x1004;
    /// Moves while the device is well.
    pub const HEALTH_COUNTER: usize = 0x1010;
    /// Real time, seconds.
    pub const REAL_TIME_H: usize = 0x1040;
    /// Real time, nanoseconds.
    pub const REAL_TIME_L: usize = 0x1044;
}
