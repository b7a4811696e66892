//! The entries of the first 24 bits, once for readers and once for the writer, and the groups behind them.
//!
//! ```text
//!   words  | table 0, 2^24 entries | table 1 | table 2 | group | group | ...
//! ```
//!
//! A version has one of the tables for its own. The writer changes another one, which it has brought up to the published version by copying
//! the lines in which it is older. Memory is address space until it is written to.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::stale::Stale;
use super::turns::{TABLES, Turns, table_of};
use crate::LookupError;
use crate::memory::{HUGE_PAGE, Word, Words, copy_words};
use crate::reader::Shared;
use crate::version::Versions;

/// Bits that select an entry of a table.
pub(super) const TOP_BITS: u32 = 24;
/// Entries of a table.
pub(super) const ENTRIES: usize = 1 << TOP_BITS;
/// Where groups begin.
pub(super) const GROUPS_AT: usize = TABLES * ENTRIES;

/// Entries of a huge page.
const PAGE_ENTRIES: usize = HUGE_PAGE / size_of::<u32>();

/// What writer and readers share.
#[derive(Debug)]
pub(super) struct SharedTables {
    words: Words<AtomicU32>,
    versions: Versions,
}

impl SharedTables {
    #[inline(always)]
    pub(super) fn words(&self) -> &[AtomicU32] {
        &self.words
    }

    /// The table of a version.
    #[inline(always)]
    pub(super) fn table(&self, version: u64) -> &[AtomicU32; ENTRIES] {
        let Ok(table) = self.words[table_of(version) * ENTRIES..][..ENTRIES].try_into() else {
            unreachable!("it has so many entries")
        };
        table
    }
}

impl Shared for SharedTables {
    #[inline(always)]
    fn versions(&self) -> &Versions {
        &self.versions
    }
}

/// The writer's end.
#[derive(Debug)]
pub(super) struct Tables {
    shared: Arc<SharedTables>,
    turns: Turns,
    /// Of each table, where it is older than the newest.
    stale: [Stale; TABLES],
    /// Of each table, a bit for each huge page that was written to.
    touched: [u32; TABLES],
}

const _: () = assert!(ENTRIES / PAGE_ENTRIES == u32::BITS as usize);

impl Tables {
    /// Zeros, and room for groups of so many words together.
    pub(super) fn new(groups: usize) -> Result<Self, LookupError> {
        let words = groups.checked_add(GROUPS_AT).ok_or(LookupError::TooLarge { words: usize::MAX })?;
        let shared = SharedTables { words: Words::new(words)?, versions: Versions::new() };
        Ok(Self {
            shared: Arc::new(shared),
            turns: Turns::new(),
            // The third one falls behind until it is needed at all: no use in knowing where.
            stale: std::array::from_fn(|table| Stale::new(ENTRIES, table == 2)),
            touched: [0; TABLES],
        })
    }

    #[inline(always)]
    pub(super) fn shared(&self) -> &Arc<SharedTables> {
        &self.shared
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &[AtomicU32] {
        &self.shared.words
    }

    /// The version that is worked on, or the published one if nothing has changed.
    #[inline(always)]
    pub(super) fn newest(&self) -> u64 {
        self.turns.newest()
    }

    /// Where an entry of the newest version stands.
    #[inline(always)]
    pub(super) fn place(&self, entry: usize) -> usize {
        table_of(self.newest()) * ENTRIES + entry
    }

    /// Sees to it that the newest version is one that may be written.
    #[inline]
    pub(super) fn begin(&mut self) {
        if let Some(working) = self.turns.begin(&self.shared.versions) {
            self.bring_up(working);
        }
    }

    /// Makes the table of a version, which no reader has, what the published version's is.
    #[cold]
    fn bring_up(&mut self, working: u64) {
        let published = self.turns.published();
        let (from, to) = (self.shared.table(published), self.shared.table(working));
        self.stale[table_of(working)].take(|line| {
            let (from, to) = (&from[line.clone()], &to[line]);
            // What nobody has written to shall not take memory.
            if from.iter().zip(to).any(|(from, to)| from.get() != to.get()) {
                copy_words(from, to);
            }
        });
        self.touched[table_of(working)] |= self.touched[table_of(published)];
    }

    /// Notes that the working version's entries from `first` to `last` are changed: the other tables are older there.
    #[inline]
    pub(super) fn mark(&mut self, first: usize, last: usize) {
        let working = table_of(self.newest());
        for (_, stale) in self.stale.iter_mut().enumerate().filter(|(table, _)| *table != working) {
            stale.mark(first, last);
        }
        let (from, to) = (first / PAGE_ENTRIES, last / PAGE_ENTRIES);
        self.touched[working] |= (u32::MAX << from) & (u32::MAX >> (31 - to));
    }

    /// Publishes what was changed, if anything was: the version that all readers have, or a later one.
    pub(super) fn publish(&mut self) -> Result<Option<u64>, LookupError> {
        self.turns.publish(&self.shared.versions)
    }

    /// Bytes of tables that were written to, and of what the writer keeps for them: `each` byte for each entry.
    pub(super) fn touched_bytes(&self, each: usize) -> usize {
        let pages = |bits: u32| bits.count_ones() as usize;
        let once = self.touched.iter().fold(0, |all, touched| all | touched);
        self.touched.iter().map(|touched| pages(*touched) * HUGE_PAGE).sum::<usize>()
            + pages(once) * PAGE_ENTRIES * each
    }
}
