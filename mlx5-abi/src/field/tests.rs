use proptest::prelude::*;

use super::{Field, Run, Wide};

const LEN: usize = 32;

fn place(bits: u8) -> impl Strategy<Value = (u8, u8)> {
    (0..bits).prop_flat_map(move |lo| (lo..bits, Just(lo)))
}

/// The bits of `block` from `first` on, most significant first: the slow way, that knows no dwords.
fn bits(block: &[u8; LEN], first: u32, count: u32) -> u64 {
    (first..first + count)
        .fold(0, |value, bit| value << 1 | u64::from(block[bit as usize / 8] >> (7 - bit % 8) & 1))
}

/// Whether two blocks agree everywhere but in the bits from `first` on.
fn same_outside(one: &[u8; LEN], other: &[u8; LEN], first: u32, count: u32) -> bool {
    (0..LEN as u32 * 8)
        .filter(|bit| !(first..first + count).contains(bit))
        .all(|bit| bits(one, bit, 1) == bits(other, bit, 1))
}

proptest! {
    #[test]
    fn a_field_reads_what_was_written_and_touches_no_other_bit(
        before: [u8; LEN], dword in 0..LEN / 4, (hi, lo) in place(32), value: u32,
    ) {
        let field = Field::<LEN>::new(dword * 4, hi, lo);
        let value = value & field.max();
        let mut block = before;
        field.set(&mut block, value);
        prop_assert_eq!(field.get(&block), value);
        prop_assert_eq!(bits(&block, field.bit(), field.bits()), u64::from(value));
        prop_assert!(same_outside(&before, &block, field.bit(), field.bits()));
    }

    #[test]
    fn a_wide_field_does_the_same_across_dwords(
        before: [u8; LEN], dword in 0..LEN / 4 - 1, (hi, lo) in place(64), value: u64,
    ) {
        let field = Wide::<LEN>::new(dword * 4, hi, lo);
        let value = value & field.max();
        let mut block = before;
        field.set(&mut block, value);
        prop_assert_eq!(field.get(&block), value);
        prop_assert_eq!(bits(&block, field.bit(), field.bits()), value);
        prop_assert!(same_outside(&before, &block, field.bit(), field.bits()));
    }

    #[test]
    fn a_run_does_the_same_for_bytes(before: [u8; LEN], offset in 0..LEN - 6, value: [u8; 6]) {
        let run = Run::<LEN, 6>::new(offset);
        let mut block = before;
        run.set(&mut block, value);
        prop_assert_eq!(run.get(&block), value);
        prop_assert_eq!(&block[offset..offset + 6], &value);
        prop_assert!(same_outside(&before, &block, run.bit(), run.bits()));
    }
}

#[test]
fn a_field_knows_what_fits() {
    const FIVE: Field<4> = Field::new(0, 28, 24);
    const ALL: Field<4> = Field::new(0, 31, 0);
    const QWORD: Wide<8> = Wide::new(0, 63, 0);
    const MAC: Wide<8> = Wide::new(0, 47, 0);
    assert_eq!((FIVE.max(), FIVE.fits(31), FIVE.fits(32)), (31, true, false));
    assert_eq!((ALL.max(), ALL.fits(u32::MAX)), (u32::MAX, true));
    assert_eq!((QWORD.max(), QWORD.fits(u64::MAX)), (u64::MAX, true));
    assert_eq!((MAC.bit(), MAC.bits(), MAC.fits(1 << 48)), (16, 48, false));
}

#[test]
#[should_panic(expected = "more bits than the field has")]
fn a_value_too_large_is_not_cut() {
    Field::<4>::new(0, 3, 0).set(&mut [0; 4], 16);
}

#[test]
#[should_panic(expected = "outside the block")]
fn a_place_past_the_end_is_refused() {
    let _ = Field::<4>::new(4, 31, 0);
}

#[test]
#[should_panic(expected = "not both in the block")]
fn half_a_wide_field_is_refused() {
    let _ = Wide::<8>::new(4, 63, 0);
}
