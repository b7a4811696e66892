//! Doorbell registers of the static kind, which a context has from the start. Source: Linux
//! `drivers/infiniband/hw/mlx5/qp.c`, `alloc_bfreg` and around.

use pollux_mlx5_abi::command::object::AllocUarOut;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::doorbell::uar::{REGISTERS, REGISTERS_ALL};
use pollux_mlx5_abi::kernel::context::ContextRequest;
use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::firmware::{SHORT, begin, naming};

/// Most registers that a context may ask for. Source: Linux `include/linux/mlx5/driver.h`, `MLX5_MAX_BFREGS`.
const STATIC_MAX: u32 = 512;

/// Registers that can be had by mapping, beside the static ones. Source: Linux
/// `drivers/infiniband/hw/mlx5/mlx5_ib.h`, `MLX5_MAX_DYN_BFREGS`.
const DYNAMIC: u32 = 1024;

/// Told for a queue pair whose register its user chose. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`,
/// `MLX5_IB_INVALID_BFREG`.
pub(crate) const NO_REGISTER: u32 = 1 << 31;

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
    pub(crate) fn new(
        adapter: &Adapter,
        uid: u16,
        request: &ContextRequest,
        second: bool,
    ) -> Result<Self, Errno> {
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
            match alloc(adapter, uid) {
                Ok(uar) => pages.push(Some(uar)),
                Err(errno) => {
                    pages.into_iter().flatten().for_each(|uar| free(adapter, uid, uar));
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

    /// The UAR of a page that is there from the start.
    pub(super) fn fixed_uar(&self, page: usize) -> Result<u32, Errno> {
        self.pages[..self.fixed].get(page).copied().flatten().ok_or(Errno::EINVAL)
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
    pub(super) fn map_dynamic(&mut self, adapter: &Adapter, uid: u16, index: u16) -> Result<u32, Errno> {
        let place = self.pages.get_mut(self.fixed + usize::from(index)).ok_or(Errno::EINVAL)?;
        if place.is_some() {
            return Err(Errno::EINVAL);
        }
        let uar = alloc(adapter, uid)?;
        *place = Some(uar);
        Ok(uar)
    }

    pub(crate) fn end(&self, adapter: &Adapter, uid: u16) {
        self.pages.iter().flatten().for_each(|uar| free(adapter, uid, *uar));
    }
}

pub(super) fn alloc(adapter: &Adapter, uid: u16) -> Result<u32, Errno> {
    let input: [u8; SHORT] = begin(opcode::ALLOC_UAR, uid, 0);
    let mut output = AllocUarOut::ZERO;
    adapter.execute(&input, &mut output)?;
    Ok(AllocUarOut::UAR.get(&output))
}

/// Gives a UAR page back.
pub(super) fn free(adapter: &Adapter, uid: u16, number: u32) {
    let _ = adapter.execute(&naming(opcode::DEALLOC_UAR, uid, number), &mut [0; SHORT]);
}
