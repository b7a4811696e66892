//! Work on memory keys that stands in a queue: changing them (UMR), binding memory windows, making them free. Queue pairs have such
//! entries, and send queues that were made for them.
//!
//! A list of pages holds addresses of the bus, which reach all memory that the device does: lists, and the size of their pages, are taken
//! from the kernel's queues alone, and for the kernel's keys alone (of keys that user contexts make see `CREATE_MKEY`). The kernel makes
//! the keys of user contexts' memory with `umr_en` set and in their domains, so that without the first rule a program could give itself
//! any memory by an entry of its own queue pair. A queue pair is the kernel's where its maker enabled fast registration: Linux does so for
//! all of the kernel's (the one of service `REG_UMR` too) and for no program's, of which some have the kernel's number as their context's
//! (without DEVX, and XRC initiators). Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `_create_kernel_qp`, `create_user_qp`, and
//! `drivers/infiniband/hw/mlx4/qp.c`, `__mlx4_ib_modify_qp`. A send queue has no such mark from Linux, which asks `reg_umr` for it
//! (`drivers/net/ethernet/mellanox/mlx5/core/en/params.c`, `mlx5e_build_icosq_param`); there the context's number counts.
//! Those that post such lists: Linux `drivers/infiniband/hw/mlx5/wr.c`, `set_reg_wr`; `umr.c`, `_mlx5r_umr_update_mr_pas`;
//! `drivers/net/ethernet/mellanox/mlx5/core/en_rx.c`, `mlx5e_alloc_rx_mpwqe`. Programs lay keys over keys: rdma-core
//! `providers/mlx5/qp.c`, `umr_sg_list_create`, `umr_strided_seg_create`; openucx/ucx `src/uct/ib/mlx5/dv/ib_mlx5dv_md.c`.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    Data, MkeyContext, UmrControl, mkey_access, mkey_flag, mkey_mask as mask, umr_flag,
};
use zerocopy::FromBytes;

use super::translation::{Entries, Translation};
use super::{Access, Key, KeyError, Keys, Refusal, Who, read, signature};
use crate::device::bus::Bus;

/// In `flags_pd`: a peer may make the key free; it covers all addresses. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `mlx5_ifc_mkc_bits`.
const REMOTE_INVALIDATE: u32 = 1 << 24;
const ALL_ADDRESSES: u32 = 1 << 31;
/// A key that any queue pair may use.
const ANY: u32 = 0xff_ffff;

