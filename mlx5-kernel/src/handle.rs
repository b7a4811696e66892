//! The objects of a context, by handle.

use std::collections::BTreeMap;

use pollux_uverbs::Errno;

use crate::ah::Ah;
use crate::counters::Counters;
use crate::cq::Cq;
use crate::devx::object::DevxObject;
use crate::devx::umem::DevxUmem;
use crate::dm::Dm;
use crate::flow::Flow;
use crate::matcher::Matcher;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::rwq_table::RwqTable;
use crate::srq::Srq;
use crate::uar::Uar;
use crate::wq::Wq;
use crate::xrcd::Xrcd;

/// Declares the kinds of objects, and how one is found.
macro_rules! objects {
    ($($kind:ident: $type:ty $(, $get:ident)?;)*) => {
        /// An object.
        #[derive(Debug)]
        pub(crate) enum Object {
            $($kind($type),)*
        }

        /// Its kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ObjectKind {
            $(
                #[doc = concat!("`", stringify!($kind), "`.")]
                $kind,
            )*
        }

        impl Object {
            pub(crate) fn kind(&self) -> ObjectKind {
                match self { $(Self::$kind(_) => ObjectKind::$kind,)* }
            }
        }

        impl Handles {
            $($(
                pub(crate) fn $get(&self, handle: u32) -> Result<&$type, Errno> {
                    match self.get(handle)? {
                        Object::$kind(object) => Ok(object),
                        _ => Err(Errno::EINVAL),
                    }
                }
            )?)*
        }
    };
}

objects! {
    Pd: Pd, pd;
    Mr: Mr, mr;
    Cq: Cq, cq;
    Qp: Qp, qp;
    Srq: Srq, srq;
    Ah: Ah;
    Dm: Dm, dm;
    Mw: Mw;
    Xrcd: Xrcd, xrcd;
    Wq: Wq, wq;
    RwqTable: RwqTable, rwq_table;
    Flow: Flow;
    Counters: Counters, counters;
    Uar: Uar;
    DevxObject: DevxObject, devx_object;
    DevxUmem: DevxUmem;
    Matcher: Matcher, matcher;
}

/// All objects of a context. Handles are the smallest free numbers, of all kinds together, as the kernel gives them.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    entries: BTreeMap<u32, Entry>,
    made: u64,
}

#[derive(Debug)]
struct Entry {
    object: Object,
    /// Objects that cannot be without it.
    users: u32,
    /// Objects that it cannot be without.
    parents: Vec<u32>,
    /// When it was made: younger ones go first at the end.
    turn: u64,
}

impl Handles {
    /// Adds an object that needs `parents`.
    pub(crate) fn add(&mut self, object: Object, parents: &[u32]) -> u32 {
        let taken = self.entries.keys().zip(0_u32..).take_while(|(handle, index)| *handle == index).count();
        // No more objects fit into memory than a u32 counts.
        let handle = taken as u32;
        self.made += 1;
        for parent in parents {
            self.hold(*parent);
        }
        let parents = parents.to_vec();
        self.entries.insert(handle, Entry { object, users: 0, parents, turn: self.made });
        handle
    }

    /// One more object needs it.
    pub(crate) fn hold(&mut self, handle: u32) {
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.users += 1;
        }
    }

    /// One object fewer needs it.
    pub(crate) fn release(&mut self, handle: u32) {
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    pub(crate) fn get(&self, handle: u32) -> Result<&Object, Errno> {
        self.entries.get(&handle).map(|entry| &entry.object).ok_or(Errno::ENOENT)
    }

    /// Whether other objects need it; `ENOENT` when it is not there.
    pub(crate) fn is_used(&self, handle: u32) -> Result<bool, Errno> {
        self.entries.get(&handle).map(|entry| entry.users > 0).ok_or(Errno::ENOENT)
    }

    pub(crate) fn get_mut(&mut self, handle: u32) -> Result<&mut Object, Errno> {
        self.entries.get_mut(&handle).map(|entry| &mut entry.object).ok_or(Errno::ENOENT)
    }

    /// Replaces what it needs.
    pub(crate) fn adopt(&mut self, handle: u32, parents: &[u32]) {
        for parent in parents {
            self.hold(*parent);
        }
        let former = self
            .entries
            .get_mut(&handle)
            .map(|entry| std::mem::replace(&mut entry.parents, parents.to_vec()))
            .unwrap_or_default();
        for parent in former {
            self.release(parent);
        }
    }

    pub(crate) fn remove(&mut self, handle: u32) -> Option<Object> {
        let entry = self.entries.remove(&handle)?;
        for parent in entry.parents {
            self.release(parent);
        }
        Some(entry.object)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Handles of a kind.
    pub(crate) fn of_kind(&self, kind: ObjectKind) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().filter(move |(_, entry)| entry.object.kind() == kind).map(|(handle, _)| *handle)
    }

    /// The youngest object that no other needs; the youngest of all when each is needed by another.
    pub(crate) fn next_to_go(&self) -> Option<u32> {
        let youngest = |free: bool| {
            self.entries
                .iter()
                .filter(|(_, entry)| !free || entry.users == 0)
                .max_by_key(|(_, entry)| entry.turn)
                .map(|(handle, _)| *handle)
        };
        youngest(true).or_else(|| youngest(false))
    }
}
