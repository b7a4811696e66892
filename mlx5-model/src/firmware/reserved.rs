//! Bits of commands that belong to no field. Firmware may refuse them, or give them a meaning some day; whoever sets one is told of
//! ([`Violation::ReservedInCommand`](crate::Violation::ReservedInCommand)) and served.
//!
//! Looked at is the fixed part of commands whose layout is known; contexts and lists inside are not taken apart. Source of the
//! layouts: Linux `include/linux/mlx5/mlx5_ifc.h`; of what that calls reserved and user contexts set all the same, the umems of rings:
//! [`place`].

use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::{self, CommandIn, opcode as op};

/// The first bit of a command that is set and means nothing, counted from the most significant one of its first byte.
pub(super) fn in_command(opcode: u16, input: &[u8]) -> Option<u32> {
    let (layout, _) = command::form(opcode);
    // Of a command without a layout of its own only the header is known.
    if layout.fields == CommandIn::LAYOUT.fields {
        return None;
    }
    let umems = umems(opcode);
    let fixed = input.get(..layout.bytes).unwrap_or(input);
    let set = fixed.iter().enumerate().filter(|(_, byte)| **byte != 0).flat_map(|(at, byte)| {
        (0..8).filter(move |bit| byte >> (7 - bit) & 1 == 1).map(move |bit| at as u32 * 8 + bit)
    });
    set.into_iter().find(|bit| {
        let mut fields = CommandIn::LAYOUT
            .fields
            .iter()
            .chain(layout.fields)
            .map(|field| (field.bit, field.bits))
            .chain(umems);
        !fields.any(|(first, bits)| bit.wrapping_sub(first) < bits)
    })
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
        op::CREATE_XRC_SRQ => [
            (place::XRC_SRQ_OFFSET.bit(), place::XRC_SRQ_OFFSET.bits()),
            (place::XRC_SRQ_UMEM.bit(), place::XRC_SRQ_UMEM.bits()),
        ],
        _ => [(0, 0); 2],
    }
}
