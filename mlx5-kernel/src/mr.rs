//! Memory regions. Source: Linux `drivers/infiniband/core/uverbs_cmd.c`, `drivers/infiniband/hw/mlx5/mr.c`.

use std::sync::Arc;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext, access_mode};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::paging::PRESENT;
use pollux_uverbs::abi::flags::{Access, Advice, Rereg};
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::ioctl_verbs::Sge;
use pollux_uverbs::abi::memory::{DeregMr, RegMr, RegMrResp, ReregMr, ReregMrResp};
use pollux_uverbs::{Call, Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::dm::Dm;
use crate::firmware::begin;
use crate::handle::{Object, ObjectKind};
use crate::mkey::{destroy_key, make_key, set_rights};
use crate::paging::region::{self, Region};
use crate::pd::Pd;
use crate::session::Session;
use crate::umem::{PAGE, Umem};

/// Rights that a newer program may ask for and that are ignored where they are not known: bits 20 to 29. Source: Linux
/// `include/uapi/rdma/ib_user_ioctl_verbs.h`, `IB_UVERBS_ACCESS_OPTIONAL_RANGE`.
const OPTIONAL: u32 = 0x3ff0_0000;

/// Rights that are known beside those.
const KNOWN: u32 = (Access::FLUSH_PERSISTENT.bits() << 1) - 1;

/// A memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    /// Index of the key in the device; none once that is ended.
    index: Option<u32>,
    key: u32,
    pd: u32,
    memory: Memory,
    bytes: u64,
    iova: u64,
    access: Access,
}

/// Whose memory it is, and how the device has it.
#[derive(Debug)]
enum Memory {
    /// With room for so many pages in its key.
    Pinned(Umem, usize),
    OnDemand(Arc<Region>),
    /// The device's own.
    Lent,
}

/// What a region is made of.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    pd: u32,
    start: u64,
    length: u64,
    iova: u64,
    access: Access,
}

impl Object for Mr {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Mr
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        match (&self.memory, self.index) {
            (Memory::OnDemand(region), _) => region.end()?,
            (_, Some(index)) => destroy_key(core, index)?,
            (_, None) => {}
        }
        self.index = None;
        Ok(())
    }
}

/// Source: Linux `include/rdma/ib_verbs.h`, `ib_check_mr_access`.
fn check_access(core: &Core, access: Access) -> Result<(), Errno> {
    let remote = Access::REMOTE_ATOMIC | Access::REMOTE_WRITE;
    if access.intersects(remote) && !access.contains(Access::LOCAL_WRITE) {
        return Err(Errno::EINVAL);
    }
    if access.bits() & !(KNOWN | OPTIONAL) != 0 {
        return Err(Errno::EINVAL);
    }
    // A card of mlx5 has no flush (Linux since 6.2).
    if access.intersects(Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT) {
        return Err(Errno::EOPNOTSUPP);
    }
    if access.contains(Access::ON_DEMAND) && !core.pages_on_demand() {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// Whether a key can get other rights. Source: Linux `drivers/infiniband/hw/mlx5/umr.c`, `mlx5r_umr_can_reconfig`.
fn can_change(core: &Core, now: Access, wanted: Access) -> bool {
    let changes = now ^ wanted;
    let fixed = core.caps.has(GeneralCaps::UMR_MODIFY_ATOMIC_DISABLED);
    let anew = changes.intersects(Access::RELAXED_ORDERING | Access::ON_DEMAND);
    !(anew || changes.contains(Access::REMOTE_ATOMIC) && fixed)
}

/// Makes the key of a range: index, the key with its variable bits, and for how many pages it has room.
fn create_key(
    core: &Core,
    pdn: u32,
    umem: &Umem,
    iova: u64,
    access: Access,
) -> Result<(u32, u32, usize), Errno> {
    let log_page = umem.log_page(iova);
    let pages = umem.pages(log_page, 0);
    // Two entries an octword.
    let octwords = |pages: usize| u32::try_from(pages.div_ceil(2)).map_err(|_| Errno::EINVAL);
    let count = pages.len() / 8;
    let mut head: [u8; CreateMkeyIn::BYTES] = begin(opcode::CREATE_MKEY, 0, 0);
    CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut head, octwords(count)?);
    let context = CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut head);
    set_range(core, context, pdn, umem, iova, access);
    MkeyContext::ACCESS_MODE_1_0.set(context, access_mode::MTT);
    MkeyContext::QPN.set(context, 0xff_ffff);
    MkeyContext::UMR_EN.set(context, 1);
    let room = room(count);
    MkeyContext::TRANSLATIONS_OCTWORD_SIZE.set(context, octwords(room)?);
    let (index, key) = make_key(core, &mut head, &pages)?;
    Ok((index, key, room))
}

