//! Keys whose entries say which pages are there. Source: Linux `drivers/infiniband/hw/mlx5/mr.c`, `reg_create`;
//! `drivers/infiniband/hw/mlx5/odp.c`, `implicit_get_child_mr`, `alloc_implicit_mr_null_mkey`.

use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext as M, access_mode};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::paging::LOG_PAGE_SIZE_5;
use pollux_mlx5_abi::wqe::Klm;
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::Access;
use zerocopy::IntoBytes;

use crate::adapter::Adapter;
use crate::firmware::begin;
use crate::mkey::{make_key, set_rights};
use crate::umem::PAGE;

/// Most pages of one key: 16 GiB.
pub(super) const PAGES_MAX: u64 = 1 << 22;
/// Bytes of a piece of an implicit region, as a logarithm. Source: Linux `drivers/infiniband/hw/mlx5/odp.c`, `MLX5_IMR_MTT_BITS`.
pub(super) const LOG_PIECE: u32 = 30;
/// Pieces of an implicit region: all addresses of a program.
pub(super) const PIECES: u64 = 1 << (47 - LOG_PIECE);
/// Units of the key behind pieces that are not there: eight pages of 2 exabytes.
const NOWHERE_UNITS: u32 = 4;
const NOWHERE_LOG_PAGE: u32 = 61;

/// To whom keys are given, and what they allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) pdn: u32,
    pub(super) access: Access,
}

/// Index, and the key with its variable bits.
pub(super) type Made = (u32, u32);

/// A key for the bytes from `start` on, of whose pages none is there.
pub(super) fn of_pages(adapter: &Adapter, grant: Grant, start: u64, bytes: u64) -> Result<Made, Errno> {
    let pages = (start % PAGE).checked_add(bytes).ok_or(Errno::EINVAL)?.div_ceil(PAGE);
    if pages > PAGES_MAX {
        return Err(Errno::ENOMEM);
    }
    let units = pages.div_ceil(2) as u32;
    let mut head = head(adapter, grant, access_mode::MTT, units);
    let context = CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut head);
    M::UMR_EN.set(context, 1);
    M::START_ADDR.set(context, start);
    M::LEN.set(context, bytes);
    M::LOG_PAGE_SIZE.set(context, 12);
    make_key(adapter, &mut head, &vec![0; units as usize * 16])
}

/// A key for any address, of whose pages none is ever there.
pub(super) fn nowhere(adapter: &Adapter, pdn: u32) -> Result<Made, Errno> {
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let mut head = head(adapter, Grant { pdn, access }, access_mode::MTT, NOWHERE_UNITS);
    let context = CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut head);
    M::LENGTH64.set(context, 1);
    M::LOG_PAGE_SIZE.set(context, NOWHERE_LOG_PAGE & 0x1f);
    LOG_PAGE_SIZE_5.set(context, NOWHERE_LOG_PAGE >> 5);
    make_key(adapter, &mut head, &[0; NOWHERE_UNITS as usize * 16])
}

/// A key for all addresses in pieces of one size, all of them under `nowhere`.
pub(super) fn of_pieces(adapter: &Adapter, grant: Grant, nowhere: u32) -> Result<Made, Errno> {
    let mut head = head(adapter, grant, access_mode::KSM, PIECES as u32);
    let context = CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut head);
    M::UMR_EN.set(context, 1);
    M::LENGTH64.set(context, 1);
    M::LOG_PAGE_SIZE.set(context, LOG_PIECE);
    let mut list = Vec::with_capacity(PIECES as usize * size_of::<Klm>());
    (0..PIECES).for_each(|index| list.extend_from_slice(piece(nowhere, index).as_bytes()));
    make_key(adapter, &mut head, &list)
}

/// The piece at `index` under a key that has the same addresses.
pub(super) fn piece(key: u32, index: u64) -> Klm {
    Klm { byte_count: (1 << LOG_PIECE).into(), mkey: key.into(), address: (index << LOG_PIECE).into() }
}

fn head(adapter: &Adapter, grant: Grant, mode: u32, units: u32) -> [u8; CreateMkeyIn::BYTES] {
    let mut head = begin(opcode::CREATE_MKEY, 0, 0);
    CreateMkeyIn::PG_ACCESS.set(&mut head, 1);
    CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut head, units);
    let context = CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut head);
    set_rights(adapter, context, grant.pdn, grant.access);
    M::ACCESS_MODE_1_0.set(context, mode & 3);
    M::QPN.set(context, 0xff_ffff);
    M::TRANSLATIONS_OCTWORD_SIZE.set(context, units);
    head
}
