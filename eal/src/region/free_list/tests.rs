use proptest::prelude::*;

use super::*;

/// As real regions: aligned to a page and to no more.
const BASE: usize = 0x7f00_0000_1000;

#[derive(Clone, Debug)]
enum Step {
    Take { bytes: usize, align: usize, bound: bool },
    GiveBack(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..3000_usize, 0..13_u32, any::<bool>()).prop_map(|(bytes, align, bound)| Step::Take {
            bytes,
            align: 1 << align,
            bound
        }),
        any::<usize>().prop_map(Step::GiveBack),
    ]
}

proptest! {
    /// Against an oracle that marks every byte.
    #[test]
    fn pieces_never_overlap_and_everything_comes_back(steps in prop::collection::vec(step(), 1..120)) {
        const ROOM: usize = 16 * 1024;
        let mut list = FreeList::new(BASE, ROOM);
        let mut marks = vec![false; ROOM];
        let mut ever = vec![false; ROOM];
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Take { bytes, align, bound } => {
                    let bound = bound.then(|| bytes.next_power_of_two());
                    let Some(place) = list.take("piece", bytes, align, bound) else {
                        // Refused only if no run of free bytes could hold it.
                        let size = bytes.next_multiple_of(GRAIN);
                        let fits = (0..=ROOM.saturating_sub(size)).step_by(GRAIN).any(|at| {
                            let first = BASE + at;
                            first.is_multiple_of(align)
                                && bound.is_none_or(|bound| first / bound == (first + bytes - 1) / bound)
                                && !marks[at..at + size].contains(&true)
                        });
                        prop_assert!(!fits, "{bytes} bytes at {align} within {bound:?} were refused");
                        continue;
                    };
                    let size = bytes.next_multiple_of(GRAIN);
                    let range = place.offset..place.offset + size;
                    let first = BASE + place.offset;
                    prop_assert!(range.end <= ROOM);
                    prop_assert!(first.is_multiple_of(align.max(GRAIN)));
                    if let Some(bound) = bound {
                        prop_assert_eq!(first / bound, (first + bytes - 1) / bound);
                    }
                    prop_assert!(!marks[range.clone()].contains(&true), "overlap");
                    prop_assert!(place.dirty || !ever[range.clone()].contains(&true), "used bytes called clean");
                    marks[range.clone()].fill(true);
                    ever[range].fill(true);
                    taken.push((place.offset, size));
                }
                Step::GiveBack(_) if taken.is_empty() => {}
                Step::GiveBack(which) => {
                    let (offset, size) = taken.swap_remove(which % taken.len());
                    list.give_back(offset);
                    marks[offset..offset + size].fill(false);
                }
            }
            prop_assert_eq!(list.free_bytes(), marks.iter().filter(|mark| !**mark).count());
        }
        for (offset, _) in taken {
            list.give_back(offset);
        }
        prop_assert_eq!(list.largest_hole(), ROOM, "holes were not joined");
        prop_assert!(list.taken().is_empty());
    }
}

#[test]
fn the_smallest_hole_that_fits_is_taken() {
    let mut list = FreeList::new(BASE, 64 * 64);
    let place =
        |list: &mut FreeList, grains: usize| list.take("x", grains * 64, 1, None).expect("room").offset;
    let offsets: Vec<usize> = [8, 1, 2, 1, 4, 1].into_iter().map(|grains| place(&mut list, grains)).collect();
    list.give_back(offsets[0]);
    list.give_back(offsets[2]);
    list.give_back(offsets[4]);
    assert_eq!(place(&mut list, 2), offsets[2]);
    assert_eq!(place(&mut list, 3), offsets[4]);
}

#[test]
fn no_size_overflows() {
    let mut list = FreeList::new(BASE, 4096);
    for bytes in [usize::MAX, usize::MAX - 62, usize::MAX - BASE, 4097] {
        assert_eq!(list.take("x", bytes, 1 << 30, None), None);
    }
    assert_eq!(list.free_bytes(), 4096);
}

#[test]
#[should_panic(expected = "only a zone gives back")]
fn nothing_comes_back_twice() {
    let mut list = FreeList::new(BASE, 4096);
    let place = list.take("x", 64, 1, None).expect("room");
    list.give_back(place.offset);
    list.give_back(place.offset);
}