/// Writes rights and range of a key into its context.
fn set_range(core: &Core, context: &mut [u8; 64], pdn: u32, umem: &Umem, iova: u64, access: Access) {
    set_rights(core, context, pdn, access);
    MkeyContext::START_ADDR.set(context, iova);
    MkeyContext::LEN.set(context, umem.bytes);
    MkeyContext::LOG_PAGE_SIZE.set(context, umem.log_page(iova));
}

/// For how many pages a key is made that is to have `pages` now. mlx5_ib takes keys out of a cache, which has them for four pages, for
/// eight and so on; larger ones fit exactly. Source: Linux `drivers/infiniband/hw/mlx5/mr.c`, `mlx5_mkey_cache_init`;
/// `mlx5_ib.h`, `MLX5_MR_CACHE_PERSISTENT_ENTRY_MIN_DESCS`, `MKEY_CACHE_LAST_STD_ENTRY`.
fn room(pages: usize) -> usize {
    if pages > 1 << 20 { pages } else { pages.next_power_of_two().max(4) }
}

impl Session {
    /// `MR/REG_MR`.
    pub(crate) fn reg_mr(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::mr::reg as a;
        if call.find(a::FD).is_some() || call.find(a::DMA_HANDLE).is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let access: u32 = call.input_as(a::ACCESS_FLAGS)?;
        let wanted = Wanted {
            pd: call.handle(a::PD_HANDLE)?,
            start: call.number(a::ADDR)?,
            length: call.number(a::LENGTH)?,
            iova: call.number(a::IOVA)?,
            access: Access::from_bits_retain(access),
        };
        let (handle, key) = self.register(&wanted)?;
        call.create(a::HANDLE, handle)?;
        call.reply(a::RESP_LKEY, &key)?;
        call.reply(a::RESP_RKEY, &key)
    }

    /// `REG_MR`.
    pub(crate) fn write_reg_mr(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: RegMr = command.request()?;
        let wanted = Wanted {
            pd: request.pd_handle,
            start: request.start,
            length: request.length,
            iova: request.hca_va,
            access: Access::from_bits_retain(request.access_flags),
        };
        let (mr_handle, key) = self.register(&wanted)?;
        command.core_out.write(RegMrResp { mr_handle, lkey: key, rkey: key }.as_bytes());
        Ok(())
    }

    fn register(&mut self, wanted: &Wanted) -> Result<(u32, u32), Errno> {
        let mr = self.make_mr(wanted)?;
        let key = mr.key;
        Ok((self.handles.add(mr, &[wanted.pd]), key))
    }

    fn make_mr(&self, wanted: &Wanted) -> Result<Mr, Errno> {
        let &Wanted { pd, start, length, iova, access } = wanted;
        let core = &self.core;
        // A page keeps its bytes where they are: only whole pages may be elsewhere.
        if start % PAGE != iova % PAGE {
            return Err(Errno::EINVAL);
        }
        check_access(core, access)?;
        let pdn = self.handles.get::<Pd>(pd)?.pdn;
        if access.contains(Access::ON_DEMAND) {
            let wanted = region::Wanted { pdn, start, bytes: length, iova, access };
            let (region, index, key) = Region::make(&core.paging, wanted)?;
            let memory = Memory::OnDemand(region);
            return Ok(Mr { index: Some(index), key, pd, memory, bytes: length, iova, access });
        }
        let umem = Umem::pin(core.memory.as_ref(), start, length, Umem::rights(access))?;
        let (index, key, room) = create_key(core, pdn, &umem, iova, access)?;
        let bytes = umem.bytes;
        Ok(Mr { index: Some(index), key, pd, memory: Memory::Pinned(umem, room), bytes, iova, access })
    }