/// Does what an entry asks of the key `name`: `segments` stand behind its control segment. The kernel's own queue works for all
/// domains.
pub(crate) fn change(
    keys: &mut Keys,
    bus: &Bus<'_>,
    who: Who,
    any_domain: bool,
    opcode: u8,
    name: u32,
    segments: &[u8],
) -> Result<(), Refusal> {
    if opcode == send::LOCAL_INVAL {
        let made = keys.make_free(name, |key| any_domain || key.domain == who.domain);
        return if made { Ok(()) } else { Err(Refusal::Bind) };
    }
    let (control, rest) = UmrControl::ref_from_prefix(segments).map_err(|_| Refusal::Segments)?;
    let (wanted, rest) = MkeyContext::ref_from_prefix(rest).map_err(|_| Refusal::Segments)?;
    let old = keys.table().get(name >> 8).ok_or(Refusal::Bind)?;
    if !any_domain && old.domain != who.domain || !old.changeable {
        return Err(Refusal::Bind);
    }
    let flags = control.flags;
    if flags & umr_flag::CHECK_FREE != 0 && !old.free
        || flags & umr_flag::CHECK_NOT_FREE != 0 && old.free
        || flags & umr_flag::CHECK_QPN != 0 && old.queue.is_some() && old.queue != who.pair
    {
        return Err(Refusal::Bind);
    }
    let fields = control.mkey_mask.get();
    // Lent memory has no other bounds than those it was lent with.
    if matches!(old.translation, Translation::Flat(_))
        && fields & (mask::LEN | mask::START_ADDR | mask::PAGE_SIZE) != 0
    {
        return Err(Refusal::Bind);
    }
    // Addresses reach as far as the key says that their pages do, and from the domain that the key is of: queues of user contexts keep
    // to their own. Source: Linux `drivers/infiniband/hw/mlx5/umr.c`, `get_umr_update_pd_mask`; rdma-core `providers/mlx5/qp.c` asks for
    // no other domain.
    let stretches = match &old.translation {
        Translation::Physical => fields & (mask::LEN | mask::START_ADDR | mask::PAGE_SIZE) != 0,
        Translation::Pages { .. } => fields & mask::PAGE_SIZE != 0,
        _ => false,
    };
    if (stretches || fields & mask::PD != 0) && !who.kernel {
        return Err(Refusal::Bind);
    }
    let mut key = Key { translation: Translation::Physical, signing: None, ..*old };
    apply(&mut key, fields, wanted);
    key.signing = signature::change(keys, old, key.domain, control, wanted, rest)?;
    let entries = match usize::from(control.klm_octowords.get()) {
        0 => None,
        units => {
            let list = list(keys, bus, who, flags, rest, units * 16)?;
            let begin = if flags & umr_flag::TRANSLATION_OFFSET != 0 { offset(control) } else { 0 };
            let entries = old.translation.entries(begin, &list, old.units).ok_or(Refusal::Bind)?;
            // Addresses of the bus come from the kernel's queues alone, and go into its own keys.
            let kernels = who.kernel && keys.table().owner(name >> 8) == Some(0);
            let gives_addresses = entries.are_pages() && !kernels;
            let grows = entries.end().saturating_sub(old.translation.count());
            if gives_addresses || !keys.has_room(grows) {
                return Err(Refusal::Bind);
            }
            Some(entries)
        }
    };
    if !key.free {
        check(keys, &key, &old.translation, entries.as_ref(), who)?;
    }
    let log_bytes = (fields & mask::PAGE_SIZE != 0).then_some(wanted.log_page_size & 0x1f);
    keys.replace(name >> 8, |place| {
        key.translation = std::mem::replace(&mut place.translation, Translation::Physical);
        if let Some(entries) = entries {
            key.translation.write(entries);
        }
        if fields & (mask::PAGE_SIZE | mask::START_ADDR) != 0 {
            key.translation.settle(key.start, log_bytes);
        }
        *place = key;
    });
    Ok(())
}

/// Fields of a key's rights and its domain.
const RIGHTS: u64 = mask::LR | mask::LW | mask::RR | mask::RW | mask::A | mask::PD;

/// Gives a key of the kernel's the rights and the domain of a context, as an entry of the kernel's own queue would; whether it is one.
pub(crate) fn set_rights(keys: &mut Keys, index: u32, wanted: &MkeyContext) -> bool {
    if keys.table().owner(index) != Some(0) {
        return false;
    }
    keys.replace(index, |key| apply(key, RIGHTS, wanted));
    true
}

/// Gives a key of the kernel's other memory too: all pages of the context's range. Whether it is one with room for them.
pub(crate) fn set_memory(keys: &mut Keys, index: u32, wanted: &MkeyContext, list: &[u8]) -> bool {
    if !set_entries(keys, index, 0, list) {
        return false;
    }
    keys.replace(index, |key| {
        // Nothing of the old memory is left, whatever length the key gets.
        key.translation.truncate(list.len() / 8);
        apply(key, RIGHTS | mask::START_ADDR | mask::LEN, wanted);
        key.translation.settle(key.start, Some(wanted.log_page_size & 0x1f));
    });
    true
}

/// Writes entries of a translation into a key of the kernel's, as an entry of the kernel's own queue would; whether it is one with
/// room for them.
pub(crate) fn set_entries(keys: &mut Keys, index: u32, unit: u64, list: &[u8]) -> bool {
    let kernels = keys.table().owner(index) == Some(0);
    let Some(key) = keys.table().get(index).filter(|key| kernels && key.changeable) else { return false };
    let Some(entries) = key.translation.entries(unit, list, key.units) else { return false };
    let grows = entries.end().saturating_sub(key.translation.count());
    if !keys.has_room(grows) {
        return false;
    }
    keys.replace(index, |key| key.translation.write(entries));
    true
}

