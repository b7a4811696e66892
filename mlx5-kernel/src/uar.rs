//! Doorbell pages: those that a context has from the start, those that are allocated one by one, and what can be mapped.
//!
//! Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `drivers/infiniband/hw/mlx5/qp.c` (`alloc_bfreg` and around).

pub(crate) mod map;
pub(crate) mod register;

use std::sync::Arc;

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::kernel::attribute::{devx_query_uar, uar_alloc};
use pollux_mlx5_abi::kernel::mmap;
use pollux_mlx5_abi::kernel::verbs::uar_type;
use pollux_uverbs::{Call, Errno, Page, Protection};

use crate::core::Core;
use crate::firmware::{SHORT, naming};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;
use crate::umem::PAGE;
use map::Mapped;

/// A UAR page that was allocated by itself.
#[derive(Debug)]
pub(crate) struct Uar {
    uar: u32,
    offset: u32,
}

impl Object for Uar {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Uar
    }

    fn end(&mut self, core: &Core, uid: u16) -> Result<(), Errno> {
        let input = naming(opcode::DEALLOC_UAR, uid, self.uar);
        core.execute(&input, &mut [0; SHORT])
    }

    fn offset(&self) -> Option<u32> {
        Some(self.offset)
    }
}

impl Session {
    /// `UAR/ALLOC`.
    pub(crate) fn alloc_uar(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let kind = call.number(uar_alloc::TYPE)?;
        let write_combining = match kind {
            uar_type::BF if self.core.write_combining => true,
            uar_type::NC => false,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let core = Arc::clone(&self.core);
        let uid = self.uid();
        let maps = &mut self.granted_mut()?.maps;
        let uar = register::alloc(&core, uid)?;
        let Some(offset) = maps.add(Mapped::Uar { uar, write_combining }) else {
            register::free(&core, uid, uar);
            return Err(Errno::ENOMEM);
        };
        let handle = self.handles.add(Uar { uar, offset }, &[]);
        call.create(uar_alloc::HANDLE, handle)?;
        call.reply(uar_alloc::MMAP_OFFSET, &mmap::offset(offset >> 16, offset as u16, PAGE))?;
        call.reply(uar_alloc::MMAP_LENGTH, &(PAGE as u32))?;
        call.reply(uar_alloc::PAGE_ID, &uar)
    }

    /// `DEVX/QUERY_UAR`.
    pub(crate) fn devx_query_uar(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let register: u32 = call.input_as(devx_query_uar::USER_IDX)?;
        let registers = self.granted()?.registers.as_ref().ok_or(Errno::EINVAL)?;
        let uar = registers.dynamic_uar(register)?;
        call.reply(devx_query_uar::DEV_IDX, &uar)
    }

    /// mmap(2) on the file. Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_mmap`.
    pub(crate) fn map(&mut self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.page(offset, bytes, protection).map(|page| page.limited_to(protection))
    }

    fn page(&mut self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        let core = Arc::clone(&self.core);
        let uid = self.uid();
        let granted = self.granted_mut()?;
        let (command, index) = mmap::of(offset, PAGE).ok_or(Errno::EINVAL)?;
        let one_page = bytes == PAGE as usize;
        let writes = protection != Protection::Read;
        match command {
            mmap::WC_PAGE | mmap::ALLOC_WC if !core.write_combining => Err(Errno::EPERM),
            mmap::WC_PAGE | mmap::ALLOC_WC | mmap::NC_PAGE | mmap::REGULAR_PAGE => {
                let registers = granted.registers.as_mut().ok_or(Errno::EINVAL)?;
                if !one_page {
                    return Err(Errno::EINVAL);
                }
                let uar = if command == mmap::ALLOC_WC {
                    registers.map_dynamic(&core, uid, index)?
                } else {
                    registers.fixed_uar(usize::from(index & 0xff))?
                };
                // The regular page is write combining where that works.
                let combining = command != mmap::NC_PAGE && core.write_combining;
                core.firmware.queue.uar(uar, combining).ok_or(Errno::EINVAL)
            }
            mmap::GET_CONTIGUOUS_PAGES => Err(Errno::ENOSYS),
            mmap::CORE_CLOCK if !one_page => Err(Errno::EINVAL),
            mmap::CORE_CLOCK if writes => Err(Errno::EPERM),
            mmap::CORE_CLOCK => core.firmware.queue.clock().ok_or(Errno::EOPNOTSUPP),
            mmap::CLOCK_INFO if !one_page => Err(Errno::EINVAL),
            mmap::CLOCK_INFO if index != 0 => Err(Errno::EOPNOTSUPP),
            mmap::CLOCK_INFO if writes => Err(Errno::EPERM),
            mmap::CLOCK_INFO => core.clock.as_ref().map(|clock| clock.info()).ok_or(Errno::EOPNOTSUPP),
            _ => match granted.maps.get((command, index)).ok_or(Errno::EINVAL)? {
                Mapped::Uar { uar, write_combining } if one_page => {
                    core.firmware.queue.uar(uar, write_combining).ok_or(Errno::EINVAL)
                }
                Mapped::Memory { address, bytes: size } if bytes as u64 == size.next_multiple_of(PAGE) => {
                    let page = core.firmware.queue.device_memory(address & !(PAGE - 1), bytes);
                    page.ok_or(Errno::EINVAL)
                }
                _ => Err(Errno::EINVAL),
            },
        }
    }
}