    /// `REREG_MR`: the same key where the device has a way to change it and it has room for the pages; else a new one in its place, as mlx5_ib
    /// does. Source: Linux `drivers/infiniband/hw/mlx5/mr.c`, `mlx5_ib_rereg_user_mr`.
    pub(crate) fn rereg_mr(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ReregMr = command.request()?;
        let flags = Rereg::from_bits(request.flags).filter(|flags| !flags.is_empty()).ok_or(Errno::EINVAL)?;
        let translation = flags.contains(Rereg::TRANSLATION);
        let misplaced = request.start % PAGE != request.hca_va % PAGE;
        if translation && (request.start == 0 || request.hca_va == 0 || request.length == 0 || misplaced) {
            return Err(Errno::EINVAL);
        }
        let mr = self.handles.get::<Mr>(request.mr_handle)?;
        let access = if flags.contains(Rereg::ACCESS) {
            Access::from_bits_retain(request.access_flags)
        } else {
            mr.access
        };
        check_access(&self.core, access)?;
        let pd = if flags.contains(Rereg::PD) { request.pd_handle } else { mr.pd };
        let is_changed = match translation {
            false => self.change_rights(request.mr_handle, pd, access)?,
            true => {
                let (start, length, iova) = (request.start, request.length, request.hca_va);
                self.change_memory(request.mr_handle, &Wanted { pd, start, length, iova, access })?
            }
        };
        if is_changed {
            let key = self.handles.get::<Mr>(request.mr_handle)?.key;
            command.core_out.write(ReregMrResp { lkey: key, rkey: key }.as_bytes());
            return Ok(());
        }
        let mr = self.handles.get::<Mr>(request.mr_handle)?;
        let (start, length, iova) = match &mr.memory {
            _ if translation => (request.start, request.length, request.hca_va),
            Memory::Pinned(umem, _) => (umem.address, mr.bytes, mr.iova),
            // What pages in stays so, unless it is registered anew.
            Memory::OnDemand(_) if !access.contains(Access::ON_DEMAND) => return Err(Errno::EOPNOTSUPP),
            Memory::OnDemand(region) => (region.wanted().start, mr.bytes, mr.iova),
            Memory::Lent => return Err(Errno::EINVAL),
        };
        let (core, uid) = (Arc::clone(&self.core), self.uid());
        let mut fresh = self.make_mr(&Wanted { pd, start, length, iova, access })?;
        let key = fresh.key;
        let mr = self.handles.get_mut::<Mr>(request.mr_handle)?;
        if let Err(errno) = mr.end(&core, uid) {
            let _ = fresh.end(&core, uid);
            return Err(errno);
        }
        *mr = fresh;
        self.handles.adopt(request.mr_handle, &[pd]);
        command.core_out.write(ReregMrResp { lkey: key, rkey: key }.as_bytes());
        Ok(())
    }

