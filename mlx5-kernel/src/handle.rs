//! The objects of a context, by handle.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_uverbs::Errno;

use crate::core::Core;
use crate::object_counts::ObjectCounts;

/// An object. Its own file says what it is; whoever holds handles knows no more of it than this.
pub(crate) trait Object: Any + fmt::Debug + Send {
    fn kind(&self) -> ObjectKind;

    /// Ends it on the device, on behalf of the user context `uid`. After a refusal it is still there.
    fn end(&mut self, _core: &Core, _uid: u16) -> Result<(), Errno> {
        Ok(())
    }

    /// What it is made of on the device and a program may name: the command that made it, and its number.
    fn parts(&self) -> Vec<(u16, u32)> {
        Vec::new()
    }

    /// Where it is in the device's file, for what can be mapped.
    fn offset(&self) -> Option<u32> {
        None
    }
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A protection domain.
    Pd,
    /// A memory region.
    Mr,
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
    /// An address handle.
    Ah,
    /// Memory of the device.
    Dm,
    /// A memory window.
    Mw,
    /// An XRC domain.
    Xrcd,
    /// A work queue.
    Wq,
    /// A table of receive work queues.
    RwqTable,
    /// A flow rule.
    Flow,
    /// A set of counters.
    Counters,
    /// A doorbell page.
    Uar,
    /// An object of DevX.
    DevxObject,
    /// Memory of DevX.
    DevxUmem,
    /// A flow matcher.
    Matcher,
    /// Something that flows do to packets.
    FlowAction,
}

/// All objects of a context. Handles are the smallest free numbers, of all kinds together, as the kernel gives them.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    entries: BTreeMap<u32, Entry>,
    made: u64,
    counts: Arc<ObjectCounts>,
}

#[derive(Debug)]
struct Entry {
    object: Box<dyn Object>,
    /// Objects that cannot be without it.
    users: u32,
    /// Objects that it cannot be without.
    parents: Vec<u32>,
    /// When it was made: younger ones go first at the end.
    turn: u64,
}

impl Handles {
    /// None yet; they count there.
    pub(crate) fn counted(counts: &Arc<ObjectCounts>) -> Self {
        Self { counts: Arc::clone(counts), ..Self::default() }
    }

    /// Adds an object that needs `parents`.
    pub(crate) fn add(&mut self, object: impl Object, parents: &[u32]) -> u32 {
        let taken = self.entries.keys().zip(0_u32..).take_while(|(handle, index)| *handle == index).count();
        // No more objects fit into memory than a u32 counts.
        let handle = taken as u32;
        self.made += 1;
        self.counts.made.fetch_add(1, Ordering::Relaxed);
        self.counts.living.fetch_add(1, Ordering::Relaxed);
        for parent in parents {
            self.hold(*parent);
        }
        let (object, parents) = (Box::new(object), parents.to_vec());
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

    /// An object of any kind.
    pub(crate) fn any(&self, handle: u32) -> Result<&dyn Object, Errno> {
        self.entries.get(&handle).map(|entry| entry.object.as_ref()).ok_or(Errno::ENOENT)
    }

    pub(crate) fn any_mut(&mut self, handle: u32) -> Result<&mut dyn Object, Errno> {
        self.entries.get_mut(&handle).map(|entry| entry.object.as_mut()).ok_or(Errno::ENOENT)
    }

    /// An object of one kind; `EINVAL` when it is of another.
    pub(crate) fn get<T: Object>(&self, handle: u32) -> Result<&T, Errno> {
        let object: &dyn Any = self.any(handle)?;
        object.downcast_ref().ok_or(Errno::EINVAL)
    }

    pub(crate) fn get_mut<T: Object>(&mut self, handle: u32) -> Result<&mut T, Errno> {
        let object: &mut dyn Any = self.any_mut(handle)?;
        object.downcast_mut().ok_or(Errno::EINVAL)
    }

    /// Whether other objects need it; `ENOENT` when it is not there.
    pub(crate) fn is_used(&self, handle: u32) -> Result<bool, Errno> {
        self.entries.get(&handle).map(|entry| entry.users > 0).ok_or(Errno::ENOENT)
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

    pub(crate) fn remove(&mut self, handle: u32) -> Option<Box<dyn Object>> {
        let entry = self.entries.remove(&handle)?;
        self.counts.living.fetch_sub(1, Ordering::Relaxed);
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
