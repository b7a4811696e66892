//! An open session of compressed completions: how far it is, and the title that its packets share.
#![expect(unsafe_code, reason = "reads the copy of an entry as an entry")]

use std::ptr::NonNull;

use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_common::cq::Entry;

/// How far a compressed session is. `count` 0: none is open.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::eth) struct Zip {
    /// Packets in all.
    pub(in crate::eth) count: u32,
    /// Packets fetched.
    pub(in crate::eth) done: u32,
}

/// What a session's packets have in common: the completion at the start of the session, or a copy of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::eth) enum Title {
    Ring(Entry),
    Kept(Kept),
}

/// A copy of an entry, aligned as its fields are.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::eth) struct Kept(pub(in crate::eth) Cqe64);

impl Title {
    /// The title as an entry, as long as this lives.
    #[inline(always)]
    pub(in crate::eth) fn entry(&self) -> Entry {
        match self {
            Self::Ring(entry) => *entry,
            // SAFETY: 64 bytes, aligned; they are read as long as this lives.
            Self::Kept(copy) => unsafe { Entry::at(NonNull::from(&copy.0).cast()) },
        }
    }
}
