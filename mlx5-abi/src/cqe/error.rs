use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Cqe64, part};
use crate::opcode::completion;
use crate::syndrome::Syndrome;

/// A completion of work that failed: opcode [`REQUESTER_ERROR`](completion::REQUESTER_ERROR) or
/// [`RESPONDER_ERROR`](completion::RESPONDER_ERROR).
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_err_cqe`; DPDK `drivers/common/mlx5/mlx5_prm.h`,
/// `struct mlx5_error_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct CqeError {
    /// Reserved.
    pub reserved0: [u8; 32],
    /// Shared receive queue, or what the user called the queue.
    pub srqn: U32,
    /// Reserved.
    pub reserved1: [u8; 16],
    /// The device's own code.
    pub hw_err_synd: u8,
    /// Its kind.
    pub hw_synd_type: u8,
    /// The vendor's code.
    pub vendor_err_synd: u8,
    /// The syndrome: one of [`Syndrome`]'s.
    pub syndrome: u8,
    /// Opcode of the work (bits 31 to 24) and queue pair.
    pub s_wqe_opcode_qpn: U32,
    /// Index of the entry that failed.
    pub wqe_counter: U16,
    /// Check byte.
    pub signature: u8,
    /// As in [`Cqe64`].
    pub op_own: u8,
}

const _: () = assert!(size_of::<CqeError>() == 64);
const _: () = assert!(offset_of!(CqeError, srqn) == 32 && offset_of!(CqeError, syndrome) == 55);
const _: () = assert!(offset_of!(CqeError, wqe_counter) == offset_of!(Cqe64, wqe_counter));

impl CqeError {
    /// The same bytes as an error, if that is what `entry` reports.
    #[must_use]
    pub fn of(entry: &Cqe64) -> Option<&Self> {
        matches!(entry.opcode(), completion::REQUESTER_ERROR | completion::RESPONDER_ERROR)
            .then(|| zerocopy::transmute_ref!(entry))
    }

    /// Why it failed.
    #[must_use]
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome { code: self.syndrome, vendor: self.vendor_err_synd }
    }

    /// Queue pair or queue.
    #[must_use]
    pub const fn qpn(&self) -> u32 {
        part::number(self.s_wqe_opcode_qpn.get())
    }

    /// Opcode of the work that failed: one of [`send`](crate::opcode::send).
    #[must_use]
    pub const fn send_opcode(&self) -> u8 {
        part::send_opcode(self.s_wqe_opcode_qpn.get())
    }
}