    /// Gives a region other memory under its key, with whatever else changes; `false` where that cannot be done. Source: Linux
    /// `drivers/infiniband/hw/mlx5/mr.c`, `can_use_umr_rereg_pas`.
    fn change_memory(&mut self, handle: u32, wanted: &Wanted) -> Result<bool, Errno> {
        let &Wanted { pd, start, length, iova, access } = wanted;
        let core = Arc::clone(&self.core);
        let pdn = self.handles.get::<Pd>(pd)?.pdn;
        let mr = self.handles.get::<Mr>(handle)?;
        let (Some(index), &Memory::Pinned(_, room)) = (mr.index, &mr.memory) else { return Ok(false) };
        if !can_change(&core, mr.access, access) {
            return Ok(false);
        }
        let umem = Umem::pin(core.memory.as_ref(), start, length, Umem::rights(access))?;
        if umem.count(umem.log_page(iova)) > room as u64 {
            return Ok(false);
        }
        let mut context = [0; 64];
        set_range(&core, &mut context, pdn, &umem, iova, access);
        // Entries that are written into a key say that their pages are there, as those it is made with need not.
        let mut pages = umem.pages(umem.log_page(iova), PRESENT);
        // The list is a whole number of octwords.
        pages.resize(pages.len().next_multiple_of(16), 0);
        if !core.firmware.queue.set_key_memory(index, &context, &pages) {
            return Ok(false);
        }
        let mr = self.handles.get_mut::<Mr>(handle)?;
        (mr.pd, mr.access, mr.bytes, mr.iova) = (pd, access, umem.bytes, iova);
        mr.memory = Memory::Pinned(umem, room);
        self.handles.adopt(handle, &[pd]);
        Ok(true)
    }

    /// Gives a region other rights, or another domain, under its key; `false` where that cannot be done.
    fn change_rights(&mut self, handle: u32, pd: u32, access: Access) -> Result<bool, Errno> {
        let core = Arc::clone(&self.core);
        let pdn = self.handles.get::<Pd>(pd)?.pdn;
        let mr = self.handles.get::<Mr>(handle)?;
        let (Some(index), &Memory::Pinned(ref umem, room)) = (mr.index, &mr.memory) else { return Ok(false) };
        if !can_change(&core, mr.access, access) {
            return Ok(false);
        }
        let rights = Umem::rights(access);
        let again = match rights == Umem::rights(mr.access) {
            true => None,
            false => Some(Umem::pin(core.memory.as_ref(), umem.address, umem.bytes, rights)?),
        };
        // Another process's memory at that address is not what the key leads to.
        if again.as_ref().is_some_and(|again| again.dma() != umem.dma()) {
            return Ok(false);
        }
        let mut context = [0; 64];
        set_rights(&core, &mut context, pdn, access);
        if !core.firmware.queue.set_key_rights(index, &context) {
            return Ok(false);
        }
        let mr = self.handles.get_mut::<Mr>(handle)?;
        if let Some(again) = again {
            mr.memory = Memory::Pinned(again, room);
        }
        (mr.pd, mr.access) = (pd, access);
        self.handles.adopt(handle, &[pd]);
        Ok(true)
    }

    /// `MR/DM_MR_REG`: memory of the device, in which addresses count from 0.
    pub(crate) fn reg_dm_mr(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::mr::dm_reg as a;
        let access = u32::try_from(call.number(a::ACCESS_FLAGS)?).map_err(|_| Errno::EINVAL)?;
        let access = Access::from_bits_retain(access);
        let allowed = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC
            | Access::ZERO_BASED;
        check_access(&self.core, access)?;
        if !access.contains(Access::ZERO_BASED) || !(access - allowed).is_empty() {
            return Err(Errno::EINVAL);
        }
        let (pd, dm) = (call.handle(a::PD_HANDLE)?, call.handle(a::DM_HANDLE)?);
        let (offset, bytes) = (call.number(a::OFFSET)?, call.number(a::LENGTH)?);
        let memory = self.handles.get::<Dm>(dm)?;
        if offset.checked_add(bytes).is_none_or(|end| end > memory.bytes) {
            return Err(Errno::EINVAL);
        }
        let core = Arc::clone(&self.core);
        let mut input: [u8; CreateMkeyIn::BYTES] = begin(opcode::CREATE_MKEY, 0, 0);
        let context = CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
        set_rights(&core, context, self.handles.get::<Pd>(pd)?.pdn, access);
        MkeyContext::ACCESS_MODE_1_0.set(context, access_mode::MEMIC & 3);
        MkeyContext::ACCESS_MODE_4_2.set(context, access_mode::MEMIC >> 2);
        MkeyContext::QPN.set(context, 0xff_ffff);
        MkeyContext::START_ADDR.set(context, memory.address + offset);
        MkeyContext::LEN.set(context, bytes);
        let (index, key) = make_key(&core, &mut input, &[])?;
        let mr = Mr { index: Some(index), key, pd, memory: Memory::Lent, bytes, iova: 0, access };
        let handle = self.handles.add(mr, &[pd, dm]);
        call.create(a::HANDLE, handle)?;
        call.reply(a::RESP_LKEY, &key)?;
        call.reply(a::RESP_RKEY, &key)
    }

