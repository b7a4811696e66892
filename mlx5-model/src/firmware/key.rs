//! Commands on memory keys.

use std::ops::RangeInclusive;

use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext, QueryMkeyOut, access_mode};
use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::paging::LOG_PAGE_SIZE_5;

use super::caps::LOG_PAGE_MIN;
use super::work::LOG_PAGE_MAX;
use super::{Call, No, need, no};
use crate::device::core::Core;
use crate::memory_keys::signature::Signing;
use crate::memory_keys::{Key, Translation, entered, pages_of, pieces_of};

/// A key that any queue may use. Source: Linux `drivers/infiniband/hw/mlx5/mr.c`, where `qpn` is set.
const ANY_QUEUE: u32 = 0xff_ffff;
/// Room for the signature part of a key, in units of 16 bytes: for one, or for that of encryption too, which is as long and stands
/// behind it. Source: rdma-core `providers/mlx5/verbs.c`, `_mlx5dv_create_mkey`, `bsf_size`.
const SIGNATURE_UNITS: RangeInclusive<u32> = 4..=8;

impl Core {
    pub(super) fn key_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        if opcode == op::CREATE_MKEY {
            return self.create_key(call);
        }
        let index = call.named()?;
        let owner = self.keys.table().owner(index);
        if opcode == op::QUERY_MKEY {
            need!(call.may_name(owner), BAD_RES_ERR, 16);
            let context = self.keys.table().get(index).map_or([0; 64], |key| key.context);
            QueryMkeyOut::MEMORY_KEY_MKEY_ENTRY.set(call.output()?, context);
        } else {
            need!(call.may_change(owner), BAD_RES_ERR, 16);
            self.keys.remove(index);
        }
        Ok(())
    }

    fn create_key(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use MkeyContext as M;
        let input: &[u8; CreateMkeyIn::BYTES] = call.input()?;
        let context = CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.get(input);
        let domain = M::PD.get(&context);
        need!(call.may_work_in(self.domains.owner(domain)), BAD_RES_ERR, 17);
        let free = M::FREE.is_set(&context);
        let start = M::START_ADDR.get(&context);
        let all = M::LENGTH64.is_set(&context);
        let length = if all { u64::MAX } else { M::LEN.get(&context) };
        let mode = M::ACCESS_MODE_1_0.get(&context) | M::ACCESS_MODE_4_2.get(&context) << 2;
        // Signatures are for keys of pieces, with room for all that they need. Source: rdma-core `providers/mlx5/verbs.c`,
        // `_mlx5dv_create_mkey`; Linux `drivers/infiniband/hw/mlx5/mr.c`, `mlx5_alloc_integrity_descs`.
        let signs = M::BSF_EN.is_set(&context);
        let signature_units = M::BSF_OCTWORD_SIZE.get(&context);
        need!(
            !signs
                || self.traits.signatures
                    && matches!(mode, access_mode::KLM | access_mode::KSM)
                    && SIGNATURE_UNITS.contains(&signature_units),
            BAD_PARAM_ERR,
            18
        );
        // Linux hands the length of a key for lent memory on as the program gave it, and programs give 0. Source: Linux
        // `drivers/infiniband/hw/mlx5/mr.c`, `mlx5_ib_reg_dm_mr`.
        let may_be_empty = free || mode == access_mode::MEMIC;
        need!(all || (length > 0 || may_be_empty) && length <= 1 << 48, BAD_PARAM_ERR, 19);
        need!(all || start.checked_add(length).is_some(), BAD_PARAM_ERR, 20);
        let translation = match mode {
            access_mode::PA => {
                // Any memory that is pinned: the kernel's privilege.
                need!(call.uid == 0, BAD_PARAM_ERR, 21);
                Translation::Physical
            }
            access_mode::MTT if !free && !all => self.translation(call, input, &context, start, length)?,
            // The key behind all pieces of an implicit region that are not there: of any address, and never there. Source: Linux
            // `drivers/infiniband/hw/mlx5/odp.c`, `alloc_implicit_mr_null_mkey`.
            access_mode::MTT if !free && self.pages_on_demand(input) => given(call, input, &context, mode)?,
            // What it stands for is written by entries of queues, over what the command says, if anything.
            access_mode::MTT if free => given(call, input, &context, mode)?,
            access_mode::KLM | access_mode::KSM => given(call, input, &context, mode)?,
            // Whose start is a place in BAR 0; its own addresses begin at 0. Source: Linux
            // `drivers/infiniband/hw/mlx5/mr.c`, `mlx5_ib_reg_dm_mr`; such memory is registered zero-based.
            access_mode::MEMIC if !all => match self.lent.place(start, length) {
                Some(base) => Translation::Flat(base),
                None => return Err(no(status::BAD_PARAM_ERR, 30)),
            },
            _ => return Err(no(status::BAD_PARAM_ERR, 22)),
        };
        let queue = M::QPN.get(&context);
        let key = Key {
            variable: M::MKEY_7_0.get(&context) as u8,
            domain,
            start: if mode == access_mode::PA && all || mode == access_mode::MEMIC { 0 } else { start },
            length,
            local_read: M::LR.is_set(&context),
            local_write: M::LW.is_set(&context),
            remote_read: M::RR.is_set(&context),
            remote_write: M::RW.is_set(&context),
            atomic: M::A.is_set(&context),
            free,
            changeable: M::UMR_EN.is_set(&context),
            remote_invalidate: M::EN_RINVAL.is_set(&context),
            queue: (queue != ANY_QUEUE).then_some(queue),
            translation,
            units: M::TRANSLATIONS_OCTWORD_SIZE.get(&context).into(),
            signing: signs
                .then(|| Box::new(Signing::new(signature_units, M::EXPECTED_SIGERR_COUNT.is_set(&context)))),
            context,
        };
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 23);
        let index = self.keys.insert(call.uid, key).ok_or(no(status::NO_RES_ERR, 24))?;
        call.answer_number(index)
    }

    fn translation(
        &self,
        call: &Call<'_>,
        input: &[u8; CreateMkeyIn::BYTES],
        context: &[u8; 64],
        start: u64,
        length: u64,
    ) -> Result<Translation, No> {
        if CreateMkeyIn::MKEY_UMEM_VALID.is_set(input) {
            let (number, offset) = (place::MKEY_UMEM.get(input), place::MKEY_OFFSET.get(input));
            need!(call.may_name(self.umems.owner(number)), BAD_RES_ERR, 25);
            let Some(umem) = self.umems.get(number) else { return Err(no(status::BAD_RES_ERR, 25)) };
            let room = (umem.pages.len() as u64) << umem.log_page;
            let offset = umem.offset.checked_add(offset);
            let end = offset.and_then(|offset| offset.checked_add(length));
            need!(end.is_some_and(|end| end <= room), BAD_PARAM_ERR, 26);
            return Ok(pages_for(context, umem.log_page, offset.unwrap_or(0), umem.pages.clone()));
        }
        let log_page = MkeyContext::LOG_PAGE_SIZE.get(context);
        need!((LOG_PAGE_MIN..=LOG_PAGE_MAX).contains(&log_page), BAD_PARAM_ERR, 27);
        let inside = start & ((1 << log_page) - 1);
        let count = (inside + length).div_ceil(1 << log_page);
        // Two addresses to an octword.
        let octwords = u64::from(MkeyContext::TRANSLATIONS_OCTWORD_SIZE.get(context));
        let actual = u64::from(CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.get(input));
        need!(octwords * 2 >= count && actual * 2 >= count, BAD_PARAM_ERR, 28);
        let list = call.behind::<{ CreateMkeyIn::BYTES }>();
        need!(list.len() as u64 / 8 >= count, BAD_INP_LEN_ERR, 29);
        let list = match self.pages_on_demand(input) {
            true => entered(list).take(count as usize).collect(),
            false => pages_of(list).take(count as usize).collect(),
        };
        Ok(pages_for(context, log_page as u8, inside, list))
    }

    /// Whether the entries of a key say which pages are there. Source: Linux `drivers/infiniband/hw/mlx5/mr.c`, `reg_create`.
    fn pages_on_demand(&self, input: &[u8; CreateMkeyIn::BYTES]) -> bool {
        self.traits.on_demand_paging && CreateMkeyIn::PG_ACCESS.is_set(input)
    }
}

