//! A work entry that came with its doorbell: its copy in memory is not looked at. And the turns of the buffers that such
//! entries are copied to.

use std::collections::BTreeMap;

use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::wqe::{self, BLOCK_BYTES, Control};

/// The entry at the head of what was stored in a BlueFlame buffer.
#[derive(Debug)]
pub(crate) struct CameAlong {
    /// Its first block.
    pub(crate) index: u16,
    bytes: [u8; uar::BLUE_FLAME_BYTES],
    length: usize,
}

impl CameAlong {
    /// The entry at the head of `bytes`, if all of it is there.
    pub(crate) fn of(control: &Control, bytes: &[u8]) -> Option<Self> {
        let length = wqe::blocks(control.segments().into()).max(1) * BLOCK_BYTES;
        // A plain doorbell brings none, and has no room made for it.
        let entry = bytes.get(..length)?;
        let mut room = [0; uar::BLUE_FLAME_BYTES];
        room.get_mut(..length)?.copy_from_slice(entry);
        Some(Self { index: control.index(), bytes: room, length })
    }

    /// The entry, in whole blocks.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Which of a register's two buffers was rung last.
///
/// A processor may hold back or split what it writes to a buffer, so the next entry goes to the other one, and so does the
/// doorbell behind an entry. Doorbells of 8 bytes may go to one buffer again and again, as Linux's network driver and DPDK
/// ring them. Source: rdma-core `providers/mlx5/qp.c`, `post_send_db`, where `bf->offset` changes.
#[derive(Debug, Default)]
pub(crate) struct Turns(BTreeMap<(u32, usize), Last>);

#[derive(Debug)]
struct Last {
    offset: usize,
    copied: bool,
    queue: u32,
}

impl Turns {
    /// A doorbell of a queue at `offset` of a page's register, an entry with it or not. False when it was the other buffer's turn.
    /// `lives` tells whether a queue is still there: of one that is gone nothing is on its way.
    pub(crate) fn ring(
        &mut self,
        register: (u32, usize),
        offset: usize,
        copied: bool,
        queue: u32,
        lives: impl Fn(u32) -> bool,
    ) -> bool {
        let now = Last { offset, copied, queue };
        let Some(last) = self.0.insert(register, now) else { return true };
        last.offset != offset || !(last.copied || copied) || !lives(last.queue)
    }

    /// A page went back.
    pub(crate) fn forget(&mut self, page: u32) {
        self.0.retain(|(of, _), _| *of != page);
    }
}