    /// `MR/ADVISE_MR`: pages of regions on demand are brought before they are needed. Advice that need not be followed when the call
    /// returns is followed as well, and what does not come then is not told. Source: Linux `drivers/infiniband/hw/mlx5/mr.c`,
    /// `mlx5_ib_advise_mr`; `odp.c`, `mlx5_ib_advise_mr_prefetch`, `get_prefetchable_mr`.
    pub(crate) fn advise_mr(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::mr::advise as a;
        /// Source: Linux `include/uapi/rdma/ib_user_ioctl_verbs.h`, `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`.
        const FLUSH: u64 = 1;
        let core = Arc::clone(&self.core);
        if !core.pages_on_demand() {
            return Err(Errno::EOPNOTSUPP);
        }
        let (advice, flags) = (call.number(a::ADVICE)?, call.number(a::FLAGS)?);
        let advice = u32::try_from(advice).map(Advice).map_err(|_| Errno::EOPNOTSUPP)?;
        if !matches!(advice, Advice::PREFETCH | Advice::PREFETCH_WRITE | Advice::PREFETCH_NO_FAULT) {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags & !FLUSH != 0 {
            return Err(Errno::EINVAL);
        }
        let pd = call.handle(a::PD_HANDLE)?;
        let pdn = self.handles.get::<Pd>(pd)?.pdn;
        let list = call.input(a::SGE_LIST).unwrap_or_default();
        let (pieces, rest) = list.as_chunks::<{ size_of::<Sge>() }>();
        if !rest.is_empty() {
            return Err(Errno::EINVAL);
        }
        let mut regions = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let piece: Sge = zerocopy::transmute!(*piece);
            let region = self.paged_region(piece.lkey).ok_or(Errno::ENOENT)?;
            let writes = advice == Advice::PREFETCH_WRITE;
            if region.wanted().pdn != pdn || writes && !region.is_writable() {
                return Err(Errno::EPERM);
            }
            regions.push((region, piece));
        }
        for (region, piece) in regions {
            let fetched = match advice {
                // What is there is reached when it is needed, without a question to anybody else.
                Advice::PREFETCH_NO_FAULT => region.range(piece.addr, piece.length.into()).map(drop),
                _ => region.fetch(piece.addr, piece.length.into()),
            };
            if flags & FLUSH != 0 {
                fetched?;
            }
        }
        Ok(())
    }

    /// The region on demand that has this key.
    fn paged_region(&self, key: u32) -> Option<Arc<Region>> {
        let mut regions =
            self.handles.of_kind(ObjectKind::Mr).filter_map(|mr| self.handles.get::<Mr>(mr).ok());
        match &regions.find(|mr| mr.key == key)?.memory {
            Memory::OnDemand(region) => Some(Arc::clone(region)),
            _ => None,
        }
    }

    /// `MR/QUERY_MR`.
    pub(crate) fn query_mr(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::mr::query as a;
        let mr = self.handles.get::<Mr>(call.handle(a::HANDLE)?)?;
        let (key, length, iova) = (mr.key, mr.bytes, mr.iova);
        call.reply(a::RESP_LKEY, &key)?;
        call.reply(a::RESP_RKEY, &key)?;
        call.reply(a::RESP_LENGTH, &length)?;
        if let Some(output) = call.output(a::RESP_IOVA) {
            output.write(iova.as_bytes());
        }
        Ok(())
    }

    /// `DEREG_MR`.
    pub(crate) fn dereg_mr(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: DeregMr = command.request()?;
        self.destroy::<Mr>(request.mr_handle).map(drop)
    }
}