/// Pages of a key; those that entries of queues may change are not put together.
fn pages_for(context: &[u8; 64], log_page: u8, offset: u64, pages: Vec<u64>) -> Translation {
    match MkeyContext::UMR_EN.is_set(context) {
        true => Translation::Pages { log_page, offset, pages },
        false => Translation::of_pages(log_page, offset, pages),
    }
}

/// What the command says that a key stands for: as much of it as the command has. Linux's network driver fills a key that is free up
/// with pages of its own before queues write theirs over it. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`,
/// `mlx5e_create_umr_mkey`.
fn given(
    call: &Call<'_>,
    input: &[u8; CreateMkeyIn::BYTES],
    context: &[u8; 64],
    mode: u32,
) -> Result<Translation, No> {
    let units = u64::from(MkeyContext::TRANSLATIONS_OCTWORD_SIZE.get(context));
    let actual = u64::from(CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.get(input));
    need!(actual <= units, BAD_PARAM_ERR, 28);
    let list = call.behind::<{ CreateMkeyIn::BYTES }>();
    need!(list.len() as u64 / 16 >= actual, BAD_INP_LEN_ERR, 29);
    // Programs may give no addresses of the bus. Source: Linux `drivers/infiniband/hw/mlx5/devx.c`, `devx_handle_mkey_create`.
    need!(mode != access_mode::MTT || call.uid == 0 || actual == 0, BAD_PARAM_ERR, 21);
    let list = &list[..actual as usize * 16];
    let log = MkeyContext::LOG_PAGE_SIZE.get(context);
    let inside = |log: u32| MkeyContext::START_ADDR.get(context) & ((1 << log) - 1);
    Ok(match mode {
        access_mode::MTT if MkeyContext::FREE.is_set(context) => {
            let log = log.clamp(LOG_PAGE_MIN, LOG_PAGE_MAX);
            let pages = pages_of(list).collect();
            Translation::Pages { log_page: log as u8, offset: inside(log), pages }
        }
        // Pages as large as all addresses need.
        access_mode::MTT => {
            let log = LOG_PAGE_SIZE_5.get(context) << 5 | log;
            need!((LOG_PAGE_MIN..64).contains(&log), BAD_PARAM_ERR, 27);
            Translation::Pages { log_page: log as u8, offset: 0, pages: entered(list).collect() }
        }
        access_mode::KSM => {
            let blocks = pieces_of(list).collect();
            Translation::Blocks { log_bytes: log as u8, offset: inside(log), blocks }
        }
        _ => Translation::Pieces(pieces_of(list).collect()),
    })
}
