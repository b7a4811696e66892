//! What a context can map one by one, by its offset in the device's file.

use std::collections::BTreeMap;

use pollux_mlx5_abi::kernel::mmap;

/// First page offset of pages that were allocated one by one. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`,
/// `MLX5_IB_MMAP_OFFSET_START`.
const FIRST_OFFSET: u32 = 9 << 16;

/// The last one, `MLX5_IB_MMAP_OFFSET_END`.
const LAST_OFFSET: u32 = (255 << 16) + 0xffff;

/// Pages that were allocated one by one, by their offset in the file, counted in pages as the kernel keeps them.
#[derive(Debug, Default)]
pub(crate) struct Maps(BTreeMap<u32, Mapped>);

#[derive(Clone, Copy, Debug)]
pub(super) enum Mapped {
    Uar {
        uar: u32,
        write_combining: bool,
    },
    /// Memory of the device, by its address on the bus.
    Memory {
        address: u64,
        bytes: u64,
    },
}

impl Maps {
    /// Adds memory of the device; the answer is the offset.
    pub(crate) fn add_memory(&mut self, address: u64, bytes: u64) -> Option<u32> {
        let first = mmap::DEVICE_MEM << 16;
        let offset = (first..=first + 0xffff).find(|offset| !self.0.contains_key(offset))?;
        self.0.insert(offset, Mapped::Memory { address, bytes });
        Some(offset)
    }

    /// Whether something can be mapped by this command and index.
    pub(crate) fn has(&self, (command, index): (u32, u16)) -> bool {
        self.get((command, index)).is_some()
    }

    pub(super) fn add(&mut self, mapped: Mapped) -> Option<u32> {
        let offset = (FIRST_OFFSET..=LAST_OFFSET).find(|offset| !self.0.contains_key(offset))?;
        self.0.insert(offset, mapped);
        Some(offset)
    }

    /// What a command and index map.
    pub(super) fn get(&self, (command, index): (u32, u16)) -> Option<Mapped> {
        self.0.get(&(command << 16 | u32::from(index))).copied()
    }

    /// Takes the offset of what went back to the firmware.
    pub(crate) fn remove(&mut self, offset: u32) {
        self.0.remove(&offset);
    }
}