/// Where the entries of a translation go, in units of 16 bytes.
fn offset(control: &UmrControl) -> u64 {
    u64::from(control.xlt_offset_47_16.get()) << 16 | u64::from(control.translation_offset.get())
}

/// The entries of a translation: they stand in the entry itself, or where that points to.
fn list(
    keys: &Keys,
    bus: &Bus<'_>,
    who: Who,
    flags: u8,
    rest: &[u8],
    bytes: usize,
) -> Result<Vec<u8>, Refusal> {
    if flags & umr_flag::INLINE != 0 {
        return Ok(rest.get(..bytes).ok_or(Refusal::Segments)?.to_vec());
    }
    let (data, _) = Data::ref_from_prefix(rest).map_err(|_| Refusal::Segments)?;
    let mut list = vec![0; bytes];
    read(bus, keys, who, data.lkey.get(), data.addr.get(), Access::Read, &mut list)?;
    Ok(list)
}

/// Writes the fields that the mask names.
fn apply(key: &mut Key, fields: u64, wanted: &MkeyContext) {
    let on = |bit: u64| fields & bit != 0;
    let may = |bit: u8| wanted.access_flags & bit != 0;
    if on(mask::FREE) {
        key.free = wanted.free & mkey_flag::FREE != 0;
    }
    if on(mask::KEY) {
        key.variable = wanted.qpn_mkey.get() as u8;
    }
    if on(mask::QPN) {
        let queue = wanted.qpn_mkey.get() >> 8;
        key.queue = (queue != ANY).then_some(queue);
    }
    if on(mask::PD) {
        key.domain = wanted.flags_pd.get() & 0xff_ffff;
    }
    if on(mask::EN_RINVAL) {
        key.remote_invalidate = wanted.flags_pd.get() & REMOTE_INVALIDATE != 0;
    }
    if on(mask::START_ADDR) {
        key.start = wanted.start_addr.get();
    }
    if on(mask::LEN) {
        let all = wanted.flags_pd.get() & ALL_ADDRESSES != 0;
        key.length = if all { u64::MAX } else { wanted.len.get() };
    }
    if on(mask::LR) {
        key.local_read = may(mkey_access::LOCAL_READ);
    }
    if on(mask::LW) {
        key.local_write = may(mkey_access::LOCAL_WRITE);
    }
    if on(mask::RR) {
        key.remote_read = may(mkey_access::REMOTE_READ);
    }
    if on(mask::RW) {
        key.remote_write = may(mkey_access::REMOTE_WRITE);
    }
    if on(mask::A) {
        key.atomic = may(mkey_access::ATOMIC);
    }
}

/// Whether what a key of pieces stands for is there, of its domain, and allows what the key does. Pieces of one size are looked at
/// when they are used: there may be many, of which the key covers no more than were written.
fn check(
    keys: &Keys,
    key: &Key,
    old: &Translation,
    entries: Option<&Entries>,
    who: Who,
) -> Result<(), Refusal> {
    if !matches!(old, Translation::Pieces(_)) {
        return Ok(());
    }
    let who = Who { domain: key.domain, ..who };
    let writes = key.local_write || key.remote_write || key.atomic;
    let access = if writes { Access::Write } else { Access::Read };
    let mut left = key.length;
    keys.begin_walk();
    for piece in old.pieces_with(entries) {
        let bytes = piece.bytes.min(left);
        if bytes == 0 {
            break;
        }
        match keys.walk_deep(piece.key, who, piece.at, bytes, access, 0, &mut |_, _| Ok(())) {
            // It may come when it is needed.
            Ok(()) | Err(KeyError::Absent) => {}
            Err(_) => return Err(Refusal::Bind),
        }
        left -= bytes;
    }
    if left == 0 { Ok(()) } else { Err(Refusal::Bind) }
}
