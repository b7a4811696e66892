//! Doorbell pages: those that a context has from the start, those that are allocated one by one, and what can be mapped.
//!
//! Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `drivers/infiniband/hw/mlx5/qp.c` (`alloc_bfreg` and around).

use std::collections::BTreeMap;
use std::sync::Arc;

use pollux_mlx5_abi::command::object::AllocUarOut;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::doorbell::uar::{REGISTERS, REGISTERS_ALL};
use pollux_mlx5_abi::kernel::attribute::{devx_query_uar, uar_alloc};
use pollux_mlx5_abi::kernel::context::ContextRequest;
use pollux_mlx5_abi::kernel::mmap;
use pollux_mlx5_abi::kernel::verbs::uar_type;
use pollux_uverbs::{Call, Errno, Page, Protection};

use crate::core::Core;
use crate::firmware::{SHORT, begin};
use crate::handle::Object;
use crate::session::Session;
use crate::start::free_uar;
use crate::umem::PAGE;

/// Most registers that a context may ask for. Source: Linux `include/linux/mlx5/driver.h`, `MLX5_MAX_BFREGS`.
const STATIC_MAX: u32 = 512;

/// Registers that can be had by mapping, beside the static ones. Source: Linux
/// `drivers/infiniband/hw/mlx5/mlx5_ib.h`, `MLX5_MAX_DYN_BFREGS`.
const DYNAMIC: u32 = 1024;

/// Told for a queue pair whose register its user chose. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`,
/// `MLX5_IB_INVALID_BFREG`.
pub(crate) const NO_REGISTER: u32 = 1 << 31;

/// First page offset of pages that were allocated one by one. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`,
/// `MLX5_IB_MMAP_OFFSET_START`.
const FIRST_OFFSET: u32 = 9 << 16;

/// The last one, `MLX5_IB_MMAP_OFFSET_END`.
const LAST_OFFSET: u32 = (255 << 16) + 0xffff;

/// Registers of the static kind: each UAR page has two that anybody may use, and a queue pair gets one.
#[derive(Debug)]
pub(crate) struct StaticRegisters {
    /// Pages given at the start, and those made by mapping.
    pages: Vec<Option<u32>>,
    fixed: usize,
    /// Queue pairs on each register.
    users: Vec<u32>,
    low_latency: u32,
    /// The request was of the second form.
    second: bool,
}

impl StaticRegisters {
    pub(crate) fn new(core: &Core, uid: u16, request: &ContextRequest, second: bool) -> Result<Self, Errno> {
        let per_page = REGISTERS as u32;
        if request.total_num_bfregs == 0 {
            return Err(Errno::EINVAL);
        }
        if request.total_num_bfregs > STATIC_MAX {
            return Err(Errno::ENOMEM);
        }
        let count = request.total_num_bfregs.next_multiple_of(per_page);
        if request.num_low_latency_bfregs > count - 1 {
            return Err(Errno::EINVAL);
        }
        let fixed = (count / per_page) as usize;
        let mut pages = Vec::new();
        for _ in 0..fixed {
            match alloc(core, uid) {
                Ok(uar) => pages.push(Some(uar)),
                Err(errno) => {
                    pages.into_iter().flatten().for_each(|uar| free_uar(core, uid, uar));
                    return Err(errno);
                }
            }
        }
        pages.resize(fixed + (DYNAMIC / per_page) as usize, None);
        let users = vec![0; pages.len() * REGISTERS];
        Ok(Self { pages, fixed, users, low_latency: request.num_low_latency_bfregs, second })
    }

    /// Registers of the static kind.
    pub(crate) fn count(&self) -> u32 {
        (self.fixed * REGISTERS) as u32
    }

    /// Registers that can be had by mapping.
    #[expect(clippy::unused_self, reason = "another host has another number")]
    pub(crate) fn dynamic(&self) -> u32 {
        DYNAMIC
    }

    /// The UAR for completion queues that name none.
    pub(crate) fn first_uar(&self) -> Option<u32> {
        self.pages.first().copied().flatten()
    }

    /// Chooses a register for a queue pair: one of its own, else the shared one with the fewest, else the first.
    pub(crate) fn take(&mut self) -> usize {
        let count = self.count() as usize;
        // The first is for plain doorbells, the last `low_latency` for one queue pair each.
        let own = (count - (self.low_latency as usize).min(count - 1)).min(count);
        let chosen = if self.second {
            let free = (own..count).find(|index| self.users[*index] == 0);
            free.or_else(|| (1..own).min_by_key(|index| self.users[*index])).unwrap_or(0)
        } else {
            0
        };
        self.users[chosen] += 1;
        chosen
    }

    /// A queue pair less on a register.
    pub(crate) fn give_back(&mut self, register: usize) {
        if let Some(users) = self.users.get_mut(register) {
            *users = users.saturating_sub(1);
        }
    }

