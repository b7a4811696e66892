//! Commands on memory of the device that it lends (MEMIC).

use pollux_mlx5_abi::caps::roce::DeviceMemoryCaps;
use pollux_mlx5_abi::command::memory::{AllocMemicIn, AllocMemicOut, DeallocMemicIn};
use pollux_mlx5_abi::command::{opcode as op, status};

use super::{Call, No, need, no};
use crate::device::core::Core;
use crate::device::lent::{BYTES, OFFSET};

/// Least size and largest alignment of a piece, as logarithms.
const LOG_LEAST: u32 = 6;
const LOG_ALIGN_MAX: u32 = 12;

/// What the device says of it.
pub(super) fn caps() -> [u8; 256] {
    use DeviceMemoryCaps as D;
    let mut caps = D::ZERO;
    D::MEMIC.set(&mut caps, 1);
    D::LOG_MIN_MEMIC_ALLOC_SIZE.set(&mut caps, LOG_LEAST);
    D::LOG_MAX_MEMIC_ADDR_ALIGNMENT.set(&mut caps, LOG_ALIGN_MAX);
    D::MEMIC_BAR_START_ADDR.set(&mut caps, OFFSET);
    D::MEMIC_BAR_SIZE.set(&mut caps, BYTES as u32);
    D::MAX_MEMIC_SIZE.set(&mut caps, BYTES as u32);
    caps
}

impl Core {
    pub(super) fn lent_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        need!(self.lent.base.is_some(), BAD_OP_ERR, 16);
        if opcode == op::DEALLOC_MEMIC {
            let start = DeallocMemicIn::MEMIC_START_ADDR.get(call.input()?);
            let found = self
                .lent
                .pieces
                .iter()
                .position(|(from, _, owner)| *from == start && call.may_change(Some(*owner)));
            let Some(at) = found else { return Err(no(status::BAD_RES_ERR, 17)) };
            self.lent.pieces.swap_remove(at);
            return Ok(());
        }
        let input: &[u8; AllocMemicIn::BYTES] = call.input()?;
        let log_align = AllocMemicIn::LOG_MEMIC_ADDR_ALIGNMENT.get(input);
        let bytes = u64::from(AllocMemicIn::MEMIC_SIZE.get(input));
        let start = AllocMemicIn::RANGE_START_ADDR.get(input);
        let range = u64::from(AllocMemicIn::RANGE_SIZE.get(input));
        need!(log_align <= LOG_ALIGN_MAX, BAD_PARAM_ERR, 18);
        need!(bytes > 0 && bytes <= BYTES, BAD_PARAM_ERR, 19);
        need!(start >= OFFSET && start - OFFSET <= BYTES, BAD_PARAM_ERR, 20);
        let end = (start + range).min(OFFSET + BYTES);
        let align = 1 << log_align.max(LOG_LEAST);
        let bytes = bytes.next_multiple_of(1 << LOG_LEAST);
        // The first place in the range that touches no other piece.
        let mut at = start.next_multiple_of(align);
        while let Some((_, to, _)) =
            self.lent.pieces.iter().find(|(from, to, _)| at < *to && *from < at + bytes)
        {
            at = to.next_multiple_of(align);
        }
        need!(at + bytes <= end, NO_RES_ERR, 21);
        AllocMemicOut::MEMIC_START_ADDR.set(call.output()?, at);
        self.lent.pieces.push((at, at + bytes, call.uid));
        Ok(())
    }
}
