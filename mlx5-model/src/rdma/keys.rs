//! Work on memory keys that stands in a queue: changing them (UMR), binding memory windows, making them free.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    Data, Klm, MkeyContext, UmrControl, mkey_access, mkey_flag, mkey_mask as mask, umr_flag,
};
use zerocopy::FromBytes;

use super::Around;
use super::qp::Qp;
use super::state::Service;
use super::work::{Failure, Request, read};
use crate::memory_keys::{Access, Key, Keys, Piece, Translation, Who};

/// Pieces or pages of a key at most.
const ENTRIES_MAX: usize = 1 << 16;
/// In `flags_pd`: a peer may make the key free; it covers all addresses. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `mlx5_ifc_mkc_bits`.
const REMOTE_INVALIDATE: u32 = 1 << 24;
const ALL_ADDRESSES: u32 = 1 << 31;
/// A key that any queue pair may use.
const ANY: u32 = 0xff_ffff;

/// Does what an entry asks of a key.
pub(crate) fn change(pair: &Qp, around: &mut Around<'_, '_>, request: &Request) -> Result<(), Failure> {
    let who = pair.who();
    // The kernel's own queue works for all domains.
    let any_domain = pair.service == Service::Keys;
    if request.opcode == send::LOCAL_INVAL {
        let made = around.keys.make_free(request.imm, |key| any_domain || key.domain == who.domain);
        return if made { Ok(()) } else { Err(Failure::BIND) };
    }
    let (control, rest) = UmrControl::ref_from_prefix(&request.segments).map_err(|_| Failure::SEGMENTS)?;
    let (wanted, rest) = MkeyContext::ref_from_prefix(rest).map_err(|_| Failure::SEGMENTS)?;
    let old = around.keys.table().get(request.imm >> 8).ok_or(Failure::BIND)?;
    if !any_domain && old.domain != who.domain || !old.changeable {
        return Err(Failure::BIND);
    }
    if control.flags & umr_flag::CHECK_FREE != 0 && !old.free
        || control.flags & umr_flag::CHECK_QPN != 0 && old.queue.is_some() && old.queue != who.pair
    {
        return Err(Failure::BIND);
    }
    let mut key = old.clone();
    apply(&mut key, control.mkey_mask.get(), wanted);
    let octowords = usize::from(control.klm_octowords.get());
    if octowords > 0 {
        let bytes = octowords * 16;
        let mut list = vec![0; bytes];
        if control.flags & umr_flag::INLINE != 0 {
            list.copy_from_slice(rest.get(..bytes).ok_or(Failure::SEGMENTS)?);
        } else {
            let (data, _) = Data::ref_from_prefix(rest).map_err(|_| Failure::SEGMENTS)?;
            let (lkey, at) = (data.lkey.get(), data.addr.get());
            read(around.bus, around.keys, who, lkey, at, Access::Read, &mut list)?;
        }
        let begin = if control.flags & umr_flag::TRANSLATION_OFFSET != 0 {
            usize::from(control.translation_offset.get())
        } else {
            0
        };
        translate(&mut key.translation, begin, &list)?;
    }
    if !key.free {
        check(around.keys, &key, who)?;
    }
    if let Some(place) = around.keys.table_mut().get_mut(request.imm >> 8) {
        *place = key;
    }
    Ok(())
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
    if on(mask::PAGE_SIZE)
        && let Translation::Pages { log_page, .. } = &mut key.translation
    {
        *log_page = (wanted.log_page_size & 0x1f).clamp(12, 31);
    }
}

/// Writes entries of a translation, from that unit of 16 bytes on: pieces, or two pages to a unit.
fn translate(translation: &mut Translation, begin: usize, list: &[u8]) -> Result<(), Failure> {
    match translation {
        Translation::Pieces(pieces) => {
            let count = list.len() / size_of::<Klm>();
            if begin + count > ENTRIES_MAX {
                return Err(Failure::BIND);
            }
            pieces.resize(pieces.len().max(begin + count), Piece { bytes: 0, key: 0, at: 0 });
            for (place, bytes) in pieces[begin..].iter_mut().zip(list.as_chunks::<16>().0) {
                let Ok((klm, _)) = Klm::ref_from_prefix(bytes) else { break };
                *place =
                    Piece { bytes: klm.byte_count.get().into(), key: klm.mkey.get(), at: klm.address.get() };
            }
        }
        Translation::Pages { pages, .. } => {
            let (begin, list) = (begin * 2, list.as_chunks::<8>().0);
            if begin + list.len() > ENTRIES_MAX {
                return Err(Failure::BIND);
            }
            pages.resize(pages.len().max(begin + list.len()), 0);
            for (place, address) in pages[begin..].iter_mut().zip(list) {
                // The low bits are rights of the page.
                *place = u64::from_be_bytes(*address) & !0xfff;
            }
        }
        // What was made whole is not changed piece by piece.
        Translation::Physical | Translation::Flat(_) => return Err(Failure::BIND),
    }
    Ok(())
}

/// Whether what a key stands for is there, of its domain, and allows what the key does.
fn check(keys: &Keys, key: &Key, who: Who) -> Result<(), Failure> {
    let Translation::Pieces(pieces) = &key.translation else { return Ok(()) };
    let who = Who { domain: key.domain, ..who };
    let writes = key.local_write || key.remote_write || key.atomic;
    let access = if writes { Access::Write } else { Access::Read };
    let mut left = key.length;
    for piece in pieces {
        let bytes = piece.bytes.min(left);
        if bytes == 0 {
            break;
        }
        keys.check(piece.key, who, piece.at, bytes, access).map_err(|_| Failure::BIND)?;
        left -= bytes;
    }
    if left == 0 { Ok(()) } else { Err(Failure::BIND) }
}
