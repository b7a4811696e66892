//! Where a pool's mbufs are, as the device sees them.
#![expect(unsafe_code, reason = "looks at mbufs by their addresses")]

use std::ptr::NonNull;

use pollux_mempool::{Mbuf, MbufPool};

use super::UNKNOWN;
use pollux_mlx5_common::key::{Key, Keys};

/// What leads from a pool's mbuf to the address and key of its room.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::eth) struct Place {
    /// From an mbuf's address to its data room, where that is the same for all of the pool.
    room_at: Option<usize>,
    /// The key that serves the whole pool.
    key: Option<Key>,
    /// Bytes of the room.
    room: u32,
}

impl Place {
    /// Looks at a pool's memory.
    ///
    /// # Errors
    /// The device does not know it.
    pub(super) fn of(pool: &MbufPool, keys: &mut Keys) -> Result<Self, String> {
        let regions = pool.regions();
        let unknown = regions.iter().find(|region| {
            region.data && keys.covering(region.base.as_ptr().addr() as u64, region.bytes as u64).is_none()
        });
        if let Some(region) = unknown {
            return Err(format!(
                "pool {} has {} bytes that the device does not know",
                pool.name(),
                region.bytes
            ));
        }
        let room_at = regions.iter().all(|region| region.data).then(|| {
            let (raw, room) = pool.addresses().next()?;
            Some(room.as_ptr().addr() - raw.as_ptr().addr())
        });
        let key = match &regions[..] {
            [only] => keys.covering(only.base.as_ptr().addr() as u64, only.bytes as u64),
            _ => None,
        };
        Ok(Self { room_at: room_at.flatten(), key, room: pool.data_room() as u32 })
    }

    /// Whether one key serves all of the pool.
    #[inline(always)]
    pub(super) fn is_whole(&self) -> bool {
        self.key.is_some()
    }

    /// The key that serves the whole pool, or one that the device refuses.
    pub(super) fn usual(&self) -> Key {
        self.key.unwrap_or(UNKNOWN)
    }

    /// What is added to an mbuf's address to make it that of its room as the device sees it, where that is the same for all of the pool.
    #[inline(always)]
    pub(super) fn distance(&self) -> Option<u64> {
        Some((self.room_at? as u64).wrapping_add(self.key?.delta))
    }

    /// The address at which the device is to write into an mbuf that waits, `offset` into its room, and its key.
    #[inline(always)]
    pub(super) fn target(&self, keys: &mut Keys, raw: NonNull<u8>, offset: u32) -> (u64, Key) {
        let room = match self.room_at {
            Some(distance) => raw.as_ptr().addr() as u64 + distance as u64,
            None => {
                // SAFETY: the mbuf is the queue's; it is given away again at once.
                let mbuf = unsafe { Mbuf::from_raw(raw) };
                let room = mbuf.room_ptr().addr() as u64;
                let _ = mbuf.into_raw();
                room
            }
        };
        let address = room + u64::from(offset);
        let key = match self.key {
            Some(key) => key,
            // A pool's memory is known when the queue is made, and stays; what is not known the device refuses.
            None => keys.find(room, u64::from(self.room)).unwrap_or(UNKNOWN),
        };
        (address.wrapping_add(key.delta), key)
    }
}
