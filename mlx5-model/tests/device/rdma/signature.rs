//! Keys whose data has signatures, in the forms that rdma-core posts: `providers/mlx5/qp.c`, `umr_wqe_finalize`, `mlx5_umr_set_psv`.

mod command;
mod drain;
mod hostile;
mod receive;
mod send;

use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext as M, access_mode};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::psv::{CreatePsvIn, CreatePsvOut};
use pollux_mlx5_abi::cqe::CqeSignature;
use pollux_mlx5_abi::opcode::send as opcode;
use pollux_mlx5_abi::wqe::signature::{
    ALL_DATA, Bsf, BsfInline, SAME_STRUCTURE, SetPsv, check, format, guard, inline, repeat, size,
};
use pollux_mlx5_abi::wqe::{
    Completion, Data, Fence, Klm, MkeyContext, UmrControl, mkey_access, mkey_mask as mask, umr_flag,
};
use pollux_mlx5_model::wire::Impairments;
use zerocopy::IntoBytes;

use super::node::{Ends, Node, Pair};
use crate::rig::{Cq, HCA_DELTA, number};

/// Two cards with signatures.
fn ends() -> Ends {
    Ends::with(Impairments::default(), |traits| traits.signatures = true)
}

/// What the signatures of a domain are.
#[derive(Clone, Copy)]
struct Side {
    /// A format of CRC, or 0 for T10-DIF.
    format: u8,
    /// Of T10-DIF: the guard, and the bits of what is counted and escaped.
    guard: u8,
    bits: u8,
    /// As blocks are named: 1 is 512, 3 is 4096.
    block: u8,
    /// What its variable is set to.
    from: u64,
}

const CRC32: Side = Side { format: format::CRC32, guard: 0, bits: 0, block: 1, from: 0xffff_ffff << 32 };
const CRC32C: Side = Side { format: format::CRC32C, ..CRC32 };
const CRC64: Side = Side { format: format::CRC64_XP10, from: u64::MAX, ..CRC32 };
const DIF: Side =
    Side { format: 0, guard: guard::CRC, bits: check::INC_REFTAG, block: 1, from: 0xffff_abcd_0123_4567 };
const CHECKSUM: Side = Side { guard: guard::IP_CHECKSUM, from: 0xabcd_0123_4567, ..DIF };

impl Side {
    fn block(self) -> usize {
        [0, 512, 520, 4096, 4160, 0, 4048][usize::from(self.block)]
    }

    /// The signature of a block, reckoned bit by bit.
    fn sign(self, index: u32, data: &[u8]) -> Vec<u8> {
        let low_first = |polynomial: u64, width: u32, seed: u64| {
            let ones = u64::MAX >> (64 - width);
            let value = data.iter().fold(seed, |value, byte| {
                (0..8).fold(value ^ u64::from(*byte), |value, _| (value >> 1) ^ (polynomial * (value & 1)))
            });
            (value ^ ones).to_le_bytes()[..width as usize / 8].to_vec()
        };
        match self.format {
            format::CRC32 => low_first(0xedb8_8320, 32, self.from >> 32),
            format::CRC32C => low_first(0x82f6_3b78, 32, self.from >> 32),
            format::CRC64_XP10 => low_first(0x9a6c_9329_ac4b_c9b5, 64, self.from),
            _ => {
                let seed = (self.from >> 48) as u16;
                let guard = if self.guard == guard::CRC {
                    data.iter().fold(seed, |value, byte| {
                        (0..8).fold(value ^ u16::from(*byte) << 8, |value, _| {
                            value << 1 ^ if value >> 15 == 1 { 0x8bb7 } else { 0 }
                        })
                    })
                } else {
                    let sum = data.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair)));
                    let sum = sum.sum::<u32>() + u32::from(seed);
                    let sum = (sum & 0xffff) + (sum >> 16);
                    !((sum & 0xffff) + (sum >> 16)) as u16
                };
                let counts = u32::from(self.bits & check::INC_REFTAG != 0);
                let tag = (self.from as u32).wrapping_add(index * counts);
                let app = (self.from >> 32) as u16;
                [&guard.to_be_bytes()[..], &app.to_be_bytes(), &tag.to_be_bytes()].concat()
            }
        }
    }

    /// Data with a signature behind each whole block.
    fn signed(self, data: &[u8]) -> Vec<u8> {
        let blocks = data.chunks(self.block()).enumerate();
        let with = |(index, block): (usize, &[u8])| {
            let whole = block.len() == self.block();
            let signature = if whole { self.sign(index as u32, block) } else { Vec::new() };
            [block, &signature].concat()
        };
        blocks.flat_map(with).collect()
    }

    /// What a completion has of a signature.
    fn words(self, signature: &[u8]) -> (u32, u32) {
        let word = |bytes: &[u8]| bytes.try_into().expect("4 bytes");
        match signature.len() {
            4 => (u32::from_le_bytes(word(signature)), 0),
            _ if self.format == 0 => {
                (u32::from_be_bytes(word(&signature[..4])), u32::from_be_bytes(word(&signature[4..])))
            }
            _ => (u32::from_le_bytes(word(&signature[4..])), u32::from_le_bytes(word(&signature[..4]))),
        }
    }

    fn psv(self, variable: u32) -> u32 {
        let shape = match (self.format, self.from) {
            (0, _) => 0,
            (format, 0) => format | format::REPEAT | format::SEED_ZERO,
            (format, _) => format | format::REPEAT,
        };
        u32::from(shape) << format::SHIFT | variable
    }

    fn inline(self) -> BsfInline {
        if self.format != 0 {
            return BsfInline::default();
        }
        BsfInline {
            vld_refresh: (inline::VALID | inline::REFRESH).into(),
            dif_apptag: ((self.from >> 32) as u16).into(),
            dif_reftag: (self.from as u32).into(),
            sig_type: self.guard,
            rp_inv_seed: repeat::BLOCK | if self.from >> 48 == 0 { 0 } else { repeat::SEED },
            dif_inc_ref_guard_check: self.bits,
            dif_app_bitmask_check: 0xffff.into(),
            ..BsfInline::default()
        }
    }
}

