//! Which pages of devices the program has mapped.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_int;
use pollux_uverbs::{Page, Protection};

/// Pages by address: some as often as they are mapped, for a device's clock stands in one place.
pub(super) type Pages = BTreeMap<usize, Vec<Page>>;

static PAGES: Mutex<Pages> = Mutex::new(BTreeMap::new());
/// At how many addresses.
pub(super) static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) fn lock() -> MutexGuard<'static, Pages> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What mmap(2)'s rights ask of a page.
pub(super) fn protection(rights: c_int) -> Protection {
    match rights {
        libc::PROT_READ => Protection::Read,
        libc::PROT_WRITE => Protection::Write,
        _ => Protection::ReadWrite,
    }
}
