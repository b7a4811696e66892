//! Which of three tables a version takes: never one that a reader may be reading.
//!
//! ```text
//!   version 7   table 0    the writer's again
//!   version 8   table 1    readers that have not passed yet
//!   version 9   table 2    published
//!   version 10             takes table 1 once all readers have passed to version 9, table 0 if one has not
//! ```
//!
//! A version is published when all readers have passed to the one before it, so that no reader is further back than that.

use crate::LookupError;
use crate::version::Versions;

/// Tables that versions take in turn. Two are enough while readers pass before routes change again.
pub(crate) const TABLES: usize = 3;

/// Bits of a version that are its table; those above count.
const TABLE_BITS: u32 = 2;

/// The table that a version takes.
#[inline(always)]
pub(crate) fn table_of(version: u64) -> usize {
    version as usize & ((1 << TABLE_BITS) - 1)
}

/// The writer's account of which version has which table.
#[derive(Debug)]
pub(crate) struct Turns {
    published: u64,
    /// The version that is worked on, once something has changed.
    working: Option<u64>,
    /// The table of the version before the published one.
    before: usize,
    /// That which neither has.
    spare: usize,
}

impl Turns {
    /// Version 0 is published.
    pub(crate) fn new() -> Self {
        Self { published: 0, working: None, before: 1, spare: 2 }
    }

    pub(crate) fn published(&self) -> u64 {
        self.published
    }

    /// The version that is worked on; where nothing has changed, the published one.
    #[inline(always)]
    pub(crate) fn newest(&self) -> u64 {
        self.working.unwrap_or(self.published)
    }

    /// Begins a version, if none is worked on: its table may be written from now on.
    #[inline]
    pub(crate) fn begin(&mut self, versions: &Versions) -> Option<u64> {
        if self.working.is_some() {
            return None;
        }
        let table = if versions.oldest() >= self.published { self.before } else { self.spare };
        let number = (self.published >> TABLE_BITS) + 1;
        self.working = Some(number << TABLE_BITS | table as u64);
        self.working
    }

    /// Publishes the version that is worked on, if there is one: the version that all readers have, or a later one.
    pub(crate) fn publish(&mut self, versions: &Versions) -> Result<Option<u64>, LookupError> {
        let Some(working) = self.working else { return Ok(None) };
        let (published, oldest) = (self.published, versions.oldest());
        if oldest < published {
            return Err(LookupError::ReadersBehind {
                behind: (published >> TABLE_BITS) - (oldest >> TABLE_BITS),
            });
        }
        versions.publish(working);
        self.working = None;
        self.published = working;
        let table = table_of(working);
        self.spare = if table == self.spare { self.before } else { self.spare };
        self.before = table_of(published);
        Ok(Some(published))
    }
}
