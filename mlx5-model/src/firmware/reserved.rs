//! Bits of commands that belong to no field. Firmware may refuse them, or give them a meaning some day; whoever sets one is told of
//! ([`Violation::ReservedInCommand`](crate::Violation::ReservedInCommand)) and served.
//!
//! Looked at are the fixed part of commands whose layout is known and the contexts in there ([`CONTEXTS`]); lists behind and what
//! steering matches are not taken apart. Source of the layouts: Linux `include/linux/mlx5/mlx5_ifc.h`. What that calls reserved and
//! others name: the umems of rings, which user contexts set, [`place`]; which parts of a queue pair change beside the first 32,
//! [`source_port`], [`dct::stream`]; and [`FURTHER`].

use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::{self, CommandIn, dct, hairpin, opcode as op, source_port};
use pollux_mlx5_abi::layout::Layout;
use pollux_mlx5_abi::paging::LOG_PAGE_SIZE_5;

/// Blocks inside commands and inside each other that are taken apart.
const CONTEXTS: [&str; 16] = [
    "ads", "cqc", "dctc", "eqc", "mkc", "qpc", "rmpc", "rqc", "rqtc", "sqc", "srqc", "tirc", "tisc", "umem",
    "wq", "xrc_srqc",
];

/// Fields of contexts that Linux' header leaves out: of which context, the first bit and how many. Source: DPDK
/// `drivers/common/mlx5/mlx5_prm.h`, the `mlx5_ifc_*_bits` of that name; rdma-core `providers/mlx5/mlx5_ifc.h` for `data_in_order`.
const FURTHER: [(&str, u32, u32); 16] = [
    // as_notify, initiator_src_dct
    ("cqc", 4, 2),
    // always_armed_cq, ext_element_type
    ("cqc", 24, 4),
    ("cqc", place::CQ_RECORD_UMEM.bit(), place::CQ_RECORD_UMEM.bits()),
    ("cqc", place::CQ_MINI_FORMAT_EXT.bit(), place::CQ_MINI_FORMAT_EXT.bits()),
    // cq_timestamp_format
    ("cqc", 94, 2),
    // local_partition_id, process_id
    ("cqc", 384, 32),
    // non_wire, static_sq_wq
    ("sqc", 15, 2),
    ("sqc", hairpin::WQ_BUFFER_TYPE.bit(), hairpin::WQ_BUFFER_TYPE.bits()),
    ("rqc", hairpin::DATA_BUFFER_TYPE.bit(), hairpin::DATA_BUFFER_TYPE.bits()),
    (
        "wq",
        place::WQ_RECORD_UMEM.bit(),
        place::WQ_OFFSET.bit() + place::WQ_OFFSET.bits() - place::WQ_RECORD_UMEM.bit(),
    ),
    // data_in_order
    ("qpc", 90, 1),
    ("qpc", place::QP_RECORD_UMEM.bit(), place::QP_RECORD_UMEM.bits()),
    ("xrc_srqc", place::XRC_SRQ_RECORD_UMEM.bit(), place::XRC_SRQ_RECORD_UMEM.bits()),
    // order_read_after_write, crypto_en
    ("mkc", 470, 2),
    ("mkc", 483, 2),
    // Since 6.14 it has it.
    ("mkc", LOG_PAGE_SIZE_5.bit(), LOG_PAGE_SIZE_5.bits()),
];

/// The first bit of a command that is set and means nothing, counted from the most significant one of its first byte.
pub(super) fn in_command(opcode: u16, input: &[u8]) -> Option<u32> {
    let (layout, _) = command::form(opcode);
    // Of a command without a layout of its own only the header is known.
    if layout.fields == CommandIn::LAYOUT.fields {
        return None;
    }
    let umems = umems(opcode);
    let header = || CommandIn::LAYOUT.fields.iter().map(|field| (field.bit, field.bits)).chain(umems);
    in_block(layout, input, &|bit| header().any(|(first, bits)| bit.wrapping_sub(first) < bits))
}

/// The same of a block, counted from its own first bit. `known` tells of bits that mean something though its layout leaves them out.
fn in_block(layout: &'static Layout, block: &[u8], known: &dyn Fn(u32) -> bool) -> Option<u32> {
    let fixed = block.get(..layout.bytes).unwrap_or(block);
    let mut bit = 0;
    while let Some(byte) = fixed.get(bit as usize / 8) {
        if byte << (bit % 8) == 0 {
            bit = (bit / 8 + 1) * 8;
            continue;
        }
        bit += (byte << (bit % 8)).leading_zeros();
        match layout.fields.iter().find(|field| bit.wrapping_sub(field.bit) < field.bits) {
            Some(field) => {
                let (first, end) = (field.bit as usize / 8, (field.bit + field.bits) as usize / 8);
                let inner = fixed.get(first..end).and_then(|bytes| {
                    let inner = command::nested(layout, &field.manual_name(), bytes.len())?;
                    CONTEXTS.contains(&inner.name).then_some((inner, bytes))
                });
                if let Some((inner, bytes)) = inner
                    && let Some(found) = in_block(inner, bytes, &|bit| further(inner.name, bit))
                {
                    return Some(field.bit + found);
                }
                bit = field.bit + field.bits;
            }
            None if known(bit) => bit += 1,
            None => return Some(bit),
        }
    }
    None
}

fn further(name: &str, bit: u32) -> bool {
    FURTHER.iter().any(|(of, first, bits)| *of == name && bit.wrapping_sub(*first) < *bits)
}

/// First bit and number of bits of the umem of a ring and the place in it.
fn umems(opcode: u16) -> [(u32, u32); 2] {
    match opcode {
        op::CREATE_CQ => {
            [(place::CQ_OFFSET.bit(), place::CQ_OFFSET.bits()), (place::CQ_UMEM.bit(), place::CQ_UMEM.bits())]
        }
        op::CREATE_MKEY => [
            (place::MKEY_OFFSET.bit(), place::MKEY_OFFSET.bits()),
            (place::MKEY_UMEM.bit(), place::MKEY_UMEM.bits()),
        ],
        op::CREATE_QP => {
            [(place::QP_OFFSET.bit(), place::QP_OFFSET.bits()), (place::QP_UMEM.bit(), place::QP_UMEM.bits())]
        }
        op::RTS2RTS_QP => [
            (source_port::MORE_PARTS.bit(), source_port::MORE_PARTS.bits()),
            (dct::stream::HAS_MORE.bit(), dct::stream::HAS_MORE.bits()),
        ],
        op::CREATE_XRC_SRQ => [
            (place::XRC_SRQ_OFFSET.bit(), place::XRC_SRQ_OFFSET.bits()),
            (place::XRC_SRQ_UMEM.bit(), place::XRC_SRQ_UMEM.bits()),
        ],
        _ => [(0, 0); 2],
    }
}