    /// The UAR of a static register.
    pub(crate) fn uar(&self, register: usize) -> Result<u32, Errno> {
        self.pages.get(register / REGISTERS).copied().flatten().ok_or(Errno::EINVAL)
    }

    /// How a user counts a register: four a page, of which two are for everybody.
    pub(crate) const fn told(register: usize) -> u32 {
        (register / REGISTERS * REGISTERS_ALL + register % REGISTERS) as u32
    }

    /// The UAR of a register that was had by mapping.
    pub(crate) fn dynamic_uar(&self, register: u32) -> Result<u32, Errno> {
        if register > DYNAMIC {
            return Err(Errno::EINVAL);
        }
        let page = self.fixed + register as usize / REGISTERS;
        self.pages.get(page).copied().flatten().ok_or(Errno::EINVAL)
    }

    /// Makes a page by mapping it; each can be mapped once.
    fn map_dynamic(&mut self, core: &Core, uid: u16, index: u16) -> Result<u32, Errno> {
        let place = self.pages.get_mut(self.fixed + usize::from(index)).ok_or(Errno::EINVAL)?;
        if place.is_some() {
            return Err(Errno::EINVAL);
        }
        let uar = alloc(core, uid)?;
        *place = Some(uar);
        Ok(uar)
    }

    pub(crate) fn end(&self, core: &Core, uid: u16) {
        self.pages.iter().flatten().for_each(|uar| free_uar(core, uid, *uar));
    }
}

/// Pages that were allocated one by one, by their offset in the file, counted in pages as the kernel keeps them.
#[derive(Debug, Default)]
pub(crate) struct Maps(BTreeMap<u32, Mapped>);

#[derive(Clone, Copy, Debug)]
enum Mapped {
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
        self.0.contains_key(&(command << 16 | u32::from(index)))
    }

    fn add(&mut self, mapped: Mapped) -> Option<u32> {
        let offset = (FIRST_OFFSET..=LAST_OFFSET).find(|offset| !self.0.contains_key(offset))?;
        self.0.insert(offset, mapped);
        Some(offset)
    }
}

/// A UAR page that was allocated by itself.
#[derive(Debug)]
pub(crate) struct Uar {
    uar: u32,
    offset: u32,
}

impl Uar {
    pub(crate) fn end(&self, core: &Core, uid: u16) -> Result<(), Errno> {
        let input = crate::firmware::naming(opcode::DEALLOC_UAR, uid, self.uar);
        core.execute(&input, &mut [0; SHORT])
    }
}

fn alloc(core: &Core, uid: u16) -> Result<u32, Errno> {
    let input: [u8; SHORT] = begin(opcode::ALLOC_UAR, uid, 0);
    let mut output = AllocUarOut::ZERO;
    core.execute(&input, &mut output)?;
    Ok(AllocUarOut::UAR.get(&output))
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
        let uar = alloc(&core, uid)?;
        let Some(offset) = maps.add(Mapped::Uar { uar, write_combining }) else {
            free_uar(&core, uid, uar);
            return Err(Errno::ENOMEM);
        };
        let handle = self.handles.add(Object::Uar(Uar { uar, offset }), &[]);
        call.create(uar_alloc::HANDLE, handle)?;
        call.reply(uar_alloc::MMAP_OFFSET, &mmap::offset(offset >> 16, offset as u16, PAGE))?;
        call.reply(uar_alloc::MMAP_LENGTH, &(PAGE as u32))?;
        call.reply(uar_alloc::PAGE_ID, &uar)
    }

    /// Takes the offset of what went back to the firmware.
    pub(crate) fn unmap_of(&mut self, object: &Object) {
        let offset = match object {
            Object::Uar(uar) => uar.offset,
            Object::Dm(memory) => memory.offset,
            _ => return,
        };
        if let Some(granted) = &mut self.granted {
            granted.maps.0.remove(&offset);
        }
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
                } else if usize::from(index & 0xff) < registers.fixed {
                    registers.pages[usize::from(index & 0xff)].ok_or(Errno::EINVAL)?
                } else {
                    return Err(Errno::EINVAL);
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
            _ => {
                let mapped = granted.maps.0.get(&(command << 16 | u32::from(index)));
                match *mapped.ok_or(Errno::EINVAL)? {
                    Mapped::Uar { uar, write_combining } if one_page => {
                        core.firmware.queue.uar(uar, write_combining).ok_or(Errno::EINVAL)
                    }
                    Mapped::Memory { address, bytes: size }
                        if bytes as u64 == size.next_multiple_of(PAGE) =>
                    {
                        let page = core.firmware.queue.device_memory(address & !(PAGE - 1), bytes);
                        page.ok_or(Errno::EINVAL)
                    }
                    _ => Err(Errno::EINVAL),
                }
            }
        }
    }
}
