//! Every interleaving of a writer and readers, explored by loom: `cargo xtask loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use pollux_atomic::explore;

use crate::lpm::turns::{TABLES, Turns, table_of};
use crate::version::Versions;

/// Two pages, of which versions take turns. Loom sees to it that nobody reads one while it is written, or may be.
struct Table {
    versions: Versions,
    pages: [UnsafeCell<()>; 2],
}

impl Table {
    fn new() -> Arc<Self> {
        Arc::new(Self { versions: Versions::new(), pages: [UnsafeCell::new(()), UnsafeCell::new(())] })
    }

    fn write(&self, version: u64) {
        self.pages[version as usize % 2].with_mut(drop);
        self.versions.publish(version);
    }

    fn read(&self, version: u64) {
        self.pages[version as usize % 2].with(drop);
    }
}

#[test]
fn a_version_is_read_whole() {
    explore(3, || {
        let table = Table::new();
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let mut seat = table.versions.seat();
                table.read(seat.pass(&table.versions));
            })
        };
        table.write(1);
        reader.join().expect("no panic");
    });
}

/// The page of a version is written again once no reader can have it, and not before.
#[test]
fn memory_is_reused_behind_its_readers() {
    explore(3, || {
        let table = Table::new();
        let mut seat = table.versions.seat();
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                for _ in 0..2 {
                    table.read(seat.pass(&table.versions));
                }
                table.versions.leave(&seat);
            })
        };
        table.write(1);
        if table.versions.oldest() >= 1 {
            table.write(2);
        }
        reader.join().expect("no panic");
    });
}

/// A reader that comes while a version is published is counted, or reads the new one.
#[test]
fn a_reader_that_comes_is_counted() {
    explore(3, || {
        let table = Table::new();
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let mut seat = table.versions.seat();
                table.read(seat.pass(&table.versions));
                table.versions.leave(&seat);
            })
        };
        for version in 1..=2 {
            if table.versions.oldest() >= version - 1 {
                table.write(version);
            }
        }
        reader.join().expect("no panic");
    });
}

/// Tables that versions take in turn, as routes do. Loom sees to it that nobody reads one while it is written.
struct Tables {
    versions: Versions,
    tables: [UnsafeCell<()>; TABLES],
}

/// The writer publishes when it can and writes on when not; it reads the published table, to bring up its own. One reader may be behind.
#[test]
fn tables_take_turns_behind_their_readers() {
    explore(3, || {
        let shared = Arc::new(Tables {
            versions: Versions::new(),
            tables: std::array::from_fn(|_| UnsafeCell::new(())),
        });
        let mut seat = shared.versions.seat();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.tables[table_of(seat.pass(&shared.versions))].with(drop);
                }
                shared.versions.leave(&seat);
            })
        };
        let mut turns = Turns::new();
        for _ in 0..4 {
            turns.begin(&shared.versions);
            shared.tables[table_of(turns.published())].with(drop);
            shared.tables[table_of(turns.newest())].with_mut(drop);
            // Refused while the reader is behind: then the same version is written once more.
            let _ = turns.publish(&shared.versions);
        }
        reader.join().expect("no panic");
    });
}

#[test]
fn relaxations() {
    pollux_atomic::print(crate::order::RELAXATIONS);
}
