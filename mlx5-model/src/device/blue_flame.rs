//! A work entry that came with its doorbell: its copy in memory is not looked at.

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
