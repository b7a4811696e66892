//! Keys whose data has signatures: checked, made, taken off and put on block by block, as it crosses between memory and the wire.
//!
//! ```text
//!            memory domain                              wire domain
//!   | block | signature | block | ...    <-- Plan -->    | block | block | ...      e.g.: checked and stripped on the way out,
//!     by the key's translation                             as messages have it            made on the way in
//! ```
//!
//! Where a domain has signatures, each stands behind a whole block; what is behind the last whole block has none. Addresses and lengths
//! of work requests, and of the peer's, count the bytes of the wire; the key's own length counts those of memory. The signatures of what
//! comes in (from memory when sending, from the wire when receiving) are checked, and those of what goes out are made, or copied where
//! both are alike. Source: rdma-core `providers/mlx5/man/mlx5dv_wr_set_mkey_sig_block.3.md`, and `tests/test_mlx5_mkey.py`,
//! `reg_mr_sig_err` with `build_traffic_elements`; Linux `drivers/infiniband/core/rw.c`, `rdma_rw_ctx_signature_init`, and
//! `drivers/infiniband/ulp/isert/ib_isert.c` of older kernels, `isert_reg_sig_mr`.
//!
//! A mismatch changes nothing in the transfer. The first one of a key is reported by a completion
//! ([`CqeSignature`](pollux_mlx5_abi::cqe::CqeSignature)), and then no other until an entry says that it was seen: the key counts its
//! errors by one bit, and the entry says by `expected_sigerr_count` which count is the next to come. Source: Linux
//! `drivers/infiniband/hw/mlx5/mr.c`, `mlx5_alloc_integrity_descs`, and `wr.c`, `set_sig_mkey_segment`; rdma-core
//! `providers/mlx5/verbs.c`, `mlx5_create_sig_ctx`, and `qp.c`, `upd_mkc_sig_err_cnt`.
//!
//! What nobody says, and cards may do otherwise:
//! - A block's reference tag, seed and signature depend on its place in the key alone, here. Cards may go on from where the transfer
//!   before ended until the variable is set again; who sets it for each transfer, as all known drivers do, sees no difference.
//! - Errors of keys that a peer reaches are reported where receive entries of the queue pair are.
//! - A key whose pieces are under a key with signatures is refused, and so are atomics, and queues of frames.

mod crossing;
mod guard;
mod plan;

use std::cell::{Cell, RefCell};

use pollux_mlx5_abi::cqe::CqeSignature;
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::wqe::signature::{Bsf, SetPsv};
use pollux_mlx5_abi::wqe::{MkeyContext, TRANSLATION_ALIGN, UmrControl, mkey_mask as mask, umr_flag};
use zerocopy::{FromBytes, FromZeros};

use super::{Key, Keys, Refusal, Who};
use crate::device::table::Table;
pub(super) use crossing::{Signed, span};
use plan::Plan;

/// In `flags_pd`: the key has a signature part, and the count of its errors to come next. Source: rdma-core `providers/mlx5/wqe.h`,
/// `MLX5_WQE_MKEY_CONTEXT_FLAGS_BSF_ENABLE`, `MLX5_WQE_MKEY_CONTEXT_SIG_ERR_CNT_SHIFT`; Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `mlx5_ifc_mkc_bits`.
const ENABLED: u32 = 1 << 30;
const EXPECTED: u32 = 1 << 26;
/// Units of 16 bytes of a signature part.
const UNITS: u16 = (size_of::<Bsf>() / 16) as u16;
/// Variables of a device.
const VARIABLES: usize = 1 << 16;

/// What a key has that was made for signatures.
#[derive(Clone, Debug)]
pub(crate) struct Signing {
    /// Room for its signature part, in units of 16 bytes.
    units: u32,
    /// Its data has signatures.
    on: bool,
    /// What they are; `None` until an entry says it.
    plan: Option<Plan>,
    /// The count of errors that is waited for, and that there is; their lowest bits.
    expected: bool,
    count: Cell<bool>,
    /// Of what came by the wire: what is there of a signature.
    part: Cell<Part>,
}

/// A signature of which not all came yet.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Where the next byte of the wire belongs.
    next: u64,
    bytes: guard::Bytes,
    /// Bytes in front of those that are there did not come.
    lacks: bool,
}

/// What the signatures of a domain begin from (PSV).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable {
    pub(crate) domain: u32,
    value: u64,
}

