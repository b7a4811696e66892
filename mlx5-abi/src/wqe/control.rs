use std::mem::offset_of;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::opcode::send;

/// First segment of every send entry: what to do, on which queue, how long, and who is told.
///
/// Its first 8 bytes are also what a doorbell writes.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_ctrl_seg`; Linux `include/linux/mlx5/qp.h`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Control {
    /// Bits 31 to 24: modifier of the opcode; 23 to 8: index of the entry's first block, running on past the ring's
    /// end; 7 to 0: opcode.
    pub opmod_idx_opcode: U32,
    /// Bits 31 to 8: number of the queue; 5 to 0: length in segments.
    pub qpn_ds: U32,
    /// Check byte over the entry, where the queue asks for one.
    pub signature: u8,
    /// Reserved, or the stream of a dynamically connected initiator.
    pub dci_stream_channel_id: [u8; 2],
    /// Fence (bits 7 to 5), completion (3 and 2), solicited (1).
    pub fm_ce_se: u8,
    /// Immediate data, key to invalidate, mkey to change, or TIS.
    pub imm: U32,
}

const _: () = assert!(size_of::<Control>() == 16);
const _: () = assert!(offset_of!(Control, fm_ce_se) == 11 && offset_of!(Control, imm) == 12);

/// A signature byte that says nothing.
pub const SIGNATURE_OFF: u8 = 0;

/// In `fm_ce_se`: the receiver is asked to raise an event. Source: rdma-core `providers/mlx5/mlx5dv.h`,
/// `MLX5_WQE_CTRL_SOLICITED`.
pub const SOLICITED: u8 = 1 << 1;

/// When an entry makes a completion; bits 3 and 2 of `fm_ce_se`.
///
/// Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `enum mlx5_completion_mode`; Linux `include/linux/mlx5/qp.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Completion {
    /// Only if it fails.
    OnError = 0 << 2,
    /// Only if it fails and none before it did.
    OnFirstError = 1 << 2,
    /// Always.
    Always = 2 << 2,
    /// Always, with an event.
    AlwaysAndEvent = 3 << 2,
}

/// What an entry waits for before it starts; bits 7 to 5 of `fm_ce_se`.
///
/// Source: Linux `include/linux/mlx5/qp.h`, `MLX5_FENCE_MODE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fence {
    /// Nothing.
    None = 0 << 5,
    /// Local work on keys.
    InitiatorSmall = 1 << 5,
    /// Reads and atomics before it.
    Fence = 2 << 5,
    /// All before it.
    StrongOrdering = 3 << 5,
    /// Both the first two.
    SmallAndFence = 4 << 5,
}

impl Control {
    /// An entry of `segments` segments on queue `qpn`, beginning at block `index`.
    ///
    /// `flags` is a [`Completion`], a [`Fence`] and [`SOLICITED`] joined. Bits that a part cannot hold are cut, as
    /// the ring wraps the index: nothing is checked on the way to the device.
    #[must_use]
    #[inline]
    pub const fn new(
        opcode: u8,
        modifier: u8,
        index: u16,
        qpn: u32,
        segments: u8,
        flags: u8,
        imm: u32,
    ) -> Self {
        Self {
            opmod_idx_opcode: U32::new((modifier as u32) << 24 | (index as u32) << 8 | opcode as u32),
            qpn_ds: U32::new(qpn << 8 | (segments & 0x3f) as u32),
            signature: SIGNATURE_OFF,
            dci_stream_channel_id: [0; 2],
            fm_ce_se: flags,
            imm: U32::new(imm),
        }
    }

    /// The same bytes as two words, which two stores write.
    #[inline]
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        let [channel, stream] = self.dci_stream_channel_id;
        let head = (self.opmod_idx_opcode.get() as u64) << 32 | self.qpn_ds.get() as u64;
        let tail = (self.signature as u64) << 56
            | (channel as u64) << 48
            | (stream as u64) << 40
            | (self.fm_ce_se as u64) << 32
            | self.imm.get() as u64;
        [head.to_be(), tail.to_be()]
    }

    /// An entry that does nothing, of one block: padding before the ring's end, or a completion to wait for.
    #[must_use]
    pub const fn nop(index: u16, qpn: u32, completion: Completion) -> Self {
        Self::new(send::NOP, 0, index, qpn, 1, completion as u8, 0)
    }

    /// What to do: one of [`send`].
    #[must_use]
    #[inline]
    pub const fn opcode(&self) -> u8 {
        self.opmod_idx_opcode.get() as u8
    }

    /// Modifier of the opcode.
    #[must_use]
    #[inline]
    pub const fn modifier(&self) -> u8 {
        (self.opmod_idx_opcode.get() >> 24) as u8
    }

    /// Index of the entry's first block.
    #[must_use]
    #[inline]
    pub const fn index(&self) -> u16 {
        (self.opmod_idx_opcode.get() >> 8) as u16
    }

    /// Number of the queue.
    #[must_use]
    #[inline]
    pub const fn qpn(&self) -> u32 {
        self.qpn_ds.get() >> 8
    }

    /// Length in segments of 16 bytes, this one included.
    #[must_use]
    #[inline]
    pub const fn segments(&self) -> u8 {
        (self.qpn_ds.get() & 0x3f) as u8
    }

    /// When it makes a completion.
    #[must_use]
    #[inline]
    pub const fn completion(&self) -> Completion {
        match self.fm_ce_se >> 2 & 3 {
            0 => Completion::OnError,
            1 => Completion::OnFirstError,
            2 => Completion::Always,
            _ => Completion::AlwaysAndEvent,
        }
    }

    /// What it waits for; `None` is a mode that does not exist.
    #[must_use]
    #[inline]
    pub const fn fence(&self) -> Option<Fence> {
        match self.fm_ce_se >> 5 {
            0 => Some(Fence::None),
            1 => Some(Fence::InitiatorSmall),
            2 => Some(Fence::Fence),
            3 => Some(Fence::StrongOrdering),
            4 => Some(Fence::SmallAndFence),
            _ => None,
        }
    }

    /// Whether the receiver is asked to raise an event.
    #[must_use]
    #[inline]
    pub const fn solicited(&self) -> bool {
        self.fm_ce_se & SOLICITED != 0
    }

    /// The first 8 bytes in memory order: what a doorbell or the start of a BlueFlame write carries.
    #[must_use]
    #[inline]
    pub const fn head(&self) -> [u8; 8] {
        let (one, two) = (self.opmod_idx_opcode.to_bytes(), self.qpn_ds.to_bytes());
        [one[0], one[1], one[2], one[3], two[0], two[1], two[2], two[3]]
    }
}
