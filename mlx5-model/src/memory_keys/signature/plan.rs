//! Which signatures a key's data has in memory and on the wire, and where a byte of one form is in the other.

use pollux_mlx5_abi::cqe::signature_error;
use pollux_mlx5_abi::wqe::signature::{
    ALL_DATA, Bsf, BsfInline, PSV_INDEX, SAME_STRUCTURE, block, check, format, guard, inline, repeat, size,
};

use super::guard::{Bytes, Kind};

/// The signatures of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Domain {
    /// Bytes of data in front of each.
    pub(super) block: u64,
    pub(super) kind: Kind,
    /// Number of its variable.
    pub(super) variable: u32,
    /// The reference tag is one more with each block.
    increments: bool,
    /// Bits of the application tag that are checked.
    app_mask: u16,
    /// A mask of [`check`]: which tags turn checking off.
    escape: u8,
}

/// A signature part that the model does not know.
struct Unknown;

/// What a key's signature part says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) memory: Option<Domain>,
    pub(super) wire: Option<Domain>,
    /// Both have blocks of one size and signatures of one length.
    pub(super) same: bool,
    /// Bytes of the incoming signature that are checked, and that go on as they are; bit 7 is the first.
    pub(super) check: u8,
    pub(super) copy: u8,
    /// Bytes without signatures.
    raw_bytes: Option<u64>,
}

/// What stands at a place of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// Data: where without signatures, and how many more of the block.
    Data(u64, u64),
    /// A signature of a domain: of which block, and which byte of it.
    Signature(&'a Domain, u64, u64),
}

impl Plan {
    /// What a signature part says; `None` where the model does not know it: encryption, signatures over whole transactions, blocks of
    /// another size, guards that run on from block to block.
    pub(super) fn of(bsf: &Bsf) -> Option<Self> {
        let size = bsf.bsf_size_sbs >> size::SHIFT;
        if size == size::SIGNATURE_AND_CRYPTO
            || bsf.bsf_size_sbs & !(SAME_STRUCTURE | size::SIGNATURE_AND_CRYPTO << size::SHIFT) != 0
        {
            return None;
        }
        let whole = [bsf.t_init_gen_pro_size, bsf.rsvd_epi_size, bsf.w_tfs_psv, bsf.m_tfs_psv];
        if size != size::BASIC && whole.iter().any(|word| word.get() != 0) {
            return None;
        }
        let of = |psv: u32, selector: u8, part: &BsfInline| {
            let counts = size == size::WITH_INLINE && part.vld_refresh.get() & inline::VALID != 0;
            Domain::of(psv, selector, counts.then_some(part))
        };
        let same = bsf.bsf_size_sbs & SAME_STRUCTURE != 0;
        let memory = of(bsf.m_bfs_psv.get(), bsf.mem, &bsf.m_inl).ok()?;
        let wire = of(bsf.w_bfs_psv.get(), if same { bsf.mem } else { bsf.wire }, &bsf.w_inl).ok()?;
        if same {
            let (memory, wire) = (memory?, wire?);
            if memory.kind != wire.kind && !(memory.kind.is_dif() && wire.kind.is_dif()) {
                return None;
            }
        }
        let raw = bsf.raw_data_size.get();
        Some(Self {
            memory,
            wire,
            same,
            check: bsf.check_byte_mask,
            copy: if same { bsf.wire } else { 0 },
            raw_bytes: (raw != ALL_DATA).then_some(raw.into()),
        })
    }

    /// Which of a key's bytes of memory the bytes `from..end` of the wire are, signatures that belong to them included; `None` where
    /// there are not so many.
    pub(super) fn span(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        // No key is longer, and no sum below runs over.
        if end > 1 << 48 {
            return None;
        }
        let raw_end = raw_before(self.wire.as_ref(), end);
        if self.raw_bytes.is_some_and(|most| raw_end > most) {
            return None;
        }
        let start = signed(self.memory.as_ref(), raw_before(self.wire.as_ref(), from));
        Some((start, signed(self.memory.as_ref(), raw_end)))
    }
}