/// A mismatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The queue pair on whose behalf memory was reached.
    pub(crate) pair: u32,
    key: u32,
    syndrome: u16,
    domain: u8,
    expected: (u32, u32),
    actual: (u32, u32),
    offset: u64,
}

/// What all keys share.
#[derive(Debug)]
pub(crate) struct Signatures {
    pub(crate) variables: Table<Variable>,
    /// By the access at work.
    found: RefCell<Vec<Found>>,
}

impl Signatures {
    pub(super) fn new() -> Self {
        Self { variables: Table::new(0x10, VARIABLES), found: RefCell::default() }
    }

    /// A variable of a domain, by number.
    pub(crate) fn make(&mut self, owner: u16, domain: u32) -> Option<u32> {
        self.variables.insert(owner, Variable { domain, value: 0 })
    }

    /// An entry sets a variable of its domain.
    pub(crate) fn set(&mut self, who: Who, segments: &[u8]) -> Result<(), Refusal> {
        let (set, _) = SetPsv::ref_from_prefix(segments).map_err(|_| Refusal::Segments)?;
        match self.variables.get_mut(set.psv_index.get()) {
            Some(variable) if variable.domain == who.domain => {
                variable.value = set.transient_signature.get();
                Ok(())
            }
            _ => Err(Refusal::Bind),
        }
    }

    /// What was found since this was asked last.
    pub(crate) fn take_found(&mut self) -> Vec<Found> {
        std::mem::take(self.found.get_mut())
    }
}

impl Signing {
    /// Of a key that is made with room for so many units of 16 bytes.
    pub(crate) fn new(units: u32, expected: bool) -> Self {
        let (count, part) = (Cell::new(false), Cell::default());
        Self { units, on: true, plan: None, expected, count, part }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }
}

impl Found {
    /// The completion that reports it.
    pub(crate) fn completion(&self) -> CqeSignature {
        let mut entry = CqeSignature::new_zeroed();
        entry.expected_trans_sig.set(self.expected.0);
        entry.expected_reftag.set(self.expected.1);
        entry.actual_trans_sig.set(self.actual.0);
        entry.actual_reftag.set(self.actual.1);
        entry.syndrome.set(self.syndrome);
        entry.domain = self.domain;
        entry.mkey.set(self.key);
        entry.err_offset.set(self.offset);
        entry.qpn.set(self.pair);
        entry.op_own = completion::SIGNATURE_ERROR << 4;
        entry
    }
}

/// What becomes of a key's signatures by an entry: `rest` is what stands behind the key's context. Both drivers put the signature part
/// behind a translation in the entry itself, filled up to 64 bytes.
pub(super) fn change(
    keys: &Keys,
    old: &Key,
    domain: u32,
    control: &UmrControl,
    wanted: &MkeyContext,
    rest: &[u8],
) -> Result<Option<Box<Signing>>, Refusal> {
    let (fields, bits) = (control.mkey_mask.get(), wanted.flags_pd.get());
    let Some(old) = &old.signing else {
        // There is no room for any.
        let asks = fields & mask::BSF_EN != 0 && bits & ENABLED != 0;
        return if asks { Err(Refusal::Bind) } else { Ok(None) };
    };
    let mut new = old.clone();
    if fields & mask::EN_SIGERR != 0 {
        new.expected = bits & EXPECTED != 0;
    }
    let units = control.translation_offset.get();
    if control.flags & umr_flag::TRANSLATION_OFFSET == 0 && units != 0 {
        if control.flags & umr_flag::INLINE == 0 {
            return Err(Refusal::Segments);
        }
        if units < UNITS || u32::from(units) > new.units {
            return Err(Refusal::Bind);
        }
        let at = (usize::from(control.klm_octowords.get()) * 16).next_multiple_of(TRANSLATION_ALIGN);
        let part = rest.get(at..).unwrap_or_default();
        let (bsf, _) = Bsf::ref_from_prefix(part).map_err(|_| Refusal::Segments)?;
        let plan = Plan::of(bsf).ok_or(Refusal::Bind)?;
        let is_there = |number| {
            let variable = keys.signatures.variables.get(number);
            variable.is_some_and(|variable| variable.domain == domain)
        };
        let mut domains = [plan.memory, plan.wire].into_iter().flatten();
        if !domains.all(|domain| is_there(domain.variable)) {
            return Err(Refusal::Bind);
        }
        (new.plan, new.part) = (Some(plan), Cell::default());
    }
    if fields & mask::BSF_EN != 0 {
        new.on = bits & ENABLED != 0;
    }
    Ok(Some(new))
}