/// A key for signatures, and the variables of its domains.
struct Signed {
    key: u32,
    memory: u32,
    wire: u32,
    /// The count of its errors to come next.
    expected: bool,
}

/// What is said of it.
#[derive(Clone, Copy)]
struct Wanted {
    memory: Option<Side>,
    wire: Option<Side>,
    check: u8,
    /// Both are alike, and so much of signatures goes on as it is.
    copy: Option<u8>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { memory: None, wire: None, check: 0xff, copy: None }
    }
}

impl Wanted {
    fn bsf(&self, signed: &Signed) -> Bsf {
        let none = || (0, 0, BsfInline::default());
        let (m_psv, mem, m_inl) =
            self.memory.map_or_else(none, |side| (side.psv(signed.memory), side.block, side.inline()));
        let (w_psv, block, w_inl) =
            self.wire.map_or_else(none, |side| (side.psv(signed.wire), side.block, side.inline()));
        Bsf {
            bsf_size_sbs: size::WITH_INLINE << size::SHIFT
                | if self.copy.is_some() { SAME_STRUCTURE } else { 0 },
            check_byte_mask: self.check,
            wire: self.copy.unwrap_or(block),
            mem,
            raw_data_size: ALL_DATA.into(),
            w_bfs_psv: w_psv.into(),
            m_bfs_psv: m_psv.into(),
            w_inl,
            m_inl,
            ..Bsf::default()
        }
    }
}

/// Variables of the node's domain.
fn variables(node: &Node, count: u32) -> Vec<u32> {
    variables_of(node, node.rig.pd, count)
}

/// Variables of any domain.
fn variables_of(node: &Node, domain: u32, count: u32) -> Vec<u32> {
    let mut input = CreatePsvIn::ZERO;
    CreatePsvIn::NUM_PSV.set(&mut input, count);
    CreatePsvIn::PD.set(&mut input, domain);
    let out = node.rig.must(op::CREATE_PSV, 0, &mut input, CreatePsvOut::BYTES);
    let out = out.first_chunk().expect("an answer");
    use CreatePsvOut as P;
    let fields = [P::PSV0_INDEX, P::PSV1_INDEX, P::PSV2_INDEX, P::PSV3_INDEX];
    fields[..count as usize].iter().map(|field| field.get(out)).collect()
}

/// What a key is made of, as `mlx5dv_create_mkey` does.
fn context(node: &Node) -> [u8; M::BYTES] {
    let mut context = M::ZERO;
    for (field, value) in [
        (M::FREE, 1),
        (M::UMR_EN, 1),
        (M::LR, 1),
        (M::ACCESS_MODE_1_0, access_mode::KLM),
        (M::QPN, 0xff_ffff),
        (M::PD, node.rig.pd),
        (M::TRANSLATIONS_OCTWORD_SIZE, 4),
        (M::BSF_EN, 1),
        (M::BSF_OCTWORD_SIZE, 4),
    ] {
        field.set(&mut context, value);
    }
    context
}

fn create(context: [u8; M::BYTES]) -> Vec<u8> {
    let mut input = CreateMkeyIn::ZERO.to_vec();
    CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(input.first_chunk_mut().expect("a command"), context);
    input
}