impl Domain {
    /// `Ok(None)`: the domain is plain.
    fn of(psv: u32, selector: u8, part: Option<&BsfInline>) -> Result<Option<Self>, Unknown> {
        let shape = (psv >> format::SHIFT) as u8;
        let crc = match shape & !(format::REPEAT | format::SEED_ZERO) {
            0 if shape == 0 => None,
            format::CRC32 => Some(Kind::Crc32),
            format::CRC32C => Some(Kind::Crc32c),
            format::CRC64_XP10 => Some(Kind::Crc64),
            _ => return Err(Unknown),
        };
        let repeats = match (crc, part) {
            (Some(_), _) => shape & format::REPEAT != 0,
            (None, Some(part)) => part.rp_inv_seed & repeat::BLOCK != 0,
            (None, None) => return Ok(None),
        };
        let kind = match (crc, part.map(|part| part.sig_type)) {
            (Some(kind), _) => kind,
            (None, Some(guard::CRC)) => Kind::DifCrc,
            (None, Some(guard::IP_CHECKSUM)) => Kind::DifChecksum,
            _ => return Err(Unknown),
        };
        if !repeats {
            return Err(Unknown);
        }
        let dif = part.filter(|_| kind.is_dif());
        let bits = dif.map_or(0, |part| part.dif_inc_ref_guard_check);
        Ok(Some(Self {
            block: block::bytes(selector).ok_or(Unknown)?.into(),
            kind,
            variable: psv & PSV_INDEX,
            increments: bits & check::INC_REFTAG != 0,
            app_mask: dif.map_or(0, |part| part.dif_app_bitmask_check.get()),
            escape: bits & (check::APPTAG_ESCAPE | check::APPREF_ESCAPE),
        }))
    }

    /// Bytes of a block and its signature.
    pub(super) fn stride(&self) -> u64 {
        self.block + self.kind.bytes()
    }

    /// The signature of block `index`; `from` is what its variable was set to.
    pub(super) fn sign(&self, from: u64, index: u64, data: &[u8]) -> Bytes {
        self.kind.of(from, if self.increments { index as u32 } else { 0 }, data)
    }

    /// Which part of the signature `found` is not that of `computed`, of the bytes that `mask` names: the guard first, the reference
    /// tag last. Source: rdma-core `providers/mlx5/man/mlx5dv_mkey_check.3.md`.
    pub(super) fn compare(&self, mask: u8, found: Bytes, computed: Bytes) -> Option<u16> {
        let differs = |byte: usize| {
            let bits = match (self.kind.is_dif(), byte) {
                (true, 2) => (self.app_mask >> 8) as u8,
                (true, 3) => self.app_mask as u8,
                _ => 0xff,
            };
            mask >> (7 - byte) & 1 != 0 && (found[byte] ^ computed[byte]) & bits != 0
        };
        if !self.kind.is_dif() {
            let bytes = self.kind.bytes() as usize;
            return (0..bytes).any(differs).then_some(signature_error::GUARD);
        }
        let (app, reference) = (found[2..4] == [0xff; 2], found[4..] == [0xff; 4]);
        if self.escape & check::APPTAG_ESCAPE != 0 && app
            || self.escape & check::APPREF_ESCAPE != 0 && app && reference
        {
            return None;
        }
        let parts = [
            (0..2, signature_error::GUARD),
            (2..4, signature_error::APPTAG),
            (4..8, signature_error::REFTAG),
        ];
        parts.into_iter().find_map(|(mut bytes, error)| bytes.any(differs).then_some(error))
    }
}

/// What stands at a place.
pub(super) fn place(domain: Option<&Domain>, at: u64) -> Place<'_> {
    let Some(domain) = domain else { return Place::Data(at, u64::MAX - at) };
    let (index, inside) = (at / domain.stride(), at % domain.stride());
    match inside.checked_sub(domain.block) {
        None => Place::Data(index * domain.block + inside, domain.block - inside),
        Some(byte) => Place::Signature(domain, index, byte),
    }
}

/// Bytes of data in front of a place.
pub(super) fn raw_before(domain: Option<&Domain>, at: u64) -> u64 {
    match place(domain, at) {
        Place::Data(raw, _) => raw,
        Place::Signature(domain, index, _) => (index + 1) * domain.block,
    }
}

/// Where a byte of the data is, signatures of the blocks in front of it included.
pub(super) fn signed(domain: Option<&Domain>, raw: u64) -> u64 {
    domain.map_or(raw, |domain| raw + raw / domain.block * domain.kind.bytes())
}

/// Takes the bytes of `from` that `mask` names.
pub(super) fn copy(mask: u8, from: Bytes, into: Bytes) -> Bytes {
    std::array::from_fn(|byte| if mask >> (7 - byte) & 1 == 0 { into[byte] } else { from[byte] })
}
