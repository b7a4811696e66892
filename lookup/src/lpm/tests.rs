//! Tables beside each other, of which readers see one.

use super::tables::ENTRIES;
use super::turns::{TABLES, table_of};
use super::*;
use crate::memory::Word;

/// The table that is worked on next, which nothing has changed yet: the published one, to the last entry.
fn brought_up(routes: &mut Lpm4) -> usize {
    let published = routes.tables.newest();
    routes.tables.begin();
    let working = routes.tables.newest();
    assert_ne!(table_of(published), table_of(working));
    let shared = routes.tables.shared();
    let both = shared.table(published).iter().zip(shared.table(working));
    assert_eq!(both.map(|(one, other)| (one.get(), other.get())).position(|(one, other)| one != other), None);
    table_of(working)
}

#[test]
fn tables_agree_after_many_versions() {
    let mut routes = Lpm4::new(512).expect("a table");
    let mut reader = routes.reader();
    let mut used = [0; TABLES];
    // Of a linear congruence, the upper bits.
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 40
    };
    for version in 0..3000 {
        for _ in 0..random() % 5 {
            let length = 10 + (random() % 23) as u8;
            let prefix = (0x0a01_0000 | random() as u32 & 0x83c1) & (u32::MAX << (32 - length));
            let changed = match random() % 2 {
                0 => routes.remove(prefix, length),
                _ => routes.add(prefix, length, random() as u32),
            };
            changed.expect("room");
        }
        // The reader passes in two of three versions, so that all tables are needed.
        let published = routes.publish();
        used[table_of(routes.tables.newest())] += 1;
        if version % 3 > 0 || published.is_err() {
            reader.pass();
        }
        if version % 100 == 0 {
            routes.publish().expect("the reader has passed, or one version is behind");
            brought_up(&mut routes);
        }
    }
    assert!(used.iter().all(|times| *times > 300), "{used:?}");
    reader.pass();
    routes.publish().expect("the reader has passed");
    reader.pass();
    let first = brought_up(&mut routes);
    routes.publish().expect("the reader has passed");
    let second = brought_up(&mut routes);
    assert_ne!(first, second);
    let shown = ENTRIES * size_of::<u32>();
    assert!(routes.memory_bytes() < shown, "what nobody wrote to takes no memory");
}