impl Signed {
    fn new(node: &Node) -> Self {
        let mut input = create(context(node));
        let key = number(&node.rig.must(op::CREATE_MKEY, 0, &mut input, 16)) << 8;
        let variables = variables(node, 2);
        Self { key, memory: variables[0], wire: variables[1], expected: true }
    }

    /// The entry that lays the key over memory and says what its signatures are.
    fn entry(&self, pieces: &[(u32, u32, u64)], bsf: Option<&Bsf>) -> Vec<u8> {
        let list = pieces
            .iter()
            .flat_map(|(bytes, key, at)| {
                let klm = Klm { byte_count: (*bytes).into(), mkey: (*key).into(), address: (*at).into() };
                klm.as_bytes().to_vec()
            })
            .collect();
        let bytes = pieces.iter().map(|(bytes, ..)| u64::from(*bytes)).sum();
        self.entry_of(list, bytes, bsf)
    }

    /// The same with a list as it stands there, and the key's length.
    fn entry_of(&self, mut list: Vec<u8>, bytes: u64, bsf: Option<&Bsf>) -> Vec<u8> {
        let mut fields = mask::FREE
            | mask::KEY
            | mask::LEN
            | mask::LW
            | mask::RR
            | mask::RW
            | mask::A
            | mask::EN_SIGERR
            | mask::BSF_EN;
        if list.is_empty() {
            fields &= !mask::LEN;
        }
        list.resize(list.len().next_multiple_of(64), 0);
        let control = UmrControl {
            flags: umr_flag::INLINE,
            klm_octowords: ((list.len() / 16) as u16).into(),
            translation_offset: (u16::from(bsf.is_some()) * 4).into(),
            mkey_mask: fields.into(),
            ..UmrControl::default()
        };
        let context = MkeyContext {
            access_flags: mkey_access::LOCAL_WRITE
                | mkey_access::REMOTE_READ
                | mkey_access::REMOTE_WRITE
                | mkey_access::ATOMIC,
            qpn_mkey: 0xffff_ff00.into(),
            flags_pd: (u32::from(bsf.is_some()) << 30 | u32::from(self.expected) << 26).into(),
            len: bytes.into(),
            ..MkeyContext::default()
        };
        let bsf = bsf.map_or(&[][..], |bsf| bsf.as_bytes());
        [control.as_bytes(), context.as_bytes(), &list, bsf].concat()
    }

    /// Lays the key over `bytes` bytes at `at`, and sets the variables.
    fn lay(&self, ends: &Ends, node: &Node, pair: &mut Pair, at: u64, bytes: usize, wanted: Wanted) {
        let pieces = [(bytes as u32, node.rig.lkey, at + HCA_DELTA)];
        self.lay_by(ends, node, pair, &self.entry(&pieces, Some(&wanted.bsf(self))), wanted);
    }

    /// The same by an entry that was made for it.
    fn lay_by(&self, ends: &Ends, node: &Node, pair: &mut Pair, body: &[u8], wanted: Wanted) {
        pair.post(node, opcode::UMR, Completion::OnError as u8, self.key, body);
        let sides = [(wanted.memory, self.memory), (wanted.wire, self.wire)];
        for (side, variable) in sides {
            set(pair, node, variable, side.map_or(0, |side| side.from));
        }
        pair.sq.ring(&node.rig);
        ends.steps(3);
        for _ in sides {
            assert_eq!(pair.done(node).send_opcode(), opcode::SET_PSV);
        }
    }

    /// Segments for bytes of the wire.
    fn at(&self, offset: u64, bytes: usize) -> Vec<u8> {
        Data::new(bytes as u32, self.key, offset).as_bytes().to_vec()
    }
}

/// Posts the entry that sets a variable.
fn set(pair: &mut Pair, node: &Node, variable: u32, value: u64) {
    let psv = SetPsv { psv_index: variable.into(), transient_signature: value.into(), ..SetPsv::default() };
    let flags = Completion::Always as u8 | Fence::InitiatorSmall as u8;
    pair.post(node, opcode::SET_PSV, flags, 0, psv.as_bytes());
}

/// Posts an entry that uses a key changed just now.
fn go(pair: &mut Pair, node: &Node, what: u8, body: &[u8]) {
    pair.post(node, what, Completion::Always as u8 | Fence::InitiatorSmall as u8, 0, body);
    pair.sq.ring(&node.rig);
}

/// The next completion, which is one of a signature.
#[track_caller]
fn error(cq: &mut Cq, node: &Node) -> CqeSignature {
    let entry = cq.poll(&node.rig).expect("a completion");
    *CqeSignature::of(&entry).unwrap_or_else(|| panic!("a signature's error, not {entry:?}"))
}

/// Bytes that differ from their neighbours and from each other's blocks.
fn text(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|index| ((index * 7) ^ (index >> 8)) as u8).collect()
}
