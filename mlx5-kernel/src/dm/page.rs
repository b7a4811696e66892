//! Pages of the device's memory.

use std::sync::{Mutex, PoisonError};

/// Which pages of the memory are given out: a page has one owner, for programs map whole pages.
#[derive(Debug, Default)]
pub(crate) struct DevicePages(Mutex<Vec<bool>>);

impl DevicePages {
    /// Takes the first `count` free pages in a row from `from` on, of `all`.
    pub(super) fn take(&self, from: usize, count: usize, all: usize) -> Option<usize> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.resize(all, false);
        let first =
            (from..(all + 1).saturating_sub(count)).find(|at| !used[*at..at + count].contains(&true))?;
        used[first..first + count].fill(true);
        Some(first)
    }

    pub(super) fn put(&self, first: usize, count: usize) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pages) = used.get_mut(first..first + count) {
            pages.fill(false);
        }
    }
}
