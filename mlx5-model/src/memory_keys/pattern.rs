//! Pieces of a key that repeat: a head, then entries, of which each turn takes some bytes and goes on a stride further.

use pollux_mlx5_abi::wqe::{RepeatBlock, RepeatEntry};
use zerocopy::FromBytes;

use super::piece::Piece;

/// What stands in the place of a key in the head of a pattern. Source: rdma-core `providers/mlx5/qp.c`,
/// `umr_strided_seg_create`; Linux `include/linux/mlx5/qp.h`, `struct mlx5_stride_block_ctrl_seg`, and
/// `drivers/infiniband/hw/mlx5/wr.c`, `set_sig_data_segment`.
const PATTERN: u32 = 0x400;
/// Pieces of all turns together at most.
const PIECES_MAX: usize = 1 << 16;

/// Whether a list of pieces is a pattern.
pub(super) fn is_one(list: &[u8]) -> bool {
    RepeatBlock::ref_from_prefix(list).is_ok_and(|(head, _)| head.op.get() == PATTERN)
}

/// The pieces, turn by turn; `None` where the pattern is not whole or there are too many.
pub(super) fn unroll(list: &[u8]) -> Option<Vec<Piece>> {
    let (head, rest) = RepeatBlock::ref_from_prefix(list).ok()?;
    let (turns, count) = (head.repeat_count.get(), usize::from(head.num_ent.get()));
    let (entries, _) = <[RepeatEntry]>::ref_from_prefix_with_elems(rest, count).ok()?;
    // Nothing, ever so often, would be a loop of the writer's length.
    if count == 0 || turns == 0 || (turns as usize).saturating_mul(count) > PIECES_MAX {
        return None;
    }
    let pieces = (0..u64::from(turns)).flat_map(|turn| {
        entries.iter().map(move |entry| Piece {
            bytes: entry.byte_count.get().into(),
            key: entry.memkey.get(),
            at: entry.va.get().wrapping_add(turn * u64::from(entry.stride.get())),
        })
    });
    Some(pieces.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    fn list(turns: u32, entries: u16) -> Vec<u8> {
        let mut head = RepeatBlock::new_zeroed();
        head.op.set(PATTERN);
        head.repeat_count.set(turns);
        head.num_ent.set(entries);
        let mut list = head.as_bytes().to_vec();
        for _ in 0..entries {
            let mut entry = RepeatEntry::new_zeroed();
            entry.byte_count.set(8);
            entry.stride.set(64);
            list.extend(entry.as_bytes());
        }
        list
    }

    #[test]
    fn a_pattern_of_nothing_or_of_too_much_is_refused_at_once() {
        assert_eq!(unroll(&list(3, 2)).map(|pieces| pieces.len()), Some(6));
        for (turns, entries) in [(0, 1), (1, 0), (u32::MAX, 0), (u32::MAX, 1), (1 << 16, 2)] {
            assert!(is_one(&list(turns, entries)));
            assert_eq!(unroll(&list(turns, entries)), None, "{turns} of {entries}");
        }
    }
}
