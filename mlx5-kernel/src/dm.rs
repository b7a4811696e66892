//! Memory of the device that it lends. Source: Linux `drivers/infiniband/hw/mlx5/dm.c`;
//! `drivers/infiniband/core/uverbs_std_types_dm.c`.

pub(crate) mod page;

use std::sync::Arc;

use pollux_mlx5_abi::caps::roce::DeviceMemoryCaps;
use pollux_mlx5_abi::command::memory::{AllocMemicIn, AllocMemicOut, DeallocMemicIn};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::kernel::attribute::alloc_dm;
use pollux_mlx5_abi::kernel::mmap;
use pollux_mlx5_abi::kernel::verbs::device_memory;
use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Errno};

use crate::core::Core;
use crate::firmware::{SHORT, begin};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;
use crate::umem::PAGE;

/// Pieces are whole units of so many bytes. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`,
/// `MLX5_MEMIC_BASE_SIZE`; its logarithm is `MLX5_MEMIC_BASE_ALIGN`.
const UNIT: u64 = 64;

/// A piece of the memory.
#[derive(Debug)]
pub(crate) struct Dm {
    /// Where it begins on the device's bus.
    pub(crate) address: u64,
    /// As long as was asked for.
    pub(crate) bytes: u64,
    size: u64,
    first_page: usize,
    /// Its place among what can be mapped.
    offset: u32,
    lives: bool,
}

impl Object for Dm {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Dm
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        if self.lives {
            give_back(core, self.address, self.size)?;
            core.device_pages.put(self.first_page, self.size.div_ceil(PAGE) as usize);
            self.lives = false;
        }
        Ok(())
    }

    fn offset(&self) -> Option<u32> {
        Some(self.offset)
    }
}

fn give_back(core: &Core, address: u64, size: u64) -> Result<(), Errno> {
    let mut input: [u8; DeallocMemicIn::BYTES] = begin(opcode::DEALLOC_MEMIC, 0, 0);
    DeallocMemicIn::MEMIC_START_ADDR.set(&mut input, address);
    DeallocMemicIn::MEMIC_SIZE.set(&mut input, size as u32);
    core.execute(&input, &mut [0; SHORT])
}

impl Session {
    /// `DMABUF/ALLOC`, as of a kernel that is built without `CONFIG_PCI_P2PDMA`: behind the model is no PCI device whose memory
    /// others could reach. Source: Linux `drivers/infiniband/core/uverbs_std_types_dmabuf.c`;
    /// `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_pgoff_to_mmap_entry` and `mlx5_ib_mmap_get_pfns`.
    pub(crate) fn export_dmabuf(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let place = mmap::of(call.number(id::dmabuf::alloc::PGOFF)?, PAGE).ok_or(Errno::EINVAL)?;
        let known = self.granted()?.maps.has(place);
        Err(if known { Errno::EOPNOTSUPP } else { Errno::EINVAL })
    }

    /// `DM/ALLOC`.
    pub(crate) fn alloc_dm(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::dm::alloc as a;
        let kind = if call.find(alloc_dm::REQ_TYPE).is_some() { call.number(alloc_dm::REQ_TYPE)? } else { 0 };
        let core = Arc::clone(&self.core);
        if kind != device_memory::MEMIC || !core.caps.has_device_memory() {
            return Err(Errno::EOPNOTSUPP);
        }
        let bytes = call.number(a::LENGTH)?;
        let log_align: u32 = call.input_as(a::ALIGNMENT)?;
        let size = bytes.checked_next_multiple_of(UNIT).filter(|size| *size != 0).ok_or(Errno::EINVAL)?;
        let align = log_align.saturating_sub(UNIT.ilog2());
        let whole = u64::from(core.caps.device_memory(DeviceMemoryCaps::MEMIC_BAR_SIZE));
        if align > core.caps.device_memory(DeviceMemoryCaps::LOG_MAX_MEMIC_ADDR_ALIGNMENT) {
            return Err(Errno::EINVAL);
        }
        if size > whole {
            return Err(Errno::ENOMEM);
        }
        let (address, first_page) = carve(&core, size, align)?;
        let maps = self.granted_mut().map(|granted| granted.maps.add_memory(address, size));
        let Ok(Some(offset)) = maps else {
            give_back(&core, address, size)?;
            core.device_pages.put(first_page, size.div_ceil(PAGE) as usize);
            return Err(Errno::ENOMEM);
        };
        let dm = Dm { address, bytes, size, first_page, offset, lives: true };
        let handle = self.handles.add(dm, &[]);
        call.create(a::HANDLE, handle)?;
        call.reply(alloc_dm::RESP_PAGE_INDEX, &(offset as u16))?;
        call.reply(alloc_dm::RESP_START_OFFSET, &(address % PAGE))
    }
}

/// Has the firmware give out a piece in pages that nobody else has; the answer is where it is, and its first page.
fn carve(core: &Core, size: u64, log_align: u32) -> Result<(u64, usize), Errno> {
    let start = core.caps.device_memory_start();
    let all = u64::from(core.caps.device_memory(DeviceMemoryCaps::MEMIC_BAR_SIZE)) / PAGE;
    let count = size.div_ceil(PAGE);
    let mut from = 0;
    while let Some(first) = core.device_pages.take(from, count as usize, all as usize) {
        let mut input: [u8; AllocMemicIn::BYTES] = begin(opcode::ALLOC_MEMIC, 0, 0);
        AllocMemicIn::LOG_MEMIC_ADDR_ALIGNMENT.set(&mut input, log_align);
        AllocMemicIn::RANGE_START_ADDR.set(&mut input, start.wrapping_add(first as u64 * PAGE));
        // Both are below the size of the whole, which has 32 bits.
        AllocMemicIn::RANGE_SIZE.set(&mut input, (count * PAGE) as u32);
        AllocMemicIn::MEMIC_SIZE.set(&mut input, size as u32);
        let mut output = AllocMemicOut::ZERO;
        match core.execute(&input, &mut output) {
            Ok(()) => return Ok((AllocMemicOut::MEMIC_START_ADDR.get(&output), first)),
            Err(errno) => {
                core.device_pages.put(first, count as usize);
                // Something else is in that range; the next one may do.
                if errno != Errno::EAGAIN {
                    return Err(errno);
                }
            }
        }
        from = first + 1;
    }
    Err(Errno::ENOMEM)
}
