//! Which lcore a thread is, and what it is for.

use std::cell::Cell;
use std::fmt;

/// An lcore's number. By default the number of the CPU it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LcoreId(pub u16);

impl fmt::Display for LcoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an lcore is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LcoreRole {
    /// Runs what the application launches (DPDK: RTE).
    Dataplane,
    /// Runs services.
    Service,
    /// A thread that the EAL did not make and that registered itself.
    NonEal,
}

impl fmt::Display for LcoreRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dataplane => "a dataplane lcore",
            Self::Service => "a service core",
            Self::NonEal => "a thread the EAL did not make",
        })
    }
}

thread_local! {
    pub(super) static CURRENT: Cell<Option<LcoreId>> = const { Cell::new(None) };
}

/// The calling thread's lcore, if it is one (of any `Eal`).
#[must_use]
#[doc(alias = "rte_lcore_id")]
pub fn current() -> Option<LcoreId> {
    CURRENT.get()
}
